//! What is sent at once, and what became of it.

use openflow::message::{ErrorCode, GroupMod, MeterMod};
use openflow::{EncodeError, GroupId, Message, MeterId, Xid};

use super::flows::{FlowId, Marks, OnSwitch};
use super::state::{InFlight, State};
use super::types::RefusalReason;

/// Refused bundles in a row after which messages go one by one, so that all refusals are known
/// after one round.
const MAX_REFUSED_BUNDLES: u32 = 4;

/// Messages to be sent. Their transaction ids are 0: the sender fills them in.
#[derive(Debug, Default)]
pub struct Batch {
    /// How.
    pub mode: BatchMode,
    /// How many messages come before the bundle: meters cannot be part of one.
    pub n_before: usize,
    /// How many messages there are.
    pub n_messages: usize,
    /// The messages, one after the other.
    pub bytes: Vec<u8>,
}

/// How a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BatchMode {
    /// As one atomic bundle.
    #[default]
    Bundle,
    /// Message by message: one message needs no bundle, and with many refusals each gets its own
    /// answer.
    Plain,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Whether the switch took it (but for the messages refused). False: the bundle changed
    /// nothing.
    pub committed: bool,
    /// Messages that were refused, by their place in the batch.
    pub errors: Vec<(usize, ErrorCode)>,
}

/// What a message of a batch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// Adds or changes a meter.
    SetMeter(MeterId),
    /// Adds or changes a group.
    SetGroup(GroupId),
    /// Adds or changes a flow.
    AddFlow(u32),
    /// Deletes a flow.
    DeleteFlow(u32),
    /// Deletes a group.
    DeleteGroup(GroupId),
    /// Deletes a meter.
    DeleteMeter(MeterId),
}

impl Batch {
    /// The messages one by one.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.bytes.as_slice();
        std::iter::from_fn(move || {
            let len = rest.get(2..4).and_then(<[u8]>::first_chunk::<2>)?;
            let (message, after) =
                rest.split_at_checked(usize::from(u16::from_be_bytes(*len)).max(8))?;
            rest = after;
            Some(message)
        })
    }
}

impl State {
    /// The next batch, if anything has to be sent.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        if let Some(ripe) = self.ripe_meters.take() {
            // Whatever else has to be sent by now can wait, or these would wait for ever.
            let items = ripe.ids.into_iter().map(Item::DeleteMeter).collect();
            return self.encode_batch(BatchMode::Plain, 0, items, ripe.up_to, Vec::new());
        }
        let mut items: Vec<Item> = self.meters.to_send().into_iter().map(Item::SetMeter).collect();
        let n_meters = items.len();
        items.extend(self.groups.to_send().into_iter().map(Item::SetGroup));
        let deletions = self.take_listed(&mut items);
        items.extend(deletions);
        items.extend(self.groups.to_delete(self.gate_open).into_iter().map(Item::DeleteGroup));
        let mut mode = if items.len() == 1 || self.n_refused_bundles >= MAX_REFUSED_BUNDLES {
            BatchMode::Plain
        } else {
            BatchMode::Bundle
        };
        // Deleting a meter deletes its flows, so it waits until they use another one.
        let mut meters_left = self.meters.to_delete(self.gate_open);
        if items.is_empty() {
            mode = BatchMode::Plain;
            items.extend(std::mem::take(&mut meters_left).into_iter().map(Item::DeleteMeter));
        }
        if items.is_empty() {
            items.extend(self.take_retries());
        }
        let n_before = if mode == BatchMode::Bundle { n_meters } else { 0 };
        self.encode_batch(mode, n_before, items, self.seq, meters_left)
    }

    /// Moves listed flows into a batch: additions to `items`, deletions into what is returned.
    fn take_listed(&mut self, items: &mut Vec<Item>) -> Vec<Item> {
        let mut deletions = Vec::new();
        for id in std::mem::take(&mut self.listed) {
            let gate_open = self.gate_open;
            let item = self.flows.change(id, |entry| {
                if !entry.marks.take(Marks::LISTED) {
                    return None;
                }
                let aside = entry.marks.has(Marks::REFUSED) || entry.marks.has(Marks::EXPIRED);
                if entry.is_wanted() {
                    (entry.on_switch != OnSwitch::Exact && !aside).then_some(Item::AddFlow(id.0))
                } else {
                    let held = entry.marks.has(Marks::UNCLAIMED) && !gate_open;
                    (entry.on_switch != OnSwitch::Absent && !held).then_some(Item::DeleteFlow(id.0))
                }
            });
            match item.flatten() {
                Some(item @ Item::DeleteFlow(_)) => deletions.push(item),
                Some(item) => items.push(item),
                None => {}
            }
        }
        deletions
    }

    fn encode_batch(
        &mut self,
        mode: BatchMode,
        mut n_before: usize,
        items: Vec<Item>,
        up_to: u64,
        meters_left: Vec<MeterId>,
    ) -> Option<Batch> {
        let mut batch = Batch { mode, ..Batch::default() };
        let mut sent = Vec::with_capacity(items.len());
        let mut unencodable = Vec::new();
        for item in items {
            match self.encode_item(item, &mut batch.bytes) {
                Ok(()) => sent.push(item),
                Err(error) => {
                    if matches!(item, Item::SetMeter(_)) {
                        n_before = n_before.saturating_sub(1);
                    }
                    unencodable.push((item, error));
                }
            }
        }
        for (item, error) in unencodable {
            self.refuse(item, RefusalReason::Encode(error));
        }
        if sent.is_empty() {
            return None;
        }
        for item in &sent {
            self.begin(*item);
        }
        batch.n_before = n_before;
        batch.n_messages = sent.len();
        self.in_flight = Some(InFlight { items: sent, mode, up_to, meters_left });
        Some(batch)
    }

    fn encode_item(&self, item: Item, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let message = match item {
            Item::AddFlow(id) => {
                if let Some(entry) = self.flows.get(FlowId(id)) {
                    entry.view().write_addition(out);
                }
                return Ok(());
            }
            Item::DeleteFlow(id) => {
                if let Some(entry) = self.flows.get(FlowId(id)) {
                    entry.view().write_deletion(out);
                }
                return Ok(());
            }
            Item::SetGroup(id) => self
                .groups
                .get(id)
                .and_then(|object| object.wanted.as_ref())
                .map(|(_, group)| Message::GroupMod(GroupMod::AddOrModify(group.clone()))),
            Item::DeleteGroup(id) => Some(Message::GroupMod(GroupMod::Delete(id))),
            Item::SetMeter(id) => self.meters.get(id).and_then(|object| {
                let (_, meter) = object.wanted.as_ref()?;
                Some(Message::MeterMod(match object.on_switch {
                    OnSwitch::Absent => MeterMod::Add(meter.clone()),
                    OnSwitch::Unknown | OnSwitch::Exact => MeterMod::Modify(meter.clone()),
                }))
            }),
            Item::DeleteMeter(id) => Some(Message::MeterMod(MeterMod::Delete(id))),
        };
        if let Some(message) = message {
            out.extend_from_slice(&message.encode(Xid(0))?);
        }
        Ok(())
    }

    fn begin(&mut self, item: Item) {
        match item {
            Item::AddFlow(id) | Item::DeleteFlow(id) => {
                self.flows.change(FlowId(id), |entry| {
                    entry.marks.put(Marks::IN_FLIGHT);
                    entry.marks.take(Marks::CHANGED);
                    entry.on_switch = OnSwitch::Unknown;
                });
                if let Some(dumping) = &mut self.dumping {
                    dumping.touched.insert(FlowId(id));
                }
            }
            Item::SetGroup(id) | Item::DeleteGroup(id) => {
                self.groups.begin(id);
                self.touch_objects();
            }
            Item::SetMeter(id) | Item::DeleteMeter(id) => {
                self.meters.begin(id);
                self.touch_objects();
            }
        }
    }

    fn touch_objects(&mut self) {
        if let Some(dumping) = &mut self.dumping {
            dumping.objects_touched = true;
        }
    }
}
