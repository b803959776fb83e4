//! Connections that would be the same to an endpoint are given source ports that differ.
//!
//! A client may use one source port for a connection to a Service and for one to an endpoint of it.
//! To the endpoint, and to connection tracking, both are the same. When the Service's comes second
//! the switch gives it another source port by itself. When the direct one comes second it has to be
//! asked to: the kernel does so only then (a translation to "the same address"), while in
//! ovs-vswitchd 3.1 a connection that is translated to itself can end the process when its ports
//! are used again. There a direct connection to an endpoint always gets a source port from the
//! other half of all ports.
//!
//! From the gateway's address come also connections whose source was translated, in a zone of their
//! own. So what the host itself sends to an endpoint, through a Service or not, gets its source port
//! in that zone too, and there it is the only one. That happens behind all policies, as for
//! any other connection.

use std::net::IpAddr;

use openflow::action::NatRange;
use openflow::{Action, Ct, CtState, Flow, Match, Nat};

use super::endpoint::zone_of;
use super::{Datapath, Protocol, flow, protocol_match};
use crate::features::pod_connectivity::keep;
use crate::fields::{
    self, CT_SERVICE, CT_SERVICE_SNAT, CT_SOURCE, CT_ZONE_SNAT, CT_ZONE_SNAT_V6,
    DIRECT_TO_ENDPOINT, FROM_GATEWAY, NORMAL, SOURCE_PORT_HALF,
};
use crate::node::NodeConfig;

/// Before what keeps other new connections.
const BEFORE_COMMIT: u16 = NORMAL + 5;
/// The bit of a port that tells its half.
const HALF: u16 = 0x8000;
/// The two halves of ports, without those that need privileges.
const HALVES: [NatRange<u16>; 2] =
    [NatRange { first: 1024, last: Some(HALF - 1) }, NatRange { first: HALF, last: Some(0xffff) }];
/// Ports that need privileges have none of these bits.
const UNPRIVILEGED: u16 = 0xfc00;

/// Ways to the other half: a half, and a translation that leaves it.
fn ways_over(source: IpAddr) -> [(u16, Nat); 2] {
    let nat = |ports| Nat { ports: Some(ports), ..Nat::src(source) };
    [(1, nat(HALVES[0])), (0, nat(HALVES[1]))]
}

/// Keeps direct connections of any source to endpoints, where the kernel sees to it that they stay
/// apart.
pub(super) fn in_kernel(node: &NodeConfig, family: &Match, zone: u16) -> Flow {
    let keep = keep(zone).nat(Nat::src_unlike_others());
    kept(node, BEFORE_COMMIT, direct(family.clone()), [keep])
}

/// Keeps direct connections of a Pod to endpoints, where ovs-vswitchd forwards.
pub(crate) fn of_pod(node: &NodeConfig, source: IpAddr) -> Vec<Flow> {
    let netdev = node.services.as_ref().is_some_and(|c| c.datapath == Datapath::Netdev);
    if !netdev {
        return Vec::new();
    }
    let apart = |(half, nat): (u16, Nat)| {
        let from = Match::new().src_net(source).reg(SOURCE_PORT_HALF, half.into());
        kept(node, BEFORE_COMMIT, direct(from), [keep(zone_of(source)).nat(nat)])
    };
    ways_over(source).map(apart).into()
}

/// Keeps what comes from the gateway's own address, in both zones.
pub(super) fn of_gateway(node: &NodeConfig, datapath: Datapath, source: IpAddr) -> Vec<Flow> {
    let zone = zone_of(source);
    let own = FROM_GATEWAY.of(Match::new().src_net(source));
    // Later packets are sent on by it.
    let marked = keep(zone).exec(Action::load(CT_SERVICE_SNAT, 1));
    let again = |nat| keep(snat_zone(source)).nat(nat).exec(Action::load(CT_SERVICE_SNAT, 1));
    let before = BEFORE_COMMIT + 1;
    let mut flows = Vec::new();
    match datapath {
        Datapath::System => {
            let both = [marked.clone().nat(Nat::src_unlike_others()), again(Nat::src(source))];
            flows.push(kept(node, before, direct(own.clone()), both));
            flows.push(kept(node, before, served(own), [marked, again(Nat::src(source))]));
        }
        Datapath::Netdev => {
            let [high, low] = ways_over(source);
            // Over, and back again to whichever port is free there.
            for ((half, over), (_, back)) in [(high, low), (low, high)] {
                let from = own.clone().reg(SOURCE_PORT_HALF, half.into());
                let both = [marked.clone().nat(over), again(back)];
                flows.push(kept(node, before, direct(from), both));
            }
            for (from, nat) in by_half(source) {
                let from = served(FROM_GATEWAY.of(from));
                flows.push(kept(node, before, from, [marked.clone(), again(nat)]));
            }
            for protocol in Protocol::ALL {
                // Who needs such a port needs it at the other end too.
                let from = protocol_match(protocol, source.is_ipv6()).src_net(source);
                let privileged = FROM_GATEWAY.of(from).tp_src_masked(0, UNPRIVILEGED);
                flows.push(kept(node, before + 1, served(privileged), [keep(zone)]));
            }
        }
    }
    flows
}

/// Where ovs-vswitchd forwards: what comes from an address by its protocol and the half of its port,
/// and the translation to a free port of the other one.
pub(super) fn by_half(source: IpAddr) -> impl Iterator<Item = (Match, Nat)> {
    Protocol::ALL.into_iter().flat_map(move |protocol| {
        ways_over(source).map(|(half, nat)| {
            let from = protocol_match(protocol, source.is_ipv6()).src_net(source);
            (from.tp_src_masked(half * HALF, HALF), nat)
        })
    })
}

fn direct(from: Match) -> Match {
    DIRECT_TO_ENDPOINT.of(from.ct_state(CtState::TRK | CtState::NEW, CtState::empty()))
}

/// What a Service's endpoint gets for the first time.
fn served(from: Match) -> Match {
    let first = from.ct_state(CtState::TRK, CtState::RPL | CtState::INV);
    first.reg(CT_SERVICE, 1).reg(CT_SERVICE_SNAT, 0).reg(CT_SOURCE, 0)
}

fn kept<const N: usize>(node: &NodeConfig, priority: u16, what: Match, keep: [Ct; N]) -> Flow {
    let next = Action::GotoTable(node.layout().ip_next(fields::CONNTRACK_COMMIT));
    let actions = keep.into_iter().map(Action::ct).chain([next]);
    flow(fields::CONNTRACK_COMMIT, priority, what).actions(actions)
}

const fn snat_zone(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { CT_ZONE_SNAT } else { CT_ZONE_SNAT_V6 }
}
