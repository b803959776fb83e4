//! Tries every decoder with damaged input: the fuzz tests of the crates, longer and optimized.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::workspace;

/// Runs `executions` inputs through each decoder that has a corpus. A failure prints the input.
pub(crate) fn run(executions: u64, seed: Option<u64>) -> Result<()> {
    let seed = match seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH).context("read the clock")?.as_secs(),
    };
    for package in with_corpus()? {
        println!("{package}: {executions} inputs for each decoder from seed {seed}");
        let args = ["test", "--release", "--locked", "-p", &package, "fuzz", "--", "--nocapture"];
        let mut command = workspace::cargo(&args);
        command.env("FUZZ_EXECS", executions.to_string()).env("FUZZ_SEED", seed.to_string());
        workspace::run(&mut command)?;
    }
    Ok(())
}

/// The packages with a corpus, by the names of their folders, which are theirs.
fn with_corpus() -> Result<Vec<String>> {
    let mut packages = Vec::new();
    for entry in fs::read_dir(workspace::root().join("crates")).context("list crates")? {
        let path = entry.context("list crates")?.path();
        if path.join("fuzz/corpus").is_dir() {
            packages.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    packages.sort();
    Ok(packages)
}
