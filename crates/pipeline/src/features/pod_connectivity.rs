//! Connects Pods with each other, with the host and, through it, with the rest of the world.
//!
//! A packet's way is decided by its addresses alone: every way out of routing sets the Ethernet
//! destination, so a wrong or forged neighbour entry in a Pod or in the host leads nowhere else.
//! ARP and neighbour discovery are sent to the one port that owns the address asked for. Nothing
//! is ever flooded, so nothing leaks into the tunnel, and no state of the switch's own MAC learning
//! has to survive anything.
//!
//! The same flows serve both datapaths. Not here: who may talk to whom (policies), Services.

mod arp;
mod forwarding;
mod neighbour;
mod routing;
mod source;

use std::collections::BTreeSet;

use openflow::{Action, Flow, Intent, Match, TableId};

pub(crate) use forwarding::keep;
pub(crate) use routing::BEFORE_PODS;

use crate::fields::{self, Category, cookie};
use crate::layout::Layout;
use crate::node::{NodeConfig, PeerNode, PodInterface};

/// The tables this feature uses on the node.
pub(crate) fn needed_tables(node: &NodeConfig) -> BTreeSet<TableId> {
    let mut tables = BTreeSet::from([
        fields::PIPELINE_ROOT_CLASSIFIER,
        fields::CLASSIFIER,
        fields::SPOOF_GUARD,
        fields::CONNTRACK_ZONE,
        fields::CONNTRACK_STATE,
        fields::L3_FORWARDING,
        fields::L3_DEC_TTL,
        fields::L2_FORWARDING_CALC,
        fields::INGRESS_SECURITY_CLASSIFIER,
        fields::CONNTRACK_COMMIT,
        fields::OUTPUT,
    ]);
    if node.families.has_v4() {
        tables.extend([fields::ARP_SPOOF_GUARD, fields::ARP_RESPONDER]);
    }
    if node.families.has_v6() {
        tables.insert(fields::IPV6);
    }
    tables
}

/// The flows that a node needs whatever Pods and peers it has.
#[must_use]
pub fn node_flows(node: &NodeConfig) -> Vec<Intent> {
    let mut build = Build::new(node);
    source::node(&mut build);
    arp::node(&mut build);
    neighbour::node(&mut build);
    routing::node(&mut build);
    forwarding::node(&mut build);
    build.finish()
}

/// The flows of one Pod of this node.
#[must_use]
pub fn pod_flows(node: &NodeConfig, pod: &PodInterface) -> Vec<Intent> {
    let mut build = Build::new(node);
    source::pod(&mut build, pod);
    arp::pod(&mut build, pod);
    neighbour::pod(&mut build, pod);
    routing::pod(&mut build, pod);
    forwarding::pod(&mut build, pod);
    build.finish()
}

/// The flows of one other node.
#[must_use]
pub fn peer_flows(node: &NodeConfig, peer: &PeerNode) -> Vec<Intent> {
    let mut build = Build::new(node);
    source::peer(&mut build, peer);
    arp::peer(&mut build, peer);
    routing::peer(&mut build, peer);
    build.finish()
}

/// Collects the flows of one call.
struct Build<'a> {
    node: &'a NodeConfig,
    layout: Layout,
    flows: Vec<Flow>,
}

impl<'a> Build<'a> {
    fn new(node: &'a NodeConfig) -> Self {
        Self { node, layout: node.layout(), flows: Vec::new() }
    }

    /// Adds a flow; no actions drop.
    fn add(
        &mut self,
        table: TableId,
        priority: u16,
        matching: Match,
        actions: impl IntoIterator<Item = Action>,
    ) {
        let cookie = cookie(Category::PodConnectivity, 0);
        self.flows.push(Flow::new(table, priority, matching).cookie(cookie).actions(actions));
    }

    /// Adds a flow that drops.
    fn drop(&mut self, table: TableId, priority: u16, matching: Match) {
        self.add(table, priority, matching, []);
    }

    /// The IP families in use, as the match that takes a family's packets.
    fn families(&self) -> impl Iterator<Item = Match> + use<> {
        let families = self.node.families;
        let v4 = families.has_v4().then(|| Match::new().ip());
        v4.into_iter().chain(families.has_v6().then(|| Match::new().ipv6()))
    }

    /// The flows in table order, each key once: addresses that are there twice (a node address
    /// that is the gateway's too) give the same flow twice.
    fn finish(self) -> Vec<Intent> {
        let mut seen = BTreeSet::new();
        let mut flows = self.flows;
        flows.retain(|flow| seen.insert(flow.key()));
        flows.sort_by_key(|flow| (flow.table, std::cmp::Reverse(flow.priority)));
        flows.into_iter().map(Intent::from).collect()
    }
}
