//! `antctl policy`: who may connect to whom, what a change changes, and which rule decides.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};

use ::policy::connectivity::Connectivity;
use ::policy::diff::{Version, changes};

use crate::manifest::Manifests;

mod explain;
mod print;

/// Questions about network policy.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List what may connect to what, one pair a line
    ///
    /// Workloads are named namespace/name, with the kind in brackets when a controller makes their
    /// Pods. Outside addresses are ranges, cut where policies make a difference. Pairs that may not
    /// connect at all are left out. Exit code 1 means that part of the input could not be read as it
    /// was meant; it is named on standard error.
    Connectivity(ConnectivityArgs),
    /// List pairs that may do something else in one set of manifests than in another
    ///
    /// Each pair is followed by the rules that decided before and decide after.
    Diff(DiffArgs),
    /// Tell what happens to one connection, and which rules decide
    Explain(ExplainArgs),
}

/// Arguments of `connectivity`.
#[derive(Debug, Args)]
pub struct ConnectivityArgs {
    /// File or folder with manifests; may be given several times
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    files: Vec<PathBuf>,
    /// Form of the answer
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Output,
}

/// Arguments of `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// File or folder with manifests: first the old ones, then the new ones
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    files: Vec<PathBuf>,
    /// Form of the answer
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Output,
}

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// File or folder with manifests; may be given several times
    #[arg(short, long = "filename", value_name = "PATH", required = true)]
    files: Vec<PathBuf>,
    /// Where the connection comes from: a workload as `connectivity` names it, or an address
    #[arg(value_name = "SRC")]
    source: String,
    /// Where it goes
    #[arg(value_name = "DST")]
    destination: String,
    /// Protocol and destination port, as TCP:80, UDP:53, SCTP:9, ICMP:8/0, or a protocol alone
    #[arg(short, long, value_name = "PROTOCOL:PORT")]
    port: String,
    /// Source port; without it, one that no rule speaks of
    #[arg(long, value_name = "PORT")]
    source_port: Option<u16>,
    /// Form of the answer
    #[arg(short, long, value_name = "FORM", default_value = "text")]
    output: Output,
}

/// Form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Lines for people and grep.
    Text,
    /// JSON.
    Json,
}

/// Runs a command.
pub fn run(
    command: &Command,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    match command {
        Command::Connectivity(args) => connectivity(args, out, err),
        Command::Diff(args) => diff(args, out, err),
        Command::Explain(args) => explain::run(args, out, err),
    }
}

fn connectivity(
    args: &ConnectivityArgs,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let manifests = read(&args.files, err)?;
    let networks = manifests.cluster.networks();
    let map = Connectivity::new(&manifests.cluster, &manifests.workloads, &networks);
    print::lines(&map.lines(), args.output, out)?;
    Ok(code(&[&manifests]))
}

fn diff(args: &DiffArgs, out: &mut dyn Write, err: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let [old, new] = args.files.as_slice() else {
        bail!("diff compares two sets of manifests: -f OLD -f NEW");
    };
    let old = read(std::slice::from_ref(old), err)?;
    let new = read(std::slice::from_ref(new), err)?;
    print::changes(&changes(version(&old), version(&new)), args.output, out)?;
    Ok(code(&[&old, &new]))
}

fn version(manifests: &Manifests) -> Version<'_> {
    Version { cluster: &manifests.cluster, workloads: &manifests.workloads }
}

/// Reads manifests, and says what is wrong with them.
fn read(files: &[PathBuf], err: &mut dyn Write) -> anyhow::Result<Manifests> {
    let manifests = Manifests::read(files).context("read manifests")?;
    for complaint in &manifests.complaints {
        writeln!(err, "{complaint}")?;
    }
    Ok(manifests)
}

/// Success, unless some input was not understood.
fn code(inputs: &[&Manifests]) -> ExitCode {
    let failed = inputs.iter().any(|manifests| manifests.has_errors());
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
