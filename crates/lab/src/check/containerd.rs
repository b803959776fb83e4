//! containerd as the runtime: its `ctr` runs our plugin chain by its own code, a container talks to
//! a Pod of another node and back, and its end leaves nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::leftovers::Holdings;
use super::{Context, Outcome};
use crate::cni::Plugins;
use crate::echo::Answer;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::sandbox::Runtime;
use crate::{netns, preflight};

/// Runs containerd and a container in the calling thread's network namespace.
const SCRIPT: &str = include_str!("containerd.sh");
/// What runs in the container: asks an echo server who it is and who asks.
const ASK: &str = "exec 3<>/dev/tcp/$0/$1; echo who >&3; read -r answer <&3; echo \"$answer\"";
/// The plugins that the node's configuration may name.
const PLUGINS: [&str; 4] = ["antrea", "host-local", "portmap", "bandwidth"];

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let programs = ["containerd", "ctr", "runc", "containerd-shim-runc-v2"];
    if programs.iter().any(|name| preflight::find_program(name).is_none()) {
        let reason = "containerd and runc are not installed";
        return Ok(Outcome::Impossible(reason.into()));
    }
    let store = context.store()?;
    let node = store.layout().node("node-1");
    let server = context.pod("node-2", "containerd-peer")?;
    let before = Holdings::of(&node)?;
    let runtime = Runtime::new(store.layout(), "node-1");
    let host = Host::prepare(store.layout().prefix(), node.dir(), runtime.plugins())?;
    let target = server.target()?;
    let (ip, port) = (target.ip().to_string(), target.port().to_string());
    let printed = host.run(&node, &["/usr/bin/bash", "-c", ASK, &ip, &port])?;
    let answer: Answer = serde_json::from_str(printed.trim())
        .doing(|| format!("read what the container printed: {printed:?}"))?;
    if answer.pod != server.sandbox.pod.key() || answer.own != target.ip() {
        return Err(LabError::new(format!("another than the Pod answered: {answer:?}")));
    }
    if answer.peer == target.ip() || server.sandbox.gateways().contains(&answer.peer) {
        return Err(LabError::new(format!("the container's address was hidden: {answer:?}")));
    }
    let clean = wait_for(Duration::from_secs(10), "nothing is left", || {
        Holdings::of(&node).ok().filter(|now| before.compare(now).is_ok())
    });
    if clean.is_err() {
        before.compare(&Holdings::of(&node)?)?;
    }
    Ok(Outcome::Passed(json!({ "container": answer.peer, "peer": answer.own })))
}

/// What containerd needs of the machine; gone when dropped.
struct Host {
    scratch: PathBuf,
    namespace: String,
    /// The mount point of containerd's own runtime files, if it was not there.
    made: Option<PathBuf>,
}

impl Host {
    fn prepare(prefix: &str, dir: &Path, plugins: &Plugins) -> Result<Self> {
        let mount_point = PathBuf::from("/run/containerd");
        let made = (!mount_point.exists()).then(|| mount_point.clone());
        let host =
            Self { scratch: dir.join("containerd"), namespace: format!("{prefix}check"), made };
        for dir in [&mount_point, &host.rootfs().join("usr"), &host.plugins()] {
            fs::create_dir_all(dir).doing(|| format!("create {}", dir.display()))?;
        }
        // The machine's own programs, as Debian lays them out.
        for name in ["bin", "lib", "lib64"] {
            let link = host.rootfs().join(name);
            symlink(Path::new("usr").join(name), &link)
                .doing(|| format!("make {}", link.display()))?;
        }
        for name in PLUGINS {
            if let Ok(program) = plugins.find(name) {
                copy(&program, &host.plugins().join(name))?;
            }
        }
        Ok(host)
    }

    fn rootfs(&self) -> PathBuf {
        self.scratch.join("rootfs")
    }

    fn plugins(&self) -> PathBuf {
        self.scratch.join("plugins")
    }

    /// Runs a container to its end and gives back what it printed.
    fn run(&self, node: &NodeLayout, argv: &[&str]) -> Result<String> {
        let mut command = Command::new("unshare");
        command
            .env("PATH", preflight::search_path())
            .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "containerd.sh"])
            .args([&self.scratch, &node.cni_conf(), &self.plugins()])
            .arg(&self.namespace)
            .args(argv);
        let output =
            netns::enter(node.netns(), || command.output())?.doing(|| "run containerd".into())?;
        if !output.status.success() {
            let said = [output.stderr, output.stdout].concat();
            let said = String::from_utf8_lossy(&said).trim().replace('\n', "; ");
            return Err(LabError::new(format!("ctr run, {}: {said}", output.status))
                .hint(format!("containerd's log is {}", self.scratch.join("log").display())));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // runc removes the container's cgroups, not the one around them.
        for root in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let _ = fs::remove_dir(root.path().join(&self.namespace));
        }
        let _ = fs::remove_dir(Path::new("/sys/fs/cgroup").join(&self.namespace));
        if let Some(made) = &self.made {
            let _ = fs::remove_dir(made);
        }
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).doing(|| format!("copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))
        .doing(|| format!("make {} executable", to.display()))
}
