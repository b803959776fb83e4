//! Endpoints: EndpointDNAT.

use std::net::IpAddr;

use openflow::{Action, Ct, Field, Flow, Intent, Match, Nat, Subfield};

use super::group::endpoint_ip;
use super::{Datapath, Endpoint, Place, Protocol, flow, protocol_match};
use crate::fields::{
    self, CT_NODE_PORT, CT_SERVICE, CT_SERVICE_GROUP, CT_SERVICE_SNAT_HAIRPIN, CT_ZONE, CT_ZONE_V6,
    DIRECT_TO_ENDPOINT, ENDPOINT_PORT, ENDPOINT_TO_SELECT, FROM_POD, HAIRPIN_NEEDED, HIGH, NORMAL,
    SERVICE_GROUP, SERVICE_SNAT, SOURCE_PORT_HALF, Stage, TO_NODE_PORT,
};
use crate::node::NodeConfig;

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

pub(super) const fn zone_of(ip: IpAddr) -> u16 {
    if ip.is_ipv4() { CT_ZONE } else { CT_ZONE_V6 }
}
