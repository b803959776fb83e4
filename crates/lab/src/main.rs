//! antrea-lab: nodes in namespaces, Pods through the real CNI, scenarios and the demo.

use std::process::ExitCode;

use antrea_lab::cli::Cli;
use antrea_lab::{preflight, run};
use clap::Parser;

fn main() -> ExitCode {
    // Another provider may not be installed before: this is the first statement.
    let _ = rustls::crypto::ring::default_provider().install_default();
    preflight::raise_descriptor_limit();
    run::main(Cli::parse())
}
