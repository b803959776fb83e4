//! Turns what a watch of Nodes shows into jobs: Pod CIDRs to write, reports of gone Nodes to remove.
//!
//! Pure: [`super::node_jobs`] carries the jobs out and hands their results in here.

use std::collections::BTreeMap;
use std::time::Duration;

use addresses::{Event as IpamEvent, NodeCidrs, NodeIpam, Op, Problem};
use ipnet::IpNet;
use kube_io::WatchEvent;
use kube_io::nodes::{NodeEvent, NodeView};

/// Time before a Node is read after a write to it failed.
const READ_LATER: Duration = Duration::from_millis(500);
/// Time before a Node is read after that failed, too.
const READ_AGAIN: Duration = Duration::from_secs(2);
/// Time before reports of gone Nodes are looked for again after that failed.
const SWEEP_AGAIN: Duration = Duration::from_secs(30);

/// Something to do for a Node, that may fail.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Job {
    /// Give these prefixes to the Node, provided that it is still as here.
    WriteCidrs { node: NodeView, cidrs: Vec<IpNet> },
    /// Read the Node.
    Read(String),
    /// Tell people about a Node that cannot get good prefixes.
    Tell { name: String, uid: String, problem: Problem },
    /// Remove what the agent of a gone Node reported.
    DeleteAgentInfo(String),
    /// Remove what agents reported whose Nodes are not among these.
    SweepAgentInfos(Vec<String>),
    /// Let this time pass, then say so.
    Wait(Duration, Timer),
}

/// What a wait is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Timer {
    /// To read a Node.
    Read(String),
    /// To look for reports of gone Nodes.
    Sweep,
}

/// Everything that can happen.
#[derive(Debug)]
pub(super) enum Event {
    /// The watch saw something.
    Watch(NodeEvent),
    /// A Node was read or written and looks like this.
    Seen(NodeView),
    /// A Node was read and does not exist.
    Gone(String),
    /// A Node could not be read.
    ReadFailed(String),
    /// Prefixes could not be written.
    WriteFailed(String),
    /// Reports of gone Nodes could not be removed.
    SweepFailed,
    /// A wait is over.
    Due(Timer),
}

/// What is known of all Nodes.
pub(super) struct Nodes {
    known: BTreeMap<String, NodeView>,
    /// Nodes that came since the watch began anew; `None` when it does not.
    listing: Option<BTreeMap<String, NodeView>>,
    /// A complete list was seen.
    synced: bool,
    /// Reports of gone Nodes are looked for again after a while.
    sweep_waits: bool,
    ipam: Option<NodeIpam>,
}

impl Nodes {
    /// Knows nothing; without an allocator Nodes get no prefixes from us.
    pub(super) fn new(ipam: Option<NodeIpam>) -> Self {
        Self { known: BTreeMap::new(), listing: None, synced: false, sweep_waits: false, ipam }
    }

    /// One step: the same history always gives the same jobs.
    pub(super) fn step(&mut self, event: Event) -> Vec<Job> {
        match event {
            Event::Watch(WatchEvent::Init) => {
                self.listing = Some(BTreeMap::new());
                Vec::new()
            }
            Event::Watch(WatchEvent::Applied(node)) => match &mut self.listing {
                Some(listing) => {
                    listing.insert(node.name.clone(), node);
                    Vec::new()
                }
                None => self.see(node),
            },
            Event::Watch(WatchEvent::InitDone) => self.replace(),
            Event::Watch(WatchEvent::Deleted(name)) | Event::Gone(name) => {
                if let Some(listing) = &mut self.listing {
                    listing.remove(&name);
                }
                self.forget(&name)
            }
            Event::Watch(WatchEvent::Failed(_)) => Vec::new(),
            Event::Seen(node) => self.see_answer(node),
            Event::ReadFailed(name) => vec![Job::Wait(READ_AGAIN, Timer::Read(name))],
            Event::WriteFailed(name) => self.feed(IpamEvent::WriteFailed(name)),
            Event::SweepFailed if self.sweep_waits => Vec::new(),
            Event::SweepFailed => {
                self.sweep_waits = true;
                vec![Job::Wait(SWEEP_AGAIN, Timer::Sweep)]
            }
            Event::Due(Timer::Read(name)) => vec![Job::Read(name)],
            Event::Due(Timer::Sweep) => {
                self.sweep_waits = false;
                vec![self.sweep()]
            }
        }
    }

    /// Whether all Nodes are known.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// How many Nodes are known.
    pub(super) fn n_known(&self) -> usize {
        self.known.len()
    }

    /// The allocator, if this program is the one that gives Pod CIDRs.
    pub(super) fn ipam(&self) -> Option<&NodeIpam> {
        self.ipam.as_ref()
    }

    /// An answer to an own call may be older than what the watch showed meanwhile, which may be that
    /// the Node is gone, or another one of its name is there: Nodes come by the watch alone.
    fn see_answer(&mut self, node: NodeView) -> Vec<Job> {
        match self.known.get(&node.name) {
            Some(known) if known.uid != node.uid => Vec::new(),
            Some(known) if is_older(&node, known) => {
                let known = known.clone();
                self.see(known)
            }
            Some(_) => self.see(node),
            None => Vec::new(),
        }
    }

    fn see(&mut self, newest: NodeView) -> Vec<Job> {
        let seen = cidrs_of(&newest);
        self.known.insert(newest.name.clone(), newest);
        self.feed(IpamEvent::NodeSeen(seen))
    }

    fn replace(&mut self) -> Vec<Job> {
        let Some(listing) = self.listing.take() else { return Vec::new() };
        self.known = listing;
        self.synced = true;
        let all: Vec<NodeCidrs> = self.known.values().map(cidrs_of).collect();
        let mut jobs = self.feed(IpamEvent::Resync(all));
        jobs.push(self.sweep());
        jobs
    }

    fn sweep(&self) -> Job {
        Job::SweepAgentInfos(self.known.keys().cloned().collect())
    }

    fn forget(&mut self, name: &str) -> Vec<Job> {
        if self.known.remove(name).is_none() {
            return Vec::new();
        }
        let mut jobs = self.feed(IpamEvent::NodeGone(name.to_owned()));
        jobs.push(Job::DeleteAgentInfo(name.to_owned()));
        jobs
    }

    fn feed(&mut self, event: IpamEvent) -> Vec<Job> {
        let Some(ipam) = &mut self.ipam else { return Vec::new() };
        let ops = ipam.step(event);
        ops.into_iter().filter_map(|op| self.job(op)).collect()
    }

    fn job(&self, op: Op) -> Option<Job> {
        match op {
            // A Node that is gone comes to the allocator as gone, too.
            Op::Write { name, pod_cidrs } => {
                let node = self.known.get(&name)?.clone();
                Some(Job::WriteCidrs { node, cidrs: pod_cidrs })
            }
            Op::ReadLater(name) => Some(Job::Wait(READ_LATER, Timer::Read(name))),
            Op::Report { name, problem } => {
                let uid = self.known.get(&name)?.uid.clone();
                Some(Job::Tell { name, uid, problem })
            }
        }
    }
}

fn cidrs_of(node: &NodeView) -> NodeCidrs {
    NodeCidrs { name: node.name.clone(), pod_cidrs: node.pod_cidrs.clone() }
}

/// Versions of one object may be compared as numbers where they are numbers.
fn is_older(node: &NodeView, than: &NodeView) -> bool {
    match (node.resource_version.parse::<u64>(), than.resource_version.parse::<u64>()) {
        (Ok(version), Ok(other)) => version < other,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
