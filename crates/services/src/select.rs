//! Which servers of a port get traffic, decided as kube-proxy decides it.
//!
//! Ready ones first; where there are none, those that are about to end and still answer (KEP-1669).
//! For traffic to the whole cluster, hints of zones and nodes are followed where every ready server
//! has them and one of them is meant for us. Traffic that stays on the node knows no hints.

use std::net::IpAddr;
use std::sync::Arc;

use apis::service::SliceEndpoint;

/// A server of one port of a Service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) port: u16,
    /// On this node.
    pub(crate) local: bool,
    pub(crate) endpoint: &'a SliceEndpoint,
}

impl Candidate<'_> {
    pub(crate) fn address(&self) -> (IpAddr, u16) {
        (self.endpoint.ip, self.port)
    }

    /// About to end, and still answering.
    fn lasts(&self) -> bool {
        self.endpoint.serving && self.endpoint.terminating
    }
}

/// What a port needs servers for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uses {
    /// Traffic that may go anywhere.
    pub(crate) cluster: bool,
    /// Traffic that stays on the node.
    pub(crate) local: bool,
}

/// Where this node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) node: Arc<str>,
    pub(crate) zone: Option<Arc<str>>,
    /// Whether hints of nodes are followed.
    pub(crate) node_hints: bool,
}

/// The servers that get traffic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selected {
    /// Traffic that may go anywhere.
    pub(crate) cluster: Vec<(IpAddr, u16)>,
    /// Traffic that stays on the node.
    pub(crate) local: Vec<(IpAddr, u16)>,
    /// Whether any server, wherever it is, could get traffic.
    pub(crate) any: bool,
}

/// Which ready servers hints leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hints {
    Ignored,
    Zone,
    Node,
}

pub(crate) fn select(candidates: &[Candidate<'_>], uses: Uses, topology: &Topology) -> Selected {
    let mut selected = Selected {
        any: candidates.iter().any(|one| one.endpoint.ready || one.lasts()),
        ..Selected::default()
    };
    if uses.cluster {
        let hints = hints(candidates, topology);
        selected.cluster = ready_else_lasting(candidates, |one| follows(one, hints, topology));
    }
    if uses.local {
        let local: Vec<_> = candidates.iter().filter(|one| one.local).copied().collect();
        selected.local = ready_else_lasting(&local, |_| true);
    }
    selected
}

fn ready_else_lasting(
    candidates: &[Candidate<'_>],
    wanted: impl Fn(&Candidate<'_>) -> bool,
) -> Vec<(IpAddr, u16)> {
    let addresses = |test: &dyn Fn(&Candidate<'_>) -> bool| -> Vec<_> {
        candidates.iter().filter(|one| test(one)).map(Candidate::address).collect()
    };
    let ready = addresses(&|one| one.endpoint.ready && wanted(one));
    if ready.is_empty() { addresses(&|one| one.lasts()) } else { ready }
}

/// Hints count where every ready server has some and one of them means us; a node's before a zone's.
fn hints(candidates: &[Candidate<'_>], topology: &Topology) -> Hints {
    let (mut all_zone, mut all_node) = (true, topology.node_hints);
    let (mut our_zone, mut our_node) = (false, false);
    for Candidate { endpoint, .. } in candidates.iter().filter(|one| one.endpoint.ready) {
        all_node &= !endpoint.for_nodes.is_empty();
        our_node |= endpoint.for_nodes.contains(&topology.node);
        all_zone &= !endpoint.for_zones.is_empty();
        our_zone |= is_for_zone(endpoint, topology);
    }
    if all_node && our_node {
        Hints::Node
    } else if all_zone && our_zone {
        Hints::Zone
    } else {
        Hints::Ignored
    }
}

fn is_for_zone(endpoint: &SliceEndpoint, topology: &Topology) -> bool {
    topology.zone.as_ref().is_some_and(|zone| endpoint.for_zones.contains(zone))
}

fn follows(one: &Candidate<'_>, hints: Hints, topology: &Topology) -> bool {
    match hints {
        Hints::Ignored => true,
        Hints::Zone => is_for_zone(one.endpoint, topology),
        Hints::Node => one.endpoint.for_nodes.contains(&topology.node),
    }
}

#[cfg(test)]
mod tests;
