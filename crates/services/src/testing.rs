//! Builders for tests: a node `us` in zone `a`, whose Pods are in 10.1.0.0/24 and fd00:1::/64; Pods of
//! another node, `near`, are in 10.1.1.0/24 and fd00:2::/64.
#![allow(clippy::unwrap_used, reason = "all values are written down in tests")]
#![cfg_attr(not(test), allow(dead_code, reason = "other crates have `random` alone"))]

use std::net::IpAddr;
use std::sync::Arc;

use apis::service::{
    EndpointSlice, Service, ServiceName, ServicePort, ServiceProtocol, ServiceType, SliceEndpoint,
    SliceName, SlicePort,
};
use ipnet::IpNet;
use pipeline::Families;

use crate::{Config, Event};

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn mk_config() -> Config {
    Config { proxy_all: true, ..Config::new("us", Families::Dual) }
}

pub(crate) fn mk_node() -> Vec<Event> {
    let nets = |all: [&str; 2]| -> Vec<IpNet> { all.map(|text| text.parse().unwrap()).into() };
    vec![
        Event::Zone(Some("a".into())),
        Event::PodCidrs {
            ours: nets(["10.1.0.0/24", "fd00:1::/64"]),
            others: nets(["10.1.1.0/24", "fd00:2::/64"]),
        },
    ]
}

/// A Service in namespace `x` with these cluster addresses and one TCP port, 80.
pub(crate) fn mk_service(name: &str, cluster_ips: &[&str]) -> Service {
    Service {
        name: ServiceName::new("x", name),
        cluster_ips: cluster_ips.iter().map(|text| ip(text)).collect(),
        ports: vec![mk_port("http", ServiceProtocol::Tcp, 80, None)],
        ..Service::default()
    }
}

/// The same as a load balancer's, at 198.51.100.1, with NodePort 30080.
pub(crate) fn mk_balanced(name: &str, cluster_ips: &[&str]) -> Service {
    Service {
        kind: ServiceType::LoadBalancer,
        ingress: vec![(ip("198.51.100.1"), Default::default())],
        ports: vec![mk_port("http", ServiceProtocol::Tcp, 80, Some(30080))],
        ..mk_service(name, cluster_ips)
    }
}

pub(crate) fn mk_port(
    name: &str,
    protocol: ServiceProtocol,
    port: u16,
    node_port: Option<u16>,
) -> ServicePort {
    ServicePort { name: name.into(), protocol, port, node_port }
}

/// A slice of a Service for its port `http`, at 8080; each server is `address`, or `address/lasts`
/// for one that is about to end. The node follows from the address, or is told: `address@us`.
pub(crate) fn mk_slice(service: &str, name: &str, servers: &[&str]) -> EndpointSlice {
    mk_slice_of(service, name, &[("http", ServiceProtocol::Tcp, 8080)], servers)
}

pub(crate) fn mk_slice_of(
    service: &str,
    name: &str,
    ports: &[(&str, ServiceProtocol, u16)],
    servers: &[&str],
) -> EndpointSlice {
    let port = |(name, protocol, port): &(&str, ServiceProtocol, u16)| SlicePort {
        name: (*name).into(),
        protocol: *protocol,
        port: *port,
    };
    EndpointSlice {
        name: SliceName { namespace: "x".into(), name: name.into() },
        service: Some(service.into()),
        ports: ports.iter().map(port).collect(),
        endpoints: servers.iter().map(|text| mk_endpoint(text)).collect(),
    }
}

pub(crate) fn mk_endpoint(text: &str) -> SliceEndpoint {
    let (address, state) = text.split_once('/').unwrap_or((text, "ready"));
    let ours = ["10.1.0.", "fd00:1:"].iter().any(|prefix| address.starts_with(prefix));
    let usual = if ours { "us" } else { "near" };
    let (address, node) = address.split_once('@').unwrap_or((address, usual));
    SliceEndpoint {
        ip: ip(address),
        ready: state == "ready",
        serving: matches!(state, "ready" | "lasts"),
        terminating: matches!(state, "lasts" | "ends"),
        node: Some(Arc::from(node)),
        for_zones: Arc::from([]),
        for_nodes: Arc::from([]),
    }
}
