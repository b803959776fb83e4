//! Command line and configuration of the agent.

use std::path::PathBuf;

use antrea_config::{AgentConfig, Environment};
use antrea_runtime::LogArgs;
use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

/// Folder of logs where no flag names one.
const LOG_DIR: &str = "/var/log/antrea";

/// Keys that `--help` explains in full.
fn keys() -> String {
    format!("Configuration keys:\n{}", antrea_config::Component::Agent.describe())
}

/// Connects the Pods of this node and programs its Open vSwitch bridge.
#[derive(Debug, Parser)]
#[command(name = "antrea-agent", version = antrea_runtime::VERSION, after_long_help = keys())]
pub struct Cli {
    /// Configuration file (antrea-agent.conf); without one every key has its default
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
    /// Run without a control plane: the nodes of the cluster are listed in this file
    #[arg(long, value_name = "FILE")]
    pub cluster_file: Option<PathBuf>,
    /// What must survive a reboot
    #[arg(long, value_name = "DIR", default_value = "/var/lib/antrea", global = true)]
    pub state_dir: PathBuf,
    /// Sockets and tokens
    #[arg(long, value_name = "DIR", default_value = "/var/run/antrea", global = true)]
    pub run_dir: PathBuf,
    /// Logging
    #[command(flatten)]
    pub log: LogArgs,
    /// Without a command the agent runs.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program does instead of running the agent.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Remove from this node everything the agent made: bridges, links, routes, rules, leases
    Cleanup,
}

/// Where the list of nodes comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeListSource {
    /// `--cluster-file`.
    File(PathBuf),
    /// The Kubernetes API.
    Api,
}

/// Everything the agent is told at start.
#[derive(Debug)]
pub struct Options {
    /// The configuration file.
    pub config: AgentConfig,
    /// What the environment says.
    pub environment: Environment,
    /// Own node name.
    pub node_name: String,
    /// Where the node list comes from.
    pub source: NodeListSource,
    /// State directory.
    pub state_dir: PathBuf,
    /// Run directory.
    pub run_dir: PathBuf,
    /// Folder of logs that are no log of the agent itself.
    pub log_dir: PathBuf,
}

impl Options {
    /// Reads the configuration file and the environment.
    pub fn load(cli: &Cli) -> Result<Self> {
        let config = match &cli.config {
            None => AgentConfig::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("read configuration {}", path.display()))?;
                AgentConfig::parse(&text)
                    .with_context(|| format!("configuration {}", path.display()))?
            }
        };
        let environment = Environment::from_process();
        let node_name = match &environment.node_name {
            Some(name) => name.clone(),
            None => host_name()?,
        };
        let source = match &cli.cluster_file {
            Some(path) => NodeListSource::File(path.clone()),
            None => NodeListSource::Api,
        };
        Ok(Self {
            config,
            environment,
            node_name,
            source,
            state_dir: cli.state_dir.clone(),
            run_dir: cli.run_dir.clone(),
            log_dir: cli.log.log_dir.clone().unwrap_or_else(|| LOG_DIR.into()),
        })
    }

    /// A whole number of the configuration file, by its key; 0 where it is no such number.
    pub(crate) fn number(&self, key: &str) -> u64 {
        match self.config.values.get(key) {
            Some(antrea_config::Value::Int(number)) => u64::try_from(*number).unwrap_or(0),
            _ => 0,
        }
    }
}

fn host_name() -> Result<String> {
    let name =
        std::fs::read_to_string("/proc/sys/kernel/hostname").context("read the host name")?;
    let name = name.trim().to_lowercase();
    if name.is_empty() {
        bail!("the host has no name: set NODE_NAME");
    }
    Ok(name)
}
