//! The switch is killed and started; nobody but the agent puts the flows back.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use serde_json::json;

use super::leftovers::flows;
use super::load::Load;
use super::{Context, Outcome, Pod};
use crate::addressing;
use crate::cli::NodeComponent;
use crate::component::{kill, start};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::{self, wait_for};
use crate::ovs;
use crate::probe;
use crate::status;
use crate::variant::Datapath;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let a = context.pod("node-1", "ovs-1")?;
    let b = context.pod("node-1", "ovs-2")?;
    let c = context.pod("node-2", "ovs-3")?;
    let node = store.layout().node("node-1");
    let before = flows(&node)?;
    let (a_netns, c_netns) = (a.sandbox.netns.as_path(), c.sandbox.netns.as_path());
    let pairs = [("on one node", a_netns, b.target()?), ("across nodes", a_netns, c.target()?)];
    let mut load = Load::start(&pairs, ("across nodes", c_netns, a.target()?))?;
    load.note("killed");
    kill(store, "node-1", NodeComponent::Vswitchd)?;
    let (killed, counts) = (Instant::now(), load.counts());
    start(store, "node-1", NodeComponent::Vswitchd)?;
    load.note("started");
    let restarted = Instant::now();
    let recovered = load.recovered(killed, &counts)?;
    let after = wait_for(Duration::from_secs(20), "the flows are what they were", || {
        flows(&node).ok().filter(|now| *now == before)
    });
    if after.is_err() {
        let now = flows(&node)?;
        let missing: Vec<_> = before.difference(&now).take(3).cloned().collect();
        let added: Vec<_> = now.difference(&before).take(3).cloned().collect();
        return Err(LabError::new(format!(
            "flows differ after the restart: missing {missing:?}, new {added:?}"
        )));
    }
    let settled = restarted.elapsed();
    // The outside answers as before: the node's own network came back too.
    let outside = addressing::outside(context.variant.family);
    let port = probe::serve(&store.layout().outside_netns(), "outside", &outside)?;
    for address in outside {
        let outside = std::net::SocketAddr::new(address, port);
        probe::tcp_who(&a.sandbox.netns, outside, Duration::from_secs(10))?;
    }
    let report = load.finish()?;
    report.stream_survived()?;
    if !first_packet_across(context, &a, &c)? {
        return Err(LabError::new("the first packet across nodes after a restart is not answered"));
    }
    Ok(Outcome::Passed(json!({
        "firstPacketAcrossAnswered": true,
        "recoveredMs": report.per_pair(&recovered),
        "flowsEqualAfterStartMs": settled.as_millis(),
        "nFlows": before.len(),
        "lost": report.lost(),
        "tcpSurvived": true,
    })))
}

/// Whether the first packet to the other node is answered after a restart without any traffic,
/// during which the lab's status tells what is wrong.
fn first_packet_across(context: &Context<'_>, from: &Pod<'_>, to: &Pod<'_>) -> Result<bool> {
    let store = context.store()?;
    let node = store.layout().node("node-1");
    let before = flows(&node)?;
    kill(store, "node-1", NodeComponent::Vswitchd)?;
    wait_for(Duration::from_secs(10), "the status says what the agent lacks", || {
        let problems = status::look(store).problems;
        let told =
            |what: &str| problems.iter().any(|p| p.starts_with("node-1") && p.contains(what));
        (told("ovs-vswitchd does not run") && told("the agent lacks openflow")).then_some(())
    })?;
    start(store, "node-1", NodeComponent::Vswitchd)?;
    wait_for(Duration::from_secs(30), "the status is healthy again", || {
        status::look(store).healthy.then_some(())
    })?;
    wait_for(Duration::from_secs(30), "the flows are back", || {
        flows(&node).ok().filter(|now| *now == before)
    })?;
    // The agent finds the MACs of other nodes by itself: nothing was sent to one meanwhile. Under the
    // kernel's datapath the kernel asks for them, and keeps the packet until it is answered.
    if context.variant.datapath == Datapath::Netdev {
        let peers = addressing::node(context.variant.family, 2);
        wait_for(Duration::from_secs(10), "the switch knows the other node's MAC", || {
            let known = ovs::appctl(&node, &["tnl/neigh/show"]).ok()?;
            let is_known = |peer: &IpAddr| known.split_whitespace().any(|w| w == peer.to_string());
            peers.iter().any(is_known).then_some(())
        })?;
    }
    let socket = probe::udp_socket(&from.sandbox.netns, to.target()?)?;
    let within = Duration::from_secs(1) * interrupt::patience();
    socket.set_read_timeout(Some(within)).doing(|| "set up the socket".into())?;
    let mut buffer = [0; 64];
    Ok(socket.send(b"seq 1").is_ok() && socket.recv(&mut buffer).is_ok())
}
