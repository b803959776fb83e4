//! The database server is killed, and both processes of Open vSwitch, and the database is lost.
//!
//! `ovs_restart` is about the switch alone.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::json;

use super::leftovers::{flows, leases};
use super::load::Load;
use super::{Context, Outcome, Pod};
use crate::agent;
use crate::cli::NodeComponent::{Agent, Ovsdb, Vswitchd};
use crate::component::{kill, start};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::state::Store;
use crate::variant::Datapath;
use crate::{ovs, pods, probe};

/// The database server is away for a moment. A switch in the kernel goes on forwarding; one in user
/// space does not, since ovs-vswitchd 3.1 runs its ports only while it holds the database's lock.
/// Later Pods are made as before, with both.
pub(super) fn database_server(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let stage = Stage::set(context, "ovsdb")?;
    let before = flows(&stage.node)?;
    let mut load = stage.load()?;
    load.note("killed");
    kill(store, "node-1", Ovsdb)?;
    let (killed, counts) = (Instant::now(), load.counts());
    let forwards = context.variant.datapath == Datapath::System;
    if forwards {
        load.flows(1000)?;
    }
    load.note("started");
    start(store, "node-1", Ovsdb)?;
    let recovered = load.recovered(killed, &counts)?;
    let adding = Instant::now();
    let late = context.pod("node-1", "ovsdb-late")?;
    let added = adding.elapsed();
    probe::tcp_who(&stage.c.sandbox.netns, late.target()?, Duration::from_secs(10))?;
    drop(late);
    load.flows(200)?;
    let report = load.finish()?;
    if forwards {
        report.nothing_lost()?;
    }
    report.stream_survived()?;
    await_flows(&stage.node, &before)?;
    Ok(Outcome::Passed(json!({
        "forwardsWithoutDatabase": forwards,
        "recoveredMs": report.per_pair(&recovered),
        "lost": report.lost(),
        "tcpSurvived": true,
        "laterAddMs": added.as_millis(),
    })))
}

/// Both processes are killed and started.
pub(super) fn both(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let stage = Stage::set(context, "both")?;
    let before = flows(&stage.node)?;
    let mut load = stage.load()?;
    load.note("killed");
    kill(store, "node-1", Vswitchd)?;
    kill(store, "node-1", Ovsdb)?;
    let (killed, counts) = (Instant::now(), load.counts());
    start(store, "node-1", Ovsdb)?;
    start(store, "node-1", Vswitchd)?;
    load.note("started");
    let recovered = load.recovered(killed, &counts)?;
    await_flows(&stage.node, &before)?;
    let same = killed.elapsed();
    let report = load.finish()?;
    report.stream_survived()?;
    Ok(Outcome::Passed(json!({
        "recoveredMs": report.per_pair(&recovered),
        "flowsEqualMs": same.as_millis(),
        "lost": report.lost(),
        "tcpSurvived": true,
    })))
}

/// The database is lost with both processes: the node's own network comes back, nothing of former
/// Pods is left, and Pods that are made anew have their network. The other node notices nothing.
pub(super) fn database_lost(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let mut stage = Stage::set(context, "lost")?;
    let other = context.pod("node-2", "lost-other")?;
    let (c_netns, on_node_2) = (stage.c.sandbox.netns.clone(), other.target()?);
    let pair = ("on the other node", c_netns.as_path(), on_node_2);
    let mut load = Load::start(&[pair], pair)?;
    load.note("lost");
    kill(store, "node-1", Vswitchd)?;
    kill(store, "node-1", Ovsdb)?;
    let lost_at = Instant::now();
    let conf = stage.node.ovs().join("conf.db");
    fs::remove_file(&conf).doing(|| format!("remove {}", conf.display()))?;
    ovs::start(store, "node-1")?;
    // An agent that finds its bridge gone ends, and is started as a DaemonSet would.
    let ended = wait_for(Duration::from_secs(15), "the agent ends, or makes its bridge", || {
        let alive = store.get().process(agent::ROLE, Some("node-1")).is_some_and(|p| p.is_alive());
        match alive {
            false => Some(true),
            true => (agent::is_ready(&stage.node) && has_bridge(&stage.node)).then_some(false),
        }
    })?;
    if ended {
        let log = crate::process::log_tail(&stage.node.log(agent::ROLE), 3);
        if !log.contains("was deleted") {
            return Err(LabError::new(format!("the agent ended without saying why: {log}")));
        }
        start(store, "node-1", Agent)?;
    }
    let ready = lost_at.elapsed();
    // The node itself reaches the other node's Pods.
    probe::tcp_who(stage.node.netns(), stage.c.target()?, Duration::from_secs(10))?;
    let node_back = lost_at.elapsed();
    let reattached = [&stage.a, &stage.b].into_iter().all(|pod| {
        let target = pod.target();
        target.is_ok_and(|to| probe::tcp_who(&c_netns, to, Duration::from_millis(500)).is_ok())
    });
    if !reattached {
        stage.a.renew()?;
        stage.b.renew()?;
    }
    for (from, to) in [(&stage.a, &stage.b), (&stage.a, &stage.c), (&stage.c, &stage.b)] {
        probe::tcp_who(&from.sandbox.netns, to.target()?, Duration::from_secs(10))?;
    }
    let pods_back = lost_at.elapsed();
    let report = load.finish()?;
    report.nothing_lost()?;
    nothing_stale(store, "node-1")?;
    Ok(Outcome::Passed(json!({
        "agentEnded": ended,
        "agentReadyMs": ready.as_millis(),
        "nodeReachesOthersMs": node_back.as_millis(),
        "podsReattached": reattached,
        "podsBackMs": pods_back.as_millis(),
        "lostOnOtherNode": 0,
    })))
}

/// Pods on two nodes.
struct Stage<'a> {
    node: NodeLayout,
    a: Pod<'a>,
    b: Pod<'a>,
    c: Pod<'a>,
}

impl<'a> Stage<'a> {
    fn set(context: &'a Context<'_>, name: &str) -> Result<Self> {
        Ok(Self {
            node: context.store()?.layout().node("node-1"),
            a: context.pod("node-1", &format!("{name}-1"))?,
            b: context.pod("node-1", &format!("{name}-2"))?,
            c: context.pod("node-2", &format!("{name}-3"))?,
        })
    }

    fn load(&self) -> Result<Load> {
        let netns = &self.a.sandbox.netns;
        let pairs = [
            ("on one node", netns.as_path(), self.b.target()?),
            ("across nodes", netns, self.c.target()?),
        ];
        Load::start(&pairs, ("across nodes", &self.c.sandbox.netns, self.a.target()?))
    }
}

fn has_bridge(node: &NodeLayout) -> bool {
    ovs::vsctl(node, &["br-exists", ovs::BRIDGE]).is_ok()
}

fn await_flows(node: &NodeLayout, before: &std::collections::BTreeSet<String>) -> Result<()> {
    let same = wait_for(Duration::from_secs(20), "the flows are what they were", || {
        flows(node).ok().filter(|now| now == before)
    });
    if same.is_ok() {
        return Ok(());
    }
    let now = flows(node)?;
    let missing: Vec<_> = before.difference(&now).take(3).collect();
    let added: Vec<_> = now.difference(before).take(3).collect();
    Err(LabError::new(format!("flows differ: missing {missing:?}, new {added:?}")))
}

/// A node holds ports, links and leases of the Pods that are there, and of no others.
pub(super) fn nothing_stale(store: &Store, node: &str) -> Result<()> {
    let layout = store.layout().node(node);
    let here: Vec<_> = pods::ready(store).into_iter().filter(|pod| pod.node == node).collect();
    let settled = wait_for(Duration::from_secs(10), "nothing of former Pods is left", || {
        stale(&layout, &here).ok()?.is_empty().then_some(())
    });
    settled.map_err(|_| {
        let left = stale(&layout, &here).unwrap_or_else(|error| vec![error.chain()]);
        LabError::new(format!("left of former Pods: {}", left.join(", ")))
    })
}

fn stale(node: &NodeLayout, here: &[crate::sandbox::Sandbox]) -> Result<Vec<String>> {
    let ports: Vec<String> = here.iter().filter_map(|pod| pod.host_interface()).collect();
    let addresses: Vec<String> =
        here.iter().flat_map(|pod| pod.addresses()).map(|ip| ip.to_string()).collect();
    let own = ["antrea-gw0", "antrea-tun0"];
    let mut found = Vec::new();
    for port in ovs::vsctl(node, &["list-ports", ovs::BRIDGE])?.lines() {
        if !ports.iter().any(|p| p == port) && !own.contains(&port) {
            found.push(format!("port {port}"));
        }
    }
    for port in ports {
        if ovs::vsctl(node, &["port-to-br", &port]).is_err() {
            found.push(format!("no port {port}"));
        }
    }
    found.extend(
        leases(node).into_iter().filter(|l| !addresses.contains(l)).map(|l| format!("lease {l}")),
    );
    let holdings = super::leftovers::Holdings::of(node)?;
    let veths = holdings.links.iter().filter(|link| {
        !["lo", "eth0", "br-phy", "br-int", "ovs-netdev", "antrea-null"].contains(&link.as_str())
            && !own.contains(&link.as_str())
            && !here.iter().any(|pod| pod.host_interface().as_ref() == Some(*link))
    });
    found.extend(veths.map(|link| format!("link {link}")));
    Ok(found)
}
