//! Layering and the rules that no lint expresses.
//!
//! Data and decision crates depend on no runtime, no client and no I/O crate; programs are started
//! only where ARCHITECTURE.md says so. A failure names the crate or file and the rule.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::workspace;

/// What a crate may depend on, among our own crates. Dev-dependencies are free.
const LAYERS: &[(&str, &[&str])] = &[
    ("openflow", &[]),
    ("ovsdb", &[]),
    ("apis", &[]),
    ("addresses", &[]),
    ("antrea-config", &[]),
    ("cni-api", &[]),
    ("pipeline", &["openflow"]),
    ("policy", &["apis", "openflow", "pipeline"]),
    ("services", &["apis", "openflow", "pipeline"]),
    ("switch", &["openflow", "ovsdb"]),
    ("host", &[]),
    ("antrea-runtime", &[]),
    ("apiserver", &[]),
    ("kube-io", &["apis"]),
    ("kubelab", &["apiserver"]),
    ("antrea-cni", &["cni-api"]),
    (
        "antrea-agent",
        &[
            "antrea-config",
            "antrea-runtime",
            "apis",
            "cni-api",
            "host",
            "kube-io",
            "openflow",
            "ovsdb",
            "pipeline",
            "policy",
            "services",
            "switch",
        ],
    ),
    (
        "antrea-controller",
        &["addresses", "antrea-config", "antrea-runtime", "apis", "apiserver", "kube-io", "policy"],
    ),
    (
        "antrea-lab",
        &[
            "antrea-runtime",
            "apis",
            "apiserver",
            "cni-api",
            "host",
            "kube-io",
            "kubelab",
            "openflow",
            "ovsdb",
            "pipeline",
            "switch",
        ],
    ),
    ("antctl", &["apis", "policy"]),
    ("testkit", &[]),
    ("xtask", &["antrea-config", "apis", "apiserver", "pipeline"]),
];

/// Crates that hold data or decisions: no socket, clock, task or lock.
const PURE: &[&str] =
    &["openflow", "ovsdb", "apis", "addresses", "antrea-config", "pipeline", "policy", "services"];

/// What a pure crate must not reach, even through another crate.
const IMPURE: &[&str] = &[
    "tokio",
    "kube-client",
    "kube-runtime",
    "hyper",
    "tonic",
    "netlink-sys",
    "nix",
    "socket2",
    "rustls",
];

/// Crates that may start other programs.
const MAY_EXEC: &[&str] = &["host", "testkit", "lab", "xtask"];

/// What is only there for the lab must not outgrow it: folders, and how many lines of code they may
/// hold. Comments, blank lines and tests do not count.
const CEILINGS: &[(&str, usize)] =
    &[("crates/kubelab/src/", 6000), ("crates/lab/src/kubelet", 3000)];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<NodeDep>,
}

#[derive(Deserialize)]
struct NodeDep {
    pkg: String,
    dep_kinds: Vec<DepKind>,
}

#[derive(Deserialize)]
struct DepKind {
    kind: Option<String>,
}

/// Runs every rule and lists all that fail.
pub(crate) fn run() -> Result<()> {
    let metadata = metadata()?;
    let mut faults = Vec::new();
    layering(&metadata, &mut faults);
    purity(&metadata, &mut faults);
    banned_packages(&metadata, &mut faults);
    sources(&mut faults)?;
    if faults.is_empty() {
        println!("tidy: {} crates, all arrows point one way", metadata.workspace_members.len());
        return Ok(());
    }
    for fault in &faults {
        println!("tidy: {fault}");
    }
    bail!("{} rule(s) broken", faults.len());
}

fn metadata() -> Result<Metadata> {
    let output = workspace::cargo(&["metadata", "--format-version", "1", "--locked"])
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("read cargo metadata")
}

fn members(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    metadata.packages.iter().filter(|package| metadata.workspace_members.contains(&package.id))
}

fn layering(metadata: &Metadata, faults: &mut Vec<String>) {
    let allowed: BTreeMap<_, _> = LAYERS.iter().copied().collect();
    let ours: BTreeSet<_> = members(metadata).map(|package| package.name.as_str()).collect();
    for package in members(metadata) {
        let Some(allowed) = allowed.get(package.name.as_str()) else {
            faults.push(format!("{} has no layer: add it to LAYERS", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let name = dependency.name.as_str();
            if dependency.kind.is_none() && ours.contains(name) && !allowed.contains(&name) {
                faults.push(format!("{} must not depend on {name}", package.name));
            }
        }
    }
}

fn purity(metadata: &Metadata, faults: &mut Vec<String>) {
    let names: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, package.name.as_str())).collect();
    let nodes: BTreeMap<_, _> =
        metadata.resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    for package in members(metadata).filter(|package| PURE.contains(&package.name.as_str())) {
        let mut seen = BTreeSet::new();
        let mut open = vec![&package.id];
        while let Some(id) = open.pop() {
            let Some(node) = nodes.get(id) else { continue };
            for dep in &node.deps {
                let normal = dep.dep_kinds.iter().any(|kind| kind.kind.is_none());
                if normal && seen.insert(&dep.pkg) {
                    open.push(&dep.pkg);
                }
            }
        }
        for name in seen.iter().filter_map(|id| names.get(*id)) {
            if IMPURE.contains(name) {
                faults.push(format!("{} is pure, yet {name} is in its tree", package.name));
            }
        }
    }
}

/// Two TLS providers in one program make rustls panic at its first use.
fn banned_packages(metadata: &Metadata, faults: &mut Vec<String>) {
    for package in &metadata.packages {
        if ["aws-lc-rs", "aws-lc-sys", "openssl-sys", "native-tls"].contains(&package.name.as_str())
        {
            faults.push(format!("{} is in the graph: ring is the only provider", package.name));
        }
    }
}

fn sources(faults: &mut Vec<String>) -> Result<()> {
    let mut sizes = vec![0; CEILINGS.len()];
    for path in workspace::tracked(".", ".rs")? {
        let Ok(text) = fs::read_to_string(workspace::root().join(&path)) else { continue };
        let shown = path.display().to_string();
        let mut parts = path.components().map(|part| part.as_os_str().to_string_lossy());
        let first = parts.next().unwrap_or_default();
        let owner = if first == "crates" {
            parts.next().unwrap_or_default().into_owned()
        } else {
            first.into_owned()
        };
        let is_test = shown.contains("/tests/")
            || shown.ends_with("tests.rs")
            || shown.contains("/examples/");
        let generated = shown.contains("/generated/");
        // Cargo takes `tests/foo.rs` for a test of its own; what tests share has to be a mod.rs.
        if path.file_name().is_some_and(|name| name == "mod.rs") && !is_test {
            faults.push(format!("{shown}: use foo.rs beside foo/, not mod.rs"));
        }
        let lines = text.lines().count();
        if lines > 800 && !is_test && !generated {
            faults.push(format!("{shown}: {lines} lines, split it (two ideas in one file?)"));
        }
        if generated {
            continue;
        }
        let product = text.split("#[cfg(test)]").next().unwrap_or_default();
        for ((folder, _), size) in CEILINGS.iter().zip(&mut sizes) {
            let counts = shown.starts_with(folder) && !is_test && !shown.ends_with("/testing.rs");
            *size += if counts { code_lines(product) } else { 0 };
        }
        for (number, line) in product.lines().enumerate() {
            let at = format!("{shown}:{}", number + 1);
            let starts = line.contains("Command::new(");
            if starts && !is_test && !MAY_EXEC.contains(&owner.as_str()) {
                faults.push(format!("{at}: only {MAY_EXEC:?} start programs"));
            }
            let reads_clock = line.contains("Instant::now(") || line.contains("SystemTime::now(");
            if reads_clock && !is_test && PURE.contains(&owner.as_str()) {
                faults.push(format!("{at}: a pure crate reads no clock"));
            }
        }
    }
    for ((folder, ceiling), size) in CEILINGS.iter().zip(sizes) {
        if size > *ceiling {
            faults.push(format!("{folder}: {size} lines of code, over its ceiling of {ceiling}"));
        }
    }
    Ok(())
}

/// Lines that are neither blank nor a comment.
fn code_lines(text: &str) -> usize {
    let lines = text.lines().map(str::trim_start);
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}
