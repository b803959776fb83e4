//! Antrea's policies, groups and tiers, and Kubernetes' ClusterNetworkPolicy.

use apis::controlplane::{Direction, NetworkPolicy, RuleAction};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::support::{World, mk_k8s, mk_labels, mk_pod, names};
use super::*;
use crate::index::NodeInput;

pub(super) fn acnp(name: &str, spec: Value) -> Event {
    let policy = json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": name, "uid": name, "generation": 1}, "spec": spec});
    Event::ClusterPolicy(Box::new(serde_json::from_value(policy).unwrap()))
}

pub(super) fn annp(namespace: &str, name: &str, spec: Value) -> Event {
    let policy = json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy",
        "metadata": {"namespace": namespace, "name": name, "uid": name, "generation": 1},
        "spec": spec});
    Event::NamespacedPolicy(Box::new(serde_json::from_value(policy).unwrap()))
}

pub(super) fn group(namespace: &str, name: &str, spec: Option<Value>) -> Event {
    let spec = spec.map(|spec| Box::new(serde_json::from_value(spec).unwrap()));
    Event::Group { namespace: namespace.into(), name: name.into(), spec }
}

pub(super) fn mk_world() -> World {
    let mut world = World::default();
    world.namespace("x", "team=a,env=prod");
    world.namespace("y", "team=a,env=dev");
    world.namespace("z", "team=b");
    for (namespace, node) in [("x", "n1"), ("y", "n2"), ("z", "n3")] {
        for (n, app) in ["web", "db"].iter().enumerate() {
            let ip = format!("10.0.{}.{}", namespace.as_bytes()[0], n + 1);
            world.pod(mk_pod(namespace, app, &format!("app={app}"), node, &ip));
        }
    }
    world
}

fn ip(name: &str) -> String {
    let (namespace, app) = name.split_once('/').unwrap();
    let n = if app == "web" { 1 } else { 2 };
    format!("{name} 10.0.{}.{n}", namespace.as_bytes()[0])
}

/// `TARGETS <- PEERS` of each rule with targets of its own, sorted.
fn rules(world: &World, policy: &NetworkPolicy) -> Vec<String> {
    let mut all: Vec<String> = policy
        .rules
        .iter()
        .map(|rule| {
            let targets: std::collections::BTreeSet<String> = rule
                .applied_to_groups
                .iter()
                .flat_map(|name| world.members(ObjectKind::AppliedToGroup, name))
                .collect();
            let list = |set: &std::collections::BTreeSet<String>| {
                set.iter().map(|name| name.split(' ').next().unwrap()).collect::<Vec<_>>().join(" ")
            };
            format!("{} <- {}", list(&targets), list(&world.peers(rule)))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn a_cluster_policy_in_its_tier() {
    let mut world = mk_world();
    world.step(acnp(
        "p",
        json!({"tier": "mine", "priority": 5.5,
            "appliedTo": [{"podSelector": {"matchLabels": {"app": "db"}}}],
            "ingress": [
                {"action": "Allow", "name": "a", "enableLogging": true, "logLabel": "l",
                 "from": [{"namespaceSelector": {"matchLabels": {"team": "a"}},
                     "podSelector": {"matchLabels": {"app": "web"}}}]},
                {"action": "Reject", "protocols": [{"icmp": {"icmpType": 8}}]},
                {"action": "Drop", "ports": [{"protocol": "UDP", "sourcePort": 53}]}]}),
    ));
    // Its tier comes later.
    assert!(world.policy("p").rules.is_empty());
    world.step(Event::Tier { name: "mine".into(), priority: Some(30) });
    let policy = world.policy("p");
    assert_eq!((policy.priority, policy.tier_priority), (Some(5.5), Some(30)));
    assert_eq!(world.targets(&policy), names(&["x/db", "y/db", "z/db"]));
    assert_eq!(world.peers(&policy.rules[0]), names(&[&ip("x/web"), &ip("y/web")]));
    let first = &policy.rules[0];
    assert!(first.enable_logging);
    assert_eq!((first.name.as_str(), first.log_label.as_str(), first.priority), ("a", "l", 0));
    assert_eq!(policy.rules[1].services[0].icmp_type, Some(8));
    assert_eq!(policy.rules[2].services[0].src_port, Some(53));
    assert_eq!(policy.rules[2].from.ip_blocks.len(), 2);
    assert_eq!(policy.rules[2].action, Some(RuleAction::Drop));
    world.check();
    world.step(Event::PolicyGone { kind: PolicyKind::Cluster, uid: "p".into() });
    world.check();
    assert!(world.told.is_empty());
}

#[test]
fn what_cannot_be_meant_matches_nothing_and_is_reported() {
    let applied_to = json!([{"podSelector": {}}]);
    for (name, rule) in [
        ("unknown action", json!({"action": "Forbid"})),
        ("empty peer", json!({"action": "Allow", "from": [{}]})),
        ("no network", json!({"action": "Allow", "from": [{"ipBlock": {"cidr": "x"}}]})),
        ("unknown protocol", json!({"action": "Allow", "ports": [{"protocol": "ICMP"}]})),
        ("missing group", json!({"action": "Allow", "from": [{"group": "nowhere"}]})),
        ("unknown match", json!({"action": "Allow", "from": [{"namespaces": {"match": "No"}}]})),
        (
            "set of clusters",
            json!({"action": "Drop", "from": [{"podSelector": {}, "scope": "ClusterSet"}]}),
        ),
        ("layer 7", json!({"action": "Allow", "l7Protocols": [{"http": {}}]})),
        ("igmp", json!({"action": "Drop", "protocols": [{"igmp": {}}]})),
        ("fqdn of a source", json!({"action": "Allow", "from": [{"fqdn": "a.b"}]})),
        (
            "operator",
            json!({"action": "Allow", "from": [{"podSelector": {"matchExpressions": [
                {"key": "a", "operator": "Gt", "values": ["1"]}]}}]}),
        ),
    ] {
        let mut world = mk_world();
        let drop = json!({"action": "Drop"});
        let spec = json!({"priority": 1, "appliedTo": applied_to, "ingress": [rule, drop]});
        let changes = world.step(acnp("p", spec));
        let policy = world.policy("p");
        assert_eq!(policy.rules.len(), 1, "{name}");
        assert_eq!(policy.rules[0].priority, 1, "{name}: places in the policy stay");
        assert_eq!(changes.facts.len(), 1, "{name}");
        assert!(!changes.facts[0].issues.is_empty(), "{name}");
        assert_eq!(changes.facts[0].issues[0].severity, Severity::Part, "{name}");
    }
    for target in [json!({}), json!({"nodeSelector": {}}), json!({"group": "nowhere"})] {
        let mut world = mk_world();
        let spec = json!({"priority": 1, "appliedTo": [target], "ingress": [{"action": "Drop"}]});
        let changes = world.step(acnp("p", spec));
        let policy = world.policy("p");
        assert_eq!(policy.applied_to_groups.len(), 0, "{target}");
        assert!(!changes.facts[0].issues.is_empty(), "{target}");
    }
}

#[test]
fn rules_by_the_targets_own_namespace() {
    let mut world = mk_world();
    world.step(acnp(
        "own",
        json!({"priority": 1, "appliedTo": [{"podSelector": {"matchLabels": {"app": "db"}}}],
            "ingress": [{"action": "Allow", "from": [{"namespaces": {"match": "Self"}}]}]}),
    ));
    assert_eq!(
        rules(&world, &world.policy("own")),
        ["x/db <- x/db x/web", "y/db <- y/db y/web", "z/db <- z/db z/web"]
    );
    world.step(acnp(
        "team",
        json!({"priority": 1, "appliedTo": [{"podSelector": {"matchLabels": {"app": "db"}}}],
            "ingress": [{"action": "Allow", "from": [
                {"namespaces": {"sameLabels": ["team"]},
                 "podSelector": {"matchLabels": {"app": "web"}}}]}]}),
    ));
    let want = ["x/db y/db <- x/web y/web", "z/db <- z/web"];
    assert_eq!(rules(&world, &world.policy("team")), want);
    // Namespaces without the label have no such peers; labels are followed.
    world.namespace("z", "");
    assert_eq!(rules(&world, &world.policy("team")), ["x/db y/db <- x/web y/web"]);
    world.namespace("z", "team=a");
    let want = ["x/db y/db z/db <- x/web y/web z/web"];
    assert_eq!(rules(&world, &world.policy("team")), want);
    world.check();
}

#[test]
fn service_accounts_and_nodes() {
    let mut world = mk_world();
    world.pod(crate::index::PodInput {
        service_account: "robot".into(),
        ..mk_pod("x", "r", "", "n1", "10.9.9.9")
    });
    for (name, ip) in [("n1", "172.30.0.1"), ("n2", "172.30.0.2")] {
        world.step(Event::Node(NodeInput {
            name: name.into(),
            labels: mk_labels("role=edge"),
            ips: vec![ip.parse().unwrap()],
        }));
    }
    let account = json!({"serviceAccount": {"name": "robot", "namespace": "x"}});
    world.step(acnp(
        "p",
        json!({"priority": 1, "appliedTo": [account], "egress": [
            {"action": "Drop", "to": [{"nodeSelector": {"matchLabels": {"role": "edge"}}}]},
            {"action": "Drop", "to": [account]},
            {"action": "Drop", "to": [{"fqdn": "*.Example.com"}]}]}),
    ));
    let policy = world.policy("p");
    assert_eq!(world.targets(&policy), names(&["x/r"]));
    assert_eq!(world.peers(&policy.rules[0]), names(&["n1 172.30.0.1", "n2 172.30.0.2"]));
    assert_eq!(world.peers(&policy.rules[1]), names(&["x/r 10.9.9.9"]));
    assert_eq!(policy.rules[2].to.fqdns, ["*.example.com"]);
    world.step(Event::Node(NodeInput { name: "n1".into(), ..NodeInput::default() }));
    world.step(Event::NodeGone { name: "n2".into() });
    assert_eq!(world.peers(&policy.rules[0]), names(&[]));
    world.check();
}

/// Services as peers are told by name; as targets they are members on every Node.
#[test]
fn services_as_peers_and_as_targets() {
    let mut world = mk_world();
    let node = |name: &str| Event::Node(NodeInput { name: name.into(), ..NodeInput::default() });
    for name in ["n1", "n2"] {
        world.step(node(name));
    }
    world.step(acnp(
        "to",
        json!({"priority": 1, "appliedTo": [{"podSelector": {"matchLabels": {"app": "web"}},
            "namespaceSelector": {"matchLabels": {"team": "b"}}}],
            "egress": [{"action": "Drop", "toServices": [
                {"name": "s", "namespace": "x"}, {"name": "s", "namespace": "x"},
                {"name": "t", "namespace": "y"}, {"name": "u", "namespace": "y", "scope": "ClusterSet"}]}]}),
    ));
    let rule = world.policy("to").rules.remove(0);
    let named: Vec<String> =
        rule.to.to_services.iter().map(|s| format!("{}/{}", s.namespace, s.name)).collect();
    assert_eq!(named, ["x/s", "y/t"]);
    assert!(rule.services.is_empty() && rule.to.ip_blocks.is_empty());
    world.step(annp(
        "x",
        "own",
        json!({"priority": 1, "appliedTo": [{"podSelector": {}}],
            "egress": [{"action": "Allow", "toServices": [{"name": "s"}]}]}),
    ));
    assert_eq!(world.policy("own").rules[0].to.to_services[0].namespace, "x", "its own");

    let at = json!({"priority": 1, "appliedTo": [{"service": {"name": "s", "namespace": "x"}}],
        "ingress": [{"action": "Drop", "from": [
            {"ipBlock": {"cidr": "192.0.2.0/24"}}, {"podSelector": {}}],
            "ports": [{"port": 80}, {"port": "web"}]}]});
    world.step(acnp("at", at));
    let policy = world.policy("at");
    let [name] = &policy.applied_to_groups[..] else { panic!("{policy:?}") };
    let id = world.engine.find(ObjectKind::AppliedToGroup, name).unwrap();
    let ObjectId::Group(group) = id else { panic!("{id:?}") };
    let on = |world: &World| -> Vec<String> {
        let nodes = world.engine.span(id).unwrap().nodes().to_vec();
        nodes
            .into_iter()
            .map(|node| {
                let index = world.engine.index();
                let share = world.engine.applied_to_group(group, Some(node)).unwrap();
                let service = share.group_members[0].service.clone().unwrap();
                assert_eq!(share.group_members.len(), 1);
                assert!(world.engine.list(ObjectKind::AppliedToGroup, Some(node)).contains(&id));
                format!("{} {}/{}", index.node_name(node), service.namespace, service.name)
            })
            .collect()
    };
    assert_eq!(on(&world), ["n1 x/s", "n2 x/s"]);
    let rule = &policy.rules[0];
    assert_eq!((rule.from.ip_blocks.len(), rule.from.address_groups.len()), (1, 0));
    assert_eq!(rule.services.len(), 1, "a name of a container's port means nothing there");
    // Nodes come and go.
    world.step(node("n3"));
    assert_eq!(on(&world), ["n1 x/s", "n2 x/s", "n3 x/s"]);
    world.step(Event::NodeGone { name: "n1".into() });
    assert_eq!(on(&world), ["n2 x/s", "n3 x/s"]);
    world.step(Event::PolicyGone { kind: PolicyKind::Cluster, uid: "at".into() });
    assert_eq!(world.engine.find(ObjectKind::AppliedToGroup, name), None);
}

/// What admission refuses, in case it was there before.
#[test]
fn services_where_they_mean_nothing() {
    let service = json!({"service": {"name": "s", "namespace": "x"}});
    for (spec, (n_rules, n_services), field) in [
        (
            json!({"priority": 1, "appliedTo": [{"podSelector": {}}], "egress": [{"action": "Allow",
                "toServices": [{"name": "s", "namespace": "x"}], "ports": [{"port": 1}]}]}),
            (0, 0),
            "spec.egress[0].toServices",
        ),
        (
            json!({"priority": 1, "appliedTo": [{"podSelector": {}}], "egress": [{"action": "Allow",
                "toServices": [{"name": "s"}]}]}),
            (0, 0),
            "spec.egress[0].toServices[0]",
        ),
        (
            json!({"priority": 1, "appliedTo": [service, {"podSelector": {}}],
                "ingress": [{"action": "Drop"}]}),
            (1, 0),
            "spec.appliedTo",
        ),
        (
            json!({"priority": 1, "egress": [{"action": "Drop", "appliedTo": [service]}]}),
            (0, 0),
            "spec.egress[0].appliedTo",
        ),
        (
            json!({"priority": 1, "appliedTo": [service], "ingress": [{"action": "Drop",
                "from": [{"podSelector": {}}]}]}),
            (0, 1),
            "spec.ingress[0].from[0]",
        ),
    ] {
        let mut world = mk_world();
        let changes = world.step(acnp("p", spec));
        let issues: Vec<&str> =
            changes.facts.iter().flat_map(|f| &f.issues).map(|i| i.field.as_str()).collect();
        assert_eq!(issues, [field]);
        let policy = world.policy("p");
        assert_eq!(policy.rules.len(), n_rules, "{field}");
        let groups = policy.applied_to_groups.iter().filter_map(|name| {
            match world.engine.find(ObjectKind::AppliedToGroup, name)? {
                ObjectId::Group(id) => world.engine.applied_to_group(id, None),
                ObjectId::Policy(_) => None,
            }
        });
        let services = groups.flat_map(|group| group.group_members).filter(|m| m.service.is_some());
        assert_eq!(services.count(), n_services, "{field}");
    }
}

#[test]
fn nested_groups_in_every_order() {
    let events = [
        group("", "parent", Some(json!({"childGroups": ["pods", "nets"]}))),
        group("", "pods", Some(json!({"podSelector": {"matchLabels": {"app": "web"}}}))),
        group("", "nets", Some(json!({"ipBlocks": [{"cidr": "10.7.0.0/16"}]}))),
        acnp(
            "p",
            json!({"priority": 1, "appliedTo": [{"podSelector": {}}],
                "ingress": [{"action": "Drop", "from": [{"group": "parent"}]}]}),
        ),
    ];
    let mut orders = vec![vec![]];
    for n in 0..events.len() {
        orders = orders
            .into_iter()
            .flat_map(|order: Vec<usize>| {
                (0..=order.len()).map(move |at| {
                    let mut longer = order.clone();
                    longer.insert(at, n);
                    longer
                })
            })
            .collect();
    }
    assert_eq!(orders.len(), 24);
    for order in orders {
        let mut world = mk_world();
        for n in &order {
            world.step(events[*n].clone());
        }
        let rule = world.policy("p").rules[0].clone();
        assert_eq!(rule.from.ip_blocks.len(), 1, "{order:?}");
        let want = names(&[&ip("x/web"), &ip("y/web"), &ip("z/web")]);
        assert_eq!(world.peers(&rule), want, "{order:?}");
        world.check();
        // A child that goes takes its members along, and no more.
        let changes = world.step(group("", "pods", None));
        assert!(!changes.facts[0].issues.is_empty());
        let rule = world.policy("p").rules[0].clone();
        assert_eq!(world.peers(&rule), names(&[]), "{order:?}");
        assert_eq!(rule.from.ip_blocks.len(), 1, "{order:?}");
        // A group that became its own child adds nothing, and nothing turns in circles.
        let circle = json!({"childGroups": ["parent", "nets"]});
        world.step(group("", "parent", Some(circle)));
        assert_eq!(world.policy("p").rules[0].from.ip_blocks.len(), 1);
        world.check();
    }
}

#[test]
fn a_changed_group_is_a_patch() {
    let mut world = mk_world();
    let of = |app: &str| Some(json!({"podSelector": {"matchLabels": {"app": app}}}));
    world.step(group("", "g", of("web")));
    world.step(acnp(
        "p",
        json!({"priority": 1, "appliedTo": [{"group": "g"}],
            "ingress": [{"action": "Drop", "from": [{"group": "g"}]}]}),
    ));
    assert_eq!(world.targets(&world.policy("p")), names(&["x/web", "y/web", "z/web"]));
    let changes = world.step(group("", "g", of("db")));
    assert!(changes.objects.iter().all(|change| matches!(change.content, Content::Members { .. })));
    assert_eq!(world.targets(&world.policy("p")), names(&["x/db", "y/db", "z/db"]));
    world.check();
}

#[test]
fn a_namespaced_policy_stays_at_home() {
    let mut world = mk_world();
    world.step(group("x", "g", Some(json!({"podSelector": {"matchLabels": {"app": "web"}}}))));
    world.step(group("", "g", Some(json!({"podSelector": {}}))));
    world.step(annp(
        "x",
        "p",
        json!({"priority": 1, "appliedTo": [{"podSelector": {}}], "ingress": [
            {"action": "Drop", "from": [{"podSelector": {}}]},
            {"action": "Drop", "from": [{"group": "g"}]},
            {"action": "Drop", "from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}]}),
    ));
    let policy = world.policy("p");
    assert_eq!(policy.tier_priority, Some(250));
    assert_eq!(world.targets(&policy), names(&["x/db", "x/web"]));
    assert_eq!(world.peers(&policy.rules[0]), names(&[&ip("x/db"), &ip("x/web")]));
    assert_eq!(world.peers(&policy.rules[1]), names(&[&ip("x/web")]));
    assert_eq!(world.peers(&policy.rules[2]), names(&[&ip("z/db"), &ip("z/web")]));
    // A policy of Kubernetes may have the same name.
    world.k8s("x", "p", 1, json!({"podSelector": {}}));
    assert_eq!(world.policy("p").rules.len(), 3);
    assert_eq!(world.policy("x/p/1").rules.len(), 1);
    world.check();
}

#[test]
fn policies_of_kubernetes_for_the_whole_cluster() {
    let mut world = mk_world();
    let rule = json!({"name": "r", "action": "Deny", "from": [{"namespaces": {}}],
        "protocols": [{"tcp": {"destinationPort": {"range": {"start": 80, "end": 90}}}}]});
    let out = |peer: Value| json!({"action": "Accept", "to": [peer]});
    let spec = json!({"tier": "Admin", "priority": 7,
        "subject": {"namespaces": {"matchLabels": {"team": "a"}}},
        "ingress": [rule, {"action": "Wave", "from": [{"namespaces": {}}]}],
        "egress": [out(json!({"networks": ["10.0.0.0/8"]})), out(json!({"domainNames": ["a.b"]})),
            out(json!({}))]});
    let policy = json!({"apiVersion": "policy.networking.k8s.io/v1alpha2",
        "kind": "ClusterNetworkPolicy", "metadata": {"name": "u", "uid": "u"}, "spec": spec});
    world.step(Event::UpstreamPolicy(Box::new(serde_json::from_value(policy).unwrap())));
    let policy = world.policy("u");
    assert_eq!((policy.tier_priority, policy.priority), (Some(220), Some(7.0)));
    assert_eq!(world.targets(&policy), names(&["x/db", "x/web", "y/db", "y/web"]));
    let n = |direction| policy.rules.iter().filter(|rule| rule.direction == direction).count();
    assert_eq!((n(Direction::In), n(Direction::Out)), (1, 2));
    assert_eq!(policy.rules[0].action, Some(RuleAction::Drop));
    assert_eq!(policy.rules[0].services[0].end_port, Some(90));
    world.check();
}

fn event_strategy() -> impl Strategy<Value = Event> {
    let app = |n: u8| format!("app=a{n}");
    let selector = |n: u8| json!({"matchLabels": {"app": format!("a{n}")}});
    prop_oneof![
        5 => (0u8..3, 0u8..4, 0u8..3, 0u8..4).prop_map(move |(n, p, l, h)| {
            let node = if h == 0 { String::new() } else { format!("h{h}") };
            let ip = format!("10.0.{n}.{p}");
            Event::Pod(mk_pod(&format!("n{n}"), &format!("p{p}"), &app(l), &node, &ip))
        }),
        2 => (0u8..3, 0u8..4).prop_map(|(n, p)| Event::PodGone {
            namespace: format!("n{n}"), name: format!("p{p}"),
        }),
        2 => (0u8..3, 0u8..3).prop_map(|(n, l)| Event::Namespace(NamespaceInput {
            name: format!("n{n}"),
            labels: mk_labels(&format!("team=t{l}")),
            log_policies: l == 0,
        })),
        1 => (0u8..3).prop_map(|n| Event::NamespaceGone { name: format!("n{n}") }),
        1 => (0u8..2, prop::option::of(10i32..20)).prop_map(|(n, priority)| Event::Tier {
            name: format!("t{n}"), priority,
        }),
        2 => (0u8..3, 0u8..3, 0u8..4).prop_map(move |(n, l, kind)| {
            let spec = match kind {
                0 => None,
                1 => Some(json!({"childGroups": [format!("g{l}")]})),
                2 => Some(json!({"ipBlocks": [{"cidr": format!("10.{l}.0.0/16")}]})),
                _ => Some(json!({"podSelector": selector(l)})),
            };
            group("", &format!("g{n}"), spec)
        }),
        4 => (0u8..3, 0u8..5, 0u8..3, 0u8..3).prop_map(move |(n, kind, l, m)| {
            let peer = match kind {
                0 => json!({"podSelector": selector(l)}),
                1 => json!({"group": format!("g{l}")}),
                2 => json!({"namespaces": {"match": "Self"}, "podSelector": selector(l)}),
                3 => json!({"namespaces": {"sameLabels": ["team"]}}),
                _ => json!({"namespaceSelector": {"matchLabels": {"team": format!("t{l}")}}}),
            };
            let target = match m {
                0 => json!({"group": format!("g{n}")}),
                1 => json!({"podSelector": selector(n)}),
                _ => json!({"namespaceSelector": {"matchLabels": {"team": format!("t{n}")}}}),
            };
            acnp(&format!("p{n}"), json!({"priority": 1, "tier": format!("t{}", m % 2),
                "appliedTo": [target], "ingress": [{"action": "Drop", "from": [peer]}]}))
        }),
        1 => (0u8..3).prop_map(|n| Event::PolicyGone {
            kind: PolicyKind::Cluster, uid: format!("p{n}"),
        }),
        2 => (0u8..3, 0u8..2, 0u8..3).prop_map(move |(n, p, l)| {
            mk_k8s(&format!("n{n}"), &format!("k{p}"), 1, json!({"podSelector": selector(l),
                "ingress": [{"from": [{"podSelector": {}}]}]}))
        }),
    ]
}

/// Key of the object that an event is about.
fn key(event: &Event) -> String {
    match event {
        Event::Pod(pod) => format!("pod {}/{}", pod.namespace, pod.name),
        Event::PodGone { namespace, name } => format!("pod {namespace}/{name}"),
        Event::Namespace(namespace) => format!("namespace {}", namespace.name),
        Event::NamespaceGone { name } => format!("namespace {name}"),
        Event::Tier { name, .. } => format!("tier {name}"),
        Event::Group { namespace, name, .. } => format!("group {namespace}/{name}"),
        Event::ClusterPolicy(policy) => {
            format!("policy {}", policy.metadata.uid.as_deref().unwrap())
        }
        Event::K8sPolicy(policy) => format!("policy {}", policy.metadata.uid.as_deref().unwrap()),
        Event::PolicyGone { uid, .. } => format!("policy {uid}"),
        _ => unreachable!("not generated"),
    }
}

proptest! {
    #[test]
    fn history_does_not_show(
        events in prop::collection::vec(event_strategy(), 1..60),
        seed in any::<u64>(),
    ) {
        let mut world = World::default();
        let mut last = std::collections::BTreeMap::new();
        for event in events {
            last.insert(key(&event), event.clone());
            world.step(event);
        }
        world.check();
        // The same objects, each seen once, in some other order, all at once.
        let mut rest: Vec<Event> = last.into_values().collect();
        let mut state = seed | 1;
        for at in (1..rest.len()).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            rest.swap(at, usize::try_from(state >> 33).unwrap() % (at + 1));
        }
        let mut fresh = World::default();
        for event in rest {
            fresh.engine.apply(event);
        }
        fresh.engine.take_changes();
        prop_assert_eq!(world.all_now(), fresh.all_now());
    }
}
