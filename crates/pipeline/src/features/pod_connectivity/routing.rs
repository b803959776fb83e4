//! Which way a packet goes: L3Forwarding and L3DecTTL.
//!
//! Within a node's own link (Pod to Pod, Pod to gateway, host to Pod) the TTL stays; between nodes
//! each of the two switches is one hop. Towards the outside the host routes and counts.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::{Action, CtState, Field, MacAddr, Match, TableId};

use super::Build;
use crate::features::service;
use crate::fields::{
    self, BROADCAST_V4, CT_SOURCE, FROM_GATEWAY, FROM_TUNNEL, HIGH, KEEP_MAC, LINK_LOCAL_V6, LOW,
    MULTICAST_V4, MULTICAST_V6, NORMAL, PKT_MARK_HOST, REWRITE_MAC, Stage, TO_GATEWAY, TO_TUNNEL,
    VIRTUAL_MAC,
};
use crate::node::{PeerNode, PodInterface};

/// Before the ways to Pods: replies that the host has to translate back.
pub(crate) const BEFORE_PODS: u16 = HIGH + 2;
/// After the ways to Pods, before those to other nodes.
const AFTER_PODS: u16 = NORMAL + 5;

pub(super) fn node(build: &mut Build<'_>) {
    to_gateway(build);
    nowhere(build);
    dec_ttl(build);
}

pub(super) fn pod(build: &mut Build<'_>, pod: &PodInterface) {
    let switching = build.layout.ip_stage(Stage::Switching);
    let gateway_mac = build.node.gateway.mac;
    for ip in pod.ips.iter().filter(|ip| build.node.families.has(**ip)).copied() {
        let to = Match::new().dst_net(ip);
        build.add(
            fields::L3_FORWARDING,
            HIGH,
            KEEP_MAC.of(to.clone()),
            [set_dst(pod.mac), Action::GotoTable(switching)],
        );
        build.add(
            fields::L3_FORWARDING,
            HIGH,
            REWRITE_MAC.of(to),
            [set_src(gateway_mac), set_dst(pod.mac), Action::GotoTable(fields::L3_DEC_TTL)],
        );
    }
}

pub(super) fn peer(build: &mut Build<'_>, peer: &PeerNode) {
    if build.node.tunnel.is_none() {
        return;
    }
    let gateway_mac = build.node.gateway.mac;
    let outer = match peer.node_ip {
        IpAddr::V4(ip) => Action::set_field(Field::TunDst, u32::from(ip).into()),
        IpAddr::V6(ip) => Action::set_field(Field::TunIpv6Dst, u128::from(ip)),
    };
    for cidr in &peer.pod_cidrs {
        if !build.node.families.has(cidr.addr()) {
            continue;
        }
        let actions = vec![
            set_src(gateway_mac),
            set_dst(VIRTUAL_MAC),
            outer.clone(),
            // The way to the peer is looked up by mark too (`ovs-router`).
            Action::load(PKT_MARK_HOST, 0),
            TO_TUNNEL.load(),
            Action::GotoTable(fields::L3_DEC_TTL),
        ];
        build.flows.extend(service::to_peer(build.node, *cidr, actions.clone()));
        build.add(fields::L3_FORWARDING, NORMAL, Match::new().dst_net(*cidr), actions);
    }
}

/// What goes to the host: its own address, replies it has to see, and all that is for nobody here.
fn to_gateway(build: &mut Build<'_>) {
    let switching = build.layout.ip_stage(Stage::Switching);
    let mac = build.node.gateway.mac;
    let via = |next: TableId| [set_dst(mac), TO_GATEWAY.load(), Action::GotoTable(next)];
    // The host opened the connection, or forwarded its first packet after translating it (kube-proxy,
    // hostPort): only the host can translate the reply back, whoever it is for.
    let reply = Match::new()
        .ct_state(CtState::TRK | CtState::RPL, CtState::empty())
        .reg(CT_SOURCE, FROM_GATEWAY.value.into());
    build.add(fields::L3_FORWARDING, BEFORE_PODS, reply, via(switching));
    for ip in build.node.gateway.ips.clone() {
        if build.node.families.has(ip) {
            let to = Match::new().dst_net(ip);
            build.add(fields::L3_FORWARDING, HIGH, KEEP_MAC.of(to.clone()), via(switching));
            let next = fields::L3_DEC_TTL;
            build.add(fields::L3_FORWARDING, HIGH, REWRITE_MAC.of(to), via(next));
        }
    }
    build.add(fields::L3_FORWARDING, fields::MISS, Match::new(), via(switching));
}

/// What goes nowhere.
fn nowhere(build: &mut Build<'_>) {
    // Another node sends here what is for a Pod or for the host, and nothing passes through.
    build.drop(fields::L3_FORWARDING, AFTER_PODS, FROM_TUNNEL.of(Match::new()));
    // An address of this node's that no Pod has.
    let own: Vec<IpNet> = build.node.pod_cidrs.clone();
    for cidr in own.into_iter().filter(|cidr| build.node.families.has(cidr.addr())) {
        build.drop(fields::L3_FORWARDING, NORMAL, Match::new().dst_net(cidr));
    }
    if build.node.families.has_v4() {
        for net in [MULTICAST_V4, BROADCAST_V4] {
            build.drop(fields::L3_FORWARDING, NORMAL, Match::new().ip().nw_dst(net));
        }
    }
    if build.node.families.has_v6() {
        for net in [MULTICAST_V6, LINK_LOCAL_V6] {
            build.drop(fields::L3_FORWARDING, NORMAL, Match::new().ipv6().ipv6_dst(net));
        }
    }
    // The host sent it here by a route; back to the host it would only come again.
    build.drop(fields::L3_FORWARDING, LOW, FROM_GATEWAY.of(Match::new()));
}

/// Counts the hop. The host has counted its own packets already. A packet whose TTL runs out is
/// dropped by a flow of its own, so that it takes no upcall; this is the flow that a later
/// "time exceeded" answer hangs on ([`fields::packet_in::TTL_EXPIRED`]).
fn dec_ttl(build: &mut Build<'_>) {
    let next = Action::GotoTable(build.layout.ip_next(fields::L3_DEC_TTL));
    let table = fields::L3_DEC_TTL;
    build.add(table, HIGH, FROM_GATEWAY.of(Match::new()), [next.clone()]);
    for family in build.families() {
        for ttl in [0, 1] {
            build.drop(table, AFTER_PODS, family.clone().with(Field::IpTtl, ttl));
        }
        build.add(table, NORMAL, family, [Action::DecTtl, next.clone()]);
    }
}

fn set_src(mac: MacAddr) -> Action {
    Action::set_field(Field::EthSrc, mac.to_bits().into())
}

fn set_dst(mac: MacAddr) -> Action {
    Action::set_field(Field::EthDst, mac.to_bits().into())
}
