//! Serves an empty cluster until interrupted: `cargo run -p kubelab --example serve -- FILE`.
//!
//! The administrator's kubeconfig is written to FILE.

#![allow(clippy::print_stdout, reason = "a program for a terminal")]

use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("give the kubeconfig to write")?;
    let served = kubelab::testing::start().await?;
    std::fs::write(&file, served.admin_kubeconfig()?)?;
    println!("{} is served; KUBECONFIG={file}", served.url);
    tokio::signal::ctrl_c().await?;
    Ok(())
}
