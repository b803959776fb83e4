//! In which order a Pod's interface is made, and unmade.
//!
//! Pure: [`Build`] and [`Teardown`] take what happened and return what to do next; several
//! operations at once may run side by side. Both know nothing of Pods, addresses or errors.
//!
//! ```text
//!   Allocate - CreateLink +- ConfigureLink ----------+
//!                         +- InsertPort - AwaitPort -+- Announce - made
//!                         +- InstallFlows -----------+
//!
//!   RemoveFlows +-- FlushConntrack - ReleaseAddress
//!   DeletePort -+-- DeleteLink
//! ```
//! A failure lets running operations end, starts no other, and unmakes what was begun. An address
//! is released only when nothing can use it any more.
//! Not here: carrying operations out (`drive`).

use std::collections::BTreeSet;

use openflow::OfPort;

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// Lease addresses.
    Allocate,
    /// Make the veth pair.
    CreateLink,
    /// Addresses, routes, offloads, up.
    ConfigureLink,
    /// Add the port to the bridge.
    InsertPort,
    /// Wait for the port's number.
    AwaitPort,
    /// Put flows for this number on the switch.
    InstallFlows(OfPort),
    /// Tell neighbours.
    Announce,
    /// Take flows off the switch.
    RemoveFlows,
    /// Delete the port.
    DeletePort,
    /// Forget connections.
    FlushConntrack,
    /// Delete the veth pair.
    DeleteLink,
    /// Give the addresses back.
    ReleaseAddress,
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is done.
    Done(Op),
    /// [`Op::AwaitPort`] is done: this is the number.
    PortNumber(OfPort),
    /// It failed, and may be half done.
    Failed(Op),
}

impl Event {
    fn op(self) -> Op {
        match self {
            Self::Done(op) | Self::Failed(op) => op,
            Self::PortNumber(_) => Op::AwaitPort,
        }
    }
}

/// A part of a Pod's interface that may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Piece {
    /// The lease.
    Address,
    /// The veth pair.
    Link,
    /// The port.
    Port,
    /// The flows.
    Flows,
}

impl Piece {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Address, Self::Link, Self::Port, Self::Flows];
}

/// How far a [`Build`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Operations run, or are to be started.
    Building,
    /// Something failed; operations that ran then are still running.
    Stopping,
    /// All is made.
    Made,
    /// Something failed and nothing runs: these pieces may exist and have to be torn down.
    Stopped(BTreeSet<Piece>),
}

/// The making of one interface.
#[derive(Clone, Debug)]
pub struct Build {
    /// The number that flows are made for: asked for first, then the one the port got.
    ofport: OfPort,
    /// The number that flows were last sent for.
    sent_for: Option<OfPort>,
    running: BTreeSet<Op>,
    configured: bool,
    numbered: bool,
    begun: BTreeSet<Piece>,
    failed: bool,
    announced: bool,
}

impl Build {
    /// A build that will ask for this port number, and its first operations.
    pub fn start(requested: OfPort) -> (Self, Vec<Op>) {
        let mut build = Self {
            ofport: requested,
            sent_for: None,
            running: BTreeSet::new(),
            configured: false,
            numbered: false,
            begun: BTreeSet::new(),
            failed: false,
            announced: false,
        };
        let ops = build.begin(vec![Op::Allocate]);
        (build, ops)
    }

    /// Takes what happened and returns what to do next.
    pub fn step(&mut self, event: Event) -> Vec<Op> {
        self.running.remove(&event.op());
        let next = match event {
            // Neighbours find a Pod without being told, only later.
            Event::Done(Op::Announce) | Event::Failed(Op::Announce) => {
                self.announced = true;
                vec![]
            }
            Event::Failed(_) => {
                self.failed = true;
                vec![]
            }
            Event::Done(Op::Allocate) => vec![Op::CreateLink],
            Event::Done(Op::CreateLink) => {
                vec![Op::ConfigureLink, Op::InsertPort, Op::InstallFlows(self.ofport)]
            }
            Event::Done(Op::ConfigureLink) => {
                self.configured = true;
                vec![]
            }
            Event::Done(Op::InsertPort) => vec![Op::AwaitPort],
            Event::PortNumber(ofport) => {
                self.numbered = true;
                self.ofport = ofport;
                vec![]
            }
            Event::Done(_) => vec![],
        };
        if self.failed {
            return vec![];
        }
        let next = if next.is_empty() { self.last_steps() } else { next };
        self.begin(next)
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        match (self.failed, self.running.is_empty()) {
            (true, true) => Progress::Stopped(self.begun.clone()),
            (true, false) => Progress::Stopping,
            (false, _) if self.announced => Progress::Made,
            (false, _) => Progress::Building,
        }
    }

    /// What can follow once the link is up and the port has its number: flows again, if OVS gave
    /// another number than the one asked for, then the announcement.
    fn last_steps(&self) -> Vec<Op> {
        let flows_run = self.running.iter().any(|op| matches!(op, Op::InstallFlows(_)));
        if !self.numbered || flows_run {
            return vec![];
        }
        if self.sent_for != Some(self.ofport) {
            return vec![Op::InstallFlows(self.ofport)];
        }
        let done = self.configured && self.running.is_empty() && !self.announced;
        if done { vec![Op::Announce] } else { vec![] }
    }

    fn begin(&mut self, ops: Vec<Op>) -> Vec<Op> {
        for op in &ops {
            self.running.insert(*op);
            let piece = match op {
                Op::Allocate => Piece::Address,
                Op::CreateLink => Piece::Link,
                Op::InsertPort => Piece::Port,
                Op::InstallFlows(ofport) => {
                    self.sent_for = Some(*ofport);
                    Piece::Flows
                }
                _ => continue,
            };
            self.begun.insert(piece);
        }
        ops
    }
}

/// The unmaking of one interface.
#[derive(Clone, Debug)]
pub struct Teardown {
    waiting: BTreeSet<Op>,
    running: BTreeSet<Op>,
    failed: BTreeSet<Op>,
}

impl Teardown {
    /// A teardown of these pieces, and its first operations.
    pub fn start(pieces: &BTreeSet<Piece>) -> (Self, Vec<Op>) {
        let mut waiting = BTreeSet::new();
        for piece in pieces {
            waiting.insert(match piece {
                Piece::Address => Op::ReleaseAddress,
                Piece::Link => Op::DeleteLink,
                Piece::Port => Op::DeletePort,
                Piece::Flows => Op::RemoveFlows,
            });
        }
        if pieces.contains(&Piece::Flows) || pieces.contains(&Piece::Port) {
            waiting.insert(Op::FlushConntrack);
        }
        let mut teardown = Self { waiting, running: BTreeSet::new(), failed: BTreeSet::new() };
        let ops = teardown.ready();
        (teardown, ops)
    }

    /// Takes what happened and returns what to do next.
    pub fn step(&mut self, event: Event) -> Vec<Op> {
        let op = event.op();
        self.running.remove(&op);
        if let Event::Failed(op) = event {
            self.failed.insert(op);
        }
        self.ready()
    }

    /// Whether nothing runs and nothing more can be started.
    pub fn is_settled(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether all is unmade.
    pub fn is_complete(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty() && self.failed.is_empty()
    }

    fn ready(&mut self) -> Vec<Op> {
        let ops: Vec<_> = self.waiting.iter().copied().filter(|op| self.may_start(*op)).collect();
        for op in &ops {
            self.waiting.remove(op);
            self.running.insert(*op);
        }
        ops
    }

    fn may_start(&self, op: Op) -> bool {
        let over = |op: Op| !self.waiting.contains(&op) && !self.running.contains(&op);
        let done = |op: Op| over(op) && !self.failed.contains(&op);
        match op {
            Op::FlushConntrack => done(Op::RemoveFlows) && done(Op::DeletePort),
            Op::ReleaseAddress => {
                done(Op::RemoveFlows) && done(Op::DeletePort) && done(Op::FlushConntrack)
            }
            // A link under a port that cannot be deleted is closed all the same.
            Op::DeleteLink => over(Op::DeletePort),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests;
