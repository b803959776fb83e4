//! Addresses that stand for something else than an interface.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};
use openflow::MacAddr;

/// Destination of frames in the tunnel, and the neighbour address of peers' gateways.
pub const VIRTUAL_MAC: MacAddr = MacAddr([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);

/// The same, between clusters.
pub const MULTICLUSTER_VIRTUAL_MAC: MacAddr = MacAddr([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xf0]);

/// Source of frames on the gateway port that the host itself made, where the host marks them so: a
/// packet mark does not cross the port on every datapath.
pub const HOST_MAC: MacAddr = MacAddr([0x0a, 0x00, 0x00, 0x00, 0x80, 0x01]);

/// Next hop of Services' routes, and source of hairpinned Service traffic.
pub const VIRTUAL_SERVICE_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 253);

/// [`VIRTUAL_SERVICE_IP`] for IPv6.
pub const VIRTUAL_SERVICE_IP_V6: Ipv6Addr =
    Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0xaabb, 0xccdd, 0xeeff);

/// Where the host sends what came to a NodePort.
pub const VIRTUAL_NODE_PORT_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 252);

/// [`VIRTUAL_NODE_PORT_IP`] for IPv6.
pub const VIRTUAL_NODE_PORT_IP_V6: Ipv6Addr =
    Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0xaabb, 0xccdd, 0xeefe);

/// Next hop of Egress replies.
pub const VIRTUAL_EGRESS_REPLY_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 0, 251);

/// [`VIRTUAL_EGRESS_REPLY_IP`] for IPv6.
pub const VIRTUAL_EGRESS_REPLY_IP_V6: Ipv6Addr =
    Ipv6Addr::new(0xfc01, 0, 0, 0, 0, 0xaabb, 0xccdd, 0xeefd);

/// All of IPv4 multicast.
pub const MULTICAST_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4);

/// The limited broadcast address.
pub const BROADCAST_V4: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32);

/// All of IPv6 multicast.
pub const MULTICAST_V6: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);

/// IPv6 link-local addresses.
pub const LINK_LOCAL_V6: Ipv6Net =
    Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10);

/// The link-local address that Linux forms of an Ethernet address.
#[must_use]
pub fn link_local(mac: MacAddr) -> Ipv6Addr {
    let [a, b, c, d, e, f] = mac.0;
    let pair = |hi, lo| u16::from_be_bytes([hi, lo]);
    Ipv6Addr::new(0xfe80, 0, 0, 0, pair(a ^ 2, b), pair(c, 0xff), pair(0xfe, d), pair(e, f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses() {
        let mac = "0a:00:00:00:01:02".parse().unwrap();
        assert_eq!(link_local(mac).to_string(), "fe80::800:ff:fe00:102");
    }
}
