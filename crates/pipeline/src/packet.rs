//! Headers of a packet that the switch sent: addresses, ports, and what an answer needs of them.
//!
//! The bytes come from Pods: whatever they are, reading gives an error or an answer, and no panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::MacAddr;

/// Why a packet cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It ends before its headers do.
    Short,
    /// It is neither IPv4 nor IPv6.
    NotIp,
}

/// What is above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// TCP.
    Tcp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
        /// Sequence number.
        seq: u32,
        /// Acknowledgement number.
        ack: u32,
        /// Flags, FIN lowest.
        flags: u8,
        /// Bytes behind the header.
        payload_len: u32,
    },
    /// UDP, with ports.
    Udp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// SCTP, with ports.
    Sctp {
        /// Source port.
        src: u16,
        /// Destination port.
        dst: u16,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// Type.
        kind: u8,
        /// Code.
        code: u8,
    },
    /// Another protocol, or a later fragment of one.
    Other,
}

/// The headers of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Ethernet source.
    pub eth_src: MacAddr,
    /// Ethernet destination.
    pub eth_dst: MacAddr,
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Length of the packet from its IP header on, as the header says.
    pub ip_len: u32,
    /// TTL or hop limit.
    pub ttl: u8,
    /// Whether it is a fragment that does not begin the packet.
    pub later_fragment: bool,
    /// What is above IP.
    pub segment: Segment,
    /// Where the IP header begins.
    pub ip_at: usize,
    /// Where what is above IP begins.
    pub segment_at: usize,
}

const ETH_LEN: usize = 14;
const ETH_IPV4: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;

/// IP protocol numbers.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

fn bytes<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], Unreadable> {
    data.get(at..).and_then(<[u8]>::first_chunk::<N>).copied().ok_or(Unreadable::Short)
}

fn be16(data: &[u8], at: usize) -> Result<u16, Unreadable> {
    bytes(data, at).map(u16::from_be_bytes)
}

impl Headers {
    /// Reads the headers of an Ethernet frame.
    pub fn read(frame: &[u8]) -> Result<Self, Unreadable> {
        let eth_dst = MacAddr(bytes(frame, 0)?);
        let eth_src = MacAddr(bytes(frame, 6)?);
        match be16(frame, 12)? {
            ETH_IPV4 => Self::read_v4(frame, eth_src, eth_dst),
            ETH_IPV6 => Self::read_v6(frame, eth_src, eth_dst),
            _ => Err(Unreadable::NotIp),
        }
    }

    fn read_v4(frame: &[u8], eth_src: MacAddr, eth_dst: MacAddr) -> Result<Self, Unreadable> {
        let ip = ETH_LEN;
        let [first] = bytes(frame, ip)?;
        let header_len = usize::from(first & 0xf) * 4;
        if first >> 4 != 4 || header_len < 20 {
            return Err(Unreadable::NotIp);
        }
        let [ttl, protocol] = bytes(frame, ip + 8)?;
        let later_fragment = be16(frame, ip + 6)? & 0x1fff != 0;
        let segment_at = ip + header_len;
        let ip_len = u32::from(be16(frame, ip + 2)?);
        let behind = ip_len.saturating_sub(u32::try_from(header_len).unwrap_or(u32::MAX));
        Ok(Self {
            eth_src,
            eth_dst,
            src: Ipv4Addr::from(bytes::<4>(frame, ip + 12)?).into(),
            dst: Ipv4Addr::from(bytes::<4>(frame, ip + 16)?).into(),
            protocol,
            ip_len,
            ttl,
            later_fragment,
            segment: segment(frame, segment_at, protocol, later_fragment, behind)?,
            ip_at: ip,
            segment_at,
        })
    }

    fn read_v6(frame: &[u8], eth_src: MacAddr, eth_dst: MacAddr) -> Result<Self, Unreadable> {
        let ip = ETH_LEN;
        let [first] = bytes(frame, ip)?;
        if first >> 4 != 6 {
            return Err(Unreadable::NotIp);
        }
        let payload = u32::from(be16(frame, ip + 4)?);
        let [mut next, ttl] = bytes(frame, ip + 6)?;
        let mut at = ip + 40;
        let mut later_fragment = false;
        // Extension headers: hop-by-hop, routing, fragment, destination options.
        for _ in 0..8 {
            match next {
                0 | 43 | 60 => {
                    let [following, len] = bytes(frame, at)?;
                    next = following;
                    at += (usize::from(len) + 1) * 8;
                }
                44 => {
                    let [following, _] = bytes(frame, at)?;
                    later_fragment |= be16(frame, at + 2)? & 0xfff8 != 0;
                    next = following;
                    at += 8;
                }
                _ => break,
            }
        }
        let extensions = u32::try_from(at - ip - 40).unwrap_or(u32::MAX);
        let behind = payload.saturating_sub(extensions);
        Ok(Self {
            eth_src,
            eth_dst,
            src: Ipv6Addr::from(bytes::<16>(frame, ip + 8)?).into(),
            dst: Ipv6Addr::from(bytes::<16>(frame, ip + 24)?).into(),
            protocol: next,
            ip_len: payload + 40,
            ttl,
            later_fragment,
            segment: segment(frame, at, next, later_fragment, behind)?,
            ip_at: ip,
            segment_at: at,
        })
    }

    /// What a UDP datagram or a TCP segment carries; as much of it as is in the frame, and not what
    /// fills the frame up. Nothing for other protocols.
    #[must_use]
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let rest = frame.get(self.segment_at..).unwrap_or_default();
        let of_header = |at: usize| rest.get(at).copied().unwrap_or_default();
        let (header_len, len) = match self.segment {
            Segment::Udp { .. } => {
                let len = usize::from(u16::from_be_bytes([of_header(4), of_header(5)]));
                (8, len.saturating_sub(8))
            }
            Segment::Tcp { payload_len, .. } => {
                let len = usize::try_from(payload_len).unwrap_or(usize::MAX);
                (usize::from(of_header(12) >> 4) * 4, len)
            }
            Segment::Sctp { .. } | Segment::Icmp { .. } | Segment::Other => return &[],
        };
        let payload = rest.get(header_len..).unwrap_or_default();
        &payload[..payload.len().min(len)]
    }

    /// Source and destination port of a protocol that has some.
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self.segment {
            Segment::Tcp { src, dst, .. }
            | Segment::Udp { src, dst }
            | Segment::Sctp { src, dst } => Some((src, dst)),
            Segment::Icmp { .. } | Segment::Other => None,
        }
    }
}

fn segment(
    frame: &[u8],
    at: usize,
    protocol: u8,
    later_fragment: bool,
    len: u32,
) -> Result<Segment, Unreadable> {
    if later_fragment {
        return Ok(Segment::Other);
    }
    Ok(match protocol {
        protocol::TCP => {
            let [offset, flags] = bytes(frame, at + 12)?;
            let header_len = u32::from(offset >> 4) * 4;
            Segment::Tcp {
                src: be16(frame, at)?,
                dst: be16(frame, at + 2)?,
                seq: u32::from_be_bytes(bytes(frame, at + 4)?),
                ack: u32::from_be_bytes(bytes(frame, at + 8)?),
                flags,
                payload_len: len.saturating_sub(header_len),
            }
        }
        protocol::UDP => Segment::Udp { src: be16(frame, at)?, dst: be16(frame, at + 2)? },
        protocol::SCTP => Segment::Sctp { src: be16(frame, at)?, dst: be16(frame, at + 2)? },
        protocol::ICMP | protocol::ICMPV6 => {
            let [kind, code] = bytes(frame, at)?;
            Segment::Icmp { kind, code }
        }
        _ => Segment::Other,
    })
}
