//! What the switch holds, and what it means for what is wanted.

use std::collections::VecDeque;

use openflow::message::UndecodedFlow;
use openflow::{EncodeError, Flow, Group, GroupId, Meter, MeterId, TableId};
use rustc_hash::{FxHashMap, FxHashSet};
use tracing::{debug, info, warn};

use super::batch::Item;
use super::encoded::{EncodedFlow, View};
use super::flows::{Entry, FlowId, Marks, OnSwitch};
use super::owners::SetId;
use super::state::State;
use super::types::Op;

/// Flows up to which the whole switch is read at once when it is looked over. Beyond, table by
/// table: a large dump keeps the switch's main thread, which forwards on `netdev`, for long.
const MAX_AT_ONCE: usize = 4096;

/// How often a flow that comes back in another form than it was sent is sent again before that
/// form is taken for the switch's way to show it.
const MAX_FORM_RESENDS: u8 = 2;

/// What is read from the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpScope {
    /// Flows, groups and meters.
    All,
    /// Groups and meters.
    Objects,
    /// The flows of a table.
    Table(TableId),
}

/// What was read.
#[derive(Debug)]
pub struct Dump {
    /// Of what.
    pub scope: DumpScope,
    /// The flows.
    pub flows: Vec<EncodedFlow>,
    /// The groups; of those that are not understood, the number.
    pub groups: Vec<(GroupId, Option<Group>)>,
    /// The meters, likewise.
    pub meters: Vec<(MeterId, Option<Meter>)>,
}

/// A reading under way.
#[derive(Debug, Default)]
pub(super) struct Dumping {
    /// Flows that were sent something after it began, so that it may not know of them.
    pub(super) touched: FxHashSet<FlowId>,
    /// Hashes of the keys of flows that were forgotten after it began: it may show them still.
    pub(super) forgotten: FxHashSet<u64>,
    /// Whether the same is true of groups or meters.
    pub(super) objects_touched: bool,
    /// What is read after it.
    queue: VecDeque<DumpScope>,
}

/// Forms in which the switch shows flows, other than the one they were sent in: hash, and how
/// often they were sent again for it.
pub(super) type Forms = FxHashMap<FlowId, (u64, u8)>;

impl EncodedFlow {
    /// A flow of which not everything is understood, if at least its match is: enough to find and
    /// replace or delete it. It equals no flow that anybody wants.
    #[must_use]
    pub fn from_undecoded(undecoded: &UndecodedFlow) -> Option<Self> {
        let matching = undecoded.matching.clone()?;
        let flow =
            Flow::new(undecoded.table, undecoded.priority, matching).cookie(undecoded.cookie);
        Self::in_part(flow).ok()
    }

    /// A flow that the switch holds. One that has no form of ours, for all that it is understood,
    /// is like one that is not.
    pub fn from_dumped(flow: Flow) -> Result<Self, EncodeError> {
        let part = Flow::new(flow.table, flow.priority, flow.matching.clone()).cookie(flow.cookie);
        Self::new(flow).or_else(|_| Self::in_part(part))
    }

    fn in_part(mut flow: Flow) -> Result<Self, EncodeError> {
        flow.importance = u16::MAX;
        Self::new(flow)
    }
}

impl State {
    /// Begins to read everything, after connecting.
    pub(super) fn begin_first_dump(&mut self) {
        self.begin_dump(DumpScope::All, VecDeque::new());
    }

    /// Begins to look the switch over, unless that is being done already.
    pub(super) fn begin_repair(&mut self) {
        if !self.connected || self.dumping.is_some() {
            return;
        }
        if self.flows.len() <= MAX_AT_ONCE {
            self.begin_dump(DumpScope::All, VecDeque::new());
        } else {
            self.dumping = Some(Dumping::default());
            self.ops.push(Op::CountTables);
        }
    }

    /// Looks over these tables and those that should hold flows, one after the other.
    pub(super) fn tables_counted(&mut self, mut tables: Vec<TableId>) {
        if self.dumping.is_none() {
            return;
        }
        tables.extend(self.flows.counts.tables().into_keys());
        tables.sort_unstable();
        tables.dedup();
        self.begin_dump(DumpScope::Objects, tables.into_iter().map(DumpScope::Table).collect());
    }

    fn begin_dump(&mut self, scope: DumpScope, queue: VecDeque<DumpScope>) {
        let mut dumping = Dumping { queue, ..Dumping::default() };
        // What is under way may reach the switch before or after the request.
        for item in self.in_flight.iter().flat_map(|in_flight| &in_flight.items) {
            match item {
                Item::AddFlow(id) | Item::DeleteFlow(id) => {
                    dumping.touched.insert(FlowId(*id));
                }
                _ => dumping.objects_touched = true,
            }
        }
        self.dumping = Some(dumping);
        self.ops.push(Op::Dump(scope));
    }

    /// Takes in what was read.
    pub(super) fn dumped(&mut self, dump: Dump) {
        let Some(mut dumping) = self.dumping.take() else { return };
        let first = !self.dumped;
        if first {
            self.look_whether_empty(&dump);
        }
        let mut n_repaired = 0;
        if !matches!(dump.scope, DumpScope::Table(_)) && !dumping.objects_touched {
            let groups = dump.groups.into_iter().map(|(id, g)| (id, g.map(Group::normalize)));
            n_repaired += self.groups.take_in(groups.collect()) + self.meters.take_in(dump.meters);
        }
        let table = match dump.scope {
            DumpScope::All => Some(None),
            DumpScope::Table(table) => Some(Some(table)),
            DumpScope::Objects => None,
        };
        if let Some(table) = table {
            n_repaired += self.flows_dumped(dump.flows, table, &dumping);
        }
        self.dumped = true;
        if first {
            info!(
                n_flows = self.flows.len(),
                n_unclaimed = self.flows.counts.n_unclaimed,
                n_pending = self.flows.counts.n_pending,
                "read the switch"
            );
        } else {
            if n_repaired > 0 {
                warn!(n_repaired, "the switch is not as it was left; putting it right");
            }
            self.n_repaired += n_repaired;
        }
        if let Some(next) = dumping.queue.pop_front() {
            self.begin_dump(next, dumping.queue);
        }
    }

    /// Returns how many flows are not as they were left.
    fn flows_dumped(
        &mut self,
        dumped: Vec<EncodedFlow>,
        table: Option<TableId>,
        dumping: &Dumping,
    ) -> u64 {
        let Dumping { touched, forgotten, .. } = dumping;
        let mut n_wrong = 0;
        for flow in dumped {
            let Some(id) = self.flows.find(flow.view()) else {
                // One that was just deleted is no surprise; the next look tells if it stays.
                if !forgotten.contains(&flow.view().key_hash()) {
                    n_wrong += u64::from(self.foreign_flow_dumped(flow));
                }
                continue;
            };
            let is_current = !touched.contains(&id)
                && self.flows.get(id).is_some_and(|entry| !entry.marks.has(Marks::IN_FLIGHT));
            self.flows.change(id, |entry| entry.marks.put(Marks::SCRATCH));
            if is_current {
                n_wrong += u64::from(self.known_flow_dumped(id, &flow));
            }
        }
        let all: Vec<FlowId> = self.flows.ids(table).collect();
        for id in all {
            let gone = self.flows.change(id, |entry| {
                let seen = entry.marks.take(Marks::SCRATCH);
                !seen && !entry.marks.has(Marks::IN_FLIGHT) && !touched.contains(&id)
            });
            if gone == Some(true) {
                n_wrong += u64::from(self.flow_is_gone(id));
            }
        }
        n_wrong
    }

    /// A flow that nobody wants, so far. Returns whether it is a surprise.
    fn foreign_flow_dumped(&mut self, flow: EncodedFlow) -> bool {
        if self.learn_cookies.contains_key(&flow.view().cookie()) {
            return false;
        }
        let is_ours = flow.view().cookie().0 >> 48 == u64::from(self.cookie_marker);
        debug!(is_ours, flow = flow.view().text(), "a flow that nobody claims");
        let mut marks = Marks::default();
        marks.put(Marks::UNCLAIMED);
        marks.put(Marks::SCRATCH);
        let id = self.flows.insert(Entry {
            bytes: flow.bytes,
            set: SetId::NONE,
            on_switch: OnSwitch::Exact,
            marks,
        });
        if self.gate_open {
            self.list(id);
        }
        self.dumped && self.gate_open
    }

    /// A flow that is wanted or was. Returns whether it is not as it was left.
    fn known_flow_dumped(&mut self, id: FlowId, dumped: &EncodedFlow) -> bool {
        let Some(entry) = self.flows.get(id) else { return false };
        let believed = entry.on_switch;
        if !entry.is_wanted() {
            self.flows.change(id, |entry| {
                entry.bytes.clone_from(&dumped.bytes);
                entry.on_switch = OnSwitch::Exact;
            });
            self.list(id);
            return false;
        }
        if entry.bytes == dumped.bytes || self.is_accepted_form(id, dumped.view()) {
            self.forms_seen_equal(id, dumped.view());
            self.refused.remove(&Item::AddFlow(id.0));
            self.flows.change(id, |entry| {
                entry.on_switch = OnSwitch::Exact;
                entry.marks.take(Marks::EXPIRED);
                entry.marks.take(Marks::REFUSED);
            });
            return false;
        }
        self.note_form(id, dumped.view());
        self.flows.change(id, |entry| entry.on_switch = OnSwitch::Unknown);
        self.list(id);
        believed == OnSwitch::Exact
    }

    /// A flow that is not on the switch. Returns whether it should be.
    fn flow_is_gone(&mut self, id: FlowId) -> bool {
        let Some(entry) = self.flows.get(id) else { return false };
        if !entry.is_wanted() {
            self.forget_flow(id);
            return false;
        }
        let (believed, timed) = (entry.on_switch, entry.view().is_timed());
        self.flows.change(id, |entry| {
            entry.on_switch = OnSwitch::Absent;
            if timed && believed == OnSwitch::Exact {
                entry.marks.put(Marks::EXPIRED);
            }
        });
        self.list(id);
        believed == OnSwitch::Exact && !timed
    }

    /// Whether the switch shows the flow in a form in which it showed it before, each time it was
    /// sent.
    fn is_accepted_form(&self, id: FlowId, dumped: View<'_>) -> bool {
        let same_owner =
            self.flows.get(id).is_some_and(|entry| entry.view().cookie() == dumped.cookie());
        same_owner
            && self
                .forms
                .get(&id)
                .is_some_and(|(hash, n)| *n >= MAX_FORM_RESENDS && *hash == dumped.content_hash())
    }

    fn note_form(&mut self, id: FlowId, dumped: View<'_>) {
        let hash = dumped.content_hash();
        let form = self.forms.entry(id).or_insert((hash, 0));
        if form.0 == hash {
            form.1 = form.1.saturating_add(1);
            if form.1 == MAX_FORM_RESENDS {
                let sent = self.flows.get(id).map(|entry| entry.view().text());
                warn!(?sent, shown = dumped.text(), "the switch shows a flow in another form");
            }
        } else {
            *form = (hash, 1);
        }
    }

    /// The flow is there as it was sent: what form was noted before was somebody's change.
    fn forms_seen_equal(&mut self, id: FlowId, dumped: View<'_>) {
        if self.flows.get(id).is_some_and(|entry| *entry.bytes == *dumped.0) {
            self.forms.remove(&id);
        }
    }
}
