//! antrea-controller: reads flags and configuration, and runs until it is told to stop.

use std::process::ExitCode;

use antrea_config::{ControllerConfig, Environment};
use antrea_controller::{Args, Settings};
use anyhow::Context;
use clap::Parser;

/// Most of what the controller does while it reads a large cluster is to make small objects.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    antrea_runtime::install_crypto();
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("antrea-controller: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    args.log.init("antrea-controller").context("start logging")?;
    let text = match &args.config {
        Some(path) => std::fs::read_to_string(path)
            .with_context(|| format!("read configuration {}", path.display()))?,
        None => String::new(),
    };
    let config = ControllerConfig::parse(&text).with_context(|| match &args.config {
        Some(path) => format!("configuration {}", path.display()),
        None => "configuration".into(),
    })?;
    let settings = Settings::new(args, config, Environment::from_process());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = antrea_runtime::shutdown::on_signals().context("catch signals")?;
        Ok(antrea_controller::run(settings, shutdown).await?)
    })
}
