//! Lists: flows, ports, groups, meters, tables; what they are, did and can.

use bytes::Bytes;

use super::{
    FlowCounters, GroupFeatures, GroupStats, MeterFeatures, MeterStats, PortDesc, PortStats,
    TableFeatures, TableStats,
};
use crate::error::DecodeError;
use crate::flow::Flow;
use crate::group::Group;
use crate::ids::{Cookie, GroupId, MeterId, OfPort, TableId};
use crate::matching::Match;
use crate::meter::Meter;

/// Asks for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartRequest {
    /// Flows with match, actions and counters.
    Flows(FlowFilter),
    /// The sum of the flows' counters.
    Aggregate(FlowFilter),
    /// A port, or all with [`OfPort::ANY`].
    Ports(OfPort),
    /// A group, or all with [`GroupId::ALL`].
    Groups(GroupId),
    /// A meter, or all with [`MeterId::ALL`].
    Meters(MeterId),
    /// Counters of all tables.
    TableStats,
    /// What the tables can do.
    TableFeatures,
    /// Counters of a port, or of all with [`OfPort::ANY`].
    PortStats(OfPort),
    /// Counters of a group, or of all with [`GroupId::ALL`].
    GroupStats(GroupId),
    /// What groups can do.
    GroupFeatures,
    /// Counters of a meter, or of all with [`MeterId::ALL`].
    MeterStats(MeterId),
    /// What meters can do.
    MeterFeatures,
}

/// Which flows are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowFilter {
    /// Those of this table, or [`TableId::ALL`].
    pub table: TableId,
    /// Those that send out of this port, or [`OfPort::ANY`].
    pub out_port: OfPort,
    /// Those that use this group, or [`GroupId::ANY`].
    pub out_group: GroupId,
    /// Those with this cookie in the bits of `cookie_mask`.
    pub cookie: Cookie,
    /// The bits of the cookie that count.
    pub cookie_mask: Cookie,
    /// Those that this match covers.
    pub matching: Match,
}

impl FlowFilter {
    /// All flows.
    #[must_use]
    pub fn all() -> Self {
        Self {
            table: TableId::ALL,
            out_port: OfPort::ANY,
            out_group: GroupId::ANY,
            cookie: Cookie(0),
            cookie_mask: Cookie(0),
            matching: Match::new(),
        }
    }

    /// All flows whose cookie is `cookie` in the bits of `mask`.
    #[must_use]
    pub fn by_cookie(cookie: Cookie, mask: Cookie) -> Self {
        Self { cookie, cookie_mask: mask, ..Self::all() }
    }
}

/// One part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MultipartReply {
    /// Whether more parts follow.
    pub more: bool,
    /// This part.
    pub body: MultipartBody,
}

/// What a part of a list holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MultipartBody {
    /// Flows.
    Flows(FlowDump),
    /// Sum of counters.
    Aggregate(Aggregate),
    /// Ports.
    Ports(Vec<PortDesc>),
    /// Groups.
    Groups(Descriptions<Group, GroupId>),
    /// Meters.
    Meters(Descriptions<Meter, MeterId>),
    /// Counters of tables.
    TableStats(Vec<TableStats>),
    /// What tables can do.
    TableFeatures(Vec<TableFeatures>),
    /// Counters of ports.
    PortStats(Vec<PortStats>),
    /// Counters of groups.
    GroupStats(Vec<GroupStats>),
    /// What groups can do.
    GroupFeatures(GroupFeatures),
    /// Counters of meters.
    MeterStats(Vec<MeterStats>),
    /// What meters can do.
    MeterFeatures(MeterFeatures),
    /// A list this crate does not know.
    Other {
        /// Its type.
        kind: u16,
        /// Its bytes.
        body: Bytes,
    },
}

/// Some of a switch's flows.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FlowDump {
    /// The flows that were understood.
    pub flows: Vec<FlowStats>,
    /// The others; never one of ours, but they are there.
    pub undecoded: Vec<UndecodedFlow>,
}

/// A flow and its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowStats {
    /// The flow.
    pub flow: Flow,
    /// Its counters.
    pub counters: FlowCounters,
}

/// A flow with a part that this crate does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecodedFlow {
    /// Its table.
    pub table: TableId,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: Cookie,
    /// Its match, if that much was understood.
    pub matching: Option<Match>,
    /// What was not understood.
    pub error: DecodeError,
}

/// Some of a switch's groups, or of its meters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptions<T, K> {
    /// Those that were understood.
    pub known: Vec<T>,
    /// The others; never one of ours, but they are there.
    pub undecoded: Vec<Undecoded<K>>,
}

impl<T, K> From<Vec<T>> for Descriptions<T, K> {
    fn from(known: Vec<T>) -> Self {
        Self { known, undecoded: Vec::new() }
    }
}

/// A group or meter with a part that this crate does not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecoded<K> {
    /// Its number.
    pub id: K,
    /// What was not understood.
    pub error: DecodeError,
}

/// Sum of flows' counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Aggregate {
    /// Their packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many flows.
    pub flows: u32,
}
