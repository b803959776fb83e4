//! Counters: OXS fields.
//!
//! ```text
//! | reserved 16 | length 16 | fields: class 0x8002, number << 1, length, value | padding to 8 |
//! ```
//! OpenFlow 1.5.1, section 7.2.4. Fields: 0 duration, 1 idle time, 3 flows, 4 packets, 5 bytes.

use std::time::Duration;

use super::reader::Reader;
use super::writer::{Out, Put};
use crate::error::{DecodeError, EncodeError};
use crate::message::{Aggregate, FlowCounters};

const BASIC: u16 = 0x8002;
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

fn header(out: &mut Out, number: u8, len: u8) {
    out.u16(BASIC);
    out.u8(number << 1);
    out.u8(len);
}

fn put_duration(out: &mut Out, number: u8, duration: Duration) {
    header(out, number, 8);
    out.u32(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
    out.u32(duration.subsec_nanos());
}

fn put_count(out: &mut Out, number: u8, count: u64) {
    header(out, number, 8);
    out.u64(count);
}

pub(super) fn put_counters(out: &mut Out, counters: &FlowCounters) -> Result<(), EncodeError> {
    let start = out.len();
    out.u32(0);
    put_duration(out, DURATION, counters.duration);
    if let Some(idle) = counters.idle {
        put_duration(out, IDLE_TIME, idle);
    }
    if let Some(packets) = counters.packets {
        put_count(out, PACKET_COUNT, packets);
    }
    if let Some(bytes) = counters.bytes {
        put_count(out, BYTE_COUNT, bytes);
    }
    out.patch_len(start, 2, "counters")?;
    out.pad_from(start, 8);
    Ok(())
}

pub(super) fn put_aggregate(out: &mut Out, aggregate: &Aggregate) -> Result<(), EncodeError> {
    let start = out.len();
    out.u32(0);
    put_count(out, PACKET_COUNT, aggregate.packets);
    put_count(out, BYTE_COUNT, aggregate.bytes);
    header(out, FLOW_COUNT, 4);
    out.u32(aggregate.flows);
    out.patch_len(start, 2, "counters")?;
    out.pad_from(start, 8);
    Ok(())
}

/// Calls `each` with number and value of each counter of the basic class; others are passed over.
fn read(
    reader: &mut Reader<'_>,
    mut each: impl FnMut(u8, &mut Reader<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut part = reader.part(2, 8, "counters")?;
    part.skip(4)?;
    while !part.is_empty() {
        let class = part.u16()?;
        let number = part.u8()? >> 1;
        let len = part.u8()?;
        let mut value = part.sub(len.into(), "counter")?;
        if class == BASIC {
            each(number, &mut value)?;
        }
    }
    Ok(())
}

fn read_duration(value: &mut Reader<'_>) -> Result<Duration, DecodeError> {
    let seconds = value.u32()?;
    let nanos = value.u32()?;
    if nanos >= 1_000_000_000 {
        return Err(DecodeError::BadValue { what: "nanoseconds", value: nanos.into() });
    }
    Ok(Duration::new(seconds.into(), nanos))
}

pub(super) fn read_counters(reader: &mut Reader<'_>) -> Result<FlowCounters, DecodeError> {
    let mut counters = FlowCounters::default();
    read(reader, |number, value| {
        match number {
            DURATION => counters.duration = read_duration(value)?,
            IDLE_TIME => counters.idle = Some(read_duration(value)?),
            PACKET_COUNT => counters.packets = Some(value.u64()?),
            BYTE_COUNT => counters.bytes = Some(value.u64()?),
            _ => {}
        }
        Ok(())
    })?;
    Ok(counters)
}

pub(super) fn read_aggregate(reader: &mut Reader<'_>) -> Result<Aggregate, DecodeError> {
    let mut aggregate = Aggregate::default();
    read(reader, |number, value| {
        match number {
            FLOW_COUNT => aggregate.flows = value.u32()?,
            PACKET_COUNT => aggregate.packets = value.u64()?,
            BYTE_COUNT => aggregate.bytes = value.u64()?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(aggregate)
}
