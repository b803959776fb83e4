//! A switch of a few lines with the reconciler in front of it, and what tests put into it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::message::{ErrorCode, FlowModCommand, GroupMod, MeterMod};
use openflow::{
    Action, Cookie, Flow, FlowKey, Group, GroupId, Intent, Match, Message, Meter, MeterId, TableId,
};

use super::super::*;

pub(super) const A: Owner = Owner(1);
pub(super) const B: Owner = Owner(2);
pub(super) const BAD_GROUP: ErrorCode = ErrorCode::new(2, 9);

/// A switch that keeps what it is told, and the reconciler in front of it.
pub(super) struct World {
    pub(super) state: State,
    pub(super) flows: BTreeMap<FlowKey, Flow>,
    pub(super) groups: BTreeMap<GroupId, Group>,
    pub(super) meters: BTreeMap<MeterId, Meter>,
    /// Groups and meters that are not understood when they are read.
    pub(super) odd_groups: BTreeSet<GroupId>,
    pub(super) odd_meters: BTreeSet<MeterId>,
    /// Batches as they were sent: mode, and messages in words.
    pub(super) sent: Vec<(BatchMode, Vec<String>)>,
    pub(super) reports: Vec<Refusal>,
    pub(super) reached: Vec<(BarrierId, Vec<Refusal>)>,
    /// Batches and dumps that were not answered yet.
    pub(super) waiting: Vec<Op>,
}

fn read<K: Ord + Copy, T: Clone>(
    all: &BTreeMap<K, T>,
    odd: &BTreeSet<K>,
    wanted: bool,
) -> Vec<(K, Option<T>)> {
    let all = all.iter().filter(|_| wanted);
    all.map(|(id, object)| (*id, (!odd.contains(id)).then(|| object.clone()))).collect()
}

impl World {
    pub(super) fn new(mode: SyncMode) -> Self {
        Self {
            state: State::new(mode, 0xa17e),
            flows: BTreeMap::new(),
            groups: BTreeMap::new(),
            meters: BTreeMap::new(),
            odd_groups: BTreeSet::new(),
            odd_meters: BTreeSet::new(),
            sent: Vec::new(),
            reports: Vec::new(),
            reached: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Connected, and everything read.
    pub(super) fn connected() -> Self {
        let mut world = Self::new(SyncMode::Incremental);
        world.step(Event::Register(A));
        world.step(Event::Connected);
        world.settle();
        world
    }

    pub(super) fn step(&mut self, event: Event) {
        for op in self.state.step(event) {
            match op {
                Op::Report(refusal) => self.reports.push(refusal),
                Op::BarrierDone(id, refusals) => self.reached.push((id, refusals)),
                op => self.waiting.push(op),
            }
        }
    }

    pub(super) fn set(&mut self, owner: Owner, key: &str, intents: Vec<Intent>) {
        let key: Arc<str> = key.into();
        let intents = EncodedIntents::new(owner, &key, intents);
        self.step(Event::Set { owner, key, intents });
    }

    pub(super) fn remove(&mut self, owner: Owner, key: &str) {
        self.step(Event::Remove { owner, key: key.into() });
    }

    pub(super) fn barrier(&mut self, id: u64) {
        self.step(Event::Barrier { id: BarrierId(id), scope: None });
    }

    /// Answers one thing that was asked. Returns whether there was one.
    pub(super) fn answer(&mut self) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        match self.waiting.remove(0) {
            Op::Send(batch) => {
                let outcome = self.take_batch(&batch);
                self.step(Event::BatchDone(outcome));
            }
            Op::Dump(scope) => {
                let dump = self.dump(scope);
                self.step(Event::Dumped(dump));
            }
            Op::CountTables => {
                let tables: BTreeSet<TableId> = self.flows.keys().map(|key| key.table).collect();
                self.step(Event::TableCounts(tables.into_iter().collect()));
            }
            Op::Report(_) | Op::BarrierDone(..) => unreachable!("never put there"),
        }
        true
    }

    /// Flushes and answers until nothing more is asked.
    pub(super) fn settle(&mut self) {
        self.step(Event::Flush);
        for _ in 0..1000 {
            if !self.answer() {
                return;
            }
        }
        panic!("does not settle: {:?}", self.sent);
    }

    pub(super) fn dump(&self, scope: DumpScope) -> Dump {
        let in_scope = |flow: &&Flow| match scope {
            DumpScope::All => true,
            DumpScope::Objects => false,
            DumpScope::Table(table) => flow.table == table,
        };
        let flows = self.flows.values().filter(in_scope).cloned();
        let objects = !matches!(scope, DumpScope::Table(_));
        Dump {
            scope,
            flows: flows.map(|flow| EncodedFlow::new(flow).unwrap()).collect(),
            groups: read(&self.groups, &self.odd_groups, objects),
            meters: read(&self.meters, &self.odd_meters, objects),
        }
    }

    /// What a switch does with a batch: a bundle is all or nothing and stops at its first error.
    pub(super) fn take_batch(&mut self, batch: &Batch) -> Outcome {
        let messages: Vec<Message> =
            batch.messages().map(|bytes| Message::decode(bytes).unwrap().1).collect();
        assert_eq!(messages.len(), batch.n_messages);
        self.sent.push((batch.mode, messages.iter().map(in_words).collect()));
        let before = (self.flows.clone(), self.groups.clone());
        let mut outcome = Outcome { committed: true, errors: Vec::new() };
        for (index, message) in messages.into_iter().enumerate() {
            let bundled = batch.mode == BatchMode::Bundle && index >= batch.n_before;
            assert!(!bundled || !matches!(message, Message::MeterMod(_)), "meters do not bundle");
            if let Err(code) = self.take(message) {
                outcome.errors.push((index, code));
                if bundled {
                    outcome.committed = false;
                    (self.flows, self.groups) = before;
                    break;
                }
            }
        }
        outcome
    }

    pub(super) fn take(&mut self, message: Message) -> Result<(), ErrorCode> {
        match message {
            Message::FlowMod(flow_mod) if flow_mod.command == FlowModCommand::Add => {
                for action in &flow_mod.flow.actions {
                    if let Action::Group(group) = action
                        && !self.groups.contains_key(group)
                    {
                        return Err(BAD_GROUP);
                    }
                }
                self.flows.insert(flow_mod.flow.key(), flow_mod.flow);
            }
            Message::FlowMod(flow_mod) => {
                assert_eq!(flow_mod.command, FlowModCommand::DeleteStrict);
                assert_eq!(flow_mod.cookie_mask, Cookie(0));
                self.flows.remove(&flow_mod.flow.key());
            }
            Message::GroupMod(GroupMod::AddOrModify(group)) => {
                self.groups.insert(group.id, group);
            }
            Message::GroupMod(GroupMod::Delete(id)) => {
                self.groups.remove(&id);
                self.flows.retain(|_, flow| !flow.actions.contains(&Action::Group(id)));
            }
            Message::MeterMod(MeterMod::Add(meter)) => {
                assert!(self.meters.insert(meter.id, meter).is_none(), "the meter is new");
            }
            Message::MeterMod(MeterMod::Modify(meter)) => {
                assert!(self.meters.insert(meter.id, meter).is_some(), "the meter is there");
            }
            Message::MeterMod(MeterMod::Delete(id)) => {
                self.meters.remove(&id);
            }
            other => panic!("unexpected {other:?}"),
        }
        Ok(())
    }

    pub(super) fn priorities(&self) -> Vec<u16> {
        self.flows.values().map(|flow| flow.priority).collect()
    }

    pub(super) fn n_sent(&self) -> usize {
        self.sent.iter().map(|(_, messages)| messages.len()).sum()
    }
}

pub(super) fn in_words(message: &Message) -> String {
    match message {
        Message::FlowMod(m) if m.command == FlowModCommand::Add => {
            format!("+flow {}", m.flow.priority)
        }
        Message::FlowMod(m) => format!("-flow {}", m.flow.priority),
        Message::GroupMod(GroupMod::AddOrModify(group)) => format!("+group {}", group.id),
        Message::GroupMod(GroupMod::Delete(id)) => format!("-group {id}"),
        Message::MeterMod(MeterMod::Add(meter)) => format!("+meter {}", meter.id),
        Message::MeterMod(MeterMod::Modify(meter)) => format!("*meter {}", meter.id),
        Message::MeterMod(MeterMod::Delete(id)) => format!("-meter {id}"),
        other => format!("{other:?}"),
    }
}

pub(super) fn mk_plain(priority: u16) -> Flow {
    Flow::new(TableId(0), priority, Match::new().ip()).cookie(Cookie(0xa17e_0100_0000_0001))
}

pub(super) fn mk_flow(priority: u16) -> Intent {
    mk_plain(priority).into()
}

pub(super) fn mk_to(priority: u16, action: Action) -> Intent {
    mk_plain(priority).action(action).into()
}

pub(super) fn mk_group(id: u32) -> Intent {
    Group::all(GroupId(id)).into()
}

pub(super) fn mk_meter(id: u32, rate: u32) -> Intent {
    Meter::packets_per_second(MeterId(id), rate, 1).into()
}
