//! The numbers of OpenFlow, each a type of its own.

use std::fmt;

use serde::{Deserialize, Serialize};

/// OpenFlow port number, assigned by OVS. Not an ifindex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OfPort(pub u32);

impl OfPort {
    /// Where the packet came in.
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// Through the flow tables (packet-out only).
    pub const TABLE: Self = Self(0xffff_fff9);
    /// The switch's own MAC learning.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// All ports but the ingress port and those without flooding.
    pub const FLOOD: Self = Self(0xffff_fffb);
    /// All ports but the ingress port.
    pub const ALL: Self = Self(0xffff_fffc);
    /// The controller.
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    /// The bridge's own port.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// Any port, in filters.
    pub const ANY: Self = Self(0xffff_ffff);
    /// No port; the same number as [`OfPort::ANY`].
    pub const NONE: Self = Self(0xffff_ffff);
    /// The number of a port that does not exist (yet), as `actset_output` shows it.
    pub const UNSET: Self = Self(0xffff_fff7);
}

/// Number of a flow table.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct TableId(pub u8);

impl TableId {
    /// All tables, in filters and deletions.
    pub const ALL: Self = Self(0xff);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

impl GroupId {
    /// All groups, in deletions and dumps.
    pub const ALL: Self = Self(0xffff_fffc);
    /// Any group, in filters.
    pub const ANY: Self = Self(0xffff_ffff);
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MeterId(pub u32);

impl MeterId {
    /// All meters, in deletions and dumps.
    pub const ALL: Self = Self(0xffff_ffff);
    /// What limits all packets to controllers.
    pub const CONTROLLER: Self = Self(0xffff_fffe);
    /// What limits packets that the switch handles in its slow path.
    pub const SLOW_PATH: Self = Self(0xffff_fffd);
}

impl fmt::Display for MeterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("all"),
            Self::CONTROLLER => f.write_str("controller"),
            Self::SLOW_PATH => f.write_str("slowpath"),
            Self(number) => number.fmt(f),
        }
    }
}

/// Identifies one conjunction; what `conj_id` matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConjId(pub u32);

impl fmt::Display for ConjId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a flow carries to say whose it is. Displays as `0x1f`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Cookie(pub u64);

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// Transaction id: an answer or an error carries the id of its request.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Xid(pub u32);

impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
