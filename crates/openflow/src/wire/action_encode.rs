//! Actions to bytes.
//!
//! Standard actions start with type and length (OpenFlow 1.5.1, section 7.2.6); Nicira's have
//! type 0xffff, length, experimenter 0x2320 and a subtype of 16 bits.

use super::writer::{Out, Put};
use super::{NICIRA, ct, learn, oxm};
use crate::action::{Action, Controller, PacketInReason, Resubmit};
use crate::error::EncodeError;
use crate::field::Field;
use crate::ids::OfPort;
use crate::matching::Masked;
use crate::subfield::Subfield;

/// Appends a list of plain actions.
pub(crate) fn put_list(out: &mut Out, actions: &[Action]) -> Result<(), EncodeError> {
    actions.iter().try_for_each(|action| put(out, action))
}

/// Starts a Nicira action; its length is patched by [`finish`].
pub(super) fn nicira(out: &mut Out, subtype: u16) -> usize {
    let start = out.len();
    out.u16(0xffff);
    out.u16(0);
    out.u32(NICIRA);
    out.u16(subtype);
    start
}

/// Pads an action to 8 bytes and writes its length.
pub(super) fn finish(out: &mut Out, start: usize) -> Result<(), EncodeError> {
    out.pad_from(start, 8);
    out.patch_len(start, 2, "action")
}

/// Appends one plain action.
pub(crate) fn put(out: &mut Out, action: &Action) -> Result<(), EncodeError> {
    match action {
        Action::Output(OfPort::CONTROLLER) => put_output(out, OfPort::CONTROLLER, u16::MAX),
        Action::Output(port) => put_output(out, *port, 0),
        Action::OutputController { max_len } => put_output(out, OfPort::CONTROLLER, *max_len),
        Action::OutputReg(src) => {
            let start = nicira(out, 15);
            out.u16(ofs_nbits(*src)?);
            oxm::put_older_header(out, src.field);
            out.u16(u16::MAX);
            return finish(out, start);
        }
        Action::Controller(controller) => return put_controller(out, controller),
        Action::SetField { field, to } => return put_set_field(out, *field, *to),
        Action::Load { dst, value } => {
            check(*dst)?;
            let to = Masked { value: dst.place(*value), mask: dst.mask() };
            return put_set_field(out, dst.field, to);
        }
        Action::Move { src, dst } => return put_move(out, *src, *dst),
        Action::StackPush(subfield) => return put_stack(out, 27, *subfield),
        Action::StackPop(subfield) => return put_stack(out, 28, *subfield),
        Action::Ct(ct) => return ct::put(out, ct),
        Action::CtClear => {
            let start = nicira(out, 43);
            return finish(out, start);
        }
        Action::Resubmit(resubmit) => return put_resubmit(out, *resubmit),
        Action::DecTtl => put_empty(out, 24),
        Action::DecTtlIds(ids) => {
            let start = nicira(out, 21);
            out.u16(super::writer::len16(ids.len(), "dec_ttl controller ids")?);
            out.zeros(4);
            ids.iter().for_each(|id| out.u16(*id));
            return finish(out, start);
        }
        Action::Learn(learn) => return learn::put(out, learn),
        Action::Conjunction { id, clause, n_clauses } => {
            if *clause == 0 || clause > n_clauses || !(2..=64).contains(n_clauses) {
                return Err(EncodeError::Inexpressible {
                    what: "conjunction",
                    reason: "it has 2 to 64 clauses, numbered from 1",
                });
            }
            let start = nicira(out, 34);
            out.u8(clause - 1);
            out.u8(*n_clauses);
            out.u32(id.0);
            return finish(out, start);
        }
        Action::Group(group) => put_number(out, 22, group.0),
        Action::Meter(meter) => put_number(out, 29, meter.0),
        Action::SetQueue(queue) => put_number(out, 21, *queue),
        Action::Note(bytes) => {
            let start = nicira(out, 8);
            out.extend_from_slice(bytes);
            return finish(out, start);
        }
        Action::PushVlan(ethertype) => {
            out.u16(17);
            out.u16(8);
            out.u16(*ethertype);
            out.u16(0);
        }
        Action::PopVlan => put_empty(out, 18),
        Action::FinTimeout { idle, hard } => {
            let start = nicira(out, 19);
            out.u16(*idle);
            out.u16(*hard);
            return finish(out, start);
        }
        Action::CheckPktLarger { dst, pkt_len } => {
            check(*dst)?;
            let start = nicira(out, 49);
            out.u16(*pkt_len);
            out.u16(dst.offset);
            oxm::put_header(out, dst.field, 0);
            return finish(out, start);
        }
        Action::Clone(actions) => {
            let start = nicira(out, 42);
            out.zeros(6);
            put_list(out, actions)?;
            return finish(out, start);
        }
        Action::Exit => {
            let start = nicira(out, 17);
            return finish(out, start);
        }
        Action::ClearActions
        | Action::WriteActions(_)
        | Action::WriteMetadata { .. }
        | Action::GotoTable(_) => {
            return Err(EncodeError::Inexpressible {
                what: "instruction",
                reason: "it stands only in a flow, after its actions",
            });
        }
    }
    Ok(())
}

fn put_output(out: &mut Out, port: OfPort, max_len: u16) {
    out.u16(0);
    out.u16(16);
    out.u32(port.0);
    out.u16(max_len);
    out.zeros(6);
}

fn put_empty(out: &mut Out, kind: u16) {
    out.u16(kind);
    out.u16(8);
    out.u32(0);
}

fn put_number(out: &mut Out, kind: u16, number: u32) {
    out.u16(kind);
    out.u16(8);
    out.u32(number);
}

fn put_set_field(out: &mut Out, field: Field, to: Masked) -> Result<(), EncodeError> {
    if to.mask == 0 {
        return Err(EncodeError::Inexpressible { what: "set_field", reason: "no bit is set" });
    }
    let start = out.len();
    out.u16(25);
    out.u16(0);
    oxm::put_value(out, field, to);
    finish(out, start)
}

fn put_move(out: &mut Out, src: Subfield, dst: Subfield) -> Result<(), EncodeError> {
    check(src)?;
    check(dst)?;
    if src.n_bits != dst.n_bits {
        return Err(EncodeError::Inexpressible {
            what: "move",
            reason: "source and destination differ in size",
        });
    }
    let start = out.len();
    out.u16(28);
    out.u16(0);
    out.u16(src.n_bits);
    out.u16(src.offset);
    out.u16(dst.offset);
    out.u16(0);
    oxm::put_header(out, src.field, 0);
    oxm::put_header(out, dst.field, 0);
    finish(out, start)
}

fn put_stack(out: &mut Out, subtype: u16, subfield: Subfield) -> Result<(), EncodeError> {
    check(subfield)?;
    let start = nicira(out, subtype);
    out.u16(subfield.offset);
    oxm::put_header(out, subfield.field, 0);
    out.u16(subfield.n_bits);
    finish(out, start)
}

fn put_resubmit(out: &mut Out, resubmit: Resubmit) -> Result<(), EncodeError> {
    let start = nicira(out, if resubmit.ct { 44 } else { 14 });
    out.u16(port16(resubmit.in_port.unwrap_or(OfPort::IN_PORT))?);
    out.u8(resubmit.table.map_or(0xff, |table| table.0));
    finish(out, start)
}

fn put_controller(out: &mut Out, controller: &Controller) -> Result<(), EncodeError> {
    if let Some(max_len) = controller.plain() {
        put_output(out, OfPort::CONTROLLER, max_len);
        return Ok(());
    }
    let Controller { max_len, reason, controller_id, userdata, meter, pause } = controller;
    if userdata.is_empty() && meter.is_none() && !pause {
        let start = nicira(out, 20);
        out.u16(*max_len);
        out.u16(*controller_id);
        out.u8(reason.number());
        return finish(out, start);
    }
    let start = nicira(out, 37);
    out.zeros(6);
    if *max_len != u16::MAX {
        property16(out, 0, *max_len);
    }
    if *controller_id != 0 {
        property16(out, 1, *controller_id);
    }
    if *reason != PacketInReason::Action {
        out.u16(2);
        out.u16(5);
        out.u8(reason.number());
        out.zeros(3);
    }
    if !userdata.is_empty() {
        let at = out.len();
        out.u16(3);
        out.u16(0);
        out.extend_from_slice(userdata);
        out.patch_len(at, 2, "userdata")?;
        out.pad_from(at, 8);
    }
    if *pause {
        out.u16(4);
        out.u16(4);
        out.u32(0);
    }
    if let Some(meter) = meter {
        out.u16(5);
        out.u16(8);
        out.u32(meter.0);
    }
    finish(out, start)
}

fn property16(out: &mut Out, kind: u16, value: u16) {
    out.u16(kind);
    out.u16(8);
    out.u16(value);
    out.u16(0);
}

/// Offset and number of bits, less one, in 16 bits.
pub(super) fn ofs_nbits(subfield: Subfield) -> Result<u16, EncodeError> {
    check(subfield)?;
    if subfield.offset >= 1 << 10 || subfield.n_bits > 64 {
        return Err(EncodeError::Inexpressible {
            what: "subfield",
            reason: "here it has at most 64 bits",
        });
    }
    Ok((subfield.offset << 6) | (subfield.n_bits - 1))
}

pub(super) fn check(subfield: Subfield) -> Result<(), EncodeError> {
    subfield.check().map_err(EncodeError::Match)
}

/// A port in the 16 bits that Nicira's actions have for it.
pub(super) fn port16(port: OfPort) -> Result<u16, EncodeError> {
    let number = if port.0 >= 0xffff_ff00 { port.0 & 0xffff } else { port.0 };
    match u16::try_from(number) {
        Ok(number) if number < 0xff00 || port.0 >= 0xffff_ff00 => Ok(number),
        _ => {
            Err(EncodeError::Inexpressible { what: "port", reason: "here its number has 16 bits" })
        }
    }
}

impl PacketInReason {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::NoMatch => 0,
            Self::Action => 1,
            Self::InvalidTtl => 2,
            Self::ActionSet => 3,
            Self::Group => 4,
            Self::PacketOut => 5,
            Self::Other(number) => number,
        }
    }

    pub(crate) fn from_number(number: u8) -> Self {
        match number {
            0 => Self::NoMatch,
            1 => Self::Action,
            2 => Self::InvalidTtl,
            3 => Self::ActionSet,
            4 => Self::Group,
            5 => Self::PacketOut,
            other => Self::Other(other),
        }
    }
}
