//! The state machine against a switch of a few lines, step by step.

mod hold;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::{
    Action, Cookie, Flow, Group, GroupId, Intent, Learn, Match, Meter, MeterId, OfPort, TableId,
};

use super::*;
use world::{A, B, BAD_GROUP, World, mk_flow, mk_group, mk_meter, mk_plain, mk_to};

#[test]
fn changes_before_a_flush_go_together_and_in_order() {
    let mut world = World::connected();
    world.set(A, "old", vec![mk_to(1, Action::Group(GroupId(1))), mk_group(1), mk_meter(1, 5)]);
    world.set(A, "x", vec![mk_flow(2)]);
    world.set(A, "x", vec![mk_flow(3)]);
    world.settle();
    assert_eq!(world.priorities(), [1, 3]);
    world.remove(A, "old");
    world.set(A, "new", vec![mk_to(4, Action::Group(GroupId(2))), mk_group(2), mk_meter(2, 5)]);
    world.settle();
    assert_eq!(
        world.sent,
        [
            (
                BatchMode::Bundle,
                vec!["+meter 1".into(), "+group 1".into(), "+flow 1".into(), "+flow 3".into()]
            ),
            (
                BatchMode::Bundle,
                ["+meter 2", "+group 2", "+flow 4", "-flow 1", "-group 1"].map(String::from).into()
            ),
            (BatchMode::Plain, vec!["-meter 1".into()]),
        ]
    );
}

/// What a client was given is remembered over a restart, though the switch is read before anybody says
/// that it wants the flow which learned it.
#[test]
fn what_the_switch_learned_is_kept_when_its_flow_is_claimed_late() {
    let learner = |priority, cookie| {
        let learn = Learn { cookie, ..Learn::new(TableId(1), 1) };
        mk_plain(priority).action(Action::learn(learn))
    };
    let [known, forgotten] = [2, 3].map(|n| Cookie(0xa17e_0300_0000_0000 + n));
    let mut world = World::new(SyncMode::Incremental);
    for flow in [
        learner(1, known),
        learner(2, forgotten),
        mk_plain(11).cookie(known),
        mk_plain(12).cookie(forgotten),
    ] {
        world.flows.insert(flow.key(), flow);
    }
    world.step(Event::Register(A));
    world.step(Event::Connected);
    world.settle();
    world.set(A, "x", vec![learner(1, known).into()]);
    world.step(Event::Synced(A));
    world.settle();
    assert_eq!(world.priorities(), [1, 11], "the other one's learner is wanted no more");
    let summary = world.state.summary();
    assert_eq!((summary.n_pending, summary.n_unclaimed), (0, 0));
}

#[test]
fn setting_the_same_again_sends_nothing() {
    let mut world = World::connected();
    let intents =
        || vec![mk_flow(1), mk_to(2, Action::Group(GroupId(1))), mk_group(1), mk_meter(1, 5)];
    world.set(A, "x", intents());
    // Also while it is under way.
    world.step(Event::Flush);
    world.set(A, "x", intents());
    world.settle();
    let n_sent = world.n_sent();
    world.set(A, "x", intents());
    world.settle();
    assert_eq!(world.n_sent(), n_sent);
    assert_eq!(n_sent, 4);
    // Taken away and put back before anything was sent.
    world.remove(A, "x");
    world.set(A, "y", intents());
    world.settle();
    let moved: Vec<_> = world.sent.drain(..).skip(1).collect();
    assert!(
        !moved.iter().any(|(_, messages)| messages.iter().any(|m| m.contains("flow"))),
        "{moved:?}"
    );
    assert_eq!(world.priorities(), [1, 2]);
}

#[test]
fn only_the_difference_is_sent_after_a_reconnect() {
    let mut world = World::connected();
    world.set(A, "x", (1..=9).map(mk_flow).collect());
    world.settle();
    world.step(Event::Disconnected);
    world.flows.remove(&mk_plain(3).key());
    world.flows.insert(mk_plain(5).key(), mk_plain(5).action(Action::Output(OfPort::NORMAL)));
    world.set(A, "y", vec![mk_flow(20)]);
    world.sent.clear();
    world.step(Event::Connected);
    world.settle();
    let (mode, mut messages) = world.sent.remove(0);
    messages.sort();
    assert_eq!(
        (mode, messages),
        (BatchMode::Bundle, ["+flow 20", "+flow 3", "+flow 5"].map(String::from).into())
    );
    assert!(world.sent.is_empty());
    assert_eq!(world.priorities().len(), 10);
}

#[test]
fn a_lost_reply_leaves_no_orphan() {
    for carried_out in [false, true] {
        let mut world = World::connected();
        world.set(A, "x", vec![mk_flow(1), mk_flow(2)]);
        world.settle();
        // Both an addition and a deletion are under way when the connection goes.
        world.set(A, "x", vec![mk_flow(2), mk_flow(3)]);
        world.step(Event::Flush);
        let Some(Op::Send(batch)) = world.waiting.pop() else { panic!() };
        if carried_out {
            world.take_batch(&batch);
        }
        world.step(Event::Disconnected);
        // Meanwhile the addition is not wanted any more.
        world.set(A, "x", vec![mk_flow(2)]);
        world.step(Event::Connected);
        world.settle();
        assert_eq!(world.priorities(), [2], "carried out: {carried_out}");
    }
}

#[test]
fn changes_while_a_batch_is_under_way_are_not_lost() {
    let mut world = World::connected();
    world.set(A, "x", vec![mk_flow(1), mk_flow(2), mk_flow(3)]);
    world.step(Event::Flush);
    // 1 changes, 2 goes, 3 goes and comes back.
    world.set(A, "x", vec![mk_to(1, Action::Output(OfPort::NORMAL))]);
    world.set(A, "x", vec![mk_to(1, Action::Output(OfPort::NORMAL)), mk_flow(3)]);
    world.settle();
    assert_eq!(world.priorities(), [1, 3]);
    assert_eq!(world.flows[&mk_plain(1).key()].actions, [Action::Output(OfPort::NORMAL)]);
    // A deletion under way is taken back.
    world.remove(A, "x");
    world.step(Event::Flush);
    world.set(A, "x", vec![mk_flow(3)]);
    world.settle();
    assert_eq!(world.priorities(), [3]);
    assert_eq!(world.state.summary().n_pending, 0);
}

#[test]
fn what_nobody_claims_waits_for_all_owners() {
    let mut world = World::new(SyncMode::Incremental);
    for priority in 1..=4 {
        world.flows.insert(mk_plain(priority).key(), mk_plain(priority));
    }
    world.groups.insert(GroupId(1), Group::all(GroupId(1)));
    world.groups.insert(GroupId(2), Group::all(GroupId(2)));
    world.meters.insert(MeterId(1), Meter::packets_per_second(MeterId(1), 1, 1));
    world.step(Event::Register(A));
    world.step(Event::Register(B));
    world.step(Event::Connected);
    world.set(A, "x", vec![mk_flow(1), mk_group(1)]);
    world.step(Event::Synced(A));
    world.settle();
    assert_eq!(world.priorities(), [1, 2, 3, 4]);
    assert_eq!(world.state.summary().n_unclaimed, 3);
    assert!(world.sent.is_empty(), "what is there as wanted is not sent: {:?}", world.sent);
    assert!(!world.state.summary().first_sync_done);
    world.set(B, "y", vec![mk_flow(2)]);
    world.step(Event::Synced(B));
    world.settle();
    assert_eq!(world.priorities(), [1, 2]);
    assert_eq!(world.groups.keys().copied().collect::<Vec<_>>(), [GroupId(1)]);
    assert!(world.meters.is_empty());
    assert!(world.state.summary().first_sync_done);
    assert!(!world.sent.iter().any(|(_, messages)| messages.iter().any(|m| m.starts_with('+'))));
}

/// An owner that starts anew says later what it wants than the switch says what it holds.
#[test]
fn groups_and_meters_that_are_claimed_as_they_are_are_not_sent() {
    let mut world = World::new(SyncMode::Incremental);
    let other = Group::select(GroupId(2)).bucket(1, vec![Action::Output(OfPort::LOCAL)]);
    world.groups.insert(GroupId(1), Group::all(GroupId(1)));
    world.groups.insert(GroupId(2), other);
    world.meters.insert(MeterId(1), Meter::packets_per_second(MeterId(1), 5, 1));
    world.step(Event::Register(A));
    world.step(Event::Connected);
    world.settle();
    world.set(A, "x", vec![mk_group(1), mk_group(2), mk_meter(1, 5)]);
    world.settle();
    assert_eq!(world.n_sent(), 1, "one group is another: {:?}", world.sent);
    assert_eq!(world.groups[&GroupId(2)], Group::all(GroupId(2)));
    world.remove(A, "x");
    world.settle();
    assert!(world.groups.is_empty() && world.meters.is_empty());
}

#[test]
fn groups_and_meters_that_are_not_understood_are_replaced_or_go() {
    let mut world = World::new(SyncMode::Incremental);
    for id in [1, 2] {
        world.groups.insert(GroupId(id), Group::all(GroupId(id)));
        world.odd_groups.insert(GroupId(id));
        world.meters.insert(MeterId(id), Meter::packets_per_second(MeterId(id), 9, 9));
        world.odd_meters.insert(MeterId(id));
    }
    world.step(Event::Register(A));
    world.step(Event::Connected);
    world.set(A, "x", vec![mk_group(1), mk_meter(1, 9)]);
    world.settle();
    assert_eq!(world.sent[0].1, ["*meter 1", "+group 1"], "what is wanted does not wait");
    assert_eq!((world.groups.len(), world.meters.len()), (2, 2), "A may claim the others yet");
    (world.odd_groups, world.odd_meters) = Default::default();
    world.step(Event::Synced(A));
    world.settle();
    assert_eq!(world.groups.keys().copied().collect::<Vec<_>>(), [GroupId(1)]);
    assert_eq!(world.meters.keys().copied().collect::<Vec<_>>(), [MeterId(1)]);
    assert!(world.state.summary().first_sync_done);
}

#[test]
fn the_deadline_opens_the_gate_too() {
    let mut world = World::new(SyncMode::Incremental);
    world.flows.insert(mk_plain(1).key(), mk_plain(1));
    world.step(Event::Register(A));
    world.step(Event::Connected);
    world.settle();
    assert_eq!(world.priorities(), [1]);
    world.step(Event::SyncDeadline);
    world.settle();
    assert!(world.flows.is_empty());
}

#[test]
fn a_layout_is_replaced_in_one_bundle() {
    let mut world = World::new(SyncMode::ReplaceLayout);
    for priority in 1..=3 {
        world.flows.insert(mk_plain(priority).key(), mk_plain(priority));
    }
    world.step(Event::Register(A));
    world.step(Event::Connected);
    world.set(A, "x", vec![mk_flow(3), mk_flow(4), mk_flow(5)]);
    world.settle();
    assert!(world.sent.is_empty());
    world.step(Event::Synced(A));
    world.settle();
    assert_eq!(world.sent.len(), 1);
    assert_eq!(world.sent[0].0, BatchMode::Bundle);
    assert_eq!(world.priorities(), [3, 4, 5]);
}

#[test]
fn a_refused_flow_is_set_aside_and_tried_again() {
    let mut world = World::connected();
    world.set(A, "bad", vec![mk_to(1, Action::Group(GroupId(9)))]);
    world.set(A, "good", (2..=5).map(mk_flow).collect());
    world.barrier(1);
    world.settle();
    assert_eq!(world.priorities(), [2, 3, 4, 5]);
    assert_eq!(world.sent.len(), 2, "the bundle again without the bad one: {:?}", world.sent);
    assert_eq!(world.reports.len(), 1);
    assert_eq!(world.reports[0].reason, RefusalReason::Switch(BAD_GROUP));
    let (id, refusals) = world.reached.pop().unwrap();
    assert_eq!((id, refusals.len()), (BarrierId(1), 1));
    assert!(world.state.has_refused());

    // Tried less and less often, and reported once.
    let n_before = world.n_sent();
    for _ in 0..20 {
        world.step(Event::RetryDue);
        world.settle();
    }
    assert_eq!(world.n_sent() - n_before, 4, "after 1, 2, 4 and 8 rounds");
    assert_eq!(world.reports.len(), 1);

    // With its group it succeeds at the next round.
    world.set(A, "group", vec![mk_group(9)]);
    world.settle();
    world.step(Event::RetryDue);
    world.settle();
    assert_eq!(world.priorities(), [1, 2, 3, 4, 5]);
    assert!(!world.state.has_refused());
    assert!(world.state.summary().refused.is_empty());
}

#[test]
fn many_refused_flows_are_known_after_few_rounds() {
    let mut world = World::connected();
    world.set(A, "bad", (1..=50).map(|p| mk_to(p, Action::Group(GroupId(9)))).collect());
    world.set(A, "good", (100..=150).map(mk_flow).collect());
    world.settle();
    assert_eq!(world.flows.len(), 51);
    assert_eq!(world.reports.len(), 50);
    assert!(world.sent.len() <= 6, "{}", world.sent.len());
    world.remove(A, "bad");
    world.settle();
    assert!(!world.state.has_refused());
}

#[test]
fn the_first_key_has_a_contested_flow_and_the_second_inherits_it() {
    let mut world = World::connected();
    world.set(A, "first", vec![mk_flow(1), mk_group(1)]);
    let normal = || mk_to(1, Action::Output(OfPort::NORMAL));
    let other_group = || Group::select(GroupId(1)).into();
    world.set(B, "second", vec![normal(), mk_flow(2), other_group()]);
    world.settle();
    assert_eq!(world.reports.len(), 2);
    let conflict = RefusalReason::Conflict { owner: A, key: "first".into() };
    assert!(world.reports.iter().all(|refusal| refusal.reason == conflict));
    assert_eq!(world.priorities(), [1, 2]);
    assert!(world.flows[&mk_plain(1).key()].actions.is_empty());

    // The holder may change its own.
    world.set(A, "first", vec![mk_to(1, Action::Output(OfPort::LOCAL)), mk_group(1)]);
    world.settle();
    assert_eq!(world.flows[&mk_plain(1).key()].actions, [Action::Output(OfPort::LOCAL)]);

    world.remove(A, "first");
    world.settle();
    assert_eq!(world.flows[&mk_plain(1).key()].actions, [Action::Output(OfPort::NORMAL)]);
    assert_eq!(world.groups[&GroupId(1)], Group::select(GroupId(1)));
    assert!(world.state.summary().refused.is_empty());
    world.remove(B, "second");
    world.settle();
    assert!(world.flows.is_empty() && world.groups.is_empty());
}

#[test]
fn the_same_flow_under_two_keys_is_no_conflict() {
    let mut world = World::connected();
    world.set(A, "first", vec![mk_flow(1)]);
    world.set(A, "second", vec![mk_flow(1)]);
    world.settle();
    world.remove(A, "first");
    world.settle();
    assert_eq!(world.n_sent(), 1);
    assert!(world.reports.is_empty());
    world.remove(A, "second");
    world.settle();
    assert!(world.flows.is_empty());
}

#[test]
fn a_claim_that_was_given_up_does_not_come_back() {
    let mut world = World::connected();
    world.set(A, "first", vec![mk_flow(1)]);
    world.set(B, "second", vec![mk_to(1, Action::Output(OfPort::NORMAL))]);
    world.remove(B, "second");
    world.remove(A, "first");
    world.settle();
    assert!(world.flows.is_empty());
}

#[test]
fn hand_made_changes_are_put_right() {
    let mut world = World::connected();
    world.set(
        A,
        "x",
        vec![mk_flow(1), mk_flow(2), mk_to(3, Action::Group(GroupId(1))), mk_group(1)],
    );
    world.step(Event::Synced(A));
    world.settle();
    let (want, want_groups) = (world.flows.clone(), world.groups.clone());
    world.flows.remove(&mk_plain(1).key());
    world.flows.insert(mk_plain(2).key(), mk_plain(2).action(Action::Output(OfPort::NORMAL)));
    world.flows.insert(mk_plain(7).key(), mk_plain(7).cookie(Cookie(7)));
    world.groups.insert(GroupId(1), Group::select(GroupId(1)));
    world.groups.insert(GroupId(2), Group::select(GroupId(2)));
    world.step(Event::RepairDue);
    world.settle();
    assert_eq!(world.flows, want);
    assert_eq!(world.groups, want_groups);
    assert_eq!(world.state.summary().n_repaired, 4);
    let n_sent = world.n_sent();
    world.step(Event::RepairDue);
    world.settle();
    assert_eq!(world.n_sent(), n_sent, "nothing left to repair");
}

#[test]
fn a_large_switch_is_looked_over_table_by_table() {
    let mut world = World::connected();
    let flow = |i: u16| {
        let table = TableId(u8::try_from(i % 5).unwrap());
        Intent::from(Flow::new(table, i, Match::new().ip()))
    };
    world.set(A, "x", (0..5000).map(flow).collect());
    world.step(Event::Synced(A));
    world.settle();
    let want = world.flows.clone();
    world.flows.pop_first();
    world.flows.pop_last();
    let foreign = Flow::new(TableId(99), 1, Match::new());
    world.flows.insert(foreign.key(), foreign);
    world.step(Event::RepairDue);
    assert!(matches!(world.waiting[..], [Op::CountTables]));
    world.settle();
    assert_eq!(world.flows, want);
}

#[test]
fn a_dump_that_crosses_a_batch_changes_nothing() {
    let mut world = World::connected();
    world.set(A, "x", vec![mk_flow(1), mk_flow(2)]);
    world.step(Event::Synced(A));
    world.settle();
    world.step(Event::RepairDue);
    // The dump is made now, and arrives after what follows.
    let Some(Op::Dump(scope)) = world.waiting.pop() else { panic!() };
    let dump = world.dump(scope);
    world.set(A, "x", vec![mk_to(1, Action::Output(OfPort::NORMAL)), mk_flow(3)]);
    world.settle();
    let n_sent = world.n_sent();
    world.step(Event::Dumped(dump));
    world.settle();
    assert_eq!(world.priorities(), [1, 3]);
    assert_eq!(world.n_sent(), n_sent, "{:?}", world.sent);
    assert_eq!(world.state.summary().n_repaired, 0, "nobody else changed anything");
    assert_eq!(world.flows[&mk_plain(1).key()].actions, [Action::Output(OfPort::NORMAL)]);
}

#[test]
fn removals_the_switch_reports_are_understood() {
    let mut world = World::connected();
    let timed = mk_plain(1).idle_timeout(10);
    world.set(A, "x", vec![timed.clone().into(), mk_flow(2)]);
    world.settle();
    world.flows.clear();
    world.step(Event::FlowExpired(EncodedFlow::new(mk_plain(1)).unwrap()));
    world.step(Event::FlowDeleted(EncodedFlow::new(mk_plain(2)).unwrap()));
    world.settle();
    assert_eq!(world.priorities(), [2], "the expired flow stays away, the deleted one is back");
    // Also when the same is set again, or the connection is new.
    world.set(A, "x", vec![timed.clone().into(), mk_flow(2)]);
    world.step(Event::Disconnected);
    world.step(Event::Connected);
    world.settle();
    assert_eq!(world.priorities(), [2]);
    // Set anew it comes back; missed in a dump it has expired.
    world.remove(A, "x");
    world.set(A, "x", vec![timed.into()]);
    world.settle();
    assert_eq!(world.priorities(), [1]);
    world.flows.clear();
    world.step(Event::RepairDue);
    world.settle();
    assert!(world.flows.is_empty());
    assert_eq!(world.state.summary().n_repaired, 1);
}

#[test]
fn a_form_that_the_switch_insists_on_is_accepted_in_the_end() {
    let mut world = World::connected();
    world.set(A, "x", vec![mk_to(1, Action::Output(OfPort::LOCAL))]);
    world.step(Event::Synced(A));
    world.settle();
    let own_form = mk_plain(1).action(Action::Output(OfPort::NORMAL));
    let mut resent = 0;
    for _ in 0..6 {
        let n_sent = world.n_sent();
        world.flows.insert(own_form.key(), own_form.clone());
        world.step(Event::RepairDue);
        world.settle();
        resent += world.n_sent() - n_sent;
    }
    assert_eq!(resent, 2);
    assert_eq!(world.state.summary().n_pending, 0);
}

#[test]
fn a_barrier_waits_for_a_meter_to_be_gone_and_the_meter_for_nothing_new() {
    let mut world = World::connected();
    world.set(A, "x", vec![mk_flow(1), mk_meter(1, 5)]);
    world.settle();
    world.remove(A, "x");
    world.barrier(1);
    world.step(Event::Flush);
    world.set(A, "y", vec![mk_flow(2)]);
    world.answer();
    assert!(world.reached.is_empty(), "the flow is gone, the meter is not");
    world.set(A, "y", vec![mk_flow(3)]);
    world.answer();
    assert_eq!(world.reached.len(), 1);
    assert!(world.meters.is_empty());
    world.settle();
    assert_eq!(world.priorities(), [3]);
}

#[test]
fn barriers_wait_for_what_was_before_them_only() {
    let mut world = World::connected();
    world.barrier(1);
    world.step(Event::Flush);
    assert_eq!(world.reached.len(), 1, "nothing to wait for");
    world.set(A, "x", vec![mk_flow(1)]);
    world.barrier(2);
    world.step(Event::Flush);
    world.set(A, "y", vec![mk_flow(2)]);
    world.barrier(3);
    world.step(Event::Flush);
    assert_eq!(world.reached.len(), 1);
    world.answer();
    assert_eq!(world.reached.len(), 2);
    // The connection goes: the barrier waits for the next one.
    world.waiting.clear();
    world.step(Event::Disconnected);
    world.step(Event::Flush);
    assert_eq!(world.reached.len(), 2);
    world.step(Event::Connected);
    world.settle();
    assert_eq!(world.reached.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2, 3]);
    // A scoped barrier says what of its key is refused, whenever that was.
    world.set(A, "bad", vec![mk_to(9, Action::Group(GroupId(9)))]);
    world.settle();
    for (key, n_refused) in [("bad", 1), ("x", 0)] {
        let scope = Some((A, Arc::from(key)));
        world.step(Event::Barrier { id: BarrierId(9), scope });
        world.settle();
        assert_eq!(world.reached.pop().unwrap().1.len(), n_refused, "{key}");
    }
}

#[test]
fn a_flow_takes_less_than_300_bytes() {
    let flows = crate::bench::conjunctive_flows(1000);
    let bytes: usize =
        flows.into_iter().map(|flow| EncodedFlow::new(flow).unwrap().bytes.len()).sum();
    // Beside its message: an entry, its place in the index with room to grow, its place in the
    // key's list.
    let entry = size_of::<super::flows::Entry>();
    let index = (size_of::<super::flows::FlowId>() + 1) * 2;
    let per_flow = bytes / 1000 + 16 + entry * 3 / 2 + index + 4;
    assert!(per_flow <= 300, "{per_flow} bytes, of which {} are the message", bytes / 1000);
}

/// Random histories end with the switch holding exactly what is wanted.
#[test]
fn whatever_happens_it_converges() {
    for seed in 0..300_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let mut world = World::connected();
        world.step(Event::Synced(A));
        let mut wanted: BTreeMap<(u8, u64), Vec<u16>> = BTreeMap::new();
        for _ in 0..60 {
            let key = (u8::try_from(next(2)).unwrap(), next(3));
            let name = format!("k{}", key.1);
            match next(12) {
                0..4 => {
                    // Keys never overlap here: conflicts are tested by themselves.
                    let base = u16::from(key.0) * 300 + u16::try_from(key.1).unwrap() * 100;
                    let priorities: Vec<u16> =
                        (0..next(8)).map(|_| base + u16::try_from(next(10)).unwrap()).collect();
                    let version = OfPort(u32::try_from(next(2)).unwrap() + 1);
                    let unique: BTreeSet<u16> = priorities.into_iter().collect();
                    let intents =
                        unique.iter().map(|p| mk_to(*p, Action::Output(version))).collect();
                    wanted.insert(key, unique.into_iter().collect());
                    world.set(Owner(key.0), &name, intents);
                }
                4 => {
                    wanted.remove(&key);
                    world.remove(Owner(key.0), &name);
                }
                5 => world.step(Event::Flush),
                6 | 7 => {
                    world.answer();
                }
                8 => {
                    // What is under way may or may not have reached the switch.
                    if next(2) == 0
                        && let Some(at) =
                            world.waiting.iter().position(|op| matches!(op, Op::Send(_)))
                        && let Op::Send(batch) = world.waiting.remove(at)
                    {
                        world.take_batch(&batch);
                    }
                    world.waiting.clear();
                    world.step(Event::Disconnected);
                    world.step(Event::Connected);
                }
                9 => {
                    if let Some(key) = world.flows.keys().next().cloned() {
                        world.flows.remove(&key);
                    }
                }
                10 => {
                    let foreign = mk_plain(2000 + u16::try_from(next(5)).unwrap());
                    world.flows.insert(foreign.key(), foreign);
                }
                _ => world.step(Event::RepairDue),
            }
        }
        world.settle();
        world.step(Event::RepairDue);
        world.settle();
        let mut want: Vec<u16> = wanted.into_values().flatten().collect();
        want.sort_unstable();
        assert_eq!(world.priorities(), want, "seed {seed}");
        let summary = world.state.summary();
        assert_eq!((summary.n_pending, summary.n_unclaimed), (0, 0), "seed {seed}");
        assert_eq!(summary.flows.values().sum::<u32>() as usize, want.len(), "seed {seed}");
    }
}
