//! The demo: a lab from nothing, a dozen Pods, the matrix, figures, one packet's way, and gone.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;

use crate::echo;
use crate::error::{LabError, Result};
use crate::layout::Layout;
use crate::matrix::{self, Matrix};
use crate::measure::{self, Latency, Throughput};
use crate::pods;
use crate::sandbox::{PodIdentity, Sandbox};
use crate::state::{Mode, Store};
use crate::trace::{self, Trace};
use crate::ui::{self, Progress};
use crate::up::{self, UpOptions};
use crate::{cluster, down, interrupt};

/// Pods of the demo.
const N_PODS: usize = 12;

/// What happens to the lab at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtEnd {
    /// It is ended.
    Down,
    /// It goes on.
    Keep,
}

/// Everything that the demo shows.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DemoReport {
    /// Seconds until all nodes were ready.
    pub up_seconds: Option<f64>,
    /// Number of Pods made.
    pub n_pods: usize,
    /// Seconds until all Pods answered.
    pub pods_seconds: f64,
    /// Who reached whom.
    pub matrix: Matrix,
    /// Figures of one pair.
    pub pair: Option<Pair>,
    /// One packet's way.
    pub trace: Option<Trace>,
}

/// Figures of one pair.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pair {
    /// Who asks and sends.
    pub from: String,
    /// Who answers and receives.
    pub to: String,
    /// Request-response times.
    pub latency: Latency,
    /// One TCP stream.
    pub throughput: Throughput,
}

/// Runs the demo.
///
/// # Errors
/// When something does not come up, or an exchange fails.
pub fn run(
    layout: &Layout,
    options: &UpOptions,
    at_end: AtEnd,
    progress: &Progress,
) -> Result<DemoReport> {
    let store = up::run(layout, options, progress)?;
    let shown = show(&store, progress);
    let keep = at_end == AtEnd::Keep && !interrupt::requested();
    let ended = if keep { store.let_go() } else { down::run(&store, progress) };
    let report = shown?;
    ended?;
    Ok(report)
}

fn show(store: &Store, progress: &Progress) -> Result<DemoReport> {
    let before = progress.seconds();
    progress.step(&format!("making {N_PODS} Pods"));
    make_pods(store, N_PODS, progress)?;
    let pods_seconds = progress.seconds() - before;
    interrupt::check()?;
    progress.step("everyone reaches everyone");
    let matrix = matrix::run(store)?;
    let made = pods::ready(store);
    let pair = match across(&made) {
        Some((from, to)) => {
            progress.step(&format!(
                "latency and throughput {} -> {}",
                from.pod.key(),
                to.pod.key()
            ));
            Some(measure_pair(from, to)?)
        }
        None => None,
    };
    interrupt::check()?;
    let trace = match across(&made) {
        Some((from, to)) => Some(trace::run(store, &from.pod.key(), &to.pod.key(), echo::PORT)?),
        None => None,
    };
    Ok(DemoReport {
        up_seconds: store.get().up_seconds,
        n_pods: made.len(),
        pods_seconds,
        matrix,
        pair,
        trace,
    })
}

/// Makes echo Pods spread over the nodes, in whatever way the lab makes Pods.
///
/// # Errors
/// When one does not come up.
pub fn make_pods(store: &Store, n: usize, progress: &Progress) -> Result<()> {
    if store.get().mode != Mode::Standalone {
        return cluster::make_pods(store, n, progress);
    }
    let nodes = &store.get().nodes;
    std::thread::scope(|scope| {
        let jobs: Vec<_> = nodes
            .iter()
            .enumerate()
            .map(|(i, node)| {
                scope.spawn(move || {
                    for k in (i..n).step_by(nodes.len()) {
                        interrupt::check()?;
                        let name = format!("demo-{}", k + 1);
                        let pod = PodIdentity {
                            namespace: "demo".into(),
                            uid: format!("demo-{name}"),
                            name,
                        };
                        pods::add(store, &node.name, &pod, None)?;
                    }
                    Ok(())
                })
            })
            .collect();
        jobs.into_iter()
            .try_for_each(|j| j.join().unwrap_or_else(|_| Err(LabError::new("a job panicked"))))
    })
}

/// Latency and throughput of a pair.
///
/// # Errors
/// When the connection fails.
pub fn measure_pair(from: &Sandbox, to: &Sandbox) -> Result<Pair> {
    let address = to.addresses().first().copied();
    let address = address.ok_or_else(|| LabError::new("the receiving Pod has no address"))?;
    let target = SocketAddr::new(address, echo::PORT);
    Ok(Pair {
        from: from.pod.key(),
        to: to.pod.key(),
        latency: measure::latency(&from.netns, target, 1000)?,
        throughput: measure::throughput(&from.netns, target, Duration::from_secs(3))?,
    })
}

/// Two Pods on different nodes.
#[must_use]
pub fn across(pods: &[Sandbox]) -> Option<(&Sandbox, &Sandbox)> {
    let first = pods.first()?;
    let second = pods.iter().find(|p| p.node != first.node)?;
    Some((first, second))
}

/// Two Pods on one node.
#[must_use]
pub fn on_one_node(pods: &[Sandbox]) -> Option<(&Sandbox, &Sandbox)> {
    pods.iter()
        .enumerate()
        .find_map(|(i, a)| pods[i + 1..].iter().find(|b| b.node == a.node).map(|b| (a, b)))
}

/// Prints the report for people.
pub fn print(report: &DemoReport) {
    ui::line("");
    matrix::print(&report.matrix);
    if let Some(pair) = &report.pair {
        ui::line("");
        print_pair(pair);
    }
    if let Some(trace) = &report.trace {
        ui::line("");
        ui::line("One packet's way through the tables:");
        trace::print(trace);
    }
}

/// Prints a pair's figures.
pub fn print_pair(pair: &Pair) {
    let (l, t) = (&pair.latency, &pair.throughput);
    ui::line(format!("{} -> {}", pair.from, pair.to));
    let p99 = l.p99_us.map(|v| format!(", p99 {v:.0}")).unwrap_or_default();
    ui::line(format!(
        "  latency: {} exchanges over TCP, min {:.0}, median {:.0}{p99}, max {:.0} microseconds",
        l.n, l.min_us, l.median_us, l.max_us
    ));
    ui::line(format!(
        "  throughput: one TCP stream for {:.1} s, {:.0} Mbit/s",
        t.seconds, t.mbit_per_second
    ));
}
