//! The reconciler's state and its step.

use std::collections::BTreeMap;
use std::sync::Arc;

use openflow::{Cookie, Group, GroupId, Meter, MeterId};
use rustc_hash::FxHashMap;

use super::barrier::Barrier;
use super::batch::{BatchMode, Item};
use super::dump::{Dumping, Forms};
use super::encoded::{EncodedFlow, EncodedIntents};
use super::flows::{Entry, FlowId, Flows, Marks, OnSwitch};
use super::objects::Objects;
use super::owners::{Owners, SetId};
use super::types::{Event, Op, Owner, Refusal, RefusalReason, StateSummary, SyncMode};

/// What a bridge should hold, what it does hold, and what is under way.
#[derive(Debug, Default)]
pub struct State {
    pub(super) owners: Owners,
    pub(super) flows: Flows,
    pub(super) groups: Objects<GroupId, Group>,
    pub(super) meters: Objects<MeterId, Meter>,
    /// Flows to look at in the next flush.
    pub(super) listed: Vec<FlowId>,
    /// Flows that other keys want too, in order of coming.
    contested: BTreeMap<FlowId, Vec<(SetId, EncodedFlow)>>,
    /// Cookies of flows that wanted flows' learn actions make, and how many such flows there are.
    pub(super) learn_cookies: BTreeMap<Cookie, u32>,
    learners: FxHashMap<FlowId, Vec<Cookie>>,
    pub(super) forms: Forms,

    pub(super) connected: bool,
    n_connections: u64,
    silent: bool,
    /// Whether the switch was read since the connection came up.
    pub(super) dumped: bool,
    pub(super) dumping: Option<Dumping>,
    pub(super) in_flight: Option<InFlight>,
    /// What is to be sent next.
    pub(super) ripe_meters: Option<RipeMeters>,
    /// Whether what nobody claims may be deleted.
    pub(super) gate_open: bool,
    pub(super) mode: SyncMode,
    /// Whether the switch had no flow of ours when it was read after connecting.
    pub(super) found_empty: bool,
    pub(super) cookie_marker: u16,
    first_sync_done: bool,
    pub(super) n_repaired: u64,

    /// What the switch refused.
    pub(super) refused: BTreeMap<Item, Refused>,
    /// What was refused without asking the switch: conflicts, and what has no form on the wire.
    pub(super) standing: BTreeMap<SetId, Vec<Refusal>>,
    pub(super) n_refused_bundles: u32,
    /// Counts [`Event::RetryDue`].
    pub(super) round: u64,

    /// Counts changes of what is wanted.
    pub(super) seq: u64,
    /// The last of them that is on the switch.
    pub(super) done_seq: u64,
    pub(super) barriers: Vec<Barrier>,
    /// What the step under way gives.
    pub(super) ops: Vec<Op>,
}

/// The batch under way.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) items: Vec<Item>,
    pub(super) mode: BatchMode,
    /// The last change that is in it or was before it.
    pub(super) up_to: u64,
    /// Meters that were to be deleted when it was made, and are not in it.
    pub(super) meters_left: Vec<MeterId>,
}

/// Meters that no flow uses any more.
#[derive(Debug)]
pub(super) struct RipeMeters {
    pub(super) ids: Vec<MeterId>,
    /// The last change that is done once they are gone.
    pub(super) up_to: u64,
}

/// Something set aside.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) refusal: Refusal,
    pub(super) n_tries: u32,
    /// The round in which it is tried again.
    pub(super) due: u64,
}

impl State {
    /// A state that knows of nothing. `cookie_marker` is in bits 63..48 of our flows' cookies.
    #[must_use]
    pub fn new(mode: SyncMode, cookie_marker: u16) -> Self {
        Self { mode, cookie_marker, ..Self::default() }
    }

    /// One step.
    pub fn step(&mut self, event: Event) -> Vec<Op> {
        match event {
            Event::Register(owner) => self.owners.register(owner),
            Event::RegisterFirst(owner) => self.owners.register_first(owner),
            Event::Set { owner, key, intents } => self.set(owner, &key, intents),
            Event::Remove { owner, key } => self.remove(owner, &key),
            Event::Synced(owner) => {
                self.owners.mark_synced(owner);
                if self.owners.all_synced() {
                    self.open_gate();
                }
            }
            Event::SyncDeadline => self.open_gate(),
            Event::Barrier { id, scope } => self.add_barrier(id, scope),
            Event::Connected => {
                self.connected = true;
                self.n_connections += 1;
                self.silent = false;
                self.begin_first_dump();
            }
            Event::Silent => self.silent = self.connected,
            Event::Answers => self.silent = false,
            Event::Disconnected => self.disconnected(),
            Event::Dumped(dump) => {
                self.dumped(dump);
                self.flush();
            }
            Event::TableCounts(tables) => self.tables_counted(tables),
            Event::BatchDone(outcome) => {
                self.batch_done(&outcome);
                self.resolve_barriers();
                self.flush();
            }
            Event::FlowExpired(flow) => self.flow_expired(&flow),
            Event::FlowDeleted(flow) => self.flow_deleted(&flow),
            Event::RepairDue => {
                if self.dumped {
                    self.begin_repair();
                }
            }
            Event::RetryDue => {
                self.round += 1;
                self.flush();
            }
            Event::Flush => self.flush(),
        }
        std::mem::take(&mut self.ops)
    }

    /// What can be seen from outside.
    #[must_use]
    pub fn summary(&self) -> StateSummary {
        StateSummary {
            connected: self.connected,
            n_connections: self.n_connections,
            silent: self.silent,
            dumped: self.dumped,
            owners_synced: self.gate_open,
            first_owners_synced: self.may_begin(),
            held: self.connected && self.dumped && self.is_held(),
            first_sync_done: self.first_sync_done,
            n_pending: self.flows.counts.n_pending
                + self.groups.to_send().len()
                + self.meters.to_send().len(),
            flows: self.flows.counts.tables(),
            n_groups: self.groups.n_wanted(),
            n_meters: self.meters.n_wanted(),
            n_unclaimed: self.flows.counts.n_unclaimed,
            n_repaired: self.n_repaired,
            refused: self
                .standing
                .values()
                .flatten()
                .chain(self.refused.values().map(|refused| &refused.refusal))
                .cloned()
                .collect(),
        }
    }

    /// The flows that are wanted under a key, those that another key holds included.
    #[must_use]
    pub fn wanted(&self, owner: Owner, key: &Arc<str>) -> Vec<EncodedFlow> {
        let Some(set) = self.owners.get(owner, key).map(|id| self.owners.set(id)) else {
            return Vec::new();
        };
        let flows = set.flows.iter().chain(&set.contested);
        flows
            .filter_map(|id| self.flows.get(*id))
            .map(|entry| EncodedFlow { bytes: entry.bytes.clone(), learn_cookies: Vec::new() })
            .collect()
    }

    /// What is in bits 63..48 of our flows' cookies.
    #[must_use]
    pub fn cookie_marker(&self) -> u16 {
        self.cookie_marker
    }

    /// Whether refused things wait to be tried again.
    #[must_use]
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Sends what has to be sent, if something may be sent now.
    fn flush(&mut self) {
        if !self.connected || !self.dumped || self.in_flight.is_some() {
            return;
        }
        if self.is_held() {
            self.resolve_barriers_of_nothing();
            return;
        }
        match self.next_batch() {
            Some(batch) => self.ops.push(Op::Send(batch)),
            None => {
                self.done_seq = self.seq;
                self.first_sync_done |= self.gate_open;
                self.resolve_barriers();
            }
        }
    }

    fn open_gate(&mut self) {
        if std::mem::replace(&mut self.gate_open, true) {
            return;
        }
        let all: Vec<FlowId> = self.flows.ids(None).collect();
        for id in all {
            let Some(entry) = self.flows.get(id) else { continue };
            if !entry.marks.has(Marks::UNCLAIMED) {
                continue;
            }
            // The switch was read before it was known whose flows make this one.
            if self.learn_cookies.contains_key(&entry.view().cookie()) {
                self.flows.remove(id);
            } else {
                self.list(id);
            }
        }
    }

    fn disconnected(&mut self) {
        self.connected = false;
        self.silent = false;
        self.dumped = false;
        self.dumping = None;
        self.n_refused_bundles = 0;
        self.ripe_meters = None;
        if let Some(in_flight) = self.in_flight.take() {
            for item in in_flight.items {
                if let Item::AddFlow(id) | Item::DeleteFlow(id) = item {
                    self.flows.change(FlowId(id), |entry| {
                        entry.marks.take(Marks::IN_FLIGHT);
                        entry.marks.take(Marks::CHANGED);
                    });
                    self.list(FlowId(id));
                }
            }
        }
        self.groups.disconnect();
        self.meters.disconnect();
        // A new connection may lead to a switch that takes them.
        for item in std::mem::take(&mut self.refused).into_keys() {
            if let Item::AddFlow(id) = item {
                self.flows.change(FlowId(id), |entry| entry.marks.take(Marks::REFUSED));
                self.list(FlowId(id));
            }
        }
    }

    fn set(&mut self, owner: Owner, key: &Arc<str>, intents: EncodedIntents) {
        self.seq += 1;
        let id = self.owners.intern(owner, key);
        self.standing.remove(&id);
        self.drop_claims(id);
        for refusal in intents.refused {
            self.stand_refused(id, refusal);
        }
        self.set_objects(id, intents.groups, intents.meters);
        let before = std::mem::take(&mut self.owners.set_mut(id).flows);
        let mut flows = Vec::with_capacity(intents.flows.len());
        for flow in intents.flows {
            flows.extend(self.want_flow(id, flow));
        }
        for flow in before {
            let kept = self.flows.get(flow).is_some_and(|entry| entry.marks.has(Marks::SCRATCH));
            if !kept {
                self.release_flow(flow, id);
            }
        }
        for flow in &flows {
            self.flows.change(*flow, |entry| entry.marks.take(Marks::SCRATCH));
        }
        self.owners.set_mut(id).flows = flows.into_boxed_slice();
    }

    fn remove(&mut self, owner: Owner, key: &Arc<str>) {
        let Some(id) = self.owners.get(owner, key) else { return };
        self.seq += 1;
        self.standing.remove(&id);
        self.drop_claims(id);
        self.set_objects(id, Vec::new(), Vec::new());
        for flow in std::mem::take(&mut self.owners.set_mut(id).flows) {
            self.release_flow(flow, id);
        }
        self.owners.forget(id);
    }

    /// The key wants a flow. Returns it if the key holds it now and did not say so before.
    fn want_flow(&mut self, set: SetId, flow: EncodedFlow) -> Option<FlowId> {
        let Some(id) = self.flows.find(flow.view()) else {
            let EncodedFlow { bytes, learn_cookies } = flow;
            let mut marks = Marks::default();
            marks.put(Marks::SCRATCH);
            let entry = Entry { bytes, set, on_switch: OnSwitch::Absent, marks };
            let id = self.flows.insert(entry);
            self.track_learning(id, learn_cookies);
            self.list(id);
            return Some(id);
        };
        let entry = self.flows.get(id)?;
        let (holder, same) = (entry.set, entry.bytes == flow.bytes);
        let twice = holder == set && entry.marks.has(Marks::SCRATCH);
        if twice || (holder != set && holder != SetId::NONE) {
            if !same {
                self.refuse_conflict(set, holder, flow.view().text());
            }
            if !twice {
                self.contested.entry(id).or_default().push((set, flow));
                self.owners.set_mut(set).contested.push(id);
            }
            return None;
        }
        self.hold_flow(id, set, flow);
        self.flows.change(id, |entry| entry.marks.put(Marks::SCRATCH));
        Some(id)
    }

    /// The key holds the flow from now on, in this form.
    fn hold_flow(&mut self, id: FlowId, set: SetId, flow: EncodedFlow) {
        let EncodedFlow { bytes, learn_cookies } = flow;
        let differs = self.flows.change(id, |entry| {
            let was_wanted = entry.is_wanted();
            let differs = entry.bytes != bytes;
            entry.set = set;
            entry.marks.take(Marks::UNCLAIMED);
            if differs {
                entry.bytes = bytes;
                entry.marks.take(Marks::EXPIRED);
                entry.marks.take(Marks::REFUSED);
                if entry.on_switch == OnSwitch::Exact {
                    entry.on_switch = OnSwitch::Unknown;
                }
            }
            // An unchanged one that nobody wanted may be about to be deleted.
            if (differs || !was_wanted) && entry.marks.has(Marks::IN_FLIGHT) {
                entry.marks.put(Marks::CHANGED);
            }
            differs
        });
        if differs == Some(true) {
            self.refused.remove(&Item::AddFlow(id.0));
            self.forms.remove(&id);
        }
        self.untrack_learning(id);
        self.track_learning(id, learn_cookies);
        self.list(id);
    }

    /// The key does not want the flow any more: whoever waits for it gets it, or it goes.
    fn release_flow(&mut self, id: FlowId, set: SetId) {
        if self.flows.get(id).is_none_or(|entry| entry.set != set) {
            return;
        }
        if let Some(claims) = self.contested.get_mut(&id) {
            let (claimant, flow) = claims.remove(0);
            if claims.is_empty() {
                self.contested.remove(&id);
            }
            let text = flow.view().text();
            if let Some(standing) = self.standing.get_mut(&claimant) {
                standing.retain(|refusal| refusal.intent != text);
            }
            self.hold_flow(id, claimant, flow);
            let set = self.owners.set_mut(claimant);
            set.contested.retain(|contested| *contested != id);
            let mut flows = std::mem::take(&mut set.flows).into_vec();
            flows.push(id);
            set.flows = flows.into_boxed_slice();
            return;
        }
        self.refused.remove(&Item::AddFlow(id.0));
        self.forms.remove(&id);
        self.untrack_learning(id);
        let nothing_left = self.flows.change(id, |entry| {
            entry.set = SetId::NONE;
            entry.marks.take(Marks::REFUSED);
            entry.marks.take(Marks::EXPIRED);
            if entry.marks.has(Marks::IN_FLIGHT) {
                entry.marks.put(Marks::CHANGED);
            }
            entry.on_switch == OnSwitch::Absent && !entry.marks.has(Marks::IN_FLIGHT)
        });
        if nothing_left == Some(true) {
            self.forget_flow(id);
        } else {
            self.list(id);
        }
    }

    /// The key gives up what it waits for.
    fn drop_claims(&mut self, set: SetId) {
        for id in std::mem::take(&mut self.owners.set_mut(set).contested) {
            if let Some(claims) = self.contested.get_mut(&id) {
                claims.retain(|(claimant, _)| *claimant != set);
                if claims.is_empty() {
                    self.contested.remove(&id);
                }
            }
        }
    }

    fn set_objects(&mut self, set: SetId, groups: Vec<Group>, meters: Vec<Meter>) {
        let group_ids: Vec<GroupId> = groups.iter().map(|group| group.id).collect();
        let meter_ids: Vec<MeterId> = meters.iter().map(|meter| meter.id).collect();
        for group in groups {
            let text = format!("group {}", group.id);
            let id = group.id;
            if let Some(holder) = self.groups.want(id, set, group) {
                self.refuse_conflict(set, holder, text);
            }
            if self.groups.get(id).is_some_and(|object| !object.refused) {
                self.refused.remove(&Item::SetGroup(id));
            }
        }
        for meter in meters {
            let text = format!("meter {}", meter.id);
            let id = meter.id;
            if let Some(holder) = self.meters.want(id, set, meter) {
                self.refuse_conflict(set, holder, text);
            }
            if self.meters.get(id).is_some_and(|object| !object.refused) {
                self.refused.remove(&Item::SetMeter(id));
            }
        }
        let old = self.owners.set_mut(set);
        let old_groups = std::mem::replace(&mut old.groups, group_ids.clone());
        let old_meters = std::mem::replace(&mut old.meters, meter_ids.clone());
        for id in old_groups.into_iter().filter(|id| !group_ids.contains(id)) {
            self.refused.remove(&Item::SetGroup(id));
            if let Some(heir) = self.groups.release(id, set) {
                self.claim_granted(heir, &format!("group {id}"));
            }
        }
        for id in old_meters.into_iter().filter(|id| !meter_ids.contains(id)) {
            self.refused.remove(&Item::SetMeter(id));
            if let Some(heir) = self.meters.release(id, set) {
                self.claim_granted(heir, &format!("meter {id}"));
            }
        }
    }

    fn claim_granted(&mut self, heir: SetId, text: &str) {
        if let Some(standing) = self.standing.get_mut(&heir) {
            standing.retain(|refusal| refusal.intent != text);
        }
    }

    fn refuse_conflict(&mut self, set: SetId, holder: SetId, intent: String) {
        let (set_row, holder_row) = (self.owners.set(set), self.owners.set(holder));
        let refusal = Refusal {
            owner: set_row.owner,
            key: Arc::clone(&set_row.key),
            intent,
            reason: RefusalReason::Conflict {
                owner: holder_row.owner,
                key: Arc::clone(&holder_row.key),
            },
        };
        self.stand_refused(set, refusal);
    }

    fn stand_refused(&mut self, set: SetId, refusal: Refusal) {
        self.standing.entry(set).or_default().push(refusal.clone());
        self.report(refusal);
    }

    fn flow_expired(&mut self, flow: &EncodedFlow) {
        let Some(id) = self.flows.find(flow.view()) else { return };
        let nothing_left = self.flows.change(id, |entry| {
            if entry.marks.has(Marks::IN_FLIGHT) {
                return false;
            }
            entry.on_switch = OnSwitch::Absent;
            entry.marks.put(Marks::EXPIRED);
            !entry.is_wanted()
        });
        if nothing_left == Some(true) {
            self.forget_flow(id);
        }
    }

    fn flow_deleted(&mut self, flow: &EncodedFlow) {
        let Some(id) = self.flows.find(flow.view()) else { return };
        let Some(entry) = self.flows.get(id) else { return };
        if entry.marks.has(Marks::IN_FLIGHT) {
            return;
        }
        if !entry.is_wanted() {
            self.forget_flow(id);
        } else if entry.on_switch == OnSwitch::Exact {
            self.n_repaired += 1;
            self.flows.change(id, |entry| entry.on_switch = OnSwitch::Absent);
            self.list(id);
        }
    }

    /// Puts the flow on the list of those to look at in the next flush.
    pub(super) fn list(&mut self, id: FlowId) {
        let added = self.flows.change(id, |entry| {
            let listed = entry.marks.has(Marks::LISTED);
            entry.marks.put(Marks::LISTED);
            !listed
        });
        if added == Some(true) {
            self.listed.push(id);
        }
    }

    pub(super) fn forget_flow(&mut self, id: FlowId) {
        self.untrack_learning(id);
        self.forms.remove(&id);
        self.refused.remove(&Item::AddFlow(id.0));
        if let Some(dumping) = &mut self.dumping
            && let Some(entry) = self.flows.get(id)
        {
            dumping.forgotten.insert(entry.view().key_hash());
        }
        self.flows.remove(id);
    }

    fn track_learning(&mut self, id: FlowId, cookies: Vec<Cookie>) {
        if cookies.is_empty() {
            return;
        }
        for cookie in &cookies {
            *self.learn_cookies.entry(*cookie).or_default() += 1;
        }
        self.learners.insert(id, cookies);
    }

    fn untrack_learning(&mut self, id: FlowId) {
        for cookie in self.learners.remove(&id).unwrap_or_default() {
            if let Some(n) = self.learn_cookies.get_mut(&cookie) {
                *n -= 1;
                if *n == 0 {
                    self.learn_cookies.remove(&cookie);
                }
            }
        }
    }
}
