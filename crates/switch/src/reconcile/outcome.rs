//! What a batch's outcome means: installed, refused, to be sent again.

use std::collections::BTreeMap;
use std::sync::Arc;

use openflow::MeterId;
use openflow::message::ErrorCode;
use tracing::debug;

use super::batch::{BatchMode, Item, Outcome};
use super::flows::{FlowId, Marks, OnSwitch};
use super::owners::SetId;
use super::state::{Refused, RipeMeters, State};
use super::types::{Op, Refusal, RefusalReason};

/// Longest pause between two tries of a refused flow, in rounds of [`super::Event::RetryDue`].
const MAX_PAUSE: u64 = 60;

impl State {
    /// Takes in what became of the batch under way.
    pub(super) fn batch_done(&mut self, outcome: &Outcome) {
        let Some(in_flight) = self.in_flight.take() else { return };
        let mut errors: BTreeMap<usize, ErrorCode> = outcome.errors.iter().copied().collect();
        let committed = outcome.committed || in_flight.mode == BatchMode::Plain;
        let mut group_came = false;
        for (index, item) in in_flight.items.iter().enumerate() {
            match errors.remove(&index) {
                Some(code) => self.item_refused(*item, code),
                None if committed => {
                    group_came |= matches!(item, Item::SetGroup(_) | Item::SetMeter(_));
                    self.item_done(*item);
                }
                None => self.item_undone(*item),
            }
        }
        if group_came {
            // What was refused for want of a group need not wait.
            for refused in self.refused.values_mut() {
                refused.due = self.round;
            }
        }
        if committed {
            self.n_refused_bundles = 0;
            self.changes_done(in_flight.up_to, in_flight.meters_left);
        } else {
            self.n_refused_bundles += 1;
            debug!(n_errors = outcome.errors.len(), "bundle refused");
        }
    }

    /// The changes up to this one are on the switch, but for the deletion of these meters.
    fn changes_done(&mut self, up_to: u64, meters_left: Vec<MeterId>) {
        let due = self.meters.to_delete(self.gate_open);
        let ids: Vec<MeterId> = meters_left.into_iter().filter(|id| due.contains(id)).collect();
        if ids.is_empty() {
            self.done_seq = self.done_seq.max(up_to);
        } else {
            self.ripe_meters = Some(RipeMeters { ids, up_to });
        }
    }

    fn item_done(&mut self, item: Item) {
        self.refused.remove(&item);
        match item {
            Item::AddFlow(id) => self.flow_finished(FlowId(id), OnSwitch::Exact),
            Item::DeleteFlow(id) => self.flow_finished(FlowId(id), OnSwitch::Absent),
            Item::SetGroup(id) => self.groups.finish(id, OnSwitch::Exact),
            Item::DeleteGroup(id) => self.groups.finish(id, OnSwitch::Absent),
            Item::SetMeter(id) => self.meters.finish(id, OnSwitch::Exact),
            Item::DeleteMeter(id) => self.meters.finish(id, OnSwitch::Absent),
        }
    }

    /// The bundle it was in changed nothing: it is sent again.
    fn item_undone(&mut self, item: Item) {
        match item {
            Item::AddFlow(id) | Item::DeleteFlow(id) => {
                self.flow_finished(FlowId(id), OnSwitch::Unknown);
            }
            Item::SetGroup(id) | Item::DeleteGroup(id) => {
                self.groups.finish(id, OnSwitch::Unknown);
            }
            Item::SetMeter(id) | Item::DeleteMeter(id) => {
                self.meters.finish(id, OnSwitch::Unknown);
            }
        }
    }

    fn item_refused(&mut self, item: Item, code: ErrorCode) {
        match item {
            Item::AddFlow(id) => {
                let id = FlowId(id);
                let changed =
                    self.flows.get(id).is_none_or(|entry| entry.marks.has(Marks::CHANGED));
                self.flow_finished(id, OnSwitch::Unknown);
                if !changed {
                    self.refuse(item, RefusalReason::Switch(code));
                }
            }
            Item::SetGroup(id) => {
                let changed = self.groups.get(id).is_none_or(|object| object.changed);
                self.groups.finish(id, OnSwitch::Unknown);
                if !changed {
                    self.refuse(item, RefusalReason::Switch(code));
                }
            }
            Item::SetMeter(id) => {
                let changed = self.meters.get(id).is_none_or(|object| object.changed);
                self.meters.finish(id, OnSwitch::Unknown);
                if !changed {
                    self.refuse(item, RefusalReason::Switch(code));
                }
            }
            // A deletion is refused when there is nothing to delete; the next look at the whole
            // switch tells.
            Item::DeleteFlow(_) | Item::DeleteGroup(_) | Item::DeleteMeter(_) => {
                debug!(?item, %code, "deletion refused");
                self.item_done(item);
            }
        }
    }

    /// A flow is not in flight any more.
    fn flow_finished(&mut self, id: FlowId, on_switch: OnSwitch) {
        let nothing_left = self.flows.change(id, |entry| {
            entry.marks.take(Marks::IN_FLIGHT);
            let changed = entry.marks.take(Marks::CHANGED);
            entry.on_switch = match (changed, on_switch) {
                (false, on_switch) => on_switch,
                (true, OnSwitch::Absent) => OnSwitch::Absent,
                (true, OnSwitch::Exact | OnSwitch::Unknown) => OnSwitch::Unknown,
            };
            !entry.is_wanted() && entry.on_switch == OnSwitch::Absent
        });
        match nothing_left {
            Some(true) => self.forget_flow(id),
            Some(false) => self.list(id),
            None => {}
        }
    }

    /// Sets something aside, tells its owner, and plans the next try.
    pub(super) fn refuse(&mut self, item: Item, reason: RefusalReason) {
        let Some((set, intent)) = self.describe(item) else { return };
        match item {
            Item::AddFlow(id) => {
                self.flows.change(FlowId(id), |entry| entry.marks.put(Marks::REFUSED));
            }
            Item::SetGroup(id) => {
                if let Some(object) = self.groups.get_mut(id) {
                    object.refused = true;
                }
            }
            Item::SetMeter(id) => {
                if let Some(object) = self.meters.get_mut(id) {
                    object.refused = true;
                }
            }
            Item::DeleteFlow(_) | Item::DeleteGroup(_) | Item::DeleteMeter(_) => return,
        }
        let set = self.owners.set(set);
        let refusal = Refusal { owner: set.owner, key: Arc::clone(&set.key), intent, reason };
        let round = self.round;
        let refused = self.refused.entry(item).or_insert_with(|| Refused {
            refusal: refusal.clone(),
            n_tries: 0,
            due: round,
        });
        let is_news = refused.n_tries == 0 || refused.refusal != refusal;
        refused.refusal = refusal.clone();
        refused.n_tries = refused.n_tries.saturating_add(1);
        refused.due =
            round + 1_u64.checked_shl(refused.n_tries - 1).unwrap_or(u64::MAX).min(MAX_PAUSE);
        if is_news {
            self.report(refusal);
        }
    }

    /// Tells the owner, and everybody who waits at a barrier.
    pub(super) fn report(&mut self, refusal: Refusal) {
        for barrier in &mut self.barriers {
            if barrier.concerns(refusal.owner, &refusal.key) {
                barrier.refusals.push(refusal.clone());
            }
        }
        self.ops.push(Op::Report(refusal));
    }

    fn describe(&self, item: Item) -> Option<(SetId, String)> {
        match item {
            Item::AddFlow(id) => {
                let entry = self.flows.get(FlowId(id)).filter(|entry| entry.is_wanted())?;
                Some((entry.set, entry.view().text()))
            }
            Item::SetGroup(id) => {
                let (set, _) = self.groups.get(id)?.wanted.as_ref()?;
                Some((*set, format!("group {id}")))
            }
            Item::SetMeter(id) => {
                let (set, _) = self.meters.get(id)?.wanted.as_ref()?;
                Some((*set, format!("meter {id}")))
            }
            Item::DeleteFlow(_) | Item::DeleteGroup(_) | Item::DeleteMeter(_) => None,
        }
    }

    /// Refused things whose time has come, ready to be sent again.
    pub(super) fn take_retries(&mut self) -> Vec<Item> {
        let due: Vec<Item> = self
            .refused
            .iter()
            .filter(|(_, refused)| refused.due <= self.round)
            .map(|(item, _)| *item)
            .collect();
        for item in &due {
            match *item {
                Item::AddFlow(id) => {
                    self.flows.change(FlowId(id), |entry| entry.marks.take(Marks::REFUSED));
                }
                Item::SetGroup(id) => {
                    if let Some(object) = self.groups.get_mut(id) {
                        object.refused = false;
                    }
                }
                Item::SetMeter(id) => {
                    if let Some(object) = self.meters.get_mut(id) {
                        object.refused = false;
                    }
                }
                Item::DeleteFlow(_) | Item::DeleteGroup(_) | Item::DeleteMeter(_) => {}
            }
        }
        due
    }
}
