//! The IPv6 part of `spoof`: forged addresses, neighbour and router messages, DHCPv6 answers; and,
//! in `spoof6::wrapped`, what hides in tunnel packets, tags, fragments and extension headers.
//!
//! As with IPv4, honest packets before and after bound the time in which something could arrive.

mod wrapped;

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use super::frames::{Mac, Sniffer, ethernet, mac_of, parse_mac, send};
use super::spoof::{Seen, UDP, detour_by_mac, holds};
use super::spoof_windows::{self, FORGED, Hostile};
use super::{Context, Pod};
use crate::addressing;
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::ovs;
use crate::variant::IpFamily;

const ICMP6: u8 = 58;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
/// All nodes of a link, and the MAC address that stands for them.
const ALL_NODES: (Ipv6Addr, Mac) =
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1), [0x33, 0x33, 0, 0, 0, 1]);
/// Multicast DNS.
const MDNS: (Ipv6Addr, Mac) =
    (Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0xfb), [0x33, 0x33, 0, 0, 0, 0xfb]);

/// An address of the node's Pods that no Pod has.
const STRANGER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x77, 1, 0, 0, 0, 0xbad);

struct Stage<'a> {
    hostile: &'a Pod<'a>,
    mac: Mac,
    own: Ipv6Addr,
    victim: (Mac, Ipv6Addr),
    far: Ipv6Addr,
    outside: Ipv6Addr,
    gateway: (Mac, Ipv6Addr),
    nodes: [Ipv6Addr; 2],
    veth: (String, Mac),
    sniffers: [Sniffer; 3],
}

/// Tries everything; fails when any of it arrives.
pub(super) fn run(context: &Context<'_>) -> Result<Seen> {
    let store = context.store()?;
    let node = store.layout().node("node-1");
    let hostile = context.pod("node-1", "spoof6-hostile")?;
    let victim = context.pod("node-1", "spoof6-victim")?;
    let far = context.pod("node-2", "spoof6-far")?;
    let gateway_mac = ovs::vsctl(&node, &["get", "Interface", "antrea-gw0", "mac_in_use"])?;
    let port = hostile.sandbox.host_interface().unwrap_or_default();
    let stage = Stage {
        mac: mac_of(&hostile.sandbox.netns, "eth0")?,
        own: first(&hostile.sandbox.addresses())?,
        victim: (mac_of(&victim.sandbox.netns, "eth0")?, first(&victim.sandbox.addresses())?),
        far: first(&far.sandbox.addresses())?,
        outside: first(&addressing::outside(IpFamily::Ipv6))?,
        gateway: (
            parse_mac(gateway_mac.trim().trim_matches('"'))?,
            first(&hostile.sandbox.gateways())?,
        ),
        nodes: [
            first(&addressing::node(IpFamily::Ipv6, 1))?,
            first(&addressing::node(IpFamily::Ipv6, 2))?,
        ],
        veth: (port.clone(), mac_of(node.netns(), &port)?),
        sniffers: [
            Sniffer::start(&victim.sandbox.netns, "eth0")?,
            Sniffer::start(&far.sandbox.netns, "eth0")?,
            Sniffer::start(&store.layout().outside_netns(), "eth0")?,
        ],
        hostile: &hostile,
    };
    stage.honest("honest6-1")?;
    stage.controls(context)?;
    let (mut packets, messages) = (stage.packets(), stage.messages());
    packets.extend(stage.tunnels());
    let hidden = stage.hidden();
    for frame in packets.iter().chain(&messages).map(|(_, frame)| frame) {
        stage.send(&[frame.clone(), frame.clone()])?;
    }
    for (_, frames) in &hidden {
        stage.send(frames)?;
    }
    stage.honest("honest6-2")?;
    let text_arrived = |name: &str| {
        let text = format!("spoof:{name};");
        stage.sniffers.iter().any(|s| s.saw(|frame| carries(frame, text.as_bytes())))
    };
    // Messages carry no text: they arrive as they were sent.
    let frame_arrived = |sent: &[u8]| stage.sniffers.iter().any(|s| s.saw(|f| f == sent));
    let mut arrived: Vec<&str> = packets
        .iter()
        .filter(|(name, _)| text_arrived(name))
        .chain(messages.iter().filter(|(_, frame)| frame_arrived(frame)))
        .map(|(name, _)| *name)
        .collect();
    // Whatever is left of them when they arrive, each part has their name in it.
    let part_arrived = |name: &str| {
        let text = format!("spoof:{name};");
        stage.sniffers.iter().any(|s| s.saw(|frame| holds(frame, text.as_bytes())))
    };
    arrived.extend(hidden.iter().map(|(name, _)| name.as_str()).filter(|name| part_arrived(name)));
    if detour_by_mac(&node, &stage)? {
        arrived.push("detour by the veth's MAC");
    }
    if arrived.is_empty() {
        let early = spoof_windows::before_the_first_flow(context, &stage)?;
        let flush = spoof_windows::after_a_flush(context, &stage)?;
        return Ok(Seen {
            attacks: packets.len() + messages.len() + hidden.len() + 1,
            early,
            flush,
        });
    }
    Err(LabError::new(format!("arrived over IPv6: {}", arrived.join(", "))))
}

impl Hostile for Stage<'_> {
    fn send(&self, frames: &[Vec<u8>]) -> Result<()> {
        Stage::send(self, frames)
    }

    fn honest(&self, name: &str) -> Result<()> {
        Stage::honest(self, name)
    }

    fn outbound(&self, to: Mac, name: &str) -> Vec<u8> {
        self.packet(name, to, self.mac, self.own, self.outside)
    }

    fn left(&self, name: &str) -> bool {
        let text = format!("spoof:{name};");
        self.sniffers[2].saw(|frame| carries(frame, text.as_bytes()))
    }

    fn early(&self) -> Vec<Vec<u8>> {
        vec![
            self.packet("early", self.victim.0, FORGED, STRANGER, self.victim.1),
            self.packet("early", self.gateway.0, FORGED, STRANGER, self.far),
            self.packet("early", self.gateway.0, FORGED, STRANGER, self.outside),
            self.claim(FORGED),
        ]
    }

    fn early_arrived(&self) -> bool {
        let claim = self.claim(FORGED);
        let is_early = |frame: &[u8]| carries(frame, b"spoof:early;") || frame == claim;
        self.sniffers.iter().any(|s| s.saw(is_early))
    }

    fn gateway(&self) -> Mac {
        self.gateway.0
    }

    fn veth(&self) -> (&str, Mac) {
        (&self.veth.0, self.veth.1)
    }
}

impl Stage<'_> {
    /// A neighbour advertisement to all nodes that gives the gateway this MAC address.
    fn claim(&self, mac: Mac) -> Vec<u8> {
        let gateway = self.gateway.1;
        let mut body = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0];
        body.extend(gateway.octets());
        body.extend([2, 1]);
        body.extend(mac);
        message(mac, gateway, ALL_NODES, body)
    }

    fn send(&self, frames: &[Vec<u8>]) -> Result<()> {
        send(&self.hostile.sandbox.netns, "eth0", frames)
    }

    /// An honest packet reaches everyone.
    fn honest(&self, name: &str) -> Result<()> {
        let frames = [
            self.packet(name, self.victim.0, self.mac, self.own, self.victim.1),
            self.packet(name, self.gateway.0, self.mac, self.own, self.far),
            self.packet(name, self.gateway.0, self.mac, self.own, self.outside),
        ];
        let text = format!("spoof:{name};");
        wait_for(Duration::from_secs(20), &format!("honest packets arrive ({name})"), || {
            self.send(&frames).ok()?;
            std::thread::sleep(Duration::from_millis(20));
            let all = self.sniffers.iter().all(|s| s.saw(|frame| carries(frame, text.as_bytes())));
            all.then_some(())
        })
    }

    fn packet(&self, name: &str, to: Mac, from: Mac, source: Ipv6Addr, to_ip: Ipv6Addr) -> Vec<u8> {
        let text = format!("spoof:{name};");
        ipv6(to, from, source, to_ip, UDP, udp(source, to_ip, (4000, 4001), text.as_bytes()), 64)
    }

    /// Datagrams that must not arrive, by name.
    fn packets(&self) -> Vec<(&'static str, Vec<u8>)> {
        let (mac, own, far) = (self.mac, self.own, self.far);
        let (victim_mac, victim) = self.victim;
        let (gateway_mac, gateway) = self.gateway;
        let forged_mac = [2, 0xba, 0xd0, 0, 0, 6];
        let dhcp = |name: &str| {
            let text = format!("spoof:{name};");
            ipv6(
                victim_mac,
                mac,
                own,
                victim,
                UDP,
                udp(own, victim, (547, 546), text.as_bytes()),
                64,
            )
        };
        let packet =
            |name, to, from, source, to_ip| (name, self.packet(name, to, from, source, to_ip));
        vec![
            packet("source6-on-node", victim_mac, mac, STRANGER, victim),
            packet("source6-across", gateway_mac, mac, STRANGER, far),
            packet("source6-outside", gateway_mac, mac, STRANGER, self.outside),
            packet("victim6-as-source", gateway_mac, mac, victim, far),
            packet("gateway6-as-source", victim_mac, mac, gateway, victim),
            packet("node6-as-source", victim_mac, mac, self.nodes[0], victim),
            packet("other-node6-as-source", victim_mac, mac, self.nodes[1], victim),
            packet("mac6-on-node", victim_mac, forged_mac, own, victim),
            packet("mac6-of-gateway", victim_mac, gateway_mac, own, victim),
            packet("multicast6", MDNS.1, mac, own, MDNS.0),
            ("dhcp6-server", dhcp("dhcp6-server")),
        ]
    }

    /// Neighbour and router messages that must not arrive, by name.
    fn messages(&self) -> Vec<(&'static str, Vec<u8>)> {
        let (mac, own) = (self.mac, self.own);
        let (victim_mac, victim) = self.victim;
        let gateway = self.gateway.1;
        let claim = |target: Ipv6Addr, to: (Ipv6Addr, Mac)| {
            let mut body = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0];
            body.extend(target.octets());
            body.extend([2, 1]);
            body.extend(mac);
            self.message(own, to, body)
        };
        let to_victim = (victim, victim_mac);
        let mut advertisement =
            vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        advertisement.extend([1, 1]);
        advertisement.extend(mac);
        let mut redirect = vec![REDIRECT, 0, 0, 0, 0, 0, 0, 0];
        redirect.extend(own.octets());
        redirect.extend(self.far.octets());
        let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);
        vec![
            ("claim of the gateway", claim(gateway, to_victim)),
            ("claim of the gateway to all", claim(gateway, ALL_NODES)),
            ("claim of the victim to all", claim(victim, ALL_NODES)),
            ("router advertisement", self.message(own, ALL_NODES, advertisement.clone())),
            (
                "router advertisement from a link-local address",
                self.message(link_local, to_victim, advertisement),
            ),
            ("redirect", self.message(own, to_victim, redirect.clone())),
            ("redirect as the gateway", self.message(gateway, to_victim, redirect)),
        ]
    }

    fn message(&self, source: Ipv6Addr, to: (Ipv6Addr, Mac), body: Vec<u8>) -> Vec<u8> {
        message(self.mac, source, to, body)
    }
}

fn first(addresses: &[IpAddr]) -> Result<Ipv6Addr> {
    let found = addresses.iter().find_map(|a| match a {
        IpAddr::V6(a) => Some(*a),
        IpAddr::V4(_) => None,
    });
    found.ok_or_else(|| LabError::new("a Pod or node has no IPv6 address"))
}

/// Whether a frame is an IPv6 datagram with this text, in itself and not inside a tunnel packet.
fn carries(frame: &[u8], text: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x86, 0xdd])
        && frame.get(20) == Some(&UDP)
        && frame.get(62..).is_some_and(|payload| payload.starts_with(text))
}

/// An ICMPv6 message of the link, whose own checksum field is nought.
fn message(from: Mac, source: Ipv6Addr, to: (Ipv6Addr, Mac), mut body: Vec<u8>) -> Vec<u8> {
    let sum = checksum(source, to.0, ICMP6, &body).to_be_bytes();
    body[2..4].copy_from_slice(&sum);
    ipv6(to.1, from, source, to.0, ICMP6, body, 255)
}

fn ipv6(
    to: Mac,
    from: Mac,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    next: u8,
    payload: Vec<u8>,
    hops: u8,
) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], next, hops];
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(payload);
    ethernet(to, from, 0x86dd, &packet)
}

fn udp(source: Ipv6Addr, to: Ipv6Addr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut datagram = super::frames::udp(ports.0, ports.1, payload);
    let sum = match checksum(source, to, UDP, &datagram) {
        // Nought would mean that there is none, which IPv6 does not allow.
        0 => 0xffff,
        sum => sum,
    };
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    datagram
}

/// The checksum over a pseudo header and a payload whose own checksum field is nought (RFC 8200,
/// section 8.1).
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, next: u8, payload: &[u8]) -> u16 {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let pseudo = [
        &source.octets()[..],
        &destination.octets()[..],
        &length.to_be_bytes()[..],
        &[0, 0, 0, next],
        payload,
    ]
    .concat();
    let mut sum: u64 = pseudo
        .chunks(2)
        .map(|pair| u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_with_its_checksum_adds_up() {
        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let datagram = udp(a, b, (1, 2), b"odd");
        // Over a packet with a right checksum in it, what is left is nought.
        assert_eq!(checksum(a, b, UDP, &datagram), 0);
        let frame = ipv6([2; 6], [4; 6], a, b, UDP, datagram, 64);
        assert!(carries(&frame, b"odd"));
        assert!((0..62).all(|n| !carries(&frame[..n], b"odd")));
    }
}
