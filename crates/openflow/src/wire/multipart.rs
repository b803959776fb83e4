//! Requests for lists, and their parts.
//!
//! ```text
//! | type 16 | flags 16 (1: more) | 0 x 32 | body |
//! ```

use bytes::Bytes;

use super::reader::Reader;
use super::writer::{Out, Put};
use super::{flow, group, meter, oxs, port, statistics};
use crate::error::{DecodeError, EncodeError};
use crate::ids::{GroupId, MeterId, OfPort};
use crate::message::{FlowDump, MultipartBody, MultipartReply, MultipartRequest};

const FLOW_DESC: u16 = 1;
const AGGREGATE: u16 = 2;
const TABLE_STATS: u16 = 3;
const PORT_STATS: u16 = 4;
const GROUP_STATS: u16 = 6;
const GROUP_DESC: u16 = 7;
const GROUP_FEATURES: u16 = 8;
const METER_STATS: u16 = 9;
const METER_CONFIG: u16 = 10;
const METER_FEATURES: u16 = 11;
const TABLE_FEATURES: u16 = 12;
const PORT_DESC: u16 = 13;

fn header(out: &mut Out, kind: u16, more: bool) {
    out.u16(kind);
    out.u16(more.into());
    out.u32(0);
}

pub(crate) fn put_request(out: &mut Out, request: &MultipartRequest) -> Result<(), EncodeError> {
    let (kind, number) = match request {
        MultipartRequest::Flows(filter) => {
            header(out, FLOW_DESC, false);
            return flow::put_filter(out, filter);
        }
        MultipartRequest::Aggregate(filter) => {
            header(out, AGGREGATE, false);
            return flow::put_filter(out, filter);
        }
        MultipartRequest::Ports(port) => (PORT_DESC, Some(port.0)),
        MultipartRequest::Groups(group) => (GROUP_DESC, Some(group.0)),
        MultipartRequest::Meters(meter) => (METER_CONFIG, Some(meter.0)),
        MultipartRequest::PortStats(port) => (PORT_STATS, Some(port.0)),
        MultipartRequest::GroupStats(group) => (GROUP_STATS, Some(group.0)),
        MultipartRequest::MeterStats(meter) => (METER_STATS, Some(meter.0)),
        MultipartRequest::TableStats => (TABLE_STATS, None),
        MultipartRequest::TableFeatures => (TABLE_FEATURES, None),
        MultipartRequest::GroupFeatures => (GROUP_FEATURES, None),
        MultipartRequest::MeterFeatures => (METER_FEATURES, None),
    };
    header(out, kind, false);
    if let Some(number) = number {
        out.u32(number);
        out.u32(0);
    }
    Ok(())
}

pub(crate) fn read_request(reader: &mut Reader<'_>) -> Result<MultipartRequest, DecodeError> {
    let kind = reader.u16()?;
    reader.skip(6)?;
    Ok(match kind {
        FLOW_DESC => MultipartRequest::Flows(flow::read_filter(reader)?),
        AGGREGATE => MultipartRequest::Aggregate(flow::read_filter(reader)?),
        PORT_DESC => MultipartRequest::Ports(OfPort(reader.u32()?)),
        GROUP_DESC => MultipartRequest::Groups(GroupId(reader.u32()?)),
        METER_CONFIG => MultipartRequest::Meters(MeterId(reader.u32()?)),
        PORT_STATS => MultipartRequest::PortStats(OfPort(reader.u32()?)),
        GROUP_STATS => MultipartRequest::GroupStats(GroupId(reader.u32()?)),
        METER_STATS => MultipartRequest::MeterStats(MeterId(reader.u32()?)),
        TABLE_STATS => MultipartRequest::TableStats,
        // With a body it would change the tables.
        TABLE_FEATURES if reader.is_empty() => MultipartRequest::TableFeatures,
        GROUP_FEATURES => MultipartRequest::GroupFeatures,
        METER_FEATURES => MultipartRequest::MeterFeatures,
        _ => {
            return Err(DecodeError::Unknown { what: "multipart request", number: kind.into() });
        }
    })
}

/// What was not understood cannot be told again.
fn refuse_undecoded<T>(what: &'static str, undecoded: &[T]) -> Result<(), EncodeError> {
    if undecoded.is_empty() {
        return Ok(());
    }
    Err(EncodeError::Inexpressible { what, reason: "it holds what was not understood" })
}

pub(crate) fn put_reply(out: &mut Out, reply: &MultipartReply) -> Result<(), EncodeError> {
    let more = reply.more;
    match &reply.body {
        MultipartBody::Flows(FlowDump { flows, undecoded }) => {
            refuse_undecoded("flow dump", undecoded)?;
            header(out, FLOW_DESC, more);
            flows.iter().try_for_each(|stats| flow::put_stats(out, stats))
        }
        MultipartBody::Aggregate(aggregate) => {
            header(out, AGGREGATE, more);
            oxs::put_aggregate(out, aggregate)
        }
        MultipartBody::Ports(ports) => {
            header(out, PORT_DESC, more);
            ports.iter().try_for_each(|desc| port::put(out, desc))
        }
        MultipartBody::Groups(groups) => {
            refuse_undecoded("group dump", &groups.undecoded)?;
            header(out, GROUP_DESC, more);
            groups.known.iter().try_for_each(|desc| group::put_description(out, desc))
        }
        MultipartBody::Meters(meters) => {
            refuse_undecoded("meter dump", &meters.undecoded)?;
            header(out, METER_CONFIG, more);
            meters.known.iter().try_for_each(|desc| meter::put_description(out, desc))
        }
        MultipartBody::TableStats(tables) => {
            header(out, TABLE_STATS, more);
            statistics::put_tables(out, tables);
            Ok(())
        }
        MultipartBody::TableFeatures(tables) => {
            header(out, TABLE_FEATURES, more);
            tables.iter().try_for_each(|table| statistics::put_table_features(out, table))
        }
        MultipartBody::PortStats(ports) => {
            header(out, PORT_STATS, more);
            ports.iter().try_for_each(|port| statistics::put_port(out, port))
        }
        MultipartBody::GroupStats(groups) => {
            header(out, GROUP_STATS, more);
            groups.iter().try_for_each(|group| statistics::put_group(out, group))
        }
        MultipartBody::GroupFeatures(features) => {
            header(out, GROUP_FEATURES, more);
            statistics::put_group_features(out, features);
            Ok(())
        }
        MultipartBody::MeterStats(meters) => {
            header(out, METER_STATS, more);
            meters.iter().try_for_each(|meter| statistics::put_meter(out, meter))
        }
        MultipartBody::MeterFeatures(features) => {
            header(out, METER_FEATURES, more);
            statistics::put_meter_features(out, features);
            Ok(())
        }
        MultipartBody::Other { kind, body } => {
            header(out, *kind, more);
            out.extend_from_slice(body);
            Ok(())
        }
    }
}

pub(crate) fn read_reply(reader: &mut Reader<'_>) -> Result<MultipartReply, DecodeError> {
    let kind = reader.u16()?;
    let more = reader.u16()? & 1 != 0;
    reader.skip(4)?;
    let body = match kind {
        FLOW_DESC => MultipartBody::Flows(flow::read_dump(reader)?),
        AGGREGATE => MultipartBody::Aggregate(oxs::read_aggregate(reader)?),
        PORT_DESC => MultipartBody::Ports(port::read_list(reader)?),
        GROUP_DESC => MultipartBody::Groups(group::read_descriptions(reader)?),
        METER_CONFIG => MultipartBody::Meters(meter::read_descriptions(reader)?),
        TABLE_STATS => MultipartBody::TableStats(statistics::read_tables(reader)?),
        TABLE_FEATURES => MultipartBody::TableFeatures(statistics::read_table_features(reader)?),
        PORT_STATS => MultipartBody::PortStats(statistics::read_ports(reader)?),
        GROUP_STATS => MultipartBody::GroupStats(statistics::read_groups(reader)?),
        GROUP_FEATURES => MultipartBody::GroupFeatures(statistics::read_group_features(reader)?),
        METER_STATS => MultipartBody::MeterStats(statistics::read_meters(reader)?),
        METER_FEATURES => MultipartBody::MeterFeatures(statistics::read_meter_features(reader)?),
        _ => MultipartBody::Other { kind, body: Bytes::copy_from_slice(reader.rest()) },
    };
    Ok(MultipartReply { more, body })
}
