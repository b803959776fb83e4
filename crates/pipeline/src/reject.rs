//! Answers in the name of a destination that a rule rejects, or of a Service that has no endpoint: a
//! reset for TCP, for everything else "administratively prohibited", or "port unreachable".
//!
//! An answer comes from the address that the client dialled, whatever that was translated to.
//!
//! An answer never leads to another one. It is made for packets that open something only, not for
//! resets, ICMP errors, later fragments, or what is for many; it leaves by a port, or enters behind
//! the rules of the way out and carries a mark with which it passes those of the way in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::message::{PacketIn, PacketOut};
use openflow::{Action, CtState, Field, MacAddr, OfPort};

use crate::fields::{
    self, FROM_GATEWAY, FROM_POD, FROM_TUNNEL, GENERATED_REJECT, L3_FORWARDING, REWRITE_MAC,
};
use crate::node::NodeConfig;
use crate::packet::{Headers, Segment, Unreadable, protocol};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The packet cannot be read.
    Unreadable(Unreadable),
    /// Nobody is to be told of such a packet.
    NotToBeTold,
}

impl From<Unreadable> for Unanswered {
    fn from(reason: Unreadable) -> Self {
        Self::Unreadable(reason)
    }
}

const TTL: u8 = 128;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const SYN: u8 = 0x02;
const FIN: u8 = 0x01;
/// How much of an IPv6 packet is quoted at most.
const MAX_QUOTE_V6: usize = 48;

/// What a client is told that did not use TCP.
#[derive(Clone, Copy, Debug)]
enum Unreachable {
    /// Administratively prohibited.
    Prohibited,
    /// Nobody serves at the port.
    Port,
}

impl Unreachable {
    /// The code of "destination unreachable" of ICMP.
    const fn code_v4(self) -> u8 {
        match self {
            Self::Prohibited => 10,
            Self::Port => 3,
        }
    }

    /// The same of ICMPv6.
    const fn code_v6(self) -> u8 {
        match self {
            Self::Prohibited => 1,
            Self::Port => 4,
        }
    }
}

/// The answer to a packet that a rule rejected.
pub fn answer(node: &NodeConfig, packet: &PacketIn) -> Result<PacketOut, Unanswered> {
    answer_with(node, packet, Unreachable::Prohibited)
}

/// The answer to a packet that dialled a Service without endpoints.
pub fn no_endpoint_answer(node: &NodeConfig, packet: &PacketIn) -> Result<PacketOut, Unanswered> {
    answer_with(node, packet, Unreachable::Port)
}

fn answer_with(
    node: &NodeConfig,
    packet: &PacketIn,
    reason: Unreachable,
) -> Result<PacketOut, Unanswered> {
    let seen = Headers::read(&packet.data)?;
    let dialled = dialled(packet, &seen);
    let data = dialled.as_deref().unwrap_or(&packet.data);
    let headers = Headers::read(data)?;
    let body = body(&headers, data, reason)?;
    let (in_port, eth_src, eth_dst, actions) = way(node, packet, &headers);
    let mut frame = Vec::with_capacity(14 + body.len());
    frame.extend_from_slice(&eth_dst.0);
    frame.extend_from_slice(&eth_src.0);
    frame.extend_from_slice(&packet.data[12..14]);
    frame.extend_from_slice(&body);
    Ok(PacketOut::new(in_port, frame, actions))
}

/// The packet as its client sent it, where its destination was translated since.
fn dialled(packet: &PacketIn, seen: &Headers) -> Option<Vec<u8>> {
    let number = |field: Field| packet.metadata.get(field).map(|masked| masked.value);
    let state = number(Field::CtState).and_then(|bits| u32::try_from(bits).ok())?;
    let state = CtState::from_bits_retain(state);
    if !state.contains(CtState::TRK) || state.intersects(CtState::RPL | CtState::INV) {
        return None;
    }
    let (_, seen_port) = seen.ports()?;
    if number(Field::CtNwProto)? != u128::from(seen.protocol) {
        return None;
    }
    let port = u16::try_from(number(Field::CtTpDst)?).ok()?;
    let ip: IpAddr = match seen.dst {
        IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(number(Field::CtNwDst)?).ok()?).into(),
        IpAddr::V6(_) => Ipv6Addr::from(number(Field::CtIpv6Dst)?).into(),
    };
    if (ip, port) == (seen.dst, seen_port) {
        return None;
    }
    // Where addresses end in the headers of either family.
    let (dst_at, dst_len) = if ip.is_ipv4() { (seen.ip_at + 16, 4) } else { (seen.ip_at + 24, 16) };
    let mut data = packet.data.to_vec();
    let place = data.get_mut(dst_at..dst_at + dst_len)?;
    match ip {
        IpAddr::V4(ip) => place.copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => place.copy_from_slice(&ip.octets()),
    }
    let place = data.get_mut(seen.segment_at + 2..seen.segment_at + 4)?;
    place.copy_from_slice(&port.to_be_bytes());
    if ip.is_ipv4() {
        let header = data.get_mut(seen.ip_at..seen.segment_at)?;
        header[10..12].fill(0);
        let mut sum = Sum::default();
        sum.add(header);
        let sum = sum.finish();
        header[10..12].copy_from_slice(&sum);
    }
    Some(data)
}

/// By where the packet came in. The host hears of what it translated, and translates back; a Pod
/// gets the answer at its port; what came through the tunnel, or was routed to where it is, is routed
/// like anything else.
fn way(
    node: &NodeConfig,
    packet: &PacketIn,
    headers: &Headers,
) -> (OfPort, MacAddr, MacAddr, Vec<Action>) {
    let whole = packet.metadata.get(fields::SOURCE.field).map_or(0, |masked| masked.value);
    let source = u32::try_from(fields::SOURCE.extract(whole)).unwrap_or_default();
    let gateway = &node.gateway;
    // A routed packet says no more at which Ethernet address its client is.
    let routed = source == FROM_POD.value && headers.eth_src == gateway.mac;
    if source == FROM_TUNNEL.value || routed {
        let actions = vec![
            FROM_POD.load(),
            REWRITE_MAC.load(),
            GENERATED_REJECT.load(),
            Action::resubmit(L3_FORWARDING),
        ];
        return (gateway.ofport, gateway.mac, headers.eth_src, actions);
    }
    let (port, mac) = match packet.in_port() {
        Some(port) if source == FROM_POD.value => (port, headers.eth_src),
        _ => (gateway.ofport, gateway.mac),
    };
    debug_assert!(
        [FROM_POD.value, FROM_GATEWAY.value, 0].contains(&source) || port == gateway.ofport
    );
    // The switch sends nothing out of the port it came in by.
    (OfPort::CONTROLLER, headers.eth_dst, mac, vec![Action::Output(port)])
}

/// The answer from its IP header on.
fn body(headers: &Headers, frame: &[u8], reason: Unreachable) -> Result<Vec<u8>, Unanswered> {
    let many = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified(),
        IpAddr::V6(ip) => ip.is_multicast() || ip.is_unspecified(),
    };
    if headers.later_fragment || many(headers.src) || many(headers.dst) {
        return Err(Unanswered::NotToBeTold);
    }
    match headers.segment {
        Segment::Tcp { flags, .. } if flags & RST != 0 => Err(Unanswered::NotToBeTold),
        Segment::Tcp { src, dst, seq, ack, flags, payload_len } => {
            // RFC 9293, section 3.10.7.1.
            let used = payload_len + u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
            let (seq, ack, flags) = if flags & ACK == 0 {
                (0, seq.wrapping_add(used), RST | ACK)
            } else {
                (ack, 0, RST)
            };
            let mut tcp = Vec::with_capacity(20);
            tcp.extend_from_slice(&dst.to_be_bytes());
            tcp.extend_from_slice(&src.to_be_bytes());
            tcp.extend_from_slice(&seq.to_be_bytes());
            tcp.extend_from_slice(&ack.to_be_bytes());
            tcp.extend_from_slice(&[5 << 4, flags, 0, 0, 0, 0, 0, 0]);
            Ok(in_ip(headers, protocol::TCP, tcp, 16))
        }
        Segment::Icmp { kind, .. } if is_error(headers.protocol, kind) => {
            Err(Unanswered::NotToBeTold)
        }
        _ if headers.src.is_ipv4() => {
            let end = (headers.segment_at + 8).min(frame.len());
            let quote = frame.get(headers.ip_at..end).unwrap_or_default();
            // Destination unreachable.
            let mut icmp = vec![3, reason.code_v4(), 0, 0, 0, 0, 0, 0];
            icmp.extend_from_slice(quote);
            Ok(in_ip(headers, protocol::ICMP, icmp, 2))
        }
        _ => {
            let end = (headers.ip_at + MAX_QUOTE_V6).min(frame.len());
            let quote = frame.get(headers.ip_at..end).unwrap_or_default();
            // Destination unreachable.
            let mut icmp = vec![1, reason.code_v6(), 0, 0, 0, 0, 0, 0];
            icmp.extend_from_slice(quote);
            Ok(in_ip(headers, protocol::ICMPV6, icmp, 2))
        }
    }
}

/// Whether an ICMP message is an error, of which nobody is told by another one.
fn is_error(protocol: u8, kind: u8) -> bool {
    match protocol {
        protocol::ICMPV6 => kind < 128 || (133..=137).contains(&kind),
        _ => matches!(kind, 3 | 4 | 5 | 11 | 12),
    }
}

/// Puts a segment into IP, back to where the packet came from, with its checksum at `sum_at`.
fn in_ip(headers: &Headers, proto: u8, mut segment: Vec<u8>, sum_at: usize) -> Vec<u8> {
    let len = u16::try_from(segment.len()).unwrap_or(u16::MAX);
    let mut packet = Vec::with_capacity(40 + segment.len());
    let mut sum = Sum::default();
    match (headers.dst, headers.src) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let mut ip = vec![0x45, 0];
            ip.extend_from_slice(&(len + 20).to_be_bytes());
            ip.extend_from_slice(&[0, 0, 0, 0, TTL, proto, 0, 0]);
            ip.extend_from_slice(&src.octets());
            ip.extend_from_slice(&dst.octets());
            let mut header = Sum::default();
            header.add(&ip);
            ip[10..12].copy_from_slice(&header.finish());
            packet.extend_from_slice(&ip);
            if proto != protocol::ICMP {
                sum.add(&src.octets());
                sum.add(&dst.octets());
                sum.add(&[0, proto]);
                sum.add(&len.to_be_bytes());
            }
        }
        (src, dst) => {
            let octets = |ip: IpAddr| match ip {
                IpAddr::V6(ip) => ip.octets(),
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            };
            packet.extend_from_slice(&[0x60, 0, 0, 0]);
            packet.extend_from_slice(&len.to_be_bytes());
            packet.extend_from_slice(&[proto, TTL]);
            for ip in [src, dst] {
                packet.extend_from_slice(&octets(ip));
                sum.add(&octets(ip));
            }
            sum.add(&[0, proto]);
            sum.add(&len.to_be_bytes());
        }
    }
    sum.add(&segment);
    segment[sum_at..sum_at + 2].copy_from_slice(&sum.finish());
    packet.extend_from_slice(&segment);
    packet
}

/// The internet checksum (RFC 1071).
#[derive(Default)]
struct Sum(u32);

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks(2) {
            let low = pair.get(1).copied().unwrap_or_default();
            self.0 += u32::from(u16::from_be_bytes([pair[0], low]));
        }
    }

    fn finish(self) -> [u8; 2] {
        let mut sum = self.0;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let [_, _, high, low] = (!sum).to_be_bytes();
        [high, low]
    }
}

#[cfg(test)]
mod tests;
