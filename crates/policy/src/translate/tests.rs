//! Kubernetes' policies, as the engine translates them.

mod natives;
mod questions;
mod support;

use serde_json::json;

use super::*;
use support::{World, mk_pod, names};

#[test]
fn a_policy_with_its_groups_reaches_the_nodes_of_its_targets() {
    let mut world = World::default();
    world.pod(mk_pod("x", "a", "app=web", "n1", "10.0.1.1"));
    world.pod(mk_pod("x", "b", "app=db", "n2", "10.0.2.1"));
    world.namespace("x", "");
    let changes = world.k8s(
        "x",
        "p",
        1,
        json!({"podSelector": {"matchLabels": {"app": "db"}},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "web"}}}],
                "ports": [{"port": 80}]}]}),
    );
    let kinds: Vec<ObjectKind> = changes.objects.iter().map(|change| change.kind).collect();
    assert_eq!(kinds.last(), Some(&ObjectKind::NetworkPolicy));
    assert_eq!(kinds.len(), 3);
    for change in &changes.objects {
        let nodes = change.after.as_ref().unwrap().nodes();
        let nodes: Vec<&str> =
            nodes.iter().map(|node| &**world.engine.index().node_name(*node)).collect();
        assert_eq!(nodes, ["n2"], "{change:?}");
        assert_eq!((&change.before, &change.content), (&None, &Content::Whole));
    }
    let policy = world.policy("x/p/1");
    assert_eq!(policy.rules.len(), 1);
    assert_eq!(policy.rules[0].from.address_groups.len(), 1);
    assert_eq!(world.targets(&policy), names(&["x/b"]));
    assert_eq!(world.peers(&policy.rules[0]), names(&["x/a 10.0.1.1"]));
    world.check();
}

#[test]
fn kinds_of_isolation() {
    let any = json!([{}]);
    for (name, spec, ingress, egress) in [
        ("no ingress rule isolates", json!({"podSelector": {}}), Some(0), None),
        (
            "egress alone isolates for egress",
            json!({"podSelector": {}, "policyTypes": ["Egress"]}),
            None,
            Some(0),
        ),
        (
            "an empty list is like none",
            json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": []}),
            None,
            Some(0),
        ),
        (
            "an empty rule allows all",
            json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": any}),
            None,
            Some(2),
        ),
        (
            "egress rules without types count",
            json!({"podSelector": {}, "egress": any}),
            Some(0),
            Some(2),
        ),
        (
            "rules without their type do not",
            json!({"podSelector": {}, "policyTypes": ["Ingress"], "egress": any}),
            Some(0),
            None,
        ),
        (
            "a rule that cannot be read leaves isolation",
            json!({"podSelector": {}, "ingress": [
                {"from": [{"ipBlock": {"cidr": "nonsense"}}]},
                {"from": [{}]},
                {"ports": [{"protocol": "ICMP"}]},
                {"ports": [{"port": "web", "endPort": 90}]}]}),
            Some(0),
            None,
        ),
    ] {
        let mut world = World::default();
        world.k8s("x", "p", 1, spec);
        let policy = world.policy("x/p/1");
        for (direction, want) in [
            (apis::controlplane::Direction::In, ingress),
            (apis::controlplane::Direction::Out, egress),
        ] {
            let rules: Vec<_> =
                policy.rules.iter().filter(|rule| rule.direction == direction).collect();
            assert_eq!(rules.len(), usize::from(want.is_some()), "{name}");
            if let Some(n_blocks) = want {
                assert_eq!(rules[0].peer().ip_blocks.len(), n_blocks, "{name}");
                assert_eq!(rules[0].peer().is_empty(), n_blocks == 0, "{name}");
            }
        }
    }
}

#[test]
fn a_finished_pod_leaves_every_group_at_once() {
    let mut world = World::default();
    world.pod(mk_pod("x", "a", "job=x", "n1", "10.0.0.7"));
    world.k8s(
        "x",
        "p",
        1,
        json!({"podSelector": {"matchLabels": {"job": "x"}},
            "ingress": [{"from": [{"podSelector": {}}]}]}),
    );
    let policy = world.policy("x/p/1");
    assert_eq!(world.targets(&policy), names(&["x/a"]));
    world.pod(PodInput { finished: true, ..mk_pod("x", "a", "job=x", "n1", "10.0.0.7") });
    let changes = world.pod(mk_pod("x", "b", "", "n1", "10.0.0.7"));
    assert_eq!(changes.objects.len(), 1, "{changes:?}");
    assert_eq!(world.targets(&policy), names(&[]));
    assert_eq!(world.peers(&policy.rules[0]), names(&["x/b 10.0.0.7"]));
    let changes = world.pod_gone("x", "a");
    assert_eq!(changes.objects, [], "the end of a finished Pod changes nothing");
    assert_eq!(world.peers(&policy.rules[0]), names(&["x/b 10.0.0.7"]));
    world.check();
}

#[test]
fn pods_without_address_or_network_are_skipped() {
    let mut world = World::default();
    world.k8s(
        "x",
        "p",
        1,
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}),
    );
    world.pod(PodInput { ips: vec![], ..mk_pod("x", "pending", "", "n1", "10.0.0.1") });
    world.pod(PodInput { host_network: true, ..mk_pod("x", "host", "", "n1", "172.30.0.1") });
    world.pod(mk_pod("x", "unscheduled", "", "", "10.0.0.2"));
    world.pod(mk_pod("x", "ok", "", "n1", "10.0.0.3"));
    let policy = world.policy("x/p/1");
    assert_eq!(world.targets(&policy), names(&["x/ok", "x/pending"]));
    assert_eq!(world.peers(&policy.rules[0]), names(&["x/ok 10.0.0.3", "x/unscheduled 10.0.0.2"]));
    world.check();
}

#[test]
fn a_changed_address_is_a_patch() {
    let mut world = World::default();
    world.pod(mk_pod("x", "a", "", "n1", "10.0.0.1"));
    world.k8s(
        "x",
        "p",
        1,
        json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]}),
    );
    let changes = world.pod(mk_pod("x", "a", "", "n1", "10.0.0.2"));
    assert_eq!(changes.objects.len(), 1);
    let Content::Members { added, removed } = &changes.objects[0].content else { panic!() };
    assert_eq!(added[0].member.ips, ["10.0.0.2".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(removed[0].member.ips, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    let changes = world.pod(mk_pod("x", "a", "other=label", "n1", "10.0.0.2"));
    assert_eq!(changes.objects, [], "labels that nobody selects change nothing");
    world.check();
}

#[test]
fn labels_of_namespaces_are_followed() {
    let mut world = World::default();
    world.namespace("x", "");
    world.namespace("y", "");
    world.pod(mk_pod("x", "t", "", "n1", "10.0.0.1"));
    world.pod(mk_pod("y", "a", "app=web", "n2", "10.0.0.2"));
    world.k8s(
        "x",
        "p",
        1,
        json!({"podSelector": {}, "ingress": [{"from": [{
            "namespaceSelector": {"matchLabels": {"team": "a"}},
            "podSelector": {"matchLabels": {"app": "web"}}}]}]}),
    );
    let policy = world.policy("x/p/1");
    assert_eq!(world.peers(&policy.rules[0]), names(&[]));
    let changes = world.namespace("y", "team=a");
    assert_eq!(changes.objects.len(), 1);
    assert_eq!(world.peers(&policy.rules[0]), names(&["y/a 10.0.0.2"]));
    world.pod(mk_pod("y", "new", "app=web", "n2", "10.0.0.3"));
    assert_eq!(world.peers(&policy.rules[0]), names(&["y/a 10.0.0.2", "y/new 10.0.0.3"]));
    world.namespace("y", "");
    assert_eq!(world.peers(&policy.rules[0]), names(&[]));
    world.check();
}

#[test]
fn policies_are_known_by_uid_and_kind() {
    let mut world = World::default();
    world.pod(mk_pod("x", "a", "", "n1", "10.0.0.1"));
    world.k8s("x", "p", 1, json!({"podSelector": {}}));
    // The old one's deletion comes late.
    let changes = world.k8s("x", "p", 2, json!({"podSelector": {}, "egress": [{}]}));
    let last = changes.objects.last().unwrap();
    assert_eq!((&*last.name, &last.after), ("x/p/1", &None));
    let changes = world.policy_gone("x/p/1");
    assert_eq!(changes.objects, []);
    assert_eq!(world.policy("x/p/2").rules.len(), 2);
    world.check();
    world.policy_gone("x/p/2");
    world.check();
    assert!(world.told.is_empty());
}

#[test]
fn rules_keep_their_own_peers() {
    let mut world = World::default();
    world.pod(mk_pod("x", "web", "app=web", "n1", "10.0.0.1"));
    world.pod(mk_pod("x", "admin", "app=admin", "n1", "10.0.0.2"));
    let from = |app: &str, port: u16| json!({"from": [{"podSelector": {"matchLabels": {"app": app}}}], "ports": [{"port": port}]});
    world.k8s(
        "x",
        "p",
        1,
        json!({"podSelector": {}, "ingress": [from("web", 80), from("admin", 443)]}),
    );
    let policy = world.policy("x/p/1");
    assert_eq!(world.peers(&policy.rules[0]), names(&["x/web 10.0.0.1"]));
    assert_eq!(world.peers(&policy.rules[1]), names(&["x/admin 10.0.0.2"]));
}

#[test]
fn egress_to_a_port_by_name_asks_every_pod() {
    let mut world = World::default();
    world.namespace("y", "");
    let port =
        |name: &str, port, protocol| crate::index::NamedPort { name: name.into(), port, protocol };
    use crate::index::PortProtocol::{Tcp, Udp};
    world.pod(PodInput {
        ports: vec![port("web", 8080, Tcp), port("dns", 53, Udp)],
        ..mk_pod("y", "a", "", "n1", "10.0.0.1")
    });
    world.k8s("x", "p", 1, json!({"podSelector": {}, "egress": [{"ports": [{"port": "web"}]}]}));
    let policy = world.policy("x/p/1");
    let rule = policy.rules.iter().find(|rule| rule.to.ip_blocks.len() == 2).unwrap();
    assert_eq!(world.peers(rule), names(&["y/a 10.0.0.1 dns=53/UDP web=8080/TCP"]));
}

#[test]
fn logging_follows_the_namespace() {
    let mut world = World::default();
    world.k8s("x", "p", 1, json!({"podSelector": {}}));
    let input = |log_policies| {
        Event::Namespace(NamespaceInput { name: "x".into(), labels: vec![], log_policies })
    };
    let changes = world.step(input(true));
    assert_eq!(changes.objects.len(), 1);
    assert!(world.policy("x/p/1").rules[0].enable_logging);
    world.k8s("x", "q", 1, json!({"podSelector": {}}));
    assert!(world.policy("x/q/1").rules[0].enable_logging);
    world.step(input(false));
    assert!(!world.policy("x/q/1").rules[0].enable_logging);
    world.check();
}

use crate::index::{NamespaceInput, PodInput};
