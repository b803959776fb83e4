//! When nothing is sent though something is wanted.
//!
//! A switch without flows forwards nothing. The first flows that it gets must not let through what
//! other flows, not known yet, would stop: a connection that was let through once is known to the
//! datapath and stays.

use super::barrier::Barrier;
use super::dump::Dump;
use super::state::State;
use super::types::{Op, SyncMode};

impl State {
    /// Whether everything waits for owners that are not synced yet.
    pub(super) fn is_held(&self) -> bool {
        match self.mode {
            SyncMode::ReplaceLayout => !self.gate_open,
            SyncMode::Incremental => self.found_empty && !self.may_begin(),
        }
    }

    /// Whether those are synced that an empty switch waits for, or are not waited for any more.
    pub(super) fn may_begin(&self) -> bool {
        self.gate_open || self.owners.first_synced()
    }

    /// Takes in whether the switch has flows of ours, just after it was connected to.
    pub(super) fn look_whether_empty(&mut self, dump: &Dump) {
        let marker = u64::from(self.cookie_marker);
        self.found_empty = !dump.flows.iter().any(|flow| flow.view().cookie().0 >> 48 == marker);
    }

    /// While an empty switch waits, whoever waits for the flows of one key to be gone need not:
    /// there are none. Those who have to be synced first may be among them.
    pub(super) fn resolve_barriers_of_nothing(&mut self) {
        if self.mode == SyncMode::ReplaceLayout {
            return;
        }
        let is_of_nothing = |barrier: &Barrier| {
            let scope = barrier.scope.as_ref();
            scope.is_some_and(|(owner, key)| self.owners.get(*owner, key).is_none())
        };
        let (reached, waiting) =
            std::mem::take(&mut self.barriers).into_iter().partition(is_of_nothing);
        self.barriers = waiting;
        let reached: Vec<Barrier> = reached;
        self.ops.extend(reached.into_iter().map(|b| Op::BarrierDone(b.id, b.refusals)));
    }
}
