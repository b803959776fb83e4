//! Builders named as `ovs-ofctl` names what they match.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{Match, check::eth, check::ip};
use crate::field::{CtState, Field, IpFrag};
use crate::ids::{ConjId, OfPort};
use crate::mac::MacAddr;
use crate::subfield::Subfield;

/// Protocol names that imply the Ethernet type and, where they mean one, the IP protocol.
impl Match {
    /// IPv4.
    #[must_use]
    pub fn ip(self) -> Self {
        self.with(Field::EthType, eth::IPV4)
    }

    /// IPv6.
    #[must_use]
    pub fn ipv6(self) -> Self {
        self.with(Field::EthType, eth::IPV6)
    }

    /// ARP.
    #[must_use]
    pub fn arp(self) -> Self {
        self.with(Field::EthType, eth::ARP)
    }

    /// IPv4 TCP.
    #[must_use]
    pub fn tcp(self) -> Self {
        self.ip().with(Field::IpProto, ip::TCP)
    }

    /// IPv4 UDP.
    #[must_use]
    pub fn udp(self) -> Self {
        self.ip().with(Field::IpProto, ip::UDP)
    }

    /// IPv4 SCTP.
    #[must_use]
    pub fn sctp(self) -> Self {
        self.ip().with(Field::IpProto, ip::SCTP)
    }

    /// ICMP.
    #[must_use]
    pub fn icmp(self) -> Self {
        self.ip().with(Field::IpProto, ip::ICMP)
    }

    /// IGMP.
    #[must_use]
    pub fn igmp(self) -> Self {
        self.ip().with(Field::IpProto, ip::IGMP)
    }

    /// IPv6 TCP.
    #[must_use]
    pub fn tcp6(self) -> Self {
        self.ipv6().with(Field::IpProto, ip::TCP)
    }

    /// IPv6 UDP.
    #[must_use]
    pub fn udp6(self) -> Self {
        self.ipv6().with(Field::IpProto, ip::UDP)
    }

    /// IPv6 SCTP.
    #[must_use]
    pub fn sctp6(self) -> Self {
        self.ipv6().with(Field::IpProto, ip::SCTP)
    }

    /// ICMPv6.
    #[must_use]
    pub fn icmp6(self) -> Self {
        self.ipv6().with(Field::IpProto, ip::ICMP6)
    }

    /// The Ethernet type.
    #[must_use]
    pub fn eth_type(self, eth_type: u16) -> Self {
        self.with(Field::EthType, eth_type.into())
    }

    /// The IP protocol.
    #[must_use]
    pub fn ip_proto(self, proto: u8) -> Self {
        self.with(Field::IpProto, proto.into())
    }
}

/// Addresses, ports and other headers.
impl Match {
    /// The ingress port.
    #[must_use]
    pub fn in_port(self, port: OfPort) -> Self {
        self.with(Field::InPort, port.0.into())
    }

    /// The Ethernet source.
    #[must_use]
    pub fn eth_src(self, mac: MacAddr) -> Self {
        self.with(Field::EthSrc, mac.to_bits().into())
    }

    /// The Ethernet destination.
    #[must_use]
    pub fn eth_dst(self, mac: MacAddr) -> Self {
        self.with(Field::EthDst, mac.to_bits().into())
    }

    /// An IPv4 source address or prefix.
    #[must_use]
    pub fn nw_src(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::Ipv4Src, net.into())
    }

    /// An IPv4 destination address or prefix.
    #[must_use]
    pub fn nw_dst(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::Ipv4Dst, net.into())
    }

    /// An IPv6 source address or prefix.
    #[must_use]
    pub fn ipv6_src(self, net: impl Into<Ipv6Net>) -> Self {
        self.ipv6_net(Field::Ipv6Src, net.into())
    }

    /// An IPv6 destination address or prefix.
    #[must_use]
    pub fn ipv6_dst(self, net: impl Into<Ipv6Net>) -> Self {
        self.ipv6_net(Field::Ipv6Dst, net.into())
    }

    /// A source address or prefix of either family, with the Ethernet type that goes with it.
    #[must_use]
    pub fn src_net(self, net: impl Into<IpNet>) -> Self {
        match net.into() {
            IpNet::V4(net) => self.ip().nw_src(net),
            IpNet::V6(net) => self.ipv6().ipv6_src(net),
        }
    }

    /// A destination address or prefix of either family, with the Ethernet type.
    #[must_use]
    pub fn dst_net(self, net: impl Into<IpNet>) -> Self {
        match net.into() {
            IpNet::V4(net) => self.ip().nw_dst(net),
            IpNet::V6(net) => self.ipv6().ipv6_dst(net),
        }
    }

    /// The ARP operation: 1 request, 2 reply.
    #[must_use]
    pub fn arp_op(self, op: u16) -> Self {
        self.with(Field::ArpOp, op.into())
    }

    /// The ARP sender's IPv4 address or prefix.
    #[must_use]
    pub fn arp_spa(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::ArpSpa, net.into())
    }

    /// The ARP target's IPv4 address or prefix.
    #[must_use]
    pub fn arp_tpa(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::ArpTpa, net.into())
    }

    /// The ARP sender's Ethernet address.
    #[must_use]
    pub fn arp_sha(self, mac: MacAddr) -> Self {
        self.with(Field::ArpSha, mac.to_bits().into())
    }

    /// The ARP target's Ethernet address.
    #[must_use]
    pub fn arp_tha(self, mac: MacAddr) -> Self {
        self.with(Field::ArpTha, mac.to_bits().into())
    }

    /// The source port of the transport protocol matched before; nothing without one.
    #[must_use]
    pub fn tp_src(self, port: u16) -> Self {
        self.tp_src_masked(port, u16::MAX)
    }

    /// The destination port of the transport protocol matched before; nothing without one.
    #[must_use]
    pub fn tp_dst(self, port: u16) -> Self {
        self.tp_dst_masked(port, u16::MAX)
    }

    /// Some bits of the source port of the transport protocol matched before.
    #[must_use]
    pub fn tp_src_masked(self, port: u16, mask: u16) -> Self {
        match self.transport() {
            Some([src, _]) => self.with_masked(src, port.into(), mask.into()),
            None => self,
        }
    }

    /// Some bits of the destination port of the transport protocol matched before.
    #[must_use]
    pub fn tp_dst_masked(self, port: u16, mask: u16) -> Self {
        match self.transport() {
            Some([_, dst]) => self.with_masked(dst, port.into(), mask.into()),
            None => self,
        }
    }

    /// TCP flags: those of `set` have to be set, those of `clear` not.
    #[must_use]
    pub fn tcp_flags(self, set: u16, clear: u16) -> Self {
        self.with_masked(Field::TcpFlags, set.into(), (set | clear).into())
    }

    /// ICMP or ICMPv6 type, by the protocol matched before.
    #[must_use]
    pub fn icmp_type(self, icmp_type: u8) -> Self {
        let v6 = self.exact(Field::EthType) == Some(eth::IPV6);
        self.with(if v6 { Field::Icmpv6Type } else { Field::Icmpv4Type }, icmp_type.into())
    }

    /// ICMP or ICMPv6 code, by the protocol matched before.
    #[must_use]
    pub fn icmp_code(self, code: u8) -> Self {
        let v6 = self.exact(Field::EthType) == Some(eth::IPV6);
        self.with(if v6 { Field::Icmpv6Code } else { Field::Icmpv4Code }, code.into())
    }

    /// Target of a neighbour solicitation or advertisement.
    #[must_use]
    pub fn nd_target(self, net: impl Into<Ipv6Net>) -> Self {
        self.ipv6_net(Field::NdTarget, net.into())
    }

    /// Source link layer address in a solicitation.
    #[must_use]
    pub fn nd_sll(self, mac: MacAddr) -> Self {
        self.with(Field::NdSll, mac.to_bits().into())
    }

    /// Target link layer address in an advertisement.
    #[must_use]
    pub fn nd_tll(self, mac: MacAddr) -> Self {
        self.with(Field::NdTll, mac.to_bits().into())
    }

    /// Fragment kind: the bits of `mask` have to be as in `value`.
    #[must_use]
    pub fn ip_frag(self, value: IpFrag, mask: IpFrag) -> Self {
        self.with_masked(Field::IpFrag, value.bits().into(), mask.bits().into())
    }

    /// The DSCP, 6 bits.
    #[must_use]
    pub fn ip_dscp(self, dscp: u8) -> Self {
        self.with(Field::IpDscp, dscp.into())
    }

    /// A packet with this VLAN id.
    #[must_use]
    pub fn vlan_vid(self, vid: u16) -> Self {
        self.with(Field::VlanVid, u128::from(vid & 0xfff) | 0x1000)
    }

    /// A packet without VLAN tag.
    #[must_use]
    pub fn no_vlan(self) -> Self {
        self.with(Field::VlanTci, 0)
    }

    fn transport(&self) -> Option<[Field; 2]> {
        match self.exact(Field::IpProto)? {
            ip::TCP => Some([Field::TcpSrc, Field::TcpDst]),
            ip::UDP => Some([Field::UdpSrc, Field::UdpDst]),
            ip::SCTP => Some([Field::SctpSrc, Field::SctpDst]),
            _ => None,
        }
    }

    fn ipv4_net(self, field: Field, net: Ipv4Net) -> Self {
        self.with_masked(field, bits4(net.addr()), bits4(net.netmask()))
    }

    fn ipv6_net(self, field: Field, net: Ipv6Net) -> Self {
        self.with_masked(field, bits6(net.addr()), bits6(net.netmask()))
    }
}

/// What the pipeline itself attaches to packets.
impl Match {
    /// Bits of a register (or of another field) equal to `value`; other bits keep their condition.
    #[must_use]
    pub fn reg(mut self, place: Subfield, value: u128) -> Self {
        self.add_masked(place.field, place.place(value), place.mask());
        self
    }

    /// Connection state: bits of `set` have to be set, bits of `clear` not.
    #[must_use]
    pub fn ct_state(self, set: CtState, clear: CtState) -> Self {
        self.with_masked(Field::CtState, set.bits().into(), (set | clear).bits().into())
    }

    /// Connection tracking zone.
    #[must_use]
    pub fn ct_zone(self, zone: u16) -> Self {
        self.with(Field::CtZone, zone.into())
    }

    /// Bits of the connection mark; other bits keep their condition.
    #[must_use]
    pub fn ct_mark(mut self, value: u32, mask: u32) -> Self {
        self.add_masked(Field::CtMark, value.into(), mask.into());
        self
    }

    /// Bits of the connection label; other bits keep their condition.
    #[must_use]
    pub fn ct_label(mut self, value: u128, mask: u128) -> Self {
        self.add_masked(Field::CtLabel, value, mask);
        self
    }

    /// Bits of the packet mark; other bits keep their condition.
    #[must_use]
    pub fn pkt_mark(mut self, value: u32, mask: u32) -> Self {
        self.add_masked(Field::PktMark, value.into(), mask.into());
        self
    }

    /// Original direction's IPv4 source.
    #[must_use]
    pub fn ct_nw_src(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::CtNwSrc, net.into())
    }

    /// Original direction's IPv4 destination.
    #[must_use]
    pub fn ct_nw_dst(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::CtNwDst, net.into())
    }

    /// Original direction's IPv6 source.
    #[must_use]
    pub fn ct_ipv6_src(self, net: impl Into<Ipv6Net>) -> Self {
        self.ipv6_net(Field::CtIpv6Src, net.into())
    }

    /// Original direction's IPv6 destination.
    #[must_use]
    pub fn ct_ipv6_dst(self, net: impl Into<Ipv6Net>) -> Self {
        self.ipv6_net(Field::CtIpv6Dst, net.into())
    }

    /// A conjunction was met.
    #[must_use]
    pub fn conj_id(self, id: ConjId) -> Self {
        self.with(Field::ConjId, id.0.into())
    }

    /// The tunnel key.
    #[must_use]
    pub fn tun_id(self, id: u64) -> Self {
        self.with(Field::TunId, id.into())
    }

    /// The outer IPv4 source.
    #[must_use]
    pub fn tun_src(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::TunSrc, net.into())
    }

    /// The outer IPv4 destination.
    #[must_use]
    pub fn tun_dst(self, net: impl Into<Ipv4Net>) -> Self {
        self.ipv4_net(Field::TunDst, net.into())
    }

    /// The outer IPv6 source.
    #[must_use]
    pub fn tun_ipv6_src(self, net: impl Into<Ipv6Net>) -> Self {
        self.ipv6_net(Field::TunIpv6Src, net.into())
    }

    /// The outer IPv6 destination.
    #[must_use]
    pub fn tun_ipv6_dst(self, net: impl Into<Ipv6Net>) -> Self {
        self.ipv6_net(Field::TunIpv6Dst, net.into())
    }

    /// OpenFlow metadata.
    #[must_use]
    pub fn metadata(self, value: u64, mask: u64) -> Self {
        self.with_masked(Field::Metadata, value.into(), mask.into())
    }
}

pub(crate) fn bits4(address: Ipv4Addr) -> u128 {
    u128::from(u32::from(address))
}

pub(crate) fn bits6(address: Ipv6Addr) -> u128 {
    u128::from(address)
}
