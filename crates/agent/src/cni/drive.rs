//! Carries out what a plan asks for, on the real or the fake world.
//!
//! Operations that the plan starts together run side by side. Each has a deadline, after which it
//! counts as failed. What changes something runs on to its end all the same, on a task of its own:
//! it is overdue, and until it has ended its interface is not touched ([`Job::overdue`]).
//! Not here: which operation follows which (`plan`).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use openflow::{MacAddr, OfPort};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::failure::{CniFailure, chain};
use super::model::{PodAddress, PodRecord, mac_for};
use super::plan::{Build, Event, Op, Piece, Progress, Teardown};
use super::server::Node;
use super::traits::{IpamRequest, LinkSpec};

/// What an operation brought.
enum Output {
    Nothing,
    Addresses(Vec<PodAddress>),
    HostMac(MacAddr),
    PortNumber(OfPort),
}

type Outcome = (Op, Result<Output, CniFailure>);

/// One interface and what is needed to work on it.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) node: Arc<Node>,
    pub(super) ipam: IpamRequest,
    pub(super) record: PodRecord,
    pub(super) addresses: Vec<PodAddress>,
    pub(super) host_mac: MacAddr,
    /// Of the link, in bytes.
    pub(super) mtu: u32,
    /// How long one operation may take.
    pub(super) deadline: Duration,
    /// Operations that have not ended.
    pub(super) operations: TaskTracker,
}

/// A build that failed: why, and what may be left of it.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) cause: CniFailure,
    pub(super) pieces: BTreeSet<Piece>,
}

impl Job {
    /// The link of this interface.
    pub(super) fn link(&self) -> LinkSpec {
        LinkSpec {
            attachment: self.record.attachment.clone(),
            host_name: self.record.host_name.clone(),
            netns: self.record.netns.clone(),
            mac: self.record.mac,
            mtu: self.mtu,
            addresses: self.addresses.clone(),
        }
    }

    /// Whether an operation outlived its deadline and still runs.
    pub(super) fn is_overdue(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Waits until no operation runs any more.
    pub(super) async fn overdue(&self) {
        self.operations.close();
        self.operations.wait().await;
    }

    /// Makes the interface. `claim` is asked once the addresses are known, before anything is made
    /// with them.
    pub(super) async fn build(
        &mut self,
        claim: impl Fn(&PodRecord) -> Result<(), CniFailure>,
    ) -> Result<(), Stopped> {
        let stop = CancellationToken::new();
        let (mut build, ops) = Build::start(self.record.ofport);
        let mut running = FuturesUnordered::new();
        running.extend(ops.into_iter().map(|op| self.run(op, &stop)));
        let mut cause = None;
        while let Some((op, outcome)) = running.next().await {
            let event = outcome.and_then(|output| self.learn(op, output, &claim));
            let event = event.unwrap_or_else(|failure| {
                if op == Op::Announce {
                    warn!(pod = %self.record.pod, error = chain(&failure), "Pod not announced");
                } else {
                    debug!(pod = %self.record.pod, ?op, error = chain(&failure), "step failed");
                    // What failed first stopped the others.
                    cause.get_or_insert(failure);
                    stop.cancel();
                }
                Event::Failed(op)
            });
            running.extend(build.step(event).into_iter().map(|op| self.run(op, &stop)));
        }
        match build.progress() {
            Progress::Stopped(pieces) => {
                Err(Stopped { cause: cause.unwrap_or(CniFailure::Internal), pieces })
            }
            _ => Ok(()),
        }
    }

    /// Unmakes these pieces. Returns what failed; empty means that nothing of them is left.
    pub(super) async fn tear_down(&self, pieces: &BTreeSet<Piece>) -> Vec<CniFailure> {
        let never = CancellationToken::new();
        let (mut teardown, ops) = Teardown::start(pieces);
        let mut running = FuturesUnordered::new();
        running.extend(ops.into_iter().map(|op| self.run(op, &never)));
        let mut failures = Vec::new();
        while let Some((op, outcome)) = running.next().await {
            let event = match outcome {
                Ok(_) => Event::Done(op),
                Err(failure) => {
                    debug!(pod = %self.record.pod, ?op, error = chain(&failure), "undo failed");
                    failures.push(failure);
                    Event::Failed(op)
                }
            };
            running.extend(teardown.step(event).into_iter().map(|op| self.run(op, &never)));
        }
        failures
    }

    fn learn(
        &mut self,
        op: Op,
        output: Output,
        claim: impl Fn(&PodRecord) -> Result<(), CniFailure>,
    ) -> Result<Event, CniFailure> {
        match output {
            Output::Addresses(addresses) => {
                self.record.ips = addresses.iter().map(|a| a.address.addr()).collect();
                self.record.mac = mac_for(&self.record.ips);
                self.addresses = addresses;
                if let Err(failure) = claim(&self.record) {
                    // Connections of these addresses are another Pod's.
                    self.record.ips.clear();
                    return Err(failure);
                }
            }
            Output::HostMac(mac) => self.host_mac = mac,
            Output::PortNumber(ofport) => {
                self.record.ofport = ofport;
                return Ok(Event::PortNumber(ofport));
            }
            Output::Nothing => {}
        }
        Ok(Event::Done(op))
    }

    /// Starts one operation on a copy of what is known now.
    fn run(&self, op: Op, stop: &CancellationToken) -> BoxFuture<'static, Outcome> {
        let (job, stop) = (self.clone(), stop.clone());
        Box::pin(async move {
            let started = Instant::now();
            let too_slow = |_| {
                warn!(pod = %job.record.pod, attachment = %job.record.attachment,
                    step = name(op), deadline = ?job.deadline, "a step did not end in time");
                Err(CniFailure::TooSlow { step: name(op) })
            };
            // Only waiting may be given up half way.
            let outcome = if op == Op::AwaitPort {
                tokio::select! {
                    outcome = timeout(job.deadline, job.carry_out(op)) => {
                        outcome.unwrap_or_else(too_slow)
                    }
                    () = stop.cancelled() => Err(CniFailure::GivenUp),
                }
            } else {
                let task = {
                    let job = job.clone();
                    job.operations.clone().spawn(async move { job.carry_out(op).await })
                };
                let ended = timeout(job.deadline, task).await;
                ended.map_or_else(too_slow, |ended| ended.unwrap_or(Err(CniFailure::Internal)))
            };
            debug!(pod = %job.record.pod, ?op, took = ?started.elapsed(), "step ended");
            (op, outcome)
        })
    }

    async fn carry_out(&self, op: Op) -> Result<Output, CniFailure> {
        let node = &self.node;
        let attachment = &self.record.attachment;
        match op {
            Op::Allocate => return Ok(Output::Addresses(node.ipam.allocate(&self.ipam).await?)),
            Op::CreateLink => return Ok(Output::HostMac(node.net.create(&self.link()).await?)),
            Op::ConfigureLink => node.net.configure(&self.link()).await?,
            Op::InsertPort => node.ports.add(&self.record).await?,
            Op::NotePort => node.ports.note_addresses(&self.record).await?,
            Op::AwaitPort => {
                let ofport = node.ports.wait_ofport(&self.record).await?;
                return Ok(Output::PortNumber(ofport));
            }
            Op::InstallFlows(ofport) => {
                let record = PodRecord { ofport, ..self.record.clone() };
                node.flows.install(&record).await?;
            }
            Op::Announce => node.net.announce(&self.link()).await?,
            Op::RemoveFlows => node.flows.remove(attachment).await?,
            Op::DeletePort => node.ports.delete(attachment).await?,
            Op::FlushConntrack => {
                let ips: &[IpAddr] = &self.record.ips;
                if !ips.is_empty() {
                    node.conntrack.flush(ips).await?;
                }
            }
            Op::DeleteLink => node.net.delete(&self.record.host_name, attachment).await?,
            Op::ReleaseAddress => node.ipam.release(&self.ipam).await?,
        }
        Ok(Output::Nothing)
    }
}

fn name(op: Op) -> &'static str {
    match op {
        Op::Allocate => "allocating an address",
        Op::CreateLink => "creating the veth pair",
        Op::ConfigureLink => "configuring the Pod's interface",
        Op::InsertPort => "adding the port to Open vSwitch",
        Op::NotePort => "noting the Pod's addresses in Open vSwitch",
        Op::AwaitPort => "assigning a port number",
        Op::InstallFlows(_) => "installing flows",
        Op::Announce => "announcing the Pod",
        Op::RemoveFlows => "removing flows",
        Op::DeletePort => "deleting the port from Open vSwitch",
        Op::FlushConntrack => "flushing connections",
        Op::DeleteLink => "deleting the veth pair",
        Op::ReleaseAddress => "releasing the address",
    }
}
