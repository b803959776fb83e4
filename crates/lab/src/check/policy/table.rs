//! The table of exchanges: all pairs of Pods, ports and protocols at once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::NAMES;
use crate::cluster;
use crate::error::{LabError, Result};
use crate::interrupt::{self, wait_for};
use crate::pods;
use crate::probe;
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

/// An exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Transport {
    Tcp,
    Udp,
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

    /// Whether the exchange succeeds, with the right one answering.
    fn succeeds(&self, within: Duration) -> bool {
        let netns = &self.from.netns;
        let answer = match self.transport {
            Transport::Tcp => probe::tcp_who(netns, self.target, within),
            Transport::Udp => probe::udp_who(netns, self.target, within),
        };
        let name = format!("{}/{}", self.to.namespace, self.to.pod);
        answer.is_ok_and(|answer| answer.pod == name)
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
        let world = Self { places };
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
        for from in &self.places {
            for to in &self.places {
                // A Pod reaches itself without the switch.
                if (from.namespace, from.pod) == (to.namespace, to.pod) {
                    continue;
                }
                for target in self.targets(to) {
                    for transport in [Transport::Tcp, Transport::Udp] {
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

    /// The exchanges that are not as they should be.
    fn wrong(&self, allows: &Allows, within: Duration) -> Vec<String> {
        let cells = self.cells();
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
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
        });
        let pairs = cells.iter().zip(outcomes);
        pairs
            .filter(|(cell, passed)| allows(cell) != *passed)
            .map(|(cell, passed)| {
                let word = if passed { "passes" } else { "does not pass" };
                format!("{} {word}", cell.words())
            })
            .collect()
    }

    /// Waits until all exchanges are as they should be.
    pub(super) fn await_table(&self, allows: &Allows, within: Duration) -> Result<()> {
        let deadline = Instant::now() + within * interrupt::patience();
        let mut wait = FIRST_WAIT;
        loop {
            let wrong = self.wrong(allows, wait);
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
