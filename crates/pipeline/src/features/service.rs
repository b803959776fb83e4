//! Sends what is for a Service to one of its endpoints.
//!
//! A packet that opens a connection meets, in this order: what clients with session affinity were
//! given before (SessionAffinity, SessionAffinityCheck), the address and port it dials
//! ([`Frontend`], in ServiceLB), a select group that chooses an endpoint ([`Group`]), and the
//! endpoint's own flow that translates the destination ([`Endpoint`], in EndpointDNAT). From there
//! on policies and routing see the endpoint. Later packets are translated by connection tracking
//! and meet none of this.
//!
//! Where the answer would not come back here by itself, or the endpoint would take the client for
//! itself, the source is translated too, in a zone of its own, behind all policies (SNAT).
//!
//! Pure: the caller says which frontends, groups and endpoints there are, and gives groups their
//! numbers. Not here: which endpoints a Service has (`services`), how traffic of the host and from
//! outside gets to the bridge (`host`).

mod affinity;
mod collision;
mod dsr;
mod endpoint;
mod frontend;
mod group;
mod node;
mod types;

use std::collections::BTreeSet;

use openflow::message::PacketIn;
use openflow::{Action, Controller, Flow, Match, TableId};

pub(crate) use collision::of_pod as keep_apart;
pub(crate) use dsr::to_peer;
pub use endpoint::endpoint_flows;
pub use frontend::frontend_flows;
pub use group::group;
pub use node::node_flows;
pub use types::{
    Datapath, Endpoint, Frontend, FrontendAddress, Group, MAX_GROUP_ID, Place, Protocol,
    ServiceConfig, Target,
};

use crate::fields::{self, Category, METER_SERVICE, cookie, packet_in};
use crate::node::NodeConfig;

/// The tables this feature uses on the node.
pub(crate) fn needed_tables(node: &NodeConfig) -> BTreeSet<TableId> {
    let Some(config) = &node.services else { return BTreeSet::new() };
    let mut tables = BTreeSet::from([
        fields::UN_SNAT,
        fields::PRE_ROUTING_CLASSIFIER,
        fields::SESSION_AFFINITY,
        fields::SESSION_AFFINITY_CHECK,
        fields::SERVICE_LB,
        fields::SERVICE_LB_PART,
        fields::DSR_SERVICE_MARK,
        fields::SESSION_AFFINITY_LEARN,
        fields::SNAT_MARK,
        fields::ENDPOINT_DNAT,
        // Without proxyAll it has no rules; but what goes on behind EndpointDNAT goes on here, now or
        // since before a restart with another configuration.
        fields::NODE_PORT_RULE,
        fields::SNAT,
    ]);
    if config.proxy_all {
        tables.insert(fields::NODE_PORT_MARK);
    }
    tables
}

/// Whether the packet dialled a Service without endpoints.
#[must_use]
pub fn has_no_endpoint(packet: &PacketIn) -> bool {
    packet.userdata.first() == Some(&packet_in::NO_ENDPOINT)
}

fn flow(table: TableId, priority: u16, matching: Match) -> Flow {
    Flow::new(table, priority, matching).cookie(cookie(Category::Service, 0))
}

/// Sends the packet to the agent, which tells the client that nobody serves there.
fn reject(config: &ServiceConfig) -> Action {
    /// Enough for the headers, and for what an answer quotes.
    const HEADERS: u16 = 256;
    Action::controller(Controller {
        max_len: HEADERS,
        controller_id: config.controller_id,
        userdata: vec![packet_in::NO_ENDPOINT],
        meter: config.packet_in_rate.map(|_| METER_SERVICE),
        ..Controller::default()
    })
}

/// Takes packets of a protocol and family.
fn protocol_match(protocol: Protocol, ipv6: bool) -> Match {
    let matching = Match::new();
    match (protocol, ipv6) {
        (Protocol::Tcp, false) => matching.tcp(),
        (Protocol::Tcp, true) => matching.tcp6(),
        (Protocol::Udp, false) => matching.udp(),
        (Protocol::Udp, true) => matching.udp6(),
        (Protocol::Sctp, false) => matching.sctp(),
        (Protocol::Sctp, true) => matching.sctp6(),
    }
}
