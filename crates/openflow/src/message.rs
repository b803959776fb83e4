//! What travels on an OpenFlow connection.
//!
//! Every message is a variant of [`Message`]. What this crate does not know decodes to
//! [`Message::Other`] and keeps its bytes, so that a connection survives a newer switch.

mod asynchronous;
mod bundle;
mod control;
mod error;
mod flow_mod;
mod group_mod;
mod multipart;
mod packet;
mod port;
mod statistics;

use bytes::Bytes;

pub use asynchronous::AsyncConfig;
pub use bundle::{BundleAdd, BundleControl, BundleControlType, BundleFlags, BundleId};
pub use control::{
    ControllerRole, Features, Hello, PacketInFormat, Role, RoleReason, RoleStatus, SwitchConfig,
};
pub use error::{ErrorCode, ErrorMessage};
pub use flow_mod::{FlowCounters, FlowMod, FlowModCommand, FlowRemoved, FlowRemovedReason};
pub use group_mod::{GroupMod, MeterMod};
pub use multipart::{
    Aggregate, Descriptions, FlowDump, FlowFilter, FlowStats, MultipartBody, MultipartReply,
    MultipartRequest, Undecoded, UndecodedFlow,
};
pub use packet::{PacketIn, PacketOut};
pub use port::{PortConfig, PortDesc, PortMod, PortReason, PortState, PortStatus};
pub use statistics::{
    EthernetStats, GroupCapabilities, GroupFeatures, GroupStats, MeterFeatures, MeterStats,
    PacketCount, PortStats, TableFeatures, TableProperty, TableStats,
};

pub use crate::action::PacketInReason;
pub use crate::ids::Xid;
pub use crate::wire::dispatch::{encode_bundled_flow, encode_bundled_group, encode_flow};

/// One OpenFlow message, without its transaction id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Version negotiation; the first message of either side.
    Hello(Hello),
    /// A request was refused; carries that request's transaction id.
    Error(ErrorMessage),
    /// Are you there?
    EchoRequest(Bytes),
    /// Yes, and here are your bytes.
    EchoReply(Bytes),
    /// What is the switch?
    FeaturesRequest,
    /// What the switch is.
    FeaturesReply(Features),
    /// How is the switch configured?
    GetConfigRequest,
    /// How the switch is configured.
    GetConfigReply(SwitchConfig),
    /// Configures the switch.
    SetConfig(SwitchConfig),
    /// Answer when everything before is done.
    BarrierRequest,
    /// Everything before is done.
    BarrierReply,
    /// Changes flows.
    FlowMod(FlowMod),
    /// A flow is gone.
    FlowRemoved(FlowRemoved),
    /// Changes a group.
    GroupMod(GroupMod),
    /// Changes a meter.
    MeterMod(MeterMod),
    /// A packet for the controller.
    PacketIn(PacketIn),
    /// A packet from the controller.
    PacketOut(PacketOut),
    /// A paused packet that goes on.
    Resume(PacketIn),
    /// A port changed.
    PortStatus(PortStatus),
    /// Configures a port.
    PortMod(PortMod),
    /// Asks for a role.
    RoleRequest(ControllerRole),
    /// The role given.
    RoleReply(ControllerRole),
    /// The switch changed the role of this connection.
    RoleStatus(RoleStatus),
    /// Which asynchronous messages does this connection get?
    GetAsyncRequest,
    /// Which asynchronous messages this connection gets.
    GetAsyncReply(AsyncConfig),
    /// Which asynchronous messages this connection wants.
    SetAsync(AsyncConfig),
    /// Opens, closes, commits or discards a bundle; or the answer to it.
    BundleControl(BundleControl),
    /// Puts a message into a bundle.
    BundleAdd(BundleAdd),
    /// Asks for a list of things.
    MultipartRequest(MultipartRequest),
    /// One part of such a list.
    MultipartReply(MultipartReply),
    /// Which form packet-ins have on this connection.
    SetPacketInFormat(PacketInFormat),
    /// Which controller id this connection has, for controller actions to name.
    SetControllerId(u16),
    /// A message this crate does not know.
    Other {
        /// Its type.
        kind: u8,
        /// Its bytes after the header.
        body: Bytes,
    },
}

/// The first eight bytes of every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Protocol version; 6 is OpenFlow 1.5.
    pub version: u8,
    /// Message type.
    pub kind: u8,
    /// Length of the message with its header.
    pub len: u16,
    /// Transaction id.
    pub xid: Xid,
}

impl Header {
    /// The wire version of OpenFlow 1.5.
    pub const VERSION: u8 = 6;

    /// The header at the start of `bytes`, if they are long enough to have one.
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        let &[version, kind, l0, l1, x0, x1, x2, x3] = bytes.first_chunk::<8>()?;
        Some(Self {
            version,
            kind,
            len: u16::from_be_bytes([l0, l1]),
            xid: Xid(u32::from_be_bytes([x0, x1, x2, x3])),
        })
    }
}
