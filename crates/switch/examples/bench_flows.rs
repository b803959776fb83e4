//! Puts 100,000 conjunctive flows on a real Open vSwitch, by the reconciler and by
//! `ovs-ofctl --bundle`, in turns, and prints the ratio;
//! at the end, as JSON.
//!
//! `cargo run --release -p switch --example bench_flows -- [FLOWS] [PAIRS]`, as root.

use std::fmt::Write as _;
use std::fs;
use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use switch::bench::{conjunctive_flows, memory_per_flow, program};
use switch::ovsdb_session::{BridgeSpec, OvsdbConfig, OvsdbSession};
use testkit::netns::in_netns;
use testkit::ovs::Ovs;

const BRIDGE: &str = "br-int";

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u32>());
    let n_flows = args.next().transpose().context("number of flows")?.unwrap_or(100_000);
    let n_pairs = args.next().transpose().context("number of pairs")?.unwrap_or(15);
    in_netns(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("start runtime")?;
        runtime.block_on(run(n_flows, n_pairs))
    })
}

async fn run(n_flows: u32, n_pairs: u32) -> Result<()> {
    let ovs = Ovs::start(None);
    let session = OvsdbSession::connect(OvsdbConfig::new(ovs.db_sock()));
    session.ensure_bridge(BridgeSpec::secure(BRIDGE, "netdev")).await?;
    session.wait_ofport(BRIDGE, Duration::from_secs(20)).await?;
    let mgmt = ovs.mgmt(BRIDGE);
    let target = mgmt.display().to_string();
    let file = ovs.dir().join("flows.txt");
    let mut ratios = Vec::new();
    let mut out = stdout().lock();
    // First, while the process is small.
    let bytes = memory_per_flow(&mgmt, n_flows).await?;
    writeln!(out, "{bytes} bytes of resident memory for each of {n_flows} flows")?;
    ovs.ofctl_result(&["del-flows", &target])?;
    let mut text = String::new();
    for flow in conjunctive_flows(n_flows) {
        // As add-flows reads it.
        writeln!(text, "{}", flow.to_string().replace(" actions=", ",actions="))?;
    }
    fs::write(&file, text)?;
    let file = file.display().to_string();
    writeln!(out, "ovs-ofctl --bundle -O OpenFlow15 add-flows {target} {file}: {n_flows} flows")?;
    for pair in 1..=n_pairs {
        let started = Instant::now();
        ovs.ofctl_result(&["--bundle", "add-flows", &target, &file])?;
        let theirs = started.elapsed();
        ovs.ofctl_result(&["del-flows", &target])?;
        let flows = conjunctive_flows(n_flows);
        let ours = program(&mgmt, flows).await?;
        let ratio = theirs.as_secs_f64() / ours.add.as_secs_f64();
        writeln!(
            out,
            "pair {pair}: ovs-ofctl {:.0} ms, reconciler {:.0} ms (again {:.0}, remove {:.0}), ratio {ratio:.2}",
            millis(theirs),
            millis(ours.add),
            millis(ours.repeat),
            millis(ours.remove),
        )?;
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    let at = |n: usize| ratios.get(n).map(|ratio| (ratio * 100.0).round() / 100.0);
    let values = json!({
        "ratio": at(ratios.len() / 2), "lowest": at(0), "highest": at(ratios.len() - 1),
        "pairs": ratios.len(), "bytesPerFlow": bytes,
    });
    writeln!(out, "{}", json!([{ "name": format!("flows, {n_flows}"), "values": values }]))?;
    Ok(())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
