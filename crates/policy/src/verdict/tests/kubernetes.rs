//! Kubernetes' NetworkPolicies, and known failures of others with them.

use super::World;

/// Namespaces x, y and z, each with Pods a, b and c.
fn mk_nine() -> World {
    let mut world = World::default();
    for (n, namespace) in ["x", "y", "z"].into_iter().enumerate() {
        world.namespace(&format!("{namespace} ns={namespace}"));
        for (p, pod) in ["a", "b", "c"].into_iter().enumerate() {
            world.pod(&format!("{namespace}/{pod} pod={pod} 10.0.{n}.{p} serve-80:80/TCP"));
        }
    }
    world
}

/// A policy of `x/a` and who then reaches it on TCP 80, in the order xa xb xc ya yb yc za zb zc.
#[track_caller]
fn check_ingress(spec: &str, want: &str) {
    let mut world = mk_nine();
    world.netpol("x/p", spec);
    let mut got = String::new();
    for namespace in ["x", "y", "z"] {
        for pod in ["a", "b", "c"] {
            let from = format!("{namespace}/{pod}");
            let explain = world.explain(&from, "x/a", "TCP:80");
            got.push(if explain.starts_with("Allow") { '.' } else { 'X' });
        }
    }
    assert_eq!(got, want, "{spec}");
}

#[test]
fn who_reaches_a_pod() {
    for (spec, want) in [
        ("{podSelector: {}}", ".XXXXXXXX"),
        ("{podSelector: {}, ingress: []}", ".XXXXXXXX"),
        ("{podSelector: {}, ingress: [{}]}", "........."),
        ("{podSelector: {matchLabels: {pod: b}}}", "........."),
        ("{podSelector: {}, policyTypes: [Egress]}", ".XX......"),
        ("{podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}", "...XXXXXX"),
        ("{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}", "........."),
        (
            "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}]}]}",
            ".XX...XXX",
        ),
        (
            "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}, podSelector: {matchLabels: {pod: b}}}]}]}",
            ".XXX.XXXX",
        ),
        (
            "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}}, {podSelector: {matchLabels: {pod: b}}}]}]}",
            "..X...XXX",
        ),
        (
            "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchExpressions: [{key: ns, operator: NotIn, values: [x]}]}}]}]}",
            ".XX......",
        ),
        (
            "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: z}}}]}]}",
            ".XXXXX...",
        ),
        (
            "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.1.0/24, except: [10.0.1.2/32]}}]}]}",
            ".XX..XXXX",
        ),
        ("{podSelector: {}, ingress: [{ports: [{port: 81}]}]}", ".XXXXXXXX"),
        ("{podSelector: {}, ingress: [{ports: [{port: serve-80}]}]}", "........."),
        ("{podSelector: {}, ingress: [{ports: [{port: 80, protocol: UDP}]}]}", ".XXXXXXXX"),
        ("{podSelector: {}, ingress: [{ports: [{port: 79, endPort: 81}]}]}", "........."),
        ("{podSelector: {}, ingress: [{ports: []}]}", "........."),
        ("{podSelector: {}, ingress: [{from: []}]}", "........."),
    ] {
        check_ingress(spec, want);
    }
}

#[test]
fn egress_is_decided_before_ingress() {
    let mut world = mk_nine();
    world.netpol("x/out", "{podSelector: {matchLabels: {pod: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {pod: b}}}]}]}");
    world.netpol("x/in", "{podSelector: {matchLabels: {pod: b}}}");
    assert_eq!(world.explain("x/a", "x/c", "TCP:80"), "Drop Out K8sNetworkPolicy x/out isolation");
    assert_eq!(world.explain("x/a", "x/b", "TCP:80"), "Drop In K8sNetworkPolicy x/in isolation");
    assert_eq!(world.explain("x/c", "y/a", "TCP:80"), "Allow In Default");
    world.check(
        "x/a -> 192.0.2.1 TCP:80: Drop
         192.0.2.1 -> x/a TCP:80: Allow
         192.0.2.1 -> x/b TCP:80: Drop",
    );
}

#[test]
fn a1_a_finished_pod_gives_its_address_to_another() {
    let mut world = World::default();
    world.pod("x/old job=x 10.0.0.7 !done");
    world.pod("x/new 10.0.0.7");
    world.pod("x/other");
    world.netpol("x/deny", "{podSelector: {matchLabels: {job: x}}}");
    world.check("x/other -> x/new TCP:80: Allow");
    world.netpol(
        "x/all",
        "{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {job: x}}}]}]}",
    );
    world.check("x/new -> x/other TCP:80: Drop");
}

#[test]
fn a4_rules_of_one_policy_keep_their_own_peers() {
    let mut world = World::default();
    for pod in ["web", "admin", "db"] {
        world.pod(&format!("x/{pod} app={pod}"));
    }
    world.netpol(
        "x/db",
        "{podSelector: {matchLabels: {app: db}}, ingress: [
        {from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]},
        {from: [{podSelector: {matchLabels: {app: admin}}}], ports: [{port: 443}]}]}",
    );
    assert_eq!(world.conns("x/web", "x/db"), "TCP 80");
    assert_eq!(world.conns("x/admin", "x/db"), "TCP 443");
}

#[test]
fn a6_an_empty_egress_policy_isolates() {
    for (egress, want) in [("", "Drop"), (", egress: []", "Drop"), (", egress: [{}]", "Allow")] {
        let mut world = World::default();
        world.pod("x/a");
        world.pod("x/b");
        world.netpol("x/p", &format!("{{podSelector: {{}}, policyTypes: [Egress]{egress}}}"));
        world.check(&format!("x/a -> 192.0.2.1 TCP:80: {want}\n x/a -> x/b UDP:53: {want}"));
        world.check("192.0.2.1 -> x/a TCP:80: Allow");
    }
    // Without policyTypes, an empty list of egress rules says nothing about egress.
    let mut world = World::default();
    world.pod("x/a");
    world.netpol("x/p", "{podSelector: {}, egress: []}");
    world.check("x/a -> 192.0.2.1 TCP:80: Allow\n 192.0.2.1 -> x/a TCP:80: Drop");
}

#[test]
fn a7_a_named_port_is_that_of_the_destination() {
    let mut world = World::default();
    world.pod("x/p1 web:80/TCP");
    world.pod("x/p2 web:8080/TCP");
    world.pod("x/p3 web:53/UDP");
    world.pod("x/p4");
    world.pod("y/client");
    world.netpol("x/in", "{podSelector: {}, ingress: [{ports: [{port: web, protocol: TCP}]}]}");
    for (pod, want) in [
        ("x/p1", "TCP 80"),
        ("x/p2", "TCP 8080"),
        ("x/p3", "No Connections"),
        ("x/p4", "No Connections"),
    ] {
        assert_eq!(world.conns("y/client", pod), want, "{pod}");
    }
    world.netpol(
        "y/out",
        "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: web, protocol: TCP}]}]}",
    );
    assert_eq!(world.conns("y/client", "x/p2"), "TCP 8080");
    assert_eq!(world.conns("y/client", "192.0.2.1"), "No Connections");
}

#[test]
fn a8_a_protocol_without_a_port_is_all_its_ports() {
    let mut world = mk_nine();
    world.netpol("x/p", "{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}");
    assert_eq!(world.conns("y/a", "x/a"), "UDP 1-65535");
    let mut world = mk_nine();
    world.acnp("p", "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, ports: [{protocol: UDP}]}]}");
    assert_eq!(world.conns("y/a", "x/a"), "SCTP 1-65535,TCP 1-65535");
}

#[test]
fn a9_except_takes_away_from_its_own_network_only() {
    let target = "podSelector: {}, policyTypes: [Egress]";
    for flip in [false, true] {
        let mut world = mk_nine();
        let mut names = ["x/one", "x/two"];
        if flip {
            names.reverse();
        }
        world.netpol(names[0], &format!("{{{target}, egress: [{{to: [{{ipBlock: {{cidr: 10.10.0.0/16, except: [10.10.2.0/24]}}}}]}}]}}"));
        world.netpol(
            names[1],
            &format!("{{{target}, egress: [{{to: [{{ipBlock: {{cidr: 10.10.2.0/24}}}}]}}]}}"),
        );
        world.check(
            "x/a -> 10.10.1.1 TCP:80: Allow
             x/a -> 10.10.2.1 TCP:80: Allow
             x/a -> 10.11.0.1 TCP:80: Drop",
        );
    }
    let mut world = mk_nine();
    world.pod("dns/d dns=yes 10.42.0.9");
    world.netpol(
        "x/p",
        &format!(
            "{{{target}, egress: [{{to: [
        {{ipBlock: {{cidr: 0.0.0.0/0, except: [10.42.0.0/16]}}}},
        {{podSelector: {{matchLabels: {{dns: 'yes'}}}}, namespaceSelector: {{}}}}]}}]}}"
        ),
    );
    world.check("x/a -> dns/d UDP:53: Allow\n x/a -> 10.42.0.8 UDP:53: Drop\n x/a -> 192.0.2.1 UDP:53: Allow");
}

#[test]
fn a11_end_port_is_exact() {
    for (first, last) in [(32_000, 32_768), (1, 65_535), (1001, 1999), (80, 80), (65_535, 65_535)] {
        let mut world = mk_nine();
        let ports = format!("ports: [{{port: {first}, endPort: {last}}}]");
        world.netpol("x/p", &format!("{{podSelector: {{}}, policyTypes: [Ingress, Egress], ingress: [{{{ports}}}], egress: [{{{ports}}}]}}"));
        let cluster = crate::verdict::Cluster::new(&world.0);
        let (from, to) = (cluster.pod("x", "b").unwrap(), cluster.pod("x", "a").unwrap());
        let (from, to) = (crate::verdict::End::Pod(from), crate::verdict::End::Pod(to));
        let set = cluster.connections(from, to);
        assert!(
            (0..=u16::MAX).all(|port| set.tcp.contains(port) == (first..=last).contains(&port))
        );
        assert!(set.udp.is_empty());
    }
    for ports in [
        "{port: 80, endPort: 79}",
        "{endPort: 80}",
        "{port: web, endPort: 80}",
        "{port: 70000}",
        "{port: -1}",
    ] {
        let mut world = mk_nine();
        world.netpol("x/p", &format!("{{podSelector: {{}}, ingress: [{{ports: [{ports}]}}]}}"));
        assert_eq!(world.conns("y/a", "x/a"), "No Connections", "{ports}");
        assert_eq!(world.faults().len(), 1, "{ports}");
    }
}

#[test]
fn a12_an_unknown_protocol_is_not_any() {
    let mut world = mk_nine();
    world.netpol("x/p", "{podSelector: {}, ingress: [{ports: [{protocol: ICMP}]}]}");
    assert_eq!(world.conns("y/a", "x/a"), "No Connections");
    assert_eq!(
        world.faults(),
        ["NetworkPolicy p ingress[0].ports[0]: ICMP is no protocol with ports"]
    );
}

#[test]
fn a13_sctp_stands_beside_the_others() {
    let mut world = mk_nine();
    world.netpol("x/p", "{podSelector: {}, ingress: [{ports: [{port: 80}, {protocol: UDP, port: 53}, {protocol: SCTP, port: 7777}]}]}");
    assert_eq!(world.conns("y/a", "x/a"), "SCTP 7777,TCP 80,UDP 53");
}

#[test]
fn a14_a_network_matches_whoever_owns_the_address() {
    let mut world = mk_nine();
    world.node("n1 172.30.0.1");
    world.netpol("x/in", "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/16}}]}]}");
    world.netpol("y/out", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 172.30.0.1/32}}]}]}");
    world.check(
        "z/a -> x/a TCP:80: Allow
         192.0.2.1 -> x/a TCP:80: Drop
         y/a -> 172.30.0.1 TCP:80: Allow
         y/a -> 172.30.0.2 TCP:80: Drop",
    );
}

#[test]
fn a16_labels_are_those_of_now() {
    let rule = "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: w}}}]}]}";
    for (namespace, pod, want) in [
        ("y team=a", "y/p app=w", "Allow"),
        ("y", "y/p app=w", "Drop"),
        ("y team=a", "y/p", "Drop"),
    ] {
        let mut world = World::default();
        world.namespace(namespace);
        world.pod(pod);
        world.pod("x/db");
        world.netpol("x/p", rule);
        world.check(&format!("y/p -> x/db TCP:80: {want}"));
    }
}

#[test]
fn a17_a_pod_without_an_address_harms_nobody() {
    let mut world = mk_nine();
    world.pod("y/pending pod=a");
    world.node("n9");
    world.netpol("x/p", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {ns: y}}, podSelector: {matchLabels: {pod: a}}}, {ipBlock: {cidr: 10.0.2.0/24}}]}]}");
    world.check(
        "y/a -> x/a TCP:80: Allow
         y/pending -> x/a TCP:80: Allow
         z/a -> x/a TCP:80: Allow
         y/b -> x/a TCP:80: Drop",
    );
}

#[test]
fn a19_kinds_of_one_name_live_side_by_side() {
    let mut world = mk_nine();
    world.netpol("x/p", "{podSelector: {}, ingress: [{ports: [{port: 80}]}]}");
    world.annp("x/p", "{priority: 5, appliedTo: [{podSelector: {}}], ingress: [{action: Reject, ports: [{port: 81}]}]}");
    world.check("y/a -> x/a TCP:80: Allow\n y/a -> x/a TCP:81: Reject\n y/a -> x/a TCP:82: Drop");
}

#[test]
fn a22_a_pod_in_the_network_of_its_node_is_known_by_address() {
    let mut world = mk_nine();
    world.pod("x/host pod=a 172.30.0.1 !host");
    world.netpol(
        "x/labels",
        "{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {pod: a}}}]}]}",
    );
    world.check(
        "x/a -> x/b TCP:80: Allow\n x/host -> x/b TCP:80: Drop\n y/a -> x/host TCP:80: Allow",
    );
    world.netpol(
        "x/net",
        "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 172.30.0.1/32}}]}]}",
    );
    world.check("x/host -> x/b TCP:80: Allow");
}

#[test]
fn a23_a_node_reaches_its_own_pods() {
    let mut world = World::default();
    world.node("n1 172.30.0.1 10.10.1.0/24");
    world.node("n2 172.30.0.2 10.10.2.0/24");
    world.pod("x/a 10.10.1.5 @n1");
    world.pod("kube/agent 172.30.0.1 @n1 !host");
    world.pod("kube/other 172.30.0.2 @n2 !host");
    world.netpol("x/deny", "{podSelector: {}}");
    world.check(
        "172.30.0.1 -> x/a TCP:80: Allow
         10.10.1.1 -> x/a TCP:80: Allow
         kube/agent -> x/a TCP:80: Allow
         172.30.0.2 -> x/a TCP:80: Drop
         10.10.2.1 -> x/a TCP:80: Drop
         kube/other -> x/a TCP:80: Drop",
    );
}

#[test]
fn a27_no_label_is_special() {
    let keys = ["host", "reserved", "all", "none", "namespace", "a.b/c.d"];
    for key in keys {
        for value in ["host", "all", "x"] {
            let mut world = World::default();
            world.pod(&format!("x/a {key}={value}"));
            world.pod("x/b");
            world.netpol("x/deny", "{podSelector: {}}");
            world.check("x/b -> x/a TCP:80: Drop\n x/a -> x/b TCP:80: Drop");
        }
    }
    let mut world = World::default();
    world.pod("x/a reserved=");
    world.pod("x/b");
    world.netpol("x/deny", "{podSelector: {matchLabels: {reserved: ''}}}");
    world.check("x/b -> x/a TCP:80: Drop\n x/a -> x/b TCP:80: Allow");
}

#[test]
fn peers_that_cannot_be_meant_match_nobody() {
    for (peer, reason) in [
        ("{}", "a peer that names nobody"),
        ("{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}", "ipBlock beside a selector"),
        ("{ipBlock: {cidr: 10.0.0.0}}", "\"10.0.0.0\" is no network"),
        (
            "{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/7]}}",
            "10.0.0.0/7 leaves nothing of 10.0.0.0/8",
        ),
        (
            "{podSelector: {matchExpressions: [{key: a, operator: Like}]}}",
            "unknown operator \"Like\"",
        ),
    ] {
        let mut world = mk_nine();
        world.netpol("x/p", &format!("{{podSelector: {{}}, ingress: [{{from: [{peer}]}}]}}"));
        world.check("y/a -> x/a TCP:80: Drop");
        assert_eq!(world.faults(), [format!("NetworkPolicy p ingress[0].from[0]: {reason}")]);
    }
}

#[test]
fn families_are_told_apart_by_network() {
    let mut world = World::default();
    world.pod("x/a 10.0.0.1 fd00::1");
    world.pod("x/b 10.0.0.2 fd00::2");
    world.netpol("x/p", "{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 'fd00::/64'}}]}]}");
    world.check(
        "10.0.0.9 -> x/a TCP:80: Drop\n fd00::9 -> x/a TCP:80: Allow\n fd01::9 -> x/a TCP:80: Drop",
    );
    // Some family gets through, though not the first one.
    assert_eq!(world.conns("x/b", "x/a"), "All Connections");
}
