//! A hostile Pod sends what it must not: forged addresses, ARP, tunnel packets, a detour by MAC.
//!
//! Honest packets before and after show that the way is open and that all frames between have
//! been dealt with: what has not arrived by then will not.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde_json::{Value, json};

use super::frames::{
    BROADCAST, Mac, Sniffer, arp_claim, fragments, geneve, gre, ipv4, mac_of, parse_mac, send,
    tagged, udp, vxlan,
};
use super::spoof_windows::{self, FORGED, Hostile};
use super::{Context, Outcome, Pod, spoof6};
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::{NodeLayout, OUTSIDE, node_address};
use crate::ovs;
use crate::variant::{Datapath, IpFamily, Tunnel};

pub(super) const UDP: u8 = 17;
/// The MAC address under which gateways of other nodes are known.
pub(super) const VIRTUAL_MAC: Mac = [0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
pub(super) const GRE: u8 = 47;
pub(super) const GENEVE_PORT: u16 = 6081;
pub(super) const VXLAN_PORT: u16 = 4789;
/// The port that VXLAN had before it had one of its own.
pub(super) const OLD_VXLAN_PORT: u16 = 8472;
/// Where the payload of a fragmented packet is cut: Open vSwitch drops fragments that are shorter
/// than 1,200 bytes and not the last.
const CUT: usize = 1208;

/// A hostile Pod, and who must not hear of it.
pub(super) struct Stage<'a> {
    hostile: &'a Pod<'a>,
    pub(super) own: (Mac, Ipv4Addr),
    pub(super) victim: (Mac, Ipv4Addr),
    pub(super) far: Ipv4Addr,
    pub(super) gateway: (Mac, Ipv4Addr),
    pub(super) veth: Mac,
    pub(super) port: String,
    /// At the victim, at a Pod of the other node, outside.
    pub(super) sniffers: [Sniffer; 3],
}

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let mut attacks = 0;
    let mut details = json!({ "arrived": 0 });
    if context.variant.family != IpFamily::Ipv6 {
        let seen = over_ipv4(context)?;
        attacks += seen.attacks;
        details["sentBeforeFirstFlow"] = json!(seen.early);
        details["nftFlush"] = seen.flush;
    }
    if context.variant.family != IpFamily::Ipv4 {
        let seen = spoof6::run(context)?;
        attacks += seen.attacks;
        details["sentBeforeFirstFlow6"] = json!(seen.early);
        details["nftFlush6"] = seen.flush;
    }
    details["attacks"] = json!(attacks);
    Ok(Outcome::Passed(details))
}

/// What was tried in one family, with none of it arriving.
pub(super) struct Seen {
    pub(super) attacks: usize,
    /// Frames that were sent before a Pod's first flow.
    pub(super) early: u64,
    /// What a flush of the node's rules meant.
    pub(super) flush: Value,
}

/// Tries everything; fails when any of it arrives.
fn over_ipv4(context: &Context<'_>) -> Result<Seen> {
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
        port: port.clone(),
        sniffers: [
            Sniffer::start(&victim.sandbox.netns, "eth0")?,
            Sniffer::start(&far.sandbox.netns, "eth0")?,
            Sniffer::start(&store.layout().outside_netns(), "eth0")?,
        ],
        hostile: &hostile,
    };
    stage.honest("honest-1")?;
    controls(context, &stage)?;
    let attacks = stage.attacks();
    for (_, frame) in &attacks {
        stage.send(std::slice::from_ref(frame))?;
        stage.send(std::slice::from_ref(frame))?;
    }
    let stranger = Ipv4Addr::new(10, 77, 1, 250);
    stage.send(&stage.fragmented("fragments", stranger, 77))?;
    let tags = stage.tags();
    for (_, frame) in &tags {
        stage.send(std::slice::from_ref(frame))?;
    }
    stage.honest("honest-2")?;
    let mut arrived: Vec<String> = attacks
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .filter(|name| {
            let text = format!("spoof:{name};");
            let tagged = name.starts_with("tag");
            let seen = |s: &Sniffer| {
                s.saw_text(&text) || (tagged && s.saw(|frame| holds(frame, text.as_bytes())))
            };
            stage.sniffers.iter().any(seen)
        })
        .collect();
    if stage.sniffers[0].saw(|frame| is_false_claim(frame, stage.own)) {
        arrived.push("forged ARP".into());
    }
    if detour_by_mac(&node, &stage)? {
        arrived.push("detour by the veth's MAC".into());
    }
    if stage.sniffers[0].saw(|frame| holds(frame, b"spoof:fragments")) {
        arrived.push("fragments with a forged source".into());
    }
    let passed = |name: &str| stage.sniffers.iter().any(|s| s.saw(|f| holds(f, name.as_bytes())));
    arrived.extend(tags.iter().filter(|(name, _)| passed(name)).map(|(name, _)| (*name).into()));
    if arrived.is_empty() {
        let early = spoof_windows::before_the_first_flow(context, &stage)?;
        let flush = spoof_windows::after_a_flush(context, &stage)?;
        return Ok(Seen { attacks: attacks.len() + tags.len() + 3, early, flush });
    }
    Err(LabError::new(format!("arrived: {}", arrived.join(", "))))
}

/// Frames like those of the attacks arrive when they may: fragments from the Pod's own address, and
/// tunnel packets from the other node. So it is not for their form that the others do not.
fn controls(context: &Context<'_>, stage: &Stage<'_>) -> Result<()> {
    let mut id = 0;
    wait_for(Duration::from_secs(20), "honest fragments arrive", || {
        id += 1;
        stage.send(&stage.fragmented("own-fragments", stage.own.1, id)).ok()?;
        std::thread::sleep(Duration::from_millis(20));
        stage.sniffers[0].saw(|frame| holds(frame, b"spoof:own-fragments")).then_some(())
    })?;
    let layout = context.store()?.layout();
    let (node, other) = (layout.node("node-1"), layout.node("node-2"));
    let link = node_link(context);
    let (to, from) = (mac_of(node.netns(), link)?, mac_of(other.netns(), link)?);
    let text = b"spoof:own-tunnel;";
    let (victim_mac, victim) = stage.victim;
    let inner = ipv4(victim_mac, VIRTUAL_MAC, stage.far, victim, UDP, &udp(4000, 4001, text));
    let (protocol, packet) = match context.variant.tunnel {
        Tunnel::Geneve => (UDP, udp(50000, GENEVE_PORT, &geneve(&inner))),
        Tunnel::Vxlan => (UDP, udp(50000, VXLAN_PORT, &vxlan(&inner))),
        Tunnel::Gre => (GRE, gre(&inner)),
    };
    let frame = ipv4(to, from, node_address(2), node_address(1), protocol, &packet);
    wait_for(Duration::from_secs(20), "a node's tunnel packet arrives", || {
        send(other.netns(), link, std::slice::from_ref(&frame)).ok()?;
        std::thread::sleep(Duration::from_millis(20));
        stage.sniffers[0].saw_text("spoof:own-tunnel;").then_some(())
    })
}

/// The link that has a node's addresses.
pub(super) fn node_link(context: &Context<'_>) -> &'static str {
    match context.variant.datapath {
        Datapath::Netdev => "br-phy",
        Datapath::System => "eth0",
    }
}

/// Whether a frame holds this text anywhere.
pub(super) fn holds(frame: &[u8], text: &[u8]) -> bool {
    frame.windows(text.len()).any(|part| part == text)
}

impl Stage<'_> {
    /// A datagram to the victim in two fragments.
    fn fragmented(&self, name: &str, source: Ipv4Addr, id: u16) -> [Vec<u8>; 2] {
        let text = format!("spoof:{name};{}", ".".repeat(1280));
        let body = udp(4000, 4001, text.as_bytes());
        let whole = ipv4(self.victim.0, self.own.0, source, self.victim.1, UDP, &body);
        fragments(&whole, id, CUT)
    }

    pub(super) fn send(&self, frames: &[Vec<u8>]) -> Result<()> {
        send(&self.hostile.sandbox.netns, "eth0", frames)
    }

    /// An honest packet reaches everyone.
    pub(super) fn honest(&self, name: &str) -> Result<()> {
        let ((mac, own), (victim_mac, victim)) = (self.own, self.victim);
        let body = udp(4000, 4001, format!("spoof:{name};").as_bytes());
        let frames = [
            ipv4(victim_mac, mac, own, victim, UDP, &body),
            ipv4(self.gateway.0, mac, own, self.far, UDP, &body),
            ipv4(self.gateway.0, mac, own, OUTSIDE, UDP, &body),
        ];
        let text = format!("spoof:{name};");
        let arrived = wait_for(Duration::from_secs(20), "honest packets arrive", || {
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

    /// Tagged frames of the Pod's own addresses: honest, but of no VLAN that there is.
    fn tags(&self) -> Vec<(&'static str, Vec<u8>)> {
        let honest = |name: &str| {
            let body = udp(4000, 4001, name.as_bytes());
            ipv4(self.victim.0, self.own.0, self.own.1, self.victim.1, UDP, &body)
        };
        vec![
            ("own-tag", tagged(&honest("own-tag"), 0x8100, 5)),
            ("own-priority-tag", tagged(&honest("own-priority-tag"), 0x8100, 0)),
            ("own-service-tag", tagged(&honest("own-service-tag"), 0x88a8, 5)),
            ("own-double-tag", tagged(&tagged(&honest("own-double-tag"), 0x8100, 5), 0x88a8, 6)),
        ]
    }

    /// Everything that must not arrive, by name.
    fn attacks(&self) -> Vec<(&'static str, Vec<u8>)> {
        let ((mac, own), (victim_mac, victim)) = (self.own, self.victim);
        let (gateway_mac, gateway) = self.gateway;
        let forged_mac = [2, 0xba, 0xd0, 0, 0, 1];
        let stranger = Ipv4Addr::new(10, 77, 1, 250);
        let body = |name: &str| udp(4000, 4001, format!("spoof:{name};").as_bytes());
        let inner = |name: &str, to_mac: Mac, to: Ipv4Addr| {
            ipv4(to_mac, gateway_mac, stranger, to, UDP, &body(name))
        };
        let tunnel = |name: &'static str, outer: Ipv4Addr, to: Ipv4Addr| {
            let to_mac = if to == victim { victim_mac } else { VIRTUAL_MAC };
            let (kind, _) = name.split_once('-').unwrap_or_default();
            let (protocol, packet) = match kind {
                "geneve" => (UDP, udp(50000, GENEVE_PORT, &geneve(&inner(name, to_mac, to)))),
                "vxlan" => (UDP, udp(50000, VXLAN_PORT, &vxlan(&inner(name, to_mac, to)))),
                "vxlan8472" => (UDP, udp(50000, OLD_VXLAN_PORT, &vxlan(&inner(name, to_mac, to)))),
                _ => (GRE, gre(&inner(name, to_mac, to))),
            };
            (name, ipv4(gateway_mac, mac, own, outer, protocol, &packet))
        };
        let forged = |name: &str| ipv4(victim_mac, mac, stranger, victim, UDP, &body(name));
        let (gateway_node, other_node) = (node_address(1), node_address(2));
        vec![
            tunnel("geneve-own-gateway", gateway, victim),
            tunnel("geneve-own-node", gateway_node, victim),
            tunnel("geneve-other-node", other_node, self.far),
            tunnel("vxlan-own-gateway", gateway, victim),
            tunnel("vxlan-own-node", gateway_node, victim),
            tunnel("vxlan-other-node", other_node, self.far),
            tunnel("vxlan8472-own-gateway", gateway, victim),
            tunnel("vxlan8472-own-node", gateway_node, victim),
            tunnel("vxlan8472-other-node", other_node, self.far),
            tunnel("gre-own-gateway", gateway, victim),
            tunnel("gre-own-node", gateway_node, victim),
            tunnel("gre-other-node", other_node, self.far),
            ("tag", tagged(&forged("tag"), 0x8100, 5)),
            ("tag-of-priority", tagged(&forged("tag-of-priority"), 0x8100, 0)),
            ("tag-of-service", tagged(&forged("tag-of-service"), 0x88a8, 5)),
            ("tags", tagged(&tagged(&forged("tags"), 0x8100, 5), 0x88a8, 6)),
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
pub(super) fn detour_by_mac(node: &NodeLayout, stage: &dyn Hostile) -> Result<bool> {
    let frame = stage.outbound(stage.veth().1, "detour");
    let block = Block::set(node, stage)?;
    stage.send(&[frame.clone(), frame.clone(), frame])?;
    // The kernel's way is shorter than the switch's: a moment is enough to see it.
    std::thread::sleep(Duration::from_millis(300));
    drop(block);
    Ok(stage.left("detour"))
}

impl Hostile for Stage<'_> {
    fn send(&self, frames: &[Vec<u8>]) -> Result<()> {
        Stage::send(self, frames)
    }

    fn honest(&self, name: &str) -> Result<()> {
        Stage::honest(self, name)
    }

    fn outbound(&self, to: Mac, name: &str) -> Vec<u8> {
        let (mac, own) = self.own;
        ipv4(to, mac, own, OUTSIDE, UDP, &udp(4000, 4001, format!("spoof:{name};").as_bytes()))
    }

    fn left(&self, name: &str) -> bool {
        self.sniffers[2].saw_text(&format!("spoof:{name};"))
    }

    fn early(&self) -> Vec<Vec<u8>> {
        let stranger = Ipv4Addr::new(10, 77, 1, 251);
        let body = udp(4000, 4001, b"spoof:early;");
        vec![
            ipv4(self.victim.0, FORGED, stranger, self.victim.1, UDP, &body),
            ipv4(self.gateway.0, FORGED, stranger, self.far, UDP, &body),
            ipv4(self.gateway.0, FORGED, stranger, OUTSIDE, UDP, &body),
            arp_claim(FORGED, FORGED, self.gateway.1),
        ]
    }

    fn early_arrived(&self) -> bool {
        let claim = arp_claim(FORGED, FORGED, self.gateway.1);
        self.sniffers.iter().any(|s| s.saw_text("spoof:early;"))
            || self.sniffers[0].saw(|frame| frame.starts_with(&claim))
    }

    fn gateway(&self) -> Mac {
        self.gateway.0
    }

    fn veth(&self) -> (&str, Mac) {
        (&self.port, self.veth)
    }
}

/// A flow that drops all of a Pod's packets, so that what arrives came another way. The agent
/// removes it within seconds, since it is not its own.
pub(super) struct Block<'a> {
    node: &'a NodeLayout,
    port: String,
}

impl<'a> Block<'a> {
    /// Sets it, and waits until it is in force.
    pub(super) fn set(node: &'a NodeLayout, stage: &dyn Hostile) -> Result<Self> {
        let number = ovs::vsctl(node, &["get", "Interface", stage.veth().0, "ofport"])?;
        let block = Self { node, port: number.trim().to_owned() };
        block.enforce(stage)?;
        Ok(block)
    }

    /// Does what `work` says while it is in force all the time. The agent removes what is not its
    /// own, and then it is set again and `work` is done again.
    pub(super) fn during<T>(
        &self,
        stage: &dyn Hostile,
        mut work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        for _ in 0..5 {
            if !self.is_set()? {
                self.enforce(stage)?;
            }
            let done = work()?;
            // Nobody but us sets it: if it is there now, it was there all the time.
            if self.is_set()? {
                return Ok(done);
            }
        }
        Err(LabError::new("the agent removed a foreign flow five times within a moment"))
    }

    fn enforce(&self, stage: &dyn Hostile) -> Result<()> {
        // What the datapath has cached of honest packets is let go a moment after the flow is there;
        // and the agent may have removed the flow by then.
        wait_for(Duration::from_secs(20), "the switch drops the Pod's packets", || {
            self.again().ok()?;
            let name = format!("gate-{}", jiff::Timestamp::now().as_microsecond());
            stage.send(&[stage.outbound(stage.gateway(), &name)]).ok()?;
            std::thread::sleep(Duration::from_millis(100));
            (!stage.left(&name)).then_some(())
        })
    }

    fn is_set(&self) -> Result<bool> {
        let filter = format!("table=0,in_port={}", self.port);
        let flows = ovs::ofctl(self.node, "dump-flows", &[&filter])?;
        Ok(flows.contains("priority=65535"))
    }

    /// Sets it again.
    pub(super) fn again(&self) -> Result<()> {
        let flow = format!("table=0,priority=65535,in_port={},actions=drop", self.port);
        ovs::ofctl(self.node, "add-flow", &[&flow]).map(drop)
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        let flow = format!("table=0,priority=65535,in_port={}", self.port);
        // The agent may have removed what is not its own already.
        let _ = ovs::ofctl(self.node, "del-flows", &["--strict", &flow]);
    }
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
