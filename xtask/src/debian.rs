//! Debian's packages, fetched and unpacked beside the build without being installed: no service of
//! theirs is started, and nothing of the machine changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// Fetches a package and unpacks it into an empty `dir`; returns the root of its files.
pub(crate) fn unpack(package: &str, dir: &Path) -> Result<PathBuf> {
    println!("fetching {package}");
    let _ = fs::remove_dir_all(dir);
    let root = dir.join("root");
    fs::create_dir_all(&root).with_context(|| format!("make {}", root.display()))?;
    // The user of the sandbox does not see this directory.
    let mut fetch = Command::new("apt-get");
    fetch.args(["download", "-qq", "-o", "APT::Sandbox::User=root", package]);
    workspace::run(fetch.current_dir(dir))?;
    let entries = fs::read_dir(dir).context("list what was fetched")?;
    let deb = entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .with_context(|| format!("{package} was not fetched"))?;
    workspace::run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(&root))?;
    Ok(root)
}

/// The programs of several packages as a search path, fetched once and kept under `dir`.
pub(crate) fn search_path(packages: &[&str], dir: &Path) -> Result<Vec<PathBuf>> {
    let mut path = Vec::new();
    for package in packages {
        let kept = dir.join(package);
        if !kept.exists() {
            let part = dir.join("part");
            let root = unpack(package, &part)?;
            // Whole, or not there at all: an interrupted run begins anew.
            fs::rename(&root, &kept).with_context(|| format!("keep {package}"))?;
            let _ = fs::remove_dir_all(&part);
        }
        let dirs = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|bin| kept.join(bin));
        path.extend(dirs.into_iter().filter(|dir| dir.is_dir()));
    }
    Ok(path)
}
