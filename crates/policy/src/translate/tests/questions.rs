//! Questions about what was computed: the deciding rule, members of groups, groups of members.

use apis::controlplane::DEFAULT_ISOLATION;
use serde_json::{Value, json};

use super::natives::{acnp, annp, group, mk_world};
use super::support::{World, mk_k8s, mk_labels, mk_pod};
use super::*;
use crate::index::NodeInput;

/// `POLICY DIRECTION INDEX NAME ACTION`, or `-`.
fn decider(world: &World, from: &str, to: &str) -> String {
    let end = |name: &'static str| name.split_once('/').unwrap();
    let (from, to) = (from.to_owned().leak(), to.to_owned().leak());
    match world.engine.evaluate(end(from), end(to)) {
        Err(unknown) => format!("{unknown:?}"),
        Ok(None) => "-".to_owned(),
        Ok(Some(found)) => {
            let index = match found.rule_index {
                DEFAULT_ISOLATION => "default".to_owned(),
                index => index.to_string(),
            };
            let direction = found.rule.direction;
            let action = found.rule.action.map(|action| action.to_string()).unwrap_or_default();
            let name = found.network_policy.name;
            format!("{name} {direction:?} {index} {} {action}", found.rule.name).replace("  ", " ")
        }
    }
}

fn on_web(tier: &str, priority: u32, action: &str, peer: Value) -> Value {
    json!({"tier": tier, "priority": priority, "appliedTo": [{"podSelector": {"matchLabels": {"app": "web"}}}],
        "ingress": [{"action": action, "name": "in", "from": [peer]}]})
}

#[test]
fn the_deciding_rule_is_found_whatever_the_port() {
    let team = |team: &str| json!({"namespaceSelector": {"matchLabels": {"team": team}}});
    let isolate =
        || mk_k8s("x", "isolate", 1, json!({"podSelector": {}, "policyTypes": ["Ingress"]}));
    let from_db = || {
        let spec = json!({"podSelector": {"matchLabels": {"app": "web"}},
            "ingress": [{"ports": [{"port": 80}], "from": [{"podSelector": {"matchLabels": {"app": "db"}}}]}]});
        mk_k8s("x", "from-db", 2, spec)
    };
    let egress = json!({"tier": "application", "priority": 3, "appliedTo": [{"podSelector": {}}],
        "egress": [{"action": "Allow", "name": "dns", "to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]},
            {"action": "Reject", "name": "none", "to": [{"ipBlock": {"cidr": "10.0.0.0/16"}}]}]});
    for (events, from, to, want) in [
        (vec![], "y/db", "x/web", "-"),
        (vec![], "x/web", "x/web", "-"),
        (vec![], "y/nobody", "x/web", "Source"),
        (vec![], "y/db", "x/nobody", "Destination"),
        (vec![isolate()], "y/db", "x/web", "isolate In default Drop"),
        (vec![isolate(), from_db()], "y/db", "x/web", "from-db In default Drop"),
        (vec![isolate(), from_db()], "x/db", "x/web", "from-db In 0 Allow"),
        // Antrea's tiers come before, but for Pass and the baseline.
        (
            vec![from_db(), acnp("a", on_web("application", 5, "Drop", team("a")))],
            "x/db",
            "x/web",
            "a In 0 in Drop",
        ),
        (
            vec![from_db(), acnp("a", on_web("application", 5, "Pass", team("a")))],
            "x/db",
            "x/web",
            "from-db In 0 Allow",
        ),
        (
            vec![from_db(), acnp("a", on_web("baseline", 5, "Drop", team("a")))],
            "x/db",
            "x/web",
            "from-db In 0 Allow",
        ),
        (
            vec![acnp("a", on_web("baseline", 5, "Drop", team("a")))],
            "x/db",
            "x/web",
            "a In 0 in Drop",
        ),
        // Tiers, priorities, then the stricter action.
        (
            vec![
                acnp("late", on_web("application", 1, "Drop", team("a"))),
                acnp("early", on_web("emergency", 9, "Allow", team("a"))),
            ],
            "y/db",
            "x/web",
            "early In 0 in Allow",
        ),
        (
            vec![
                acnp("a", on_web("application", 5, "Allow", team("a"))),
                acnp("b", on_web("application", 5, "Drop", team("a"))),
            ],
            "y/db",
            "x/web",
            "b In 0 in Drop",
        ),
        (vec![acnp("a", on_web("application", 5, "Drop", team("b")))], "y/db", "x/web", "-"),
        // What the source refuses is not asked about at the destination.
        (
            vec![
                annp("x", "out", egress.clone()),
                acnp("in", on_web("emergency", 1, "Drop", team("a"))),
            ],
            "x/db",
            "y/web",
            "out Out 1 none Reject",
        ),
        (
            vec![annp("z", "out", egress), acnp("in", on_web("emergency", 1, "Drop", team("a")))],
            "x/db",
            "y/web",
            "in In 0 in Drop",
        ),
    ] {
        let mut world = mk_world();
        for event in events {
            world.step(event);
        }
        assert_eq!(decider(&world, from, to), want, "{from} -> {to}");
    }
}

fn names(groups: &[NamedGroup]) -> Vec<String> {
    let each = groups.iter().map(|(namespace, name)| match namespace.as_str() {
        "" => name.clone(),
        namespace => format!("{namespace}/{name}"),
    });
    each.collect()
}

#[test]
fn members_of_groups_and_groups_of_members() {
    let mut world = mk_world();
    world.step(Event::Node(NodeInput {
        name: "n1".into(),
        labels: mk_labels("zone=1"),
        ips: vec!["172.30.0.1".parse().unwrap()],
    }));
    let web = || json!({"podSelector": {"matchLabels": {"app": "web"}}});
    for (namespace, name, spec) in [
        ("", "web", web()),
        ("x", "web", web()),
        ("", "team-a", json!({"namespaceSelector": {"matchLabels": {"team": "a"}}})),
        ("", "net", json!({"ipBlocks": [{"cidr": "10.0.120.0/24", "except": ["10.0.120.2/32"]}]})),
        ("", "nodes", json!({"nodeSelector": {"matchLabels": {"zone": "1"}}})),
        ("", "both", json!({"childGroups": ["net", "nodes", "missing"]})),
        ("", "deep", json!({"childGroups": ["both"]})),
    ] {
        world.step(group(namespace, name, Some(spec)));
    }
    let members = |namespace: &str, name: &str| {
        let found = world.engine.named_members(namespace, name)?;
        let pods = found.members.iter().filter_map(|member| member.pod.as_ref());
        let pods: Vec<String> = pods.map(|pod| format!("{}/{}", pod.namespace, pod.name)).collect();
        let nodes = found.members.iter().filter_map(|member| member.node.as_ref());
        let nodes: Vec<String> = nodes.map(|node| node.name.clone()).collect();
        let networks: Vec<String> = found.networks.iter().map(ToString::to_string).collect();
        Some([pods, nodes, networks].concat().join(" "))
    };
    for (namespace, name, want) in [
        ("", "web", Some("x/web y/web z/web")),
        ("x", "web", Some("x/web")),
        ("", "team-a", Some("x/db x/web y/db y/web")),
        ("", "net", Some("10.0.120.0/24")),
        ("", "nodes", Some("n1")),
        ("", "both", Some("n1 10.0.120.0/24")),
        ("", "deep", Some("")),
        ("", "nowhere", None),
        ("y", "web", None),
    ] {
        let mut found = members(namespace, name);
        if name == "web" || name == "team-a" {
            found = found.map(|text| {
                let mut words: Vec<&str> = text.split(' ').collect();
                words.sort_unstable();
                words.join(" ")
            });
        }
        assert_eq!(found.as_deref(), want, "{namespace}/{name}");
    }
    let of_pod = |namespace: &str, pod: &str| {
        world.engine.groups_of_pod(namespace, pod).map(|groups| names(&groups))
    };
    assert_eq!(of_pod("x", "web").unwrap(), ["team-a", "web", "x/web"]);
    assert_eq!(of_pod("z", "db").unwrap(), [""; 0]);
    assert_eq!(of_pod("z", "nobody"), None);
    let of_ip = |ip: &str| names(&world.engine.groups_of_ip(ip.parse().unwrap()));
    assert_eq!(of_ip("10.0.120.1"), ["both", "net", "team-a", "web", "x/web"]);
    assert_eq!(of_ip("10.0.120.2"), ["team-a"], "an exception, and a Pod");
    assert_eq!(of_ip("172.30.0.1"), ["both", "nodes"]);
    assert_eq!(of_ip("203.0.113.1"), [""; 0]);
    assert!(world.engine.nests_too_deep("", "deep") && !world.engine.nests_too_deep("", "both"));
    assert_eq!(world.engine.named_problems("", "both"), ["there is no group \"missing\""]);
    assert!(world.engine.named_problems("", "deep")[0].contains("has children itself"));

    // A Pod without an address, and one in its Node's network, belong to none.
    let mut bare = mk_pod("x", "bare", "app=web", "n1", "10.0.120.9");
    bare.ips = Vec::new();
    world.pod(bare);
    assert_eq!(world.engine.groups_of_pod("x", "bare"), Some(Vec::new()));
}
