//! Builds `antrea-cni` as it is shipped: kubelet's runtime starts it for every Pod, on a host of which
//! nothing is known, so it is small, quick to start and needs no library.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// Builds it for this machine's kind and puts it into `bin_dir`.
pub(crate) fn build(bin_dir: &Path) -> Result<()> {
    let triple = host_triple()?;
    // Naming the target keeps the flags from build scripts and derive macros, which cannot be
    // static.
    let args =
        ["build", "--profile", "cni", "--locked", "-p", "antrea-cni", "--target", triple.as_str()];
    let mut cargo = workspace::cargo(&args);
    workspace::run(cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    let built = workspace::target_dir().join(triple).join("cni/antrea-cni");
    let wanted = workspace::root().join(bin_dir).join("antrea-cni");
    // Written beside and renamed: the one that is there may be running.
    let fresh = wanted.with_extension("new");
    fs::copy(&built, &fresh)
        .and_then(|_| fs::rename(&fresh, &wanted))
        .with_context(|| format!("put {} to {}", built.display(), wanted.display()))
}

/// What `rustc` compiles for when nobody says.
fn host_triple() -> Result<String> {
    let output = Command::new("rustc").args(["-vV"]).output().context("ask rustc for its host")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).with_context(|| format!("no host in what rustc says: {text}"))
}
