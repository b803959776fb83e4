//! Matches, in the order and with the short names of OVS.

use std::fmt;

use super::value::Value;
use crate::field::Field;
use crate::matching::check::{eth, ip};
use crate::matching::{Masked, Match};

/// Writes parts with commas between them.
pub(super) struct Parts<'a, 'f> {
    pub(super) f: &'a mut fmt::Formatter<'f>,
    pub(super) first: bool,
}

impl Parts<'_, '_> {
    pub(super) fn part(&mut self, part: impl fmt::Display) -> fmt::Result {
        if !self.first {
            self.f.write_str(",")?;
        }
        self.first = false;
        part.fmt(self.f)
    }
}

/// `name=value`, with the number formats of a match.
struct Pair(&'static str, Field, Masked);

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name, field, to) = self;
        write!(f, "{name}=")?;
        match field {
            Field::CtZone => write!(f, "{}", to.value),
            Field::EthType => write!(f, "{:#06x}", to.value),
            Field::Ipv6Label if to.is_exact(*field) => write!(f, "{:#07x}", to.value),
            Field::Ipv6Label => write!(f, "{:#07x}/{:#07x}", to.value, to.mask),
            Field::IpDscp => write!(f, "{}", to.value << 2),
            _ => Value { field: *field, to: *to }.fmt(f),
        }
    }
}

/// Before the protocol.
const BEFORE: &[(&str, Field)] = &[
    ("pkt_mark", Field::PktMark),
    ("recirc_id", Field::RecircId),
    ("dp_hash", Field::DpHash),
    ("conj_id", Field::ConjId),
    ("actset_output", Field::ActsetOutput),
    ("ct_state", Field::CtState),
    ("ct_zone", Field::CtZone),
    ("ct_mark", Field::CtMark),
    ("ct_label", Field::CtLabel),
    ("ct_nw_src", Field::CtNwSrc),
    ("ct_ipv6_src", Field::CtIpv6Src),
    ("ct_nw_dst", Field::CtNwDst),
    ("ct_ipv6_dst", Field::CtIpv6Dst),
    ("ct_nw_proto", Field::CtNwProto),
    ("ct_tp_src", Field::CtTpSrc),
    ("ct_tp_dst", Field::CtTpDst),
    ("packet_type", Field::PacketType),
];

/// After the registers.
const MIDDLE: &[(&str, Field)] = &[
    ("tun_id", Field::TunId),
    ("tun_src", Field::TunSrc),
    ("tun_dst", Field::TunDst),
    ("tun_ipv6_src", Field::TunIpv6Src),
    ("tun_ipv6_dst", Field::TunIpv6Dst),
    ("tun_gbp_id", Field::TunGbpId),
    ("tun_gbp_flags", Field::TunGbpFlags),
    ("tun_flags", Field::TunFlags),
    ("metadata", Field::Metadata),
    ("in_port", Field::InPort),
];

/// After the Ethernet type.
const AFTER: &[(&str, Field)] = &[
    ("ipv6_src", Field::Ipv6Src),
    ("ipv6_dst", Field::Ipv6Dst),
    ("ipv6_label", Field::Ipv6Label),
    ("arp_spa", Field::ArpSpa),
    ("arp_tpa", Field::ArpTpa),
    ("nw_src", Field::Ipv4Src),
    ("nw_dst", Field::Ipv4Dst),
    ("nw_proto", Field::IpProto),
    ("arp_op", Field::ArpOp),
    ("arp_sha", Field::ArpSha),
    ("arp_tha", Field::ArpTha),
    ("nw_tos", Field::IpDscp),
    ("nw_ecn", Field::IpEcn),
    ("nw_ttl", Field::IpTtl),
    ("nw_frag", Field::IpFrag),
    ("icmp_type", Field::Icmpv4Type),
    ("icmp_code", Field::Icmpv4Code),
    ("icmp_type", Field::Icmpv6Type),
    ("icmp_code", Field::Icmpv6Code),
    ("nd_target", Field::NdTarget),
    ("nd_sll", Field::NdSll),
    ("nd_tll", Field::NdTll),
    ("nd_reserved", Field::NdReserved),
    ("nd_options_type", Field::NdOptionsType),
    ("tp_src", Field::TcpSrc),
    ("tp_dst", Field::TcpDst),
    ("tp_src", Field::UdpSrc),
    ("tp_dst", Field::UdpDst),
    ("tp_src", Field::SctpSrc),
    ("tp_dst", Field::SctpDst),
    ("tcp_flags", Field::TcpFlags),
];

/// The short name for Ethernet type and protocol, and whether it tells the protocol too.
pub(super) fn protocol(matching: &Match) -> Option<(&'static str, bool)> {
    let names = match matching.exact(Field::EthType)? {
        eth::IPV4 => [("icmp", ip::ICMP), ("tcp", ip::TCP), ("udp", ip::UDP), ("sctp", ip::SCTP)],
        eth::IPV6 => {
            [("icmp6", ip::ICMP6), ("tcp6", ip::TCP), ("udp6", ip::UDP), ("sctp6", ip::SCTP)]
        }
        eth::ARP => return Some(("arp", false)),
        eth::RARP => return Some(("rarp", false)),
        _ => return None,
    };
    let proto = matching.exact(Field::IpProto);
    match names.iter().find(|(_, number)| proto == Some(*number)) {
        Some((name, _)) => Some((name, true)),
        None if names[0].1 == ip::ICMP => Some(("ip", false)),
        None => Some(("ipv6", false)),
    }
}

pub(super) fn write(parts: &mut Parts<'_, '_>, matching: &Match) -> fmt::Result {
    let list = |parts: &mut Parts<'_, '_>, fields: &[(&'static str, Field)]| {
        fields.iter().try_for_each(|(name, field)| match matching.get(*field) {
            Some(to) => parts.part(Pair(name, *field, to)),
            None => Ok(()),
        })
    };
    list(parts, BEFORE)?;
    let protocol = protocol(matching);
    if let Some((name, _)) = protocol {
        parts.part(name)?;
    }
    for (field, to) in matching.iter() {
        if let Field::Reg(_) = field {
            parts.part(Pair(field.info().name, field, to))?;
        }
    }
    list(parts, MIDDLE)?;
    if let Some(tci) = matching.get(Field::VlanTci) {
        write_vlan(parts, tci)?;
    }
    list(parts, &[("dl_src", Field::EthSrc), ("dl_dst", Field::EthDst)])?;
    if protocol.is_none() {
        list(parts, &[("dl_type", Field::EthType)])?;
    }
    for (name, field) in AFTER {
        if *field == Field::IpProto && protocol.is_some_and(|(_, tells)| tells) {
            continue;
        }
        if let Some(to) = matching.get(*field) {
            parts.part(Pair(name, *field, to))?;
        }
    }
    Ok(())
}

fn write_vlan(parts: &mut Parts<'_, '_>, tci: Masked) -> fmt::Result {
    let Masked { value, mask } = tci;
    let vid = mask & 0xfff;
    let pcp = mask >> 13;
    let tagged = mask & value & 0x1000 != 0;
    if tagged && (vid == 0 || vid == 0xfff) && (pcp == 0 || pcp == 7) && (vid != 0 || pcp != 0) {
        if vid != 0 {
            parts.part(format_args!("dl_vlan={}", value & 0xfff))?;
        }
        if pcp != 0 {
            parts.part(format_args!("dl_vlan_pcp={}", value >> 13))?;
        }
        Ok(())
    } else if mask == 0xffff {
        parts.part(format_args!("vlan_tci={value:#06x}"))
    } else {
        parts.part(format_args!("vlan_tci={value:#06x}/{mask:#06x}"))
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&mut Parts { f, first: true }, self)
    }
}
