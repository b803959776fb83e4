//! Match fields: OXM and NXM.
//!
//! ```text
//!  0               2         3
//! +---------------+-------+-+-------+----------------+---------------+
//! | class         | field |m| length| value          | mask (if m)   |
//! +---------------+-------+-+-------+----------------+---------------+
//! ```
//! OpenFlow 1.5.1, section 7.2.3. OVS puts registers into OpenFlow 1.5 as pairs (`xreg`), VLAN as
//! id and priority.

use std::sync::LazyLock;

use super::reader::Reader;
use super::writer::{Out, Put};
use crate::error::{DecodeError, EncodeError};
use crate::field::{self, Field};
use crate::matching::{Masked, Match};
use crate::subfield::ones;

/// Fields by number, one table per class.
struct Numbers {
    nxm0: [Option<Field>; 128],
    nxm1: [Option<Field>; 128],
    basic: [Option<Field>; 128],
}

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| {
    let table = |class| {
        let mut table = [None; 128];
        for (number, slot) in (0u8..).zip(table.iter_mut()) {
            *slot = field::by_number(class, number);
        }
        table
    };
    Numbers { nxm0: table(0), nxm1: table(1), basic: table(0x8000) }
});

fn find(class: u16, number: u8) -> Option<Field> {
    let table = match class {
        0 => &NUMBERS.nxm0,
        1 => &NUMBERS.nxm1,
        0x8000 => &NUMBERS.basic,
        _ => return field::by_number(class, number),
    };
    table.get(usize::from(number)).copied().flatten()
}

/// The header of `field`, without or with a mask following.
pub(crate) fn put_header(out: &mut Out, field: Field, masked: u8) {
    let info = field.info();
    out.u16(info.class);
    out.u8((info.number << 1) | masked);
    out.u8(info.bytes << masked);
}

/// The header of `field` in its NXM form, where it has one: what Nicira's own actions carry.
pub(crate) fn put_older_header(out: &mut Out, field: Field) {
    let info = field.info();
    match info.older.first() {
        Some((class, number)) => {
            out.u16(*class);
            out.u8(number << 1);
            out.u8(info.bytes);
        }
        None => put_header(out, field, 0),
    }
}

/// A condition: `field` with value and, unless the whole field counts, mask.
pub(crate) fn put(out: &mut Out, field: Field, to: Masked) {
    // Of these flags few are known: OVS masks even all of those.
    let few = matches!(field, Field::CtState | Field::TunFlags);
    put_masked(out, field, to, u8::from(few || to.mask != ones(field.info().bits)));
}

/// What an action sets: `field` with value and, unless the whole field is set, mask.
pub(crate) fn put_value(out: &mut Out, field: Field, to: Masked) {
    put_masked(out, field, to, u8::from(to.mask != ones(field.info().bits)));
}

fn put_masked(out: &mut Out, field: Field, to: Masked, masked: u8) {
    let n = usize::from(field.info().bytes);
    put_header(out, field, masked);
    out.number(to.value, n);
    if masked == 1 {
        out.number(to.mask, n);
    }
}

/// All fields of a match, without padding.
pub(super) fn put_fields(out: &mut Out, matching: &Match) -> Result<(), EncodeError> {
    let mut fields = matching.iter().peekable();
    while let Some((field, masked)) = fields.next() {
        match field {
            Field::VlanTci => put_vlan(out, masked)?,
            Field::Reg(n) => {
                let mut high = masked;
                let mut low = Masked { value: 0, mask: 0 };
                if n % 2 == 1 {
                    (high, low) = (low, high);
                } else if let Some((_, second)) = fields.next_if(|(f, _)| *f == Field::Reg(n + 1)) {
                    low = second;
                }
                let pair = Masked {
                    value: (high.value << 32) | low.value,
                    mask: (high.mask << 32) | low.mask,
                };
                put(out, Field::XReg(n / 2), pair);
            }
            _ => put(out, field, masked),
        }
    }
    Ok(())
}

fn put_vlan(out: &mut Out, tci: Masked) -> Result<(), EncodeError> {
    let vid = Masked { value: tci.value & 0x1fff, mask: tci.mask & 0x1fff };
    if vid.mask != 0 {
        put(out, Field::VlanVid, vid);
    }
    match tci.mask >> 13 {
        0 => Ok(()),
        7 if vid.value != 0 => {
            put(out, Field::VlanPcp, Masked { value: tci.value >> 13, mask: 7 });
            Ok(())
        }
        7 => Err(EncodeError::Inexpressible {
            what: "VLAN priority",
            reason: "it needs a VLAN id or 0x1000",
        }),
        _ => Err(EncodeError::Inexpressible {
            what: "VLAN priority",
            reason: "it cannot be masked in OpenFlow 1.5",
        }),
    }
}

/// The match with its own header and padding.
pub(crate) fn put_match(out: &mut Out, matching: &Match) -> Result<(), EncodeError> {
    let start = out.len();
    out.u16(1);
    out.u16(0);
    put_fields(out, matching)?;
    out.patch_len(start, 2, "match")?;
    out.pad_from(start, 8);
    Ok(())
}

/// A field header with what follows told apart.
#[derive(Clone, Copy)]
pub(crate) struct FieldHeader {
    pub(crate) field: Field,
    pub(crate) masked: bool,
    /// Bytes of value and mask.
    pub(crate) len: usize,
}

pub(crate) fn read_header(reader: &mut Reader<'_>) -> Result<FieldHeader, DecodeError> {
    let class = reader.u16()?;
    let number = reader.u8()?;
    let len = reader.u8()?;
    let Some(field) = find(class, number >> 1) else {
        let mut all = (u64::from(class) << 16) | (u64::from(number) << 8) | u64::from(len);
        if class == 0xffff {
            let vendor = reader.u32()?;
            all = (all << 32) | u64::from(vendor);
        }
        return Err(DecodeError::Unknown { what: "match field", number: all });
    };
    Ok(FieldHeader { field, masked: number & 1 != 0, len: len.into() })
}

/// Value (and mask) after a header whose length they have to have.
pub(crate) fn read_value(
    reader: &mut Reader<'_>,
    header: FieldHeader,
) -> Result<(Field, Masked), DecodeError> {
    let mut field = header.field;
    let mut info = field.info();
    let n = header.len >> u8::from(header.masked);
    // The two forms of the ingress port share nothing but their name.
    if field == Field::InPort && n == 2 {
        field = Field::InPort16;
        info = field.info();
    }
    if n != usize::from(info.bytes) || n << u8::from(header.masked) != header.len {
        return Err(DecodeError::BadLength { what: info.name, len: header.len });
    }
    let value = reader.number(n)?;
    let all = ones(info.bits);
    let mask = if header.masked { reader.number(n)? & all } else { all };
    if value & !all != 0 {
        return Err(DecodeError::BadValue {
            what: info.name,
            value: u64::try_from(value).unwrap_or(u64::MAX),
        });
    }
    Ok((field, Masked { value: value & mask, mask }))
}

/// A field with value and mask.
pub(crate) fn read(reader: &mut Reader<'_>) -> Result<(Field, Masked), DecodeError> {
    let header = read_header(reader)?;
    read_value(reader, header)
}

/// What to do about fields this crate does not know.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    /// Refuse the match: it would mean something else without them.
    Refuse,
    /// Leave them out: they only describe a packet.
    Skip,
}

/// Fields until the reader is empty.
pub(crate) fn read_fields(
    mut reader: Reader<'_>,
    unknown: UnknownFields,
) -> Result<Match, DecodeError> {
    let mut matching = Match::new();
    while !reader.is_empty() {
        if unknown == UnknownFields::Skip
            && let &[class_high, class_low, number, len, ..] = reader.peek()
            && find(u16::from_be_bytes([class_high, class_low]), number >> 1).is_none()
        {
            reader.skip(4 + usize::from(len))?;
            continue;
        }
        let (field, masked) = read(&mut reader)?;
        if matching.get(field).is_some_and(|seen| seen.mask & masked.mask != 0) {
            return Err(DecodeError::Duplicate(field.info().name));
        }
        matching.add_masked(field, masked.value, masked.mask);
    }
    Ok(matching)
}

/// A match with its own header and padding.
pub(crate) fn read_match(
    reader: &mut Reader<'_>,
    unknown: UnknownFields,
) -> Result<Match, DecodeError> {
    let mut part = reader.part(2, 8, "match")?;
    let kind = part.u16()?;
    if kind != 1 {
        return Err(DecodeError::Unknown { what: "match type", number: kind.into() });
    }
    part.skip(2)?;
    read_fields(part, unknown)
}
