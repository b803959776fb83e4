//! Each rule with something that it accepts and something that it refuses.

use apis::policy::{GroupSpec, NetworkPolicySpec, TierSpec};
use serde_json::{Value, json};

use super::*;

struct World;

impl Cluster for World {
    fn tiers(&self) -> Vec<(String, i32)> {
        vec![("mine".into(), 30), ("application".into(), 250)]
    }

    fn tier_is_used(&self, name: &str) -> bool {
        name == "mine"
    }

    fn group(&self, _namespace: &str, name: &str) -> Option<GroupSpec> {
        match name {
            "parent" => {
                Some(GroupSpec { child_groups: vec!["child".into()], ..GroupSpec::default() })
            }
            "child" => Some(GroupSpec::default()),
            _ => None,
        }
    }

    fn parent_of(&self, _namespace: &str, name: &str) -> Option<String> {
        (name == "child").then(|| "parent".to_owned())
    }
}

/// A policy that is accepted, with parts replaced.
fn mk_spec(parts: Value) -> NetworkPolicySpec {
    let mut spec = json!({"priority": 5, "appliedTo": [{"podSelector": {}}]});
    for (key, value) in parts.as_object().unwrap() {
        spec[key] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

#[track_caller]
fn check(scope: PolicyScope, parts: Value, field: &str) {
    let refusals = policy(&World, scope, &mk_spec(parts.clone()));
    match field {
        "" => assert_eq!(refusals, [], "{parts}"),
        field => assert!(refusals.iter().any(|own| own.field == field), "{parts}: {refusals:?}"),
    }
}

fn egress(action: &str, more: Value) -> Value {
    let mut rule = more;
    rule["action"] = json!(action);
    json!({"egress": [rule]})
}

fn to(peer: Value) -> Value {
    egress("Allow", json!({"to": [peer]}))
}

#[test]
fn policies() {
    let labels = |key: &str| json!({"matchLabels": {key: "v"}});
    let rule = |name: &str| json!({"action": "Drop", "name": name});
    let own = |target: Value| json!({"appliedTo": [target]});
    for (parts, field) in [
        // 1: the tier exists.
        (json!({"tier": "mine"}), ""),
        (json!({"tier": ""}), ""),
        (json!({"tier": "SecurityOps"}), ""),
        (json!({"tier": "nowhere"}), "spec.tier"),
        // 2: Pass in the baseline tier.
        (json!({"tier": "baseline", "ingress": [{"action": "Drop"}]}), ""),
        (json!({"tier": "Baseline", "ingress": [{"action": "Pass"}]}), "spec.ingress[0].action"),
        // 3: names of rules.
        (json!({"ingress": [rule("a")], "egress": [rule("b")]}), ""),
        (json!({"ingress": [rule("a")], "egress": [rule("a")]}), "spec.egress[0].name"),
        // 4: where targets are named.
        (
            json!({"appliedTo": [], "ingress": [{"action": "Drop", "appliedTo": [{"podSelector": {}}]}]}),
            "",
        ),
        (json!({"appliedTo": []}), "spec.appliedTo"),
        (
            json!({"ingress": [{"action": "Drop", "appliedTo": [{"podSelector": {}}]}]}),
            "spec.appliedTo",
        ),
        (
            json!({"appliedTo": [], "ingress": [
                {"action": "Drop", "appliedTo": [{"podSelector": {}}]}, {"action": "Drop"}]}),
            "spec.appliedTo",
        ),
        // 5: fields of a target.
        (own(json!({"group": "g"})), ""),
        (own(json!({"serviceAccount": {"name": "a", "namespace": "b"}})), ""),
        (own(json!({"podSelector": {}, "namespaceSelector": labels("team")})), ""),
        (own(json!({"group": "g", "podSelector": {}})), "spec.appliedTo[0].group"),
        (own(json!({"service": {"name": "a", "namespace": "b"}})), ""),
        (
            own(json!({"service": {"name": "a", "namespace": "b"}, "podSelector": {}})),
            "spec.appliedTo[0].service",
        ),
        (
            own(json!({"service": {"name": "a", "namespace": "b"}, "nodeSelector": {}})),
            "spec.appliedTo[0].service",
        ),
        (
            json!({"appliedTo": [], "egress": [{"action": "Drop",
                "appliedTo": [{"service": {"name": "a", "namespace": "b"}}]}]}),
            "spec.egress[0].appliedTo[0].service",
        ),
        (
            json!({"appliedTo": [], "ingress": [{"action": "Drop", "appliedTo": [
                {"service": {"name": "a", "namespace": "b"}}, {"podSelector": {}}]}]}),
            "spec.ingress[0].appliedTo[0].service",
        ),
        (own(json!({"nodeSelector": {}})), "spec.appliedTo[0].nodeSelector"),
        (
            own(
                json!({"serviceAccount": {"name": "a", "namespace": "b"}, "namespaceSelector": {}}),
            ),
            "spec.appliedTo[0].serviceAccount",
        ),
        (
            own(json!({"group": "g", "serviceAccount": {"name": "a", "namespace": "b"}})),
            "spec.appliedTo[0].group",
        ),
        (
            json!({"appliedTo": [{"service": {"name": "a", "namespace": "b"}}],
                "egress": [{"action": "Drop"}]}),
            "spec.appliedTo[0].service",
        ),
        (
            json!({"appliedTo": [{"podSelector": {}}, {"service": {"name": "a", "namespace": "b"}}]}),
            "spec.appliedTo[1].service",
        ),
        (own(json!({"podSelector": labels("a.b/c")})), ""),
        (own(json!({"podSelector": labels("no label")})), "spec.appliedTo[0].podSelector"),
        (own(json!({"podSelector": {"matchLabels": {"a": "v-1.x_y"}}})), ""),
        (
            own(json!({"podSelector": {"matchLabels": {"a": "no value"}}})),
            "spec.appliedTo[0].podSelector",
        ),
        (
            own(json!({"namespaceSelector": {"matchExpressions": [
                {"key": "a", "operator": "Near", "values": ["b"]}]}})),
            "spec.appliedTo[0].namespaceSelector",
        ),
        // 6: fields of a peer.
        (to(json!({"namespaces": {"match": "Self"}})), ""),
        (to(json!({"namespaces": {"sameLabels": ["a.b/c"]}})), ""),
        (to(json!({"namespaces": {"sameLabels": ["-"]}})), "spec.egress[0].to[0].namespaces"),
        (to(json!({"namespaces": {"match": "Other"}})), "spec.egress[0].to[0].namespaces"),
        (
            to(json!({"namespaces": {"match": "Self", "sameLabels": ["a"]}})),
            "spec.egress[0].to[0].namespaces",
        ),
        (
            to(json!({"namespaces": {"match": "Self"}, "namespaceSelector": {}})),
            "spec.egress[0].to[0].namespaces",
        ),
        (to(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}})), ""),
        (to(json!({"ipBlock": {"cidr": ""}})), "spec.egress[0].to[0].ipBlock.cidr"),
        (
            to(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]}})),
            "spec.egress[0].to[0].ipBlock.except[0]",
        ),
        (
            to(json!({"group": "g", "ipBlock": {"cidr": "10.0.0.0/8"}})),
            "spec.egress[0].to[0].group",
        ),
        (to(json!({"group": "g"})), ""),
        (to(json!({"group": "g", "podSelector": {}})), "spec.egress[0].to[0].group"),
        (to(json!({"serviceAccount": {"name": "a", "namespace": "b"}})), ""),
        (
            to(json!({"serviceAccount": {"name": "a", "namespace": "b"}, "podSelector": {}})),
            "spec.egress[0].to[0].serviceAccount",
        ),
        (to(json!({"nodeSelector": labels("zone")})), ""),
        (
            to(json!({"nodeSelector": labels("zone"), "namespaces": {"match": "Self"}})),
            "spec.egress[0].to[0].nodeSelector",
        ),
        (
            to(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["192.168.0.0/16"]}})),
            "spec.egress[0].to[0].ipBlock.except[0]",
        ),
        (to(json!({})), "spec.egress[0].to[0]"),
        (egress("Allow", json!({"toServices": [{"name": "a", "namespace": "b"}]})), ""),
        (
            egress(
                "Pass",
                json!({"toServices": [
                {"name": "a", "namespace": "b", "scope": "Cluster"}, {"name": "c", "namespace": "d"}]}),
            ),
            "",
        ),
        (
            egress("Allow", json!({"toServices": [{"name": "a"}]})),
            "spec.egress[0].toServices[0].namespace",
        ),
        (
            egress("Allow", json!({"toServices": [{"name": "", "namespace": "b"}]})),
            "spec.egress[0].toServices[0].name",
        ),
        (
            egress(
                "Allow",
                json!({"toServices": [
                {"name": "a", "namespace": "b", "scope": "ClusterSet"}]}),
            ),
            "spec.egress[0].toServices[0].scope",
        ),
        (
            egress(
                "Allow",
                json!({"toServices": [
                {"name": "a", "namespace": "b", "scope": "Galaxy"}]}),
            ),
            "spec.egress[0].toServices[0].scope",
        ),
        (
            json!({"ingress": [{"action": "Drop", "toServices": [{"name": "a", "namespace": "b"}]}]}),
            "spec.ingress[0].toServices",
        ),
        (
            egress("Allow", json!({"toServices": [{"name": "a"}], "ports": [{"port": 1}]})),
            "spec.egress[0].toServices",
        ),
        (
            egress("Allow", json!({"toServices": [{"name": "a"}], "to": [{"podSelector": {}}]})),
            "spec.egress[0].toServices",
        ),
        (
            egress(
                "Allow",
                json!({"toServices": [{"name": "a"}], "protocols": [{"icmp": {"icmpType": 8}}]}),
            ),
            "spec.egress[0].toServices",
        ),
        // 7: peers of what is applied to Services.
        (
            json!({"appliedTo": [{"service": {"name": "a", "namespace": "b"}}],
                "ingress": [{"action": "Drop", "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}),
            "",
        ),
        (
            json!({"appliedTo": [{"service": {"name": "a", "namespace": "b"}}],
                "ingress": [{"action": "Drop", "from": [
                    {"ipBlock": {"cidr": "10.0.0.0/8"}}, {"podSelector": {}}]}]}),
            "spec.ingress[0].from[1]",
        ),
        (
            json!({"appliedTo": [], "ingress": [{"action": "Drop", "from": [{"group": "g"}],
                "appliedTo": [{"service": {"name": "a", "namespace": "b"}}]}]}),
            "spec.ingress[0].from[0]",
        ),
        (
            json!({"appliedTo": [], "ingress": [
                {"action": "Drop", "appliedTo": [{"service": {"name": "a", "namespace": "b"}}]},
                {"action": "Drop", "from": [{"podSelector": {}}], "appliedTo": [{"podSelector": {}}]}]}),
            "",
        ),
        // 8: domain names.
        (to(json!({"fqdn": "*.example.com"})), ""),
        (to(json!({"fqdn": "exämple.com"})), "spec.egress[0].to[0].fqdn"),
        (egress("Pass", json!({"to": [{"fqdn": "a.b"}]})), "spec.egress[0].to[0].fqdn"),
        // 9: multicast.
        (to(json!({"ipBlock": {"cidr": "225.1.2.0/24"}})), ""),
        (
            egress(
                "Allow",
                json!({"to": [{"ipBlock": {"cidr": "225.1.2.0/24"}}, {"podSelector": {}}]}),
            ),
            "spec.egress[0].to",
        ),
        (
            egress("Reject", json!({"to": [{"ipBlock": {"cidr": "ff02::/16"}}]})),
            "spec.egress[0].action",
        ),
        (
            egress("Pass", json!({"to": [{"ipBlock": {"cidr": "225.1.2.0/24"}}]})),
            "spec.egress[0].action",
        ),
        (
            egress(
                "Allow",
                json!({"to": [{"ipBlock": {"cidr": "225.1.2.0/24"}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]}),
            ),
            "spec.egress[0].to",
        ),
        (egress("Pass", json!({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]})), ""),
        // 10 and 11: not yet.
        (egress("Drop", json!({"protocols": [{"icmp": {"icmpType": 8}}]})), ""),
        (egress("Drop", json!({"protocols": [{"igmp": {}}]})), "spec.egress[0].protocols[0].igmp"),
        (egress("Allow", json!({"l7Protocols": [{"http": {}}]})), "spec.egress[0].l7Protocols"),
        // 12: ranges.
        (egress("Drop", json!({"ports": [{"port": 80, "endPort": 80}]})), ""),
        (
            egress("Drop", json!({"ports": [{"port": "web", "endPort": 90}]})),
            "spec.egress[0].ports[0].endPort",
        ),
        (
            egress("Drop", json!({"ports": [{"port": 80, "endPort": 79}]})),
            "spec.egress[0].ports[0].endPort",
        ),
        (egress("Drop", json!({"ports": [{"sourcePort": 80, "sourceEndPort": 90}]})), ""),
        (
            egress("Drop", json!({"ports": [{"sourceEndPort": 90}]})),
            "spec.egress[0].ports[0].sourceEndPort",
        ),
        (
            egress("Drop", json!({"ports": [{"protocol": "ICMP"}]})),
            "spec.egress[0].ports[0].protocol",
        ),
        (egress("Forbid", json!({})), "spec.egress[0].action"),
        (json!({"priority": 0.5}), "spec.priority"),
    ] {
        check(PolicyScope::Cluster, parts, field);
    }
    check(PolicyScope::Namespace, own(json!({"podSelector": {}})), "");
    let wide = own(json!({"namespaceSelector": {}}));
    check(PolicyScope::Namespace, wide, "spec.appliedTo[0].namespaceSelector");
    let relative = to(json!({"namespaces": {"match": "Self"}}));
    check(PolicyScope::Namespace, relative, "spec.egress[0].to[0].namespaces");
}

#[test]
fn tiers() {
    let tier = |priority| TierSpec { priority, description: None };
    let create = |name: &str, priority| create_tier(&World, name, &tier(priority));
    assert_eq!(create("new", 31), []);
    for taken in [30, 250, 253, 50, 251, 252, 254, 255, 220] {
        assert_eq!(create("new", taken)[0].field, "spec.priority", "{taken}");
    }
    assert_eq!(create("emergency", 50), []);
    assert_eq!(update_tier(&tier(30), &tier(30)), []);
    assert_eq!(update_tier(&tier(30), &tier(31)).len(), 1);
    assert_eq!(delete_tier(&World, "unused"), []);
    assert_eq!(delete_tier(&World, "mine").len(), 1);
    assert_eq!(delete_tier(&World, "baseline").len(), 1);
    struct Full;
    impl Cluster for Full {
        fn tiers(&self) -> Vec<(String, i32)> {
            (0..20).map(|n| (format!("t{n}"), n)).collect()
        }
        fn tier_is_used(&self, _: &str) -> bool {
            false
        }
        fn group(&self, _: &str, _: &str) -> Option<GroupSpec> {
            None
        }
        fn parent_of(&self, _: &str, _: &str) -> Option<String> {
            None
        }
    }
    assert_eq!(create_tier(&Full, "t20", &tier(120)).len(), 1);
}

#[test]
fn groups() {
    for (namespace, name, spec, field) in [
        ("", "g", json!({"podSelector": {}, "namespaceSelector": {}}), ""),
        ("", "g", json!({"namespaceSelector": {}}), ""),
        ("", "g", json!({"nodeSelector": {}}), ""),
        ("x", "g", json!({"nodeSelector": {}}), "spec.nodeSelector"),
        ("", "g", json!({"podSelector": {}, "ipBlocks": [{"cidr": "10.0.0.0/8"}]}), "spec"),
        (
            "",
            "g",
            json!({"namespaceSelector": {}, "ipBlocks": [{"cidr": "10.0.0.0/8"}]}),
            "spec.namespaceSelector",
        ),
        ("", "g", json!({"ipBlocks": [{"cidr": "10.0.0.0/8"}, {"cidr": "fd00::/8"}]}), ""),
        ("", "g", json!({"ipBlocks": [{"cidr": "10.0.0.0"}]}), "spec.ipBlocks[0].cidr"),
        (
            "",
            "g",
            json!({"ipBlocks": [{"cidr": "10.0.0.0/8"}, {"cidr": "225.0.0.0/8"}]}),
            "spec.ipBlocks",
        ),
        ("", "g", json!({"childGroups": ["child", "missing"]}), ""),
        ("", "g", json!({"childGroups": ["g"]}), "spec.childGroups[0]"),
        ("", "g", json!({"childGroups": ["parent"]}), "spec.childGroups[0]"),
        ("", "child", json!({"childGroups": ["other"]}), "spec.childGroups"),
        ("", "g", json!({"serviceReference": {"name": "s"}}), "spec.serviceReference"),
    ] {
        let refusals =
            group(&World, namespace, name, &serde_json::from_value(spec.clone()).unwrap());
        match field {
            "" => assert_eq!(refusals, [], "{spec}"),
            field => assert!(refusals.iter().any(|own| own.field == field), "{spec}: {refusals:?}"),
        }
    }
}

#[test]
fn groups_of_other_kinds_are_refused() {
    for (spec, field) in [
        (json!({"externalEntitySelector": {}}), "spec.externalEntitySelector"),
        (json!({"externalEntitySelector": {}, "podSelector": {}}), "spec"),
        (json!({"childGroups": ["child"], "podSelector": {}}), "spec"),
        (json!({"nodeSelector": {}, "podSelector": {}}), "spec"),
        (json!({"serviceReference": {"name": "s"}, "ipBlocks": [{"cidr": "10.0.0.0/8"}]}), "spec"),
        (
            json!({"ipBlocks": [{"cidr": "10.0.0.0/8", "except": ["11.0.0.0/8"]}]}),
            "spec.ipBlocks[0].except[0]",
        ),
        (
            json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}),
            "spec.podSelector",
        ),
    ] {
        let refusals = group(&World, "", "g", &serde_json::from_value(spec.clone()).unwrap());
        assert!(refusals.iter().any(|own| own.field == field), "{spec}: {refusals:?}");
    }
}

#[test]
fn what_is_no_mistake_but_may_surprise_is_told() {
    let told = |parts: Value| warnings(&World, "", &mk_spec(parts));
    let on_nodes = |label: &str| {
        json!({"appliedTo": [{"nodeSelector": {}}],
            "ingress": [{"action": "Drop", "name": "r", "logLabel": label}]})
    };
    assert_eq!(told(on_nodes("twelve-chars")), [""; 0]);
    assert_eq!(
        told(on_nodes("thirteen-char")),
        ["logLabel of rule \"r\" will be cut to 12 characters on Nodes"]
    );
    let on_pods = json!({"ingress": [{"action": "Drop", "logLabel": "longer-than-twelve"}]});
    assert_eq!(told(on_pods), [""; 0]);
    let groups = json!({"appliedTo": [{"group": "child"}],
        "egress": [{"action": "Drop", "to": [{"group": "nowhere"}, {"group": "nowhere"}]}]});
    assert_eq!(told(groups), ["there is no group \"nowhere\" yet"]);
}

#[test]
fn upstream_policies_need_the_priority_of_their_admin_tier() {
    struct Occupied;
    impl Cluster for Occupied {
        fn tiers(&self) -> Vec<(String, i32)> {
            vec![("old".into(), 220)]
        }
        fn tier_is_used(&self, _: &str) -> bool {
            false
        }
        fn group(&self, _: &str, _: &str) -> Option<GroupSpec> {
            None
        }
        fn parent_of(&self, _: &str, _: &str) -> Option<String> {
            None
        }
    }
    assert_eq!(create_upstream(&World), []);
    let refusals = create_upstream(&Occupied);
    assert_eq!(refusals[0].field, "spec.tier");
    assert!(refusals[0].reason.contains("\"old\""), "{refusals:?}");
}

#[test]
fn what_is_missing_is_filled_in() {
    let policy = json!({"spec": {"tier": "", "ingress": [{"action": "Drop"}],
        "egress": [{"action": "Allow", "name": "mine"}, {"action": "Allow", "name": ""}]}});
    let patch = mutate_policy(&policy).unwrap();
    let ops: Vec<(&str, &str)> = patch
        .as_array()
        .unwrap()
        .iter()
        .map(|op| (op["op"].as_str().unwrap(), op["path"].as_str().unwrap()))
        .collect();
    assert_eq!(
        ops,
        [
            ("replace", "/spec/tier"),
            ("add", "/spec/ingress/0/name"),
            ("replace", "/spec/egress/1/name")
        ]
    );
    assert_eq!(patch[0]["value"], "application");
    let name = patch[1]["value"].as_str().unwrap();
    assert!(name.starts_with("ingress-drop-") && name.len() == "ingress-drop-".len() + 7, "{name}");
    assert_eq!(mutate_policy(&policy), Some(patch.clone()), "the same rule, the same name");
    assert_eq!(mutate_policy(&json!({"spec": {"tier": "mine"}})), None);
}
