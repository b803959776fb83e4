//! A hostile Pod sends what it must not: forged addresses, ARP, tunnel packets, a detour by MAC.
//!
//! Honest packets before and after show that the way is open and that all frames between have
//! been dealt with: what has not arrived by then will not.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::json;

use super::frames::{
    BROADCAST, Mac, Sniffer, arp_claim, geneve, ipv4, mac_of, parse_mac, send, udp,
};
use super::{Context, Outcome, Pod, spoof6};
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::{OUTSIDE, node_address};
use crate::ovs;
use crate::variant::IpFamily;

const UDP: u8 = 17;
const GENEVE_PORT: u16 = 6081;

struct Stage<'a> {
    hostile: &'a Pod<'a>,
    own: (Mac, Ipv4Addr),
    victim: (Mac, Ipv4Addr),
    far: Ipv4Addr,
    gateway: (Mac, Ipv4Addr),
    veth: Mac,
    sniffers: [Sniffer; 3],
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let mut attacks = 0;
    if context.variant.family != IpFamily::Ipv6 {
        attacks += over_ipv4(context)?;
    }
    if context.variant.family != IpFamily::Ipv4 {
        attacks += spoof6::run(context)?;
    }
    Ok(Outcome::Passed(json!({ "attacks": attacks, "arrived": 0 })))
}

/// Tries everything and gives the number of attacks of which none arrived.
fn over_ipv4(context: &Context<'_>) -> Result<usize> {
    let store = context.store()?;
    let node = store.layout().node("node-1");
    let hostile = context.pod("node-1", "spoof-hostile")?;
    let victim = context.pod("node-1", "spoof-victim")?;
    let far = context.pod("node-2", "spoof-far")?;
    let port = hostile.sandbox.host_interface().unwrap_or_default();
    let gateway_mac = ovs::vsctl(&node, &["get", "Interface", "antrea-gw0", "mac_in_use"])?;
    let gateway = hostile.sandbox.gateways().into_iter().find_map(|g| match g {
        IpAddr::V4(g) => Some(g),
        IpAddr::V6(_) => None,
    });
    let stage = Stage {
        own: (mac_of(&hostile.sandbox.netns, "eth0")?, ipv4_of(&hostile)?),
        victim: (mac_of(&victim.sandbox.netns, "eth0")?, ipv4_of(&victim)?),
        far: ipv4_of(&far)?,
        gateway: (
            parse_mac(gateway_mac.trim().trim_matches('"'))?,
            gateway.ok_or_else(|| LabError::new("the CNI result names no gateway"))?,
        ),
        veth: mac_of(node.netns(), &port)?,
        sniffers: [
            Sniffer::start(&victim.sandbox.netns, "eth0")?,
            Sniffer::start(&far.sandbox.netns, "eth0")?,
            Sniffer::start(&store.layout().outside_netns(), "eth0")?,
        ],
        hostile: &hostile,
    };
    stage.honest("honest-1")?;
    let attacks = stage.attacks();
    for (_, frame) in &attacks {
        stage.send(std::slice::from_ref(frame))?;
        stage.send(std::slice::from_ref(frame))?;
    }
    stage.honest("honest-2")?;
    let mut arrived: Vec<String> = attacks
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| stage.sniffers.iter().any(|s| s.saw_text(&format!("spoof:{name};"))))
        .collect();
    if stage.sniffers[0].saw(|frame| is_false_claim(frame, stage.own)) {
        arrived.push("forged ARP".into());
    }
    if detour_by_mac(&node, &port, &stage)? {
        arrived.push("detour by the veth's MAC".into());
    }
    if arrived.is_empty() {
        return Ok(attacks.len() + 1);
    }
    Err(LabError::new(format!("arrived: {}", arrived.join(", "))))
}

impl Stage<'_> {
    fn send(&self, frames: &[Vec<u8>]) -> Result<()> {
        send(&self.hostile.sandbox.netns, "eth0", frames)
    }

    /// An honest packet reaches everyone.
    fn honest(&self, name: &str) -> Result<()> {
        let ((mac, own), (victim_mac, victim)) = (self.own, self.victim);
        let body = udp(4000, 4001, format!("spoof:{name};").as_bytes());
        let frames = [
            ipv4(victim_mac, mac, own, victim, UDP, &body),
            ipv4(self.gateway.0, mac, own, self.far, UDP, &body),
            ipv4(self.gateway.0, mac, own, OUTSIDE, UDP, &body),
        ];
        let text = format!("spoof:{name};");
        let arrived = wait_for(Duration::from_secs(10), "honest packets arrive", || {
            if self.send(&frames).is_err() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(20));
            self.sniffers.iter().all(|s| s.saw_text(&text)).then_some(())
        });
        arrived.map_err(|error| {
            let missed: Vec<_> = ["the victim", "the far Pod", "the outside"]
                .into_iter()
                .zip(&self.sniffers)
                .filter(|(_, s)| !s.saw_text(&text))
                .map(|(who, _)| who)
                .collect();
            LabError::new(format!("{error} ({name}): not seen by {}", missed.join(", ")))
        })
    }

    /// Everything that must not arrive, by name.
    fn attacks(&self) -> Vec<(&'static str, Vec<u8>)> {
        let ((mac, own), (victim_mac, victim)) = (self.own, self.victim);
        let (gateway_mac, gateway) = self.gateway;
        let forged_mac = [2, 0xba, 0xd0, 0, 0, 1];
        let stranger = Ipv4Addr::new(10, 77, 1, 250);
        let body = |name: &str| udp(4000, 4001, format!("spoof:{name};").as_bytes());
        let inner = |name: &str, to_mac: Mac, to: Ipv4Addr| {
            geneve(&ipv4(to_mac, gateway_mac, stranger, to, UDP, &body(name)))
        };
        let tunnel = |name: &str, to_mac: Mac, outer: Ipv4Addr, to: Ipv4Addr| {
            let datagram = udp(50000, GENEVE_PORT, &inner(name, to_mac, to));
            ipv4(gateway_mac, mac, own, outer, UDP, &datagram)
        };
        let virtual_mac = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        vec![
            (
                "source-on-node",
                ipv4(victim_mac, mac, stranger, victim, UDP, &body("source-on-node")),
            ),
            (
                "source-across",
                ipv4(gateway_mac, mac, stranger, self.far, UDP, &body("source-across")),
            ),
            (
                "source-outside",
                ipv4(gateway_mac, mac, stranger, OUTSIDE, UDP, &body("source-outside")),
            ),
            (
                "victim-as-source",
                ipv4(gateway_mac, mac, victim, self.far, UDP, &body("victim-as-source")),
            ),
            (
                "node-as-source",
                ipv4(victim_mac, mac, node_address(1), victim, UDP, &body("node-as-source")),
            ),
            (
                "gateway-as-source",
                ipv4(victim_mac, mac, gateway, victim, UDP, &body("gateway-as-source")),
            ),
            ("mac-on-node", ipv4(victim_mac, forged_mac, own, victim, UDP, &body("mac-on-node"))),
            (
                "mac-of-victim",
                ipv4(gateway_mac, victim_mac, own, self.far, UDP, &body("mac-of-victim")),
            ),
            (
                "mac-of-gateway",
                ipv4(victim_mac, gateway_mac, own, victim, UDP, &body("mac-of-gateway")),
            ),
            ("tunnel-own-gateway", tunnel("tunnel-own-gateway", victim_mac, gateway, victim)),
            ("tunnel-own-node", tunnel("tunnel-own-node", victim_mac, node_address(1), victim)),
            (
                "tunnel-other-node",
                tunnel("tunnel-other-node", virtual_mac, node_address(2), self.far),
            ),
            (
                "veth-mac-forged",
                ipv4(self.veth, mac, stranger, OUTSIDE, UDP, &body("veth-mac-forged")),
            ),
            (
                "dhcp-server",
                ipv4(
                    BROADCAST,
                    mac,
                    own,
                    Ipv4Addr::BROADCAST,
                    UDP,
                    &udp(67, 68, b"spoof:dhcp-server;"),
                ),
            ),
            ("arp-gateway", arp_claim(mac, mac, gateway)),
            ("arp-victim", arp_claim(mac, mac, victim)),
            ("arp-forged-mac", arp_claim(forged_mac, forged_mac, own)),
        ]
    }
}

/// While the switch drops all of the Pod's packets, one addressed to the veth itself must not
/// find another way through the node's kernel.
fn detour_by_mac(node: &crate::layout::NodeLayout, port: &str, stage: &Stage<'_>) -> Result<bool> {
    let (mac, own) = stage.own;
    let text = "spoof:detour;";
    let frame = ipv4(stage.veth, mac, own, OUTSIDE, UDP, &udp(4000, 4001, text.as_bytes()));
    let block = format!("table=0,priority=65535,in_port={port},actions=drop");
    ovs::ofctl(node, "add-flow", &["--names", &block]).or_else(|_| {
        let number = ovs::vsctl(node, &["get", "Interface", port, "ofport"])?;
        let block = format!("table=0,priority=65535,in_port={},actions=drop", number.trim());
        ovs::ofctl(node, "add-flow", &[&block])
    })?;
    let outside = &stage.sniffers[2];
    // What the datapath has cached of honest packets is let go a moment after the flow is there.
    let mut n = 0;
    let closed = wait_for(Duration::from_secs(5), "the switch drops the Pod's packets", || {
        n += 1;
        let text = format!("spoof:gate-{n};");
        let body = udp(4000, 4001, text.as_bytes());
        stage.send(&[ipv4(stage.gateway.0, mac, own, OUTSIDE, UDP, &body)]).ok()?;
        std::thread::sleep(Duration::from_millis(100));
        (!outside.saw_text(&text)).then_some(())
    });
    let arrived = closed.and_then(|()| {
        stage.send(&[frame.clone(), frame.clone(), frame])?;
        // The kernel's way is shorter than the switch's: a moment is enough to see it.
        std::thread::sleep(Duration::from_millis(300));
        Ok(outside.saw_text(text))
    });
    let number = ovs::vsctl(node, &["get", "Interface", port, "ofport"])?;
    let blocked = format!("table=0,priority=65535,in_port={}", number.trim());
    // The agent may have removed what is not its own already.
    let _ = ovs::ofctl(node, "del-flows", &["--strict", &blocked]);
    arrived
}

/// An ARP frame from the hostile Pod, or that names its MAC, with an address that is not its own.
fn is_false_claim(frame: &[u8], (mac, own): (Mac, Ipv4Addr)) -> bool {
    let Some(body) = frame.get(14..42).filter(|_| frame.get(12..14) == Some(&[8, 6])) else {
        return false;
    };
    let (sender_mac, sender) = (&body[8..14], &body[14..18]);
    let claims_ours = sender_mac == mac && sender != own.octets();
    let claims_with_other_mac = sender == own.octets() && sender_mac != mac;
    claims_ours || claims_with_other_mac
}

fn ipv4_of(pod: &Pod<'_>) -> Result<Ipv4Addr> {
    let found = pod.sandbox.addresses().into_iter().find_map(|a| match a {
        IpAddr::V4(a) => Some(a),
        IpAddr::V6(_) => None,
    });
    found.ok_or_else(|| LabError::new("the Pod has no IPv4 address"))
}
