//! Tells neighbours where an address is now: gratuitous ARP and unsolicited neighbour
//! advertisements, sent as whole frames.
//!
//! The announcement is an ARP request for the own address (RFC 5227), which updates neighbours'
//! tables and those of Open vSwitch's tunnels alike.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

use crate::mac::{IfIndex, MacAddr};
use crate::netns::{Netns, NetnsError};

const ETH_P_ARP: u16 = 0x0806;
const ETH_P_IPV6: u16 = 0x86dd;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_MAC: [u8; 6] = [0x33, 0x33, 0, 0, 0, 1];
const ICMPV6: u8 = 58;

/// Why an announcement was not sent.
#[derive(Debug, thiserror::Error)]
pub enum GarpError {
    /// The frame could not be sent.
    #[error("announce {ip} on link {index}")]
    Send {
        /// The address.
        ip: IpAddr,
        /// The link.
        index: IfIndex,
        /// Why not.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error("enter network namespace")]
    Netns(#[from] NetnsError),
}

/// Announces an address on a link of the calling thread's namespace. The link has to be up.
pub fn announce(index: IfIndex, mac: MacAddr, ip: IpAddr) -> Result<(), GarpError> {
    let frame = match ip {
        IpAddr::V4(v4) => arp_frame(mac, v4),
        IpAddr::V6(v6) => advertisement_frame(mac, v6),
    };
    send(index, &frame).map_err(|source| GarpError::Send { ip, index, source })
}

/// As [`announce`], on a link of another namespace.
pub fn announce_in(
    netns: &Netns,
    index: IfIndex,
    mac: MacAddr,
    ip: IpAddr,
) -> Result<(), GarpError> {
    netns.run(|| announce(index, mac, ip))?
}

/// ```text
///   Ethernet  ff:ff:ff:ff:ff:ff  MAC  0806
///   ARP       1:u16 0800:u16 6:u8 4:u8 1(request):u16  MAC IP  00:00:00:00:00:00 IP
/// ```
fn arp_frame(mac: MacAddr, ip: Ipv4Addr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(42);
    frame.extend_from_slice(&[0xff; 6]);
    frame.extend_from_slice(&mac.0);
    frame.extend_from_slice(&ETH_P_ARP.to_be_bytes());
    frame.extend_from_slice(&[0, 1, 0x08, 0, 6, 4, 0, 1]);
    frame.extend_from_slice(&mac.0);
    frame.extend_from_slice(&ip.octets());
    frame.extend_from_slice(&[0; 6]);
    frame.extend_from_slice(&ip.octets());
    frame
}

/// ```text
///   Ethernet  33:33:00:00:00:01  MAC  86dd
///   IPv6      6  length 32  next 58  hops 255  IP -> ff02::1
///   NA        136 0 checksum:u16  override:u32  IP  option 2, length 1 (8 bytes), MAC
/// ```
fn advertisement_frame(mac: MacAddr, ip: Ipv6Addr) -> Vec<u8> {
    const OVERRIDE: u32 = 0x2000_0000;
    let mut body = Vec::with_capacity(32);
    body.extend_from_slice(&[136, 0, 0, 0]);
    body.extend_from_slice(&OVERRIDE.to_be_bytes());
    body.extend_from_slice(&ip.octets());
    body.extend_from_slice(&[2, 1]);
    body.extend_from_slice(&mac.0);
    let checksum = icmpv6_checksum(ip, ALL_NODES, &body);
    body[2..4].copy_from_slice(&checksum.to_be_bytes());

    let mut frame = Vec::with_capacity(14 + 40 + body.len());
    frame.extend_from_slice(&ALL_NODES_MAC);
    frame.extend_from_slice(&mac.0);
    frame.extend_from_slice(&ETH_P_IPV6.to_be_bytes());
    frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 32, ICMPV6, 255]);
    frame.extend_from_slice(&ip.octets());
    frame.extend_from_slice(&ALL_NODES.octets());
    frame.extend_from_slice(&body);
    frame
}

/// One's complement sum over pseudo header (RFC 8200, 8.1) and body.
fn icmpv6_checksum(src: Ipv6Addr, dst: Ipv6Addr, body: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        bytes
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
            .sum()
    };
    let length = u32::try_from(body.len()).expect("an advertisement has 32 bytes");
    let mut sum = words(&src.octets()) + words(&dst.octets()) + words(body);
    sum += length + u32::from(ICMPV6);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("folded to 16 bits")
}

#[allow(unsafe_code, reason = "nix builds no packet socket address")]
fn send(index: IfIndex, frame: &[u8]) -> io::Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
    // Protocol 0: the socket sends only and is handed no frame.
    let fd = socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, None)?;
    // SAFETY: `sockaddr_ll` is plain old data for which all zeroes is a valid value.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = 17; // AF_PACKET
    to.sll_ifindex = index.0.cast_signed();
    to.sll_halen = 6;
    to.sll_protocol = u16::from_be_bytes([frame[12], frame[13]]).to_be();
    to.sll_addr[..6].copy_from_slice(&frame[..6]);
    let length = libc::socklen_t::try_from(size_of::<libc::sockaddr_ll>()).expect("20 fits");
    // SAFETY: frame and address live until the call returns, with the lengths given.
    let sent = unsafe {
        libc::sendto(
            fd.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            length,
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arp_frame_is_a_broadcast_request_for_itself() {
        let frame = arp_frame(MacAddr([2, 0, 0, 0, 0, 9]), Ipv4Addr::new(10, 0, 0, 9));
        assert_eq!(frame.len(), 42);
        assert_eq!(&frame[..6], &[0xff; 6]);
        assert_eq!(&frame[28..32], &frame[38..42]);
    }

    #[test]
    fn advertisement_has_a_valid_checksum() {
        let ip = "fd00::9".parse().unwrap();
        let frame = advertisement_frame(MacAddr([2, 0, 0, 0, 0, 9]), ip);
        assert_eq!(frame.len(), 86);
        // A sum over a body that holds its checksum folds to zero.
        assert_eq!(icmpv6_checksum(ip, ALL_NODES, &frame[54..]), 0);
    }
}
