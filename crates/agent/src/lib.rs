//! The agent on every node: connects Pods and programs the bridge.
//!
//! Decisions (`mtu`, `datapath`, `peers`, `forwarding::diff`, `cni::plan`) are pure; the rest wires
//! them to the drivers in `switch` and `host`. Nothing here writes a flow by itself: everything
//! goes through `switch::bridge`.

mod api_nodes;
mod bring_up;
pub mod cleanup;
pub mod cni;
pub mod database;
pub mod datapath;
mod early;
pub mod forwarding;
pub mod gateway;
pub mod guards;
pub mod health;
pub mod info;
pub mod metrics;
pub mod mtu;
pub mod netdev;
pub mod node_loop;
pub mod nodes;
pub mod options;
pub mod own_node;
pub mod peers;
pub mod policy;
pub mod proxy;
mod run;
pub mod upkeep;

use anyhow::Context;

use options::{Cli, Command, Options};

/// Runs what the command line asks for.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    let options = Options::load(&cli)?;
    match cli.command {
        Some(Command::Cleanup) => cleanup::run(&options).await,
        None => {
            let stop = antrea_runtime::shutdown::on_signals().context("catch signals")?;
            run::run(options, stop).await
        }
    }
}
