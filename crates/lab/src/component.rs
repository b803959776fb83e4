//! Stops, kills and starts single processes of a lab, and reboots nodes, so that faults can be
//! injected.

use std::fs;
use std::time::Duration;

use clap::ValueEnum;
use nix::sys::signal::Signal;

use crate::cli::{ClusterComponent, NodeComponent};
use crate::cluster::controllers;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::process::{self, ProcessId};
use crate::sandbox::Runtime;
use crate::state::{Mode, SchedulerChoice, Store};
use crate::{agent, cluster, netns, ovs, pods, topology};

/// How long a process that was asked to end has for it.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// How long the kernel has to end a killed one.
const KILL_PATIENCE: Duration = Duration::from_secs(5);

/// Asks a component of a node to end and waits until it has.
///
/// # Errors
/// When it does not run, or does not end.
pub fn stop(store: &Store, node: &str, component: NodeComponent) -> Result<()> {
    end(store, Some(node), role(component), Signal::SIGTERM)
}

/// Kills a component of a node with SIGKILL and waits until it is gone.
///
/// # Errors
/// When it does not run.
pub fn kill(store: &Store, node: &str, component: NodeComponent) -> Result<()> {
    end(store, Some(node), role(component), Signal::SIGKILL)
}

/// Starts a component of a node that does not run and waits until it answers.
///
/// # Errors
/// When it runs already, or does not come up.
pub fn start(store: &Store, node: &str, component: NodeComponent) -> Result<()> {
    store.get().node(node)?;
    let end = format!("node kill {node} {}", component.name());
    refuse_running(store, Some(node), role(component), &end)?;
    match component {
        NodeComponent::Agent => {
            agent::start(store, node)?;
            agent::await_ready(store, node)
        }
        NodeComponent::Vswitchd => ovs::start_vswitchd(store, node),
        NodeComponent::Ovsdb => {
            ovs::start_ovsdb(store, node)?;
            // Alone it is of no use to who starts it by hand.
            if runs(store, node, NodeComponent::Vswitchd) {
                ovs::await_switch(store, node)?;
            }
            Ok(())
        }
        NodeComponent::Kubelet if store.get().mode == Mode::Standalone => {
            Err(LabError::new("a lab without an API server has no kubelet"))
        }
        NodeComponent::Kubelet => cluster::start_kubelet(store, node),
    }
}

/// Whether a component of a node runs.
#[must_use]
pub fn runs(store: &Store, node: &str, component: NodeComponent) -> bool {
    store.get().process(role(component), Some(node)).is_some_and(ProcessId::is_alive)
}

/// Asks a component outside of nodes to end and waits until it has.
///
/// # Errors
/// When it does not run, or does not end.
pub fn stop_cluster(store: &Store, component: ClusterComponent) -> Result<()> {
    end(store, None, cluster_role(component), Signal::SIGTERM)
}

/// Kills a component outside of nodes with SIGKILL and waits until it is gone.
///
/// # Errors
/// When it does not run.
pub fn kill_cluster(store: &Store, component: ClusterComponent) -> Result<()> {
    end(store, None, cluster_role(component), Signal::SIGKILL)
}

/// Starts a component outside of nodes that does not run.
///
/// # Errors
/// When it runs already, the lab has none, or it does not come up.
pub fn start_cluster(store: &Store, component: ClusterComponent) -> Result<()> {
    let state = store.get();
    if state.mode == Mode::Standalone {
        return Err(LabError::new("this lab has no API server and nothing that needs one"));
    }
    let role = cluster_role(component);
    refuse_running(store, None, role, &format!("component kill {role}"))?;
    match component {
        ClusterComponent::Apiserver => cluster::start_api(store),
        ClusterComponent::Controller => controllers::start(store, 1),
        ClusterComponent::Controller2 => controllers::start(store, 2),
        ClusterComponent::Controller3 => controllers::start(store, 3),
        ClusterComponent::Scheduler if state.scheduler == SchedulerChoice::Theirs => {
            Err(LabError::new("this lab was started with --no-scheduler"))
        }
        ClusterComponent::Scheduler => cluster::start_scheduler(store),
    }
}

/// Does to a node what a reboot does: processes, namespaces and the run directories are gone, disks
/// stay. Then starts what starts at boot, and the node's Pods in new sandboxes.
///
/// # Errors
/// When something does not come up.
pub fn reboot(store: &Store, node: &str) -> Result<()> {
    let state = store.get();
    let n = state.node(node)?.n;
    let paths = store.layout().node(node);
    let ours = state.processes.iter().filter(|p| p.node.as_deref() == Some(node)).map(|p| p.id);
    let left = process::end_all(&ours.collect::<Vec<_>>(), Duration::ZERO);
    if !left.is_empty() {
        return Err(LabError::new(format!("processes of {node} do not end: {left:?}")));
    }
    let runtime = Runtime::new(store.layout(), node);
    let sandboxes = runtime.list();
    for sandbox in &sandboxes {
        runtime.end_containers(sandbox, Duration::ZERO);
        if !sandbox.host_network {
            netns::remove(&sandbox.netns)?;
        }
    }
    topology::remove_node(store, n, node)?;
    clear_run_dirs(&paths)?;

    topology::make_node(store, n, node)?;
    ovs::start(store, node)?;
    agent::prepare(store, node)?;
    agent::start(store, node)?;
    agent::await_ready(store, node)?;
    if state.mode != Mode::Standalone {
        return cluster::start_kubelet(store, node);
    }
    for sandbox in sandboxes {
        pods::renew(store, &sandbox)?;
    }
    Ok(())
}

/// Removes what is in memory only: sockets and pid files.
fn clear_run_dirs(node: &NodeLayout) -> Result<()> {
    let run = node.run();
    match fs::remove_dir_all(&run) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).doing(|| format!("remove {}", run.display()));
        }
        _ => {}
    }
    let _ = fs::remove_file(node.kubelet_sock());
    let dir = node.ovs();
    let files = fs::read_dir(&dir).doing(|| format!("read {}", dir.display()))?;
    for file in files.flatten().filter(|file| file.file_name() != "conf.db") {
        let path = file.path();
        fs::remove_file(&path).doing(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

fn end(store: &Store, node: Option<&str>, role: &str, signal: Signal) -> Result<()> {
    let state = store.get();
    if let Some(node) = node {
        state.node(node)?;
    }
    let id = state.process(role, node).filter(|id| id.is_alive()).ok_or_else(|| {
        let place = node.map(|n| format!(" on {n}")).unwrap_or_default();
        LabError::new(format!("{role} does not run{place}"))
            .hint(format!("{} shows what runs", store.layout().command("status")))
    })?;
    id.signal(signal);
    let patience = if signal == Signal::SIGKILL { KILL_PATIENCE } else { STOP_PATIENCE };
    wait_for(patience, &format!("{role} ends"), || (!id.is_alive()).then_some(()))
}

fn refuse_running(store: &Store, node: Option<&str>, role: &str, end: &str) -> Result<()> {
    if !store.get().process(role, node).is_some_and(ProcessId::is_alive) {
        return Ok(());
    }
    let place = node.map(|n| format!(" on {n}")).unwrap_or_default();
    Err(LabError::new(format!("{role} runs{place}"))
        .hint(format!("{} ends it", store.layout().command(end))))
}

fn role(component: NodeComponent) -> &'static str {
    match component {
        NodeComponent::Agent => agent::ROLE,
        NodeComponent::Vswitchd => ovs::ROLE_VSWITCHD,
        NodeComponent::Ovsdb => ovs::ROLE_OVSDB,
        NodeComponent::Kubelet => cluster::ROLE_KUBELET,
    }
}

/// The component of a node that has this role in the state file.
#[must_use]
pub fn of_role(role_name: &str) -> Option<NodeComponent> {
    NodeComponent::value_variants().iter().copied().find(|c| role(*c) == role_name)
}

fn cluster_role(component: ClusterComponent) -> &'static str {
    match component {
        ClusterComponent::Apiserver => cluster::ROLE_API,
        ClusterComponent::Controller => controllers::role(1),
        ClusterComponent::Controller2 => controllers::role(2),
        ClusterComponent::Controller3 => controllers::role(3),
        ClusterComponent::Scheduler => cluster::ROLE_SCHEDULER,
    }
}
