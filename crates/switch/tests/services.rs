//! Groups of Services on a real switch: of every size, changed, and found again.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use common::dump::{Held, held};
use common::{BRIDGE, DEADLINE, eventually, mk_bridge, with_ovs};
use openflow::{GroupId, Intent, MacAddr, OfPort};
use pipeline::service::{
    Datapath, Endpoint, Frontend, FrontendAddress, Group, Place, Protocol, ServiceConfig, Target,
    endpoint_flows, frontend_flows, group, node_flows,
};
use pipeline::{Families, Gateway, NodeConfig};
use switch::bridge::{Bridge, BridgeConfig, Owner};
use testkit::fault_proxy::{Direction, Fault, FaultKind, FaultProxy, Seen, Which};
use tokio::time::timeout;

const SERVICE: Owner = Owner(3);

fn mk_node() -> NodeConfig {
    NodeConfig {
        families: Families::V4,
        gateway: Gateway {
            ofport: OfPort(2),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ips: vec![IpAddr::from([10, 77, 1, 1])],
        },
        tunnel: None,
        pod_cidrs: vec!["10.77.1.0/24".parse().unwrap()],
        node_ips: vec![],
        services: Some(ServiceConfig {
            datapath: Datapath::Netdev,
            proxy_all: true,
            node_port_addresses: vec![],
            dsr: false,
            controller_id: 1,
            packet_in_rate: Some(100),
        }),
    }
}

fn mk_endpoint(n: u32) -> Endpoint {
    let ip = Ipv4Addr::from(0x0a4d_0200 + n).into();
    Endpoint { ip, port: 8080, protocol: Protocol::Tcp, place: Place::RemotePod }
}

/// All that a Service of so many endpoints wants; endpoints begin at number `first`.
fn mk_service(id: u32, first: u32, n_endpoints: u32) -> Vec<Intent> {
    let node = mk_node();
    let endpoints: Vec<_> = (first..first + n_endpoints).map(mk_endpoint).collect();
    let frontend = Frontend {
        address: FrontendAddress::Ip(Ipv4Addr::from(0x0a60_0000 + id).into()),
        protocol: Protocol::Tcp,
        port: 80,
        external: false,
        target: Target::Group(GroupId(id)),
        local_clients: None,
        affinity: Some(600),
        source_ranges: vec![],
        dsr: None,
    };
    let mut intents = frontend_flows(&node, &frontend);
    intents.extend(endpoints.iter().flat_map(|endpoint| endpoint_flows(&node, endpoint)));
    intents.extend(group(&Group { id: GroupId(id), endpoints, affinity: true }));
    intents
}

fn mk_config(mgmt: &Path) -> BridgeConfig {
    let mut config = BridgeConfig::new(mgmt, 0xa17e);
    config.owners = vec![SERVICE];
    config.controller_id = None;
    config.repair_interval = Duration::from_millis(500);
    config
}

/// Endpoints in the groups that the switch holds.
fn n_buckets(held: &Held) -> usize {
    let n_endpoints = |group: &String| group.matches("->reg3").count();
    held.groups.iter().map(n_endpoints).sum()
}

/// Whether a message to the switch changes flows, groups or meters, alone or in a bundle.
fn is_change(name: &str) -> bool {
    ["14", "15", "29", "34"].contains(&name) || name.starts_with("33.")
}

async fn barrier(bridge: &Bridge) {
    timeout(DEADLINE, bridge.barrier()).await.unwrap().unwrap();
}

#[test]
#[ignore = "needs root: make test"]
fn services_of_every_size_come_shrink_and_are_found_again() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mgmt = ovs.mgmt(BRIDGE);
        let bridge = Bridge::start(mk_config(&mgmt));
        bridge.set(SERVICE, "node", node_flows(&mk_node()));
        bridge.synced(SERVICE);
        for n in [1, 511, 512, 700, 701, 800, 1000, 5000, 800, 512, 3, 5000] {
            bridge.set(SERVICE, "web", mk_service(7, 0, n));
            barrier(&bridge).await;
            assert_eq!(n_buckets(&held(&mgmt).await), n as usize, "{n}");
        }
        // Other endpoints altogether.
        bridge.set(SERVICE, "web", mk_service(7, 9000, 5000));
        barrier(&bridge).await;
        let before = held(&mgmt).await;
        assert_eq!(n_buckets(&before), 5000);
        assert_eq!(bridge.state().borrow().n_repaired, 0);
        drop(bridge);

        // One that starts anew finds all of it, and changes nothing.
        let proxy = FaultProxy::start(testkit::fault_proxy::Protocol::OpenFlow, &mgmt);
        let again = Bridge::start(mk_config(&proxy.socket()));
        again.set(SERVICE, "node", node_flows(&mk_node()));
        again.set(SERVICE, "web", mk_service(7, 9000, 5000));
        again.synced(SERVICE);
        barrier(&again).await;
        let mut state_rx = again.state();
        timeout(DEADLINE, state_rx.wait_for(|state| state.first_sync_done)).await.unwrap().unwrap();
        let mut want = Held::default();
        for intent in node_flows(&mk_node()).into_iter().chain(mk_service(7, 9000, 5000)) {
            match intent {
                Intent::Flow(flow) => want.flows.push(flow.normalize().to_string()),
                Intent::Group(group) => want.groups.push(group.normalize().to_string()),
                Intent::Meter(meter) => want.meters.push(meter.to_string()),
            }
        }
        let differs = before.difference(&want.sorted());
        assert_eq!(differs, "", "the switch tells what it was sent");
        let n_changes = || proxy.seen().iter().filter(|message| is_change(&message.name)).count();
        assert_eq!(n_changes(), 0, "{:?}", proxy.seen());
        assert_eq!(held(&mgmt).await, before);

        // An endpoint goes: its flows, and the one part of the group that it was in.
        again.set(SERVICE, "web", mk_service(7, 9000, 4999));
        barrier(&again).await;
        let after = held(&mgmt).await;
        let kept = before.groups.iter().filter(|group| after.groups.contains(group)).count();
        assert_eq!((kept, after.groups.len()), (before.groups.len() - 1, before.groups.len()));
        assert!(n_changes() > 0, "the proxy sees changes");
        again.remove(SERVICE, "web");
        barrier(&again).await;
        assert_eq!(held(&mgmt).await.groups, Vec::<String>::new());
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_restarted_switch_gets_200_services_back() {
    with_ovs(async |mut ovs| {
        let _session = mk_bridge(&ovs).await;
        let mgmt = ovs.mgmt(BRIDGE);
        let bridge = Bridge::start(mk_config(&mgmt));
        bridge.set(SERVICE, "node", node_flows(&mk_node()));
        for id in 1..=200 {
            bridge.set(SERVICE, &format!("ns/web-{id}:http"), mk_service(id, id * 5, 5));
        }
        bridge.synced(SERVICE);
        barrier(&bridge).await;
        let before = held(&mgmt).await;
        assert_eq!((before.groups.len(), n_buckets(&before)), (200, 1000));
        for _ in 0..3 {
            ovs.restart_vswitchd();
            eventually("groups are back", || {
                let target = mgmt.display().to_string();
                ovs.ofctl_result(&["dump-groups", &target])
                    .is_ok_and(|text| text.matches("group_id").count() == 200)
            })
            .await;
            barrier(&bridge).await;
            assert_eq!(held(&mgmt).await, before);
        }
        assert_eq!(bridge.state().borrow().refused, []);
    });
}

/// A Service goes while the answer to the bundle that made it is lost; then its number is another
/// Service's.
#[test]
#[ignore = "needs root: make test"]
fn a_group_whose_answer_is_lost_is_no_obstacle() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mgmt = ovs.mgmt(BRIDGE);
        let proxy = FaultProxy::start(testkit::fault_proxy::Protocol::OpenFlow, &mgmt);
        let mut config = mk_config(&proxy.socket());
        config.timing.probe_interval = Duration::from_millis(50);
        config.timing.setup_deadline = Duration::from_millis(500);
        let bridge = Bridge::start(config);
        bridge.set(SERVICE, "node", node_flows(&mk_node()));
        bridge.synced(SERVICE);
        barrier(&bridge).await;
        let alone = held(&mgmt).await;
        let committed = || Which::NthNamed("33.5".into(), 0);
        for (which, kind) in [
            (committed(), FaultKind::Swallow),
            (committed(), FaultKind::CutBefore),
            (committed(), FaultKind::Truncate),
            (Which::Nth(0), FaultKind::Swallow),
        ] {
            let n_struck = |seen: &[Seen]| seen.iter().filter(|s| s.fault.is_some()).count();
            let before = n_struck(&proxy.seen());
            proxy.arm(Fault { direction: Direction::ToClient, which, kind });
            bridge.set(SERVICE, "first", mk_service(7, 0, 300));
            eventually("an answer is lost", || n_struck(&proxy.seen()) > before).await;
            bridge.remove(SERVICE, "first");
            bridge.set(SERVICE, "second", mk_service(7, 400, 3));
            barrier(&bridge).await;
            let now = held(&mgmt).await;
            assert_eq!((now.groups.len(), n_buckets(&now)), (1, 3), "{kind:?}");
            bridge.remove(SERVICE, "second");
            barrier(&bridge).await;
            assert_eq!(held(&mgmt).await, alone, "{kind:?}");
        }
    });
}
