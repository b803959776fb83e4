//! The agents are killed and started again while numbered datagrams and a TCP stream run.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Context, Outcome};
use crate::cli::NodeComponent;
use crate::component::{kill, start};
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::traffic::{Datagrams, Stream};

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let a = context.pod("node-1", "restart-1")?;
    let b = context.pod("node-1", "restart-2")?;
    let c = context.pod("node-2", "restart-3")?;
    let began = Instant::now();
    let node = store.layout().node("node-1");
    let mut datagrams = Vec::new();
    for (near, far) in b.targets().into_iter().zip(c.targets()) {
        datagrams.push(Datagrams::start("on one node", &a.sandbox.netns, near)?);
        datagrams.push(Datagrams::start("across nodes", &a.sandbox.netns, far)?);
        datagrams.push(Datagrams::start("node to its Pod", node.netns(), near)?);
    }
    let stream = Stream::start("across nodes", &c.sandbox.netns, a.target()?)?;
    let flowing = |n: u64| {
        let counts: Vec<u64> = datagrams.iter().map(Datagrams::received).collect();
        wait_for(Duration::from_secs(20), "datagrams flow", || {
            let all = datagrams.iter().zip(&counts).all(|(d, before)| d.received() > before + n);
            all.then_some(())
        })
    };
    flowing(500)?;
    let killed = began.elapsed().as_secs_f64();
    for node in ["node-1", "node-2"] {
        kill(store, node, NodeComponent::Agent)?;
    }
    flowing(500)?;
    let restarted = began.elapsed().as_secs_f64();
    for node in ["node-1", "node-2"] {
        start(store, node, NodeComponent::Agent)?;
    }
    flowing(2000)?;
    let stream = stream.finish()?;
    let reports: Vec<_> = datagrams.into_iter().map(Datagrams::finish).collect();
    if let Some(error) = &stream.error {
        return Err(LabError::new(format!("the TCP stream broke: {error}")));
    }
    for report in &reports {
        if report.lost() > 0 {
            return Err(LabError::new(format!(
                "{} of {} datagrams lost {}, longest gap {:.0} ms, at {:?} (killed at {killed:.2} s, \
                 started again at {restarted:.2} s)",
                report.lost(),
                report.sent,
                report.pair,
                report.longest_gap_ms,
                report.losses,
            )));
        }
    }
    Ok(Outcome::Passed(json!({
        "datagrams": reports.iter().map(|r| r.sent).sum::<u64>(),
        "lost": 0,
        "tcpExchanges": stream.exchanges,
        "longestGapMs": reports.iter().map(|r| r.longest_gap_ms.round()).fold(0.0, f64::max),
    })))
}
