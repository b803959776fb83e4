//! What runs, what does not: one look at every process, namespace and Pod of a lab.

use serde::Serialize;

use crate::addressing;
use crate::agent;
use crate::cli::NodeComponent;
use crate::component;
use crate::error::Result;
use crate::health;
use crate::layout::NodeLayout;
use crate::netns;
use crate::quote;
use crate::sandbox::Runtime;
use crate::state::{Mode, Phase, Store};
use crate::ui;
use crate::variant::Variant;

/// The state of a lab.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Where it is.
    pub dir: String,
    /// Who plays the control plane.
    pub mode: Mode,
    /// Families, tunnel and datapath.
    pub variant: Variant,
    /// How far `up` came.
    pub phase: Phase,
    /// Whether everything that should run does, and nothing lacks what it needs.
    pub healthy: bool,
    /// Why it is not healthy.
    pub problems: Vec<String>,
    /// Seconds that `up` took.
    pub up_took_seconds: Option<f64>,
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
    /// Its addresses.
    pub addresses: Vec<std::net::IpAddr>,
    /// Its network namespace.
    pub netns: String,
    /// Whether the agent takes CNI requests and lacks nothing.
    pub ready: bool,
    /// Why it is not ready.
    pub problems: Vec<String>,
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
            let components = components(Some(&node.name));
            let start = |component: NodeComponent| {
                layout.command(&format!("node start {} {}", node.name, component.name()))
            };
            let problems = node_problems(&paths, &components, start);
            NodeStatus {
                name: node.name.clone(),
                addresses: addressing::node(state.variant.family, node.n),
                netns: paths.netns().display().to_string(),
                ready: problems.is_empty(),
                problems,
                components,
                n_pods_ready: pods.iter().filter(|p| runtime.words(p).0 == "Running").count(),
                n_pods: pods.len(),
            }
        })
        .collect();
    let own = components(None);
    let mut problems = Vec::new();
    if state.phase != Phase::Up {
        problems.push(format!("it did not come up; {} ends it", layout.command("down")));
    }
    problems.extend(own.iter().filter(|c| !c.running).map(|c| {
        let start = layout.command(&format!("component start {}", c.role));
        format!("{} does not run; {start} starts it", c.role)
    }));
    for node in &nodes {
        problems.extend(node.problems.iter().map(|p| format!("{}: {p}", node.name)));
    }
    Status {
        dir: layout.dir().display().to_string(),
        mode: state.mode,
        variant: state.variant,
        phase: state.phase,
        healthy: problems.is_empty(),
        problems,
        up_took_seconds: state.up_seconds,
        kubeconfig: kubeconfig(store),
        components: own,
        nodes,
    }
}

/// Why a node is not ready: what does not run, and what its agent says that it lacks.
fn node_problems(
    node: &NodeLayout,
    components: &[Component],
    start: impl Fn(NodeComponent) -> String,
) -> Vec<String> {
    if !netns::exists(node.netns()) {
        return vec!["its network namespace is gone".into()];
    }
    let ended = components.iter().filter(|c| !c.running);
    let mut problems: Vec<_> = ended.map(|c| does_not_run(&c.role, &start)).collect();
    if components.iter().any(|c| c.role == agent::ROLE && c.running) {
        match health::lacks(node.netns(), health::AGENT_PORT) {
            Ok(lacks) => problems.extend(lacks.into_iter().map(|l| format!("the agent lacks {l}"))),
            Err(error) => problems.push(format!("the agent does not answer: {}", error.chain())),
        }
        if problems.is_empty() && !agent::is_ready(node) {
            problems.push("the agent takes no CNI requests".into());
        }
    }
    problems
}

fn does_not_run(role: &str, start: impl Fn(NodeComponent) -> String) -> String {
    match component::of_role(role) {
        Some(component) => format!("{role} does not run; {} starts it", start(component)),
        None => format!("{role} does not run"),
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
    for problem in &status.problems {
        ui::line(format!("  {problem}"));
    }
    if let Some(path) = &status.kubeconfig {
        ui::line(format!("export KUBECONFIG={}", quote::word(path)));
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
            n.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dead_on_a_node_is_named_with_the_command_that_starts_it() {
        let start = |component: NodeComponent| format!("node start node-1 {}", component.name());
        for (role, command) in [
            (crate::ovs::ROLE_VSWITCHD, "node start node-1 vswitchd"),
            (crate::ovs::ROLE_OVSDB, "node start node-1 ovsdb"),
            (agent::ROLE, "node start node-1 agent"),
            (crate::cluster::ROLE_KUBELET, "node start node-1 kubelet"),
        ] {
            assert_eq!(
                does_not_run(role, start),
                format!("{role} does not run; {command} starts it")
            );
        }
    }
}
