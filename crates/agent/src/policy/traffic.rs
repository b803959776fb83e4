//! Counts what rules meet, and tells the controller.
//!
//! Once a minute the counters of the rules' flows are read. The policy loop says whose they are, and
//! totals are made of them (`policy::stats`), which are kept on disk, so that they go on after a start,
//! and told: those that changed, or all of them to a controller that has not been told by this process.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kube_io::ApiError;
use kube_io::controlplane::Controlplane;
use openflow::message::FlowStats;
use pipeline::policy::{Direction, metric_table, read_counter};
use policy::realize::{Realizer, RuleInfo};
use policy::stats::{Boot, Counting, Reading};
use switch::bridge::{Bridge, ReadError};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::{OWNER, known};

/// How often counters are read.
const EVERY: Duration = Duration::from_secs(60);
/// Policies in one report.
const MOST: usize = 200;
/// Readings that may wait.
const QUEUE: usize = 2;

/// Whether traffic is counted: the gate NetworkPolicyStats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountTraffic {
    /// It is.
    On,
    /// It is not.
    Off,
}

/// Counters, as they were read.
#[derive(Debug)]
pub(super) struct Read {
    at: Boot,
    readings: Vec<Reading>,
}

/// Counters, and whose they are.
#[derive(Debug)]
pub(super) struct Attributed {
    read: Read,
    rules: BTreeMap<u32, RuleInfo>,
    known: BTreeSet<String>,
}

/// What the policy loop has of it.
pub(super) struct Counters {
    /// What was read.
    pub(super) read_rx: mpsc::Receiver<Read>,
    attributed_tx: mpsc::Sender<Attributed>,
}

impl Counters {
    /// Starts to read and to tell, unless nothing is counted.
    pub(super) fn start(
        count: CountTraffic,
        bridge: &Bridge,
        controlplane: &Controlplane,
        (node, state_dir): (&str, &Path),
    ) -> Self {
        let (read_tx, read_rx) = mpsc::channel(QUEUE);
        let (attributed_tx, attributed_rx) = mpsc::channel(QUEUE);
        if count == CountTraffic::On {
            tokio::spawn(read_all(bridge.clone(), read_tx));
            let teller = Teller {
                counting: Counting::default(),
                file: state_dir.join("traffic.json"),
                controlplane: controlplane.clone(),
                node: node.to_owned(),
                instance: None,
                up_to: 0,
            };
            tokio::spawn(teller.run(attributed_rx));
        }
        Self { read_rx, attributed_tx }
    }

    /// Says whose counters these are. Before rules are known nothing is; nothing is lost by that.
    pub(super) fn attribute(&self, read: Read, realizer: &Realizer, known: &BTreeSet<String>) {
        if realizer.rules().next().is_none() {
            return;
        }
        let met = read.readings.iter().filter(|reading| reading.packets > 0);
        let rules = met.filter_map(|reading| {
            Some((reading.counter.rule, realizer.rule(reading.counter.id())?))
        });
        let attributed = Attributed { rules: rules.collect(), known: known.clone(), read };
        // Who is still busy with an earlier one finds what this says in a later one.
        let _ = self.attributed_tx.try_send(attributed);
    }
}

async fn read_all(bridge: Bridge, read_tx: mpsc::Sender<Read>) {
    let mut every = tokio::time::interval_at(tokio::time::Instant::now() + EVERY, EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let readings = match read(&bridge).await {
            Ok(readings) => readings,
            Err(error) => {
                tracing::debug!("read counters of rules: {}", crate::nodes::chain(&error));
                continue;
            }
        };
        let at = match boot() {
            Ok(at) => at,
            Err(error) => {
                tracing::warn!(%error, "policies' traffic is not counted: since when the machine \
                    runs is not known");
                continue;
            }
        };
        if read_tx.send(Read { at, readings }).await.is_err() {
            return;
        }
    }
}

async fn read(bridge: &Bridge) -> Result<Vec<Reading>, ReadError> {
    let readings = Arc::new(Mutex::new(Vec::new()));
    for direction in [Direction::Egress, Direction::Ingress] {
        let into = Arc::clone(&readings);
        let take = move |stats: FlowStats| {
            let Some(counter) = read_counter(&stats.flow) else { return };
            let counters = stats.counters;
            into.lock().unwrap_or_else(PoisonError::into_inner).push(Reading {
                counter,
                packets: counters.packets.unwrap_or(0),
                bytes: counters.bytes.unwrap_or(0),
                age: counters.duration,
            });
        };
        bridge.read_counters(OWNER, metric_table(direction), take).await?;
    }
    let mut readings = readings.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *readings))
}

/// Which start of the machine this is, and for how long it runs.
fn boot() -> io::Result<Boot> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let uptime = std::fs::read_to_string("/proc/uptime")?;
    let since = uptime.split(' ').next().and_then(|text| text.parse().ok());
    let since = since.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let bad = || io::Error::other(format!("/proc/uptime says {uptime:?}"));
    Ok(Boot { id, since: since.ok_or_else(bad)? })
}

struct Teller {
    counting: Counting,
    file: PathBuf,
    controlplane: Controlplane,
    node: String,
    /// The controller that was told up to this reading.
    instance: Option<String>,
    up_to: u64,
}

impl Teller {
    async fn run(mut self, mut attributed_rx: mpsc::Receiver<Attributed>) {
        let file = self.file.clone();
        let load = tokio::task::spawn_blocking(move || load(&file)).await;
        self.counting = load.unwrap_or_default();
        while let Some(attributed) = attributed_rx.recv().await {
            let Attributed { read: Read { at, readings }, rules, known } = attributed;
            let rule = |counter: &pipeline::policy::Counter| rules.get(&counter.rule).cloned();
            self.counting.take(at, &readings, rule, &known);
            self.save().await;
            if let Err(error) = self.tell().await {
                // What it says is in the next one.
                tracing::debug!("report policies' traffic: {}", error.chain());
            }
        }
    }

    async fn tell(&mut self) -> Result<(), ApiError> {
        let instance = self.controlplane.instance().await?;
        if instance.is_none() || instance != self.instance {
            (self.instance, self.up_to) = (instance, 0);
        }
        let newest = self.counting.n_readings();
        for summary in self.counting.summaries(&self.node, self.up_to, MOST) {
            self.controlplane.report_traffic(&summary).await?;
        }
        self.up_to = newest;
        Ok(())
    }

    async fn save(&self) {
        let (file, bytes) = (self.file.clone(), serde_json::to_vec(&self.counting));
        let write = move || known::write(&file, |to| io::Write::write_all(to, &bytes?));
        let saved = tokio::task::spawn_blocking(write).await;
        if let Err(error) = saved.map_err(io::Error::other).flatten() {
            tracing::warn!(%error, "totals of policies' traffic are not kept");
        }
    }
}

/// Totals of before; none without a file, or with one that cannot be read.
fn load(file: &Path) -> Counting {
    let read = std::fs::read(file);
    if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Counting::default();
    }
    let counting = read.and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
    counting.unwrap_or_else(|error| {
        let file = file.display();
        tracing::warn!(%error, %file, "totals of policies' traffic begin at zero");
        Counting::default()
    })
}
