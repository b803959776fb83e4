//! Antrea's own policies.

use super::World;
use crate::verdict::Severity;

/// Namespaces x and y of team one, z of team two, each with Pods a and b.
fn mk_teams() -> World {
    let mut world = World::default();
    for (n, (namespace, team)) in [("x", "one"), ("y", "one"), ("z", "two")].into_iter().enumerate()
    {
        world.namespace(&format!("{namespace} team={team}"));
        for (p, pod) in ["a", "b"].into_iter().enumerate() {
            world.pod(&format!("{namespace}/{pod} pod={pod} 10.0.{n}.{p} sa:{pod}-robot"));
        }
    }
    world.pod("lone/a pod=a 10.0.9.1");
    world
}

/// An ACNP on all Pods with one ingress rule, and who then reaches `x/a`.
#[track_caller]
fn check_from(peer: &str, want: &[&str]) {
    let mut world = mk_teams();
    world.acnp(
        "p",
        &format!(
            "{{priority: 5, appliedTo: [{{namespaceSelector: {{}}}}], ingress: [
        {{action: Allow, from: [{peer}]}}, {{action: Drop}}]}}"
        ),
    );
    let all = ["x/b", "y/a", "y/b", "z/a", "z/b", "lone/a"];
    let got: Vec<_> = all
        .into_iter()
        .filter(|from| world.explain(from, "x/a", "TCP:80").starts_with("Allow"))
        .collect();
    assert_eq!(got, want, "{peer} {:?}", world.faults());
}

#[test]
fn peers() {
    for (peer, want) in [
        ("{podSelector: {matchLabels: {pod: b}}}", &["x/b", "y/b", "z/b"][..]),
        ("{namespaceSelector: {matchLabels: {team: one}}}", &["x/b", "y/a", "y/b"]),
        ("{namespaces: {match: Self}}", &["x/b"]),
        ("{namespaces: {sameLabels: [team]}}", &["x/b", "y/a", "y/b"]),
        ("{namespaces: {sameLabels: [team]}, podSelector: {matchLabels: {pod: a}}}", &["y/a"]),
        ("{namespaces: {sameLabels: [team, nobody-has-it]}}", &[]),
        ("{namespaces: {match: Other}}", &[]),
        ("{serviceAccount: {name: b-robot, namespace: z}}", &["z/b"]),
        ("{ipBlock: {cidr: 10.0.2.0/24}}", &["z/a", "z/b"]),
        ("{}", &[]),
        ("{podSelector: {}, ipBlock: {cidr: 10.0.2.0/24}}", &[]),
        ("{namespaceSelector: {}, scope: ClusterSet}", &[]),
        ("{group: missing}", &[]),
        ("{fqdn: a.io}", &[]),
    ] {
        check_from(peer, want);
    }
    // A target whose Namespace lacks the label has no Namespaces in common with anyone.
    let mut world = mk_teams();
    world.acnp("p", "{priority: 5, appliedTo: [{namespaceSelector: {}}], ingress: [{action: Drop, from: [{namespaces: {sameLabels: [team]}}]}]}");
    world.check("x/a -> x/b TCP:80: Drop\n x/a -> lone/a TCP:80: Allow");
}

#[test]
fn targets() {
    for (target, want) in [
        ("{podSelector: {matchLabels: {pod: a}}}", &["x/a", "y/a", "z/a"][..]),
        ("{namespaceSelector: {matchLabels: {team: one}}}", &["x/a", "x/b", "y/a", "y/b"]),
        (
            "{namespaceSelector: {matchLabels: {team: one}}, podSelector: {matchLabels: {pod: b}}}",
            &["x/b", "y/b"],
        ),
        ("{serviceAccount: {name: a-robot, namespace: y}}", &["y/a"]),
        ("{}", &[]),
        ("{podSelector: {}, group: g}", &[]),
        ("{nodeSelector: {}}", &[]),
        ("{service: {name: s, namespace: x}, podSelector: {}}", &[]),
    ] {
        let mut world = mk_teams();
        world.acnp(
            "p",
            &format!("{{priority: 5, appliedTo: [{target}], ingress: [{{action: Drop}}]}}"),
        );
        let all = ["x/a", "x/b", "y/a", "y/b", "z/a", "z/b"];
        let got: Vec<_> = all
            .into_iter()
            .filter(|to| world.explain("192.0.2.1", to, "TCP:80").starts_with("Drop"))
            .collect();
        assert_eq!(got, want, "{target}");
        assert_eq!(world.faults().len(), usize::from(want.is_empty()), "{target}");
    }
}

#[test]
fn a_namespaced_policy_stays_at_home() {
    let mut world = mk_teams();
    world.annp("x/p", "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [
        {action: Allow, from: [{podSelector: {matchLabels: {pod: b}}}, {namespaceSelector: {matchLabels: {team: two}}}]},
        {action: Reject}]}");
    world.check(
        "x/b -> x/a TCP:80: Allow
         y/b -> x/a TCP:80: Reject
         z/a -> x/a TCP:80: Allow
         192.0.2.1 -> x/a TCP:80: Reject
         192.0.2.1 -> y/a TCP:80: Allow",
    );
}

#[test]
fn a12_icmp_is_told_by_type_and_code() {
    let mut world = mk_teams();
    world.acnp(
        "p",
        "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [
        {action: Allow, protocols: [{icmp: {icmpType: 8, icmpCode: 0}}]},
        {action: Drop, protocols: [{icmp: {}}]},
        {action: Drop, ports: [{protocol: ICMP}]}]}",
    );
    world.check(
        "y/a -> x/a ICMP:8/0: Allow
         y/a -> x/a ICMP:8/1: Drop
         y/a -> x/a ICMP:0/0: Drop
         y/a -> x/a TCP:80: Allow
         y/a -> x/a GRE: Allow",
    );
    assert_eq!(world.conns("y/a", "x/a"), "ICMP 8/0,SCTP 1-65535,TCP 1-65535,UDP 1-65535");
    assert_eq!(world.faults().len(), 1);
}

#[test]
fn a21_rules_with_targets_of_their_own() {
    let mut world = mk_teams();
    world.acnp(
        "p",
        "{priority: 5, ingress: [
        {action: Drop, appliedTo: [{podSelector: {matchLabels: {pod: a}}}], ports: [{port: 80}]},
        {action: Drop, appliedTo: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: 81}]}]}",
    );
    world.check(
        "y/a -> x/a TCP:80: Drop
         y/a -> x/a TCP:81: Allow
         y/a -> x/b TCP:80: Allow
         y/a -> x/b TCP:81: Drop",
    );
    for applied in ["", "appliedTo: [{podSelector: {}}], "] {
        let mut world = mk_teams();
        let rule = if applied.is_empty() { "" } else { ", appliedTo: [{podSelector: {}}]" };
        world.acnp("p", &format!("{{priority: 5, {applied}ingress: [{{action: Drop{rule}}}]}}"));
        world.check("y/a -> x/a TCP:80: Allow");
        assert_eq!(world.faults().len(), 1, "neither or both");
    }
}

#[test]
fn a29_no_peers_is_everybody() {
    for peers in ["", ", from: []"] {
        let mut world = mk_teams();
        world.acnp("p", &format!("{{priority: 5, appliedTo: [{{podSelector: {{}}}}], ingress: [{{action: Drop{peers}}}]}}"));
        world.check("y/a -> x/a TCP:80: Drop\n 192.0.2.1 -> x/a UDP:1: Drop\n 2001:db8::1 -> x/a TCP:80: Drop");
    }
}

#[test]
fn source_ports_count() {
    let mut world = mk_teams();
    world.acnp(
        "p",
        "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [
        {action: Allow, ports: [{protocol: TCP, port: 80, sourcePort: 1000, sourceEndPort: 1999}]},
        {action: Drop, ports: [{protocol: TCP, sourcePort: 500, sourceEndPort: 2500}]}]}",
    );
    world.check(
        "y/a -> x/a TCP:80<1500: Allow
         y/a -> x/a TCP:81<1500: Drop
         y/a -> x/a TCP:80<2000: Drop
         y/a -> x/a TCP:80<2501: Allow
         y/a -> x/a TCP:81: Allow",
    );
    assert_eq!(world.conns("y/a", "x/a"), "All Connections", "from some source port");
    let mut world = mk_teams();
    world.acnp(
        "p",
        "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [
        {action: Allow, ports: [{port: 80, sourcePort: 1000}]}, {action: Drop}]}",
    );
    assert_eq!(world.conns("y/a", "x/a"), "TCP 80");
}

#[test]
fn domain_names_match_the_addresses_they_are_known_by() {
    let mut world = mk_teams();
    world.name("www.a.io", "192.0.2.1");
    world.acnp("p", "{priority: 5, appliedTo: [{podSelector: {}}], egress: [
        {action: Allow, to: [{fqdn: '*.A.io'}]}, {action: Reject, to: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}");
    world.check("x/a -> 192.0.2.1 TCP:443: Allow\n x/a -> 192.0.2.2 TCP:443: Reject");
    assert!(world.faults().is_empty());
}

#[test]
fn nodes_as_peers_count_by_all_their_addresses() {
    let mut world = mk_teams();
    world.node("n1 172.30.0.1 10.10.1.0/24 role=edge");
    world.node("n2 172.30.0.2");
    world.acnp(
        "p",
        "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [
        {action: Allow, from: [{nodeSelector: {matchLabels: {role: edge}}}]}, {action: Drop}]}",
    );
    world.check(
        "172.30.0.1 -> x/a TCP:80: Allow
         10.10.1.1 -> x/a TCP:80: Allow
         172.30.0.2 -> x/a TCP:80: Drop",
    );
}

#[test]
fn what_is_not_supported_matches_nothing_and_is_named() {
    for (rule, reason) in [
        (
            "{action: Allow, toServices: [{name: s, namespace: x}], ports: [{port: 1}]}",
            "toServices beside to, ports or protocols",
        ),
        ("{action: Allow, toServices: [{name: s}]}", "a Service without namespace"),
        (
            "{action: Allow, toServices: [{name: s, namespace: x, scope: ClusterSet}]}",
            "only scope Cluster is supported",
        ),
        ("{action: Allow, l7Protocols: [{http: {}}]}", "l7Protocols is not supported yet"),
        ("{action: Permit}", "unknown action \"Permit\""),
        ("{action: Allow, protocols: [{igmp: {}}]}", "igmp is not supported yet"),
        ("{action: Allow, protocols: [{}]}", "neither or both of icmp and igmp"),
        ("{action: Allow, from: [{podSelector: {}}]}", "peers of the other direction"),
    ] {
        let mut world = mk_teams();
        world.acnp("p", &format!("{{priority: 5, appliedTo: [{{podSelector: {{}}}}], egress: [{rule}, {{action: Drop}}]}}"));
        world.check("x/a -> 192.0.2.1 TCP:80: Drop");
        let faults = world.faults();
        assert!(faults.len() == 1 && faults[0].ends_with(reason), "{faults:?}");
    }
}

#[test]
fn rules_about_services_say_nothing_of_direct_connections_and_are_named() {
    let mut world = mk_teams();
    world.acnp(
        "p",
        "{priority: 5, appliedTo: [{podSelector: {}}], egress: [
            {action: Drop, toServices: [{name: s, namespace: x}]}]}",
    );
    world.acnp(
        "q",
        "{priority: 5, appliedTo: [{service: {name: s, namespace: x}}], ingress: [
            {action: Drop, from: [{ipBlock: {cidr: 0.0.0.0/0}}]}]}",
    );
    world.check("192.0.2.1 -> x/a TCP:80: Allow\n x/a -> 192.0.2.1 TCP:80: Allow");
    assert_eq!(world.faults(), Vec::<String>::new());
    let problems = world.problems(Severity::Unknowable);
    for what in ["p egress[0]", "q ingress[0]"] {
        let named = problems.iter().any(|problem| problem.contains(what));
        assert!(named, "{what}: {problems:?}");
    }
    for (spec, reason) in [
        (
            "appliedTo: [{service: {name: s, namespace: x}}, {podSelector: {}}], ingress: [{action: Drop}]",
            "Services beside other targets",
        ),
        (
            "appliedTo: [{service: {name: s, namespace: x}}], egress: [{action: Drop}]",
            "Services as targets of an egress rule",
        ),
        (
            "appliedTo: [{service: {name: s, namespace: x}}], ingress: [
                {action: Drop, from: [{podSelector: {}}]}]",
            "a rule for Services with a peer that is no ipBlock",
        ),
    ] {
        let mut world = mk_teams();
        world.acnp("p", &format!("{{priority: 5, {spec}}}"));
        let faults = world.faults();
        assert!(faults.len() == 1 && faults[0].ends_with(reason), "{faults:?}");
        world.check("192.0.2.1 -> x/a TCP:80: Allow\n x/a -> 192.0.2.1 TCP:80: Allow");
    }
}
