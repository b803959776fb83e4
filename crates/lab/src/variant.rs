//! What varies between labs: families of addresses, the tunnel, the datapath.
//!
//! Scenarios, results and the configuration of a lab carry one [`Variant`] through.

use std::fmt;
use std::net::IpAddr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One kind of lab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Variant {
    /// Addresses of Pods and nodes.
    pub family: IpFamily,
    /// What carries packets between nodes.
    pub tunnel: Tunnel,
    /// Datapath of the switches.
    pub datapath: Datapath,
}

/// The least MTU that IPv6 runs on (RFC 8200, section 5).
pub const IPV6_MTU: u16 = 1280;

impl Variant {
    /// The least MTU of links between nodes on which Pods have IPv6; none where they have it not.
    #[must_use]
    pub fn least_mtu(self) -> Option<u16> {
        let tunnel = match self.tunnel {
            Tunnel::Geneve | Tunnel::Vxlan => 50,
            Tunnel::Gre => 42,
        };
        match self.family {
            IpFamily::Ipv4 => None,
            // Between nodes of both families IPv4 carries the tunnel.
            IpFamily::Dual => Some(IPV6_MTU + tunnel),
            IpFamily::Ipv6 => Some(IPV6_MTU + tunnel + 20),
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family.name(), self.tunnel.name(), self.datapath.name())
    }
}

/// Addresses of Pods and nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IpFamily {
    /// IPv4.
    #[default]
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Both.
    Dual,
}

impl IpFamily {
    /// As it is written on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Dual => "dual",
        }
    }

    /// Whether such a lab has addresses of this one's family.
    #[must_use]
    pub fn has(self, address: IpAddr) -> bool {
        match self {
            Self::Ipv4 => address.is_ipv4(),
            Self::Ipv6 => address.is_ipv6(),
            Self::Dual => true,
        }
    }
}

/// What carries packets between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Tunnel {
    /// Geneve.
    #[default]
    Geneve,
    /// VXLAN.
    Vxlan,
    /// GRE.
    Gre,
}

impl Tunnel {
    /// As the command line and the agent's configuration write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Geneve => "geneve",
            Self::Vxlan => "vxlan",
            Self::Gre => "gre",
        }
    }
}

/// Datapath of a lab's switches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Datapath {
    /// In user space.
    #[default]
    Netdev,
    /// In the kernel.
    System,
}

impl Datapath {
    /// As the command line and Open vSwitch write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Netdev => "netdev",
            Self::System => "system",
        }
    }

    /// The kernel's, if it has one; what `ovsDatapathType: auto` takes where a lab's node is.
    #[must_use]
    pub fn here() -> Self {
        if Self::System.obstacle().is_none() { Self::System } else { Self::Netdev }
    }

    /// Why a lab cannot have it here; none when it can.
    #[must_use]
    pub fn obstacle(self) -> Option<&'static str> {
        match self {
            Self::Netdev => None,
            Self::System if std::path::Path::new("/sys/module/openvswitch").exists() => None,
            Self::System => Some("the kernel has no openvswitch module"),
        }
    }
}
