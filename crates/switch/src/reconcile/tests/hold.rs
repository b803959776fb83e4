//! A switch without flows waits for those that must not come later than others.

use std::sync::Arc;

use super::world::{A, B, World, mk_flow, mk_plain};
use super::*;

/// `B` has to be there first. Returns a world that is connected and read.
fn mk_world(on_switch: &[u16]) -> World {
    let mut world = World::new(SyncMode::Incremental);
    for priority in on_switch {
        world.flows.insert(mk_plain(*priority).key(), mk_plain(*priority));
    }
    world.step(Event::Register(A));
    world.step(Event::RegisterFirst(B));
    world.set(A, "pod", vec![mk_flow(5)]);
    world.step(Event::Connected);
    world.settle();
    world
}

#[test]
fn an_empty_switch_gets_nothing_before_the_first_owners_are_synced() {
    let mut world = mk_world(&[]);
    // Those of somebody else are not ours.
    world.step(Event::Synced(A));
    world.barrier(1);
    world.settle();
    assert!(world.flows.is_empty() && world.reached.is_empty());
    let summary = world.state.summary();
    assert!(summary.held && !summary.first_owners_synced && !summary.owners_synced);
    world.set(B, "deny", vec![mk_flow(9)]);
    world.step(Event::Synced(B));
    world.settle();
    assert_eq!(world.priorities(), [5, 9]);
    assert_eq!(world.sent.len(), 1, "together: {:?}", world.sent);
    assert_eq!(world.reached.len(), 1);
    assert!(!world.state.summary().held);
}

#[test]
fn one_with_flows_gets_the_difference_at_once() {
    let mut world = mk_world(&[1, 5]);
    world.set(A, "new", vec![mk_flow(6)]);
    world.settle();
    assert_eq!(world.priorities(), [1, 5, 6]);
    assert!(!world.state.summary().held);
    // Before all is known it starts anew, and is empty.
    world.step(Event::Disconnected);
    world.flows.clear();
    world.step(Event::Connected);
    world.settle();
    assert!(world.flows.is_empty());
    world.set(B, "deny", vec![mk_flow(9)]);
    world.step(Event::Synced(B));
    world.settle();
    assert_eq!(world.priorities(), [5, 6, 9]);
    // From then on all is known.
    world.step(Event::Disconnected);
    world.flows.clear();
    world.step(Event::Connected);
    world.settle();
    assert_eq!(world.priorities(), [5, 6, 9]);
}

#[test]
fn flows_of_others_make_no_switch_of_ours() {
    let mut world = World::new(SyncMode::Incremental);
    let foreign = mk_plain(1).cookie(openflow::Cookie(7));
    world.flows.insert(foreign.key(), foreign);
    world.step(Event::RegisterFirst(B));
    world.set(A, "pod", vec![mk_flow(5)]);
    world.step(Event::Connected);
    world.settle();
    assert_eq!(world.priorities(), [1]);
    world.step(Event::SyncDeadline);
    world.settle();
    assert_eq!(world.priorities(), [5], "not for ever");
}

/// What was left of Pods has to be removed before all is known.
#[test]
fn whoever_waits_for_flows_to_be_gone_need_not_wait() {
    let mut world = mk_world(&[]);
    let barrier = |world: &mut World, id, key: &str| {
        let scope = Some((A, Arc::from(key)));
        world.step(Event::Barrier { id: BarrierId(id), scope });
        world.settle();
    };
    world.set(A, "dead", vec![mk_flow(6)]);
    barrier(&mut world, 1, "dead");
    assert!(world.reached.is_empty(), "it is wanted");
    world.remove(A, "dead");
    barrier(&mut world, 2, "dead");
    barrier(&mut world, 3, "never");
    assert_eq!(world.reached.iter().map(|(id, _)| id.0).collect::<Vec<_>>(), [1, 2, 3]);
    barrier(&mut world, 4, "pod");
    assert_eq!(world.reached.len(), 3, "it is wanted and not there");
}
