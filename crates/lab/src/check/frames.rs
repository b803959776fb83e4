//! Crafted frames: built by hand, sent and caught on raw sockets inside a namespace.

use std::io::Read;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, bind, sendto, socket,
};

use crate::error::{Doing, LabError, Result};
use crate::netns;
use crate::preflight::program;

/// A MAC address.
pub(super) type Mac = [u8; 6];

/// All stations of a link.
pub(super) const BROADCAST: Mac = [0xff; 6];

/// Reads `aa:bb:cc:dd:ee:ff`.
pub(super) fn parse_mac(text: &str) -> Result<Mac> {
    let bytes: Vec<u8> = text.split(':').filter_map(|b| u8::from_str_radix(b, 16).ok()).collect();
    bytes.try_into().map_err(|_| LabError::new(format!("{text:?} is no MAC address")))
}

/// An Ethernet frame.
pub(super) fn ethernet(to: Mac, from: Mac, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to[..], &from[..], &ethertype.to_be_bytes()[..], payload].concat()
}

/// An IPv4 packet that may not be fragmented, in an Ethernet frame.
pub(super) fn ipv4(
    to: Mac,
    from: Mac,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let length = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut header = vec![0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, protocol, 0, 0];
    header.extend(source.octets());
    header.extend(destination.octets());
    let checksum = header_checksum(&header);
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    header.extend_from_slice(payload);
    ethernet(to, from, 0x0800, &header)
}

/// The checksum of an IPv4 header whose own checksum field is nought.
fn header_checksum(header: &[u8]) -> u16 {
    let sum: u32 =
        header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    !u16::try_from(folded).unwrap_or_default()
}

/// A UDP datagram without checksum.
pub(super) fn udp(source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
    [
        &source_port.to_be_bytes()[..],
        &destination_port.to_be_bytes()[..],
        &length.to_be_bytes()[..],
        &[0, 0],
        payload,
    ]
    .concat()
}

/// An ARP answer to everyone that claims `address` for `mac`.
pub(super) fn arp_claim(from: Mac, mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    let mut body = vec![0, 1, 8, 0, 6, 4, 0, 2];
    body.extend(mac);
    body.extend(address.octets());
    body.extend(BROADCAST);
    body.extend(address.octets());
    ethernet(BROADCAST, from, 0x0806, &body)
}

/// A Geneve header of VNI 0 around a frame.
pub(super) fn geneve(inner: &[u8]) -> Vec<u8> {
    [&[0, 0, 0x65, 0x58, 0, 0, 0, 0][..], inner].concat()
}

/// A VXLAN header of VNI 0 around a frame.
pub(super) fn vxlan(inner: &[u8]) -> Vec<u8> {
    [&[8, 0, 0, 0, 0, 0, 0, 0][..], inner].concat()
}

/// A GRE header with key 0 around a frame.
pub(super) fn gre(inner: &[u8]) -> Vec<u8> {
    [&[0x20, 0, 0x65, 0x58, 0, 0, 0, 0][..], inner].concat()
}

/// A frame with one more VLAN tag, of the given kind.
pub(super) fn tagged(frame: &[u8], ethertype: u16, vlan: u16) -> Vec<u8> {
    let (addresses, rest) = frame.split_at(frame.len().min(12));
    [addresses, &ethertype.to_be_bytes(), &vlan.to_be_bytes(), rest].concat()
}

/// The fragments of an IPv4 packet in an Ethernet frame: its payload is cut at `at`, a multiple of
/// eight.
pub(super) fn fragments(frame: &[u8], id: u16, at: usize) -> [Vec<u8>; 2] {
    let piece = |flags_and_offset: u16, payload: &[u8]| {
        let mut piece = frame[..34].to_vec();
        let length = u16::try_from(20 + payload.len()).unwrap_or(u16::MAX);
        piece[16..18].copy_from_slice(&length.to_be_bytes());
        piece[18..20].copy_from_slice(&id.to_be_bytes());
        piece[20..22].copy_from_slice(&flags_and_offset.to_be_bytes());
        piece[24..26].copy_from_slice(&[0, 0]);
        let sum = header_checksum(&piece[14..34]).to_be_bytes();
        piece[24..26].copy_from_slice(&sum);
        piece.extend_from_slice(payload);
        piece
    };
    let payload = &frame[34..];
    let offset = u16::try_from(at / 8).unwrap_or_default();
    [piece(0x2000, &payload[..at]), piece(offset, &payload[at..])]
}

/// Sends frames on a link of a namespace as they are.
pub(super) fn send(netns: &Path, link: &str, frames: &[Vec<u8>]) -> Result<()> {
    netns::enter(netns, || {
        let (socket, address) = raw_socket(link)?;
        for frame in frames {
            sendto(socket.as_raw_fd(), frame, &address, MsgFlags::empty())
                .doing(|| format!("send a frame on {link}"))?;
        }
        Ok(())
    })?
}

/// Catches every frame that a link of a namespace sees.
pub(super) struct Sniffer {
    frames: Arc<Mutex<Vec<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl Sniffer {
    /// Begins.
    pub(super) fn start(netns: &Path, link: &str) -> Result<Self> {
        let socket = netns::enter(netns, || {
            let (socket, address) = raw_socket(link)?;
            bind(socket.as_raw_fd(), &address).doing(|| format!("listen on {link}"))?;
            Ok(socket)
        })??;
        let mut socket = socket2::Socket::from(socket);
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .doing(|| "set up the socket".into())?;
        let frames = Arc::new(Mutex::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let (store, stopping) = (Arc::clone(&frames), Arc::clone(&stop));
        let worker = std::thread::spawn(move || {
            let mut buffer = vec![0; 65536];
            while !stopping.load(Ordering::SeqCst) {
                if let Ok(n) = socket.read(&mut buffer) {
                    let mut frames =
                        store.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    frames.push(buffer[..n].to_vec());
                }
            }
        });
        Ok(Self { frames, stop, worker: Some(worker) })
    }

    /// Whether a frame like this was seen.
    pub(super) fn saw(&self, like: impl Fn(&[u8]) -> bool) -> bool {
        let frames = self.frames.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        frames.iter().any(|f| like(f))
    }

    /// Whether a frame held this text, in itself and not inside a tunnel packet.
    pub(super) fn saw_text(&self, text: &str) -> bool {
        self.saw(|frame| {
            let payload = udp_payload(frame);
            payload.is_some_and(|p| p.starts_with(text.as_bytes()))
        })
    }
}

impl Drop for Sniffer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

/// What a UDP datagram in an Ethernet frame carries.
pub(super) fn udp_payload(frame: &[u8]) -> Option<&[u8]> {
    let packet = frame.get(14..).filter(|_| frame.get(12..14) == Some(&[8, 0]))?;
    let header = usize::from(packet.first()? & 0xf) * 4;
    (packet.get(9) == Some(&17)).then(|| packet.get(header + 8..))?
}

/// MAC address of a link, read inside its namespace.
pub(super) fn mac_of(netns: &Path, link: &str) -> Result<Mac> {
    let words = link_words(netns, link)?;
    let at = words.iter().position(|w| w == "link/ether");
    let text = at.and_then(|i| words.get(i + 1));
    parse_mac(text.ok_or_else(|| LabError::new(format!("{link} has no MAC address")))?)
}

/// MTU of a link, read inside its namespace.
pub(crate) fn mtu_of(netns: &Path, link: &str) -> Result<usize> {
    let words = link_words(netns, link)?;
    let at = words.iter().position(|w| w == "mtu");
    let text = at.and_then(|i| words.get(i + 1)).map(String::as_str).unwrap_or_default();
    text.parse().doing(|| format!("read the MTU of {link}"))
}

fn link_words(netns: &Path, link: &str) -> Result<Vec<String>> {
    let mut ip = program("ip");
    ip.args(["-o", "link", "show", "dev", link]);
    let output = netns::enter(netns, || ip.output())?.doing(|| "run ip".into())?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

fn raw_socket(link: &str) -> Result<(std::os::fd::OwnedFd, LinkAddr)> {
    let links = nix::ifaddrs::getifaddrs().doing(|| "list the links".into())?;
    let address = links
        .filter(|l| l.interface_name == link)
        .find_map(|l| l.address.as_ref().and_then(|a| a.as_link_addr()).copied())
        .ok_or_else(|| LabError::new(format!("no link {link}")))?;
    let socket =
        socket(AddressFamily::Packet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::EthAll)
            .doing(|| "open a raw socket".into())?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crafted_datagram_is_read_back() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = ipv4([2; 6], [4; 6], a, b, 17, &udp(1, 2, b"hello"));
        assert_eq!(udp_payload(&frame), Some(&b"hello"[..]));
        assert_eq!(frame.len(), 14 + 20 + 8 + 5);
        // The sum over a header with a right checksum is all ones.
        let sum: u32 =
            frame[14..34].chunks(2).map(|p| u32::from(u16::from_be_bytes([p[0], p[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
    }

    #[test]
    fn fragments_hold_the_whole_payload() {
        let (a, b) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let frame = ipv4([2; 6], [4; 6], a, b, 17, &udp(1, 2, b"0123456789abcdef"));
        let [first, second] = fragments(&frame, 7, 16);
        assert_eq!([&first[34..], &second[34..]].concat(), &frame[34..]);
        assert_eq!((&first[20..22], &second[20..22]), (&[0x20, 0][..], &[0, 2][..]));
        let tags = tagged(&tagged(&frame, 0x8100, 5), 0x88a8, 6);
        assert_eq!(&tags[12..22], &[0x88, 0xa8, 0, 6, 0x81, 0, 0, 5, 8, 0]);
    }

    #[test]
    fn short_frames_carry_nothing() {
        for n in 0..42 {
            assert_eq!(udp_payload(&vec![0; n]), None);
        }
    }
}
