//! Tests with Kubernetes' own API server and controller manager, built from their modules.
//!
//! Builds etcd, kube-apiserver, kube-controller-manager and kubectl with Go below the target
//! directory, starts them on an address of loopback (`kubernetes::control_plane`), and has
//! `antrea-lab check --kubeconfig` try the network with them. Not here: what is tried; the scenarios
//! are the lab's.

mod build;
mod control_plane;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::workspace;
use control_plane::ControlPlane;
pub(crate) use control_plane::Family;

/// Scenarios that are tried where none is named: what the API server and its controllers take part
/// in.
const SCENARIOS: [&str; 6] =
    ["kubernetes", "policy", "policy-native", "controllers", "services", "services-node"];
/// The lab's directory; those of its scenarios are beside it.
const LAB_DIR: &str = "/run/antrea-kubernetes";

/// What a run is asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Version of Kubernetes.
    pub version: String,
    /// Version of etcd.
    pub etcd: String,
    /// Where the programs of Kubernetes are, if they need not be built.
    pub bin_dir: Option<PathBuf>,
    /// Where our programs are.
    pub lab_dir: Option<PathBuf>,
    /// Addresses of Pods and Services.
    pub family: Family,
    /// Scenarios of the lab.
    pub scenarios: Vec<String>,
}

/// Runs scenarios with Kubernetes' own control plane.
pub(crate) fn run(options: &Options) -> Result<()> {
    let ours = options.lab_dir.clone().unwrap_or_else(|| workspace::target_dir().join("release"));
    let lab = ours.join("antrea-lab");
    if !lab.exists() {
        bail!("{} is not built: run `make build`", lab.display());
    }
    let dir = std::path::absolute(workspace::target_dir().join("kubernetes"))
        .context("find the target directory")?;
    let programs = match &options.bin_dir {
        Some(dir) => std::path::absolute(dir).context("find the programs")?,
        None => {
            let into = dir.join(format!("v{}", options.version));
            build::programs(&into, &options.version, &options.etcd)?;
            into.join("bin")
        }
    };
    let began = Instant::now();
    let socket = PathBuf::from(format!("{LAB_DIR}.egress"));
    let control_plane = ControlPlane::start(&programs, &dir.join("run"), &socket, options.family)?;
    println!("{} after {:.1} s", control_plane.version()?, began.elapsed().as_secs_f64());
    let checked = check(&lab, &programs, &control_plane, options);
    let logs = control_plane.logs().display().to_string();
    control_plane.stop();
    checked.with_context(|| format!("logs of the control plane are in {logs}"))
}

fn check(lab: &Path, programs: &Path, control: &ControlPlane, options: &Options) -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(lab);
    command.args(["--dir", LAB_DIR, "check", "--ip-family", options.family.name()]);
    command.arg("--kubeconfig").arg(control.kubeconfig());
    command.arg("--egress-socket").arg(control.egress_socket());
    command.arg("--api-server-pid").arg(control.pid_file());
    if options.scenarios.is_empty() {
        command.args(SCENARIOS);
    } else {
        command.args(&options.scenarios);
    }
    // The kubectl of that version.
    workspace::run(command.env("PATH", format!("{}:{path}", programs.display())))
}
