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
        ],
        "the addresses go with the port when they are there in time"
    );
    assert_eq!(build.progress(), Progress::Made);
}

#[test]
fn nothing_waits_for_an_address_that_does_not_need_it() {
    let (mut build, ops) = Build::start(ASKED);
    assert_eq!(ops, [Op::Allocate, Op::CreateLink]);
    assert_eq!(build.step(Event::Done(Op::CreateLink)), [Op::InsertPort]);
    assert_eq!(build.step(Event::Done(Op::InsertPort)), [Op::AwaitPort]);
    assert_eq!(build.step(Event::PortNumber(ASKED)), []);
    assert_eq!(build.step(Event::Done(Op::Allocate)), [Op::ConfigureLink, Op::InstallFlows(ASKED)]);
    assert_eq!(build.step(Event::Done(Op::InstallFlows(ASKED))), []);
    assert_eq!(build.step(Event::Done(Op::ConfigureLink)), [Op::NotePort, Op::Announce]);
    assert_eq!(build.step(Event::Done(Op::Announce)), []);
    assert_eq!(build.progress(), Progress::Building);
    assert_eq!(build.step(Event::Done(Op::NotePort)), []);
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
            let at = |op| started.iter().position(|other| *other == op);
            let last = at(Op::AwaitPort).max(at(Op::ConfigureLink));
            assert!(at(Op::Announce) > last.max(at(Op::InstallFlows(given))), "{started:?}");
            assert_eq!(started.iter().filter(|op| **op == Op::Announce).count(), 1);
        }
    }
}

#[test]
fn a_failure_stops_the_build_with_all_that_was_begun() {
    for failing in [
        Op::Allocate,
        Op::CreateLink,
        Op::ConfigureLink,
        Op::InsertPort,
        Op::NotePort,
        Op::AwaitPort,
        Op::InstallFlows(ASKED),
    ] {
        let mut n_stopped = 0;
        for orders in 0..256u32 {
            let (build, started) =
                run_build(ASKED, |op| op == failing, |turn| orders >> turn & 1 == 1);
            if !started.contains(&failing) {
                assert_eq!(failing, Op::NotePort, "only that one may have nothing to do");
                continue;
            }
            n_stopped += 1;
            let begun = |piece: Piece| match piece {
                Piece::Address => started.contains(&Op::Allocate),
                Piece::Link => started.contains(&Op::CreateLink),
                Piece::Port => started.contains(&Op::InsertPort),
                Piece::Flows => started.contains(&Op::InstallFlows(ASKED)),
            };
            let want = Piece::ALL.into_iter().filter(|piece| begun(*piece)).collect();
            assert_eq!(build.progress(), Progress::Stopped(want), "{failing:?} {started:?}");
            if failing != Op::NotePort {
                assert!(!started.contains(&Op::Announce), "{failing:?}");
            }
        }
        assert!(n_stopped > 0, "{failing:?}");
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

/// Runs a teardown, newest operation first. Says what was started, and whether all was unmade.
fn run_teardown(pieces: &BTreeSet<Piece>, fails: impl Fn(Op) -> bool) -> (bool, Vec<Op>) {
    let (mut teardown, mut running) = Teardown::start(pieces);
    let mut started = running.clone();
    while let Some(op) = running.pop() {
        let next = teardown.step(if fails(op) { Event::Failed(op) } else { Event::Done(op) });
        started.extend(&next);
        running.extend(next);
    }
    assert!(teardown.running.is_empty());
    (teardown.waiting.is_empty() && teardown.failed.is_empty(), started)
}

#[test]
fn addresses_are_released_last_and_only_when_nothing_can_use_them() {
    let closing = [Op::RemoveFlows, Op::DeletePort, Op::FlushConntrack];
    for failing in [Op::RemoveFlows, Op::DeletePort, Op::FlushConntrack] {
        let (is_complete, started) = run_teardown(&all_pieces(), |op| op == failing);
        assert!(!started.contains(&Op::ReleaseAddress), "{failing:?}: {started:?}");
        assert!(!is_complete);
        assert!(started.contains(&Op::DeleteLink), "the link goes all the same");
    }
    let (is_complete, started) = run_teardown(&all_pieces(), |op| op == Op::DeleteLink);
    assert!(started.contains(&Op::ReleaseAddress));
    assert!(!is_complete);
    let (is_complete, started) = run_teardown(&all_pieces(), |_| false);
    assert!(is_complete);
    let at = |op| started.iter().position(|other| *other == op).unwrap();
    assert!(closing.iter().all(|op| at(*op) < at(Op::ReleaseAddress)), "{started:?}");
    assert!(at(Op::DeletePort) < at(Op::DeleteLink));
}

#[test]
fn only_what_was_begun_is_torn_down() {
    use Piece::{Address, Link};
    let (_, started) = run_teardown(&[Address].into(), |_| false);
    assert_eq!(started, [Op::ReleaseAddress]);
    let (is_complete, started) = run_teardown(&[Address, Link].into(), |_| false);
    assert_eq!(started.len(), 2);
    assert!(is_complete);
    let (is_complete, started) = run_teardown(&BTreeSet::new(), |_| false);
    assert!(started.is_empty() && is_complete);
}
