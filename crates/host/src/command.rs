//! Runs the few programs we cannot do without: `nft`, `iptables`, CNI IPAM plugins.
//!
//! Every run has a deadline; a program that exceeds it is killed.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It is not installed.
    #[error("{0} is not installed")]
    Missing(String),
    /// It could not be run.
    #[error("run {program}")]
    Io {
        /// Which program.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// It did not end in time.
    #[error("{program} did not end within {seconds} s")]
    Deadline {
        /// Which program.
        program: String,
        /// How long was waited.
        seconds: u64,
    },
}

/// What a program left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) success: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

/// Runs a program with these arguments, environment additions and input.
pub(crate) async fn run(
    program: &Path,
    args: &[&str],
    env: &[(&str, &OsStr)],
    input: &[u8],
    patience: Duration,
) -> Result<Output, CommandError> {
    let name = || program.display().to_string();
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => CommandError::Missing(name()),
        _ => CommandError::Io { program: name(), source },
    };
    let mut child = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut stdin = child.stdin.take();
    let exchange = async {
        let write = async {
            if let Some(mut stdin) = stdin.take() {
                // A program that ends before it has read everything says why by its status.
                let _ = stdin.write_all(input).await;
            }
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        output
    };
    let output = tokio::time::timeout(patience, exchange)
        .await
        .map_err(|_| CommandError::Deadline { program: name(), seconds: patience.as_secs() })?
        .map_err(failed)?;
    Ok(Output {
        success: output.status.success(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    })
}
