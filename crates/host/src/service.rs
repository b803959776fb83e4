//! The way of the node's own and of outside traffic to Services into the switch: routes by the
//! gateway to one virtual neighbour.
//!
//! The routes carry [`RouteProtocol::ANTREA_SERVICES`], by which a restarted agent finds the stale
//! ones in the kernel itself. Not here: the rules that lead node ports to the virtual address
//! ([`crate::nft::service`]), which addresses are Services (the agent), what the switch does.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::mac::{IfIndex, MacAddr};
use crate::neighbour::{self, Neighbour, NeighbourError};
use crate::netlink::Rtnl;
use crate::route::{self, Route, RouteError, RouteFilter, RouteProtocol};

/// Addresses of one family that stand for Services between the kernel and the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Virtual {
    /// The next hop to all Services, and the source of what the switch sends back to the kernel
    /// that came from there.
    pub service: IpAddr,
    /// What connections to node ports are translated to.
    pub node_port: IpAddr,
}

/// What the node's kernel should send into the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRoutes {
    /// The gateway interface.
    pub gateway: IfIndex,
    /// The MAC of the virtual neighbour.
    pub mac: MacAddr,
    /// One for each family that the node has.
    pub virtuals: Vec<Virtual>,
    /// Where Services are: ranges of ClusterIPs, or single ones, and addresses of load balancers.
    /// Those of a family that the node has not are passed over.
    pub destinations: Vec<IpNet>,
}

/// What to change in the kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Routes to set.
    pub set_routes: Vec<Route>,
    /// Routes of ours that nobody wants.
    pub delete_routes: Vec<Route>,
    /// Neighbours to set.
    pub set_neighbours: Vec<IpAddr>,
    /// Neighbours that nobody wants.
    pub delete_neighbours: Vec<IpAddr>,
}

impl Changes {
    /// Nothing to do?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Why the kernel could not be brought to what is wanted.
#[derive(Debug, thiserror::Error)]
pub enum ServiceRouteError {
    /// A route.
    #[error(transparent)]
    Route(#[from] RouteError),
    /// A neighbour.
    #[error(transparent)]
    Neighbour(#[from] NeighbourError),
}

impl ServiceRoutes {
    /// The routes, those that others go by first.
    pub fn wanted(&self) -> Vec<Route> {
        let mut routes = Vec::new();
        for Virtual { service, .. } in &self.virtuals {
            routes.push(Route::on_link(IpNet::from(*service), self.gateway));
        }
        for Virtual { service, node_port } in &self.virtuals {
            let of_family = |net: &&IpNet| net.addr().is_ipv4() == service.is_ipv4();
            // The kernel takes each destination once.
            let mut nets: Vec<IpNet> =
                self.destinations.iter().filter(of_family).map(IpNet::trunc).collect();
            nets.sort_unstable();
            nets.dedup();
            let node_port = IpNet::from(*node_port);
            let all = std::iter::once(node_port).chain(nets);
            routes.extend(all.map(|net| Route::via_onlink(net, *service, self.gateway)));
        }
        let ours = |route: Route| route.with_protocol(RouteProtocol::ANTREA_SERVICES);
        routes.into_iter().map(ours).collect()
    }

    fn hops(&self) -> impl Iterator<Item = IpAddr> {
        self.virtuals.iter().map(|own| own.service)
    }

    fn is_right(&self, hop: IpAddr, neighbours: &[Neighbour]) -> bool {
        neighbours.iter().any(|entry| {
            entry.ip == hop && entry.permanent && !entry.proxy && entry.mac == Some(self.mac)
        })
    }

    /// Compares what is wanted with what the kernel has: `routes` by [`RouteFilter::SERVICES`],
    /// `neighbours` of the gateway.
    pub fn diff(&self, routes: &[Route], neighbours: &[Neighbour]) -> Changes {
        let wanted = self.wanted();
        let same = |one: &Route, other: &Route| {
            one.dst == other.dst && one.via == other.via && one.dev == other.dev
        };
        let has = |routes: &[Route], route: &Route| routes.iter().any(|own| same(own, route));
        // The kernel has one route to a destination for each metric: setting another replaces it.
        let place = |route: &Route| (route.dst, route.metric_in_force(), route.table);
        let replaced = |route: &Route| wanted.iter().any(|new| place(new) == place(route));
        let is_stale = |route: &&Route| !has(&wanted, route) && !replaced(route);
        let delete_routes: Vec<Route> = routes.iter().filter(is_stale).cloned().collect();
        let mut former: Vec<IpAddr> = delete_routes
            .iter()
            .filter(|route| route.dev == Some(self.gateway))
            .filter_map(|route| route.via)
            .filter(|via| !self.virtuals.iter().any(|own| own.service == *via))
            .collect();
        former.sort_unstable();
        former.dedup();
        Changes {
            set_neighbours: self.hops().filter(|ip| !self.is_right(*ip, neighbours)).collect(),
            delete_neighbours: former,
            set_routes: wanted.into_iter().filter(|route| !has(routes, route)).collect(),
            delete_routes,
        }
    }
}

/// Brings routes and neighbours to what is wanted; does as much as it can and returns the first
/// error.
pub fn sync(rtnl: &Rtnl, wanted: &ServiceRoutes) -> Result<Changes, ServiceRouteError> {
    let routes = route::list(rtnl, RouteFilter::SERVICES)?;
    let neighbours = neighbour::list(rtnl, Some(wanted.gateway))?;
    let changes = wanted.diff(&routes, &neighbours);
    let mut first_error = None;
    let mut keep = |outcome: Result<(), ServiceRouteError>| {
        if let Err(error) = outcome {
            first_error.get_or_insert(error);
        }
    };
    // Routes come first: the next hops of ours are known by them. What is new is there before what it
    // takes the place of goes, so that there is a way all along.
    for new in &changes.set_routes {
        keep(route::replace(rtnl, new).map_err(Into::into));
    }
    for ip in &changes.set_neighbours {
        let set = neighbour::set_permanent(rtnl, wanted.gateway, *ip, wanted.mac);
        keep(set.map_err(Into::into));
    }
    // In the reverse of the order they are made in.
    for stale in changes.delete_routes.iter().rev() {
        keep(route::delete(rtnl, stale).map_err(Into::into));
    }
    for ip in &changes.delete_neighbours {
        keep(neighbour::delete(rtnl, wanted.gateway, *ip).map_err(Into::into));
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
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn mk_routes(destinations: &[&str]) -> ServiceRoutes {
        let mk = |service: &str, node_port: &str| Virtual {
            service: service.parse().unwrap(),
            node_port: node_port.parse().unwrap(),
        };
        ServiceRoutes {
            gateway: GATEWAY,
            mac: MAC,
            virtuals: vec![
                mk("169.254.0.253", "169.254.0.252"),
                mk("fc01::aabb:ccdd:eeff", "fc01::aabb:ccdd:eefe"),
            ],
            destinations: destinations.iter().map(|net| net.parse().unwrap()).collect(),
        }
    }

    fn mk_neighbour(ip: IpAddr, mac: MacAddr) -> Neighbour {
        Neighbour { index: GATEWAY, ip, mac: Some(mac), permanent: true, proxy: false }
    }

    #[test]
    fn each_family_goes_by_its_own_next_hop() {
        let wanted = mk_routes(&["10.96.0.0/12", "198.51.100.7/32", "fd00:96::/112"]).wanted();
        let words: Vec<String> = wanted
            .iter()
            .map(|route| match route.via {
                Some(via) => format!("{} via {via}", route.dst),
                None => route.dst.to_string(),
            })
            .collect();
        assert_eq!(
            words,
            [
                "169.254.0.253/32",
                "fc01::aabb:ccdd:eeff/128",
                "169.254.0.252/32 via 169.254.0.253",
                "10.96.0.0/12 via 169.254.0.253",
                "198.51.100.7/32 via 169.254.0.253",
                "fc01::aabb:ccdd:eefe/128 via fc01::aabb:ccdd:eeff",
                "fd00:96::/112 via fc01::aabb:ccdd:eeff",
            ]
        );
        let one_family = ServiceRoutes {
            virtuals: mk_routes(&[]).virtuals[..1].to_vec(),
            ..mk_routes(&["10.96.0.0/12", "10.96.0.0/12", "fd00:96::/112"])
        };
        assert_eq!(one_family.wanted().len(), 3);
    }

    #[test]
    fn what_is_there_is_left_and_what_is_stale_goes() {
        let wanted = mk_routes(&["10.96.0.0/12"]);
        let hops: Vec<IpAddr> = wanted.virtuals.iter().map(|own| own.service).collect();
        let right: Vec<Neighbour> = hops.iter().map(|ip| mk_neighbour(*ip, MAC)).collect();
        let routes = mk_routes(&["10.96.0.0/12", "198.51.100.7/32"]).wanted();
        let changes = wanted.diff(&routes, &right);
        let stale: Vec<String> = changes.delete_routes.iter().map(|r| r.dst.to_string()).collect();
        assert_eq!(stale, ["198.51.100.7/32"]);
        assert_eq!(changes.delete_neighbours, Vec::<IpAddr>::new());
        assert!(wanted.diff(&wanted.wanted(), &right).is_empty());
        let wrong = [mk_neighbour(hops[0], MacAddr([2, 0, 0, 0, 0, 1])), right[1].clone()];
        assert_eq!(wanted.diff(&wanted.wanted(), &wrong).set_neighbours, [hops[0]]);

        // What a new one takes the place of goes with that, and must not be deleted after it.
        let mut elsewhere = wanted.wanted();
        elsewhere[2].via = None;
        let changes = wanted.diff(&elsewhere, &right);
        assert_eq!((changes.set_routes.len(), changes.delete_routes.len()), (1, 0));

        let nothing = ServiceRoutes { virtuals: Vec::new(), ..wanted.clone() };
        let changes = nothing.diff(&wanted.wanted(), &right);
        assert_eq!(changes.delete_routes, wanted.wanted());
        assert_eq!(changes.delete_neighbours, hops);
    }
}
