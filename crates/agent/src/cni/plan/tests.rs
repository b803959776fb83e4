use super::*;

const ASKED: OfPort = OfPort(20);

fn all_pieces() -> BTreeSet<Piece> {
    Piece::ALL.into_iter().collect()
}

/// Runs a build whose operations end one after the other, `last` first; `fails` says which fail.
fn run_build(
    given: OfPort,
    fails: impl Fn(Op) -> bool,
    newest_first: impl Fn(usize) -> bool,
) -> (Build, Vec<Op>) {
    let (mut build, mut running) = Build::start(ASKED);
    let mut started = running.clone();
    for turn in 0.. {
        if running.is_empty() {
            break;
        }
        let op = if newest_first(turn) { running.pop().unwrap() } else { running.remove(0) };
        let event = match op {
            op if fails(op) => Event::Failed(op),
            Op::AwaitPort => Event::PortNumber(given),
            op => Event::Done(op),
        };
        let next = build.step(event);
        started.extend(&next);
        running.extend(next);
        assert!(turn < 50, "no end: {started:?}");
    }
    (build, started)
}

#[test]
fn an_interface_is_made_in_order() {
    let (build, started) = run_build(ASKED, |_| false, |_| false);
    assert_eq!(
        started,
        [
            Op::Allocate,
            Op::CreateLink,
            Op::ConfigureLink,
            Op::InsertPort,
            Op::InstallFlows(ASKED),
            Op::AwaitPort,
            Op::Announce,
        ]
    );
    assert_eq!(build.progress(), Progress::Made);
}

#[test]
fn flows_are_made_again_for_the_number_that_ovs_gave() {
    for newest_first in [false, true] {
        let (build, started) = run_build(OfPort(7), |_| false, |_| newest_first);
        assert_eq!(build.progress(), Progress::Made);
        let at = |op| started.iter().position(|other| *other == op).unwrap();
        assert!(at(Op::InstallFlows(OfPort(7))) < at(Op::Announce), "{started:?}");
    }
}

#[test]
fn whatever_the_order_of_endings_the_pod_is_announced_once_and_last() {
    for orders in 0..256u32 {
        for given in [ASKED, OfPort(7)] {
            let (build, started) = run_build(given, |_| false, |turn| orders >> turn & 1 == 1);
            assert_eq!(build.progress(), Progress::Made);
            assert_eq!(started.last(), Some(&Op::Announce));
            assert_eq!(started.iter().filter(|op| **op == Op::Announce).count(), 1);
        }
    }
}

#[test]
fn a_failure_stops_the_build_with_what_was_begun() {
    use Piece::{Address, Flows, Link, Port};
    for (op, want) in [
        (Op::Allocate, vec![Address]),
        (Op::CreateLink, vec![Address, Link]),
        (Op::ConfigureLink, vec![Address, Link, Port, Flows]),
        (Op::InsertPort, vec![Address, Link, Port, Flows]),
        (Op::AwaitPort, vec![Address, Link, Port, Flows]),
        (Op::InstallFlows(ASKED), vec![Address, Link, Port, Flows]),
    ] {
        for orders in 0..64u32 {
            let (build, started) =
                run_build(ASKED, |other| other == op, |turn| orders >> turn & 1 == 1);
            let want = want.iter().copied().collect();
            assert_eq!(build.progress(), Progress::Stopped(want), "{op:?} {started:?}");
            assert!(!started.contains(&Op::Announce), "{op:?}");
        }
    }
    // A Pod that could not be announced is there all the same.
    let (build, _) = run_build(ASKED, |op| op == Op::Announce, |_| false);
    assert_eq!(build.progress(), Progress::Made);
}

#[test]
fn nothing_is_torn_down_while_operations_run() {
    let (mut build, _) = Build::start(ASKED);
    build.step(Event::Done(Op::Allocate));
    build.step(Event::Done(Op::CreateLink));
    assert_eq!(build.step(Event::Failed(Op::InsertPort)), []);
    assert_eq!(build.progress(), Progress::Stopping);
    assert_eq!(build.step(Event::Done(Op::ConfigureLink)), []);
    assert_eq!(build.progress(), Progress::Stopping);
    assert_eq!(build.step(Event::Done(Op::InstallFlows(ASKED))), []);
    assert!(matches!(build.progress(), Progress::Stopped(_)));
}

fn run_teardown(pieces: &BTreeSet<Piece>, fails: impl Fn(Op) -> bool) -> (Teardown, Vec<Op>) {
    let (mut teardown, mut running) = Teardown::start(pieces);
    let mut started = running.clone();
    while let Some(op) = running.pop() {
        let next = teardown.step(if fails(op) { Event::Failed(op) } else { Event::Done(op) });
        started.extend(&next);
        running.extend(next);
    }
    assert!(teardown.is_settled());
    (teardown, started)
}

#[test]
fn addresses_are_released_last_and_only_when_nothing_can_use_them() {
    let closing = [Op::RemoveFlows, Op::DeletePort, Op::FlushConntrack];
    for failing in [Op::RemoveFlows, Op::DeletePort, Op::FlushConntrack] {
        let (teardown, started) = run_teardown(&all_pieces(), |op| op == failing);
        assert!(!started.contains(&Op::ReleaseAddress), "{failing:?}: {started:?}");
        assert!(!teardown.is_complete());
        assert!(started.contains(&Op::DeleteLink), "the link goes all the same");
    }
    let (teardown, started) = run_teardown(&all_pieces(), |op| op == Op::DeleteLink);
    assert!(started.contains(&Op::ReleaseAddress));
    assert!(!teardown.is_complete());
    let (teardown, started) = run_teardown(&all_pieces(), |_| false);
    assert!(teardown.is_complete());
    let at = |op| started.iter().position(|other| *other == op).unwrap();
    assert!(closing.iter().all(|op| at(*op) < at(Op::ReleaseAddress)), "{started:?}");
    assert!(at(Op::DeletePort) < at(Op::DeleteLink));
}

#[test]
fn only_what_was_begun_is_torn_down() {
    use Piece::{Address, Link};
    let (_, started) = run_teardown(&[Address].into(), |_| false);
    assert_eq!(started, [Op::ReleaseAddress]);
    let (teardown, started) = run_teardown(&[Address, Link].into(), |_| false);
    assert_eq!(started.len(), 2);
    assert!(teardown.is_complete());
    let (teardown, started) = run_teardown(&BTreeSet::new(), |_| false);
    assert!(started.is_empty() && teardown.is_complete());
}
