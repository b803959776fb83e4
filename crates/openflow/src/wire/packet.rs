//! Packet-ins of both forms, packet-outs, resumed packets.

use bytes::Bytes;

use super::action_decode::{self, Depth};
use super::oxm::{self, UnknownFields};
use super::reader::Reader;
use super::writer::{Out, Put, len16};
use super::{NICIRA, action_encode};
use crate::action::PacketInReason;
use crate::error::{DecodeError, EncodeError};
use crate::ids::{Cookie, TableId};
use crate::matching::Match;
use crate::message::{PacketIn, PacketOut};

const NO_BUFFER: u32 = u32::MAX;

/// Properties of the Nicira form.
const PACKET: u16 = 0;
const FULL_LEN: u16 = 1;
const TABLE: u16 = 3;
const COOKIE: u16 = 4;
const REASON: u16 = 5;
const METADATA: u16 = 6;
const USERDATA: u16 = 7;
const CONTINUATION: u16 = 8;

/// The standard form (OpenFlow 1.5.1, section 7.4.1).
pub(crate) fn read_in(reader: &mut Reader<'_>) -> Result<PacketIn, DecodeError> {
    reader.skip(4)?;
    let full_len = reader.u16()?;
    let reason = PacketInReason::from_number(reader.u8()?);
    let table = TableId(reader.u8()?);
    let cookie = Cookie(reader.u64()?);
    let metadata = oxm::read_match(reader, UnknownFields::Skip)?;
    reader.skip(2)?;
    Ok(PacketIn {
        data: Bytes::copy_from_slice(reader.rest()),
        full_len: full_len.into(),
        table,
        cookie,
        reason,
        metadata,
        userdata: Bytes::new(),
        continuation: None,
    })
}

pub(crate) fn read_in2(reader: &mut Reader<'_>) -> Result<PacketIn, DecodeError> {
    let mut packet = PacketIn {
        data: Bytes::new(),
        full_len: 0,
        table: TableId(0),
        cookie: Cookie(0),
        reason: PacketInReason::Other(0xff),
        metadata: Match::new(),
        userdata: Bytes::new(),
        continuation: None,
    };
    let mut full_len = None;
    while !reader.is_empty() {
        let mut property = reader.part(2, 8, "packet-in property")?;
        let kind = property.u16()?;
        property.skip(2)?;
        match kind {
            PACKET => packet.data = Bytes::copy_from_slice(property.rest()),
            FULL_LEN => full_len = Some(property.u32()?),
            TABLE => packet.table = TableId(property.u8()?),
            COOKIE => {
                property.skip(4)?;
                packet.cookie = Cookie(property.u64()?);
            }
            REASON => packet.reason = PacketInReason::from_number(property.u8()?),
            METADATA => packet.metadata = oxm::read_fields(property, UnknownFields::Skip)?,
            USERDATA => packet.userdata = Bytes::copy_from_slice(property.rest()),
            CONTINUATION => {
                // The content is aligned to 8 bytes.
                property.skip(4)?;
                packet.continuation = Some(Bytes::copy_from_slice(property.rest()));
            }
            // A later switch may tell more about a packet.
            _ => {}
        }
    }
    packet.full_len =
        full_len.unwrap_or_else(|| u32::try_from(packet.data.len()).unwrap_or(u32::MAX));
    Ok(packet)
}

/// The Nicira form, as a packet-in (30) or as a resumed packet (28).
pub(crate) fn put_in2(out: &mut Out, subtype: u32, packet: &PacketIn) -> Result<(), EncodeError> {
    out.u32(NICIRA);
    out.u32(subtype);
    put_bytes(out, PACKET, &packet.data)?;
    if usize::try_from(packet.full_len).ok() != Some(packet.data.len()) {
        out.u16(FULL_LEN);
        out.u16(8);
        out.u32(packet.full_len);
    }
    put_u8(out, TABLE, packet.table.0);
    out.u16(COOKIE);
    out.u16(16);
    out.u32(0);
    out.u64(packet.cookie.0);
    put_u8(out, REASON, packet.reason.number());
    let start = out.len();
    out.u16(METADATA);
    out.u16(0);
    oxm::put_fields(out, &packet.metadata)?;
    out.patch_len(start, 2, "packet-in metadata")?;
    out.pad_from(start, 8);
    if !packet.userdata.is_empty() {
        put_bytes(out, USERDATA, &packet.userdata)?;
    }
    if let Some(continuation) = &packet.continuation {
        let start = out.len();
        out.u16(CONTINUATION);
        out.u16(0);
        out.u32(0);
        out.extend_from_slice(continuation);
        out.patch_len(start, 2, "continuation")?;
        out.pad_from(start, 8);
    }
    Ok(())
}

fn put_bytes(out: &mut Out, kind: u16, bytes: &[u8]) -> Result<(), EncodeError> {
    let start = out.len();
    out.u16(kind);
    out.u16(0);
    out.extend_from_slice(bytes);
    out.patch_len(start, 2, "packet-in property")?;
    out.pad_from(start, 8);
    Ok(())
}

fn put_u8(out: &mut Out, kind: u16, value: u8) {
    out.u16(kind);
    out.u16(5);
    out.u8(value);
    out.zeros(3);
}

/// The form of OpenFlow 1.5, with a match (section 7.3.6).
pub(crate) fn put_out(out: &mut Out, packet: &PacketOut) -> Result<(), EncodeError> {
    out.u32(NO_BUFFER);
    let len_at = out.len();
    out.u32(0);
    oxm::put_match(out, &packet.metadata)?;
    let start = out.len();
    action_encode::put_list(out, &packet.actions)?;
    let len = len16(out.len() - start, "packet-out actions")?;
    out[len_at..len_at + 2].copy_from_slice(&len.to_be_bytes());
    out.extend_from_slice(&packet.data);
    Ok(())
}

pub(crate) fn read_out(reader: &mut Reader<'_>) -> Result<PacketOut, DecodeError> {
    reader.skip(4)?;
    let actions_len = reader.u16()?;
    reader.skip(2)?;
    let metadata = oxm::read_match(reader, UnknownFields::Refuse)?;
    let mut actions = reader.sub(actions_len.into(), "packet-out actions")?;
    let actions = action_decode::read_list(&mut actions, Depth::TOP)?;
    Ok(PacketOut { metadata, actions, data: Bytes::copy_from_slice(reader.rest()) })
}
