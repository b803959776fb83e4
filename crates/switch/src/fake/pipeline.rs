//! Flows, groups and meters of the fake switch, with Open vSwitch's refusals.

use std::collections::{BTreeMap, BTreeSet};

use openflow::message::{ErrorCode, FlowMod, FlowModCommand, GroupMod, MeterMod};
use openflow::{
    Action, Bucket, BucketId, Cookie, Flow, FlowKey, Group, GroupId, Match, Message, Meter, MeterId,
};

/// Highest number a table can have.
const MAX_TABLE: u8 = 253;

const BAD_TABLE_ID: ErrorCode = ErrorCode::new(5, 2);
const BAD_PREREQ: ErrorCode = ErrorCode::new(4, 9);
const BAD_OUT_GROUP: ErrorCode = ErrorCode::new(2, 9);
const BAD_METER: ErrorCode = ErrorCode::new(3, 4);
const GROUP_EXISTS: ErrorCode = ErrorCode::new(6, 0);
const UNKNOWN_GROUP: ErrorCode = ErrorCode::new(6, 8);
const INVALID_GROUP: ErrorCode = ErrorCode::new(6, 1);
const BAD_BUCKET: ErrorCode = ErrorCode::new(6, 12);
const METER_EXISTS: ErrorCode = ErrorCode::new(12, 1);
const UNKNOWN_METER: ErrorCode = ErrorCode::new(12, 3);
const BAD_TYPE: ErrorCode = ErrorCode::new(1, 1);

/// What a fake switch holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pipeline {
    /// Flows.
    pub flows: BTreeMap<FlowKey, Flow>,
    /// Groups.
    pub groups: BTreeMap<GroupId, Group>,
    /// Meters.
    pub meters: BTreeMap<MeterId, Meter>,
}

impl Pipeline {
    /// Takes a flow-mod, group-mod or meter-mod; anything else is refused.
    pub fn take(&mut self, message: Message) -> Result<(), ErrorCode> {
        match message {
            Message::FlowMod(flow_mod) => self.flow_mod(flow_mod),
            Message::GroupMod(group_mod) => self.group_mod(group_mod),
            Message::MeterMod(meter_mod) => self.meter_mod(meter_mod),
            _ => Err(BAD_TYPE),
        }
    }

    /// Adds a flow as someone beside us would.
    pub fn put(&mut self, flow: Flow) {
        self.flows.insert(flow.key(), flow);
    }

    fn flow_mod(&mut self, flow_mod: FlowMod) -> Result<(), ErrorCode> {
        let FlowMod { command, flow, cookie_mask, .. } = flow_mod;
        if flow.table.0 > MAX_TABLE && command == FlowModCommand::Add {
            return Err(BAD_TABLE_ID);
        }
        flow.check().map_err(|_| BAD_PREREQ)?;
        self.check_actions(&flow.actions)?;
        let mask = cookie_mask.0;
        let cookie_fits = |other: &Flow| other.cookie.0 & mask == flow.cookie.0 & mask;
        match command {
            FlowModCommand::Add => self.put(flow),
            FlowModCommand::ModifyStrict => {
                if let Some(old) = self.flows.get_mut(&flow.key()).filter(|old| cookie_fits(old)) {
                    old.actions = flow.actions;
                }
            }
            FlowModCommand::DeleteStrict => {
                if self.flows.get(&flow.key()).is_some_and(cookie_fits) {
                    self.flows.remove(&flow.key());
                }
            }
            // By cookie, or all of a table: what the programs here use.
            FlowModCommand::Delete if flow.matching == Match::new() => {
                let table = flow.table;
                let in_table = |key: &FlowKey| table.0 > MAX_TABLE || key.table == table;
                self.flows.retain(|key, old| !in_table(key) || !cookie_fits(old));
            }
            FlowModCommand::Delete | FlowModCommand::Modify => return Err(BAD_TYPE),
        }
        Ok(())
    }

    fn check_actions(&self, actions: &[Action]) -> Result<(), ErrorCode> {
        for action in actions {
            match action {
                Action::Group(group) if !self.groups.contains_key(group) => {
                    return Err(BAD_OUT_GROUP);
                }
                Action::Meter(meter) if !self.meters.contains_key(meter) => return Err(BAD_METER),
                _ => {}
            }
        }
        Ok(())
    }

    fn group_mod(&mut self, group_mod: GroupMod) -> Result<(), ErrorCode> {
        match group_mod {
            GroupMod::Add(group) if self.groups.contains_key(&group.id) => Err(GROUP_EXISTS),
            GroupMod::Modify(group) if !self.groups.contains_key(&group.id) => Err(UNKNOWN_GROUP),
            GroupMod::Add(group) | GroupMod::Modify(group) | GroupMod::AddOrModify(group) => {
                check_group(&group)?;
                self.groups.insert(group.id, group);
                Ok(())
            }
            GroupMod::Delete(id) => {
                let all = id == GroupId::ALL;
                self.groups.retain(|group, _| !all && *group != id);
                self.flows.retain(|_, flow| {
                    !flow.actions.iter().any(|action| match action {
                        Action::Group(group) => all || *group == id,
                        _ => false,
                    })
                });
                Ok(())
            }
            GroupMod::InsertBuckets { .. } | GroupMod::RemoveBucket { .. } => Err(BAD_TYPE),
        }
    }

    fn meter_mod(&mut self, meter_mod: MeterMod) -> Result<(), ErrorCode> {
        match meter_mod {
            MeterMod::Add(meter) if self.meters.contains_key(&meter.id) => Err(METER_EXISTS),
            MeterMod::Modify(meter) if !self.meters.contains_key(&meter.id) => Err(UNKNOWN_METER),
            MeterMod::Add(meter) | MeterMod::Modify(meter) => {
                self.meters.insert(meter.id, meter);
                Ok(())
            }
            MeterMod::Delete(id) => {
                self.meters.retain(|meter, _| id != MeterId::ALL && *meter != id);
                self.flows.retain(|_, flow| {
                    !flow.actions.iter().any(|action| match action {
                        Action::Meter(meter) => *meter == id,
                        _ => false,
                    })
                });
                Ok(())
            }
        }
    }

    /// Cookies of all flows.
    pub fn cookies(&self) -> impl Iterator<Item = Cookie> + '_ {
        self.flows.values().map(|flow| flow.cookie)
    }
}

fn check_group(group: &Group) -> Result<(), ErrorCode> {
    /// The highest number a group can have.
    const MAX_GROUP: u32 = 0xffff_ff00;
    if group.id.0 > MAX_GROUP {
        return Err(INVALID_GROUP);
    }
    let mut seen = BTreeSet::new();
    let bad = |bucket: &Bucket| bucket.id > BucketId::MAX || !seen.insert(bucket.id);
    if group.buckets.iter().any(bad) { Err(BAD_BUCKET) } else { Ok(()) }
}
