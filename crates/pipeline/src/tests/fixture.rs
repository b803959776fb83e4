//! One node with its Pods and peers, in each family.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::{Flow, Intent, MacAddr, OfPort};

use crate::connectivity::{node_flows, peer_flows, pod_flows};
use crate::fields::{GATEWAY_OFPORT, TUNNEL_OFPORT};
use crate::policy::{HostMark, PolicyConfig};
use crate::service::{Datapath, ServiceConfig};
use crate::{
    Families, Gateway, NodeConfig, PeerNode, PodInterface, Tunnel, TunnelKind, miss_flows,
};

pub(super) const MODES: [(&str, Families); 3] =
    [("ipv4", Families::V4), ("ipv6", Families::V6), ("dual", Families::Dual)];

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(super) fn mac(text: &str) -> MacAddr {
    text.parse().unwrap()
}

/// Those of the addresses or prefixes that are of a family in use.
fn of<T: std::str::FromStr<Err: std::fmt::Debug>>(
    families: Families,
    v4: &str,
    v6: &str,
) -> Vec<T> {
    let v4 = families.has_v4().then(|| v4.parse().unwrap());
    v4.into_iter().chain(families.has_v6().then(|| v6.parse().unwrap())).collect()
}

/// 10.77.1.0/24 and fd00:77:1::/64 on node 172.30.0.1.
pub(super) fn mk_node(families: Families) -> NodeConfig {
    NodeConfig {
        families,
        gateway: Gateway {
            ofport: GATEWAY_OFPORT,
            mac: mac("0a:00:00:00:01:01"),
            ips: of(families, "10.77.1.1", "fd00:77:1::1"),
        },
        tunnel: Some(Tunnel { ofport: TUNNEL_OFPORT, kind: TunnelKind::Geneve, port: 6081 }),
        pod_cidrs: of::<IpNet>(families, "10.77.1.0/24", "fd00:77:1::/64"),
        node_ips: vec![ip("172.30.0.1"), ip("fd00:30::1")],
        services: None,
    }
}

/// The same node, serving Services.
pub(super) fn mk_service_node(families: Families) -> NodeConfig {
    let services = ServiceConfig {
        datapath: Datapath::Netdev,
        proxy_all: true,
        node_port_addresses: of(families, "172.30.0.1", "fd00:30::1"),
        dsr: false,
        controller_id: 1,
        packet_in_rate: None,
    };
    NodeConfig { services: Some(services), ..mk_node(families) }
}

/// Pod 2 is at port 2 with addresses that end in 2.
pub(super) fn mk_pod(families: Families, n: u32) -> PodInterface {
    PodInterface {
        name: format!("pod{n}"),
        ofport: OfPort(n),
        mac: MacAddr([0x0a, 0, 0, 0, 2, u8::try_from(n).unwrap()]),
        ips: of(families, &format!("10.77.1.{n}"), &format!("fd00:77:1::{n}")),
    }
}

/// Node 2 has 10.77.2.0/24 and fd00:77:2::/64 and is at 172.30.0.2.
pub(super) fn mk_peer(families: Families, n: u8) -> PeerNode {
    PeerNode {
        name: format!("node{n}"),
        pod_cidrs: of(families, &format!("10.77.{n}.0/24"), &format!("fd00:77:{n}::/64")),
        gateway_ips: of(families, &format!("10.77.{n}.1"), &format!("fd00:77:{n}::1")),
        node_ip: ip(&format!("172.30.0.{n}")),
        other_ips: vec![ip(&format!("fd00:30::{n}"))],
    }
}

/// Meters left out: policies have some.
pub(super) fn flows(intents: Vec<Intent>) -> Vec<Flow> {
    let flow = |intent| match intent {
        Intent::Flow(flow) => Some(flow),
        Intent::Meter(_) => None,
        other => panic!("connectivity needs flows only, not {other:?}"),
    };
    intents.into_iter().filter_map(flow).collect()
}

pub(super) fn mk_policy_config(families: Families) -> PolicyConfig {
    PolicyConfig {
        families,
        controller_id: 1,
        packet_in_rate: None,
        host_mark: HostMark::GatewayAddress,
    }
}

/// A node with Pods 2 and 3 and peers 2 and 3.
pub(super) fn all_flows(families: Families) -> Vec<Flow> {
    flows_of(&mk_node(families))
}

/// The same for this node.
pub(super) fn flows_of(node: &NodeConfig) -> Vec<Flow> {
    let families = node.families;
    let policy = crate::policy::node_flows(node, &mk_policy_config(families));
    let service = crate::service::node_flows(node);
    let mut all = [miss_flows(node), node_flows(node), policy, service].concat();
    for n in [2, 3] {
        all.extend(pod_flows(node, &mk_pod(families, n)));
    }
    for n in [2, 3] {
        all.extend(peer_flows(node, &mk_peer(families, n)));
    }
    flows(all)
}

/// The flows of a dump or a golden file, comments left out, in the form that a switch gives back.
pub(super) fn parse<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Flow> {
    let flow = |line: &str| match line.parse::<Flow>() {
        Ok(flow) => flow.normalize(),
        Err(error) => panic!("{error}: {line}"),
    };
    lines.into_iter().filter(|line| !line.starts_with('#')).map(flow).collect()
}
