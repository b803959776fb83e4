//! A node that a Go agent had: its ports, flows, leases and iptables chains as that one leaves them
//! are taken over under traffic, and what is of no more use is removed.

use std::time::{Duration, Instant};

use serde_json::json;

use super::layout_upgrade::moved;
use super::leftovers::{Holdings, flows};
use super::load::Load;
use super::{Context, Outcome};
use crate::cli::NodeComponent::Agent;
use crate::component::{start, stop};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::NodeLayout;
use crate::netns;
use crate::ovs::{self, BRIDGE};
use crate::preflight::{find_program, program};

/// Cookies of the Go agent: the number of its start, then a category.
const COOKIE: &str = "cookie=0x7010000000000";
/// What iptables has where nobody made a rule.
const NO_RULES: &str = "*nat
:PREROUTING ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
*filter
:FORWARD ACCEPT [0:0]
COMMIT
";
/// Jumps and chains as it makes them.
const CHAINS: &str = "*nat
:ANTREA-PREROUTING - [0:0]
:ANTREA-POSTROUTING - [0:0]
-A PREROUTING -m comment --comment \"Antrea: jump to Antrea prerouting rules\" -j ANTREA-PREROUTING
-A POSTROUTING -m comment --comment \"Antrea: jump to Antrea postrouting rules\" -j ANTREA-POSTROUTING
-A ANTREA-POSTROUTING -m addrtype ! --src-type LOCAL -o antrea-gw0 -j RETURN
COMMIT
*filter
:ANTREA-FORWARD - [0:0]
-A FORWARD -m comment --comment \"Antrea: jump to Antrea forwarding rules\" -j ANTREA-FORWARD
-A ANTREA-FORWARD -i antrea-gw0 -j ACCEPT
-A ANTREA-FORWARD -o antrea-gw0 -j ACCEPT
COMMIT
";

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    if find_program("iptables-restore").is_none() {
        return Ok(Outcome::Impossible("iptables is not installed".into()));
    }
    let store = context.store()?;
    let node = store.layout().node("node-1");
    restore(&node, NO_RULES)?;
    let before = Holdings::of(&node)?;
    let mut a = context.pod("node-1", "go-1")?;
    let b = context.pod("node-2", "go-2")?;
    let wanted = flows(&node)?;
    let (a_netns, b_netns) = (a.sandbox.netns.as_path(), b.sandbox.netns.as_path());
    let mut load = Load::start(
        &[("across nodes", a_netns, b.target()?)],
        ("across nodes", b_netns, a.target()?),
    )?;
    stop(store, "node-1", Agent)?;
    leave_as_go(&node, &wanted)?;
    load.note("as a Go agent leaves it");
    load.flows(500)?;
    let began = Instant::now();
    start(store, "node-1", Agent)?;
    wait_for(Duration::from_secs(20), "the node is taken over", || {
        (flows(&node).ok()? == wanted && chains(&node).ok()? == 0).then_some(())
    })?;
    let adopted = began.elapsed();
    load.flows(500)?;
    let report = load.finish()?;
    report.nothing_lost()?;
    a.remove()?;
    drop(a);
    let clean = wait_for(Duration::from_secs(10), "nothing is left of the Pod", || {
        before.compare(&Holdings::of(&node).ok()?).is_ok().then_some(())
    });
    if clean.is_err() {
        before.compare(&Holdings::of(&node)?)?;
    }
    Ok(Outcome::Passed(json!({
        "adoptedMs": adopted.as_millis(),
        "datagrams": report.sent(),
        "lost": 0,
    })))
}

/// Makes of what our agent left what a Go agent would have left.
fn leave_as_go(node: &NodeLayout, flows: &std::collections::BTreeSet<String>) -> Result<()> {
    let journal = node.state().join("interfaces");
    std::fs::remove_dir_all(&journal).doing(|| format!("remove {}", journal.display()))?;
    for name in ovs::vsctl(node, &["list-ports", BRIDGE])?.lines() {
        for key in ["antrea-network", "antrea-made-by"] {
            ovs::vsctl(node, &["--if-exists", "remove", "Interface", name, "external_ids", key])?;
            ovs::vsctl(node, &["--if-exists", "remove", "Port", name, "external_ids", key])?;
        }
    }
    ovs::vsctl(node, &["remove", "Bridge", BRIDGE, "external_ids", "antrea-layout"])?;
    ovs::vsctl(node, &["set", "Bridge", BRIDGE, "external_ids:roundNum=7"])?;
    let text: Vec<String> = flows.iter().map(|flow| format!("{COOKIE},{}", moved(flow))).collect();
    let file = node.dir().join("go.flows");
    std::fs::write(&file, text.join("\n") + "\n").doing(|| format!("write {}", file.display()))?;
    ovs::ofctl(node, "replace-flows", &["--bundle", &file.display().to_string()])?;
    restore(node, CHAINS)?;
    if chains(node)? == 0 {
        return Err(LabError::new("iptables-restore made no chain: nothing to take over"));
    }
    Ok(())
}

fn restore(node: &NodeLayout, rules: &str) -> Result<()> {
    let file = node.dir().join("go.iptables");
    std::fs::write(&file, rules).doing(|| format!("write {}", file.display()))?;
    let mut restore = program("iptables-restore");
    restore.arg("--noflush").arg(&file);
    let output =
        netns::enter(node.netns(), || restore.output())?.doing(|| "run iptables-restore".into())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::new(format!("iptables-restore: {said}")))
}

/// Lines of the node's iptables rules that name a chain of the Go agent.
fn chains(node: &NodeLayout) -> Result<usize> {
    let output = netns::enter(node.netns(), || program("iptables-save").output())?
        .doing(|| "run iptables-save".into())?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|l| l.contains("ANTREA-")).count())
}
