//! Faults that tests put in.

use std::sync::atomic::{AtomicI64, Ordering};

/// What becomes of an interface's OpenFlow number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfportFault {
    /// It is -1, with an error.
    Failed,
    /// It never comes.
    Never,
}

/// Counts messages and says when the connection is to be cut.
#[derive(Debug)]
pub struct Cut(AtomicI64);

impl Default for Cut {
    fn default() -> Self {
        Self(AtomicI64::new(-1))
    }
}

impl Cut {
    /// Cuts the connection on which the n-th message from now arrives (the first is 1), before
    /// that message is looked at.
    pub fn at_message(&self, n: u32) {
        self.0.store(i64::from(n), Ordering::SeqCst);
    }

    /// Whether the message that arrived is the one.
    pub(super) fn is_now(&self) -> bool {
        let before =
            self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| (n >= 0).then_some(n - 1));
        before == Ok(1)
    }
}
