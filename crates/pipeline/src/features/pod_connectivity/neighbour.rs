//! Neighbour discovery: who may say what, and who hears it.
//!
//! As with ARP, a solicitation goes to the port that owns the target and an advertisement to the
//! port that owns the Ethernet destination. Nothing else that is multicast leaves a port, and a
//! Pod is no router. The switch answers nothing itself: the kernel's datapath cannot.

use std::net::{IpAddr, Ipv6Addr};

use openflow::{Action, MacAddr, Match};

use super::Build;
use crate::fields::{self, FROM_POD, HIGH, LINK_LOCAL_V6, LOW, MULTICAST_V6, NORMAL, link_local};
use crate::node::PodInterface;

const ROUTER_ADVERTISEMENT: u8 = 134;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Above the flows that drop what Pods must not send.
const PROVED: u16 = HIGH + 2;

pub(super) fn node(build: &mut Build<'_>) {
    if !build.node.families.has_v6() {
        return;
    }
    for kind in [ROUTER_ADVERTISEMENT, SOLICITATION, ADVERTISEMENT, REDIRECT] {
        let any_code = Match::new().icmp6().icmp_type(kind);
        build.drop(fields::SPOOF_GUARD, HIGH, FROM_POD.of(any_code));
    }
    let gateway = &build.node.gateway;
    let (port, mac) = (gateway.ofport, gateway.mac);
    build.add(fields::IPV6, HIGH, icmp6(ADVERTISEMENT).eth_dst(mac), [Action::Output(port)]);
    // A target that is no Pod's may be the host's.
    build.add(fields::IPV6, NORMAL, icmp6(SOLICITATION), [Action::Output(port)]);
    build.drop(fields::IPV6, NORMAL, icmp6(ADVERTISEMENT));
    build.drop(fields::IPV6, LOW, Match::new().ipv6().ipv6_dst(MULTICAST_V6));
    build.drop(fields::IPV6, LOW, Match::new().ipv6().ipv6_dst(LINK_LOCAL_V6));
}

pub(super) fn pod(build: &mut Build<'_>, pod: &PodInterface) {
    let ips = pod.ips.iter().filter_map(|ip| match ip {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => Some(*ip),
    });
    let mut own: Vec<Ipv6Addr> = ips.collect();
    if own.is_empty() || !build.node.families.has_v6() {
        return;
    }
    own.push(link_local(pod.mac));
    for ip in own {
        guard(build, pod, ip);
        build.add(
            fields::IPV6,
            HIGH,
            icmp6(SOLICITATION).nd_target(ip),
            [Action::Output(pod.ofport)],
        );
    }
    build.add(
        fields::IPV6,
        HIGH,
        icmp6(ADVERTISEMENT).eth_dst(pod.mac),
        [Action::Output(pod.ofport)],
    );
}

/// What a Pod may say of its address `ip`: ask in its name, probe whether it is free, and answer
/// for it. Linux leaves the link layer option out of answers to unicast probes.
fn guard(build: &mut Build<'_>, pod: &PodInterface, ip: Ipv6Addr) {
    let said = |kind| icmp6(kind).in_port(pod.ofport).eth_src(pod.mac);
    let ask = said(SOLICITATION).ipv6_src(ip).nd_sll(pod.mac);
    let probe = said(SOLICITATION).ipv6_src(Ipv6Addr::UNSPECIFIED).nd_target(ip);
    let reply = said(ADVERTISEMENT).ipv6_src(ip).nd_target(ip);
    let bare = reply.clone().nd_tll(MacAddr::ZERO);
    for matching in [ask, probe, reply.nd_tll(pod.mac), bare] {
        build.add(fields::SPOOF_GUARD, PROVED, matching, [Action::GotoTable(fields::IPV6)]);
    }
}

fn icmp6(kind: u8) -> Match {
    Match::new().icmp6().icmp_type(kind).icmp_code(0)
}
