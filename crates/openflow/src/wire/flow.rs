//! Flow-mod, flow-removed and the flows of a dump.

use super::oxm::UnknownFields;
use super::reader::Reader;
use super::writer::{Out, Put};
use super::{instruction, oxm, oxs};
use crate::error::{DecodeError, EncodeError};
use crate::flow::{Flow, FlowFlags};
use crate::ids::{Cookie, GroupId, OfPort, TableId};
use crate::message::{
    FlowDump, FlowFilter, FlowMod, FlowModCommand, FlowRemoved, FlowRemovedReason, FlowStats,
    UndecodedFlow,
};

const NO_BUFFER: u32 = u32::MAX;

/// A flow-mod and what it refers to, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct FlowModRef<'a> {
    pub(crate) command: FlowModCommand,
    pub(crate) flow: &'a Flow,
    pub(crate) cookie_mask: Cookie,
    pub(crate) out_port: OfPort,
    pub(crate) out_group: GroupId,
}

impl<'a> From<&'a FlowMod> for FlowModRef<'a> {
    fn from(flow_mod: &'a FlowMod) -> Self {
        let FlowMod { command, flow, cookie_mask, out_port, out_group } = flow_mod;
        Self {
            command: *command,
            flow,
            cookie_mask: *cookie_mask,
            out_port: *out_port,
            out_group: *out_group,
        }
    }
}

/// What a flow takes in a dump beside match and instructions: the headers of message and list
/// (16), the flow's own (24), its counters (56).
const DUMP_OVERHEAD: usize = 16 + 24 + 56;

/// How long match and instructions of a flow may be for a dump to show it.
fn check_dump_len(len: usize) -> Result<(), EncodeError> {
    let max = usize::from(u16::MAX) - DUMP_OVERHEAD;
    if len > max {
        return Err(EncodeError::TooLong { what: "match and actions of a flow", len, max });
    }
    Ok(())
}

/// How many bytes of actions fit into a flow with this match.
pub(crate) fn max_actions_len(matching: &crate::matching::Match) -> usize {
    let mut out = Vec::new();
    match oxm::put_match(&mut out, matching) {
        Ok(()) => usize::from(u16::MAX) - DUMP_OVERHEAD - 8 - out.len(),
        Err(_) => 0,
    }
}

/// The body of a flow-mod (OpenFlow 1.5.1, section 7.3.4.2).
pub(crate) fn put_flow_mod(out: &mut Out, flow_mod: FlowModRef<'_>) -> Result<(), EncodeError> {
    let FlowModRef { command, flow, cookie_mask, out_port, out_group } = flow_mod;
    out.u64(flow.cookie.0);
    out.u64(cookie_mask.0);
    out.u8(flow.table.0);
    out.u8(match command {
        FlowModCommand::Add => 0,
        FlowModCommand::Modify => 1,
        FlowModCommand::ModifyStrict => 2,
        FlowModCommand::Delete => 3,
        FlowModCommand::DeleteStrict => 4,
    });
    out.u16(flow.idle_timeout);
    out.u16(flow.hard_timeout);
    out.u16(flow.priority);
    out.u32(NO_BUFFER);
    out.u32(out_port.0);
    out.u32(out_group.0);
    out.u16(flow.flags.bits());
    out.u16(flow.importance);
    let start = out.len();
    oxm::put_match(out, &flow.matching)?;
    instruction::put(out, &flow.actions)?;
    check_dump_len(out.len() - start)
}

pub(crate) fn read_flow_mod(reader: &mut Reader<'_>) -> Result<FlowMod, DecodeError> {
    let cookie = Cookie(reader.u64()?);
    let cookie_mask = Cookie(reader.u64()?);
    let table = TableId(reader.u8()?);
    let command = match reader.u8()? {
        0 => FlowModCommand::Add,
        1 => FlowModCommand::Modify,
        2 => FlowModCommand::ModifyStrict,
        3 => FlowModCommand::Delete,
        4 => FlowModCommand::DeleteStrict,
        other => {
            return Err(DecodeError::Unknown { what: "flow-mod command", number: other.into() });
        }
    };
    let idle_timeout = reader.u16()?;
    let hard_timeout = reader.u16()?;
    let priority = reader.u16()?;
    reader.skip(4)?;
    let out_port = OfPort(reader.u32()?);
    let out_group = GroupId(reader.u32()?);
    let flags = read_flags(reader.u16()?)?;
    let importance = reader.u16()?;
    let matching = oxm::read_match(reader, UnknownFields::Refuse)?;
    let actions = instruction::read(reader)?;
    let flow = Flow {
        table,
        priority,
        cookie,
        matching,
        actions,
        idle_timeout,
        hard_timeout,
        flags,
        importance,
    };
    Ok(FlowMod { command, flow, cookie_mask, out_port, out_group })
}

fn read_flags(flags: u16) -> Result<FlowFlags, DecodeError> {
    FlowFlags::from_bits(flags)
        .ok_or(DecodeError::BadValue { what: "flow flags", value: flags.into() })
}

/// The filter of a flow or aggregate request.
pub(crate) fn put_filter(out: &mut Out, filter: &FlowFilter) -> Result<(), EncodeError> {
    out.u8(filter.table.0);
    out.zeros(3);
    out.u32(filter.out_port.0);
    out.u32(filter.out_group.0);
    out.zeros(4);
    out.u64(filter.cookie.0);
    out.u64(filter.cookie_mask.0);
    oxm::put_match(out, &filter.matching)
}

pub(crate) fn read_filter(reader: &mut Reader<'_>) -> Result<FlowFilter, DecodeError> {
    let table = TableId(reader.u8()?);
    reader.skip(3)?;
    let out_port = OfPort(reader.u32()?);
    let out_group = GroupId(reader.u32()?);
    reader.skip(4)?;
    let cookie = Cookie(reader.u64()?);
    let cookie_mask = Cookie(reader.u64()?);
    let matching = oxm::read_match(reader, UnknownFields::Refuse)?;
    Ok(FlowFilter { table, out_port, out_group, cookie, cookie_mask, matching })
}

/// One flow of a dump (OpenFlow 1.5.1, section 7.3.5.2).
pub(crate) fn put_stats(out: &mut Out, stats: &FlowStats) -> Result<(), EncodeError> {
    let FlowStats { flow, counters } = stats;
    let start = out.len();
    out.u16(0);
    out.zeros(2);
    out.u8(flow.table.0);
    out.u8(0);
    out.u16(flow.priority);
    out.u16(flow.idle_timeout);
    out.u16(flow.hard_timeout);
    out.u16(flow.flags.bits());
    out.u16(flow.importance);
    out.u64(flow.cookie.0);
    oxm::put_match(out, &flow.matching)?;
    oxs::put_counters(out, counters)?;
    instruction::put(out, &flow.actions)?;
    out.patch_len(start, 0, "flow description")
}

/// The flows of one part of a dump.
pub(crate) fn read_dump(reader: &mut Reader<'_>) -> Result<FlowDump, DecodeError> {
    let mut dump = FlowDump::default();
    while !reader.is_empty() {
        let mut part = reader.part(0, 1, "flow description")?;
        match read_stats(&mut part)? {
            Ok(stats) => dump.flows.push(stats),
            Err(undecoded) => dump.undecoded.push(undecoded),
        }
    }
    Ok(dump)
}

/// A flow, or what of it was understood.
fn read_stats(part: &mut Reader<'_>) -> Result<Result<FlowStats, UndecodedFlow>, DecodeError> {
    part.skip(4)?;
    let table = TableId(part.u8()?);
    part.skip(1)?;
    let priority = part.u16()?;
    let idle_timeout = part.u16()?;
    let hard_timeout = part.u16()?;
    let flags = part.u16()?;
    let importance = part.u16()?;
    let cookie = Cookie(part.u64()?);
    let mut undecoded = UndecodedFlow {
        table,
        priority,
        cookie,
        matching: None,
        error: DecodeError::Truncated { what: "flow description", needed: 0, have: 0 },
    };
    let matching = match oxm::read_match(part, UnknownFields::Refuse) {
        Ok(matching) => matching,
        Err(error) => return Ok(Err(UndecodedFlow { error, ..undecoded })),
    };
    let rest = oxs::read_counters(part)
        .and_then(|counters| Ok((counters, read_flags(flags)?, instruction::read(part)?)));
    Ok(match rest {
        Ok((counters, flags, actions)) => Ok(FlowStats {
            flow: Flow {
                table,
                priority,
                cookie,
                matching,
                actions,
                idle_timeout,
                hard_timeout,
                flags,
                importance,
            },
            counters,
        }),
        Err(error) => {
            undecoded.matching = Some(matching);
            Err(UndecodedFlow { error, ..undecoded })
        }
    })
}

pub(crate) fn put_removed(out: &mut Out, removed: &FlowRemoved) -> Result<(), EncodeError> {
    out.u8(removed.table.0);
    out.u8(match removed.reason {
        FlowRemovedReason::IdleTimeout => 0,
        FlowRemovedReason::HardTimeout => 1,
        FlowRemovedReason::Delete => 2,
        FlowRemovedReason::GroupDelete => 3,
        FlowRemovedReason::MeterDelete => 4,
        FlowRemovedReason::Eviction => 5,
        FlowRemovedReason::Other(number) => number,
    });
    out.u16(removed.priority);
    out.u16(removed.idle_timeout);
    out.u16(removed.hard_timeout);
    out.u64(removed.cookie.0);
    oxm::put_match(out, &removed.matching)?;
    oxs::put_counters(out, &removed.counters)
}

pub(crate) fn read_removed(reader: &mut Reader<'_>) -> Result<FlowRemoved, DecodeError> {
    let table = TableId(reader.u8()?);
    let reason = match reader.u8()? {
        0 => FlowRemovedReason::IdleTimeout,
        1 => FlowRemovedReason::HardTimeout,
        2 => FlowRemovedReason::Delete,
        3 => FlowRemovedReason::GroupDelete,
        4 => FlowRemovedReason::MeterDelete,
        5 => FlowRemovedReason::Eviction,
        other => FlowRemovedReason::Other(other),
    };
    let priority = reader.u16()?;
    let idle_timeout = reader.u16()?;
    let hard_timeout = reader.u16()?;
    let cookie = Cookie(reader.u64()?);
    let matching = oxm::read_match(reader, UnknownFields::Refuse)?;
    let counters = oxs::read_counters(reader)?;
    Ok(FlowRemoved {
        table,
        priority,
        cookie,
        matching,
        reason,
        idle_timeout,
        hard_timeout,
        counters,
    })
}
