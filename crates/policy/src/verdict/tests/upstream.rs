//! ClusterNetworkPolicies of policy.networking.k8s.io.

use super::World;

fn mk_world() -> World {
    let mut world = World::default();
    world.namespace("x team=one");
    world.namespace("y team=two");
    world.pod("x/a app=a 10.0.0.1 web:80/TCP dns:53/UDP");
    world.pod("x/b app=b 10.0.0.2 fd00::2");
    world.pod("y/a app=a 10.0.1.1");
    world
}

fn mk_spec(tier: &str, priority: i32, rules: &str) -> String {
    format!(
        "{{tier: {tier}, priority: {priority}, subject: {{namespaces: {{matchLabels: {{team: one}}}}}}, {rules}}}"
    )
}

const DENY_TWO: &str =
    "ingress: [{action: Deny, from: [{namespaces: {matchLabels: {team: two}}}]}]";
const ACCEPT_TWO: &str =
    "ingress: [{action: Accept, from: [{namespaces: {matchLabels: {team: two}}}]}]";
const PASS_TWO: &str =
    "ingress: [{action: Pass, from: [{namespaces: {matchLabels: {team: two}}}]}]";

#[test]
fn admin_before_and_baseline_after_kubernetes() {
    let mut world = mk_world();
    world.cnp("base", &mk_spec("Baseline", 0, DENY_TWO));
    world.check("y/a -> x/a TCP:80: Drop\n x/b -> x/a TCP:80: Allow");
    world.netpol("x/p", "{podSelector: {}, ingress: [{ports: [{port: 80}]}]}");
    world.check("y/a -> x/a TCP:80: Allow\n y/a -> x/a TCP:81: Drop");
    world.cnp("admin", &mk_spec("Admin", 1000, DENY_TWO));
    world.check("y/a -> x/a TCP:80: Drop");
    world.cnp("first", &mk_spec("Admin", 0, PASS_TWO));
    world.check("y/a -> x/a TCP:80: Allow\n y/a -> x/a TCP:81: Drop");
    world.cnp("very-first", &mk_spec("Admin", 0, ACCEPT_TWO));
    world.check("y/a -> x/a TCP:81: Drop");
}

#[test]
fn among_antreas_tiers() {
    let acnp = |tier: &str| {
        format!(
            "{{tier: {tier}, priority: 1, appliedTo: [{{podSelector: {{}}}}], ingress: [{{action: Allow}}]}}"
        )
    };
    for (tier, want) in [("platform", "Allow"), ("application", "Drop")] {
        let mut world = mk_world();
        world.cnp("admin", &mk_spec("Admin", 0, DENY_TWO));
        world.acnp("p", &acnp(tier));
        world.check(&format!("y/a -> x/a TCP:80: {want}"));
    }
    let mut world = mk_world();
    world.cnp("base", &mk_spec("Baseline", 0, DENY_TWO));
    world.acnp("p", &acnp("baseline"));
    world.check("y/a -> x/a TCP:80: Allow");
}

#[test]
fn pass_at_the_end_is_what_no_policy_would_do() {
    let mut world = mk_world();
    world.cnp("pass", &mk_spec("Baseline", 0, PASS_TWO));
    world.cnp("deny", &mk_spec("Baseline", 1, DENY_TWO));
    assert_eq!(world.explain("y/a", "x/a", "TCP:80"), "Allow In Default");
}

#[test]
fn subjects_peers_and_protocols() {
    let mut world = mk_world();
    world.node("n1 172.30.0.1 role=edge");
    world.name("www.a.io", "192.0.2.80");
    world.cnp("p", "{tier: Admin, priority: 5,
        subject: {pods: {namespaceSelector: {matchLabels: {team: one}}, podSelector: {matchLabels: {app: b}}}},
        egress: [
            {action: Accept, to: [{nodes: {matchLabels: {role: edge}}}, {networks: [192.0.2.0/26, '2001:db8::/32']}]},
            {action: Accept, to: [{domainNames: ['*.a.io']}]},
            {action: Accept, to: [{namespaces: {}}], protocols: [{destinationNamedPort: web}, {udp: {destinationPort: {number: 99}}}]},
            {action: Accept, to: [{pods: {namespaceSelector: {}, podSelector: {matchLabels: {app: a}}}}], protocols: [{sctp: {}}, {tcp: {destinationPort: {range: {start: 1000, end: 1010}}}}]},
            {action: Deny, to: [{networks: [0.0.0.0/0, '::/0']}]}]}");
    world.check(
        "x/b -> 172.30.0.1 TCP:1: Allow
         x/b -> 192.0.2.9 TCP:1: Allow
         x/b -> 192.0.2.70 TCP:1: Drop
         x/b -> 192.0.2.80 TCP:1: Allow
         x/b -> 2001:db8::1 TCP:1: Allow
         x/b -> 2001:db9::1 TCP:1: Drop
         x/a -> 192.0.2.70 TCP:1: Allow",
    );
    assert_eq!(world.conns("x/b", "x/a"), "SCTP 1-65535,TCP 80,1000-1010,UDP 99");
    assert_eq!(world.conns("x/b", "y/a"), "SCTP 1-65535,TCP 1000-1010,UDP 99");
}

#[test]
fn what_cannot_be_meant_matches_nothing() {
    for (rules, reason) in [
        ("ingress: [{action: Deny, from: [{}]}]", "a peer has exactly one field"),
        (
            "ingress: [{action: Deny, from: [{networks: [0.0.0.0/0]}]}]",
            "a source is given by its labels",
        ),
        ("ingress: [{action: Block, from: [{namespaces: {}}]}]", "unknown action \"Block\""),
        (
            "ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{}]}]",
            "a protocol has exactly one field",
        ),
        (
            "ingress: [{action: Deny, from: [{namespaces: {}}], protocols: [{tcp: {destinationPort: {number: 0, range: {start: 1, end: 2}}}}]}]",
            "neither or both of number and range",
        ),
    ] {
        let mut world = mk_world();
        world.cnp("p", &mk_spec("Admin", 5, rules));
        world.check("y/a -> x/a TCP:80: Allow");
        let faults = world.faults();
        assert!(faults.len() == 1 && faults[0].ends_with(reason), "{faults:?}");
    }
    let mut world = mk_world();
    world.cnp("p", &mk_spec("Middle", 5, DENY_TWO));
    world.check("y/a -> x/a TCP:80: Allow");
    assert_eq!(world.faults(), ["ClusterNetworkPolicy p tier: unknown tier \"Middle\""]);
}
