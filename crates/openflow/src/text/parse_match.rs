//! Matches and subfields.

use std::str::FromStr;

use super::lexer;
use super::value::{number, parse};
use crate::error::ParseError;
use crate::field::Field;
use crate::matching::Match;
use crate::matching::check::{eth, ip};
use crate::subfield::Subfield;

/// Names that stand for Ethernet type and protocol.
const PROTOCOLS: &[(&str, u128, Option<u128>)] = &[
    ("ip", eth::IPV4, None),
    ("ipv4", eth::IPV4, None),
    ("icmp", eth::IPV4, Some(ip::ICMP)),
    ("tcp", eth::IPV4, Some(ip::TCP)),
    ("udp", eth::IPV4, Some(ip::UDP)),
    ("sctp", eth::IPV4, Some(ip::SCTP)),
    ("ipv6", eth::IPV6, None),
    ("ip6", eth::IPV6, None),
    ("icmp6", eth::IPV6, Some(ip::ICMP6)),
    ("tcp6", eth::IPV6, Some(ip::TCP)),
    ("udp6", eth::IPV6, Some(ip::UDP)),
    ("sctp6", eth::IPV6, Some(ip::SCTP)),
    ("arp", eth::ARP, None),
    ("rarp", eth::RARP, None),
];

/// Adds the protocol that `name` stands for, if it does.
pub(super) fn protocol(matching: &mut Match, name: &str) -> bool {
    let Some((_, eth_type, proto)) = PROTOCOLS.iter().find(|(known, ..)| *known == name) else {
        return false;
    };
    matching.set(Field::EthType, *eth_type);
    if let Some(proto) = proto {
        matching.set(Field::IpProto, *proto);
    }
    true
}

/// Adds `name=value`. Ports and ICMP types are those of the protocol that is there already.
pub(super) fn condition(matching: &mut Match, name: &str, value: &str) -> Result<(), ParseError> {
    if let Some(field) = by_context(matching, name) {
        return set(matching, field, value);
    }
    match name {
        "dl_vlan" => {
            let vid: u16 = number(value)?;
            match vid {
                0xffff => matching.set(Field::VlanVid, 0),
                0..=0xfff => matching.set(Field::VlanVid, u128::from(vid) | 0x1000),
                _ => return Err(ParseError::new("VLAN ids have 12 bits", value)),
            }
            Ok(())
        }
        "dl_vlan_pcp" | "vlan_pcp" => {
            let pcp: u8 = number(value)?;
            if pcp > 7 {
                return Err(ParseError::new("VLAN priorities have 3 bits", value));
            }
            matching.set(Field::VlanPcp, pcp.into());
            matching.add_masked(Field::VlanTci, 0x1000, 0x1000);
            Ok(())
        }
        "nw_tos" => {
            let tos: u8 = number(value)?;
            if tos & 3 != 0 {
                return Err(ParseError::new("the lowest 2 bits of nw_tos are ECN", value));
            }
            matching.set(Field::IpDscp, u128::from(tos >> 2));
            Ok(())
        }
        _ if name.contains('[') => {
            let subfield: Subfield = name.parse()?;
            let value: u128 = number(value)?;
            if subfield.extract(subfield.place(value)) != value {
                return Err(ParseError::new("value has too many bits", name));
            }
            matching.add_masked(subfield.field, subfield.place(value), subfield.mask());
            Ok(())
        }
        _ => match Field::by_name(name) {
            Some(field) => set(matching, field, value),
            None => Err(ParseError::new("unknown match field", name)),
        },
    }
}

fn set(matching: &mut Match, field: Field, value: &str) -> Result<(), ParseError> {
    let to = parse(field, value)?;
    matching.set_masked(field, to.value, to.mask);
    Ok(())
}

/// The field of a name that depends on the protocol.
pub(super) fn by_context(matching: &Match, name: &str) -> Option<Field> {
    let proto = matching.exact(Field::IpProto);
    let v6 = matching.exact(Field::EthType) == Some(eth::IPV6);
    match (name, proto) {
        ("tp_src", Some(ip::TCP)) => Some(Field::TcpSrc),
        ("tp_src", Some(ip::UDP)) => Some(Field::UdpSrc),
        ("tp_src", Some(ip::SCTP)) => Some(Field::SctpSrc),
        ("tp_dst", Some(ip::TCP)) => Some(Field::TcpDst),
        ("tp_dst", Some(ip::UDP)) => Some(Field::UdpDst),
        ("tp_dst", Some(ip::SCTP)) => Some(Field::SctpDst),
        ("icmp_type", _) if v6 => Some(Field::Icmpv6Type),
        ("icmp_code", _) if v6 => Some(Field::Icmpv6Code),
        _ => None,
    }
}

impl FromStr for Match {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let mut matching = Self::new();
        let items = lexer::items(text)?;
        from_items(&mut matching, &items)?;
        Ok(matching)
    }
}

/// Adds all items, protocols first, and checks the result.
pub(super) fn from_items(matching: &mut Match, items: &[&str]) -> Result<(), ParseError> {
    let is_base = |item: &&&str| {
        let name = item.split('=').next().unwrap_or(item);
        matches!(name, "dl_type" | "eth_type" | "nw_proto" | "ip_proto") || !item.contains('=')
    };
    for item in items.iter().filter(is_base) {
        match item.split_once('=') {
            Some((name, value)) => condition(matching, name, value)?,
            None if protocol(matching, item) => {}
            None => return Err(ParseError::new("unknown match", *item)),
        }
    }
    for item in items.iter().filter(|item| !is_base(item)) {
        if let Some((name, value)) = item.split_once('=') {
            condition(matching, name, value)?;
        }
    }
    matching.check().map_err(|error| ParseError::new(error.to_string(), items.join(",")))
}

impl FromStr for Subfield {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (name, bits) = match text.split_once('[') {
            Some((name, rest)) => match rest.strip_suffix(']') {
                Some(bits) => (name, bits),
                None => return Err(ParseError::new("missing ]", text)),
            },
            None => (text, ""),
        };
        let field = Field::by_name(name).ok_or_else(|| ParseError::new("unknown field", name))?;
        if bits.is_empty() {
            return Ok(Self::whole(field));
        }
        let (first, last) = bits.split_once("..").unwrap_or((bits, bits));
        let first: u16 = number(first)?;
        let last: u16 = number(last)?;
        let Some(n_bits) = last.checked_sub(first).and_then(|n| n.checked_add(1)) else {
            return Err(ParseError::new("last bit before the first", text));
        };
        let subfield = Self { field, offset: first, n_bits };
        subfield.check().map_err(|error| ParseError::new(error.to_string(), text))?;
        Ok(subfield)
    }
}
