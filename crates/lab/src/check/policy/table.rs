//! The table of exchanges: all pairs of Pods, ports and protocols at once.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::NAMES;
use crate::cluster;
use crate::error::{LabError, Result};
use crate::interrupt::{self, wait_for};
use crate::layout::NodeLayout;
use crate::ovs;
use crate::pods;
use crate::probe;
use crate::sctp::{self, Outcome};
use crate::state::Store;
use crate::up::POD_PATIENCE;

/// Ports on which each Pod answers.
pub(super) const PORTS: [u16; 2] = [80, 81];
/// How long the first table waits for answers; each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(300);
/// The longest wait for answers.
const LONGEST_WAIT: Duration = Duration::from_millis(2400);

/// A Pod of the table.
#[derive(Clone, Debug)]
pub(in super::super) struct Place {
    pub(in super::super) namespace: &'static str,
    pub(in super::super) pod: &'static str,
    pub(in super::super) netns: PathBuf,
    pub(in super::super) addresses: Vec<std::net::IpAddr>,
}

impl Place {
    fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.pod)
    }
}

/// An exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Transport {
    Tcp,
    Udp,
    /// The first half of an association.
    Sctp,
}

/// One exchange of the table: from whom to whom, at which port.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Cell<'a> {
    pub(in super::super) from: &'a Place,
    pub(in super::super) to: &'a Place,
    pub(in super::super) target: SocketAddr,
    pub(in super::super) transport: Transport,
}

impl Cell<'_> {
    pub(super) fn from(&self) -> (&'static str, &'static str) {
        (self.from.namespace, self.from.pod)
    }

    pub(super) fn to(&self) -> (&'static str, &'static str) {
        (self.to.namespace, self.to.pod)
    }

    pub(super) fn port(&self) -> u16 {
        self.target.port()
    }

    pub(super) fn tcp(&self) -> bool {
        self.transport == Transport::Tcp
    }

    pub(super) fn udp(&self) -> bool {
        self.transport == Transport::Udp
    }

    pub(super) fn sctp(&self) -> bool {
        self.transport == Transport::Sctp
    }

    /// Whether the exchange succeeds, with the right one answering.
    fn succeeds(&self, within: Duration) -> bool {
        let netns = &self.from.netns;
        let answer = match self.transport {
            Transport::Tcp => probe::tcp_who(netns, self.target, within).map(|answer| answer.pod),
            Transport::Udp => probe::udp_who(netns, self.target, within).map(|answer| answer.pod),
            Transport::Sctp => {
                // Whatever refuses it, it did not get through.
                let outcome = sctp::ask(netns, None, self.target, within);
                return matches!(outcome, Ok(Outcome::Answered(answer)) if answer.name == self.to.key());
            }
        };
        answer.is_ok_and(|pod| pod == self.to.key())
    }

    fn words(&self) -> String {
        let (from, to) = (self.from(), self.to());
        format!("{}/{} -> {}/{} {:?} {}", from.0, from.1, to.0, to.1, self.transport, self.target)
    }
}

/// Which exchanges there are.
pub(super) type Allows = dyn Fn(&Cell<'_>) -> bool + Sync;

/// All Pods of the table.
pub(in super::super) struct World {
    pub(in super::super) places: Vec<Place>,
    /// Who answers over SCTP, if that is tried.
    sctp: Vec<sctp::Server>,
    /// Whose connection tracking is to forget between rounds, if it is.
    nodes: Vec<NodeLayout>,
}

impl World {
    /// Waits until all Pods answer in their own namespaces.
    pub(super) fn await_pods(store: &Store) -> Result<Self> {
        let (namespaces, names) = NAMES;
        let mut places = Vec::new();
        for namespace in namespaces {
            for pod in names {
                let key = format!("{namespace}/{pod}");
                let sandbox = wait_for(POD_PATIENCE, &format!("Pod {key} runs"), || {
                    let row = pods::rows(store)
                        .into_iter()
                        .find(|row| row.namespace == namespace && row.name == pod && row.ready)?;
                    pods::find(store, &format!("{}/{}", row.namespace, row.name)).ok()
                })?;
                let (netns, addresses) = (sandbox.netns.clone(), sandbox.addresses());
                places.push(Place { namespace, pod, netns, addresses });
            }
        }
        let world = Self { places, sctp: Vec::new(), nodes: Vec::new() };
        for place in &world.places {
            for target in world.targets(place) {
                let what = format!("{}/{} answers at {target}", place.namespace, place.pod);
                wait_for(Duration::from_secs(10), &what, || {
                    probe::tcp_who(&place.netns, target, Duration::from_secs(1)).ok()
                })?;
            }
        }
        // What the controller computes from are addresses in the API, not those on nodes.
        cluster::run_async(async {
            let client = cluster::admin(store).await?;
            let deadline = tokio::time::Instant::now() + POD_PATIENCE;
            loop {
                let (all, _) = kube_io::pods::list(&client)
                    .await
                    .map_err(|error| LabError::new(error.chain()))?;
                let ready = all
                    .iter()
                    .filter(|pod| namespaces.contains(&pod.namespace.as_str()) && pod.ready);
                if ready.count() >= namespaces.len() * names.len() {
                    return Ok(());
                }
                interrupt::check()?;
                if tokio::time::Instant::now() > deadline {
                    return Err(LabError::new("Pods are not ready in the API"));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })?;
        Ok(world)
    }

    /// Tries SCTP too from now on. The kernel need not have it: packets are made by hand.
    pub(super) fn with_sctp(mut self, store: &Store) -> Result<Self> {
        let nodes = store.get().nodes;
        self.nodes = nodes.iter().map(|node| store.layout().node(&node.name)).collect();
        for place in &self.places {
            let server = sctp::Server::start(&place.netns, &place.key(), &place.addresses, &PORTS);
            self.sctp.push(server?);
        }
        Ok(self)
    }

    fn targets(&self, place: &Place) -> Vec<SocketAddr> {
        let each = |ip: &std::net::IpAddr| PORTS.map(|port| SocketAddr::new(*ip, port));
        place.addresses.iter().flat_map(each).collect()
    }

    /// The place of a Pod.
    pub(in super::super) fn place(&self, namespace: &str, pod: &str) -> &Place {
        self.places
            .iter()
            .find(|place| place.namespace == namespace && place.pod == pod)
            .expect("the table has all Pods")
    }

    fn cells(&self) -> Vec<Cell<'_>> {
        let mut cells = Vec::new();
        let transports: &[Transport] = match self.sctp.is_empty() {
            true => &[Transport::Tcp, Transport::Udp],
            false => &[Transport::Tcp, Transport::Udp, Transport::Sctp],
        };
        for from in &self.places {
            for to in &self.places {
                // A Pod reaches itself without the switch.
                if (from.namespace, from.pod) == (to.namespace, to.pod) {
                    continue;
                }
                for target in self.targets(to) {
                    for transport in transports.iter().copied() {
                        cells.push(Cell { from, to, target, transport });
                    }
                }
            }
        }
        cells
    }

    pub(super) fn n_cells(&self) -> usize {
        self.cells().len()
    }

    /// Exchanges that are tried at the same time: all of TCP and UDP; of SCTP those at one port and
    /// one way, because Open vSwitch's own connection tracking (3.1) takes all SCTP between two
    /// addresses for one connection.
    fn rounds(&self) -> Vec<Vec<Cell<'_>>> {
        let mut rounds: BTreeMap<Option<(u16, bool)>, Vec<Cell<'_>>> = BTreeMap::new();
        for cell in self.cells() {
            let round = cell.sctp().then(|| (cell.port(), cell.from() > cell.to()));
            rounds.entry(round).or_default().push(cell);
        }
        rounds.into_values().collect()
    }

    /// The exchanges that are not as they should be.
    fn wrong(&self, allows: &Allows, within: Duration) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        for cells in self.rounds() {
            if !self.sctp.is_empty() {
                for node in &self.nodes {
                    ovs::appctl(node, &["dpctl/flush-conntrack"])?;
                }
            }
            let outcomes = try_all(&cells, within);
            let pairs = cells.iter().zip(outcomes);
            wrong.extend(pairs.filter(|(cell, passed)| allows(cell) != *passed).map(
                |(cell, passed)| {
                    let word = if passed { "passes" } else { "does not pass" };
                    format!("{} {word}", cell.words())
                },
            ));
        }
        Ok(wrong)
    }

    /// Waits until all exchanges are as they should be.
    pub(super) fn await_table(&self, allows: &Allows, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within * interrupt::patience();
        let mut wait = FIRST_WAIT;
        loop {
            let wrong = self.wrong(allows, wait)?;
            if wrong.is_empty() {
                return Ok(());
            }
            interrupt::check()?;
            if Instant::now() > deadline {
                let some = wrong.iter().take(6).cloned().collect::<Vec<_>>().join("; ");
                return Err(LabError::new(format!(
                    "{} of {} exchanges are wrong: {some}",
                    wrong.len(),
                    self.n_cells()
                )));
            }
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

/// Tries exchanges at the same time, and says which succeed.
fn try_all(cells: &[Cell<'_>], within: Duration) -> Vec<bool> {
    std::thread::scope(|scope| {
        let ask = |cell: &Cell<'_>| cell.succeeds(within);
        let threads: Vec<_> = cells
            .iter()
            .map(|cell| {
                let builder = std::thread::Builder::new().stack_size(128 * 1024);
                builder.spawn_scoped(scope, move || ask(cell))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.is_ok_and(|thread| thread.join().unwrap_or(false)))
            .collect()
    })
}
