//! Measures the budgets: builds what is needed and lets `antrea-lab bench` print the figures.

use std::process::Command;

use anyhow::{Result, bail};

use crate::workspace;

/// Runs the benchmarks whose name contains one of `only`, or all.
pub(crate) fn run(only: &[String]) -> Result<()> {
    let lab = workspace::target_dir().join("release/antrea-lab");
    if !lab.exists() {
        bail!("{} is not built: run `make build`", lab.display());
    }
    workspace::run(Command::new(lab).arg("bench").args(only))
}
