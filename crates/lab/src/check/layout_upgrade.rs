//! An agent takes over a bridge whose flows have another table layout: under traffic, in one step.
//!
//! The other layout is this one with every table moved by one, but the first and those where packets
//! go on after connection tracking, which no layout moves. It forwards as well as ours, so that
//! flows that are half of each would be seen.

use std::time::{Duration, Instant};

use pipeline::fields::RESUME_TABLES;
use serde_json::json;

use super::leftovers::flows;
use super::load::Load;
use super::{Context, Outcome};
use crate::cli::NodeComponent::Agent;
use crate::component::{start, stop};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::ovs::{self, BRIDGE};

/// Where the agent notes the layout of the flows, in the bridge's row.
const LAYOUT_KEY: &str = "antrea-layout";

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let a = context.pod("node-1", "layout-1")?;
    let b = context.pod("node-1", "layout-2")?;
    let c = context.pod("node-2", "layout-3")?;
    let node = store.layout().node("node-1");
    let layout = || ovs::vsctl(&node, &["get", "Bridge", BRIDGE, "external_ids"]);
    let (before, noted) = (flows(&node)?, layout()?);
    if !noted.contains(LAYOUT_KEY) {
        return Err(LabError::new(format!("the bridge does not tell its layout: {noted}")));
    }
    let (a_netns, c_netns) = (a.sandbox.netns.as_path(), c.sandbox.netns.as_path());
    let pairs = [("on one node", a_netns, b.target()?), ("across nodes", a_netns, c.target()?)];
    let mut load = Load::start(&pairs, ("across nodes", c_netns, a.target()?))?;
    stop(store, "node-1", Agent)?;
    load.note("other layout");
    let file = node.dir().join("layout.flows");
    let text: Vec<String> = before.iter().map(|flow| moved(flow)).collect();
    std::fs::write(&file, text.join("\n") + "\n").doing(|| format!("write {}", file.display()))?;
    let path = file.display().to_string();
    ovs::ofctl(&node, "replace-flows", &["--bundle", &path])?;
    ovs::vsctl(&node, &["set", "Bridge", BRIDGE, &format!("external_ids:{LAYOUT_KEY}=0")])?;
    let other = flows(&node)?;
    load.flows(500)?;
    load.note("agent started");
    let began = Instant::now();
    start(store, "node-1", Agent)?;
    wait_for(Duration::from_secs(20), "the flows are of the agent's layout", || {
        (flows(&node).ok()? == before && layout().ok()? == noted).then_some(())
    })?;
    let replaced = began.elapsed();
    load.flows(500)?;
    let report = load.finish()?;
    report.stream_survived()?;
    report.nothing_lost()?;
    Ok(Outcome::Passed(json!({
        "flowsOfOtherLayout": other.difference(&before).count(),
        "replacedMs": replaced.as_millis(),
        "datagrams": report.sent(),
        "lost": report.lost(),
        "tcpExchanges": report.stream.exchanges,
    })))
}

/// A flow with every table moved by one that another layout may move.
pub(super) fn moved(flow: &str) -> String {
    let mut text = flow.to_owned();
    for before in ["table=", "goto_table:", "resubmit(,"] {
        text = renumber(&text, before);
    }
    text
}

fn renumber(text: &str, before: &str) -> String {
    let mut parts = text.split(before);
    let mut done = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        done.push_str(before);
        let end = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let stays = |number: u8| number == 0 || RESUME_TABLES.iter().any(|table| table.0 == number);
        match part[..end].parse::<u8>() {
            Ok(number) if !stays(number) => done.push_str(&(number + 1).to_string()),
            _ => done.push_str(&part[..end]),
        }
        done.push_str(&part[end..]);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_move_but_the_first_and_those_that_no_layout_moves() {
        for (flow, want) in [
            (
                "table=0, priority=1 actions=goto_table:10",
                "table=0, priority=1 actions=goto_table:11",
            ),
            (
                "table=10, ct_state=+new actions=ct(commit,table=20,zone=1),resubmit(,30)",
                "table=11, ct_state=+new actions=ct(commit,table=21,zone=1),resubmit(,31)",
            ),
            ("table=5, actions=drop", "table=6, actions=drop"),
            ("table=30, actions=ct(table=44,zone=1)", "table=31, actions=ct(table=44,zone=1)"),
        ] {
            assert_eq!(moved(flow), want);
        }
    }
}
