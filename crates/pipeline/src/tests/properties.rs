//! What holds for every set of flows.

use std::collections::BTreeSet;

use openflow::{Action, Flow, Match, OfPort, TableId};

use super::fixture::{MODES, all_flows, mk_node};
use crate::fields::{
    COOKIE_MARKER, Category, DSR_SERVICE_MARK, PIPELINE_ROOT_CLASSIFIER, RESUME_TABLES, TABLES,
    table_name,
};
use crate::node::NodeConfig;

/// Where an action sends the packet on to.
fn targets(actions: &[Action]) -> Vec<TableId> {
    actions
        .iter()
        .filter_map(|action| match action {
            Action::GotoTable(table) => Some(*table),
            Action::Ct(ct) => ct.table,
            Action::Resubmit(resubmit) => resubmit.table,
            _ => None,
        })
        .collect()
}

#[test]
fn a_node_keeps_the_rules_of_the_pipeline() {
    for (mode, families) in MODES {
        check_flows(mode, &mk_node(families), &all_flows(families));
    }
}

/// What holds for all flows of a node together.
#[track_caller]
pub(super) fn check_flows(mode: &str, node: &NodeConfig, flows: &[Flow]) {
    every_flow_can_be_installed_and_is_there_once(mode, flows);
    packets_only_go_forward_and_never_miss(mode, node, flows);
    connection_tracking_resumes_in_tables_that_no_layout_moves(mode, flows);
}

fn every_flow_can_be_installed_and_is_there_once(mode: &str, flows: &[Flow]) {
    let mut keys = BTreeSet::new();
    for flow in flows {
        flow.check().unwrap_or_else(|error| panic!("{mode}: {flow:?}: {error}"));
        assert!(keys.insert(flow.key()), "{mode}: twice: {flow:?}");
        assert_eq!(flow.cookie.0 >> 48, u64::from(COOKIE_MARKER));
        let category = (flow.cookie.0 >> 40) & 0xff;
        let ours = [
            Category::Framework,
            Category::PodConnectivity,
            Category::NetworkPolicy,
            Category::Service,
        ];
        assert!(ours.map(|c| u64::from(c.number())).contains(&category));
    }
}

fn packets_only_go_forward_and_never_miss(mode: &str, node: &NodeConfig, flows: &[Flow]) {
    let layout = node.layout();
    let mut reachable = BTreeSet::from([PIPELINE_ROOT_CLASSIFIER]);
    // Groups' buckets go on there.
    if node.services.is_some() {
        reachable.insert(DSR_SERVICE_MARK);
    }
    for table in TABLES {
        if !reachable.contains(&table.id) {
            assert!(flows.iter().all(|f| f.table != table.id), "{mode}: {}", table.name);
            continue;
        }
        assert!(layout.has(table.id), "{mode}: {} is in use", table.name);
        let here = flows.iter().filter(|flow| flow.table == table.id);
        for flow in here.clone() {
            for next in targets(&flow.actions) {
                assert!(next > table.id, "{mode}: {} to {}", table.name, table_name(next));
                reachable.insert(next);
            }
        }
        let misses = here.filter(|f| f.priority == 0 && f.matching == Match::new()).count();
        assert_eq!(misses, 1, "{mode}: {} has one miss flow", table.name);
    }
    let used: BTreeSet<_> = layout.tables().map(|table| table.id).collect();
    assert_eq!(used, reachable, "{mode}: what is in use is reached");
}

fn connection_tracking_resumes_in_tables_that_no_layout_moves(mode: &str, flows: &[Flow]) {
    for flow in flows {
        let resumes = |action: &Action| match action {
            Action::Ct(ct) => ct.table,
            _ => None,
        };
        for table in flow.actions.iter().filter_map(resumes) {
            let name = table_name(table);
            assert!(RESUME_TABLES.contains(&table), "{mode}: {name} is not among them: {flow:?}");
        }
    }
}

#[test]
fn nothing_is_flooded() {
    let flooding = [OfPort::NORMAL, OfPort::FLOOD, OfPort::ALL, OfPort::LOCAL];
    for (mode, families) in MODES {
        for flow in all_flows(families) {
            let floods = |a: &Action| matches!(a, Action::Output(port) if flooding.contains(port));
            assert!(!flow.actions.iter().any(floods), "{mode}: {flow:?}");
        }
    }
}

#[test]
fn a_node_without_tunnel_has_no_tunnel_flows() {
    for (mode, families) in MODES {
        let mut node = mk_node(families);
        node.tunnel = None;
        let peer = super::fixture::mk_peer(families, 2);
        assert_eq!(crate::connectivity::peer_flows(&node, &peer), [], "{mode}");
    }
}

#[test]
fn an_address_that_is_there_twice_gives_one_flow() {
    let mut node = mk_node(crate::Families::V4);
    node.node_ips.push(node.gateway.ips[0]);
    let once = crate::connectivity::node_flows(&mk_node(crate::Families::V4));
    assert_eq!(crate::connectivity::node_flows(&node), once);
}

#[test]
fn stages_begin_with_their_first_table_in_use() {
    use crate::fields::{
        ANTREA_POLICY_EGRESS_RULE, CLASSIFIER, CONNTRACK_ZONE, IPV6, L3_FORWARDING, OUTPUT,
        Pipeline, SPOOF_GUARD, Stage,
    };
    let layout = mk_node(crate::Families::V6).layout();
    for (stage, want) in [
        (Stage::Classifier, CLASSIFIER),
        (Stage::Validation, SPOOF_GUARD),
        (Stage::ConntrackState, CONNTRACK_ZONE),
        (Stage::PreRouting, ANTREA_POLICY_EGRESS_RULE),
        (Stage::EgressSecurity, ANTREA_POLICY_EGRESS_RULE),
        (Stage::Routing, L3_FORWARDING),
        (Stage::Output, OUTPUT),
    ] {
        assert_eq!(layout.first_of(Pipeline::Ip, stage), Some(want), "{stage:?}");
    }
    assert_eq!(layout.first_of(Pipeline::Arp, Stage::Start), None, "no ARP without IPv4");
    assert_eq!(layout.next(SPOOF_GUARD), Some(IPV6));
    assert_eq!(layout.next(OUTPUT), None);
    assert_eq!(mk_node(crate::Families::V4).layout().next(SPOOF_GUARD), Some(CONNTRACK_ZONE));
}

#[test]
fn many_pods_and_peers_do_not_collide() {
    use super::fixture::{flows, mk_peer, mk_pod};
    for (mode, families) in MODES {
        let node = mk_node(families);
        let mut keys: BTreeSet<_> = all_flows(families).iter().map(openflow::Flow::key).collect();
        let pods = (4..100).map(|n| crate::connectivity::pod_flows(&node, &mk_pod(families, n)));
        let peers = (4..100).map(|n| crate::connectivity::peer_flows(&node, &mk_peer(families, n)));
        for flow in pods.chain(peers).flat_map(flows) {
            assert!(keys.insert(flow.key()), "{mode}: twice: {flow:?}");
        }
    }
}

/// What a Pod costs.
#[test]
fn a_pod_needs_few_flows() {
    use super::fixture::mk_pod;
    let n_flows = MODES.map(|(_, families)| {
        crate::connectivity::pod_flows(&mk_node(families), &mk_pod(families, 2)).len()
    });
    assert_eq!(n_flows, [7, 16, 21]);
}
