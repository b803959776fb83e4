//! Whole messages: the header, and which body follows it.

use bytes::Bytes;

use super::flow::FlowModRef;
use super::reader::Reader;
use super::writer::{Out, Put};
use super::{NICIRA, asynchronous, controls, flow, group, meter, multipart, packet, port};
use crate::error::{DecodeError, EncodeError};
use crate::flow::Flow;
use crate::ids::{Cookie, GroupId, OfPort, Xid};
use crate::message::{
    BundleAdd, BundleFlags, BundleId, FlowModCommand, GroupMod, Header, Message, PacketInFormat,
};

const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
const EXPERIMENTER: u8 = 4;
const FEATURES_REQUEST: u8 = 5;
const FEATURES_REPLY: u8 = 6;
const GET_CONFIG_REQUEST: u8 = 7;
const GET_CONFIG_REPLY: u8 = 8;
const SET_CONFIG: u8 = 9;
const PACKET_IN: u8 = 10;
const FLOW_REMOVED: u8 = 11;
const PORT_STATUS: u8 = 12;
const PACKET_OUT: u8 = 13;
const FLOW_MOD: u8 = 14;
const GROUP_MOD: u8 = 15;
const PORT_MOD: u8 = 16;
const MULTIPART_REQUEST: u8 = 18;
const MULTIPART_REPLY: u8 = 19;
const BARRIER_REQUEST: u8 = 20;
const BARRIER_REPLY: u8 = 21;
const ROLE_REQUEST: u8 = 24;
const ROLE_REPLY: u8 = 25;
const GET_ASYNC_REQUEST: u8 = 26;
const GET_ASYNC_REPLY: u8 = 27;
const SET_ASYNC: u8 = 28;
const METER_MOD: u8 = 29;
const ROLE_STATUS: u8 = 30;
const BUNDLE_CONTROL: u8 = 33;
const BUNDLE_ADD: u8 = 34;

/// Nicira's messages.
const NXT_SET_PACKET_IN_FORMAT: u32 = 16;
const NXT_SET_CONTROLLER_ID: u32 = 20;
const NXT_RESUME: u32 = 28;
const NXT_PACKET_IN2: u32 = 30;

/// A message's header with the length still to come.
fn begin(out: &mut Out, kind: u8, xid: Xid) -> usize {
    let start = out.len();
    out.u8(Header::VERSION);
    out.u8(kind);
    out.u16(0);
    out.u32(xid.0);
    start
}

fn end(out: &mut Out, start: usize) -> Result<(), EncodeError> {
    out.patch_len(start, 2, "message")
}

/// Runs an encoder; what it appended is taken back when it fails.
fn all_or_nothing(
    out: &mut Out,
    encode: impl FnOnce(&mut Out) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    encode(out).inspect_err(|_| out.truncate(start))
}

impl Message {
    /// The message as bytes.
    pub fn encode(&self, xid: Xid) -> Result<Bytes, EncodeError> {
        let mut out = Vec::new();
        self.encode_into(xid, &mut out)?;
        Ok(out.into())
    }

    /// Appends the message's bytes; nothing when it cannot be expressed.
    pub fn encode_into(&self, xid: Xid, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        all_or_nothing(out, |out| put(out, xid, self))
    }

    /// Reads one whole message.
    pub fn decode(bytes: &[u8]) -> Result<(Xid, Self), DecodeError> {
        decode(bytes, Nesting::Plain)
    }
}

/// Appends a bundle-add message that holds a flow-mod for `flow`, without copying the flow.
pub fn encode_bundled_flow(
    out: &mut Vec<u8>,
    xid: Xid,
    bundle: BundleId,
    flags: BundleFlags,
    command: FlowModCommand,
    flow: &Flow,
) -> Result<(), EncodeError> {
    all_or_nothing(out, |out| {
        put_bundled(out, xid, bundle, flags, |out| {
            let start = begin(out, FLOW_MOD, xid);
            flow::put_flow_mod(out, plain(command, flow))?;
            end(out, start)
        })
    })
}

/// Appends a bundle-add message that holds a group-mod.
pub fn encode_bundled_group(
    out: &mut Vec<u8>,
    xid: Xid,
    bundle: BundleId,
    flags: BundleFlags,
    group_mod: &GroupMod,
) -> Result<(), EncodeError> {
    all_or_nothing(out, |out| {
        put_bundled(out, xid, bundle, flags, |out| {
            let start = begin(out, GROUP_MOD, xid);
            group::put_mod(out, group_mod)?;
            end(out, start)
        })
    })
}

/// Appends a flow-mod message for `flow`, without copying the flow.
pub fn encode_flow(
    out: &mut Vec<u8>,
    xid: Xid,
    command: FlowModCommand,
    flow: &Flow,
) -> Result<(), EncodeError> {
    all_or_nothing(out, |out| {
        let start = begin(out, FLOW_MOD, xid);
        flow::put_flow_mod(out, plain(command, flow))?;
        end(out, start)
    })
}

fn plain(command: FlowModCommand, flow: &Flow) -> FlowModRef<'_> {
    FlowModRef {
        command,
        flow,
        cookie_mask: Cookie(0),
        out_port: OfPort::ANY,
        out_group: GroupId::ANY,
    }
}

fn put_bundled(
    out: &mut Out,
    xid: Xid,
    bundle: BundleId,
    flags: BundleFlags,
    inner: impl FnOnce(&mut Out) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = begin(out, BUNDLE_ADD, xid);
    out.u32(bundle.0);
    out.u16(0);
    out.u16(flags.bits());
    inner(out)?;
    end(out, start)
}

fn put(out: &mut Out, xid: Xid, message: &Message) -> Result<(), EncodeError> {
    if let Message::BundleAdd(BundleAdd { bundle, flags, message }) = message {
        if !can_be_bundled(message) {
            return Err(EncodeError::Inexpressible {
                what: "bundle",
                reason: "it holds flow-mods, group-mods and packet-outs",
            });
        }
        return put_bundled(out, xid, *bundle, *flags, |out| put(out, xid, message));
    }
    let start = begin(out, kind(message), xid);
    put_body(out, start, message)?;
    end(out, start)
}

fn can_be_bundled(message: &Message) -> bool {
    matches!(
        message,
        Message::FlowMod(_) | Message::GroupMod(_) | Message::PacketOut(_) | Message::Other { .. }
    )
}

fn kind(message: &Message) -> u8 {
    match message {
        Message::Hello(_) => HELLO,
        Message::Error(_) => ERROR,
        Message::EchoRequest(_) => ECHO_REQUEST,
        Message::EchoReply(_) => ECHO_REPLY,
        Message::FeaturesRequest => FEATURES_REQUEST,
        Message::FeaturesReply(_) => FEATURES_REPLY,
        Message::GetConfigRequest => GET_CONFIG_REQUEST,
        Message::GetConfigReply(_) => GET_CONFIG_REPLY,
        Message::SetConfig(_) => SET_CONFIG,
        Message::BarrierRequest => BARRIER_REQUEST,
        Message::BarrierReply => BARRIER_REPLY,
        Message::FlowMod(_) => FLOW_MOD,
        Message::FlowRemoved(_) => FLOW_REMOVED,
        Message::GroupMod(_) => GROUP_MOD,
        Message::MeterMod(_) => METER_MOD,
        Message::PacketIn(_)
        | Message::Resume(_)
        | Message::SetPacketInFormat(_)
        | Message::SetControllerId(_) => EXPERIMENTER,
        Message::PacketOut(_) => PACKET_OUT,
        Message::PortStatus(_) => PORT_STATUS,
        Message::RoleRequest(_) => ROLE_REQUEST,
        Message::RoleReply(_) => ROLE_REPLY,
        Message::PortMod(_) => PORT_MOD,
        Message::RoleStatus(_) => ROLE_STATUS,
        Message::GetAsyncRequest => GET_ASYNC_REQUEST,
        Message::GetAsyncReply(_) => GET_ASYNC_REPLY,
        Message::SetAsync(_) => SET_ASYNC,
        Message::BundleControl(_) => BUNDLE_CONTROL,
        Message::BundleAdd(_) => BUNDLE_ADD,
        Message::MultipartRequest(_) => MULTIPART_REQUEST,
        Message::MultipartReply(_) => MULTIPART_REPLY,
        Message::Other { kind, .. } => *kind,
    }
}

fn put_body(out: &mut Out, start: usize, message: &Message) -> Result<(), EncodeError> {
    match message {
        Message::Hello(hello) => {
            out[start] = hello.version;
            controls::put_hello(out, hello)?;
        }
        Message::Error(error) => controls::put_error(out, error),
        Message::EchoRequest(bytes) | Message::EchoReply(bytes) => out.extend_from_slice(bytes),
        Message::FeaturesRequest
        | Message::GetConfigRequest
        | Message::GetAsyncRequest
        | Message::BarrierRequest
        | Message::BarrierReply => {}
        Message::FeaturesReply(features) => controls::put_features(out, features),
        Message::GetConfigReply(config) | Message::SetConfig(config) => {
            controls::put_config(out, config);
        }
        Message::FlowMod(flow_mod) => flow::put_flow_mod(out, flow_mod.into())?,
        Message::FlowRemoved(removed) => flow::put_removed(out, removed)?,
        Message::GroupMod(group_mod) => group::put_mod(out, group_mod)?,
        Message::MeterMod(meter_mod) => meter::put_mod(out, meter_mod),
        Message::PacketIn(packet) => packet::put_in2(out, NXT_PACKET_IN2, packet)?,
        Message::Resume(packet) => packet::put_in2(out, NXT_RESUME, packet)?,
        Message::PacketOut(packet) => packet::put_out(out, packet)?,
        Message::PortStatus(status) => port::put_status(out, status)?,
        Message::RoleRequest(role) | Message::RoleReply(role) => controls::put_role(out, role),
        Message::PortMod(port_mod) => port::put_mod(out, port_mod),
        Message::RoleStatus(status) => controls::put_role_status(out, status),
        Message::GetAsyncReply(config) | Message::SetAsync(config) => {
            asynchronous::put(out, config);
        }
        Message::BundleControl(control) => controls::put_bundle_control(out, control),
        Message::BundleAdd(_) => {
            return Err(EncodeError::Inexpressible {
                what: "bundle",
                reason: "bundles are not nested",
            });
        }
        Message::MultipartRequest(request) => multipart::put_request(out, request)?,
        Message::MultipartReply(reply) => multipart::put_reply(out, reply)?,
        Message::SetPacketInFormat(format) => {
            out.u32(NICIRA);
            out.u32(NXT_SET_PACKET_IN_FORMAT);
            out.u32(match format {
                PacketInFormat::Standard => 0,
                PacketInFormat::Nxt => 1,
                PacketInFormat::Nxt2 => 2,
            });
        }
        Message::SetControllerId(id) => {
            out.u32(NICIRA);
            out.u32(NXT_SET_CONTROLLER_ID);
            out.zeros(6);
            out.u16(*id);
        }
        Message::Other { body, .. } => out.extend_from_slice(body),
    }
    Ok(())
}

/// Whether a message is one by itself or inside a bundle-add.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nesting {
    Plain,
    Bundled,
}

fn decode(bytes: &[u8], nesting: Nesting) -> Result<(Xid, Message), DecodeError> {
    let header = Header::peek(bytes).ok_or(DecodeError::Truncated {
        what: "message header",
        needed: 8,
        have: bytes.len(),
    })?;
    let len = usize::from(header.len);
    if len < 8 {
        return Err(DecodeError::BadLength { what: "message", len });
    }
    let body = bytes.get(8..len).ok_or(DecodeError::Truncated {
        what: "message",
        needed: len,
        have: bytes.len(),
    })?;
    let mut reader = Reader::new(body, "message");
    if header.kind == HELLO {
        let hello = controls::read_hello(header.version, &mut reader)?;
        return Ok((header.xid, Message::Hello(hello)));
    }
    // A refusal of our version comes in the version of the peer.
    if header.version != Header::VERSION && header.kind != ERROR {
        return Err(DecodeError::Version(header.version));
    }
    Ok((header.xid, read_body(header.kind, &mut reader, nesting)?))
}

fn read_body(kind: u8, reader: &mut Reader<'_>, nesting: Nesting) -> Result<Message, DecodeError> {
    Ok(match kind {
        ERROR => Message::Error(controls::read_error(reader)?),
        ECHO_REQUEST => Message::EchoRequest(Bytes::copy_from_slice(reader.rest())),
        ECHO_REPLY => Message::EchoReply(Bytes::copy_from_slice(reader.rest())),
        EXPERIMENTER => read_experimenter(reader)?,
        FEATURES_REQUEST => Message::FeaturesRequest,
        FEATURES_REPLY => Message::FeaturesReply(controls::read_features(reader)?),
        GET_CONFIG_REQUEST => Message::GetConfigRequest,
        GET_CONFIG_REPLY => Message::GetConfigReply(controls::read_config(reader)?),
        SET_CONFIG => Message::SetConfig(controls::read_config(reader)?),
        PACKET_IN => Message::PacketIn(packet::read_in(reader)?),
        FLOW_REMOVED => Message::FlowRemoved(flow::read_removed(reader)?),
        PORT_STATUS => Message::PortStatus(port::read_status(reader)?),
        PACKET_OUT => Message::PacketOut(packet::read_out(reader)?),
        FLOW_MOD => Message::FlowMod(flow::read_flow_mod(reader)?),
        GROUP_MOD => Message::GroupMod(group::read_mod(reader)?),
        MULTIPART_REQUEST => Message::MultipartRequest(multipart::read_request(reader)?),
        MULTIPART_REPLY => Message::MultipartReply(multipart::read_reply(reader)?),
        BARRIER_REQUEST => Message::BarrierRequest,
        BARRIER_REPLY => Message::BarrierReply,
        ROLE_REQUEST => Message::RoleRequest(controls::read_role(reader)?),
        ROLE_REPLY => Message::RoleReply(controls::read_role(reader)?),
        PORT_MOD => Message::PortMod(port::read_mod(reader)?),
        ROLE_STATUS => Message::RoleStatus(controls::read_role_status(reader)?),
        GET_ASYNC_REQUEST => Message::GetAsyncRequest,
        GET_ASYNC_REPLY => Message::GetAsyncReply(asynchronous::read(reader)?),
        SET_ASYNC => Message::SetAsync(asynchronous::read(reader)?),
        METER_MOD => Message::MeterMod(meter::read_mod(reader)?),
        BUNDLE_CONTROL => Message::BundleControl(controls::read_bundle_control(reader)?),
        BUNDLE_ADD => {
            if nesting == Nesting::Bundled {
                return Err(DecodeError::TooDeep("bundle"));
            }
            let bundle = BundleId(reader.u32()?);
            reader.skip(2)?;
            let flags = controls::read_bundle_flags(reader.u16()?)?;
            let (_, message) = decode(reader.rest(), Nesting::Bundled)?;
            if !can_be_bundled(&message) {
                let number = self::kind(&message).into();
                return Err(DecodeError::Unknown { what: "message of a bundle", number });
            }
            Message::BundleAdd(BundleAdd { bundle, flags, message: Box::new(message) })
        }
        _ => Message::Other { kind, body: Bytes::copy_from_slice(reader.rest()) },
    })
}

fn read_experimenter(reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let whole = reader.peek();
    let experimenter = reader.u32()?;
    let subtype = reader.u32()?;
    Ok(match (experimenter, subtype) {
        (NICIRA, NXT_SET_PACKET_IN_FORMAT) => Message::SetPacketInFormat(match reader.u32()? {
            0 => PacketInFormat::Standard,
            1 => PacketInFormat::Nxt,
            2 => PacketInFormat::Nxt2,
            other => {
                return Err(DecodeError::Unknown {
                    what: "packet-in format",
                    number: other.into(),
                });
            }
        }),
        (NICIRA, NXT_SET_CONTROLLER_ID) => {
            reader.skip(6)?;
            Message::SetControllerId(reader.u16()?)
        }
        (NICIRA, NXT_RESUME) => Message::Resume(packet::read_in2(reader)?),
        (NICIRA, NXT_PACKET_IN2) => Message::PacketIn(packet::read_in2(reader)?),
        _ => Message::Other { kind: EXPERIMENTER, body: Bytes::copy_from_slice(whole) },
    })
}
