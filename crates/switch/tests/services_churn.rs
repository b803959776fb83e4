//! Random Services and slices on a real switch: whatever happened, it holds what a fresh start makes of
//! what is left.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::collections::BTreeSet;
use std::path::Path;

use common::dump::{Held, held};
use common::{BRIDGE, DEADLINE, mk_bridge, with_ovs};
use openflow::{MacAddr, OfPort};
use pipeline::service::{
    Datapath, Endpoint, ServiceConfig, endpoint_flows, frontend_flows, group, node_flows,
};
use pipeline::{Families, Gateway, NodeConfig};
use services::random::{self, Coverage, Left, Told};
use services::{Changes, PortPlan, Presence, Proxy};
use switch::bridge::{self, Bridge, BridgeConfig, Owner};
use switch::ovsdb_session::BridgeSpec;
use testkit::ovs::Ovs;
use tokio::time::timeout;

const SERVICE: Owner = Owner(3);
/// The bridge that is told of the end alone.
const FRESH: &str = "br-fresh";
/// Each begins on the switch that the one before left.
const N_HISTORIES: u64 = 8;
const N_EVENTS: u64 = 300;
/// After so many it is held against a fresh start.
const N_BETWEEN: u64 = 25;
/// So many changes are on their way before the switch is waited for.
const N_AT_ONCE: u64 = 7;

fn mk_node() -> NodeConfig {
    NodeConfig {
        families: Families::Dual,
        gateway: Gateway {
            ofport: OfPort(2),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ips: vec!["10.1.0.1".parse().unwrap(), "fd00:1::1".parse().unwrap()],
        },
        tunnel: None,
        pod_cidrs: vec!["10.1.0.0/24".parse().unwrap(), "fd00:1::/64".parse().unwrap()],
        node_ips: vec![],
        services: Some(ServiceConfig {
            datapath: Datapath::Netdev,
            proxy_all: true,
            node_port_addresses: vec!["172.30.0.1".parse().unwrap()],
            dsr: true,
            controller_id: 1,
            packet_in_rate: Some(100),
        }),
    }
}

fn start(mgmt: &Path) -> Bridge {
    let mut config = BridgeConfig::new(mgmt, 0xa17e);
    config.owners = vec![SERVICE];
    config.controller_id = None;
    let bridge = Bridge::start(config);
    bridge.set(SERVICE, "node", node_flows(&mk_node()));
    bridge
}

/// What the agent makes of changes.
fn send(bridge: &Bridge, changes: &Changes) {
    let node = mk_node();
    let mut flows = bridge::Changes::of(SERVICE);
    for (endpoint, presence) in &changes.endpoints {
        let wanted = match presence {
            Presence::There => endpoint_flows(&node, endpoint),
            Presence::Gone => Vec::new(),
        };
        flows.set(&key(endpoint), wanted);
    }
    for (key, PortPlan { groups, frontends, .. }) in &changes.ports {
        let groups = groups.iter().flat_map(group);
        let frontends = frontends.iter().flat_map(|frontend| frontend_flows(&node, frontend));
        flows.set(&key.to_string(), groups.chain(frontends).collect());
    }
    bridge.change(flows);
}

fn key(endpoint: &Endpoint) -> String {
    format!("/{endpoint:?}")
}

/// All that was sent is on the switch, and none of it was refused.
async fn settled(bridge: &Bridge, mgmt: &Path) -> Held {
    timeout(DEADLINE, bridge.barrier()).await.unwrap().unwrap();
    let mut state_rx = bridge.state();
    timeout(DEADLINE, state_rx.wait_for(|state| state.first_sync_done)).await.unwrap().unwrap();
    timeout(DEADLINE, bridge.barrier()).await.unwrap().unwrap();
    assert_eq!(bridge.state().borrow().refused, []);
    held(mgmt).await
}

/// What a fresh start makes of what is left.
async fn fresh(ovs: &Ovs, left: &Left, proxy: &Proxy) -> Held {
    let mgmt = ovs.mgmt(FRESH);
    let bridge = start(&mgmt);
    let mut fresh = Proxy::new(random::config());
    fresh.keep_numbers(proxy.numbers());
    send(&bridge, &fresh.step(left.all()));
    bridge.synced(SERVICE);
    settled(&bridge, &mgmt).await
}

/// One history; gives the most groups that were seen at once.
async fn run(ovs: &Ovs, history: u64, coverage: &mut Coverage) -> usize {
    let mgmt = ovs.mgmt(BRIDGE);
    let bridge = start(&mgmt);
    let mut most = 0;
    let mut left = Left::default();
    let (mut proxy, mut told) = (Proxy::new(random::config()), Told::default());
    send(&bridge, &proxy.step(left.all()));
    bridge.synced(SERVICE);
    for n in 0..N_EVENTS {
        let events = left.happen((history << 32) | n);
        let changes = proxy.step(events);
        coverage.note(&changes);
        told.take(&changes);
        coverage.look(&left, &told);
        send(&bridge, &changes);
        if n % N_AT_ONCE == 0 {
            timeout(DEADLINE, bridge.barrier()).await.unwrap().unwrap();
        }
        if (n + 1) % N_BETWEEN == 0 {
            let churned = settled(&bridge, &mgmt).await;
            let fresh = fresh(ovs, &left, &proxy).await;
            assert_eq!(churned.difference(&fresh), "", "history {history}, event {n}");
            assert_eq!(churned, fresh, "history {history}, event {n}");
            most = most.max(churned.groups.len());
        }
    }
    most
}

#[test]
#[ignore = "needs root: make test"]
fn any_churn_leaves_what_a_fresh_start_makes() {
    with_ovs(async |ovs| {
        let session = mk_bridge(&ovs).await;
        session.ensure_bridge(BridgeSpec::secure(FRESH, "netdev")).await.unwrap();
        session.wait_ofport(FRESH, DEADLINE).await.unwrap();
        let mut coverage = Coverage::default();
        let mut most = 0;
        for history in 0..N_HISTORIES {
            most = most.max(run(&ovs, history, &mut coverage).await);
        }
        assert!(most > 2, "{most} groups at once, in all histories");
        assert_eq!(coverage.0, BTreeSet::from(Coverage::ALL), "the generator hits each kind");
    });
}
