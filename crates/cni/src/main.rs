//! The CNI plugin that a container runtime runs: hands one request to the agent.

use std::io::{Read, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut stdin = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut stdin).map(|_| stdin);
    let outcome = antrea_cni::run(|name| std::env::var(name).ok(), read);
    // With standard output gone there is no one left to tell.
    let printed = std::io::stdout().lock().write_all(&outcome.stdout);
    if printed.is_ok() && outcome.succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
