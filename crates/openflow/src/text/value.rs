//! Values of fields: numbers, addresses, flags.

use std::fmt::{self, Display as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::ParseError;
use crate::field::{CT_STATE_NAMES, Field, Format, TCP_FLAG_NAMES, TUN_FLAG_NAMES};
use crate::ids::OfPort;
use crate::mac::MacAddr;
use crate::matching::Masked;
use crate::subfield::ones;

/// `0` for zero, hexadecimal otherwise: how OVS writes `%#x`.
pub(super) fn hex(f: &mut fmt::Formatter<'_>, value: u128) -> fmt::Result {
    if value == 0 { f.write_str("0") } else { write!(f, "{value:#x}") }
}

const PORTS: &[(&str, OfPort)] = &[
    ("UNSET", OfPort::UNSET),
    ("IN_PORT", OfPort::IN_PORT),
    ("TABLE", OfPort::TABLE),
    ("NORMAL", OfPort::NORMAL),
    ("FLOOD", OfPort::FLOOD),
    ("ALL", OfPort::ALL),
    ("CONTROLLER", OfPort::CONTROLLER),
    ("LOCAL", OfPort::LOCAL),
    ("ANY", OfPort::ANY),
    ("NONE", OfPort::NONE),
];

impl fmt::Display for OfPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PORTS.iter().find(|(_, port)| port == self) {
            Some((name, _)) => f.write_str(name),
            None => self.0.fmt(f),
        }
    }
}

impl FromStr for OfPort {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some((_, port)) = PORTS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Ok(*port);
        }
        let number: u32 = number(text)?;
        // Numbers of OpenFlow 1.0 for reserved ports.
        Ok(Self(if (0xff00..=0xffff).contains(&number) { number | 0xffff_0000 } else { number }))
    }
}

/// A decimal, octal or hexadecimal number that fits the type.
pub(super) fn number<T: TryFrom<u128>>(text: &str) -> Result<T, ParseError> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let parsed = match digits {
        Some(digits) if !digits.starts_with('+') => u128::from_str_radix(digits, 16),
        None if !text.starts_with('+') => text.parse(),
        _ => return Err(ParseError::new("not a number", text)),
    };
    let value = parsed.map_err(|_| ParseError::new("not a number", text))?;
    T::try_from(value).map_err(|_| ParseError::new("number too big", text))
}

/// A value as `ovs-ofctl` writes it in a match or in `set_field`.
pub(super) struct Value {
    pub(super) field: Field,
    pub(super) to: Masked,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Masked { value, mask } = self.to;
        let info = self.field.info();
        let exact = mask == ones(info.bits);
        match info.format {
            Format::Dec if exact => write!(f, "{value}"),
            Format::Dec => write!(f, "{value:#x}/{mask:#x}"),
            Format::Hex => {
                hex(f, value)?;
                if !exact {
                    write!(f, "/{mask:#x}")?;
                }
                Ok(())
            }
            Format::Port => match u32::try_from(value) {
                Ok(port) => port_of(self.field, port).fmt(f),
                Err(_) => Err(fmt::Error),
            },
            Format::Eth => {
                mac(value).fmt(f)?;
                if !exact {
                    write!(f, "/{}", mac(mask))?;
                }
                Ok(())
            }
            Format::Ipv4 => ipv4(f, value, mask),
            Format::Ipv6 => ipv6(f, value, mask),
            Format::Frag => f.write_str(frag_name(value, mask)),
            Format::TcpFlags => flags(f, self.to, TCP_FLAG_NAMES, exact),
            Format::TunFlags => flags(f, self.to, TUN_FLAG_NAMES, false),
            Format::CtState => flags(f, self.to, CT_STATE_NAMES, exact),
            Format::PacketType => write!(f, "({},{:#x})", value >> 16, value & 0xffff),
        }
    }
}

fn port_of(field: Field, number: u32) -> OfPort {
    if field == Field::InPort16 && number >= 0xff00 {
        OfPort(number | 0xffff_0000)
    } else {
        OfPort(number)
    }
}

fn mac(value: u128) -> MacAddr {
    let [.., a, b, c, d, e, f] = value.to_be_bytes();
    MacAddr([a, b, c, d, e, f])
}

fn ipv4(f: &mut fmt::Formatter<'_>, value: u128, mask: u128) -> fmt::Result {
    let address = |bits: u128| {
        let [.., a, b, c, d] = bits.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    address(value).fmt(f)?;
    match prefix_len(mask << 96) {
        Some(32) => Ok(()),
        Some(len) => write!(f, "/{len}"),
        None => write!(f, "/{}", address(mask)),
    }
}

fn ipv6(f: &mut fmt::Formatter<'_>, value: u128, mask: u128) -> fmt::Result {
    Ipv6Addr::from(value).fmt(f)?;
    match prefix_len(mask) {
        Some(128) => Ok(()),
        Some(len) => write!(f, "/{len}"),
        None => write!(f, "/{}", Ipv6Addr::from(mask)),
    }
}

/// The number of leading ones, if the rest is zeros.
fn prefix_len(mask: u128) -> Option<u32> {
    let len = mask.leading_ones();
    (mask.count_ones() == len).then_some(len)
}

const FRAGS: &[(&str, u128, u128)] =
    &[("no", 0, 3), ("yes", 1, 1), ("first", 1, 3), ("later", 3, 3), ("not_later", 0, 2)];

fn frag_name(value: u128, mask: u128) -> &'static str {
    FRAGS
        .iter()
        .find(|(_, v, m)| (*v, *m) == (value, mask))
        // OVS has no name for the other combinations either.
        .map_or("<error>", |(name, ..)| name)
}

fn flags(f: &mut fmt::Formatter<'_>, to: Masked, names: &[&str], exact: bool) -> fmt::Result {
    let named = ones(u16::try_from(names.len()).unwrap_or(128));
    if exact && to.value == 0 {
        return f.write_str("0");
    }
    if !exact && to.mask & !named != 0 {
        return write!(f, "{:#x}/{:#x}", to.value, to.mask);
    }
    let mut first = true;
    for (bit, name) in names.iter().enumerate() {
        let bit = 1u128 << bit;
        if exact {
            if to.value & bit != 0 {
                write!(f, "{}{name}", if first { "" } else { "|" })?;
                first = false;
            }
        } else if to.mask & bit != 0 {
            write!(f, "{}{name}", if to.value & bit != 0 { "+" } else { "-" })?;
        }
    }
    let rest = to.value & !named;
    if exact && rest != 0 {
        write!(f, "{}{rest:#x}", if first { "" } else { "|" })?;
    }
    Ok(())
}

/// Reads a value, with or without mask.
pub(super) fn parse(field: Field, text: &str) -> Result<Masked, ParseError> {
    let info = field.info();
    let all = ones(info.bits);
    let (value_text, mask_text) = match text.split_once('/') {
        Some((value, mask)) => (value, Some(mask)),
        None => (text, None),
    };
    let (value, mask) = match info.format {
        Format::Hex | Format::Dec => {
            (number(value_text)?, mask_text.map(number).transpose()?.unwrap_or(all))
        }
        Format::Port => {
            let port: OfPort = text.parse()?;
            let number = if field == Field::InPort16 { port.0 & 0xffff } else { port.0 };
            (number.into(), all)
        }
        Format::Eth => (eth(value_text)?, mask_text.map(eth).transpose()?.unwrap_or(all)),
        Format::Ipv4 => (v4(value_text)?, mask_text.map(v4_mask).transpose()?.unwrap_or(all)),
        Format::Ipv6 => (v6(value_text)?, mask_text.map(v6_mask).transpose()?.unwrap_or(all)),
        Format::Frag => match FRAGS.iter().find(|(name, ..)| *name == text) {
            Some((_, value, mask)) => (*value, *mask),
            None => (number(value_text)?, mask_text.map(number).transpose()?.unwrap_or(all)),
        },
        Format::TcpFlags => parse_flags(text, TCP_FLAG_NAMES, all)?,
        Format::TunFlags => parse_flags(text, TUN_FLAG_NAMES, all)?,
        Format::CtState => parse_flags(text, CT_STATE_NAMES, all)?,
        Format::PacketType => (packet_type(text)?, all),
    };
    if value & !all != 0 {
        return Err(ParseError::new(format!("{} has {} bits", info.name, info.bits), text));
    }
    Ok(Masked { value: value & mask, mask: mask & all })
}

fn eth(text: &str) -> Result<u128, ParseError> {
    let mac: MacAddr =
        text.parse().map_err(|_| ParseError::new("not an Ethernet address", text))?;
    Ok(mac.to_bits().into())
}

fn v4(text: &str) -> Result<u128, ParseError> {
    let address: Ipv4Addr =
        text.parse().map_err(|_| ParseError::new("not an IPv4 address", text))?;
    Ok(u32::from(address).into())
}

fn v4_mask(text: &str) -> Result<u128, ParseError> {
    if text.contains('.') {
        return v4(text);
    }
    match number::<u32>(text)? {
        len @ 0..=32 => Ok((ones(32) << (32 - len)) & ones(32)),
        _ => Err(ParseError::new("prefix longer than 32 bits", text)),
    }
}

fn v6(text: &str) -> Result<u128, ParseError> {
    let address: Ipv6Addr =
        text.parse().map_err(|_| ParseError::new("not an IPv6 address", text))?;
    Ok(address.into())
}

fn v6_mask(text: &str) -> Result<u128, ParseError> {
    if text.contains(':') {
        return v6(text);
    }
    match number::<u32>(text)? {
        0 => Ok(0),
        len @ 1..=128 => Ok(u128::MAX << (128 - len)),
        _ => Err(ParseError::new("prefix longer than 128 bits", text)),
    }
}

fn packet_type(text: &str) -> Result<u128, ParseError> {
    let refuse = || ParseError::new("not a packet type like (1,0x800)", text);
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).ok_or_else(refuse)?;
    let (namespace, kind) = inner.split_once(',').ok_or_else(refuse)?;
    let namespace: u16 = number(namespace)?;
    let kind: u16 = number(kind)?;
    Ok((u128::from(namespace) << 16) | u128::from(kind))
}

/// `+new-est`, `new|est`, `0x21` or `0x21/0x23`.
fn parse_flags(text: &str, names: &[&str], all: u128) -> Result<(u128, u128), ParseError> {
    let bit = |name: &str| {
        names
            .iter()
            .position(|known| *known == name)
            .map(|at| 1u128 << at)
            .ok_or_else(|| ParseError::new("unknown flag", name))
    };
    if text.starts_with(['+', '-']) {
        let (mut value, mut mask) = (0, 0);
        let mut rest = text;
        while let Some(sign) = rest.chars().next() {
            let body = &rest[1..];
            let end = body.find(['+', '-']).unwrap_or(body.len());
            let bit = bit(&body[..end])?;
            if mask & bit != 0 {
                return Err(ParseError::new("flag given twice", text));
            }
            mask |= bit;
            if sign == '+' {
                value |= bit;
            }
            rest = &body[end..];
        }
        return Ok((value, mask));
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return match text.split_once('/') {
            Some((value, mask)) => Ok((number(value)?, number(mask)?)),
            None => Ok((number(text)?, all)),
        };
    }
    let bits = |name: &str| if name.starts_with("0x") { number(name) } else { bit(name) };
    let value = text.split('|').map(bits).try_fold(0, |all, bit| bit.map(|bit| all | bit))?;
    Ok((value, all))
}
