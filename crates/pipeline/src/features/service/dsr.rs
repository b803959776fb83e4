//! Direct server return: the node that a client's packets come to sends them on as they are, and the
//! endpoint's node answers the client itself, so that the endpoint sees the client's address.
//!
//! The first node sees one direction only, so connection tracking is of no use there: which endpoint
//! a connection has is a flow that the switch learns. IPv4, and between nodes with a tunnel.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::action::LearnFlags;
use openflow::{
    Action, CtState, Field, Flow, Learn, LearnSource, LearnSpec, Match, Subfield, TableId,
};

use super::affinity::{learned_cookie, same, tuple};
use super::frontend::dialled;
use super::{Frontend, flow};
use crate::features::pod_connectivity::BEFORE_PODS;
use crate::fields::{
    self, DSR, ENDPOINT_IP, ENDPOINT_PORT, ENDPOINT_REMEMBERED, ENDPOINT_TO_SELECT, FROM_EXTERNAL,
    FROM_GATEWAY, FROM_TUNNEL, HIGH, LOW, NO_DSR, NORMAL, REMOTE_ENDPOINT, REWRITE_MAC,
    SERVICE_GROUP, Stage, TO_EXTERNAL,
};
use crate::node::NodeConfig;

/// Seconds for which a connection without packets is remembered.
const IDLE: u16 = 160;
/// The same after it ended.
const ENDED: u16 = 5;
/// Whom another node sends here is served here.
pub(super) const FROM_PEER: u16 = HIGH + 1;

/// What the node needs for it.
pub(super) fn node(node: &NodeConfig, flows: &mut Vec<Flow>) {
    let layout = node.layout();
    let from_client = FROM_EXTERNAL.of(FROM_GATEWAY.of(Match::new()));
    // A connection of which only one direction is seen looks broken.
    let broken = CtState::TRK | CtState::INV;
    let one_way = from_client.ct_state(broken, CtState::empty());
    let pre_routing = layout.ip_stage(Stage::PreRouting);
    flows.push(flow(fields::CONNTRACK_STATE, HIGH, one_way).goto_table(pre_routing));
    let other = NO_DSR.of(Match::new()).ct_state(broken, CtState::empty());
    flows.push(flow(fields::DSR_SERVICE_MARK, LOW, other));
    let marked = DSR.of(Match::new());
    let check = flow(fields::SESSION_AFFINITY_CHECK, HIGH, marked.clone());
    flows.push(check.actions([REWRITE_MAC.load(), Action::GotoTable(fields::DSR_SERVICE_MARK)]));
    let skip =
        |table: TableId| flow(table, HIGH + 1, marked.clone()).goto_table(layout.ip_next(table));
    flows.extend([skip(fields::ENDPOINT_DNAT), skip(fields::CONNTRACK_COMMIT)]);
}

/// Marks a new connection whose endpoint is another node's, and remembers it.
pub(super) fn mark(frontend: &Frontend) -> Flow {
    let mut learn = Learn {
        idle_timeout: IDLE,
        fin_idle_timeout: ENDED,
        cookie: learned_cookie(frontend, &[1]),
        flags: LearnFlags::DELETE_LEARNED,
        ..Learn::new(fields::SESSION_AFFINITY, HIGH)
    };
    let source_port = match frontend.protocol {
        super::Protocol::Tcp => Field::TcpSrc,
        super::Protocol::Udp => Field::UdpSrc,
        super::Protocol::Sctp => Field::SctpSrc,
    };
    learn.specs = tuple(frontend);
    learn.specs.push(same(source_port));
    let again =
        [ENDPOINT_IP, ENDPOINT_PORT, TO_EXTERNAL.place, REMOTE_ENDPOINT.place, SERVICE_GROUP];
    learn
        .specs
        .extend(again.map(|place| LearnSpec::Load { dst: place, src: LearnSource::Field(place) }));
    learn.specs.extend([ENDPOINT_REMEMBERED, DSR].map(|mark| LearnSpec::Load {
        dst: mark.place,
        src: LearnSource::Value(mark.value.into()),
    }));
    let client = FROM_EXTERNAL.of(FROM_GATEWAY.of(dialled(frontend)));
    let new = NO_DSR.of(REMOTE_ENDPOINT.of(client)).ct_state(CtState::TRK, CtState::INV);
    flow(fields::DSR_SERVICE_MARK, NORMAL, new).actions([
        Action::learn(learn),
        DSR.load(),
        Action::GotoTable(fields::SESSION_AFFINITY_LEARN),
    ])
}

/// Takes what another node sends here to be served.
pub(super) fn from_peer(frontend: &Frontend) -> Match {
    FROM_TUNNEL.of(ENDPOINT_TO_SELECT.of(dialled(frontend)))
}

/// The way to the node of a marked packet's endpoint, which its destination does not tell.
pub(crate) fn to_peer(node: &NodeConfig, cidr: IpNet, actions: Vec<Action>) -> Option<Flow> {
    if !node.services.as_ref().is_some_and(|services| services.dsr) {
        return None;
    }
    let (IpAddr::V4(ip), len) = (cidr.network(), u16::from(cidr.prefix_len())) else { return None };
    let matching = DSR.of(Match::new());
    let matching = match len {
        0 => matching,
        len => {
            let prefix = Subfield::reg(3, 32 - len, 31);
            matching.reg(prefix, prefix.extract(u32::from(ip).into()))
        }
    };
    Some(flow(fields::L3_FORWARDING, BEFORE_PODS + 1, matching).actions(actions))
}
