//! Plays histories of a Lease to candidates.

use super::*;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "antrea-controller";

fn at(seconds: u64) -> Now {
    let wall = Timestamp::from_second(1_800_000_000 + i64::try_from(seconds).unwrap()).unwrap();
    Now { steady: Duration::from_secs(seconds), wall }
}

fn mk_candidate(identity: &str) -> Candidate {
    Candidate::new(identity, Terms::default(), Lease::new(NAMESPACE, NAME))
}

/// A Lease on the server, as `holder` wrote it.
fn mk_lease(holder: &str, version: &str, now: Now) -> Lease {
    let mut lease = Lease::new(NAMESPACE, NAME).held_by(holder, 15, now.wall);
    lease.metadata.resource_version = Some(version.into());
    lease
}

/// What the server answers to a write.
fn stored(op: Op, version: &str) -> Event {
    match op {
        Op::Create(mut lease) | Op::Replace(mut lease) => {
            lease.metadata.resource_version = Some(version.into());
            Event::Written(lease)
        }
        other => panic!("no write: {other:?}"),
    }
}

/// A candidate that leads since `now`.
fn mk_leader(identity: &str, now: Now) -> Candidate {
    let mut candidate = mk_candidate(identity);
    assert_eq!(candidate.step(Event::Tick, now), Op::Read);
    let op = candidate.step(Event::Read(None), now);
    candidate.step(stored(op, "1"), now);
    assert_eq!(candidate.term(now.steady), Some(0));
    candidate
}

#[test]
fn a_lease_that_is_not_there_is_made() {
    let mut candidate = mk_candidate("a");
    candidate.step(Event::Tick, at(0));
    let op = candidate.step(Event::Read(None), at(0));
    let Op::Create(lease) = &op else { panic!("{op:?}") };
    assert_eq!((lease.holder(), lease.transitions()), (Some("a"), 0));
    assert_eq!(candidate.term(at(0).steady), None, "asking is not leading");
    assert_eq!(candidate.step(stored(op, "1"), at(1)), Op::Wait(Duration::from_secs(2)));
    assert_eq!(candidate.term(at(1).steady), Some(0));
}

#[test]
fn a_leader_renews_without_reading() {
    let mut leader = mk_leader("a", at(0));
    let op = leader.step(Event::Tick, at(2));
    let Op::Replace(lease) = &op else { panic!("{op:?}") };
    assert_eq!((lease.resource_version(), lease.transitions()), ("1", 0));
    leader.step(stored(op, "2"), at(2));
    assert_eq!(leader.term(at(11).steady), Some(0));
    assert_eq!(leader.term(at(12).steady), None, "ten seconds after the last renewal");
}

#[test]
fn a_renewal_counts_from_its_sending() {
    let mut leader = mk_leader("a", at(0));
    let op = leader.step(Event::Tick, at(2));
    leader.step(stored(op, "2"), at(9));
    assert_eq!(leader.term(at(12).steady), None);
}

#[test]
fn a_foreign_lease_is_respected_until_it_ran_out_as_seen_here() {
    let mut candidate = mk_candidate("b");
    // Whatever the other one's clock says: only whether it changes counts.
    let mut lease = mk_lease("a", "1", at(0));
    lease.spec.renew_time = Some("1970-01-01T00:00:00.000000Z".into());
    candidate.step(Event::Tick, at(100));
    let op = candidate.step(Event::Read(Some(lease.clone())), at(100));
    assert_eq!(op, Op::Wait(Duration::from_secs(2)));
    for second in [102, 107, 113] {
        assert_eq!(candidate.step(Event::Tick, at(second)), Op::Read);
        let op = candidate.step(Event::Read(Some(lease.clone())), at(second));
        assert!(matches!(op, Op::Wait(_)), "{second}: {op:?}");
    }
    assert_eq!(candidate.step(Event::Tick, at(115)), Op::Read);
    let op = candidate.step(Event::Read(Some(lease)), at(115));
    let Op::Replace(taken) = &op else { panic!("{op:?}") };
    assert_eq!((taken.holder(), taken.transitions()), (Some("b"), 1));
    candidate.step(stored(op, "2"), at(115));
    assert_eq!(candidate.term(at(115).steady), Some(1));
}

#[test]
fn a_foreign_lease_that_is_renewed_never_runs_out() {
    let mut candidate = mk_candidate("b");
    for second in (0..100).step_by(10) {
        candidate.step(Event::Tick, at(second));
        let lease = mk_lease("a", &second.to_string(), at(second));
        let op = candidate.step(Event::Read(Some(lease)), at(second));
        assert!(matches!(op, Op::Wait(_)), "{second}: {op:?}");
    }
}

#[test]
fn a_released_lease_is_taken_at_once() {
    let mut leader = mk_leader("a", at(0));
    let released = leader.release(at(3)).unwrap();
    assert_eq!(leader.term(at(3).steady), None);
    assert!(leader.release(at(3)).is_none());
    let mut candidate = mk_candidate("b");
    candidate.step(Event::Tick, at(3));
    let op = candidate.step(Event::Read(Some(released)), at(3));
    assert!(matches!(op, Op::Replace(_)), "{op:?}");
}

#[test]
fn a_conflict_is_looked_into_and_then_waited_out() {
    let mut leader = mk_leader("a", at(0));
    leader.step(Event::Tick, at(2));
    assert_eq!(leader.step(Event::Conflict, at(2)), Op::Read);
    // Only a label changed: still ours.
    let op = leader.step(Event::Read(Some(mk_lease("a", "7", at(0)))), at(2));
    let Op::Replace(lease) = &op else { panic!("{op:?}") };
    assert_eq!((lease.resource_version(), lease.transitions()), ("7", 0));
    assert_eq!(leader.step(Event::Conflict, at(2)), Op::Wait(Duration::from_secs(2)));
    assert_eq!(leader.term(at(3).steady), Some(0));
}

#[test]
fn a_leader_that_sees_another_one_stops() {
    let mut leader = mk_leader("a", at(0));
    leader.step(Event::Tick, at(2));
    leader.step(Event::Conflict, at(2));
    leader.step(Event::Read(Some(mk_lease("b", "9", at(2)))), at(2));
    assert_eq!(leader.term(at(2).steady), None);
    assert_eq!(leader.holder(), Some("b"));
}

#[test]
fn a_leader_without_answers_stops_and_starts_over() {
    let mut leader = mk_leader("a", at(0));
    for second in [2, 4, 6, 8] {
        assert!(matches!(leader.step(Event::Tick, at(second)), Op::Replace(_)));
        leader.step(Event::Failed, at(second));
    }
    assert_eq!(leader.call_deadline(at(8).steady), Duration::from_secs(2));
    assert_eq!(leader.step(Event::Tick, at(10)), Op::Read);
    assert_eq!(leader.term(at(10).steady), None);
    // Nobody took it: it is ours again, by another number, as we did not lead in between.
    let op = leader.step(Event::Read(Some(mk_lease("a", "1", at(0)))), at(11));
    leader.step(stored(op, "2"), at(11));
    assert_eq!(leader.term(at(11).steady), Some(1));
}

#[test]
fn what_we_do_not_know_of_a_lease_is_kept() {
    let text = serde_json::json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": NAMESPACE, "name": NAME, "labels": {"a": "b"}},
        "spec": {"holderIdentity": "", "strategy": "OldestEmulationVersion"},
    });
    let lease: Lease = serde_json::from_value(text).unwrap();
    let written = serde_json::to_value(lease.held_by("a", 15, at(0).wall)).unwrap();
    assert_eq!(written["metadata"]["labels"]["a"], "b");
    assert_eq!(written["spec"]["strategy"], "OldestEmulationVersion");
    assert_eq!(written["spec"]["renewTime"], "2027-01-15T08:00:00.000000Z");
}
