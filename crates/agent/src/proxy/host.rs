//! What the host sends to the switch for Services (`proxyAll`): routes and rules. Pure.
//!
//! Not here: bringing the kernel to it (`host::service`, `host::nft::service`, `node_loop`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use host::link::{IfIndex, MacAddr};
use host::nft::Transport;
use host::nft::service::ServiceRules;
use host::service::{ServiceRoutes, Virtual};
use ipnet::IpNet;
use pipeline::Families;
use pipeline::fields::{
    VIRTUAL_NODE_PORT_IP, VIRTUAL_NODE_PORT_IP_V6, VIRTUAL_SERVICE_IP, VIRTUAL_SERVICE_IP_V6,
};
use pipeline::service::Protocol;
use services::HostWants;

/// Cluster addresses that share so many leading bits have one route.
const SHARED_BITS: [u8; 2] = [16, 108];

/// Addresses that stand for Services in the families of Pods.
fn virtuals(families: Families) -> Vec<Virtual> {
    let v4 = Virtual { service: VIRTUAL_SERVICE_IP.into(), node_port: VIRTUAL_NODE_PORT_IP.into() };
    let v6 = Virtual {
        service: VIRTUAL_SERVICE_IP_V6.into(),
        node_port: VIRTUAL_NODE_PORT_IP_V6.into(),
    };
    let v4 = families.has_v4().then_some(v4);
    let v6 = families.has_v6().then_some(v6);
    v4.into_iter().chain(v6).collect()
}

/// Without external addresses that are a node's: whoever may write a Service must not be able to lead
/// the cluster's own traffic away.
pub(crate) fn without_nodes(wants: &HostWants, nodes: &BTreeSet<IpAddr>) -> HostWants {
    let mut wants = wants.clone();
    wants.external_ips.retain(|ip| !nodes.contains(ip));
    wants
}

/// The routes to these Services; without any Services there are none.
pub(crate) fn routes(
    wants: Option<&HostWants>,
    families: Families,
    gateway: IfIndex,
    mac: MacAddr,
) -> ServiceRoutes {
    let Some(wants) = wants else {
        return ServiceRoutes { gateway, mac, virtuals: Vec::new(), destinations: Vec::new() };
    };
    let external = wants.external_ips.iter().map(|ip| IpNet::from(*ip));
    let destinations = ranges(wants.cluster_ips.iter().copied()).chain(external);
    let destinations = destinations.collect();
    ServiceRoutes { gateway, mac, virtuals: virtuals(families), destinations }
}

/// The smallest prefixes that hold neighbouring addresses: few routes, which lead nowhere far from a
/// Service.
fn ranges(ips: impl Iterator<Item = IpAddr>) -> impl Iterator<Item = IpNet> {
    let mut by_start: BTreeMap<IpNet, IpNet> = BTreeMap::new();
    for ip in ips {
        let whole = IpNet::from(ip);
        let start = shorten(whole, SHARED_BITS[usize::from(ip.is_ipv6())]);
        let range = by_start.entry(start).or_insert(whole);
        while !range.contains(&ip) {
            *range = shorten(*range, range.prefix_len().saturating_sub(1));
        }
    }
    by_start.into_values()
}

fn shorten(net: IpNet, bits: u8) -> IpNet {
    IpNet::new(net.addr(), bits).map_or(net, |shorter| shorter.trunc())
}

/// The rules for these Services.
pub(crate) fn rules(
    wants: &HostWants,
    families: Families,
    gateway: &str,
    node_port_addresses: &[IpAddr],
) -> ServiceRules {
    let transport = |protocol| match protocol {
        Protocol::Tcp => Transport::Tcp,
        Protocol::Udp => Transport::Udp,
        Protocol::Sctp => Transport::Sctp,
    };
    let ports = wants.node_ports.iter();
    ServiceRules {
        gateway: gateway.to_owned(),
        virtuals: virtuals(families),
        node_port_addresses: node_port_addresses.to_vec(),
        node_ports: ports.map(|(protocol, port, _)| (transport(*protocol), *port)).collect(),
        external: wants.external_ips.iter().copied().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_route_leads_a_nodes_address_away() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let external_ips = BTreeSet::from([ip("172.30.0.2"), ip("203.0.113.1")]);
        let wants = HostWants { external_ips, ..HostWants::default() };
        let left = without_nodes(&wants, &BTreeSet::from([ip("172.30.0.1"), ip("172.30.0.2")]));
        assert_eq!(left.external_ips, BTreeSet::from([ip("203.0.113.1")]));
    }

    #[test]
    fn routes_lead_to_services_and_to_little_else() {
        let shown = |ips: &[&str]| -> Vec<String> {
            ranges(ips.iter().map(|ip| ip.parse().unwrap())).map(|net| net.to_string()).collect()
        };
        for (ips, want) in [
            (&["10.96.0.1"][..], &["10.96.0.1/32"][..]),
            (&["10.96.0.1", "10.96.0.10"], &["10.96.0.0/28"]),
            (&["10.96.0.1", "10.96.200.1", "10.105.3.4"], &["10.96.0.0/16", "10.105.3.4/32"]),
            (&["fd00:96::1", "fd00:96::8"], &["fd00:96::/124"]),
            (&["fd00:96::1", "fd00:97::1"], &["fd00:96::1/128", "fd00:97::1/128"]),
            (&[], &[]),
        ] {
            assert_eq!(shown(ips), want, "{ips:?}");
        }
    }

    #[test]
    fn each_family_of_pods_has_its_own_way() {
        let wants = HostWants {
            node_ports: [(Protocol::Udp, 30053, false), (Protocol::Udp, 30053, true)].into(),
            cluster_ips: ["10.96.0.1".parse().unwrap()].into(),
            external_ips: ["192.0.2.1".parse().unwrap()].into(),
        };
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let of = |families| routes(Some(&wants), families, IfIndex(7), mac);
        assert_eq!(of(Families::V4).virtuals.len(), 1);
        assert_eq!(of(Families::Dual).virtuals.len(), 2);
        assert_eq!(of(Families::V6).virtuals[0].node_port, IpAddr::from(VIRTUAL_NODE_PORT_IP_V6));
        assert_eq!(of(Families::V4).destinations.len(), 2);
        let none = routes(None, Families::Dual, IfIndex(7), mac);
        assert_eq!(none.wanted(), [], "what was there goes");
        let rules = rules(&wants, Families::Dual, "gw0", &["172.30.0.1".parse().unwrap()]);
        assert_eq!(rules.node_ports, [(Transport::Udp, 30053)].into());
    }
}
