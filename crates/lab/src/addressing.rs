//! Addresses of one lab, by family: underlay, outside host, API server, Pods, Services. Pure.
//!
//! Both families count alike: node `n` is `172.30.0.n` and `fd00:ac:1e::n`. IPv4 comes first in a
//! lab of both.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use crate::layout::{API_PORT, OUTSIDE};
use crate::variant::IpFamily;

/// An address behind the outside host that is on no link of a node.
const BEHIND_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// The same of IPv6.
const BEHIND_OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0x100, 0, 0, 0, 1);
/// An address behind a link of the outside host that takes shorter packets than all others.
const BEHIND_NARROW: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The same of IPv6.
const BEHIND_NARROW6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x51, 0x100, 0, 0, 0, 2);
/// Number of the outside host on the underlay.
const OUTSIDE_NUMBER: u8 = 100;
/// Number of the API server on the underlay.
const API_NUMBER: u8 = 254;

/// One address for each family of a lab.
fn each(family: IpFamily, v4: Ipv4Addr, v6: Ipv6Addr) -> Vec<IpAddr> {
    [IpAddr::V4(v4), IpAddr::V6(v6)].into_iter().filter(|ip| family.has(*ip)).collect()
}

/// Addresses of a number on the underlay.
fn underlay(family: IpFamily, n: u8) -> Vec<IpAddr> {
    let [a, b, c, _] = OUTSIDE.octets();
    let v6 = Ipv6Addr::new(0xfd00, 0xac, 0x1e, 0, 0, 0, 0, n.into());
    each(family, Ipv4Addr::new(a, b, c, n), v6)
}

/// Underlay addresses of node number `n`.
#[must_use]
pub fn node(family: IpFamily, n: u8) -> Vec<IpAddr> {
    underlay(family, n)
}

/// Addresses of the outside host, which are the nodes' default gateways.
#[must_use]
pub fn outside(family: IpFamily) -> Vec<IpAddr> {
    underlay(family, OUTSIDE_NUMBER)
}

/// Addresses behind the outside host.
#[must_use]
pub fn behind_outside(family: IpFamily) -> Vec<IpAddr> {
    each(family, BEHIND_OUTSIDE, BEHIND_OUTSIDE6)
}

/// Addresses behind a narrow link of the outside host; nobody answers there.
#[must_use]
pub fn behind_narrow(family: IpFamily) -> Vec<IpAddr> {
    each(family, BEHIND_NARROW, BEHIND_NARROW6)
}

/// Addresses of the API server on the underlay.
#[must_use]
pub fn api_server(family: IpFamily) -> Vec<IpAddr> {
    underlay(family, API_NUMBER)
}

/// Where components in nodes reach the API server.
#[must_use]
pub fn api_url(family: IpFamily) -> String {
    let first = api_server(family)[0];
    format!("https://{}", SocketAddr::new(first, API_PORT))
}

/// An address with the length of its prefix on the underlay.
#[must_use]
pub fn on_link(address: IpAddr) -> String {
    format!("{address}/{}", if address.is_ipv4() { 24 } else { 64 })
}

/// Addresses of all Pods.
#[must_use]
pub fn cluster_cidrs(family: IpFamily) -> Vec<IpNet> {
    nets(family, (Ipv4Addr::new(10, 77, 0, 0), 16), ([0xfd00, 0x10, 0x77, 0, 0, 0, 0, 0], 48))
}

/// Addresses of Services.
#[must_use]
pub fn service_cidrs(family: IpFamily) -> Vec<IpNet> {
    nets(family, (Ipv4Addr::new(10, 96, 0, 0), 12), ([0xfd00, 0x10, 0x96, 0, 0, 0, 0, 0], 112))
}

/// Pod addresses of node number `n` in a lab without an API server.
#[must_use]
pub fn standalone_pod_cidrs(family: IpFamily, n: u8) -> Vec<IpNet> {
    let v6 = ([0xfd00, 0x10, 0x77, n.into(), 0, 0, 0, 0], 64);
    nets(family, (Ipv4Addr::new(10, 77, n, 0), 24), v6)
}

fn nets(family: IpFamily, v4: (Ipv4Addr, u8), v6: ([u16; 8], u8)) -> Vec<IpNet> {
    let all = [(IpAddr::V4(v4.0), v4.1), (IpAddr::V6(v6.0.into()), v6.1)];
    all.into_iter()
        .filter(|(address, _)| family.has(*address))
        .filter_map(|(address, length)| IpNet::new(address, length).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_family() {
        let text =
            |all: Vec<IpAddr>| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text(node(IpFamily::Ipv4, 1)), "172.30.0.1");
        assert_eq!(text(node(IpFamily::Ipv6, 12)), "fd00:ac:1e::c");
        assert_eq!(text(outside(IpFamily::Dual)), "172.30.0.100 fd00:ac:1e::64");
        assert_eq!(text(api_server(IpFamily::Dual)), "172.30.0.254 fd00:ac:1e::fe");
        assert_eq!(api_url(IpFamily::Ipv6), "https://[fd00:ac:1e::fe]:6443");
        let cidrs = standalone_pod_cidrs(IpFamily::Dual, 3);
        assert_eq!(cidrs[0].to_string(), "10.77.3.0/24");
        assert_eq!(cidrs[1].to_string(), "fd00:10:77:3::/64");
        assert!(cluster_cidrs(IpFamily::Dual).iter().zip(&cidrs).all(|(a, b)| a.contains(b)));
    }
}
