//! Two ways of packets, compared: figures of both are taken in turn, so that what the machine does
//! beside hits both.
//!
//! Where there are two processors, the switch has one and the ends of the ways the other: where the
//! scheduler puts them otherwise changes a round trip by half from one moment to the next.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::error::{Doing, LabError, Result};
use crate::measure::{self, summarise};
use crate::process::ProcessId;

/// Times that each figure is taken of each way.
pub(super) const ROUNDS: usize = 15;
/// Exchanges over one connection of each way, in a round; in turn.
const EXCHANGES: usize = 500;
/// Connections of each way, in a round; so many of one, then so many of the other.
const CONNECTIONS: usize = 150;
const IN_A_ROW: usize = 10;
/// One stream's time, in a round.
const STREAM: Duration = Duration::from_secs(1);

/// Compares `ours` with `other`, and says how.
///
/// # Errors
/// When an exchange fails.
pub(super) fn compare(ours: &Way, other: &Way, vswitchd: &[ProcessId]) -> Result<(Value, String)> {
    let pinned = Pinned::new(vswitchd)?;
    // Each goes first half of the time.
    let rounds = (0..ROUNDS).map(|n| round(ours, other, n % 2 == 0));
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    let how = format!(
        "one TCP stream for {} s, {EXCHANGES} lines over one connection of each in turn, \
         {CONNECTIONS} connections of one line that the client closes first{}",
        STREAM.as_secs(),
        pinned.how()
    );
    let compare = |of: fn(&Round) -> f64| ratio(&rounds, of);
    let values = json!({
        "throughput": compare(|round| round.mbit_per_s),
        "requestResponse": compare(|round| round.exchanges_per_s),
        "connectRequestResponse": compare(|round| round.connections_per_s),
    });
    Ok((values, how))
}

/// One way from a namespace to a server.
#[derive(Clone)]
pub(super) struct Way {
    pub(super) client: PathBuf,
    pub(super) server: SocketAddr,
}

/// What one round gave: more is better for all three.
struct Round {
    exchanges_per_s: f64,
    mbit_per_s: f64,
    connections_per_s: f64,
}

/// Figures of both, taken at the same time.
fn round(ours: &Way, other: &Way, other_first: bool) -> Result<[Round; 2]> {
    let ways = if other_first { [other, ours] } else { [ours, other] };
    let open = |way: &Way| measure::Connection::open(&way.client, way.server);
    let mut lines = [open(ways[0])?, open(ways[1])?];
    let mut exchanges = [Vec::new(), Vec::new()];
    for _ in 0..EXCHANGES {
        for (line, samples) in lines.iter_mut().zip(&mut exchanges) {
            samples.push(line.exchange()?);
        }
    }
    drop(lines);
    let mut connections = [Vec::new(), Vec::new()];
    for _ in 0..CONNECTIONS / IN_A_ROW {
        for (way, samples) in ways.iter().zip(&mut connections) {
            samples.extend(measure::connections(&way.client, way.server, IN_A_ROW)?);
        }
    }
    let per_s = |samples: Vec<f64>| {
        let seen = summarise(samples).ok_or_else(|| LabError::new("no samples"))?;
        Ok::<f64, LabError>(1e6 / seen.median_us)
    };
    let [first_exchanges, second_exchanges] = exchanges;
    let [first_connections, second_connections] = connections;
    let mbit = |way: &Way| measure::throughput(&way.client, way.server, STREAM);
    let first = Round {
        exchanges_per_s: per_s(first_exchanges)?,
        connections_per_s: per_s(first_connections)?,
        mbit_per_s: mbit(ways[0])?.mbit_per_second,
    };
    let second = Round {
        exchanges_per_s: per_s(second_exchanges)?,
        connections_per_s: per_s(second_connections)?,
        mbit_per_s: mbit(ways[1])?.mbit_per_second,
    };
    Ok(if other_first { [second, first] } else { [first, second] })
}

/// Ours over the other: the median of the pairs' ratios, and their spread.
fn ratio(rounds: &[[Round; 2]], of: fn(&Round) -> f64) -> Value {
    let ratios = rounds.iter().map(|[ours, other]| of(ours) / of(other)).collect();
    let hundredths = |value: f64| (value * 100.0).round() / 100.0;
    let median = |which: usize| {
        let values = rounds.iter().filter_map(|round| round.get(which)).map(of).collect();
        summarise(values).map(|seen| seen.median_us.round())
    };
    summarise(ratios).map_or(Value::Null, |seen| {
        json!({
            "ratio": hundredths(seen.median_us),
            "lowest": hundredths(seen.min_us),
            "highest": hundredths(seen.max_us),
            "ours": median(0),
            "other": median(1),
        })
    })
}

/// Keeps the switch and the threads that are started from this one on processors of their own; undone
/// when dropped.
struct Pinned {
    vswitchd: Vec<ProcessId>,
    before: CpuSet,
    apart: bool,
}

impl Pinned {
    fn new(vswitchd: &[ProcessId]) -> Result<Self> {
        let before = sched_getaffinity(ME).doing(|| "read the processors we may use".into())?;
        let usable: Vec<usize> =
            (0..CpuSet::count()).filter(|cpu| before.is_set(*cpu).unwrap_or(false)).collect();
        let apart = usable.len() > 1;
        if let [first, second, ..] = usable[..] {
            for process in vswitchd {
                pin(*process, &only(first)?)?;
            }
            sched_setaffinity(ME, &only(second)?).doing(|| "take a processor".into())?;
        }
        Ok(Self { vswitchd: vswitchd.to_vec(), before, apart })
    }

    fn how(&self) -> &'static str {
        if self.apart { "; ovs-vswitchd on one processor, both ends on another" } else { "" }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Both only end sooner than that.
        let _ = sched_setaffinity(ME, &self.before);
        for process in &self.vswitchd {
            let _ = pin(*process, &self.before);
        }
    }
}

/// The calling thread, as the kernel's calls on affinity name it.
const ME: Pid = Pid::from_raw(0);

fn only(cpu: usize) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(cpu).doing(|| format!("name processor {cpu}"))?;
    Ok(set)
}

/// Moves every thread of a process.
fn pin(process: ProcessId, to: &CpuSet) -> Result<()> {
    let tasks = format!("/proc/{}/task", process.pid);
    let entries = fs::read_dir(&tasks).doing(|| format!("read {tasks}"))?;
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for id in ids {
        sched_setaffinity(Pid::from_raw(id), to).doing(|| "move a thread".into())?;
    }
    Ok(())
}
