//! The CNI plugin that a container runtime runs: hands one request to the agent.

use std::io::{Read, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(argument) = std::env::args_os().nth(1) {
        return tell(&argument.to_string_lossy());
    }
    let mut stdin = Vec::new();
    let read = std::io::stdin().lock().read_to_end(&mut stdin).map(|_| stdin);
    let outcome = antrea_cni::run(|name| std::env::var(name).ok(), read);
    // With standard output gone there is no one left to tell.
    let printed = std::io::stdout().lock().write_all(&outcome.stdout);
    if printed.is_ok() && outcome.succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Answers who calls by hand; waiting for standard input would look like hanging.
fn tell(argument: &str) -> ExitCode {
    let Some(answer) = antrea_cni::answer_to(argument) else {
        let complaint = format!("antrea-cni: unknown argument {argument:?}; see --help\n");
        _ = std::io::stderr().lock().write_all(complaint.as_bytes());
        return ExitCode::from(2);
    };
    let printed = std::io::stdout().lock().write_all(answer.as_bytes());
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
