//! Learn actions.
//!
//! ```text
//! subtype 16 or 45 | idle 16 | hard 16 | priority 16 | cookie 64 | flags 16 | table 8 | 0 x 8
//! | fin idle 16 | fin hard 16 | (45: limit 32 | result bit 16 | 0 x 16 | result field 32) | specs
//! spec: 0 x 2 | immediate 1 | match 0, load 1, output 2 (2 bits) | 0 | bits 10
//!       | value padded to 16 bits, or field 32 and offset 16 | field 32 and offset 16
//! ```

use super::action_encode::{check, finish, nicira};
use super::ct::checked;
use super::oxm;
use super::reader::Reader;
use super::writer::{Out, Put};
use crate::action::{Learn, LearnFlags, LearnSource, LearnSpec};
use crate::error::{DecodeError, EncodeError};
use crate::ids::{Cookie, TableId};
use crate::subfield::Subfield;

const IMMEDIATE: u16 = 1 << 13;
const LOAD: u16 = 1 << 11;
const OUTPUT: u16 = 2 << 11;

pub(super) fn put(out: &mut Out, learn: &Learn) -> Result<(), EncodeError> {
    let extended = learn.limit != 0 || learn.result_dst.is_some();
    let start = nicira(out, if extended { 45 } else { 16 });
    out.u16(learn.idle_timeout);
    out.u16(learn.hard_timeout);
    out.u16(learn.priority);
    out.u64(learn.cookie.0);
    let mut flags = learn.flags & !LearnFlags::WRITE_RESULT;
    if learn.result_dst.is_some() {
        flags |= LearnFlags::WRITE_RESULT;
    }
    out.u16(flags.bits());
    out.u8(learn.table.0);
    out.u8(0);
    out.u16(learn.fin_idle_timeout);
    out.u16(learn.fin_hard_timeout);
    if extended {
        out.u32(learn.limit);
        out.u16(learn.result_dst.map_or(0, |result| result.offset));
        out.u16(0);
        if let Some(result) = learn.result_dst {
            check(result)?;
            oxm::put_older_header(out, result.field);
        }
    }
    for spec in &learn.specs {
        match spec {
            LearnSpec::Match { dst, src } => put_spec(out, 0, *src, Some(*dst))?,
            LearnSpec::Load { dst, src } => put_spec(out, LOAD, *src, Some(*dst))?,
            LearnSpec::Output(src) => put_spec(out, OUTPUT, LearnSource::Field(*src), None)?,
        }
    }
    finish(out, start)
}

fn put_spec(
    out: &mut Out,
    kind: u16,
    src: LearnSource,
    dst: Option<Subfield>,
) -> Result<(), EncodeError> {
    let n_bits = match (dst, src) {
        (Some(dst), _) => dst.n_bits,
        (None, LearnSource::Field(src)) => src.n_bits,
        (None, LearnSource::Value(_)) => 16,
    };
    match src {
        LearnSource::Value(value) => {
            out.u16(kind | IMMEDIATE | n_bits);
            out.number(value, usize::from(n_bits.div_ceil(16) * 2));
        }
        LearnSource::Field(src) => {
            check(src)?;
            if src.n_bits != n_bits {
                return Err(EncodeError::Inexpressible {
                    what: "learn",
                    reason: "source and destination differ in size",
                });
            }
            out.u16(kind | n_bits);
            oxm::put_older_header(out, src.field);
            out.u16(src.offset);
        }
    }
    if let Some(dst) = dst {
        check(dst)?;
        oxm::put_older_header(out, dst.field);
        out.u16(dst.offset);
    }
    Ok(())
}

/// Reads what follows the subtype.
pub(super) fn read(reader: &mut Reader<'_>, extended: Extended) -> Result<Learn, DecodeError> {
    let mut learn = Learn::new(TableId(0), 0);
    learn.idle_timeout = reader.u16()?;
    learn.hard_timeout = reader.u16()?;
    learn.priority = reader.u16()?;
    learn.cookie = Cookie(reader.u64()?);
    let flags = reader.u16()?;
    learn.flags = LearnFlags::from_bits(flags)
        .ok_or(DecodeError::BadValue { what: "learn flags", value: flags.into() })?;
    learn.table = TableId(reader.u8()?);
    reader.skip(1)?;
    learn.fin_idle_timeout = reader.u16()?;
    learn.fin_hard_timeout = reader.u16()?;
    if extended == Extended::Yes {
        learn.limit = reader.u32()?;
        let offset = reader.u16()?;
        reader.skip(2)?;
        if learn.flags.contains(LearnFlags::WRITE_RESULT) {
            let field = oxm::read_header(reader)?.field;
            learn.result_dst = Some(checked(Subfield { field, offset, n_bits: 1 })?);
        }
    }
    learn.flags.remove(LearnFlags::WRITE_RESULT);
    while reader.len() >= 2 {
        let header = reader.u16()?;
        if header == 0 {
            break;
        }
        learn.specs.push(read_spec(reader, header)?);
    }
    Ok(learn)
}

/// Whether the action has the later form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extended {
    No,
    Yes,
}

fn read_spec(reader: &mut Reader<'_>, header: u16) -> Result<LearnSpec, DecodeError> {
    let bad = DecodeError::BadValue { what: "learn spec", value: header.into() };
    let n_bits = header & 0x3ff;
    if header & !(IMMEDIATE | (3 << 11) | 0x3ff) != 0 || n_bits == 0 || n_bits > 128 {
        return Err(bad);
    }
    let subfield = |reader: &mut Reader<'_>| {
        let field = oxm::read_header(reader)?.field;
        checked(Subfield { field, offset: reader.u16()?, n_bits })
    };
    let src = if header & IMMEDIATE != 0 {
        let value = reader.number(usize::from(n_bits.div_ceil(16) * 2))?;
        LearnSource::Value(value & crate::subfield::ones(n_bits))
    } else {
        LearnSource::Field(subfield(reader)?)
    };
    match (header & (3 << 11), src) {
        (0, src) => Ok(LearnSpec::Match { dst: subfield(reader)?, src }),
        (LOAD, src) => Ok(LearnSpec::Load { dst: subfield(reader)?, src }),
        (OUTPUT, LearnSource::Field(src)) => Ok(LearnSpec::Output(src)),
        _ => Err(bad),
    }
}
