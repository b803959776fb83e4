//! Runs `ip` in batches: many link, address and route commands for the price of one process.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::error::{Doing, LabError, Result};
use crate::netns;
use crate::preflight::program;

/// Runs the lines inside a namespace; the first that fails stops the batch.
///
/// # Errors
/// When `ip` cannot be run or refuses a line; its own message is in the error.
pub fn batch(netns: &Path, lines: &[String]) -> Result<()> {
    netns::enter(netns, || batch_here(lines))?
}

/// The same in the namespace of the calling thread.
///
/// # Errors
/// As [`batch`].
pub fn batch_here(lines: &[String]) -> Result<()> {
    let mut child = program("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .doing(|| "run ip".into())
        .map_err(|e| e.hint("install the package iproute2"))?;
    if let Some(mut stdin) = child.stdin.take() {
        let text = lines.join("\n") + "\n";
        stdin.write_all(text.as_bytes()).doing(|| "write to ip".into())?;
    }
    let output = child.wait_with_output().doing(|| "wait for ip".into())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(LabError::new(format!("ip refused: {}", said.trim().replace('\n', "; "))))
}
