//! Gives each Node its Pod prefixes, one of each family.
//!
//! Level-triggered: whatever the caller saw is handed in, again if it likes. Nothing is given out
//! before the first [`Event::Resync`], so a new leader that has not read every Node cannot give
//! away what one of them has. A Node that has prefixes keeps them, whoever gave them; what is wrong
//! with them is reported. A prefix stays reserved for its Node from the moment it is offered until
//! the Node is gone or is seen with another.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::cidr_set::{CidrSet, PoolError, overlap};

/// A Node and the Pod prefixes in its spec.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCidrs {
    /// Its name.
    pub name: String,
    /// `spec.podCIDRs`; empty when it has none yet.
    pub pod_cidrs: Vec<IpNet>,
}

/// What can wake the allocator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A Node as it is now.
    NodeSeen(NodeCidrs),
    /// A Node was deleted.
    NodeGone(String),
    /// Every Node there is, from one consistent list.
    Resync(Vec<NodeCidrs>),
    /// An [`Op::Write`] to this Node failed.
    WriteFailed(String),
}

/// What the caller has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Write these prefixes to the Node, provided that it has none. The Node is then seen with
    /// them, or the write failed.
    Write {
        /// The Node.
        name: String,
        /// Its prefixes, in the order of the cluster's.
        pod_cidrs: Vec<IpNet>,
    },
    /// After a while, read the Node and hand in what is seen.
    ReadLater(String),
    /// Tell the user; given once as long as the problem is the same.
    Report {
        /// The Node.
        name: String,
        /// What is wrong.
        problem: Problem,
    },
}

/// What can be wrong with a Node's prefixes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Problem {
    /// Nothing is left.
    #[error("no prefix is left in {0}")]
    Exhausted(IpNet),
    /// Another Node has the same addresses.
    #[error("{cidr} overlaps {other} of Node {with}")]
    Overlap {
        /// This Node's prefix.
        cidr: IpNet,
        /// The other one's.
        other: IpNet,
        /// The other Node.
        with: String,
    },
    /// Services have the same addresses.
    #[error("{cidr} overlaps the prefix of Services {services}")]
    OverlapsServices {
        /// This Node's prefix.
        cidr: IpNet,
        /// The Services'.
        services: IpNet,
    },
    /// The prefix is no part of the cluster's.
    #[error("{0} is outside the cluster's prefixes")]
    Outside(IpNet),
    /// The Node got its prefixes before the cluster had this family; they cannot be added to.
    #[error("the Node has no part of {0}, and the prefixes of a Node cannot be changed")]
    Missing(IpNet),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct NodeIpam {
    pools: Vec<CidrSet>,
    services: Vec<IpNet>,
    nodes: BTreeMap<String, Node>,
    /// Nodes for which nothing was left, in the order they came.
    waiting: BTreeSet<(u64, String)>,
    arrivals: u64,
    synced: bool,
}

#[derive(Clone, Debug)]
struct Node {
    arrival: u64,
    cidrs: Vec<IpNet>,
    state: State,
    problem: Option<Problem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Has nothing and was offered nothing.
    Bare,
    /// A write is under way.
    Offered,
    /// A write failed; the prefixes stay reserved for the next one.
    Failed,
    /// Was seen with its prefixes.
    Settled,
}

impl NodeIpam {
    /// Cuts each cluster prefix into parts of the length beside it, and keeps Services' out.
    pub fn new(cluster: &[(IpNet, u8)], services: &[IpNet]) -> Result<Self, PoolError> {
        match cluster {
            [_] => {}
            [(a, _), (b, _)] if a.max_prefix_len() == b.max_prefix_len() => {
                return Err(PoolError::SameFamily(*a, *b));
            }
            [_, _] => {}
            _ => return Err(PoolError::Count(cluster.len())),
        }
        let pools = cluster.iter().map(|(cidr, part)| CidrSet::new(*cidr, *part));
        let mut pools = pools.collect::<Result<Vec<_>, _>>()?;
        for pool in &mut pools {
            services.iter().for_each(|cidr| pool.occupy(*cidr));
        }
        Ok(Self {
            pools,
            services: services.to_vec(),
            nodes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            arrivals: 0,
            synced: false,
        })
    }

    /// One step: the same history always gives the same operations.
    pub fn step(&mut self, event: Event) -> Vec<Op> {
        let mut ops = Vec::new();
        match event {
            Event::NodeSeen(node) => self.see(&node, &mut ops),
            Event::NodeGone(name) => self.forget(&name),
            Event::Resync(nodes) => self.resync(&nodes, &mut ops),
            Event::WriteFailed(name) => {
                if let Some(node) = self.nodes.get_mut(&name)
                    && node.state == State::Offered
                {
                    node.state = State::Failed;
                    ops.push(Op::ReadLater(name));
                }
            }
        }
        self.serve_waiting(&mut ops);
        ops
    }

    /// The prefixes that a Node has or was offered.
    #[must_use]
    pub fn cidrs_of(&self, name: &str) -> &[IpNet] {
        self.nodes.get(name).map_or(&[], |node| &node.cidrs)
    }

    /// What is wrong now, by Node.
    pub fn problems(&self) -> impl Iterator<Item = (&str, &Problem)> {
        self.nodes.iter().filter_map(|(name, node)| Some((name.as_str(), node.problem.as_ref()?)))
    }

    /// Free parts of each cluster prefix.
    pub fn free(&self) -> impl Iterator<Item = (IpNet, usize)> + '_ {
        self.pools.iter().map(|pool| (pool.cidr(), pool.n_free()))
    }

    fn resync(&mut self, seen: &[NodeCidrs], ops: &mut Vec<Op>) {
        self.synced = true;
        let names: BTreeSet<_> = seen.iter().map(|node| node.name.as_str()).collect();
        let gone: Vec<_> =
            self.nodes.keys().filter(|n| !names.contains(n.as_str())).cloned().collect();
        gone.iter().for_each(|name| self.forget(name));
        for node in self.nodes.values_mut().filter(|node| node.state == State::Offered) {
            node.state = State::Failed; // Whether the write arrived is in the list.
        }
        // What Nodes have comes before what they want.
        let (have, want): (Vec<_>, Vec<_>) = seen.iter().partition(|n| !n.pod_cidrs.is_empty());
        have.into_iter().chain(want).for_each(|node| self.see(node, ops));
    }

    fn see(&mut self, seen: &NodeCidrs, ops: &mut Vec<Op>) {
        let name = &seen.name;
        if !self.nodes.contains_key(name) {
            self.arrivals += 1;
            let arrival = self.arrivals;
            let node = Node { arrival, cidrs: Vec::new(), state: State::Bare, problem: None };
            self.nodes.insert(name.clone(), node);
        }
        if seen.pod_cidrs.is_empty() {
            self.offer(name, ops);
        } else {
            self.settle(name, &seen.pod_cidrs, ops);
        }
    }

    /// The Node has prefixes: they are its own, right or wrong.
    fn settle(&mut self, name: &str, cidrs: &[IpNet], ops: &mut Vec<Op>) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let arrival = node.arrival;
        node.state = State::Settled;
        let old = std::mem::replace(&mut node.cidrs, cidrs.to_vec());
        for pool in &mut self.pools {
            old.iter().for_each(|cidr| pool.release(*cidr));
            cidrs.iter().for_each(|cidr| pool.occupy(*cidr));
        }
        self.waiting.remove(&(arrival, name.to_owned()));
        let problem = self.problem_of(name, cidrs);
        self.report(name, problem, ops);
    }

    /// The Node has no prefixes: offer the same as before if it was offered some or was made anew,
    /// else let it wait for some.
    fn offer(&mut self, name: &str, ops: &mut Vec<Op>) {
        let Some(node) = self.nodes.get(name) else { return };
        if node.state == State::Offered {
            return;
        }
        let cidrs = node.cidrs.clone();
        let usable = !cidrs.is_empty() && self.problem_of(name, &cidrs).is_none();
        let Some(node) = self.nodes.get_mut(name) else { return };
        if usable {
            node.state = State::Offered;
            ops.push(Op::Write { name: name.to_owned(), pod_cidrs: cidrs });
            return;
        }
        node.state = State::Bare;
        node.cidrs.clear();
        self.waiting.insert((node.arrival, name.to_owned()));
        for pool in &mut self.pools {
            cidrs.iter().for_each(|cidr| pool.release(*cidr));
        }
    }

    /// Gives prefixes to Nodes that have none, as long as there are any.
    fn serve_waiting(&mut self, ops: &mut Vec<Op>) {
        if !self.synced {
            return;
        }
        while let Some((arrival, name)) = self.waiting.first().cloned() {
            match self.allocate() {
                Ok(pod_cidrs) => {
                    self.waiting.remove(&(arrival, name.clone()));
                    if let Some(node) = self.nodes.get_mut(&name) {
                        node.cidrs.clone_from(&pod_cidrs);
                        node.state = State::Offered;
                        node.problem = None;
                    }
                    ops.push(Op::Write { name, pod_cidrs });
                }
                Err(cidr) => {
                    for (_, name) in self.waiting.clone() {
                        self.report(&name, Some(Problem::Exhausted(cidr)), ops);
                    }
                    return;
                }
            }
        }
    }

    /// One part of each pool, or none at all.
    fn allocate(&mut self) -> Result<Vec<IpNet>, IpNet> {
        if let Some(pool) = self.pools.iter().find(|pool| pool.n_free() == 0) {
            return Err(pool.cidr());
        }
        Ok(self.pools.iter_mut().filter_map(CidrSet::allocate).collect())
    }

    fn forget(&mut self, name: &str) {
        if let Some(node) = self.nodes.remove(name) {
            for pool in &mut self.pools {
                node.cidrs.iter().for_each(|cidr| pool.release(*cidr));
            }
            self.waiting.remove(&(node.arrival, name.to_owned()));
        }
    }

    fn problem_of(&self, name: &str, cidrs: &[IpNet]) -> Option<Problem> {
        for cidr in cidrs.iter().copied() {
            if let Some(services) = self.services.iter().find(|s| overlap(**s, cidr)) {
                return Some(Problem::OverlapsServices { cidr, services: *services });
            }
            if !self.pools.iter().any(|pool| pool.cidr().contains(&cidr)) {
                return Some(Problem::Outside(cidr));
            }
            if !self.pools.iter().any(|pool| pool.is_shared(cidr)) {
                continue;
            }
            let others = self.nodes.iter().filter(|(other, _)| *other != name);
            for (with, node) in others {
                if let Some(other) = node.cidrs.iter().find(|other| overlap(**other, cidr)) {
                    return Some(Problem::Overlap { cidr, other: *other, with: with.clone() });
                }
            }
        }
        let missing = self.pools.iter().find(|pool| !cidrs.iter().any(|c| pool.touches(*c)));
        missing.map(|pool| Problem::Missing(pool.cidr()))
    }

    fn report(&mut self, name: &str, problem: Option<Problem>, ops: &mut Vec<Op>) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        if node.problem == problem {
            return;
        }
        node.problem.clone_from(&problem);
        if let Some(problem) = problem {
            ops.push(Op::Report { name: name.to_owned(), problem });
        }
    }
}

#[cfg(test)]
mod tests;
