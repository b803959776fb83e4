//! Ends a lab: whatever `up` recorded or marked is gone afterwards, and the machine as before.
//!
//! Works after a crash of anything, at any point of `up`: every step takes what is not there for
//! done, goes on after a failure, and reports all failures at the end.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use crate::error::{LabError, Result};
use crate::process::{self, ProcessId};
use crate::sandbox::Runtime;
use crate::state::{Mode, Store};
use crate::sysctl::SharedSysctls;
use crate::ui::{self, Progress};
use crate::{interrupt, netns, topology};

/// How long a process has to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Ends the lab of this store and removes its directory.
///
/// # Errors
/// With everything that could not be undone; the state file then stays for another try.
pub fn run(store: &Store, progress: &Progress) -> Result<()> {
    // Cleaning up is what the user asked for: an earlier Ctrl-C must not stop it.
    let _shield = interrupt::shield();
    let state = store.get();
    let layout = store.layout();
    let mut failed = Vec::new();

    // Kubelets first: they would restart the containers that are ended here.
    let recorded: Vec<_> = state.processes.iter().rev().cloned().collect();
    let (kubelets, others): (Vec<_>, Vec<_>) = recorded.iter().partition(|p| p.role == "kubelet");
    end(&kubelets.iter().map(|p| p.id).collect::<Vec<_>>(), &mut failed);

    if state.mode == Mode::External
        && let Err(error) = crate::cluster::foreign::remove(store)
    {
        // The cluster may be gone already; the lab goes all the same.
        ui::warn(format!("what the lab made stays in the cluster: {}", error.chain()));
    }

    let mut namespaces: BTreeSet<_> = state.namespaces.iter().cloned().collect();
    let mut ids: Vec<ProcessId> = others.iter().map(|p| p.id).collect();
    for node in &state.nodes {
        for sandbox in Runtime::new(layout, &node.name).list() {
            if !sandbox.host_network {
                namespaces.insert(sandbox.netns.clone());
            }
        }
    }
    // Names that a crash left unrecorded in Pods' directories carry this lab's prefix.
    let named = netns::with_prefix(&format!("{}pod-", layout.prefix()));
    namespaces.extend(named.into_iter().filter(|path| layout.owns_netns(path)));
    ids.extend(process::marked(layout.dir()));
    let me = ProcessId::me();
    let ours = netns::identity(std::path::Path::new("/proc/self/ns/net"));
    for path in namespaces.iter().filter(|p| netns::exists(p)) {
        let identity = netns::identity(path);
        if let Some(identity) = identity.filter(|_| identity != ours) {
            ids.extend(process::inside_netns(identity));
        }
    }
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| Some(*id) != me);
    progress.step(&format!("ending {} processes", ids.iter().filter(|p| p.is_alive()).count()));
    end(&ids, &mut failed);

    progress.step(&format!("removing {} namespaces", namespaces.len()));
    let pods = namespaces.iter().filter(|p| !state.namespaces.contains(p));
    for path in pods {
        if let Err(error) = netns::remove(path) {
            failed.push(error.chain());
        }
    }
    if let Err(error) = topology::remove_namespaces(store) {
        failed.push(error.chain());
    }
    if let Err(error) = SharedSysctls::default().release(layout.dir()) {
        failed.push(error.chain());
    }
    if !failed.is_empty() {
        return Err(LabError::new(failed.join("; ")).hint(format!(
            "{} can be tried again; what is left is in lab.json",
            layout.command("down")
        )));
    }
    // The state file goes last: until then another `down` knows what to do.
    remove_dir(store)?;
    Ok(())
}

fn end(ids: &[ProcessId], failed: &mut Vec<String>) {
    for id in process::end_all(ids, GRACE) {
        failed.push(format!("process {} does not end", id.pid));
    }
}

fn remove_dir(store: &Store) -> Result<()> {
    let dir = store.layout().dir();
    let failed =
        |error: std::io::Error| LabError::new(format!("remove {}: {error}", dir.display()));
    for entry in fs::read_dir(dir).map_err(failed)?.flatten() {
        let path = entry.path();
        if path == store.layout().state_file() {
            continue;
        }
        let removed =
            if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(failed)?;
    }
    fs::remove_file(store.layout().state_file()).map_err(failed)?;
    fs::remove_dir(dir).map_err(failed)
}
