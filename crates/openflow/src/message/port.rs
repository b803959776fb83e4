//! Ports of the switch.

use bitflags::bitflags;

use crate::ids::OfPort;
use crate::mac::MacAddr;

bitflags! {
    /// How a port is configured.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct PortConfig: u32 {
        /// Administratively down.
        const PORT_DOWN = 1;
        /// Drops what it receives.
        const NO_RECV = 1 << 2;
        /// Sends nothing.
        const NO_FWD = 1 << 5;
        /// Sends no packet-ins.
        const NO_PACKET_IN = 1 << 6;
        /// Bits this crate has no name for.
        const _ = !0;
    }
}

bitflags! {
    /// What state a port is in.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct PortState: u32 {
        /// No carrier.
        const LINK_DOWN = 1;
        /// Blocked by a protocol.
        const BLOCKED = 1 << 1;
        /// Alive, for fast failover.
        const LIVE = 1 << 2;
        /// Bits this crate has no name for.
        const _ = !0;
    }
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDesc {
    /// Its number.
    pub port: OfPort,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its name, at most 15 bytes.
    pub name: String,
    /// How it is configured.
    pub config: PortConfig,
    /// What state it is in.
    pub state: PortState,
    /// Speed in kbit/s, if the switch says.
    pub speed_kbps: Option<u32>,
}

/// What happened to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortReason {
    /// It is new.
    Add,
    /// It is gone.
    Delete,
    /// It changed.
    Modify,
}

/// A port changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    /// What happened.
    pub reason: PortReason,
    /// The port.
    pub desc: PortDesc,
}

/// Configures a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortMod {
    /// The port.
    pub port: OfPort,
    /// Its Ethernet address, so that none is changed by mistake.
    pub mac: MacAddr,
    /// The bits' values.
    pub config: PortConfig,
    /// Which bits are changed.
    pub mask: PortConfig,
}
