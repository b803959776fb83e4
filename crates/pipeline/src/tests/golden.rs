//! Flows as ovs-ofctl text, one small file per kind of object and mode.
//! `UPDATE_GOLDEN=1 cargo test -p pipeline` writes them anew.

use std::fs;
use std::path::Path;

use openflow::Flow;

use super::fixture::{MODES, flows, mk_node, mk_peer, mk_pod, parse};
use crate::connectivity::{node_flows, peer_flows, pod_flows};
use crate::fields::table_name;
use crate::miss_flows;

#[track_caller]
pub(super) fn check(name: &str, flows: &[Flow]) {
    let flows: Vec<_> = flows.iter().map(|flow| flow.clone().normalize()).collect();
    let mut text = String::new();
    let mut table = None;
    for flow in &flows {
        if table != Some(flow.table) {
            text.push_str(&format!("# {}\n", table_name(flow.table)));
            table = Some(flow.table);
        }
        text.push_str(&format!("{flow}\n"));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::create_dir_all(path.parent().expect("it is in a directory")).unwrap();
        fs::write(&path, &text).unwrap();
    }
    let golden = fs::read_to_string(&path).unwrap_or_default();
    let same = parse(golden.lines()) == flows;
    assert!(same, "{name} differs; UPDATE_GOLDEN=1 takes the new flows:\n{text}");
}

#[test]
fn a_node() {
    for (mode, families) in MODES {
        let node = mk_node(families);
        let mut all = flows([miss_flows(&node), node_flows(&node)].concat());
        all.sort_by_key(|flow| (flow.table, std::cmp::Reverse(flow.priority)));
        check(&format!("node-{mode}.flows"), &all);
    }
}

#[test]
fn a_pod() {
    for (mode, families) in MODES {
        let node = mk_node(families);
        let pod = mk_pod(families, 2);
        check(&format!("pod-{mode}.flows"), &flows(pod_flows(&node, &pod)));
    }
}

#[test]
fn a_peer() {
    for (mode, families) in MODES {
        let node = mk_node(families);
        let peer = mk_peer(families, 2);
        check(&format!("peer-{mode}.flows"), &flows(peer_flows(&node, &peer)));
    }
}

/// A peer across an IPv6 underlay.
#[test]
fn a_peer_over_ipv6() {
    let families = crate::Families::Dual;
    let mut peer = mk_peer(families, 2);
    std::mem::swap(&mut peer.node_ip, &mut peer.other_ips[0]);
    check("peer-over-ipv6.flows", &flows(peer_flows(&mk_node(families), &peer)));
}

/// `ovs-ofctl parse-flows` reads what we print, and prints it as we do.
#[test]
fn ovs_ofctl_reads_the_same_flows() {
    use std::process::Command;
    for (mode, families) in MODES {
        let file = tempfile::NamedTempFile::new().unwrap();
        let all = super::fixture::all_flows(families);
        let lines: Vec<_> = all.iter().map(|f| f.clone().normalize().to_string()).collect();
        fs::write(file.path(), lines.join("\n")).unwrap();
        let output = Command::new("ovs-ofctl")
            .args(["-O", "OpenFlow15", "parse-flows"])
            .arg(file.path())
            .output()
            .expect("ovs-ofctl is installed");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{mode}: {error}");
        let parsed = String::from_utf8_lossy(&output.stdout);
        let n_mods = parsed.lines().filter(|line| line.contains("FLOW_MOD")).count();
        assert_eq!(n_mods, all.len(), "{mode}");
    }
}
