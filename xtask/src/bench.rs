//! Measures the budgets: builds what is needed and lets `antrea-lab bench` print the figures.

use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace;

/// Computations that are measured apart from any cluster: name, package, example, arguments.
const COMPUTATIONS: &[(&str, &str, &str, &[&str])] = &[
    ("policy-large", "policy", "large", &["small"]),
    ("policy-one-namespace", "policy", "large", &["one"]),
    ("flows", "switch", "bench_flows", &["100000", "15"]),
    ("services-switch", "switch", "bench_services", &[]),
];

/// What a lab that is made for it can tell (`antrea-lab bench`).
const LAB: &[&str] = &["network", "policy", "services", "load", "scale"];

/// Runs the benchmarks whose name contains one of `only`, or all.
pub(crate) fn run(only: &[String]) -> Result<()> {
    let chosen = |name: &str| only.is_empty() || only.iter().any(|part| name.contains(part));
    let names: Vec<&str> =
        COMPUTATIONS.iter().map(|(name, ..)| *name).chain(LAB.iter().copied()).collect();
    if !names.iter().any(|name| chosen(name)) {
        bail!("nothing is called {}: there are {}", only.join(", "), names.join(", "));
    }
    for (name, package, example, args) in COMPUTATIONS.iter().filter(|(name, ..)| chosen(name)) {
        println!(
            "{name}: cargo run --release -p {package} --example {example} -- {}",
            args.join(" ")
        );
        let build =
            ["run", "--quiet", "--release", "--locked", "-p", package, "--example", example];
        workspace::run(workspace::cargo(&build).arg("--").args(*args))?;
    }
    let lab = workspace::target_dir().join("release/antrea-lab");
    if !lab.exists() {
        bail!("{} is not built: run `make build`", lab.display());
    }
    for what in LAB.iter().filter(|what| chosen(what)) {
        workspace::run(Command::new(&lab).args(["bench", what]))?;
    }
    Ok(())
}
