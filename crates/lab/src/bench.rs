//! Figures of a lab made for it: CNI ADD, the plugin's process, a pair's latency and throughput.
//!
//! Each figure comes with what gives it, so that it can be had again. Budgets are `xtask bench`'s
//! business; here only what a running lab can tell.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::cni::{NetworkList, Plugins};
use crate::demo;
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::measure::summarise;
use crate::pods;
use crate::sandbox::{PodIdentity, Runtime, Sandbox};
use crate::state::{self, Mode, Store};
use crate::ui::{self, Progress};
use crate::up::{self, UpOptions};
use crate::variant::Variant;
use crate::{agent, down, interrupt, ip, netns, ovs};

pub mod load;
mod normal;
mod pairs;
pub mod policy;
pub mod scale;
pub mod services;

/// Pods on a node in the ADD figures.
const N_PODS: usize = 110;
/// ADDs at the same time in the second ADD figure.
const AT_ONCE: usize = 20;

/// One figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The values, with their unit in the name.
    pub values: Value,
    /// What gives them.
    pub how: String,
}

/// Measures everything on a lab of two nodes, which is ended afterwards.
///
/// # Errors
/// When the lab does not come up, or a request fails.
pub fn run(dir: &Path, bin_dir: PathBuf, progress: &Progress) -> Result<Vec<Figure>> {
    let options = UpOptions::new(2, Variant::default(), Mode::Standalone, bin_dir);
    on_lab(dir, "bench", &options, progress, measure)
}

/// Makes a lab of this name beside the directory, measures on it, and ends it.
fn on_lab(
    dir: &Path,
    name: &str,
    options: &UpOptions,
    progress: &Progress,
    measure: fn(&Store, &Progress) -> Result<Vec<Figure>>,
) -> Result<Vec<Figure>> {
    let layout = Layout::beside(dir, name)?;
    let _lock = state::lock(&layout)?;
    let store = up::run(&layout, options, &Progress::start())?;
    let measured = measure(&store, progress);
    let ended = down::run(&store, progress);
    let figures = measured?;
    ended?;
    Ok(figures)
}

/// Prints figures for people.
pub fn print(figures: &[Figure]) {
    for figure in figures {
        ui::line(&figure.name);
        ui::line(format!("  {}", figure.values));
        ui::line(format!("  by: {}", figure.how));
    }
}

fn measure(store: &Store, progress: &Progress) -> Result<Vec<Figure>> {
    let mut figures = vec![up_figure(store, "antrea-lab up --standalone --nodes 2")];
    let runtime = Runtime::new(store.layout(), "node-1");
    figures.push(at_rest_figure(store)?);
    progress.step("antrea-cni as a process");
    figures.push(process_figure(&runtime)?);
    for leases in [Leases::BuiltIn, Leases::Installed] {
        progress.step(&format!("CNI ADD, {N_PODS} Pods one by one, {}", leases.name()));
        await_netns_cleanup(store.layout())?;
        figures.push(add_figure(&runtime, leases, 1)?);
        progress.step(&format!("CNI ADD, {N_PODS} Pods, {AT_ONCE} at once, {}", leases.name()));
        await_netns_cleanup(store.layout())?;
        figures.push(add_figure(&runtime, leases, AT_ONCE)?);
    }
    progress.step("latency and throughput");
    for (node, name) in [("node-1", "a"), ("node-1", "b"), ("node-2", "c")] {
        let pod = PodIdentity { namespace: "bench".into(), name: name.into(), uid: name.into() };
        pods::add(store, node, &pod, None)?;
    }
    let made = pods::ready(store);
    for (what, pair) in
        [("on one node", demo::on_one_node(&made)), ("across nodes", demo::across(&made))]
    {
        let (from, to) = pair.ok_or_else(|| LabError::new("the Pods are not where they should"))?;
        let pair = demo::measure_pair(from, to)?;
        figures.push(Figure {
            name: format!("one pair {what}"),
            values: json!({
                "rrMedianUs": pair.latency.median_us.round(),
                "rrP99Us": pair.latency.p99_us.map(f64::round),
                "tcpMbitPerSecond": pair.throughput.mbit_per_second.round(),
            }),
            how: "1,000 lines over one TCP connection; one TCP stream for 3 s; antrea-lab's code"
                .into(),
        });
    }
    progress.step("two Pods of a node against NORMAL");
    let pair = demo::on_one_node(&made);
    let (from, to) = pair.ok_or_else(|| LabError::new("the Pods are not where they should"))?;
    let vswitchd = store.get().process(ovs::ROLE_VSWITCHD, Some("node-1"));
    let vswitchd = vswitchd.ok_or_else(|| LabError::new("no ovs-vswitchd runs"))?;
    let node = store.layout().node("node-1");
    figures.push(normal::figure(store.layout(), &node, vswitchd, [from, to])?);
    Ok(figures)
}

/// How long the lab took until all of its nodes were ready.
fn up_figure(store: &Store, how: &str) -> Figure {
    let state = store.get();
    Figure {
        name: format!("lab up, {} nodes", state.nodes.len()),
        values: json!({ "seconds": state.up_seconds.map(tenths) }),
        how: how.into(),
    }
}

/// The agent's memory before it has a Pod.
fn at_rest_figure(store: &Store) -> Result<Figure> {
    let agent = store.get().process(agent::ROLE, Some("node-1"));
    let kb = agent.and_then(|id| id.rss_kb()).ok_or_else(|| LabError::new("no agent runs"))?;
    Ok(Figure {
        name: "agent at rest, two nodes, no Pod".into(),
        values: json!({ "residentKb": kb }),
        how: "VmRSS of antrea-agent".into(),
    })
}

/// Waits until the kernel has taken down the namespaces that were removed so far. It does so long
/// after their names are gone, one after the other, and holds up every change of a link meanwhile.
fn await_netns_cleanup(layout: &Layout) -> Result<()> {
    let (path, name) = (layout.netns("last"), "ab-last");
    netns::create(&path)?;
    let inside = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let node = layout.node("node-1");
    let pair = format!("link add {name} type veth peer name {name} netns {inside}");
    ip::batch(node.netns(), &[pair])?;
    netns::remove(&path)?;
    // Its end here goes with the namespace, which is the last in the kernel's queue.
    interrupt::wait_for(Duration::from_secs(60), "removed namespaces are taken down", || {
        let gone = netns::enter(node.netns(), || nix::net::if_::if_nametoindex(name).is_err());
        gone.unwrap_or(false).then_some(())
    })
}

/// Who gives the addresses.
#[derive(Clone, Copy)]
enum Leases {
    /// The agent, as in a cluster where the runtime's plugins are outside its container.
    BuiltIn,
    /// The `host-local` plugin of the machine: one more process for every Pod.
    Installed,
}

impl Leases {
    fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in leases",
            Self::Installed => "installed host-local",
        }
    }

    /// The agent takes `host-local` where it finds it in the runtime's directories.
    fn plugins(self, runtime: &Runtime) -> Plugins {
        let mut plugins = runtime.plugins().clone();
        if matches!(self, Self::BuiltIn) {
            plugins.path.retain(|dir| !dir.join("host-local").exists());
        }
        plugins
    }
}

/// Times ADD of our plugin alone: chained plugins are other people's processes.
fn add_figure(runtime: &Runtime, leases: Leases, at_once: usize) -> Result<Figure> {
    let plugins = leases.plugins(runtime);
    let list = NetworkList::read(&runtime.node().cni_conf())
        .doing(|| "read the configuration".into())?
        .first_only();
    let sandboxes: Vec<Sandbox> = (0..N_PODS)
        .map(|i| {
            let pod = PodIdentity {
                namespace: "bench".into(),
                name: format!("add-{i}"),
                uid: format!("add-{i}"),
            };
            interrupt::check()?;
            let sandbox = runtime.reserve(&pod, false, BTreeMap::new())?;
            netns::create(&sandbox.netns)?;
            Ok(sandbox)
        })
        .collect::<Result<_>>()?;
    let next = AtomicUsize::new(0);
    let times = Mutex::new(Vec::new());
    let outcome: Result<()> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(sandbox) = sandboxes.get(next.fetch_add(1, Ordering::SeqCst)) {
                        interrupt::check()?;
                        let started = Instant::now();
                        plugins
                            .add(&list, &runtime.attachment(sandbox))
                            .doing(|| format!("ADD for {}", sandbox.pod.key()))?;
                        let took = started.elapsed().as_secs_f64() * 1e6;
                        times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(took);
                    }
                    Ok(())
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|w| w.join().unwrap_or_else(|_| Err(LabError::new("a worker panicked"))))
    });
    // The end of the lab removes them as well.
    interrupt::check()?;
    for sandbox in &sandboxes {
        runtime.remove(sandbox).doing(|| "remove a sandbox".into())?;
    }
    outcome?;
    let times = times.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seen = summarise(times).ok_or_else(|| LabError::new("no samples"))?;
    let how = if at_once == 1 { "one by one".to_owned() } else { format!("{at_once} at once") };
    Ok(Figure {
        name: format!("CNI ADD end to end, 0 to {N_PODS} Pods on a node, {how}, {}", leases.name()),
        values: json!({
            "medianMs": tenths(seen.median_us / 1000.0), "maxMs": tenths(seen.max_us / 1000.0),
        }),
        how: "CNI_COMMAND=ADD antrea-cni < conf, process start to exit".into(),
    })
}

/// Time and memory of the plugin's process, without the agent's work.
fn process_figure(runtime: &Runtime) -> Result<Figure> {
    let program = runtime.plugins().find("antrea").doing(|| "find our plugin".into())?;
    let mut times = Vec::new();
    let mut peak_kb = 0;
    for _ in 0..200 {
        interrupt::check()?;
        let started = Instant::now();
        let mut child = version_request(&program)?;
        let mut stdin = child.stdin.take();
        // While it waits for its stdin, it has done all but answer.
        if let Some(stdin) = &mut stdin {
            let _ = stdin.write_all(br#"{"cniVersion":"1.0.0","name":"antrea","type":"antrea"}"#);
        }
        drop(stdin);
        child.wait().doing(|| "wait for antrea-cni".into())?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    for _ in 0..5 {
        let mut child = version_request(&program)?;
        let pid = child.id();
        // Its peak no longer moves once it waits for its stdin, which we keep open for that long.
        let mut before = 0;
        let kb = interrupt::wait_for(Duration::from_secs(5), "antrea-cni reads", || {
            std::thread::sleep(Duration::from_millis(20));
            let now = peak_of(pid).unwrap_or(0);
            let settled = now > 0 && now == before;
            before = now;
            settled.then_some(now)
        })?;
        peak_kb = peak_kb.max(kb);
        drop(child.stdin.take());
        child.wait().doing(|| "wait for antrea-cni".into())?;
    }
    let seen = summarise(times).ok_or_else(|| LabError::new("no samples"))?;
    Ok(Figure {
        name: "antrea-cni as a process, without the agent's work".into(),
        values: json!({
            "medianMs": tenths(seen.median_us / 1000.0), "maxMs": tenths(seen.max_us / 1000.0),
            "peakKb": peak_kb,
        }),
        how: "CNI_COMMAND=VERSION antrea-cni < conf, 200 times; largest of VmHWM and Rss while it reads".into(),
    })
}

/// The largest resident size so far, in KiB. The kernel counts a peak for each processor apart and
/// adds up late, which hides a process this small: what is resident now is counted exactly.
fn peak_of(pid: u32) -> Option<u64> {
    let field = |file: &str, name: &str| -> Option<u64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    Some(field("status", "VmHWM:")?.max(field("smaps_rollup", "Rss:")?))
}

fn version_request(program: &Path) -> Result<std::process::Child> {
    Command::new(program)
        .env("CNI_COMMAND", "VERSION")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .doing(|| "run antrea-cni".into())
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
