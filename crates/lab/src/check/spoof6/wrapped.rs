//! Attacks over IPv6 that hide: in tunnel packets, behind VLAN tags and extension headers, in
//! fragments.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::super::frames::{Mac, geneve, gre, mac_of, send, tagged, vxlan};
use super::super::spoof::{
    GENEVE_PORT, GRE, OLD_VXLAN_PORT, UDP, VIRTUAL_MAC, VXLAN_PORT, holds, node_link,
};
use super::{
    ALL_NODES, Context, ICMP6, NEIGHBOUR_ADVERTISEMENT, REDIRECT, ROUTER_ADVERTISEMENT, STRANGER,
    Stage, carries, checksum, ipv6, udp,
};
use crate::error::Result;
use crate::interrupt::wait_for;
use crate::variant::{IpFamily, Tunnel};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
/// Type of an option, and of a routing header, for experiments (RFC 4727): nobody minds it.
const EXPERIMENTAL: u8 = 253;
/// Where fragmented payloads are cut: Open vSwitch drops fragments of less than 1,280 bytes that
/// are not the last.
const CUT: usize = 1280;

/// Frames that belong together, by name.
type Hidden = (String, Vec<Vec<u8>>);

impl Stage<'_> {
    /// Frames like those of the attacks arrive when they may: fragments from the Pod's own address,
    /// and tunnel packets from the other node where these go over IPv6.
    pub(super) fn controls(&self, context: &Context<'_>) -> Result<()> {
        let seen = |text: &str| self.sniffers[0].saw(|frame| holds(frame, text.as_bytes()));
        let mut id = 0;
        wait_for(Duration::from_secs(20), "honest fragments arrive over IPv6", || {
            id += 1;
            self.send(&self.datagram_in_parts("own-fragments6", self.own, id)).ok()?;
            std::thread::sleep(Duration::from_millis(20));
            seen("spoof:own-fragments6;").then_some(())
        })?;
        if context.variant.family != IpFamily::Ipv6 {
            return Ok(());
        }
        let layout = context.store()?.layout();
        let (node, other) = (layout.node("node-1"), layout.node("node-2"));
        let link = node_link(context);
        let (to, from) = (mac_of(node.netns(), link)?, mac_of(other.netns(), link)?);
        let inner = self.packet("own-tunnel6", self.victim.0, VIRTUAL_MAC, self.far, self.victim.1);
        let kind = match context.variant.tunnel {
            Tunnel::Geneve => Wrap::Geneve,
            Tunnel::Vxlan => Wrap::Vxlan,
            Tunnel::Gre => Wrap::Gre,
        };
        let frame = kind.around(&inner, (to, self.nodes[0]), (from, self.nodes[1]));
        wait_for(Duration::from_secs(20), "a node's tunnel packet arrives over IPv6", || {
            send(other.netns(), link, std::slice::from_ref(&frame)).ok()?;
            std::thread::sleep(Duration::from_millis(20));
            self.sniffers[0].saw(|frame| carries(frame, b"spoof:own-tunnel6;")).then_some(())
        })
    }

    /// Tunnel packets to everything that might take them out of the tunnel.
    pub(super) fn tunnels(&self) -> Vec<(&'static str, Vec<u8>)> {
        let (own, gateway) = ((self.mac, self.own), self.gateway);
        let tunnel = |name: &'static str, kind: Wrap, outer: Ipv6Addr| {
            let (mac, to) =
                if outer == self.nodes[1] { (VIRTUAL_MAC, self.far) } else { self.victim };
            let inner = self.packet(name, mac, gateway.0, STRANGER, to);
            (name, kind.around(&inner, (gateway.0, outer), own))
        };
        let [node, other] = self.nodes;
        vec![
            tunnel("geneve6-own-gateway", Wrap::Geneve, gateway.1),
            tunnel("geneve6-own-node", Wrap::Geneve, node),
            tunnel("geneve6-other-node", Wrap::Geneve, other),
            tunnel("vxlan6-own-gateway", Wrap::Vxlan, gateway.1),
            tunnel("vxlan6-own-node", Wrap::Vxlan, node),
            tunnel("vxlan6-other-node", Wrap::Vxlan, other),
            tunnel("vxlan6-8472-own-gateway", Wrap::OldVxlan, gateway.1),
            tunnel("vxlan6-8472-own-node", Wrap::OldVxlan, node),
            tunnel("vxlan6-8472-other-node", Wrap::OldVxlan, other),
            tunnel("gre6-own-gateway", Wrap::Gre, gateway.1),
            tunnel("gre6-own-node", Wrap::Gre, node),
            tunnel("gre6-other-node", Wrap::Gre, other),
        ]
    }

    /// Everything else that must not arrive, nor any part of it.
    pub(super) fn hidden(&self) -> Vec<Hidden> {
        [self.tags(), self.fragments(), self.behind_headers(), self.in_later_fragments()].concat()
    }

    /// Tagged frames, of a forged address and of the Pod's own: there is no VLAN here.
    fn tags(&self) -> Vec<Hidden> {
        let mut all = Vec::new();
        for (who, source) in [("forged", STRANGER), ("own", self.own)] {
            let mut add = |kind: &str, tags: &[(u16, u16)]| {
                let name = format!("{kind}6-{who}");
                let plain = self.packet(&name, self.victim.0, self.mac, source, self.victim.1);
                let tag = |frame: Vec<u8>, (kind, vlan): &(u16, u16)| tagged(&frame, *kind, *vlan);
                let frame = tags.iter().fold(plain, tag);
                all.push((name, vec![frame]));
            };
            add("tag", &[(0x8100, 5)]);
            add("tag-of-priority", &[(0x8100, 0)]);
            add("tag-of-service", &[(0x88a8, 5)]);
            add("tags", &[(0x8100, 5), (0x88a8, 6)]);
        }
        all
    }

    /// Fragments of a forged address: both, the first alone, the later one alone; and those of a
    /// tunnel packet, whose ports are in the first one only.
    fn fragments(&self) -> Vec<Hidden> {
        let parts = |name: &str, id| self.datagram_in_parts(name, STRANGER, id);
        let both = parts("fragments6", 501);
        let [first, _] = parts("first-fragment6", 502);
        let [_, later] = parts("later-fragment6", 503);
        let inner =
            self.packet("tunnel-fragments6", self.victim.0, self.mac, STRANGER, self.victim.1);
        let long = [inner, vec![0; CUT]].concat();
        let tunnel = Wrap::Geneve.around(&long, self.gateway, (self.mac, self.own));
        vec![
            ("fragments6".into(), both.into()),
            ("first-fragment6".into(), vec![first]),
            ("later-fragment6".into(), vec![later]),
            ("tunnel-fragments6".into(), in_parts(&tunnel, 504).into()),
        ]
    }

    /// A datagram to the victim in two fragments, with its name in both.
    fn datagram_in_parts(&self, name: &str, source: Ipv6Addr, id: u32) -> [Vec<u8>; 2] {
        let text = format!("spoof:{name};");
        let payload = [text.as_bytes(), &[b'.'; CUT], text.as_bytes()].concat();
        let datagram = udp(source, self.victim.1, (4000, 4001), &payload);
        let whole = ipv6(self.victim.0, self.mac, source, self.victim.1, UDP, datagram, 64);
        in_parts(&whole, id)
    }

    /// Messages that a Pod must not send, behind every kind of extension header.
    fn behind_headers(&self) -> Vec<Hidden> {
        let mut all = Vec::new();
        for (behind, chain) in [
            ("hop-by-hop", &[HOP_BY_HOP][..]),
            ("destination", &[DESTINATION]),
            ("routing", &[ROUTING]),
            ("fragment", &[FRAGMENT]),
            ("all", &[HOP_BY_HOP, DESTINATION, ROUTING, FRAGMENT, DESTINATION]),
        ] {
            for (what, to, message) in self.false_messages(behind) {
                let mut payload = Vec::new();
                let after = chain.iter().skip(1).copied().chain([ICMP6]);
                for (header, next) in chain.iter().zip(after) {
                    payload.extend(extension(*header, next));
                }
                payload.extend(message);
                let frame = ipv6(to.1, self.mac, self.own, to.0, chain[0], payload, 255);
                all.push((format!("{what}-behind-{behind}"), vec![frame]));
            }
        }
        all
    }

    /// The same with the message in the second fragment, so that the first one does not say that
    /// there is one: once behind a whole header that fills the first, once behind one that is cut.
    fn in_later_fragments(&self) -> Vec<Hidden> {
        let mut all = Vec::new();
        for (behind, padding, first_id) in
            [("whole-header", CUT, 600), ("cut-header", CUT + 64, 700)]
        {
            for (id, (what, to, message)) in (first_id..).zip(self.false_messages(behind)) {
                let name = format!("{what}-behind-{behind}");
                let text = format!("spoof:{name};");
                let payload = [long_options(ICMP6, padding, text.as_bytes()), message].concat();
                let whole = ipv6(to.1, self.mac, self.own, to.0, DESTINATION, payload, 255);
                all.push((name, in_parts(&whole, id).into()));
            }
        }
        all
    }

    /// A neighbour's, a router's and a redirecting message: what it is, to whom it goes, its bytes
    /// with `spoof:WHAT-behind-BEHIND;` in them.
    fn false_messages(&self, behind: &str) -> [(&'static str, (Ipv6Addr, Mac), Vec<u8>); 3] {
        let to_victim = (self.victim.1, self.victim.0);
        let mut claim = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, 0x20, 0, 0, 0];
        claim.extend(self.gateway.1.octets());
        claim.extend([2, 1]);
        claim.extend(self.mac);
        let router = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut redirect = vec![REDIRECT, 0, 0, 0, 0, 0, 0, 0];
        redirect.extend(self.own.octets());
        redirect.extend(self.far.octets());
        let messages = [
            ("claim", to_victim, claim),
            ("router", ALL_NODES, router),
            ("redirect", to_victim, redirect),
        ];
        messages.map(|(what, to, mut body)| {
            let mut option = vec![EXPERIMENTAL, 0];
            option.extend(format!("spoof:{what}-behind-{behind};").bytes());
            option.resize(option.len().next_multiple_of(8), 0);
            option[1] = u8::try_from(option.len() / 8).unwrap_or_default();
            body.extend(option);
            let sum = checksum(self.own, to.0, ICMP6, &body).to_be_bytes();
            body[2..4].copy_from_slice(&sum);
            (what, to, body)
        })
    }
}

/// What a tunnel packet is of.
#[derive(Clone, Copy)]
enum Wrap {
    Geneve,
    Vxlan,
    OldVxlan,
    Gre,
}

impl Wrap {
    fn around(self, inner: &[u8], to: (Mac, Ipv6Addr), from: (Mac, Ipv6Addr)) -> Vec<u8> {
        let over_udp = |port, packet: Vec<u8>| (UDP, udp(from.1, to.1, (50000, port), &packet));
        let (next, payload) = match self {
            Self::Geneve => over_udp(GENEVE_PORT, geneve(inner)),
            Self::Vxlan => over_udp(VXLAN_PORT, vxlan(inner)),
            Self::OldVxlan => over_udp(OLD_VXLAN_PORT, vxlan(inner)),
            Self::Gre => (GRE, gre(inner)),
        };
        ipv6(to.0, from.0, from.1, to.1, next, payload, 64)
    }
}

/// An extension header of eight bytes that means nothing, before one of kind `next`.
fn extension(kind: u8, next: u8) -> [u8; 8] {
    match kind {
        ROUTING => [next, 0, EXPERIMENTAL, 0, 0, 0, 0, 0],
        // The only fragment of its packet.
        FRAGMENT => [next, 0, 0, 0, 0, 0, 0, 9],
        // Padding of six bytes.
        _ => [next, 0, 1, 4, 0, 0, 0, 0],
    }
}

/// A header of destination options of `len` bytes, a multiple of eight, with a text in it.
fn long_options(next: u8, len: usize, text: &[u8]) -> Vec<u8> {
    let mut header = vec![next, u8::try_from(len / 8 - 1).unwrap_or(u8::MAX)];
    // An option for experiments that whoever does not know it passes over.
    header.extend([0x1e, u8::try_from(text.len()).unwrap_or_default()]);
    header.extend(text);
    while header.len() < len {
        match len - header.len() {
            1 => header.push(0),
            left => {
                let body = (left - 2).min(255);
                header.extend([1, u8::try_from(body).unwrap_or_default()]);
                header.resize(header.len() + body, 0);
            }
        }
    }
    header
}

/// The fragments of an IPv6 packet in an Ethernet frame.
fn in_parts(frame: &[u8], id: u32) -> [Vec<u8>; 2] {
    let (head, payload) = frame.split_at(54);
    let piece = |offset_and_more: u16, payload: &[u8]| {
        let mut piece = head.to_vec();
        let length = u16::try_from(8 + payload.len()).unwrap_or(u16::MAX);
        piece[18..20].copy_from_slice(&length.to_be_bytes());
        piece[20] = FRAGMENT;
        piece.extend([head[20], 0]);
        piece.extend(offset_and_more.to_be_bytes());
        piece.extend(id.to_be_bytes());
        piece.extend_from_slice(payload);
        piece
    };
    let (first, rest) = payload.split_at(CUT);
    let offset = u16::try_from(CUT).unwrap_or_default();
    [piece(1, first), piece(offset, rest)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_hold_the_whole_payload() {
        let (a, b) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        let payload: Vec<u8> = (0..=255).cycle().take(1500).collect();
        let frame = ipv6([2; 6], [4; 6], a, b, UDP, payload, 64);
        let [first, second] = in_parts(&frame, 7);
        assert_eq!([&first[62..], &second[62..]].concat(), &frame[54..]);
        assert_eq!((first[20], first[54]), (FRAGMENT, UDP));
        // More to come, from nought; the last, from 1,280.
        assert_eq!((&first[56..58], &second[56..58]), (&[0, 1][..], &[5, 0][..]));
    }

    #[test]
    fn long_options_are_as_long_as_they_say() {
        for len in [1280, 1344] {
            let header = long_options(ICMP6, len, b"spoof:x;");
            assert_eq!((header.len(), header[0]), (len, ICMP6));
            assert_eq!((usize::from(header[1]) + 1) * 8, len);
        }
    }
}
