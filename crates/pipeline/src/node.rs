//! What the flows are made from: this node, its Pods, its peers.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::{MacAddr, Match, OfPort};
use serde::{Deserialize, Serialize};

use crate::features::service::ServiceConfig;
use crate::layout::Layout;

/// The address families that Pods have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both.
    Dual,
}

impl Families {
    /// The families of a node's Pod prefixes; none when there is no prefix.
    #[must_use]
    pub fn of(pod_cidrs: &[IpNet]) -> Option<Self> {
        let v4 = pod_cidrs.iter().any(|cidr| matches!(cidr, IpNet::V4(_)));
        let v6 = pod_cidrs.iter().any(|cidr| matches!(cidr, IpNet::V6(_)));
        match (v4, v6) {
            (true, true) => Some(Self::Dual),
            (true, false) => Some(Self::V4),
            (false, true) => Some(Self::V6),
            (false, false) => None,
        }
    }

    /// Whether IPv4 is among them.
    #[must_use]
    pub fn has_v4(self) -> bool {
        self != Self::V6
    }

    /// Whether IPv6 is among them.
    #[must_use]
    pub fn has_v6(self) -> bool {
        self != Self::V4
    }

    /// Whether the address' family is among them.
    #[must_use]
    pub fn has(self, address: IpAddr) -> bool {
        if address.is_ipv4() { self.has_v4() } else { self.has_v6() }
    }
}

/// The host's interface on the bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// Its port.
    pub ofport: OfPort,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Its addresses, at most one of each family.
    pub ips: Vec<IpAddr>,
}

/// Encapsulation between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TunnelKind {
    /// Geneve, over UDP.
    Geneve,
    /// VXLAN, over UDP.
    Vxlan,
    /// GRE, an IP protocol.
    Gre,
    /// STT, over TCP's protocol number.
    Stt,
}

/// The port that leads to the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tunnel {
    /// Its port.
    pub ofport: OfPort,
    /// Its encapsulation.
    pub kind: TunnelKind,
    /// Its transport port; GRE has none and takes 0.
    pub port: u16,
}

impl Tunnel {
    /// Takes packets that are encapsulated in IPv4.
    pub(crate) fn outer_v4(self) -> Match {
        match self.kind {
            TunnelKind::Geneve | TunnelKind::Vxlan => Match::new().udp().tp_dst(self.port),
            TunnelKind::Stt => Match::new().tcp().tp_dst(self.port),
            TunnelKind::Gre => Match::new().ip().ip_proto(GRE),
        }
    }

    /// Takes packets that are encapsulated in IPv6.
    pub(crate) fn outer_v6(self) -> Match {
        match self.kind {
            TunnelKind::Geneve | TunnelKind::Vxlan => Match::new().udp6().tp_dst(self.port),
            TunnelKind::Stt => Match::new().tcp6().tp_dst(self.port),
            TunnelKind::Gre => Match::new().ipv6().ip_proto(GRE),
        }
    }
}

const GRE: u8 = 47;

/// This node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// The families of Pods.
    pub families: Families,
    /// The host's interface on the bridge.
    pub gateway: Gateway,
    /// The way to other nodes; none where Pod traffic is not encapsulated.
    pub tunnel: Option<Tunnel>,
    /// Prefixes of this node's Pods, at most one of each family.
    pub pod_cidrs: Vec<IpNet>,
    /// Every address of the host at which encapsulated packets could be received, whatever its
    /// family: the transport address and the others.
    pub node_ips: Vec<IpAddr>,
    /// How Services are served; none where the bridge serves none.
    pub services: Option<ServiceConfig>,
}

/// A Pod of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodInterface {
    /// Interface name, for people.
    pub name: String,
    /// Its port.
    pub ofport: OfPort,
    /// The Ethernet address inside the Pod.
    pub mac: MacAddr,
    /// The Pod's addresses.
    pub ips: Vec<IpAddr>,
}

/// Another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerNode {
    /// Node name, for people.
    pub name: String,
    /// Prefixes of its Pods.
    pub pod_cidrs: Vec<IpNet>,
    /// Addresses of its gateway.
    pub gateway_ips: Vec<IpAddr>,
    /// Where encapsulated packets are sent to and come from.
    pub node_ip: IpAddr,
    /// Further addresses of the node.
    pub other_ips: Vec<IpAddr>,
}

impl NodeConfig {
    /// The tables in use on this node.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families() {
        let net = |text: &str| text.parse::<IpNet>().unwrap();
        assert_eq!(Families::of(&[]), None);
        assert_eq!(Families::of(&[net("10.0.0.0/24")]), Some(Families::V4));
        assert_eq!(Families::of(&[net("fd00::/64")]), Some(Families::V6));
        assert_eq!(Families::of(&[net("fd00::/64"), net("10.0.0.0/24")]), Some(Families::Dual));
    }
}
