//! The command line of Antrea: questions about network policy.
//!
//! `antctl policy` reads manifests ([`manifest`]), asks the same code that tests hold against the
//! data plane (`policy::verdict`), and prints ([`policy`]). It talks to nobody. `antctl get` asks the
//! agent of this node ([`get`]).

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub mod get;
pub mod manifest;
pub mod policy;

/// The command line of Antrea.
#[derive(Debug, Parser)]
#[command(name = "antctl", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Groups of commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// What the agent of this node knows.
    #[command(subcommand)]
    Get(get::Command),
    /// What manifests let connect to what, without a cluster.
    #[command(subcommand)]
    Policy(policy::Command),
}

/// Runs a command; answers go to `out`, what is wrong with the input to `err`.
pub fn run(cli: Cli, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Get(command) => get::run(&command, out),
        Command::Policy(command) => policy::run(&command, out, err),
    }
}
