//! Counters and abilities of tables, ports, groups and meters.

use std::time::Duration;

use bitflags::bitflags;
use bytes::Bytes;

use crate::ids::{GroupId, MeterId, OfPort, TableId};

/// What a flow table did so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table: TableId,
    /// Flows in it.
    pub active: u32,
    /// Packets that were looked up in it.
    pub lookups: u64,
    /// Packets that met a flow.
    pub matched: u64,
}

/// What a flow table can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table: TableId,
    /// What is done with the features: 0 in replies.
    pub command: u8,
    /// Bits of features.
    pub features: u32,
    /// Its name, at most 31 bytes.
    pub name: String,
    /// Bits of the metadata that flows can match.
    pub metadata_match: u64,
    /// Bits of the metadata that flows can write.
    pub metadata_write: u64,
    /// Bits of capabilities: 4 eviction, 8 vacancy events.
    pub capabilities: u32,
    /// How many flows it can hold.
    pub max_entries: u32,
    /// What instructions, actions and fields it knows.
    pub properties: Vec<TableProperty>,
}

/// One list of what a table knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableProperty {
    /// Which list, by the numbers of `ofp_table_feature_prop_type`.
    pub kind: u16,
    /// The list as it travels.
    pub body: Bytes,
}

impl TableProperty {
    /// Instructions.
    pub const INSTRUCTIONS: u16 = 0;
    /// Tables to go to.
    pub const NEXT_TABLES: u16 = 2;
    /// Actions of `write_actions`.
    pub const WRITE_ACTIONS: u16 = 4;
    /// Actions of flows.
    pub const APPLY_ACTIONS: u16 = 6;
    /// Fields to match.
    pub const MATCH: u16 = 8;
    /// Fields that need not be matched.
    pub const WILDCARDS: u16 = 10;
    /// Fields that actions of `write_actions` set.
    pub const WRITE_SET_FIELD: u16 = 12;
    /// Fields that actions of flows set.
    pub const APPLY_SET_FIELD: u16 = 14;
}

impl TableFeatures {
    /// The list of this kind, as it travels.
    #[must_use]
    pub fn property(&self, kind: u16) -> Option<&Bytes> {
        self.properties.iter().find(|property| property.kind == kind).map(|p| &p.body)
    }

    /// Whether a flow of the table can go on in `table`.
    #[must_use]
    pub fn leads_to(&self, table: TableId) -> bool {
        self.property(TableProperty::NEXT_TABLES).is_some_and(|list| list.contains(&table.0))
    }
}

/// What passed a port so far. A counter that the switch does not keep is `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStats {
    /// The port.
    pub port: OfPort,
    /// How long it has been there.
    pub duration: Duration,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Received packets that were dropped.
    pub rx_dropped: u64,
    /// Packets to be sent that were dropped.
    pub tx_dropped: u64,
    /// Errors in receiving.
    pub rx_errors: u64,
    /// Errors in sending.
    pub tx_errors: u64,
    /// What only Ethernet ports count.
    pub ethernet: Option<EthernetStats>,
}

/// Counters of an Ethernet port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetStats {
    /// Frames with alignment errors.
    pub rx_frame_errors: u64,
    /// Packets with receive overrun.
    pub rx_over_errors: u64,
    /// Frames with a wrong checksum.
    pub rx_crc_errors: u64,
    /// Collisions.
    pub collisions: u64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PacketCount {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a group did so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStats {
    /// The group.
    pub group: GroupId,
    /// Flows and groups that use it.
    pub ref_count: u32,
    /// What it was given.
    pub total: PacketCount,
    /// How long it has been there.
    pub duration: Duration,
    /// What each bucket was given, in their order.
    pub buckets: Vec<PacketCount>,
}

bitflags! {
    /// What groups of a switch can do.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct GroupCapabilities: u32 {
        /// Buckets have weights.
        const SELECT_WEIGHT = 1;
        /// Buckets are chosen by whether they are alive.
        const SELECT_LIVENESS = 1 << 1;
        /// Groups can use groups.
        const CHAINING = 1 << 2;
        /// Loops of groups are refused.
        const CHAINING_CHECKS = 1 << 3;
        /// Bits this crate has no name for.
        const _ = !0;
    }
}

/// What groups of a switch can do. Arrays are in the order all, select, indirect, fast failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupFeatures {
    /// Bit n: it has groups of type n.
    pub types: u32,
    /// What they can do.
    pub capabilities: GroupCapabilities,
    /// How many of each type.
    pub max_groups: [u32; 4],
    /// Bit n: buckets of the type can have action n.
    pub actions: [u32; 4],
}

/// What a meter did so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterStats {
    /// The meter.
    pub meter: MeterId,
    /// Flows that use it.
    pub ref_count: u32,
    /// What it was given.
    pub total: PacketCount,
    /// How long it has been there.
    pub duration: Duration,
    /// What each band acted on: with a drop band, what was dropped.
    pub bands: Vec<PacketCount>,
}

/// What meters of a switch can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterFeatures {
    /// How many there can be: their numbers are below or equal; 0 means that there are no meters.
    pub max_meters: u32,
    /// Bit n: bands of type n (1 drop, 2 dscp remark).
    pub band_types: u32,
    /// Flags that meters can have, as bits of [`MeterFlags`](crate::MeterFlags).
    pub capabilities: u32,
    /// Bands that a meter can have.
    pub max_bands: u8,
    /// Colors.
    pub max_color: u8,
}
