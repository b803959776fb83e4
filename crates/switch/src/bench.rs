//! Bulk speed of the reconciler, measured beside `ovs-ofctl` by `examples/bench_flows.rs` and the
//! lab's `bench`.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use openflow::{Action, ConjId, Cookie, Flow, Intent, Match, TableId};
use tokio::time::timeout;

use crate::bridge::{BarrierError, Bridge, BridgeConfig, Owner};

/// Bits 63..48 of the cookies of the bench's flows.
const MARKER: u16 = 0xa17e;
/// The owner of the bench's flows.
const OWNER: Owner = Owner(2);
/// Far beyond what any machine takes.
const DEADLINE: Duration = Duration::from_secs(120);
/// Addresses in one conjunction.
const PER_CONJUNCTION: u32 = 50;

/// Why there is no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The flows were not all taken.
    #[error("program flows")]
    Barrier(#[from] BarrierError),
    /// The switch did not answer.
    #[error("no answer from the switch within {0:?}")]
    Timeout(Duration),
}

/// What one run took.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// From handing the flows over to having them all on the switch.
    pub add: Duration,
    /// The same set again, which sends nothing.
    pub repeat: Duration,
    /// From giving them up to having none on the switch.
    pub remove: Duration,
}

/// Flows as network policies make them: per rule a set of source addresses, each with a
/// conjunction action.
#[must_use]
pub fn conjunctive_flows(n: u32) -> Vec<Flow> {
    (0..n).map(conjunctive_flow).collect()
}

fn conjunctive_flow(number: u32) -> Flow {
    let conjunction = ConjId(1 + number / PER_CONJUNCTION);
    let source = Ipv4Addr::from(0x0a00_0000 + number);
    let cookie = u64::from(MARKER) << 48 | u64::from(OWNER.0) << 40 | u64::from(number);
    Flow::new(TableId(50), 200, Match::new().ip().nw_src(source))
        .cookie(Cookie(cookie))
        .action(Action::Conjunction { id: conjunction, clause: 1, n_clauses: 3 })
}

/// Puts flows on the bridge behind `mgmt_socket`, sets them again, and takes them off.
pub async fn program(mgmt_socket: &Path, flows: Vec<Flow>) -> Result<Figures, BenchError> {
    let mut config = BridgeConfig::new(mgmt_socket, MARKER);
    config.controller_id = None;
    let bridge = Bridge::start(config);
    barrier(&bridge).await?;
    let intents: Vec<Intent> = flows.into_iter().map(Intent::Flow).collect();
    let again = intents.clone();
    let started = Instant::now();
    bridge.set(OWNER, "bench", intents);
    barrier(&bridge).await?;
    let add = started.elapsed();
    let started = Instant::now();
    bridge.set(OWNER, "bench", again);
    barrier(&bridge).await?;
    let repeat = started.elapsed();
    let started = Instant::now();
    bridge.remove(OWNER, "bench");
    barrier(&bridge).await?;
    Ok(Figures { add, repeat, remove: started.elapsed() })
}

/// Resident memory that `n` flows on the bridge cost this process, in bytes for each.
///
/// They come in keys of a thousand, as policies do, so that what is measured is what stays.
pub async fn memory_per_flow(mgmt_socket: &Path, n: u32) -> Result<u64, BenchError> {
    const PER_KEY: u32 = 1000;
    let mut config = BridgeConfig::new(mgmt_socket, MARKER);
    config.controller_id = None;
    let bridge = Bridge::start(config);
    barrier(&bridge).await?;
    let before = resident();
    for first in (0..n).step_by(PER_KEY as usize) {
        let flows = (first..n.min(first.saturating_add(PER_KEY))).map(conjunctive_flow);
        bridge.set(OWNER, &format!("bench{first}"), flows.map(Intent::Flow).collect());
        barrier(&bridge).await?;
    }
    Ok(resident().saturating_sub(before) / u64::from(n.max(1)))
}

/// Resident memory of this process in bytes; 0 where it cannot be told.
fn resident() -> u64 {
    const KIB: u64 = 1024;
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
        })
        .map_or(0, |kib| kib * KIB)
}

async fn barrier(bridge: &Bridge) -> Result<(), BenchError> {
    Ok(timeout(DEADLINE, bridge.barrier()).await.map_err(|_| BenchError::Timeout(DEADLINE))??)
}
