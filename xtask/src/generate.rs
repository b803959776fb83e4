//! Generated files that are committed: the CNI service code and the CRD manifests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::{gen_cni, workspace};

/// What to do with a file that differs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Write it.
    Write,
    /// Fail.
    Check,
}

/// Generates everything and writes or compares it.
pub(crate) fn run(mode: Mode) -> Result<()> {
    let mut stale = Vec::new();
    for (path, content) in files()? {
        let full = workspace::root().join(&path);
        if fs::read_to_string(&full).is_ok_and(|present| present == content) {
            continue;
        }
        match mode {
            Mode::Check => stale.push(path.display().to_string()),
            Mode::Write => {
                let parent = full.parent().context("a generated file has a folder")?;
                fs::create_dir_all(parent)?;
                fs::write(&full, content).with_context(|| format!("write {}", full.display()))?;
                println!("wrote {}", path.display());
            }
        }
    }
    if !stale.is_empty() {
        bail!("out of date: {}; run `cargo xtask gen`", stale.join(", "));
    }
    Ok(())
}

fn files() -> Result<Vec<(PathBuf, String)>> {
    let mut files = vec![(PathBuf::from(gen_cni::OUTPUT), gen_cni::generate()?)];
    for (name, yaml) in apis::crd_yaml() {
        files.push((PathBuf::from("deploy/crds").join(name), yaml));
    }
    Ok(files)
}
