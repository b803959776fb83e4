//! Bytes to actions.

use super::ct::{checked, subfield};
use super::learn::Extended;
use super::oxm;
use super::reader::Reader;
use super::{NICIRA, ct, learn};
use crate::action::{Action, Controller, PacketInReason, Resubmit};
use crate::error::DecodeError;
use crate::ids::{ConjId, GroupId, MeterId, OfPort, TableId};
use crate::matching::Masked;
use crate::subfield::{Subfield, ones};

/// How deep in other actions an action is.
#[derive(Clone, Copy)]
pub(crate) struct Depth(u8);

impl Depth {
    pub(crate) const TOP: Self = Self(0);

    pub(super) fn deeper(self, what: &'static str) -> Result<Self, DecodeError> {
        if self.0 >= 8 { Err(DecodeError::TooDeep(what)) } else { Ok(Self(self.0 + 1)) }
    }
}

/// Actions until the reader is empty.
pub(crate) fn read_list(reader: &mut Reader<'_>, depth: Depth) -> Result<Vec<Action>, DecodeError> {
    let mut actions = Vec::new();
    read_into(reader, depth, &mut actions)?;
    Ok(actions)
}

/// Actions until the reader is empty, appended to others.
pub(crate) fn read_into(
    reader: &mut Reader<'_>,
    depth: Depth,
    actions: &mut Vec<Action>,
) -> Result<(), DecodeError> {
    while !reader.is_empty() {
        let mut part = action_part(reader)?;
        actions.extend(read(&mut part, depth)?);
    }
    Ok(())
}

/// The next action with its header. Its length counts the padding.
pub(super) fn action_part<'a>(reader: &mut Reader<'a>) -> Result<Reader<'a>, DecodeError> {
    let part = reader.part(2, 8, "action")?;
    if part.len() % 8 == 0 {
        Ok(part)
    } else {
        Err(DecodeError::BadLength { what: "action", len: part.len() })
    }
}

/// One action with its header; nothing for one that does nothing.
pub(crate) fn read(part: &mut Reader<'_>, depth: Depth) -> Result<Option<Action>, DecodeError> {
    let kind = part.u16()?;
    part.skip(2)?;
    let action = match kind {
        0 => {
            let port = OfPort(part.u32()?);
            let max_len = part.u16()?;
            if port == OfPort::CONTROLLER {
                Action::OutputController { max_len }
            } else {
                Action::Output(port)
            }
        }
        17 => Action::PushVlan(part.u16()?),
        18 => Action::PopVlan,
        21 => Action::SetQueue(part.u32()?),
        22 => Action::Group(GroupId(part.u32()?)),
        24 => Action::DecTtl,
        25 => {
            let (field, to) = oxm::read(part)?;
            // A mask without bits sets nothing.
            return Ok((to.mask != 0).then_some(Action::SetField { field, to }));
        }
        28 => {
            let n_bits = part.u16()?;
            let src_offset = part.u16()?;
            let dst_offset = part.u16()?;
            part.skip(2)?;
            let src = Subfield { field: oxm::read_header(part)?.field, offset: src_offset, n_bits };
            let dst = Subfield { field: oxm::read_header(part)?.field, offset: dst_offset, n_bits };
            Action::Move { src: checked(src)?, dst: checked(dst)? }
        }
        29 => Action::Meter(MeterId(part.u32()?)),
        0xffff => {
            let experimenter = part.u32()?;
            if experimenter != NICIRA {
                return Err(DecodeError::Unknown {
                    what: "action of experimenter",
                    number: experimenter.into(),
                });
            }
            return read_nicira(part, depth).map(Some);
        }
        _ => return Err(DecodeError::Unknown { what: "action", number: kind.into() }),
    };
    Ok(Some(action))
}

fn read_nicira(part: &mut Reader<'_>, depth: Depth) -> Result<Action, DecodeError> {
    let subtype = part.u16()?;
    Ok(match subtype {
        1 => Action::Resubmit(Resubmit { in_port: in_port(part.u16()?), table: None, ct: false }),
        6 => {
            let n_bits = part.u16()?;
            let src_offset = part.u16()?;
            let dst_offset = part.u16()?;
            let src = Subfield { field: oxm::read_header(part)?.field, offset: src_offset, n_bits };
            let dst = Subfield { field: oxm::read_header(part)?.field, offset: dst_offset, n_bits };
            Action::Move { src: checked(src)?, dst: checked(dst)? }
        }
        7 => {
            let bits = part.u16()?;
            let dst = subfield(oxm::read_header(part)?.field, bits)?;
            Action::load(dst, part.u64()?.into())
        }
        8 => Action::Note(part.rest().to_vec()),
        14 | 44 => {
            let port = part.u16()?;
            let table = part.u8()?;
            Action::Resubmit(Resubmit {
                in_port: in_port(port),
                table: (table != 0xff).then_some(TableId(table)),
                ct: subtype == 44,
            })
        }
        15 => {
            let bits = part.u16()?;
            Action::OutputReg(subfield(oxm::read_header(part)?.field, bits)?)
        }
        16 => Action::learn(learn::read(part, Extended::No)?),
        17 => Action::Exit,
        19 => Action::FinTimeout { idle: part.u16()?, hard: part.u16()? },
        20 => Action::controller(Controller {
            max_len: part.u16()?,
            controller_id: part.u16()?,
            reason: PacketInReason::from_number(part.u8()?),
            ..Controller::default()
        })
        .normalize(),
        21 => {
            let n = part.u16()?;
            part.skip(4)?;
            let ids = (0..n).map(|_| part.u16()).collect::<Result<Vec<_>, _>>()?;
            Action::DecTtlIds(ids)
        }
        27 | 28 => {
            let offset = part.u16()?;
            let field = oxm::read_header(part)?.field;
            let subfield = checked(Subfield { field, offset, n_bits: part.u16()? })?;
            if subtype == 27 { Action::StackPush(subfield) } else { Action::StackPop(subfield) }
        }
        33 => {
            part.skip(6)?;
            let (field, to) = oxm::read(part)?;
            Action::SetField { field, to: nonzero(to, field)? }
        }
        34 => {
            let clause = part.u8()?;
            let n_clauses = part.u8()?;
            if clause >= n_clauses || !(2..=64).contains(&n_clauses) {
                return Err(DecodeError::BadValue { what: "clause", value: clause.into() });
            }
            Action::Conjunction { id: ConjId(part.u32()?), clause: clause + 1, n_clauses }
        }
        35 => Action::ct(ct::read(part, depth)?),
        37 => Action::controller(read_controller(part)?).normalize(),
        42 => {
            part.skip(6)?;
            Action::Clone(read_list(part, depth.deeper("clone")?)?)
        }
        43 => Action::CtClear,
        45 => Action::learn(learn::read(part, Extended::Yes)?),
        49 => {
            let pkt_len = part.u16()?;
            let offset = part.u16()?;
            let field = oxm::read_header(part)?.field;
            Action::CheckPktLarger { dst: checked(Subfield { field, offset, n_bits: 1 })?, pkt_len }
        }
        _ => return Err(DecodeError::Unknown { what: "Nicira action", number: subtype.into() }),
    })
}

fn nonzero(to: Masked, field: crate::field::Field) -> Result<Masked, DecodeError> {
    if to.mask & ones(field.info().bits) == 0 {
        return Err(DecodeError::BadValue { what: "mask", value: 0 });
    }
    Ok(to)
}

fn in_port(number: u16) -> Option<OfPort> {
    let port = port32(number);
    (port != OfPort::IN_PORT).then_some(port)
}

/// A port of 16 bits in 32.
pub(super) fn port32(number: u16) -> OfPort {
    if number >= 0xff00 { OfPort(0xffff_0000 | u32::from(number)) } else { OfPort(number.into()) }
}

fn read_controller(part: &mut Reader<'_>) -> Result<Controller, DecodeError> {
    part.skip(6)?;
    let mut controller = Controller::default();
    while !part.is_empty() {
        let mut property = part.part(2, 8, "controller property")?;
        let kind = property.u16()?;
        property.skip(2)?;
        match kind {
            0 => controller.max_len = property.u16()?,
            1 => controller.controller_id = property.u16()?,
            2 => controller.reason = PacketInReason::from_number(property.u8()?),
            3 => controller.userdata = property.rest().to_vec(),
            4 => controller.pause = true,
            5 => controller.meter = Some(MeterId(property.u32()?)),
            _ => {
                return Err(DecodeError::Unknown {
                    what: "controller property",
                    number: kind.into(),
                });
            }
        }
    }
    Ok(controller)
}
