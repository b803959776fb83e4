//! Three watches in any order never weaken anything.

use std::collections::BTreeMap;

use apis::controlplane::RuleAction;

use super::world::*;
use crate::realize::{AsOf, Event, Kind, LocalPod, Op, Snapshot};

fn as_of(version: u64) -> AsOf {
    AsOf(BTreeMap::from([("pods".to_owned(), version)]))
}

/// Every order of some things.
fn orders<T: Clone>(things: &[T]) -> Vec<Vec<T>> {
    if things.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (n, first) in things.iter().enumerate() {
        let rest: Vec<T> =
            things.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, t)| t.clone()).collect();
        for mut order in orders(&rest) {
            order.insert(0, first.clone());
            all.push(order);
        }
    }
    all
}

/// A policy moves from peers `p` to peers `q`, and the old group goes: whatever comes first, nobody
/// gets in who may by neither version, and who may by both always does.
#[test]
fn an_update_is_whole_in_every_order() {
    let rule = |group: &str| vec![ingress().peers(&[group]).port("TCP", "80")];
    let changes = [
        Event::PolicySet(k8s("u", "t", rule("q"))),
        Event::AddressGroupSet(peers("q", &[2, 4])),
        Event::AddressGroupDeleted("p".into()),
    ];
    for order in orders(&changes) {
        let mut world = World::new();
        world.feed([
            Event::AppliedToGroupSet(targets("t", &[1])),
            Event::AddressGroupSet(peers("p", &[2, 3])),
            Event::PolicySet(k8s("u", "t", rule("p"))),
        ]);
        let mut wrong = 0;
        for event in order.clone() {
            world.feed([event]);
            wrong += usize::from(!world.tcp(2, 1, 80));
            wrong += usize::from(world.tcp(2, 1, 81));
            wrong += usize::from(world.from("198.51.100.1", 1, 80));
        }
        assert_eq!(wrong, 0, "{order:?}");
        assert!(world.tcp(4, 1, 80) && !world.tcp(3, 1, 80), "{order:?}");
    }
}

/// Nobody tells of Pods that came back with other addresses; another Pod has the peer's former one.
#[test]
fn peers_that_come_back_here_are_known_by_name_in_every_order() {
    let drop_peers = || ingress().peers(&["p"]).says(RuleAction::Drop, 0);
    let moved = |pod: u32, to: u32| LocalPod { ips: ips(to), ..mk_pod(pod) };
    let changes = [
        Event::PodUp(moved(2, 12)),
        Event::PodUp(moved(3, 2)),
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::AddressGroupSet(peers("p", &[2, 9])),
        Event::PolicySet(antrea("d", (250, 1.0), &["t"], vec![drop_peers()])),
    ];
    let mut n_orders = 0;
    for order in orders(&changes) {
        let mut world = World::new();
        world.feed([Event::PodDown(key("pod2")), Event::PodDown(key("pod3"))]);
        world.feed(order.clone());
        let by = |n: u32| {
            (world.from(&format!("10.0.0.{n}"), 1, 80), world.from(&format!("fd00::{n}"), 1, 80))
        };
        assert_eq!(by(12), (false, false), "the peer, {order:?}");
        assert_eq!(by(2), (true, true), "who has its former address, {order:?}");
        assert_eq!(by(9), (false, false), "a peer elsewhere, {order:?}");
        // One after another it comes to the same.
        let mut one_by_one = World::new();
        one_by_one.feed([Event::PodDown(key("pod2")), Event::PodDown(key("pod3"))]);
        order.iter().for_each(|event| one_by_one.feed([event.clone()]));
        assert_eq!(one_by_one.switch.flows(), world.switch.flows(), "{order:?}");
        // The controller sees it too.
        world.feed([Event::AddressGroupSet(peers("p", &[9]))]);
        assert!(world.from("10.0.0.12", 1, 80), "{order:?}");
        n_orders += 1;
    }
    assert_eq!(n_orders, 120);
}

/// The same with targets: a Pod that both versions drop traffic to never gets any.
#[test]
fn new_targets_are_waited_for() {
    let policy = |target: &str, generation| {
        let rule = ingress().any().says(RuleAction::Drop, 0);
        let mut policy = antrea("u", (250, 1.0), &[target], vec![rule]);
        policy.metadata.generation = Some(generation);
        policy
    };
    let changes = [
        Event::PolicySet(policy("new", 2)),
        Event::AppliedToGroupSet(targets("new", &[1, 2])),
        Event::AppliedToGroupDeleted("old".into()),
    ];
    for order in orders(&changes) {
        let mut world = World::new();
        world.feed([
            Event::AppliedToGroupSet(targets("old", &[1, 3])),
            Event::PolicySet(policy("old", 1)),
        ]);
        for event in order.clone() {
            world.feed([event]);
            assert!(!world.tcp(4, 1, 80), "{order:?}");
        }
        assert!(!world.tcp(4, 2, 80) && world.tcp(4, 3, 80), "{order:?}");
        let generations: Vec<i64> = world.realizer.statuses().map(|s| s.generation).collect();
        assert_eq!(generations, [2]);
    }
}

/// Targets that do not come have no Pods here: a bookmark says so, or time.
#[test]
fn targets_without_pods_are_not_waited_for_for_ever() {
    let policy = |target: &str| {
        antrea("u", (250, 1.0), &[target], vec![ingress().any().says(RuleAction::Drop, 0)])
    };
    for by_bookmark in [true, false] {
        let mut world = World::new();
        world.feed([
            Event::AppliedToGroupSet(targets("old", &[1])),
            Event::PolicySet(policy("old")),
        ]);
        world.feed([Event::PolicySet(policy("elsewhere"))]);
        assert!(!world.tcp(4, 1, 80), "it may be on its way");
        if by_bookmark {
            let mark = |kind, version| Event::Bookmark { kind, as_of: as_of(version) };
            world.feed([mark(Kind::AppliedToGroup, 6)]);
            world.feed([mark(Kind::NetworkPolicy, 7)]);
            assert!(!world.tcp(4, 1, 80), "the targets' watch is behind");
            world.feed([mark(Kind::AppliedToGroup, 7)]);
        } else {
            world.now = world.realizer.deadline().unwrap() - S(1);
            world.feed([Event::Tick]);
            assert!(!world.tcp(4, 1, 80));
            world.now += S(1);
            world.feed([Event::Tick]);
        }
        assert!(world.tcp(4, 1, 80));
        assert_eq!(world.realizer.deadline(), None);
    }
}

/// A target that is gone goes: its last Pod lost the label.
#[test]
fn targets_that_are_gone_go_after_a_while() {
    let mut world = World::new();
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::AppliedToGroupSet(targets("u", &[2])),
        Event::PolicySet(antrea(
            "p",
            (250, 1.0),
            &["t", "u"],
            vec![ingress().any().says(RuleAction::Drop, 0)],
        )),
    ]);
    world.feed([Event::AppliedToGroupDeleted("t".into())]);
    assert!(!world.tcp(4, 1, 80), "the policy may change yet");
    world.feed([Event::Bookmark { kind: Kind::AppliedToGroup, as_of: as_of(9) }]);
    world.feed([Event::Bookmark { kind: Kind::NetworkPolicy, as_of: as_of(9) }]);
    assert!(world.tcp(4, 1, 80) && !world.tcp(4, 2, 80));
}

/// Nothing is asked of the switch before all three lists were there.
#[test]
fn the_first_lists_come_out_at_once() {
    let lists = [
        Event::ReplacePolicies(vec![k8s("u", "t", vec![ingress().peers(&["p"])])]),
        Event::ReplaceAppliedToGroups(vec![targets("t", &[1])]),
        Event::ReplaceAddressGroups(vec![peers("p", &[2])]),
    ];
    for order in orders(&lists) {
        let mut world = World::cold();
        world.feed([Event::PodUp(mk_pod(1))]);
        for (n, event) in order.into_iter().enumerate() {
            assert_eq!(world.last, [], "{n}");
            world.feed([event]);
        }
        assert!(world.last.contains(&Op::Synced));
        assert!(world.tcp(2, 1, 80) && !world.tcp(3, 1, 80));
        world.feed([Event::Tick]);
        assert_eq!(world.last, []);
    }
}

/// Case E5: what was deleted while the watch was down goes with the next list.
#[test]
fn a_new_list_replaces_everything() {
    let lists = [
        Event::ReplacePolicies(vec![k8s("b", "t", vec![ingress().peers(&["q"])])]),
        Event::ReplaceAppliedToGroups(vec![targets("t", &[1])]),
        Event::ReplaceAddressGroups(vec![peers("q", &[3])]),
    ];
    for order in orders(&lists) {
        let mut world = World::new();
        world.feed([
            Event::AppliedToGroupSet(targets("t", &[1])),
            Event::AddressGroupSet(peers("p", &[2, 3])),
            Event::PolicySet(k8s("a", "t", vec![ingress().peers(&["p"])])),
        ]);
        for event in order {
            world.feed([event]);
            assert!(!world.tcp(4, 1, 80), "always isolated");
        }
        assert!(world.tcp(3, 1, 80) && !world.tcp(2, 1, 80));
        assert_eq!(world.realizer.n_policies(), 1);
    }
}

#[test]
fn a_waiting_pod_is_let_go_once_it_is_covered() {
    let mut world = World::new();
    let wait = Event::PodWaits { pod: key("pod1"), since: as_of(5) };
    world.feed([wait.clone()]);
    assert_eq!(world.last, []);
    for kind in [Kind::AddressGroup, Kind::AppliedToGroup] {
        world.feed([Event::Bookmark { kind, as_of: as_of(5) }]);
        assert_eq!(world.last, []);
    }
    world.feed([Event::Bookmark { kind: Kind::NetworkPolicy, as_of: as_of(4) }]);
    assert_eq!(world.last, []);
    // Its policy comes before the bookmark that covers it, and so do the flows.
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::PolicySet(k8s("u", "t", vec![ingress()])),
        Event::Bookmark { kind: Kind::NetworkPolicy, as_of: as_of(6) },
    ]);
    assert!(matches!(world.last.first(), Some(Op::Set { .. })));
    assert_eq!(world.last.last(), Some(&Op::PodCovered(key("pod1"))));
    world.feed([wait]);
    assert_eq!(world.last, [Op::PodCovered(key("pod1"))], "at once");
    world.feed([Event::PodWaits { pod: key("pod1"), since: as_of(100) }]);
    world.feed([Event::PodDown(key("pod1"))]);
    world.feed([Event::Bookmark { kind: Kind::NetworkPolicy, as_of: as_of(200) }]);
    assert!(!world.last.iter().any(|op| matches!(op, Op::PodCovered(_))));
}

#[test]
fn the_last_known_set_survives_as_bytes() {
    let mut world = World::new();
    world.feed([
        Event::AppliedToGroupSet(targets("t", &[1])),
        Event::AddressGroupSet(peers("p", &[2, 3])),
        Event::AddressGroupSet(peers("gone", &[2])),
        Event::AddressGroupDeleted("gone".into()),
        Event::PolicySet(k8s("a", "t", vec![ingress().peers(&["p"]).port("TCP", "web")])),
    ]);
    let mut bytes = Vec::new();
    world.realizer.snapshot().write(&mut bytes).unwrap();
    let snapshot = Snapshot::parse(&bytes).unwrap();
    assert_eq!(snapshot, world.realizer.snapshot());
    for len in 0..bytes.len() {
        assert!(Snapshot::parse(&bytes[..len]).is_err(), "cut at {len}");
    }
    let other = String::from_utf8(bytes).unwrap().replace("\"format\":1", "\"format\":2");
    assert!(Snapshot::parse(other.as_bytes()).is_err());
}
