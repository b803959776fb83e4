//! Requests for lists, and their parts.
//!
//! ```text
//! | type 16 | flags 16 (1: more) | 0 x 32 | body |
//! ```

use bytes::Bytes;

use super::reader::Reader;
use super::writer::{Out, Put};
use super::{flow, group, meter, oxs, port};
use crate::error::{DecodeError, EncodeError};
use crate::ids::{GroupId, MeterId, OfPort};
use crate::message::{FlowDump, MultipartBody, MultipartReply, MultipartRequest};

const FLOW_DESC: u16 = 1;
const AGGREGATE: u16 = 2;
const GROUP_DESC: u16 = 7;
const METER_CONFIG: u16 = 10;
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
        MultipartRequest::Ports(port) => (PORT_DESC, port.0),
        MultipartRequest::Groups(group) => (GROUP_DESC, group.0),
        MultipartRequest::Meters(meter) => (METER_CONFIG, meter.0),
    };
    header(out, kind, false);
    out.u32(number);
    out.u32(0);
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
        _ => {
            return Err(DecodeError::Unknown { what: "multipart request", number: kind.into() });
        }
    })
}

pub(crate) fn put_reply(out: &mut Out, reply: &MultipartReply) -> Result<(), EncodeError> {
    let more = reply.more;
    match &reply.body {
        MultipartBody::Flows(FlowDump { flows, undecoded }) => {
            if !undecoded.is_empty() {
                return Err(EncodeError::Inexpressible {
                    what: "flow dump",
                    reason: "it holds flows that were not understood",
                });
            }
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
            header(out, GROUP_DESC, more);
            groups.iter().try_for_each(|desc| group::put_description(out, desc))
        }
        MultipartBody::Meters(meters) => {
            header(out, METER_CONFIG, more);
            meters.iter().try_for_each(|desc| meter::put_description(out, desc))
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
        _ => MultipartBody::Other { kind, body: Bytes::copy_from_slice(reader.rest()) },
    };
    Ok(MultipartReply { more, body })
}
