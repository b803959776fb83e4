//! Endpoints: EndpointDNAT, and what keeps connections to them apart.
//!
//! A client may use one source port for a connection to a Service and for one to an endpoint of it.
//! To the endpoint, and to connection tracking, both are the same. When the Service's comes second
//! the switch gives it another source port by itself. When the direct one comes second it has to be
//! asked to: the kernel does so only then (a translation to "the same address"), while in
//! ovs-vswitchd 3.1 a connection that is translated to itself can end the process when its ports
//! are used again. There a direct connection to an endpoint always gets a source port from the
//! other half of all ports.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use openflow::action::NatRange;
use openflow::{Action, Ct, CtState, Field, Flow, Intent, Match, Nat, Subfield};

use super::group::endpoint_ip;
use super::{Datapath, Endpoint, Place, Protocol, flow, protocol_match};
use crate::features::pod_connectivity::keep;
use crate::fields::{
    self, CT_NODE_PORT, CT_SERVICE, CT_SERVICE_GROUP, CT_SERVICE_SNAT_HAIRPIN, CT_ZONE, CT_ZONE_V6,
    DIRECT_TO_ENDPOINT, ENDPOINT_PORT, ENDPOINT_TO_SELECT, FROM_POD, HAIRPIN_NEEDED, HIGH, NORMAL,
    SERVICE_GROUP, SERVICE_SNAT, SOURCE_PORT_HALF, Stage, TO_NODE_PORT,
};
use crate::node::NodeConfig;

/// Before what keeps other new connections.
const BEFORE_COMMIT: u16 = NORMAL + 5;
/// The two halves of ports, without those that need privileges.
const HALVES: [NatRange<u16>; 2] =
    [NatRange { first: 1024, last: Some(0x7fff) }, NatRange { first: 0x8000, last: Some(0xffff) }];

/// The flows of one endpoint.
#[must_use]
pub fn endpoint_flows(node: &NodeConfig, endpoint: &Endpoint) -> Vec<Intent> {
    let Some(config) = &node.services else { return Vec::new() };
    if !node.families.has(endpoint.ip) {
        return Vec::new();
    }
    let mut flows = vec![translate(node, endpoint), direct(node, config.datapath, endpoint)];
    if endpoint.place == Place::LocalPod {
        flows.push(hairpin(endpoint));
    }
    flows.into_iter().map(Intent::from).collect()
}

/// Keeps the connection, with its destination translated, before policies look at it.
fn translate(node: &NodeConfig, endpoint: &Endpoint) -> Flow {
    let (place, ip) = endpoint_ip(endpoint.ip);
    let matching = protocol_match(endpoint.protocol, endpoint.ip.is_ipv6())
        .reg(place, ip)
        .reg(ENDPOINT_PORT, endpoint.port.into());
    let zone = zone_of(endpoint.ip);
    let ct = Ct::zone(zone)
        .commit()
        .nat(Nat::dst(endpoint.ip).port(endpoint.port))
        .table(node.layout().ip_stage(Stage::EgressSecurity))
        .exec(Action::load(CT_SERVICE, 1))
        .exec(Action::move_field(SERVICE_SNAT, CT_SERVICE_SNAT_HAIRPIN))
        .exec(Action::move_field(TO_NODE_PORT.place, CT_NODE_PORT))
        .exec(Action::move_field(SERVICE_GROUP, CT_SERVICE_GROUP));
    flow(fields::ENDPOINT_DNAT, NORMAL, matching).actions([Action::ct(ct)])
}

/// Marks what goes to the endpoint by itself.
fn direct(node: &NodeConfig, datapath: Datapath, endpoint: &Endpoint) -> Flow {
    const HIGHEST_BIT: u16 = 15;
    let matching = protocol_match(endpoint.protocol, endpoint.ip.is_ipv6())
        .dst_net(endpoint.ip)
        .tp_dst(endpoint.port);
    let mut actions = vec![DIRECT_TO_ENDPOINT.load()];
    if datapath == Datapath::Netdev {
        let source_port = match endpoint.protocol {
            Protocol::Tcp => Field::TcpSrc,
            Protocol::Udp => Field::UdpSrc,
            Protocol::Sctp => Field::SctpSrc,
        };
        let half = Subfield::new(source_port, HIGHEST_BIT, HIGHEST_BIT);
        actions.push(Action::move_field(half, SOURCE_PORT_HALF));
    }
    actions.push(Action::GotoTable(node.layout().ip_next(fields::ENDPOINT_DNAT)));
    let table = fields::ENDPOINT_DNAT;
    flow(table, NORMAL, ENDPOINT_TO_SELECT.of(matching)).actions(actions)
}

/// Marks what a Pod sends to itself. Endpoints that differ in their ports share the flow.
fn hairpin(endpoint: &Endpoint) -> Flow {
    let (place, ip) = endpoint_ip(endpoint.ip);
    let own = FROM_POD.of(Match::new().src_net(endpoint.ip)).reg(place, ip);
    flow(fields::SNAT_MARK, HIGH, own)
        .actions([HAIRPIN_NEEDED.load(), Action::GotoTable(fields::ENDPOINT_DNAT)])
}

/// Keeps direct connections of any source to endpoints, where the kernel sees to it that they stay
/// apart. A switch tells such a flow as `nat(src)`, without the address.
pub(super) fn collisions_in_kernel(node: &NodeConfig, family: &Match) -> Vec<Flow> {
    let ipv6 = *family != Match::new().ip();
    let any = if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    vec![kept_apart(node, family.clone(), any, Nat::src(any))]
}

/// Keeps direct connections of one source to endpoints, where ovs-vswitchd forwards.
pub(crate) fn collisions(node: &NodeConfig, source: IpAddr) -> Vec<Flow> {
    let netdev = node.services.as_ref().is_some_and(|c| c.datapath == Datapath::Netdev);
    if !netdev {
        return Vec::new();
    }
    // What comes from one half goes to the other one.
    let apart = |(half, ports)| {
        let from = Match::new().src_net(source).reg(SOURCE_PORT_HALF, half);
        kept_apart(node, from, source, Nat { ports: Some(ports), ..Nat::src(source) })
    };
    [(1, HALVES[0]), (0, HALVES[1])].map(apart).into()
}

fn kept_apart(node: &NodeConfig, from: Match, ip: IpAddr, nat: Nat) -> Flow {
    let new = from.ct_state(CtState::TRK | CtState::NEW, CtState::empty());
    let keep = keep(zone_of(ip)).nat(nat);
    let next = Action::GotoTable(node.layout().ip_next(fields::CONNTRACK_COMMIT));
    flow(fields::CONNTRACK_COMMIT, BEFORE_COMMIT, DIRECT_TO_ENDPOINT.of(new))
        .actions([Action::ct(keep), next])
}

const fn zone_of(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { CT_ZONE } else { CT_ZONE_V6 }
}
