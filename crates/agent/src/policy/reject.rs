//! The answer to a packet that a rule rejects: a TCP reset, or "administratively prohibited".
//!
//! Pure: a frame in, a frame out. What must not be answered is not: resets, ICMP errors, packets to
//! or from groups, fragments other than the first. So no answer is answered.

use std::net::{Ipv4Addr, Ipv6Addr};

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const PROTO_ICMP: u8 = 1;
const PROTO_TCP: u8 = 6;
const PROTO_ICMP6: u8 = 58;
const TTL: u8 = 128;
const TCP_RST: u8 = 0x04;
const TCP_SYN: u8 = 0x02;
const TCP_FIN: u8 = 0x01;
const TCP_RST_ACK: u8 = 0x14;
/// Type 3, code 10 of RFC 1812: host administratively prohibited.
const UNREACHABLE_V4: [u8; 2] = [3, 10];
/// Type 1, code 1 of RFC 4443: administratively prohibited.
const UNREACHABLE_V6: [u8; 2] = [1, 1];
/// How much of a packet an ICMPv6 error quotes of what the switch hands up.
const MAX_QUOTE_V6: usize = 1232;

/// The frame that answers, from the receiver to the sender.
#[must_use]
pub(super) fn answer(frame: &[u8]) -> Option<Vec<u8>> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET)?;
    let (to, from) = (ethernet.get(..6)?, ethernet.get(6..12)?);
    // Groups have the lowest bit of the first byte set.
    if to[0] & 1 != 0 || from[0] & 1 != 0 {
        return None;
    }
    let packet = match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
        ETHERTYPE_V4 => answer_v4(packet)?,
        ETHERTYPE_V6 => answer_v6(packet)?,
        _ => return None,
    };
    let mut out = Vec::with_capacity(ETHERNET + packet.len());
    out.extend_from_slice(from);
    out.extend_from_slice(to);
    out.extend_from_slice(&ethernet[12..14]);
    out.extend_from_slice(&packet);
    Some(out)
}

fn answer_v4(packet: &[u8]) -> Option<Vec<u8>> {
    let header = packet.get(..IPV4)?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < IPV4 {
        return None;
    }
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    let source = Ipv4Addr::from(<[u8; 4]>::try_from(&header[12..16]).ok()?);
    let target = Ipv4Addr::from(<[u8; 4]>::try_from(&header[16..20]).ok()?);
    let is_group = |ip: Ipv4Addr| ip.is_multicast() || ip.is_broadcast() || ip.is_unspecified();
    if fragment != 0 || is_group(source) || is_group(target) {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]])).min(packet.len());
    let payload = packet.get(header_len..total)?;
    let (protocol, body) = if header[9] == PROTO_TCP {
        let pseudo = |len: usize| {
            let mut sum = sum_of(&target.octets()) + sum_of(&source.octets());
            sum += u32::from(PROTO_TCP) + u32::try_from(len).unwrap_or(0);
            sum
        };
        (PROTO_TCP, reset(payload, pseudo)?)
    } else {
        // An error is not answered with an error (RFC 1122, 3.2.2).
        if header[9] == PROTO_ICMP && !matches!(payload.first(), Some(0 | 8 | 13 | 14)) {
            return None;
        }
        let quote = packet.get(..(header_len + 8).min(total))?;
        let mut body = vec![UNREACHABLE_V4[0], UNREACHABLE_V4[1], 0, 0, 0, 0, 0, 0];
        body.extend_from_slice(quote);
        put_checksum(&mut body, 2, 0);
        (PROTO_ICMP, body)
    };
    let mut out = vec![0; IPV4];
    out[0] = 0x45;
    let total = u16::try_from(IPV4 + body.len()).ok()?;
    out[2..4].copy_from_slice(&total.to_be_bytes());
    out[8] = TTL;
    out[9] = protocol;
    out[12..16].copy_from_slice(&target.octets());
    out[16..20].copy_from_slice(&source.octets());
    put_checksum(&mut out, 10, 0);
    out.extend_from_slice(&body);
    Some(out)
}

fn answer_v6(packet: &[u8]) -> Option<Vec<u8>> {
    let header = packet.get(..IPV6)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let source = Ipv6Addr::from(<[u8; 16]>::try_from(&header[8..24]).ok()?);
    let target = Ipv6Addr::from(<[u8; 16]>::try_from(&header[24..40]).ok()?);
    if source.is_multicast() || target.is_multicast() || source.is_unspecified() {
        return None;
    }
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let end = (IPV6 + len).min(packet.len());
    let payload = packet.get(IPV6..end)?;
    let pseudo = |protocol: u8, len: usize| {
        let mut sum = sum_of(&target.octets()) + sum_of(&source.octets());
        sum += u32::from(protocol) + u32::try_from(len).unwrap_or(0);
        sum
    };
    let (protocol, body) = if header[6] == PROTO_TCP {
        (PROTO_TCP, reset(payload, |len| pseudo(PROTO_TCP, len))?)
    } else {
        // Types below 128 are errors; neighbour discovery is not for policies.
        if header[6] == PROTO_ICMP6 && !matches!(payload.first(), Some(128 | 129)) {
            return None;
        }
        let quote = packet.get(..end.min(MAX_QUOTE_V6))?;
        let mut body = vec![UNREACHABLE_V6[0], UNREACHABLE_V6[1], 0, 0, 0, 0, 0, 0];
        body.extend_from_slice(quote);
        let sum = pseudo(PROTO_ICMP6, body.len());
        put_checksum(&mut body, 2, sum);
        (PROTO_ICMP6, body)
    };
    let mut out = vec![0; IPV6];
    out[0] = 0x60;
    out[4..6].copy_from_slice(&u16::try_from(body.len()).ok()?.to_be_bytes());
    out[6] = protocol;
    out[7] = TTL;
    out[8..24].copy_from_slice(&target.octets());
    out[24..40].copy_from_slice(&source.octets());
    out.extend_from_slice(&body);
    Some(out)
}

/// A reset that acknowledges what came; none to a reset.
fn reset(segment: &[u8], pseudo: impl Fn(usize) -> u32) -> Option<Vec<u8>> {
    let header = segment.get(..TCP)?;
    let flags = header[13];
    if flags & TCP_RST != 0 {
        return None;
    }
    let header_len = usize::from(header[12] >> 4) * 4;
    let data = segment.len().saturating_sub(header_len);
    let sequence = u32::from_be_bytes(header[4..8].try_into().ok()?);
    let counted = u32::from(flags & TCP_SYN != 0) + u32::from(flags & TCP_FIN != 0);
    let next = sequence.wrapping_add(u32::try_from(data).ok()?).wrapping_add(counted);
    let mut out = vec![0; TCP];
    out[0..2].copy_from_slice(&header[2..4]);
    out[2..4].copy_from_slice(&header[0..2]);
    // What the sender expects next, if it said so; a first segment expects nothing.
    out[4..8].copy_from_slice(&header[8..12]);
    out[8..12].copy_from_slice(&next.to_be_bytes());
    out[12] = 5 << 4;
    out[13] = TCP_RST_ACK;
    let sum = pseudo(TCP);
    put_checksum(&mut out, 16, sum);
    Some(out)
}

fn sum_of(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum()
}

/// Writes the Internet checksum (RFC 1071) of the bytes and of what is summed up already.
fn put_checksum(bytes: &mut [u8], at: usize, sum: u32) {
    bytes[at..at + 2].fill(0);
    let mut sum = sum + sum_of(bytes);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let folded = !u16::try_from(sum).unwrap_or(0);
    bytes[at..at + 2].copy_from_slice(&folded.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACS: [u8; 12] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn v4(protocol: u8, fragment: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
        packet[6..8].copy_from_slice(&fragment.to_be_bytes());
        packet.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend_from_slice(payload);
        let len = u16::try_from(packet.len()).unwrap();
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        put_checksum(&mut packet[..20], 10, 0);
        [&MACS[..], &[8, 0], &packet].concat()
    }

    fn v6(protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, u8::try_from(payload.len()).unwrap(), protocol, 64];
        packet.extend_from_slice(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).octets());
        packet.extend_from_slice(&Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).octets());
        packet.extend_from_slice(payload);
        [&MACS[..], &[0x86, 0xdd], &packet].concat()
    }

    fn tcp(flags: u8) -> Vec<u8> {
        let mut segment = vec![0x9c, 0x40, 0, 80, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, flags];
        segment.extend_from_slice(&[0; 6]);
        segment
    }

    /// The sum over a right packet is all ones.
    fn is_right(bytes: &[u8], sum: u32) -> bool {
        let mut sum = sum + sum_of(bytes);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum == 0xffff
    }

    #[test]
    fn a_segment_is_reset() {
        let frame = answer(&v4(6, 0, &tcp(TCP_SYN))).unwrap();
        assert_eq!(frame[..12], [&MACS[6..12], &MACS[..6]].concat());
        let packet = &frame[14..];
        assert!(is_right(&packet[..20], 0));
        assert_eq!(packet[12..20], [10, 0, 0, 2, 10, 0, 0, 1]);
        let segment = &packet[20..];
        assert_eq!(segment[..4], [0, 80, 0x9c, 0x40]);
        assert_eq!(segment[8..12], [0, 0, 0, 10], "the first byte after SYN");
        assert_eq!(segment[13], TCP_RST_ACK);
        assert!(is_right(segment, sum_of(&packet[12..20]) + 6 + 20));
        let frame = answer(&v6(6, &tcp(TCP_SYN))).unwrap();
        assert!(is_right(&frame[54..], sum_of(&frame[22..54]) + 6 + 20));
    }

    #[test]
    fn everything_else_is_prohibited() {
        let frame = answer(&v4(17, 0, &[0, 1, 0, 2, 0, 9, 0, 0, 7])).unwrap();
        let icmp = &frame[34..];
        assert_eq!(icmp[..2], UNREACHABLE_V4);
        assert_eq!(icmp.len(), 8 + 20 + 8, "the header and eight bytes are quoted");
        assert!(is_right(icmp, 0));
        let frame = answer(&v6(17, &[0, 1, 0, 2, 0, 9, 0, 0, 7])).unwrap();
        let icmp = &frame[54..];
        assert_eq!(icmp[..2], UNREACHABLE_V6);
        let len = u32::try_from(icmp.len()).unwrap();
        assert!(is_right(icmp, sum_of(&frame[22..54]) + 58 + len));
    }

    #[test]
    fn no_answer_is_answered() {
        let udp = [0, 1, 0, 2, 0, 8, 0, 0];
        let mut group = v4(17, 0, &udp);
        group[0] = 1;
        for (what, frame) in [
            ("a reset", v4(6, 0, &tcp(TCP_RST))),
            ("an ICMP error", v4(1, 0, &[3, 10, 0, 0, 0, 0, 0, 0])),
            ("an ICMPv6 error", v6(58, &[1, 1, 0, 0, 0, 0, 0, 0])),
            ("a neighbour solicitation", v6(58, &[135, 0, 0, 0])),
            ("a later fragment", v4(17, 5, &udp)),
            ("a group", group),
            ("ARP", [&MACS[..], &[8, 6], &[0; 28]].concat()),
        ] {
            assert_eq!(answer(&frame), None, "{what}");
        }
        assert!(answer(&v4(1, 0, &[8, 0, 0, 0, 0, 0, 0, 0])).is_some(), "an echo request is");
        let our_answer = answer(&v4(17, 0, &udp)).unwrap();
        assert_eq!(answer(&our_answer), None);
    }

    #[test]
    fn cut_frames_never_panic() {
        for frame in [v4(6, 0, &tcp(TCP_SYN)), v6(6, &tcp(TCP_SYN)), v4(17, 0, &[0; 8])] {
            for len in 0..frame.len() {
                let _ = answer(&frame[..len]);
            }
            for at in 14..frame.len() {
                for value in [0, 0x0f, 0x40, 0x60, 0xff] {
                    let mut broken = frame.clone();
                    broken[at] = value;
                    let _ = answer(&broken);
                }
            }
        }
    }
}
