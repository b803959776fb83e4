//! What rules say is what becomes of packets.

use apis::controlplane::{AddressGroup, AppliedToGroup, RuleAction};
use openflow::{ConjId, OfPort};

use super::switch::{Fate, L4};
use super::world::*;
use crate::dns::{Answer, Asked, Extent};
use crate::realize::{Asker, Event, Known, LocalPod, Op, RefusedFlow, recover, rules_in};

fn udp(dst: u16) -> L4 {
    L4::Udp { src: 40_000, dst }
}

#[test]
fn nothing_is_isolated_without_policies() {
    let world = World::new();
    assert!(world.tcp(1, 2, 80) && world.from("198.51.100.1", 2, 80));
}

/// Case A3: three Pods of one policy; case A4: rules of one policy do not share peers.
#[test]
fn every_target_is_isolated_and_rules_keep_to_their_peers() {
    let mut world = World::new();
    let rules = vec![
        ingress().peers(&["p2"]).port("TCP", "80"),
        ingress().peers(&["p3"]).port("TCP", "443"),
    ];
    world.feed([
        Event::PolicySet(k8s("u1", "t", rules)),
        Event::AddressGroupSet(peers("p2", &[2])),
        Event::AddressGroupSet(peers("p3", &[3])),
        Event::AppliedToGroupSet(targets("t", &[1, 4])),
    ]);
    for target in [1, 4] {
        assert!(world.tcp(2, target, 80) && world.tcp(3, target, 443));
        assert!(!world.tcp(2, target, 443) && !world.tcp(3, target, 80));
        assert!(!world.from("198.51.100.1", target, 80));
        assert!(world.tcp(target, 2, 80), "only what it gets");
    }
    assert!(world.tcp(4, 3, 1));
}

/// Case A5: rules that share alternatives, in all orders.
#[test]
fn shared_alternatives_belong_to_nobody() {
    let own = |uid: &str, block: &str, port: &str| {
        k8s(uid, "t", vec![egress().block(block, &[]).port("TCP", port)])
    };
    let policies = [
        own("a", "0.0.0.0/0", "8080"),
        own("b", "10.1.1.1/32", "80"),
        own("c", "10.1.1.1/32", "443"),
    ];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut world = World::new();
        world.feed([Event::AppliedToGroupSet(targets("t", &[1]))]);
        for n in order {
            world.feed([Event::PolicySet(policies[n].clone())]);
        }
        assert!(world.to(1, "10.1.1.1", 80) && world.to(1, "10.1.1.1", 443));
        assert!(world.to(1, "10.9.9.9", 8080) && !world.to(1, "10.9.9.9", 80));
        for (n, gone) in order.into_iter().enumerate() {
            world.feed([Event::PolicyDeleted(["a", "b", "c"][gone].into())]);
            for (left, port) in [(0, 8080), (1, 80), (2, 443)] {
                let stays = order[n + 1..].contains(&left) || n == 2;
                assert_eq!(world.to(1, "10.1.1.1", port), stays, "{order:?} {n} {port}");
            }
        }
        assert_eq!(world.switch.flows(), []);
    }
}

/// Case A6.
#[test]
fn deny_all_and_allow_all() {
    let mut world = World::new();
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::PolicySet(k8s("deny", "t", vec![egress()])),
    ]);
    assert!(!world.tcp(1, 2, 80) && world.tcp(2, 1, 80));
    world.feed([Event::PolicySet(k8s("allow", "t", vec![egress().any()]))]);
    assert!(world.tcp(1, 2, 80) && world.connects(1, 2, L4::Icmp { kind: 13, code: 0 }));
}

/// Case A7.
#[test]
fn named_ports_mean_what_the_receiver_says() {
    let mut world = World::new();
    let ports = ["web/TCP/80", "web/TCP/8080", "web/UDP/53", ""];
    let group_members: Vec<_> = (1..).zip(ports).map(|(n, ports)| mk_member(n, ports)).collect();
    let target = AppliedToGroup { group_members: group_members.clone(), ..targets("t", &[]) };
    let all = AddressGroup { group_members, ..peers("all", &[]) };
    world.feed([
        Event::AppliedToGroupSet(target),
        Event::PolicySet(k8s("u", "t", vec![ingress().any().port("TCP", "web")])),
    ]);
    for port in [53, 80, 8080] {
        for dst in 1..=4 {
            let want = (dst, port) == (1, 80) || (dst, port) == (2, 8080);
            assert_eq!(world.tcp(3, dst, port), want, "{dst} {port}");
            assert!(!world.connects(4, dst, udp(port)));
        }
    }
    world.feed([
        Event::PolicyDeleted("u".into()),
        Event::AddressGroupSet(all),
        Event::PolicySet(k8s("e", "t", vec![egress().any().peers(&["all"]).port("TCP", "web")])),
    ]);
    for port in [53, 80, 8080] {
        for dst in 1..=4 {
            let want = (dst, port) == (1, 80) || (dst, port) == (2, 8080);
            assert_eq!(world.tcp(3, dst, port), want, "{dst} {port}");
        }
        assert!(!world.to(3, "198.51.100.1", port), "nobody outside names a port");
    }
}

/// Cases A8 and A13, and A12 in what reaches agents.
#[test]
fn protocols_without_ports_and_unknown_ones() {
    let mut world = World::new();
    let rule = ingress().any().port("UDP", "").port("SCTP", "7777").port("TCP", "80-90");
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::PolicySet(k8s("u", "t", vec![rule])),
    ]);
    assert!(world.connects(2, 1, udp(1)) && world.connects(2, 1, udp(65535)));
    assert!(world.connects(2, 1, L4::Sctp { src: 1, dst: 7777 }));
    assert!(!world.connects(2, 1, L4::Sctp { src: 1, dst: 7778 }));
    assert!(world.tcp(2, 1, 80) && world.tcp(2, 1, 90) && !world.tcp(2, 1, 91));
    for (protocol, port) in [("IGMP", ""), ("DCCP", ""), ("TCP", "90-80"), ("ICMP", "")] {
        let mut rule = ingress().any().port(protocol, port);
        if protocol == "ICMP" {
            rule.services[0].icmp_type = Some(300);
        }
        world.feed([Event::PolicySet(k8s("u", "t", vec![rule]))]);
        assert!(!world.tcp(2, 1, 85) && !world.connects(2, 1, udp(1)), "{protocol}");
        let failure = world.statuses()[0].failure.clone();
        assert!(failure.is_some(), "{protocol} {port}");
    }
    let mut rule = ingress().any().port("ICMP", "");
    (rule.services[0].icmp_type, rule.services[0].icmp_code) = (Some(8), Some(0));
    world.feed([Event::PolicySet(k8s("u", "t", vec![rule]))]);
    assert!(world.connects(2, 1, L4::Icmp { kind: 8, code: 0 }));
    assert!(!world.connects(2, 1, L4::Icmp { kind: 8, code: 1 }));
    assert!(!world.connects(2, 1, L4::Icmp { kind: 0, code: 0 }));
    assert_eq!(world.statuses()[0].failure, None);
}

/// Case A9.
#[test]
fn an_exception_belongs_to_its_block_alone() {
    for swap in [false, true] {
        let mut world = World::new();
        let mut policies = vec![
            k8s("a", "t", vec![ingress().block("10.10.0.0/16", &["10.10.2.0/24"])]),
            k8s("b", "t", vec![ingress().block("10.10.2.0/24", &[])]),
        ];
        if swap {
            policies.reverse();
        }
        world.feed([Event::AppliedToGroupSet(targets("t", &[1]))]);
        world.feed(policies.into_iter().map(Event::PolicySet));
        assert!(world.from("10.10.2.9", 1, 80) && world.from("10.10.3.9", 1, 80));
        assert!(!world.from("10.11.2.9", 1, 80));
        world.feed([Event::PolicyDeleted("b".into())]);
        assert!(!world.from("10.10.2.9", 1, 80));
    }
    let mut world = World::new();
    let rule = egress().block("0.0.0.0/0", &["10.0.0.0/24"]).peers(&["dns"]);
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::AddressGroupSet(peers("dns", &[2])),
        Event::PolicySet(k8s("c", "t", vec![rule])),
    ]);
    assert!(world.to(1, "10.0.0.2", 53) && !world.to(1, "10.0.0.3", 53));
}

#[test]
fn tiers_priorities_and_pass() {
    let mut world = World::new();
    let rule =
        |action: RuleAction, n: i32, port: &str| ingress().any().port("TCP", port).says(action, n);
    use RuleAction::{Allow, Drop, Pass, Reject};
    let t = &["t"][..];
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::PolicySet(antrea("low", (250, 5.0), t, vec![rule(Allow, 0, "80-90")])),
        Event::PolicySet(antrea(
            "high",
            (100, 9.5),
            t,
            vec![
                rule(Drop, 0, "80"),
                rule(Pass, 1, "81"),
                rule(Reject, 2, "82"),
                rule(Allow, 3, "80-82"),
            ],
        )),
        Event::PolicySet(antrea("tie", (250, 5.0), t, vec![rule(Drop, 0, "84")])),
        Event::PolicySet(antrea("base", (253, 1.0), t, vec![rule(Drop, 0, "95")])),
    ]);
    let fate = |world: &World, port: u16| {
        let l4 = L4::Tcp { src: 1, dst: port };
        let packet = super::switch::Packet { src: ips(2)[0], dst: ips(1)[0], l4 };
        world.fates(packet, 1).1
    };
    assert!(matches!(fate(&world, 80), Fate::Dropped(1..)));
    assert!(matches!(fate(&world, 81), Fate::Passed(1..)));
    assert!(matches!(fate(&world, 82), Fate::Rejected(1..)));
    assert!(matches!(fate(&world, 83), Fate::Passed(1..)));
    assert!(matches!(fate(&world, 84), Fate::Dropped(1..)), "the stricter of equals");
    assert!(matches!(fate(&world, 95), Fate::Dropped(1..)), "the baseline");
    world.feed([Event::PolicySet(k8s("k", "t", vec![ingress().any().port("TCP", "95")]))]);
    assert!(matches!(fate(&world, 95), Fate::Passed(1..)), "no baseline for the isolated");
    assert_eq!(fate(&world, 81), Fate::Dropped(0), "passed to where nothing allows it");
    assert_eq!(fate(&world, 99), Fate::Dropped(0));
}

/// Case A21.
#[test]
fn rules_may_have_targets_elsewhere() {
    let mut world = World::new();
    let rules = vec![
        ingress().peers(&["p"]).targets(&["here"]).says(RuleAction::Drop, 0),
        ingress().peers(&["q"]).targets(&["elsewhere"]).says(RuleAction::Drop, 1),
    ];
    world.feed([
        Event::PolicySet(antrea("u", (250, 1.0), &[], rules)),
        Event::AddressGroupSet(peers("p", &[2])),
        Event::AppliedToGroupSet(targets("here", &[1])),
    ]);
    assert!(!world.tcp(2, 1, 80) && world.tcp(3, 1, 80));
    assert_eq!(world.statuses().len(), 1);
}

/// Case A19.
#[test]
fn a_policy_of_the_same_name_is_another_one() {
    let mut world = World::new();
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::PolicySet(k8s("uid1", "t", vec![ingress().any().port("TCP", "80")])),
    ]);
    world.feed([Event::PolicySet(k8s("uid2", "t", vec![ingress().any().port("TCP", "81")]))]);
    world.feed([Event::PolicyDeleted("uid1".into())]);
    assert!(!world.tcp(2, 1, 80) && world.tcp(2, 1, 81));
}

/// Case A1, at the agent: addresses are counted, Pods are known by name.
#[test]
fn an_address_that_two_members_have_stays_with_the_second() {
    let mut world = World::new();
    let ended = apis::controlplane::GroupMember { pod: Some(key("ended")), ..mk_member(2, "") };
    let group = AddressGroup { group_members: vec![ended.clone()], ..peers("p", &[]) };
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::AddressGroupSet(group),
        Event::PolicySet(k8s("u", "t", vec![ingress().peers(&["p"])])),
    ]);
    world.feed([patch_peers("p", &[2], &[])]);
    let removal = apis::controlplane::AddressGroupPatch {
        metadata: peers("p", &[]).metadata,
        removed_group_members: vec![ended],
        ..Default::default()
    };
    world.feed([Event::AddressGroupPatched(removal)]);
    assert!(world.tcp(2, 1, 80));
    world.feed([patch_peers("p", &[], &[2])]);
    assert!(!world.tcp(2, 1, 80));
}

#[test]
fn pods_come_and_go_and_move() {
    let mut world = World::new();
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[9])),
        Event::PolicySet(k8s("u", "t", vec![ingress().any().port("TCP", "80"), egress()])),
    ]);
    assert_eq!(world.switch.flows(), []);
    world.feed([Event::PodUp(mk_pod(9))]);
    assert!(world.tcp(1, 9, 80) && !world.tcp(1, 9, 81) && !world.tcp(9, 1, 80));
    let n_flows = world.switch.flows().len();
    let moved = LocalPod { ofport: OfPort(11), ips: ips(11), ..mk_pod(9) };
    world.feed([Event::PodUp(moved.clone())]);
    assert!(world.tcp(1, 11, 80) && !world.tcp(1, 11, 81) && !world.tcp(11, 1, 80));
    assert!(world.tcp(1, 9, 81) && world.tcp(9, 1, 80), "its former place is free");
    assert_eq!(world.switch.flows().len(), n_flows);
    world.feed([Event::PodUp(moved)]);
    assert_eq!(world.last, [], "nothing new");
    world.feed([Event::PodDown(key("pod9"))]);
    assert_eq!(world.switch.flows(), []);
}

#[test]
fn a_changed_member_changes_its_own_flows_alone() {
    let mut world = World::new();
    let many: Vec<u32> = (2..200).collect();
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::AddressGroupSet(peers("p", &many)),
        Event::PolicySet(k8s("u", "t", vec![ingress().peers(&["p"])])),
    ]);
    world.feed([patch_peers("p", &[250], &[2])]);
    let n_flows: usize = world
        .last
        .iter()
        .map(|op| match op {
            Op::Set { key, flows } if key.starts_with("clauses/") => flows.len(),
            Op::Remove { key } if key.starts_with("clauses/") => 0,
            other => panic!("{other:?}"),
        })
        .sum();
    assert!(world.last.len() <= 4 && n_flows < 20, "{:?}", world.last);
    assert!(!world.tcp(2, 1, 80) && world.tcp(250, 1, 80) && world.tcp(3, 1, 80));
}

#[test]
fn numbers_stay_with_what_a_rule_says() {
    let mut world = World::new();
    let a = ingress().peers(&["p"]).says(RuleAction::Allow, 0);
    let b = ingress().any().port("TCP", "80").says(RuleAction::Drop, 1);
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::AddressGroupSet(peers("p", &[2])),
        Event::PolicySet(antrea("u", (250, 5.0), &["t"], vec![a.clone(), b.clone()])),
    ]);
    let numbers = |world: &World| -> Vec<(u32, usize)> {
        let mut all: Vec<_> = world.realizer.rules().map(|(id, info)| (id.0, info.rule)).collect();
        all.sort_unstable();
        all
    };
    let before = numbers(&world);
    // Swapped and moved in the tiers, and logged: the same rules.
    let (mut a, mut b) = (a, b);
    (a.priority, b.priority, a.enable_logging) = (1, 0, true);
    world.feed([Event::PolicySet(antrea("u", (50, 7.5), &["t"], vec![b, a.clone()]))]);
    let after = numbers(&world);
    assert_eq!(after, before.iter().map(|(id, rule)| (*id, 1 - rule)).collect::<Vec<_>>());
    assert!(!world.tcp(2, 1, 80) && world.tcp(2, 1, 81));
    // Another rule: another number, and the old one still has its meaning for a while.
    a.log_label = "x".into();
    world.feed([Event::PolicySet(antrea("u", (50, 7.5), &["t"], vec![a.clone(), a]))]);
    let now = numbers(&world);
    assert_eq!(now.len(), 2);
    assert!(now.iter().all(|(id, _)| before.iter().all(|(old, _)| old != id)));
    let old = world.realizer.rule(ConjId(before[0].0)).expect("it rests");
    assert_eq!(old.source().unwrap().uid, "u");
    world.now = S(3600);
    world.feed([Event::Tick]);
    assert!(world.realizer.rule(ConjId(before[0].0)).is_none());

    // An agent that starts anew gives out the same numbers.
    let flows = world.switch.flows();
    let mut again = World::cold();
    again.feed([Event::Recovered(recover(&flows))]);
    again.feed((1..=4).map(|n| Event::PodUp(mk_pod(n))));
    again.feed(world.realizer.snapshot().into_events());
    assert_eq!(numbers(&again), now);
    assert_eq!(again.switch.by_key, world.switch.by_key);
    assert!(again.last.contains(&Op::Synced));
}

#[test]
fn names_become_addresses() {
    let mut world = World::new();
    let rules = vec![
        egress().fqdn("db.example.org").port("TCP", "5432").says(RuleAction::Allow, 0),
        egress().any().port("TCP", "5432").says(RuleAction::Drop, 1),
    ];
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::PolicySet(antrea("u", (250, 5.0), &["t"], rules)),
    ]);
    assert!(world.last.contains(&Op::Resolve("db.example.org".into())));
    let dns = world.switch.by_key.keys().filter(|key| key.starts_with("dns/")).count();
    assert_eq!(dns, 1, "answers to the Pod are looked at");
    assert!(!world.to(1, "192.0.2.7", 5432));
    let addresses = vec![("192.0.2.7".parse().unwrap(), 60), ("2001:db8::7".parse().unwrap(), 60)];
    assert!(world.realizer.uses_name("DB.example.org."));
    assert!(!world.realizer.uses_name("www.example.org"));
    let mut answer = Answer {
        name: "DB.example.org.".into(),
        asked: Some(Asked::A),
        addresses,
        extent: Extent::Whole,
    };
    world.feed([Event::NameLearned { answer: answer.clone(), asker: Asker::Pod }]);
    assert!(world.to(1, "192.0.2.7", 5432) && world.to(1, "2001:db8::7", 5432));
    assert!(!world.to(1, "192.0.2.8", 5432));

    // An agent that starts anew and is told what was known asks for the same flows.
    let known = world.realizer.names().map(|(name, ip, until)| Known {
        name: name.into(),
        ip,
        left: until.saturating_sub(world.now),
    });
    let mut again = World::cold();
    again.feed([Event::Recovered(recover(&world.switch.flows()))]);
    again.feed([Event::NamesRestored(known.collect())]);
    again.feed((1..=4).map(|n| Event::PodUp(mk_pod(n))));
    again.feed(world.realizer.snapshot().into_events());
    assert_eq!(again.switch.by_key, world.switch.by_key);

    world.now = world.realizer.deadline().unwrap();
    world.feed([Event::Tick]);
    assert_eq!(world.last, [Op::Resolve("db.example.org".into())]);
    assert!(world.to(1, "192.0.2.7", 5432), "while it is asked for");
    answer.addresses = vec![("192.0.2.8".parse().unwrap(), 60)];
    world.feed([Event::NameLearned { answer: answer.clone(), asker: Asker::Agent }]);
    assert!(!world.to(1, "192.0.2.7", 5432), "out of date");
    assert!(world.to(1, "192.0.2.8", 5432) && world.to(1, "2001:db8::7", 5432));
    world.feed([Event::PolicyDeleted("u".into())]);
    assert_eq!(world.switch.flows(), []);
}

#[test]
fn what_cannot_be_realized_is_said_and_fails_alone() {
    let mut world = World::new();
    let mut layer7 = ingress().any().says(RuleAction::Allow, 0);
    layer7.l7_protocols.push(Default::default());
    let unknown = ingress().any().says(RuleAction::from("Explode"), 1);
    let good = ingress().any().port("TCP", "80").says(RuleAction::Drop, 2);
    let policy = antrea("u", (250, 5.0), &["t"], vec![layer7, unknown, good]);
    world.feed([Event::AppliedToGroupSet(targets("t", &[1])), Event::PolicySet(policy.clone())]);
    let failure = world.statuses()[0].failure.clone().unwrap();
    assert!(failure.contains("layer 7") && failure.contains("\"Explode\""), "{failure}");
    assert!(!world.tcp(2, 1, 80) && world.tcp(2, 1, 81));
    // The switch refuses a flow.
    let flow = world.switch.by_key["rule/2"][0].to_string();
    let rules = rules_in(&flow);
    assert_eq!(rules, [ConjId(2)]);
    world.feed([Event::Refused(vec![RefusedFlow { rules, reason: "table is full".into() }])]);
    assert!(world.statuses()[0].failure.clone().unwrap().contains("rule In 2: table is full"));
    world.feed([Event::Refused(vec![])]);
    assert_eq!(world.statuses()[0].failure, Some(failure));
    let mut policy = policy;
    policy.rules.drain(..2);
    policy.metadata.generation = Some(2);
    world.feed([Event::PolicySet(policy)]);
    let status = world.statuses()[0];
    assert_eq!((status.generation, &status.failure), (2, &None));
}
