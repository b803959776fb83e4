//! Waiting on a condition with a deadline, which is how tests wait for anything.

use std::thread;
use std::time::{Duration, Instant};

/// How long to pause between two looks at the condition.
const PAUSE: Duration = Duration::from_millis(5);

/// Looks at `cond` until it holds; panics with `what` when `deadline` passes first.
#[track_caller]
pub fn wait_until(deadline: Duration, what: &str, mut cond: impl FnMut() -> bool) {
    let end = Instant::now() + deadline;
    while !cond() {
        assert!(Instant::now() < end, "not within {deadline:?}: {what}");
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_when_the_condition_holds() {
        let mut looks = 0;
        wait_until(Duration::from_secs(5), "third look", || {
            looks += 1;
            looks == 3
        });
        assert_eq!(looks, 3);
    }

    #[test]
    #[should_panic(expected = "pigs fly")]
    fn names_what_it_waited_for() {
        wait_until(Duration::from_millis(20), "pigs fly", || false);
    }
}
