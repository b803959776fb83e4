//! The way of one packet through the named tables, node by node, as the switch itself tells it.
//!
//! Runs `ofproto/trace` on the sender's node and, when the packet leaves through the tunnel, on
//! the receiver's; table numbers become names. Nothing is sent.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Serialize;

use crate::addressing;
use crate::error::{LabError, Result};
use crate::layout::NodeLayout;
use crate::ovs::{self, BRIDGE};
use crate::pods;
use crate::sandbox::Sandbox;
use crate::state::Store;
use crate::ui;

/// Name of the gateway port.
const GATEWAY: &str = "antrea-gw0";
/// Name of the tunnel port.
const TUNNEL: &str = "antrea-tun0";

/// A packet's way.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    /// Who sends.
    pub source: String,
    /// Who shall receive.
    pub destination: String,
    /// One part per node.
    pub hops: Vec<Hop>,
}

/// The way through one node's switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Hop {
    /// Which node.
    pub node: String,
    /// The packet as the switch gets it.
    pub packet: String,
    /// Every flow it met.
    pub steps: Vec<Step>,
    /// What the datapath does with it in the end.
    pub verdict: String,
}

/// One flow met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Number of the table.
    pub table: u8,
    /// Its name.
    pub name: String,
    /// What matched.
    pub flow: String,
    /// What was done.
    pub actions: Vec<String>,
}

/// Names of tables by number.
pub type TableNames = BTreeMap<u8, String>;

/// Traces a TCP packet from a Pod to a Pod, a node, or an address.
///
/// # Errors
/// When one of them is not known, or the switch does not answer.
pub fn run(store: &Store, source: &str, destination: &str, port: u16) -> Result<Trace> {
    let names = table_names();
    let from = pods::find(store, source)?;
    let (to, address) = receiver(store, destination)?;
    let node = store.layout().node(&from.node);
    let own = address_like(&from, address)?;
    let (tcp, src, dst) =
        if own.is_ipv4() { ("tcp", "nw_src", "nw_dst") } else { ("tcp6", "ipv6_src", "ipv6_dst") };
    let in_port = from
        .host_interface()
        .ok_or_else(|| LabError::new(format!("the CNI result of {source} names no port")))?;
    let mac = from.mac().unwrap_or_default();
    let to_mac = match &to {
        Some(to) if to.node == from.node => to.mac().unwrap_or_default(),
        _ => port_mac(&node, GATEWAY)?,
    };
    let packet = format!(
        "in_port={in_port},{tcp},dl_src={mac},dl_dst={to_mac},{src}={own},{dst}={address},\
         nw_ttl=64,tp_src=40000,tp_dst={port}"
    );
    let mut hops = vec![hop(&node, &from.node, packet, &names)?];
    let across = to.as_ref().filter(|to| to.node != from.node);
    if let Some(to) = across
        && hops[0].verdict.contains("tnl_push")
    {
        let (source_node, target_node) = (address_of(store, &from)?, address_of(store, to)?);
        let tun = if source_node.is_ipv4() { "tun" } else { "tun_ipv6" };
        let node = store.layout().node(&to.node);
        let packet = format!(
            "in_port={TUNNEL},{tun}_src={source_node},{tun}_dst={target_node},{tcp},\
             dl_src={},dl_dst=aa:bb:cc:dd:ee:ff,{src}={own},{dst}={address},\
             nw_ttl=63,tp_src=40000,tp_dst={port}",
            port_mac(&store.layout().node(&from.node), GATEWAY)?
        );
        hops.push(hop(&node, &to.node, packet, &names)?);
    }
    Ok(Trace { source: from.pod.key(), destination: destination.into(), hops })
}

/// Prints a way for people.
pub fn print(trace: &Trace) {
    ui::line(format!("{} -> {}", trace.source, trace.destination));
    for hop in &trace.hops {
        ui::line(format!("on {}: {}", hop.node, hop.packet));
        for step in &hop.steps {
            ui::line(format!("  {:>3} {:<26} {}", step.table, step.name, step.flow));
            for action in &step.actions {
                let action = match action.strip_prefix("-> ") {
                    Some(note) => format!("   ({note})"),
                    None => action.clone(),
                };
                ui::line(format!("{:32} {action}", ""));
            }
        }
        ui::line(format!("  datapath: {}", hop.verdict));
    }
}

fn receiver(store: &Store, name: &str) -> Result<(Option<Sandbox>, IpAddr)> {
    let family = store.get().variant.family;
    if let Ok(address) = name.parse::<IpAddr>() {
        let owner = pods::ready(store).into_iter().find(|p| p.addresses().contains(&address));
        return Ok((owner, address));
    }
    if name == "outside" {
        return Ok((None, addressing::outside(family)[0]));
    }
    if let Ok(node) = store.get().node(name) {
        return Ok((None, addressing::node(family, node.n)[0]));
    }
    let pod = pods::find(store, name)
        .map_err(|e| e.hint("give a Pod, a node, outside, or an address"))?;
    let address = pod
        .addresses()
        .first()
        .copied()
        .ok_or_else(|| LabError::new(format!("Pod {} has no address", pod.pod.key())))?;
    Ok((Some(pod), address))
}

fn address_like(pod: &Sandbox, other: IpAddr) -> Result<IpAddr> {
    let found = pod.addresses().into_iter().find(|a| a.is_ipv4() == other.is_ipv4());
    found.ok_or_else(|| {
        LabError::new(format!("Pod {} has no address of the family of {other}", pod.pod.key()))
    })
}

fn address_of(store: &Store, pod: &Sandbox) -> Result<IpAddr> {
    let state = store.get();
    Ok(addressing::node(state.variant.family, state.node(&pod.node)?.n)[0])
}

fn port_mac(node: &NodeLayout, port: &str) -> Result<String> {
    let text = ovs::vsctl(node, &["get", "Interface", port, "mac_in_use"])?;
    Ok(text.trim().trim_matches('"').to_owned())
}

fn hop(node: &NodeLayout, name: &str, packet: String, names: &TableNames) -> Result<Hop> {
    // One --ct-next per pass through conntrack; there are more than any pipeline needs.
    let mut args = vec!["ofproto/trace", BRIDGE, &packet];
    for _ in 0..4 {
        args.extend(["--ct-next", "trk,new"]);
    }
    let text = ovs::appctl(node, &args)?;
    let (steps, verdict) = parse(&text, names);
    Ok(Hop { node: name.into(), packet, steps, verdict })
}

/// Reads what `ofproto/trace` prints.
fn parse(text: &str, names: &TableNames) -> (Vec<Step>, String) {
    let mut steps: Vec<Step> = Vec::new();
    let mut verdict = String::new();
    let mut in_flow = false;
    let mut bridge = BRIDGE;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix("bridge(\"").and_then(|r| r.strip_suffix("\")")) {
            bridge = name;
        }
        if let Some(actions) = trimmed.strip_prefix("Datapath actions: ") {
            // With several passes the last one decides.
            verdict = actions.to_owned();
            in_flow = false;
        } else if let Some((table, flow)) = flow_line(trimmed) {
            let name = match names.get(&table) {
                Some(name) if bridge == BRIDGE => name.clone(),
                _ if bridge == BRIDGE => format!("table {table}"),
                _ => format!("({bridge})"),
            };
            steps.push(Step { table, name, flow: flow.into(), actions: Vec::new() });
            in_flow = true;
        } else if trimmed.is_empty() || !line.starts_with(' ') {
            in_flow = false;
        } else if in_flow
            && let Some(step) = steps.last_mut()
            && !is_noise(trimmed, step.actions.last())
        {
            step.actions.push(with_names(trimmed, names));
        }
    }
    (steps, verdict)
}

/// What the switch says about recirculation is said by the next step as well.
fn is_noise(action: &str, before: Option<&String>) -> bool {
    let recirculates = before.is_some_and(|b| b.starts_with("ct(") && b.contains("table="));
    action.starts_with("-> A clone of the packet")
        || action.starts_with("-> Sets the packet to an untracked state")
        || (action == "drop" && recirculates)
}

/// `12. ip,nw_dst=..., priority 200, cookie 0x1` gives the table and the rest.
fn flow_line(line: &str) -> Option<(u8, &str)> {
    let (number, rest) = line.split_once(". ")?;
    Some((number.parse().ok()?, rest))
}

/// Puts names where actions point to tables.
fn with_names(action: &str, names: &TableNames) -> String {
    for prefix in ["goto_table:", "resubmit(,"] {
        if let Some(rest) = action.strip_prefix(prefix)
            && let Ok(table) = rest.trim_end_matches(')').parse::<u8>()
            && let Some(name) = names.get(&table)
        {
            return action.replacen(&table.to_string(), name, 1);
        }
    }
    action.to_owned()
}

/// The pipeline's own names.
fn table_names() -> TableNames {
    pipeline::tables().iter().map(|(table, name)| (table.0, (*name).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_get_their_names_and_the_last_pass_decides() {
        let text = "Flow: tcp,in_port=10\n\nbridge(\"br-int\")\n------------------\n \
            0. in_port=10, priority 190, cookie 0x1\n    goto_table:4\n \
            4. ip, priority 200\n    ct(table=5,zone=65520)\n    drop\n     -> A clone\n\n\
            Final flow: unchanged\nMegaflow: recirc_id=0\nDatapath actions: ct(zone=1),recirc(0x1)\n\n\
            ====\nrecirc(0x1) - resume conntrack\n====\n\nbridge(\"br-int\")\n------\n    \
            thaw\n        Resuming from table 5\n 5. ip, priority 0\n    output:11\n\n\
            Final flow: unchanged\nDatapath actions: 3\n";
        let names = TableNames::from([(0, "Root".to_owned()), (4, "Classifier".to_owned())]);
        let (steps, verdict) = parse(text, &names);
        assert_eq!(verdict, "3");
        let seen: Vec<_> = steps.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(seen, ["Root", "Classifier", "table 5"]);
        assert_eq!(steps[0].actions, ["goto_table:Classifier"]);
        assert_eq!(steps[2].actions, ["output:11"]);
    }
}
