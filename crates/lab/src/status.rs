//! What runs, what does not: one look at every process, namespace and Pod of a lab.

use serde::Serialize;

use crate::agent;
use crate::error::Result;
use crate::layout::node_address;
use crate::netns;
use crate::sandbox::Runtime;
use crate::state::{Mode, Phase, Store};
use crate::ui;

/// The state of a lab.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Where it is.
    pub dir: String,
    /// Who plays the control plane.
    pub mode: Mode,
    /// How far `up` came.
    pub phase: Phase,
    /// Whether everything that should run does.
    pub healthy: bool,
    /// Seconds that `up` took.
    pub up_seconds: Option<f64>,
    /// Kubeconfig to use it with.
    pub kubeconfig: Option<String>,
    /// Everything that runs outside of nodes.
    pub components: Vec<Component>,
    /// All nodes.
    pub nodes: Vec<NodeStatus>,
}

/// One process.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// What it is.
    pub role: String,
    /// Its pid.
    pub pid: i32,
    /// Whether it runs.
    pub running: bool,
    /// Resident memory.
    pub rss_kb: Option<u64>,
}

/// One node.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Its network namespace.
    pub netns: String,
    /// Whether the agent takes CNI requests.
    pub ready: bool,
    /// Its processes.
    pub components: Vec<Component>,
    /// Number of Pods.
    pub n_pods: usize,
    /// Number of Pods that have a network and whose programs run.
    pub n_pods_ready: usize,
}

/// Looks at a lab.
#[must_use]
pub fn look(store: &Store) -> Status {
    let state = store.get();
    let layout = store.layout();
    let components = |node: Option<&str>| -> Vec<Component> {
        let ours = state.processes.iter().filter(|p| p.node.as_deref() == node);
        let mut found: Vec<Component> = ours
            .map(|p| Component {
                role: p.role.clone(),
                pid: p.id.pid,
                running: p.id.is_alive(),
                rss_kb: p.id.is_alive().then(|| p.id.rss_kb()).flatten(),
            })
            .collect();
        found.sort_by(|a, b| a.role.cmp(&b.role));
        found
    };
    let nodes: Vec<NodeStatus> = state
        .nodes
        .iter()
        .map(|node| {
            let paths = layout.node(&node.name);
            let runtime = Runtime::new(layout, &node.name);
            let pods = runtime.list();
            NodeStatus {
                name: node.name.clone(),
                address: node_address(node.n).to_string(),
                netns: paths.netns().display().to_string(),
                ready: netns::exists(paths.netns()) && agent::is_ready(&paths),
                components: components(Some(&node.name)),
                n_pods_ready: pods.iter().filter(|p| runtime.words(p).0 == "Running").count(),
                n_pods: pods.len(),
            }
        })
        .collect();
    let own = components(None);
    let healthy = state.phase == Phase::Up
        && own.iter().all(|c| c.running)
        && nodes.iter().all(|n| n.ready && n.components.iter().all(|c| c.running));
    Status {
        dir: layout.dir().display().to_string(),
        mode: state.mode,
        phase: state.phase,
        healthy,
        up_seconds: state.up_seconds,
        kubeconfig: kubeconfig(store),
        components: own,
        nodes,
    }
}

/// The kubeconfig to use a lab with, if it has an API server.
#[must_use]
pub fn kubeconfig(store: &Store) -> Option<String> {
    let state = store.get();
    let path = match state.mode {
        Mode::Standalone => return None,
        Mode::Cluster => store.layout().admin_kubeconfig(),
        Mode::External => state.kubeconfig?,
    };
    Some(path.display().to_string())
}

/// Prints the state of a lab.
///
/// # Errors
/// Never for a lab that exists.
pub fn print(status: &Status) -> Result<()> {
    let verdict = if status.healthy { "healthy" } else { "NOT healthy" };
    ui::line(format!("lab in {}: {verdict}", status.dir));
    if let Some(path) = &status.kubeconfig {
        ui::line(format!("export KUBECONFIG={path}"));
    }
    let mut rows = vec![header(&["WHERE", "WHAT", "PID", "STATE", "MEMORY"])];
    rows.extend(status.components.iter().map(|c| component_row("-", c)));
    for node in &status.nodes {
        rows.extend(node.components.iter().map(|c| component_row(&node.name, c)));
    }
    ui::table(&rows);
    ui::line("");
    let mut rows = vec![header(&["NODE", "ADDRESS", "NETWORK", "PODS READY", "NAMESPACE"])];
    rows.extend(status.nodes.iter().map(|n| {
        let ready = if n.ready { "ready" } else { "not ready" };
        vec![
            n.name.clone(),
            n.address.clone(),
            ready.into(),
            format!("{}/{}", n.n_pods_ready, n.n_pods),
            n.netns.clone(),
        ]
    }));
    ui::table(&rows);
    Ok(())
}

fn component_row(node: &str, component: &Component) -> Vec<String> {
    let state = if component.running { "running" } else { "ENDED" };
    let memory = component.rss_kb.map(|kb| format!("{:.1} MB", kb_to_mb(kb))).unwrap_or_default();
    vec![node.into(), component.role.clone(), component.pid.to_string(), state.into(), memory]
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| (*n).to_owned()).collect()
}

#[allow(clippy::cast_precision_loss)] // Memory in kilobytes stays far below 2^52.
fn kb_to_mb(kb: u64) -> f64 {
    kb as f64 / 1024.0
}
