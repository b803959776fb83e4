//! Keeps the kernel's way to other nodes' Pods: routes and permanent neighbours on the gateway.
//!
//! The node's own traffic to remote Pods, and replies to them, leave by the gateway into the bridge,
//! which tunnels them. Routes of ours carry our protocol number, so stale ones of an earlier run
//! are found in the kernel itself. Not here: the flows (`pipeline`), who is a peer (`peers`).

use std::net::IpAddr;

use host::link::{IfIndex, MacAddr};
use host::neighbour::{self, Neighbour, NeighbourError};
use host::netlink::Rtnl;
use host::route::{self, Route, RouteError, RouteFilter};

use crate::peers::Peer;

/// What to change in the kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Routes to set.
    pub set_routes: Vec<Route>,
    /// Routes of ours that nobody wants.
    pub delete_routes: Vec<Route>,
    /// Neighbours to set: each is a remote gateway at the virtual MAC.
    pub set_neighbours: Vec<IpAddr>,
    /// Permanent neighbours at the virtual MAC that nobody wants.
    pub delete_neighbours: Vec<IpAddr>,
}

impl Changes {
    /// Nothing to do?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Routes by which this node reaches the Pods of its peers.
pub fn wanted_routes(peers: &[Peer], gateway: IfIndex) -> Vec<Route> {
    peers
        .iter()
        .flat_map(|peer| peer.pod_cidrs.iter().zip(peer.gateways()))
        .map(|(cidr, via)| Route::via_onlink(*cidr, via, gateway))
        .collect()
}

/// Compares what is wanted with what the kernel has. Next hops of others at the same MAC are
/// `others`.
pub fn diff(
    peers: &[Peer],
    gateway: IfIndex,
    virtual_mac: MacAddr,
    routes: &[Route],
    neighbours: &[Neighbour],
    others: &[IpAddr],
) -> Changes {
    let wanted = wanted_routes(peers, gateway);
    let same = |one: &Route, other: &Route| {
        one.dst == other.dst && one.via == other.via && one.dev == other.dev
    };
    let gateways: Vec<IpAddr> = peers.iter().flat_map(Peer::gateways).collect();
    let ours = |entry: &&Neighbour| {
        let at_mac = entry.index == gateway && entry.mac == Some(virtual_mac);
        entry.permanent && !entry.proxy && at_mac && !others.contains(&entry.ip)
    };
    let present: Vec<IpAddr> = neighbours.iter().filter(ours).map(|entry| entry.ip).collect();
    Changes {
        delete_routes: routes
            .iter()
            .filter(|route| route.dev == Some(gateway))
            .filter(|route| !wanted.iter().any(|want| same(want, route)))
            .cloned()
            .collect(),
        set_neighbours: gateways.iter().filter(|ip| !present.contains(ip)).copied().collect(),
        delete_neighbours: present.iter().filter(|ip| !gateways.contains(ip)).copied().collect(),
        set_routes: wanted
            .into_iter()
            .filter(|want| !routes.iter().any(|route| same(want, route)))
            .collect(),
    }
}

/// Why the kernel could not be brought to what is wanted.
#[derive(Debug, thiserror::Error)]
pub enum ForwardingError {
    /// A route.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// A neighbour.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
}

/// Brings routes and neighbours to what the peers need; does as much as it can and returns the
/// first error.
pub fn sync(
    rtnl: &Rtnl,
    peers: &[Peer],
    gateway: IfIndex,
    virtual_mac: MacAddr,
) -> Result<Changes, ForwardingError> {
    let routes = route::list(rtnl, RouteFilter::OURS)?;
    let neighbours = neighbour::list(rtnl, Some(gateway))?;
    let to_services = route::list(rtnl, RouteFilter::SERVICES)?;
    let others: Vec<IpAddr> = to_services.iter().filter_map(|route| route.via).collect();
    let changes = diff(peers, gateway, virtual_mac, &routes, &neighbours, &others);
    let mut first_error = None;
    let mut keep = |outcome: Result<(), ForwardingError>| {
        if let Err(error) = outcome {
            first_error.get_or_insert(error);
        }
    };
    // Stale routes go first: a Pod CIDR may have moved to another node.
    for stale in &changes.delete_routes {
        keep(route::delete(rtnl, stale).map_err(Into::into));
    }
    for ip in &changes.set_neighbours {
        keep(neighbour::set_permanent(rtnl, gateway, *ip, virtual_mac).map_err(Into::into));
    }
    for new in &changes.set_routes {
        keep(route::replace(rtnl, new).map_err(Into::into));
    }
    for ip in &changes.delete_neighbours {
        keep(neighbour::delete(rtnl, gateway, *ip).map_err(Into::into));
    }
    match first_error {
        Some(error) => Err(error),
        None => Ok(changes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATEWAY: IfIndex = IfIndex(7);
    const VMAC: MacAddr = MacAddr([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);

    fn mk_peer(name: &str, cidrs: &[&str]) -> Peer {
        Peer {
            name: name.to_owned(),
            pod_cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
            transport: "172.30.0.2".parse().unwrap(),
            other_ips: Vec::new(),
        }
    }

    fn mk_neighbour(ip: &str, mac: MacAddr) -> Neighbour {
        let ip = ip.parse().unwrap();
        Neighbour { index: GATEWAY, ip, mac: Some(mac), permanent: true, proxy: false }
    }

    #[test]
    fn both_families_get_routes_and_neighbours() {
        let peers = [mk_peer("two", &["10.1.2.0/24", "fd00:2::/64"])];
        let changes = diff(&peers, GATEWAY, VMAC, &[], &[], &[]);
        let via: Vec<_> = changes.set_routes.iter().map(|route| route.via.unwrap()).collect();
        assert_eq!(via, changes.set_neighbours);
        assert_eq!(changes.set_neighbours.len(), 2);
        let routes = wanted_routes(&peers, GATEWAY);
        let neighbours = [mk_neighbour("10.1.2.1", VMAC), mk_neighbour("fd00:2::1", VMAC)];
        assert!(diff(&peers, GATEWAY, VMAC, &routes, &neighbours, &[]).is_empty());
    }

    #[test]
    fn only_what_is_ours_is_removed() {
        let stale = wanted_routes(&[mk_peer("gone", &["10.1.9.0/24"])], GATEWAY);
        let mut elsewhere = stale[0].clone();
        elsewhere.dev = Some(IfIndex(3));
        let neighbours = [
            mk_neighbour("10.1.9.1", VMAC),
            mk_neighbour("169.254.0.253", VMAC),
            mk_neighbour("10.1.0.77", MacAddr([2, 0, 0, 0, 0, 1])),
        ];
        let others = ["169.254.0.253".parse().unwrap()];
        let routes = [stale[0].clone(), elsewhere];
        let changes = diff(&[], GATEWAY, VMAC, &routes, &neighbours, &others);
        assert_eq!(changes.delete_routes, stale);
        assert_eq!(changes.delete_neighbours, ["10.1.9.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn a_route_by_a_new_gateway_replaces_the_old_one() {
        let peers = [mk_peer("two", &["10.1.2.0/24"])];
        let mut old = wanted_routes(&peers, GATEWAY);
        old[0].via = Some("10.1.2.254".parse().unwrap());
        let changes = diff(&peers, GATEWAY, VMAC, &old, &[], &[]);
        assert_eq!(changes.delete_routes, old);
        assert_eq!(changes.set_routes, wanted_routes(&peers, GATEWAY));
    }
}
