//! In which order a Pod's interface is made, and unmade.
//!
//! Pure: [`Build`] and [`Teardown`] take what happened and return what to do next; several
//! operations at once may run side by side. Both know nothing of Pods, addresses or errors.
//!
//! ```text
//!   Allocate ---+- ConfigureLink -----------+
//!               +- InstallFlows ------------+- Announce --+- made
//!   CreateLink -+- InsertPort - AwaitPort --+- NotePort --+
//!
//!   RemoveFlows +-- FlushConntrack - ReleaseAddress
//!   DeletePort -+-- DeleteLink
//! ```
//! What joins two lines waits for both. The two long waits, for an address and for a port number,
//! are side by side; a port that is added before its addresses are known gets them noted at the
//! end, because vswitchd looks over every port before it does anything else after each note.
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
    /// Add the port to the bridge, with what is known of it.
    InsertPort,
    /// Write the addresses into the port's notes.
    NotePort,
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
    running: BTreeSet<Op>,
    done: BTreeSet<Op>,
    begun: BTreeSet<Piece>,
    failed: bool,
}

impl Build {
    /// A build that will ask for this port number, and its first operations.
    pub fn start(requested: OfPort) -> (Self, Vec<Op>) {
        let mut build = Self {
            ofport: requested,
            running: BTreeSet::new(),
            done: BTreeSet::new(),
            begun: BTreeSet::new(),
            failed: false,
        };
        let ops = build.begin();
        (build, ops)
    }

    /// Takes what happened and returns what to do next.
    pub fn step(&mut self, event: Event) -> Vec<Op> {
        let op = event.op();
        self.running.remove(&op);
        match event {
            // Neighbours find a Pod without being told, only later.
            Event::Failed(Op::Announce) | Event::Done(_) => {
                self.done.insert(op);
            }
            Event::Failed(_) => self.failed = true,
            Event::PortNumber(ofport) => {
                self.done.insert(op);
                self.ofport = ofport;
            }
        }
        if self.failed { vec![] } else { self.begin() }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        match (self.failed, self.running.is_empty()) {
            (true, true) => Progress::Stopped(self.begun.clone()),
            (true, false) => Progress::Stopping,
            (false, true) if self.done.contains(&Op::Announce) => Progress::Made,
            (false, _) => Progress::Building,
        }
    }

    fn begin(&mut self) -> Vec<Op> {
        let flows = Op::InstallFlows(self.ofport);
        let all = [
            Op::Allocate,
            Op::CreateLink,
            Op::ConfigureLink,
            Op::InsertPort,
            Op::NotePort,
            flows,
            Op::AwaitPort,
            Op::Announce,
        ];
        let ops: Vec<_> = all.into_iter().filter(|op| self.may_start(*op)).collect();
        for op in &ops {
            self.running.insert(*op);
            let piece = match op {
                Op::Allocate => Piece::Address,
                Op::CreateLink => Piece::Link,
                Op::InsertPort => Piece::Port,
                Op::InstallFlows(_) => Piece::Flows,
                _ => continue,
            };
            self.begun.insert(piece);
        }
        if ops.contains(&Op::InsertPort) && self.done.contains(&Op::Allocate) {
            // It goes with its addresses.
            self.done.insert(Op::NotePort);
        }
        ops
    }

    fn may_start(&self, op: Op) -> bool {
        let done = |op: Op| self.done.contains(&op);
        if done(op) || self.running.contains(&op) {
            return false;
        }
        match op {
            Op::ConfigureLink => done(Op::Allocate) && done(Op::CreateLink),
            Op::InsertPort => done(Op::CreateLink),
            Op::AwaitPort => done(Op::InsertPort),
            Op::InstallFlows(_) => {
                // One at a time: if OVS gives another number than the one asked for, they are
                // replaced.
                let flows_run = self.running.iter().any(|op| matches!(op, Op::InstallFlows(_)));
                done(Op::Allocate) && done(Op::CreateLink) && !flows_run
            }
            Op::Announce | Op::NotePort => {
                let needed = [Op::ConfigureLink, Op::AwaitPort, Op::InstallFlows(self.ofport)];
                let last = |op: &Op| matches!(op, Op::Announce | Op::NotePort);
                needed.into_iter().all(done) && self.running.iter().all(last)
            }
            _ => true,
        }
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
