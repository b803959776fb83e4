//! Connection tracking and address translation.
//!
//! ```text
//! ct:  subtype 35 | flags 16 | zone field 32 | zone or bits 16 | table 8 | 0 x 24 | alg 16 | actions
//! nat: subtype 36 | 0 x 16 | flags 16 | present 16 | addresses and ports that are present
//! ```

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::action_decode::{self, Depth};
use super::action_encode::{finish, nicira, ofs_nbits, put_list};
use super::oxm;
use super::reader::Reader;
use super::writer::{Out, Put};
use crate::action::{Ct, CtZone, Nat, NatDirection, NatRange};
use crate::error::{DecodeError, EncodeError};
use crate::ids::TableId;
use crate::subfield::Subfield;

pub(super) fn put(out: &mut Out, ct: &Ct) -> Result<(), EncodeError> {
    let start = nicira(out, 35);
    out.u16(u16::from(ct.commit) | (u16::from(ct.force) << 1));
    match ct.zone {
        CtZone::Imm(zone) => {
            out.u32(0);
            out.u16(zone);
        }
        CtZone::Field(subfield) => {
            let bits = ofs_nbits(subfield)?;
            oxm::put_older_header(out, subfield.field);
            out.u16(bits);
        }
    }
    out.u8(ct.table.map_or(0xff, |table| table.0));
    out.zeros(3);
    out.u16(ct.alg.unwrap_or(0));
    if let Some(nat) = &ct.nat {
        put_nat(out, nat)?;
    }
    put_list(out, &ct.exec)?;
    finish(out, start)
}

fn put_nat(out: &mut Out, nat: &Nat) -> Result<(), EncodeError> {
    let start = nicira(out, 36);
    out.u16(0);
    let direction = match nat.direction {
        None => 0,
        Some(NatDirection::Src) => 1,
        Some(NatDirection::Dst) => 2,
    };
    out.u16(
        direction
            | (u16::from(nat.persistent) << 2)
            | (u16::from(nat.hash) << 3)
            | (u16::from(nat.random) << 4),
    );
    let present_at = out.len();
    out.u16(0);
    let mut present = 0;
    match nat.addresses {
        None => {}
        Some(NatRange { first: IpAddr::V4(first), last }) => {
            present |= 1;
            out.extend_from_slice(&first.octets());
            match last {
                None => {}
                Some(IpAddr::V4(last)) => {
                    present |= 2;
                    out.extend_from_slice(&last.octets());
                }
                Some(IpAddr::V6(_)) => return Err(MIXED),
            }
        }
        Some(NatRange { first: IpAddr::V6(first), last }) => {
            present |= 4;
            out.extend_from_slice(&first.octets());
            match last {
                None => {}
                Some(IpAddr::V6(last)) => {
                    present |= 8;
                    out.extend_from_slice(&last.octets());
                }
                Some(IpAddr::V4(_)) => return Err(MIXED),
            }
        }
    }
    if let Some(ports) = nat.ports {
        present |= 16;
        out.u16(ports.first);
        if let Some(last) = ports.last {
            present |= 32;
            out.u16(last);
        }
    }
    out[present_at..present_at + 2].copy_from_slice(&u16::to_be_bytes(present));
    finish(out, start)
}

const MIXED: EncodeError =
    EncodeError::Inexpressible { what: "nat range", reason: "its ends are of different families" };

/// Reads what follows the subtype of a ct action.
pub(super) fn read(reader: &mut Reader<'_>, depth: Depth) -> Result<Ct, DecodeError> {
    let flags = reader.u16()?;
    if flags & !3 != 0 {
        return Err(DecodeError::BadValue { what: "ct flags", value: flags.into() });
    }
    let zone = if reader.peek().starts_with(&[0; 4]) {
        reader.skip(4)?;
        CtZone::Imm(reader.u16()?)
    } else {
        let field = oxm::read_header(reader)?.field;
        CtZone::Field(subfield(field, reader.u16()?)?)
    };
    let table = reader.u8()?;
    reader.skip(3)?;
    let alg = reader.u16()?;
    let mut ct = Ct {
        commit: flags & 1 != 0,
        force: flags & 2 != 0,
        zone,
        table: (table != 0xff).then_some(TableId(table)),
        nat: None,
        exec: Vec::new(),
        alg: (alg != 0).then_some(alg),
    };
    let deeper = depth.deeper("ct")?;
    while !reader.is_empty() {
        let mut part = action_decode::action_part(reader)?;
        match nat_body(&part) {
            Some(mut body) if ct.nat.is_none() && ct.exec.is_empty() => {
                ct.nat = Some(read_nat(&mut body)?);
            }
            Some(_) => {
                return Err(DecodeError::Unknown { what: "place of nat in ct, type", number: 36 });
            }
            None => {
                if let Some(action) = action_decode::read(&mut part, deeper)? {
                    ct.exec.push(action);
                }
            }
        }
    }
    Ok(ct)
}

/// What follows the subtype, if the action is nat.
fn nat_body<'a>(part: &Reader<'a>) -> Option<Reader<'a>> {
    let body = part.peek().strip_prefix(&[0xff, 0xff])?.get(2..)?;
    body.strip_prefix(&[0, 0, 0x23, 0x20, 0, 36]).map(|body| Reader::new(body, "nat"))
}

fn read_nat(reader: &mut Reader<'_>) -> Result<Nat, DecodeError> {
    reader.skip(2)?;
    let flags = reader.u16()?;
    let present = reader.u16()?;
    let direction = match flags & 3 {
        0 => None,
        1 => Some(NatDirection::Src),
        2 => Some(NatDirection::Dst),
        _ => return Err(DecodeError::BadValue { what: "nat flags", value: flags.into() }),
    };
    if flags & !0x1f != 0 {
        return Err(DecodeError::BadValue { what: "nat flags", value: flags.into() });
    }
    let bad = DecodeError::BadValue { what: "nat ranges present", value: present.into() };
    let v4 = |reader: &mut Reader<'_>| reader.u32().map(|a| IpAddr::from(Ipv4Addr::from(a)));
    let v6 = |reader: &mut Reader<'_>| reader.u128().map(|a| IpAddr::from(Ipv6Addr::from(a)));
    let addresses = match present & 15 {
        0 => None,
        1 => Some(NatRange { first: v4(reader)?, last: None }),
        3 => Some(NatRange { first: v4(reader)?, last: Some(v4(reader)?) }),
        4 => Some(NatRange { first: v6(reader)?, last: None }),
        12 => Some(NatRange { first: v6(reader)?, last: Some(v6(reader)?) }),
        _ => return Err(bad),
    };
    let ports = match present >> 4 {
        0 => None,
        1 => Some(NatRange { first: reader.u16()?, last: None }),
        3 => Some(NatRange { first: reader.u16()?, last: Some(reader.u16()?) }),
        _ => return Err(bad),
    };
    Ok(Nat {
        direction,
        addresses,
        ports,
        persistent: flags & 4 != 0,
        hash: flags & 8 != 0,
        random: flags & 16 != 0,
    })
}

/// The subfield that 16 bits of offset and size tell.
pub(super) fn subfield(
    field: crate::field::Field,
    ofs_nbits: u16,
) -> Result<Subfield, DecodeError> {
    let subfield = Subfield { field, offset: ofs_nbits >> 6, n_bits: (ofs_nbits & 63) + 1 };
    checked(subfield)
}

pub(super) fn checked(subfield: Subfield) -> Result<Subfield, DecodeError> {
    match subfield.check() {
        Ok(()) => Ok(subfield),
        Err(_) => Err(DecodeError::BadValue {
            what: "bits of a field",
            value: (u64::from(subfield.offset) << 16) | u64::from(subfield.n_bits),
        }),
    }
}
