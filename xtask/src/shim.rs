//! Builds programs as they are shipped.
//!
//! `antrea-cni` is started by kubelet's runtime for every Pod, on a host of which nothing is known,
//! so it is small, quick to start and needs no library. What images carry is small because most of
//! a program's memory at rest is its own text, and static because that of libraries counts too.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// What images carry.
const IMAGE_PROGRAMS: [&str; 3] = ["antrea-agent", "antrea-controller", "antctl"];

/// Builds the shim for this machine's kind and puts it into `bin_dir`.
pub(crate) fn build(bin_dir: &Path) -> Result<()> {
    build_static("cni", &["antrea-cni"], bin_dir)
}

/// Builds everything that images carry, and puts it into `bin_dir`.
pub(crate) fn build_images(bin_dir: &Path) -> Result<()> {
    fs::create_dir_all(workspace::root().join(bin_dir))
        .with_context(|| format!("make {}", bin_dir.display()))?;
    build(bin_dir)?;
    build_static("dist", &IMAGE_PROGRAMS, bin_dir)
}

fn build_static(profile: &str, programs: &[&str], bin_dir: &Path) -> Result<()> {
    let triple = host_triple()?;
    // Naming the target keeps the flags from build scripts and derive macros, which cannot be
    // static.
    let mut args = vec!["build", "--locked", "--bins", "--profile", profile, "--target", &triple];
    args.extend(programs.iter().flat_map(|program| ["-p", program]));
    let mut cargo = workspace::cargo(&args);
    workspace::run(cargo.env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    let built = workspace::target_dir().join(&triple).join(profile);
    programs.iter().try_for_each(|program| {
        let (built, wanted) = (built.join(program), workspace::root().join(bin_dir).join(program));
        // Written beside and renamed: the one that is there may be running.
        let fresh = wanted.with_extension("new");
        fs::copy(&built, &fresh)
            .and_then(|_| fs::rename(&fresh, &wanted))
            .with_context(|| format!("put {} to {}", built.display(), wanted.display()))
    })
}

/// What `rustc` compiles for when nobody says.
fn host_triple() -> Result<String> {
    let output = Command::new("rustc").args(["-vV"]).output().context("ask rustc for its host")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).with_context(|| format!("no host in what rustc says: {text}"))
}
