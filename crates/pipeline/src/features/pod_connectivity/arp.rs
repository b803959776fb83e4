//! ARP: who may say what, and who hears it.
//!
//! A request or answer goes to the one port that owns the address it is for. Whatever is for no
//! Pod goes to the host, which answers for its own addresses; requests for other nodes' gateways
//! are answered here.

use std::net::IpAddr;

use openflow::{Action, Field, MacAddr, Match, OfPort, Subfield};

use super::Build;
use crate::fields::{self, LOW, NORMAL, SWAP, VIRTUAL_MAC};
use crate::node::{PeerNode, PodInterface};

const REQUEST: u16 = 1;
const REPLY: u128 = 2;

pub(super) fn node(build: &mut Build<'_>) {
    if !build.node.families.has_v4() {
        return;
    }
    let gateway = &build.node.gateway;
    // The host may ask in the name of any of its addresses.
    let said = Match::new().arp().in_port(gateway.ofport).arp_sha(gateway.mac);
    build.add(fields::ARP_SPOOF_GUARD, NORMAL, said, [Action::GotoTable(fields::ARP_RESPONDER)]);
    let port = gateway.ofport;
    build.add(fields::ARP_RESPONDER, LOW, Match::new().arp(), [Action::Output(port)]);
}

pub(super) fn pod(build: &mut Build<'_>, pod: &PodInterface) {
    if !build.node.families.has_v4() {
        return;
    }
    for ip in &pod.ips {
        let IpAddr::V4(ip) = *ip else { continue };
        let said = Match::new().arp().in_port(pod.ofport).eth_src(pod.mac);
        build.add(
            fields::ARP_SPOOF_GUARD,
            NORMAL,
            said.arp_sha(pod.mac).arp_spa(ip),
            [Action::GotoTable(fields::ARP_RESPONDER)],
        );
        build.add(
            fields::ARP_RESPONDER,
            NORMAL,
            Match::new().arp().arp_tpa(ip),
            [Action::Output(pod.ofport)],
        );
    }
}

pub(super) fn peer(build: &mut Build<'_>, peer: &PeerNode) {
    if !build.node.families.has_v4() || build.node.tunnel.is_none() {
        return;
    }
    for ip in &peer.gateway_ips {
        let IpAddr::V4(ip) = *ip else { continue };
        build.add(
            fields::ARP_RESPONDER,
            NORMAL,
            Match::new().arp().arp_op(REQUEST).arp_tpa(ip),
            answer(VIRTUAL_MAC),
        );
    }
}

/// Turns a request into its answer "it is at `mac`" and sends it back.
fn answer(mac: MacAddr) -> Vec<Action> {
    let whole = Subfield::whole;
    let mac = u128::from(mac.to_bits());
    vec![
        Action::move_field(whole(Field::EthSrc), whole(Field::EthDst)),
        Action::set_field(Field::EthSrc, mac),
        Action::set_field(Field::ArpOp, REPLY),
        Action::move_field(whole(Field::ArpSha), whole(Field::ArpTha)),
        Action::set_field(Field::ArpSha, mac),
        Action::move_field(whole(Field::ArpTpa), SWAP),
        Action::move_field(whole(Field::ArpSpa), whole(Field::ArpTpa)),
        Action::move_field(SWAP, whole(Field::ArpSpa)),
        Action::Output(OfPort::IN_PORT),
    ]
}
