//! The flows that features really make, kept on a real Open vSwitch: every one of them has to come
//! back from the switch in the form in which it was sent, or it would be sent again and again.

#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::time::Duration;

use common::{BRIDGE, DEADLINE, eventually, mk_bridge, with_ovs};
use openflow::{Intent, MacAddr, OfPort};
use pipeline::{Families, Gateway, NodeConfig, PeerNode, PodInterface, Tunnel, TunnelKind};
use switch::bridge::{Bridge, BridgeConfig, Owner};
use tokio::time::timeout;

const POD: Owner = Owner(1);

fn mk_node() -> NodeConfig {
    NodeConfig {
        families: Families::Dual,
        gateway: Gateway {
            ofport: OfPort(2),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ips: vec!["10.77.1.1".parse().unwrap(), "fd00:77:1::1".parse().unwrap()],
        },
        tunnel: Some(Tunnel { ofport: OfPort(1), kind: TunnelKind::Geneve, port: 6081 }),
        pod_cidrs: vec!["10.77.1.0/24".parse().unwrap(), "fd00:77:1::/64".parse().unwrap()],
        node_ips: vec!["172.30.0.1".parse().unwrap()],
        services: None,
    }
}

fn mk_pod(number: u8) -> PodInterface {
    PodInterface {
        name: format!("pod{number}"),
        ofport: OfPort(u32::from(number)),
        mac: MacAddr([2, 0, 0, 0, 1, number]),
        ips: vec![
            format!("10.77.1.{number}").parse().unwrap(),
            format!("fd00:77:1::{number}").parse().unwrap(),
        ],
    }
}

fn mk_peer(number: u8) -> PeerNode {
    PeerNode {
        name: format!("n{number}"),
        pod_cidrs: vec![
            format!("10.77.{number}.0/24").parse().unwrap(),
            format!("fd00:77:{number}::/64").parse().unwrap(),
        ],
        gateway_ips: vec![
            format!("10.77.{number}.1").parse().unwrap(),
            format!("fd00:77:{number}::1").parse().unwrap(),
        ],
        node_ip: format!("172.30.0.{number}").parse().unwrap(),
        other_ips: vec![],
    }
}

#[test]
#[ignore = "needs root: make test"]
fn every_flow_of_the_pipeline_comes_back_as_it_was_sent() {
    with_ovs(async |ovs| {
        let session = mk_bridge(&ovs).await;
        session.set_table_names(BRIDGE, &[]).await.unwrap();
        let node = mk_node();
        let mut sets: Vec<(String, Vec<Intent>)> =
            vec![("node".into(), pipeline::connectivity::node_flows(&node))];
        for number in 10..13 {
            let pod = mk_pod(number);
            sets.push((pod.name.clone(), pipeline::connectivity::pod_flows(&node, &pod)));
        }
        for number in 2..4 {
            let peer = mk_peer(number);
            sets.push((peer.name.clone(), pipeline::connectivity::peer_flows(&node, &peer)));
        }
        let n_flows: usize = sets.iter().map(|(_, intents)| intents.len()).sum();
        let mk_keeper = || {
            let mut config = BridgeConfig::new(ovs.mgmt(BRIDGE), 0xa17e);
            config.owners = vec![POD];
            config.repair_interval = Duration::from_millis(100);
            let bridge = Bridge::start(config);
            for (key, intents) in &sets {
                bridge.set(POD, key, intents.clone());
            }
            bridge.synced(POD);
            bridge
        };
        let bridge = mk_keeper();
        timeout(DEADLINE, bridge.barrier()).await.unwrap().unwrap();
        let flows = ovs.flows(BRIDGE);
        assert_eq!(flows.len(), n_flows);

        // Each of these needs the whole switch to be looked over.
        let mgmt = ovs.mgmt(BRIDGE).display().to_string();
        for round in 1..=3 {
            ovs.ofctl(&["add-flow", &mgmt, "table=240,priority=7,udp,actions=drop"]);
            eventually("the foreign flow is gone", || ovs.flows(BRIDGE) == flows).await;
            let mut state_rx = bridge.state();
            let wait = state_rx.wait_for(|state| state.n_repaired >= round);
            timeout(DEADLINE, wait).await.unwrap().unwrap();
            assert_eq!(bridge.state().borrow().n_repaired, round, "nothing else was repaired");
        }

        // One that starts anew finds everything and sends nothing.
        drop(bridge);
        let again = mk_keeper();
        timeout(DEADLINE, again.barrier()).await.unwrap().unwrap();
        let mut state_rx = again.state();
        let wait = state_rx.wait_for(|state| state.first_sync_done);
        timeout(DEADLINE, wait).await.unwrap().unwrap();
        assert_eq!(ovs.flows(BRIDGE), flows);
        assert_eq!(again.state().borrow().n_repaired, 0);
    });
}
