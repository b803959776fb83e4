//! What is dialled: ServiceLB, and what is learned for session affinity.

use std::collections::BTreeSet;

use openflow::{Action, GroupId, Intent, Match};

use super::affinity::learn;
use super::{Frontend, FrontendAddress, ServiceConfig, Target, dsr, flow, protocol_match, reject};
use crate::fields::{
    self, ENDPOINT_SELECTED, ENDPOINT_TO_SELECT, FROM_LOCAL, HIGH, LOW, NORMAL, REWRITE_MAC,
    SERVICE_GROUP, TO_EXTERNAL, TO_NODE_PORT,
};
use crate::node::NodeConfig;

/// The flows of one address and port.
#[must_use]
pub fn frontend_flows(node: &NodeConfig, frontend: &Frontend) -> Vec<Intent> {
    let Some(config) = &node.services else { return Vec::new() };
    let direct = frontend.dsr.filter(|_| config.dsr && !frontend.address.is_ipv6());
    let dialled = ENDPOINT_TO_SELECT.of(dialled(frontend));
    let table = fields::SERVICE_LB;
    let mut flows = Vec::new();
    let mut served = |priority, matching: &Match, target| {
        let actions = actions(config, frontend, target);
        if frontend.source_ranges.is_empty() {
            flows.push(flow(table, priority, matching.clone()).actions(actions));
            return;
        }
        for range in frontend.source_ranges.iter().filter(|range| is_of(range, frontend)) {
            let from = matching.clone().src_net(range.trunc());
            flows.push(flow(table, priority, from).actions(actions.clone()));
        }
    };
    served(NORMAL, &dialled, frontend.target);
    if let Some(target) = frontend.local_clients {
        served(HIGH, &FROM_LOCAL.of(dialled.clone()), target);
    }
    if let Some(target) = direct {
        // The node that it comes from has looked at its source.
        let actions = actions(config, frontend, target);
        flows.push(flow(table, dsr::FROM_PEER, dsr::from_peer(frontend)).actions(actions));
        flows.push(dsr::mark(frontend));
    }
    if !frontend.source_ranges.is_empty() {
        flows.push(flow(table, LOW, dialled));
    }
    flows.extend(learn(frontend));
    let mut seen = BTreeSet::new();
    flows.retain(|flow| seen.insert(flow.key()));
    flows.into_iter().map(Intent::from).collect()
}

fn is_of(range: &ipnet::IpNet, frontend: &Frontend) -> bool {
    range.addr().is_ipv6() == frontend.address.is_ipv6()
}

/// Takes packets that dial the frontend.
pub(super) fn dialled(frontend: &Frontend) -> Match {
    let matching = protocol_match(frontend.protocol, frontend.address.is_ipv6());
    let matching = matching.tp_dst(frontend.port);
    match frontend.address {
        FrontendAddress::Ip(ip) => matching.dst_net(ip),
        FrontendAddress::NodePort { .. } => TO_NODE_PORT.of(matching),
    }
}

fn actions(config: &ServiceConfig, frontend: &Frontend, target: Target) -> Vec<Action> {
    match target {
        Target::Group(group) => choose(frontend, group),
        Target::Reject => vec![reject(config)],
        Target::Drop => Vec::new(),
    }
}

fn choose(frontend: &Frontend, group: GroupId) -> Vec<Action> {
    let mut actions = vec![ENDPOINT_SELECTED.load(), REWRITE_MAC.load()];
    if frontend.external {
        actions.push(TO_EXTERNAL.load());
    }
    actions.push(Action::load(SERVICE_GROUP, group.0.into()));
    actions.push(Action::Group(group));
    actions
}
