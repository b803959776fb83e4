//! Waiting until something is on the switch.

use std::sync::Arc;

use super::batch::Item;
use super::flows::{FlowId, Marks};
use super::state::State;
use super::types::{BarrierId, Op, Owner, Refusal};

/// Somebody who waits.
#[derive(Debug)]
pub(super) struct Barrier {
    pub(super) id: BarrierId,
    /// The changes that have to be on the switch.
    seq: u64,
    pub(super) scope: Option<(Owner, Arc<str>)>,
    /// What was refused while it waited.
    pub(super) refusals: Vec<Refusal>,
}

impl Barrier {
    pub(super) fn concerns(&self, owner: Owner, key: &str) -> bool {
        self.scope.as_ref().is_none_or(|(o, k)| *o == owner && **k == *key)
    }
}

impl State {
    pub(super) fn add_barrier(&mut self, id: BarrierId, scope: Option<(Owner, Arc<str>)>) {
        self.barriers.push(Barrier { id, seq: self.seq, scope, refusals: Vec::new() });
    }

    /// Lets go whoever waits for changes that are done by now.
    pub(super) fn resolve_barriers(&mut self) {
        let done = self.done_seq;
        if self.barriers.iter().all(|barrier| barrier.seq > done) {
            return;
        }
        let (reached, waiting) =
            std::mem::take(&mut self.barriers).into_iter().partition(|b| b.seq <= done);
        self.barriers = waiting;
        let reached: Vec<Barrier> = reached;
        for mut barrier in reached {
            if let Some((owner, key)) = &barrier.scope {
                barrier.refusals = self.refusals_of(*owner, key);
            }
            self.ops.push(Op::BarrierDone(barrier.id, barrier.refusals));
        }
    }

    /// What of a key is refused now.
    fn refusals_of(&self, owner: Owner, key: &Arc<str>) -> Vec<Refusal> {
        let Some(id) = self.owners.get(owner, key) else { return Vec::new() };
        let set = self.owners.set(id);
        let flows = set
            .flows
            .iter()
            .filter(|id| self.flows.get(**id).is_some_and(|e| e.marks.has(Marks::REFUSED)))
            .map(|FlowId(id)| Item::AddFlow(*id));
        let groups = set.groups.iter().copied().map(Item::SetGroup);
        let meters = set.meters.iter().copied().map(Item::SetMeter);
        flows
            .chain(groups)
            .chain(meters)
            .filter_map(|item| self.refused.get(&item))
            .map(|refused| refused.refusal.clone())
            .filter(|refusal| refusal.owner == owner && refusal.key == *key)
            .chain(self.standing.get(&id).into_iter().flatten().cloned())
            .collect()
    }
}
