//! Prerequisites: what has to be matched before a field can be.

use super::{Masked, Match};
use crate::error::CheckError;
use crate::field::{CtState, Field, IpFrag, Prereq};

/// Ethernet types that matter to prerequisites.
pub(crate) mod eth {
    pub(crate) const IPV4: u128 = 0x0800;
    pub(crate) const ARP: u128 = 0x0806;
    pub(crate) const RARP: u128 = 0x8035;
    pub(crate) const IPV6: u128 = 0x86dd;
}

/// IP protocols that matter to prerequisites.
pub(crate) mod ip {
    pub(crate) const ICMP: u128 = 1;
    pub(crate) const IGMP: u128 = 2;
    pub(crate) const TCP: u128 = 6;
    pub(crate) const UDP: u128 = 17;
    pub(crate) const ICMP6: u128 = 58;
    pub(crate) const SCTP: u128 = 132;
}

/// ICMPv6 types of neighbour discovery.
const SOLICIT: u128 = 135;
const ADVERT: u128 = 136;

pub(super) fn check(matching: &Match) -> Result<(), CheckError> {
    for (field, masked) in matching.iter() {
        if let Field::Reg(n) = field
            && n > 15
        {
            return Err(CheckError::Prerequisite { field, needs: "a register from 0 to 15" });
        }
        let info = field.info();
        if !info.maskable && !masked.is_exact(field) {
            return Err(CheckError::Unmaskable(field));
        }
        if let Some(needs) = missing(matching, info.prereq) {
            return Err(CheckError::Prerequisite { field, needs });
        }
    }
    Ok(())
}

/// What of `prereq` is not there, in words.
pub(crate) fn missing(matching: &Match, prereq: Prereq) -> Option<&'static str> {
    let eth_type = matching.exact(Field::EthType);
    let v4 = eth_type == Some(eth::IPV4);
    let v6 = eth_type == Some(eth::IPV6);
    let proto = matching.exact(Field::IpProto);
    let tracked = matching.get(Field::CtState).is_some_and(is_valid);
    // Only a packet's first fragment has ports.
    let later = u128::from(IpFrag::LATER.bits());
    let first = matching.get(Field::IpFrag).is_none_or(|m| m.value & later == 0);
    let icmp6 = v6 && first && proto == Some(ip::ICMP6);
    let icmp6_type = matching.exact(Field::Icmpv6Type);
    let (met, needs) = match prereq {
        Prereq::None => (true, ""),
        Prereq::Vlan => {
            (matching.get(Field::VlanTci).is_some_and(|m| m.value & 0x1000 != 0), "a VLAN tag")
        }
        Prereq::Arp => (matches!(eth_type, Some(eth::ARP | eth::RARP)), "eth_type ARP or RARP"),
        Prereq::Ipv4 => (v4, "eth_type IPv4"),
        Prereq::Ipv6 => (v6, "eth_type IPv6"),
        Prereq::Ip => (v4 || v6, "eth_type IPv4 or IPv6"),
        Prereq::Tcp => ((v4 || v6) && first && proto == Some(ip::TCP), "protocol TCP"),
        Prereq::Udp => ((v4 || v6) && first && proto == Some(ip::UDP), "protocol UDP"),
        Prereq::Sctp => ((v4 || v6) && first && proto == Some(ip::SCTP), "protocol SCTP"),
        Prereq::Icmp => (v4 && first && proto == Some(ip::ICMP), "protocol ICMP"),
        Prereq::Icmp6 => (icmp6, "protocol ICMPv6"),
        Prereq::Nd => {
            (icmp6 && matches!(icmp6_type, Some(SOLICIT | ADVERT)), "ICMPv6 type 135 or 136")
        }
        Prereq::NdSolicit => (icmp6 && icmp6_type == Some(SOLICIT), "ICMPv6 type 135"),
        Prereq::NdAdvert => (icmp6 && icmp6_type == Some(ADVERT), "ICMPv6 type 136"),
        Prereq::Ct => (tracked, "ct_state +trk with -inv, +new, +est, +rel or +rpl"),
        Prereq::CtIpv4 => (tracked && v4, "eth_type IPv4 and a valid ct_state"),
        Prereq::CtIpv6 => (tracked && v6, "eth_type IPv6 and a valid ct_state"),
    };
    (!met).then_some(needs)
}

/// Whether the state is that of a connection: tracked, and not invalid for sure.
fn is_valid(state: Masked) -> bool {
    let has = |flags: CtState| state.value & u128::from(flags.bits()) != 0;
    let lacks = |flags: CtState| {
        let bits = u128::from(flags.bits());
        state.mask & bits != 0 && state.value & bits == 0
    };
    let known = CtState::NEW | CtState::EST | CtState::REL | CtState::RPL;
    has(CtState::TRK) && !has(CtState::INV) && (has(known) || lacks(CtState::INV))
}
