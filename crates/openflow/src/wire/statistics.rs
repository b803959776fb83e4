//! Counters and abilities of tables, ports, groups and meters (OpenFlow 1.5.1, sections 7.3.5.4 to
//! 7.3.5.16).

use std::time::Duration;

use bytes::Bytes;

use super::reader::Reader;
use super::writer::{Out, Put};
use crate::error::{DecodeError, EncodeError};
use crate::ids::{GroupId, MeterId, OfPort, TableId};
use crate::message::{
    EthernetStats, GroupCapabilities, GroupFeatures, GroupStats, MeterFeatures, MeterStats,
    PacketCount, PortStats, TableFeatures, TableProperty, TableStats,
};

const ETHERNET: u16 = 0;

fn put_duration(out: &mut Out, duration: Duration) {
    out.u32(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
    out.u32(duration.subsec_nanos());
}

fn read_duration(reader: &mut Reader<'_>) -> Result<Duration, DecodeError> {
    let (seconds, nanos) = (reader.u32()?, reader.u32()?);
    if nanos >= 1_000_000_000 {
        return Err(DecodeError::BadValue { what: "nanoseconds", value: nanos.into() });
    }
    Ok(Duration::new(seconds.into(), nanos))
}

fn put_count(out: &mut Out, count: PacketCount) {
    out.u64(count.packets);
    out.u64(count.bytes);
}

fn read_count(reader: &mut Reader<'_>) -> Result<PacketCount, DecodeError> {
    Ok(PacketCount { packets: reader.u64()?, bytes: reader.u64()? })
}

/// Counts until the reader is empty.
fn read_counts(reader: &mut Reader<'_>) -> Result<Vec<PacketCount>, DecodeError> {
    let mut counts = Vec::with_capacity(reader.len() / 16);
    while !reader.is_empty() {
        counts.push(read_count(reader)?);
    }
    Ok(counts)
}

pub(super) fn put_tables(out: &mut Out, tables: &[TableStats]) {
    for stats in tables {
        out.u8(stats.table.0);
        out.zeros(3);
        out.u32(stats.active);
        out.u64(stats.lookups);
        out.u64(stats.matched);
    }
}

pub(super) fn read_tables(reader: &mut Reader<'_>) -> Result<Vec<TableStats>, DecodeError> {
    let mut tables = Vec::with_capacity(reader.len() / 24);
    while !reader.is_empty() {
        let table = TableId(reader.u8()?);
        reader.skip(3)?;
        tables.push(TableStats {
            table,
            active: reader.u32()?,
            lookups: reader.u64()?,
            matched: reader.u64()?,
        });
    }
    Ok(tables)
}

pub(super) fn put_table_features(
    out: &mut Out,
    features: &TableFeatures,
) -> Result<(), EncodeError> {
    let name = features.name.as_bytes();
    if name.len() > 31 {
        return Err(EncodeError::TooLong { what: "table name", len: name.len(), max: 31 });
    }
    let start = out.len();
    out.u16(0);
    out.u8(features.table.0);
    out.u8(features.command);
    out.u32(features.features);
    out.extend_from_slice(name);
    out.zeros(32 - name.len());
    out.u64(features.metadata_match);
    out.u64(features.metadata_write);
    out.u32(features.capabilities);
    out.u32(features.max_entries);
    for property in &features.properties {
        let start = out.len();
        out.u16(property.kind);
        out.u16(0);
        out.extend_from_slice(&property.body);
        out.patch_len(start, 2, "table property")?;
        out.pad_from(start, 8);
    }
    out.patch_len(start, 0, "table features")
}

pub(super) fn read_table_features(
    reader: &mut Reader<'_>,
) -> Result<Vec<TableFeatures>, DecodeError> {
    let mut tables = Vec::new();
    while !reader.is_empty() {
        let mut part = reader.part(0, 1, "table features")?;
        part.skip(2)?;
        let table = TableId(part.u8()?);
        let command = part.u8()?;
        let features = part.u32()?;
        let name = part.name(32)?;
        let metadata_match = part.u64()?;
        let metadata_write = part.u64()?;
        let capabilities = part.u32()?;
        let max_entries = part.u32()?;
        let mut properties = Vec::new();
        while !part.is_empty() {
            let mut property = part.part(2, 8, "table property")?;
            let kind = property.u16()?;
            property.skip(2)?;
            let body = Bytes::copy_from_slice(property.rest());
            properties.push(TableProperty { kind, body });
        }
        tables.push(TableFeatures {
            table,
            command,
            features,
            name,
            metadata_match,
            metadata_write,
            capabilities,
            max_entries,
            properties,
        });
    }
    Ok(tables)
}

pub(super) fn put_port(out: &mut Out, stats: &PortStats) -> Result<(), EncodeError> {
    let start = out.len();
    out.u32(0);
    out.u32(stats.port.0);
    put_duration(out, stats.duration);
    for count in [
        stats.rx_packets,
        stats.tx_packets,
        stats.rx_bytes,
        stats.tx_bytes,
        stats.rx_dropped,
        stats.tx_dropped,
        stats.rx_errors,
        stats.tx_errors,
    ] {
        out.u64(count);
    }
    if let Some(ethernet) = &stats.ethernet {
        out.u16(ETHERNET);
        out.u16(40);
        out.u32(0);
        out.u64(ethernet.rx_frame_errors);
        out.u64(ethernet.rx_over_errors);
        out.u64(ethernet.rx_crc_errors);
        out.u64(ethernet.collisions);
    }
    out.patch_len(start, 0, "port statistics")
}

pub(super) fn read_ports(reader: &mut Reader<'_>) -> Result<Vec<PortStats>, DecodeError> {
    let mut ports = Vec::new();
    while !reader.is_empty() {
        let mut part = reader.part(0, 1, "port statistics")?;
        part.skip(4)?;
        let mut stats = PortStats {
            port: OfPort(part.u32()?),
            duration: read_duration(&mut part)?,
            rx_packets: part.u64()?,
            tx_packets: part.u64()?,
            rx_bytes: part.u64()?,
            tx_bytes: part.u64()?,
            rx_dropped: part.u64()?,
            tx_dropped: part.u64()?,
            rx_errors: part.u64()?,
            tx_errors: part.u64()?,
            ethernet: None,
        };
        while !part.is_empty() {
            let mut property = part.part(2, 8, "port property")?;
            let kind = property.u16()?;
            property.skip(2)?;
            // Others are counters of a vendor's own.
            if kind == ETHERNET {
                property.skip(4)?;
                stats.ethernet = Some(EthernetStats {
                    rx_frame_errors: property.u64()?,
                    rx_over_errors: property.u64()?,
                    rx_crc_errors: property.u64()?,
                    collisions: property.u64()?,
                });
            }
        }
        ports.push(stats);
    }
    Ok(ports)
}

pub(super) fn put_group(out: &mut Out, stats: &GroupStats) -> Result<(), EncodeError> {
    let start = out.len();
    out.u32(0);
    out.u32(stats.group.0);
    out.u32(stats.ref_count);
    out.u32(0);
    put_count(out, stats.total);
    put_duration(out, stats.duration);
    stats.buckets.iter().for_each(|bucket| put_count(out, *bucket));
    out.patch_len(start, 0, "group statistics")
}

pub(super) fn read_groups(reader: &mut Reader<'_>) -> Result<Vec<GroupStats>, DecodeError> {
    let mut groups = Vec::new();
    while !reader.is_empty() {
        let mut part = reader.part(0, 1, "group statistics")?;
        part.skip(4)?;
        let group = GroupId(part.u32()?);
        let ref_count = part.u32()?;
        part.skip(4)?;
        let total = read_count(&mut part)?;
        let duration = read_duration(&mut part)?;
        let buckets = read_counts(&mut part)?;
        groups.push(GroupStats { group, ref_count, total, duration, buckets });
    }
    Ok(groups)
}

pub(super) fn put_group_features(out: &mut Out, features: &GroupFeatures) {
    out.u32(features.types);
    out.u32(features.capabilities.bits());
    features.max_groups.iter().chain(&features.actions).for_each(|number| out.u32(*number));
}

pub(super) fn read_group_features(reader: &mut Reader<'_>) -> Result<GroupFeatures, DecodeError> {
    let mut features = GroupFeatures {
        types: reader.u32()?,
        capabilities: GroupCapabilities::from_bits_retain(reader.u32()?),
        max_groups: [0; 4],
        actions: [0; 4],
    };
    for number in features.max_groups.iter_mut().chain(&mut features.actions) {
        *number = reader.u32()?;
    }
    Ok(features)
}

pub(super) fn put_meter(out: &mut Out, stats: &MeterStats) -> Result<(), EncodeError> {
    let start = out.len();
    out.u32(stats.meter.0);
    out.zeros(8);
    out.u32(stats.ref_count);
    put_count(out, stats.total);
    put_duration(out, stats.duration);
    stats.bands.iter().for_each(|band| put_count(out, *band));
    out.patch_len(start, 4, "meter statistics")
}

pub(super) fn read_meters(reader: &mut Reader<'_>) -> Result<Vec<MeterStats>, DecodeError> {
    let mut meters = Vec::new();
    while !reader.is_empty() {
        let mut part = reader.part(4, 1, "meter statistics")?;
        let meter = MeterId(part.u32()?);
        part.skip(8)?;
        let ref_count = part.u32()?;
        let total = read_count(&mut part)?;
        let duration = read_duration(&mut part)?;
        let bands = read_counts(&mut part)?;
        meters.push(MeterStats { meter, ref_count, total, duration, bands });
    }
    Ok(meters)
}

pub(super) fn put_meter_features(out: &mut Out, features: &MeterFeatures) {
    out.u32(features.max_meters);
    out.u32(features.band_types);
    out.u32(features.capabilities);
    out.u8(features.max_bands);
    out.u8(features.max_color);
    out.u16(0);
}

/// OpenFlow 1.5 has eight bytes more; Open vSwitch sends the shorter form of 1.3.
pub(super) fn read_meter_features(reader: &mut Reader<'_>) -> Result<MeterFeatures, DecodeError> {
    Ok(MeterFeatures {
        max_meters: reader.u32()?,
        band_types: reader.u32()?,
        capabilities: reader.u32()?,
        max_bands: reader.u8()?,
        max_color: reader.u8()?,
    })
}
