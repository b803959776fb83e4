//! Puts Services on a real Open vSwitch through the reconciler: one of 5,000 endpoints, then one
//! endpoint more and less, then 5,000 Services of 5 endpoints.
//!
//! `cargo run --release -p switch --example bench_services`, as root.

use std::io::{Write as _, stdout};
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use openflow::{GroupId, Intent, MacAddr, OfPort};
use pipeline::service::{
    Datapath, Endpoint, Frontend, FrontendAddress, Group, Place, Protocol, ServiceConfig, Target,
    endpoint_flows, frontend_flows, group, node_flows,
};
use pipeline::{Families, Gateway, NodeConfig};
use serde_json::json;
use switch::bridge::{Bridge, BridgeConfig, Owner};
use switch::ovsdb_session::{BridgeSpec, OvsdbConfig, OvsdbSession};
use testkit::netns::in_netns;
use testkit::ovs::Ovs;

const BRIDGE: &str = "br-int";
const MARKER: u16 = 0xa17e;
const SERVICE: Owner = Owner(3);
/// How often one endpoint comes and goes.
const N_CHANGES: u32 = 100;

fn main() -> Result<()> {
    in_netns(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("start runtime")?;
        runtime.block_on(run())
    })
}

async fn run() -> Result<()> {
    let ovs = Ovs::start(None);
    let session = OvsdbSession::connect(OvsdbConfig::new(ovs.db_sock()));
    session.ensure_bridge(BridgeSpec::secure(BRIDGE, "netdev")).await?;
    session.wait_ofport(BRIDGE, Duration::from_secs(20)).await?;
    let node = mk_node()?;
    let mut config = BridgeConfig::new(ovs.mgmt(BRIDGE), MARKER);
    config.owners = vec![SERVICE];
    config.controller_id = None;
    let bridge = Bridge::start(config);
    bridge.set(SERVICE, "node", node_flows(&node));
    bridge.synced(SERVICE);
    bridge.barrier().await?;
    let endpoints: Vec<_> = (0..5000).map(mk_endpoint).collect();
    let started = Instant::now();
    for endpoint in &endpoints {
        set_endpoint(&bridge, &node, endpoint);
    }
    bridge.set(SERVICE, "large", mk_service(&node, 1, &endpoints));
    bridge.barrier().await?;
    let large = millis(started.elapsed());
    let mut took = Vec::new();
    for n in 0..N_CHANGES {
        let extra = mk_endpoint(6000 + n);
        let more = [endpoints.as_slice(), &[extra]].concat();
        for (endpoints, comes) in [(more.as_slice(), true), (endpoints.as_slice(), false)] {
            let started = Instant::now();
            if comes {
                set_endpoint(&bridge, &node, &extra);
            } else {
                bridge.remove(SERVICE, &key(&extra));
            }
            bridge.set(SERVICE, "large", mk_service(&node, 1, endpoints));
            bridge.barrier().await?;
            took.push(millis(started.elapsed()));
        }
    }
    took.sort_by(f64::total_cmp);

    let started = Instant::now();
    for id in 0..5000 {
        let endpoints: Vec<_> = (0..5).map(|n| mk_endpoint(10_000 + id * 5 + n)).collect();
        for endpoint in &endpoints {
            set_endpoint(&bridge, &node, endpoint);
        }
        bridge.set(SERVICE, &format!("ns/{id}:http"), mk_service(&node, 2 + id, &endpoints));
    }
    bridge.barrier().await?;
    let many = millis(started.elapsed());
    let change = json!({ "medianMs": took.get(took.len() / 2), "maxMs": took.last() });
    let figures = json!([
        { "name": "a Service of 5,000 endpoints", "values": { "ms": large } },
        { "name": format!("one endpoint of 5,000 more or less, {} times", took.len()), "values": change },
        { "name": "5,000 Services of 5 endpoints", "values": { "ms": many } },
    ]);
    writeln!(stdout().lock(), "{figures}")?;
    Ok(())
}

fn mk_node() -> Result<NodeConfig> {
    Ok(NodeConfig {
        families: Families::V4,
        gateway: Gateway {
            ofport: OfPort(2),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            ips: vec![IpAddr::from([10, 77, 1, 1])],
        },
        tunnel: None,
        pod_cidrs: vec!["10.77.1.0/24".parse().context("Pod prefix")?],
        node_ips: Vec::new(),
        services: Some(ServiceConfig {
            datapath: Datapath::Netdev,
            proxy_all: true,
            node_port_addresses: Vec::new(),
            dsr: false,
            controller_id: 1,
            packet_in_rate: None,
        }),
    })
}

fn mk_endpoint(n: u32) -> Endpoint {
    let ip = Ipv4Addr::from(0x0a80_0000 + n).into();
    Endpoint { ip, port: 8080, protocol: Protocol::Tcp, place: Place::RemotePod }
}

fn key(endpoint: &Endpoint) -> String {
    format!("{}:{}", endpoint.ip, endpoint.port)
}

fn set_endpoint(bridge: &Bridge, node: &NodeConfig, endpoint: &Endpoint) {
    bridge.set(SERVICE, &key(endpoint), endpoint_flows(node, endpoint));
}

fn mk_service(node: &NodeConfig, id: u32, endpoints: &[Endpoint]) -> Vec<Intent> {
    let frontend = Frontend {
        address: FrontendAddress::Ip(Ipv4Addr::from(0x0a60_0000 + id).into()),
        protocol: Protocol::Tcp,
        port: 80,
        external: false,
        target: Target::Group(GroupId(id)),
        local_clients: None,
        affinity: None,
        source_ranges: Vec::new(),
        dsr: None,
    };
    let of = Group { id: GroupId(id), endpoints: endpoints.to_vec(), affinity: false };
    let mut intents = frontend_flows(node, &frontend);
    intents.extend(group(&of));
    intents
}

fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e4).round() / 10.0
}
