//! The agents are killed, and stopped, and started again while numbered datagrams and a TCP stream
//! run.

use serde_json::json;

use super::load::Load;
use super::{Context, Outcome};
use crate::cli::NodeComponent::Agent;
use crate::component::{kill, start, stop};
use crate::error::Result;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let a = context.pod("node-1", "restart-1")?;
    let b = context.pod("node-1", "restart-2")?;
    let c = context.pod("node-2", "restart-3")?;
    let node = store.layout().node("node-1");
    let (a_netns, c_netns) = (&a.sandbox.netns, &c.sandbox.netns);
    let mut pairs = Vec::new();
    for (near, far) in b.targets().into_iter().zip(c.targets()) {
        pairs.push(("on one node", a_netns.as_path(), near));
        pairs.push(("across nodes", a_netns, far));
        pairs.push(("node to its Pod", node.netns(), near));
    }
    let mut load = Load::start(&pairs, ("across nodes", c_netns, a.target()?))?;
    for (what, end) in [("killed", kill as fn(_, _, _) -> _), ("stopped", stop)] {
        load.note(what);
        for node in ["node-1", "node-2"] {
            end(store, node, Agent)?;
        }
        load.flows(500)?;
        load.note("started");
        for node in ["node-1", "node-2"] {
            start(store, node, Agent)?;
        }
        load.flows(1000)?;
    }
    let report = load.finish()?;
    report.nothing_lost()?;
    Ok(Outcome::Passed(json!({
        "datagrams": report.sent(),
        "lost": 0,
        "tcpExchanges": report.stream.exchanges,
        "longestGapMs": report.longest_gap_ms(),
    })))
}
