//! Where a packet comes from, and whether it is what it says: the root table, Classifier,
//! SpoofGuard.
//!
//! Neighbour discovery is guarded in `neighbour`.

use std::net::IpAddr;

use openflow::{Action, Field, Match};

use super::Build;
use crate::fields::{
    self, FROM_EXTERNAL, FROM_GATEWAY, FROM_LOCAL, FROM_POD, FROM_TUNNEL, HIGH, LOW, NORMAL,
    Pipeline, REWRITE_MAC, Stage,
};
use crate::node::{PeerNode, PodInterface};

/// Ports of DHCP: a server answers from the first to the second.
const DHCP_V4: (u16, u16) = (67, 68);
const DHCP_V6: (u16, u16) = (547, 546);
/// The bit of `vlan_tci` that is set when there is a tag at all (`ovs-fields(7)`, `vlan_tci`).
const VLAN_PRESENT: u128 = 0x1000;

pub(super) fn node(build: &mut Build<'_>) {
    root(build);
    gateway(build);
    never_from_pods(build);
    let own: Vec<_> = build.node.node_ips.iter().chain(&build.node.gateway.ips).copied().collect();
    for address in own {
        no_tunnel_injection(build, address);
    }
}

pub(super) fn pod(build: &mut Build<'_>, pod: &PodInterface) {
    let validation = build.layout.ip_stage(Stage::Validation);
    build.add(
        fields::CLASSIFIER,
        LOW,
        Match::new().in_port(pod.ofport),
        [FROM_POD.load(), FROM_LOCAL.load(), Action::GotoTable(validation)],
    );
    for ip in pod.ips.iter().filter(|ip| build.node.families.has(**ip)).copied() {
        let from = Match::new().in_port(pod.ofport).eth_src(pod.mac).src_net(ip);
        let next = after_guard(build, ip);
        build.add(fields::SPOOF_GUARD, NORMAL, from, [next]);
    }
}

pub(super) fn peer(build: &mut Build<'_>, peer: &PeerNode) {
    let Some(tunnel) = build.node.tunnel else { return };
    let from = Match::new().in_port(tunnel.ofport);
    let from = match peer.node_ip {
        IpAddr::V4(ip) => from.tun_src(ip),
        IpAddr::V6(ip) => from.tun_ipv6_src(ip),
    };
    let next = build.layout.ip_stage(Stage::ConntrackState);
    build.add(
        fields::CLASSIFIER,
        NORMAL,
        from,
        [FROM_TUNNEL.load(), REWRITE_MAC.load(), Action::GotoTable(next)],
    );
    for address in [&peer.node_ip].into_iter().chain(&peer.other_ips).chain(&peer.gateway_ips) {
        no_tunnel_injection(build, *address);
    }
}

fn root(build: &mut Build<'_>) {
    // No Pod, gateway or peer has a VLAN; whoever gets a tagged frame may strip the tag.
    build.add(
        fields::PIPELINE_ROOT_CLASSIFIER,
        HIGH,
        Match::new().with_masked(Field::VlanTci, VLAN_PRESENT, VLAN_PRESENT),
        [],
    );
    let ip = build.layout.ip_stage(Stage::Start);
    for family in build.families() {
        build.add(fields::PIPELINE_ROOT_CLASSIFIER, NORMAL, family, [Action::GotoTable(ip)]);
    }
    if let Some(arp) = build.layout.first_of(Pipeline::Arp, Stage::Start) {
        build.add(
            fields::PIPELINE_ROOT_CLASSIFIER,
            NORMAL,
            Match::new().arp(),
            [Action::GotoTable(arp)],
        );
    }
}

fn gateway(build: &mut Build<'_>) {
    let gateway = &build.node.gateway;
    let validation = Action::GotoTable(build.layout.ip_stage(Stage::Validation));
    let from = Match::new().in_port(gateway.ofport);
    for ip in gateway.ips.iter().filter(|ip| build.node.families.has(**ip)) {
        build.add(
            fields::CLASSIFIER,
            HIGH,
            from.clone().src_net(*ip),
            [FROM_GATEWAY.load(), FROM_LOCAL.load(), validation.clone()],
        );
    }
    // The host may dial a NodePort in the name of the address that it dials: it is of this node, but
    // an answer from elsewhere would not come by this switch.
    let node_ports = build.node.services.iter().flat_map(|config| &config.node_port_addresses);
    let others = node_ports.filter(|ip| build.node.families.has(**ip) && !gateway.ips.contains(ip));
    for ip in others.copied().collect::<Vec<_>>() {
        let actions =
            [FROM_GATEWAY.load(), FROM_LOCAL.load(), FROM_EXTERNAL.load(), validation.clone()];
        build.add(fields::CLASSIFIER, HIGH, from.clone().src_net(ip), actions);
    }
    build.add(
        fields::CLASSIFIER,
        NORMAL,
        from.clone(),
        [FROM_GATEWAY.load(), FROM_EXTERNAL.load(), validation],
    );
    // The host forwards for others and may use any source.
    if build.node.families.has_v4() {
        let next = Action::GotoTable(build.layout.ip_next(fields::IPV6));
        build.add(fields::SPOOF_GUARD, NORMAL, from.clone().ip(), [next]);
    }
    if build.node.families.has_v6() {
        let next = Action::GotoTable(fields::IPV6);
        build.add(fields::SPOOF_GUARD, NORMAL, from.ipv6(), [next]);
    }
}

/// What a Pod has no business to send, whatever its addresses: answers of a DHCP server.
fn never_from_pods(build: &mut Build<'_>) {
    let families = build.node.families;
    if families.has_v4() {
        let (server, client) = DHCP_V4;
        let answer = FROM_POD.of(Match::new().udp().tp_src(server).tp_dst(client));
        build.drop(fields::SPOOF_GUARD, HIGH, answer);
    }
    if families.has_v6() {
        let (server, client) = DHCP_V6;
        let answer = FROM_POD.of(Match::new().udp6().tp_src(server).tp_dst(client));
        build.drop(fields::SPOOF_GUARD, HIGH, answer);
    }
}

/// An encapsulated packet that a Pod sends to an address where tunnels end would be decapsulated
/// there, past every guard: drop it. That the receiver knows its peers does not suffice, because
/// the node may masquerade the Pod.
fn no_tunnel_injection(build: &mut Build<'_>, address: IpAddr) {
    let Some(tunnel) = build.node.tunnel else { return };
    if !build.node.families.has(address) {
        return; // A Pod without that family cannot reach it.
    }
    let outer = match address {
        IpAddr::V4(ip) => tunnel.outer_v4().nw_dst(ip),
        IpAddr::V6(ip) => tunnel.outer_v6().ipv6_dst(ip),
    };
    build.drop(fields::SPOOF_GUARD, HIGH, FROM_POD.of(outer));
}

/// Where a packet with a proved source of that family goes on.
fn after_guard(build: &Build<'_>, ip: IpAddr) -> Action {
    // Only IPv6 has a table of its own behind the guard.
    Action::GotoTable(match ip {
        IpAddr::V4(_) => build.layout.ip_next(fields::IPV6),
        IpAddr::V6(_) => fields::IPV6,
    })
}
