//! antrea-agent: reads flags and configuration, then runs until a signal.

use std::process::ExitCode;

use antrea_agent::options::Cli;
use clap::Parser;

fn main() -> ExitCode {
    host::memory::use_one_heap();
    antrea_runtime::install_crypto();
    let cli = Cli::parse();
    if let Err(error) = cli.log.init("antrea-agent") {
        eprintln!("antrea-agent: {}", antrea_agent::nodes::chain(&error));
        return ExitCode::FAILURE;
    }
    // One worker beside the main thread: the agent waits far more than it computes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // What they do is short (netlink, small files) and takes turns in the kernel anyway. More
        // would stay, with their memory, as long as each has something to do now and then.
        .max_blocking_threads(8)
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(antrea_agent::run(cli)),
        Err(error) => Err(anyhow::Error::new(error).context("start the async runtime")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
