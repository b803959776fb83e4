//! The interface that carries a node's traffic to its peers: its facts, and moving its addresses
//! and routes to another link and back.
//!
//! On the userspace datapath the node's address has to sit on the local port of the bridge that
//! the NIC is a port of. [`move_to`] makes before it breaks: the new link has every address before
//! a route is switched over, each route is replaced in place, and only then the old link loses its
//! addresses. All is derived from what the kernel says now, so it can be run again after a crash
//! at any point, or when there is nothing to do. Moving back is the same call with the links
//! exchanged.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;

use crate::address::{self, Address, AddressError, is_ipv6_link_local};
use crate::link::{self, Link, LinkError};
use crate::mac::{IfIndex, MacAddr};
use crate::netlink::Rtnl;
use crate::route::{self, Route, RouteError, RouteFilter, RouteProtocol, RouteTable};

/// Why an uplink was not found or not moved.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// No link fits.
    #[error("no interface has {0}")]
    NotFound(String),
    /// Reading or changing a link failed.
    #[error("read transport interface")]
    Link(#[from] LinkError),
    /// Reading or changing an address failed.
    #[error("move addresses")]
    Address(#[from] AddressError),
    /// Reading or changing a route failed.
    #[error("move routes")]
    Route(#[from] RouteError),
    /// Somebody takes from the new link what it is given.
    #[error("{0} keeps losing the addresses and routes that it is given")]
    Lost(String),
}

/// A link that was just made settles within this time.
const SETTLES: Duration = Duration::from_secs(3);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// How to find the interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// By its name.
    Name(String),
    /// By an address in one of these prefixes.
    Cidrs(Vec<IpNet>),
    /// By one of the node's addresses.
    NodeIps(Vec<IpAddr>),
}

/// What is known of a transport interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Its index.
    pub index: IfIndex,
    /// Its name.
    pub name: String,
    /// Its MTU.
    pub mtu: u32,
    /// Its Ethernet address, if it is Ethernet.
    pub mac: Option<MacAddr>,
    /// Its addresses, link-local IPv6 ones left out.
    pub addresses: Vec<Address>,
    /// Its routes in every table but the local one.
    pub routes: Vec<Route>,
}

impl Uplink {
    /// The first address of each family: what tunnels come from.
    pub fn primary(&self) -> (Option<IpNet>, Option<IpNet>) {
        let first = |is_ipv4: bool| {
            let fits = |a: &&Address| a.net.addr().is_ipv4() == is_ipv4 && !a.temporary;
            self.addresses.iter().find(fits).map(|address| address.net)
        };
        (first(true), first(false))
    }
}

/// Finds the transport interface and reads its facts.
pub fn find(rtnl: &Rtnl, by: &Transport) -> Result<Uplink, UplinkError> {
    let not_found = |what: String| UplinkError::NotFound(what);
    match by {
        Transport::Name(name) => {
            let found = link::find_by_name(rtnl, name)?;
            facts(rtnl, found.ok_or_else(|| not_found(format!("the name {name}")))?)
        }
        Transport::Cidrs(nets) => by_address(rtnl, |ip| nets.iter().any(|net| net.contains(&ip)))?
            .ok_or_else(|| not_found(format!("an address in {}", join(nets)))),
        Transport::NodeIps(ips) => by_address(rtnl, |ip| ips.contains(&ip))?
            .ok_or_else(|| not_found(format!("address {}", join(ips)))),
    }
}

/// Moves addresses and routes from one link to another. Both have to be there; the new one is
/// brought up. Returns what is on the new link then.
pub fn move_to(rtnl: &Rtnl, from: IfIndex, to: IfIndex) -> Result<Uplink, UplinkError> {
    move_stepwise(rtnl, from, to, &mut || {})
}

/// As [`move_to`], and calls `changed` after each change that it makes. The move waits for it, so
/// that a test can do to the links at any moment what others may do.
#[doc(hidden)]
pub fn move_stepwise(
    rtnl: &Rtnl,
    from: IfIndex,
    to: IfIndex,
    changed: &mut dyn FnMut(),
) -> Result<Uplink, UplinkError> {
    let old = facts_of(rtnl, from)?;
    let deadline = Instant::now() + SETTLES;
    loop {
        let moved = bring_over(rtnl, &old, to, changed);
        let is_whole = || Ok::<_, UplinkError>(has_all(&facts_of(rtnl, to)?, &old));
        // As long as the old link has its addresses, all can begin again after a crash.
        if moved.is_ok() && is_whole()? {
            for address in old.addresses.iter().filter(|address| !address.temporary) {
                address::delete(rtnl, from, address.net)?;
                changed();
            }
            let new = facts_of(rtnl, to)?;
            if has_all(&new, &old) {
                return Ok(new);
            }
        }
        match moved {
            Err(error @ UplinkError::Link(_)) => return Err(error),
            moved if Instant::now() >= deadline => {
                return moved.and(Err(UplinkError::Lost(facts_of(rtnl, to)?.name)));
            }
            // Whoever made the link may take it down once more to set its MAC: that makes next hops
            // unreachable, and takes routes away, IPv6 addresses too.
            _ => std::thread::sleep(PAUSE),
        }
    }
}

fn facts_of(rtnl: &Rtnl, index: IfIndex) -> Result<Uplink, UplinkError> {
    facts(rtnl, link::get_by_index(rtnl, index)?)
}

fn bring_over(
    rtnl: &Rtnl,
    old: &Uplink,
    to: IfIndex,
    changed: &mut dyn FnMut(),
) -> Result<(), UplinkError> {
    if !link::get_by_index(rtnl, to)?.up {
        link::set_up(rtnl, to)?;
    }
    for address in old.addresses.iter().filter(|address| !address.temporary) {
        address::replace(rtnl, &Address { index: to, tentative: false, ..address.clone() })?;
        changed();
    }
    // Routes on the link come first: next hops of the others are checked against them.
    let mut routes: Vec<&Route> = old.routes.iter().filter(|route| is_movable(route)).collect();
    routes.sort_by_key(|route| (route.via.is_some() && !route.onlink, route.is_default()));
    for route in routes {
        move_route(rtnl, route, to)?;
        changed();
    }
    Ok(())
}

/// Whether a link has what another one had. Pure.
fn has_all(new: &Uplink, old: &Uplink) -> bool {
    let has_address = |old: &Address| new.addresses.iter().any(|now| now.net == old.net);
    let has_route = |old: &Route| {
        let same = |now: &Route| (now.dst, now.table, now.via) == (old.dst, old.table, old.via);
        new.routes.iter().any(same)
    };
    old.addresses.iter().filter(|address| !address.temporary).all(has_address)
        && old.routes.iter().filter(|route| is_movable(route)).all(has_route)
}

/// IPv4 takes a route's place whatever its link is. IPv6 may keep the old one beside it: that goes
/// afterwards.
fn move_route(rtnl: &Rtnl, route: &Route, to: IfIndex) -> Result<(), UplinkError> {
    let moved = Route { dev: Some(to), ..route.clone() };
    route::replace(rtnl, &moved)?;
    if route.dst.addr().is_ipv6() {
        route::delete(rtnl, route)?;
    }
    Ok(())
}

/// The kernel makes its own routes anew with the addresses, and renews those of advertisements.
fn is_movable(route: &Route) -> bool {
    let moved = !route.multipath
        && route.protocol != RouteProtocol::KERNEL
        && route.protocol != RouteProtocol::ROUTER_ADVERTISEMENT;
    if route.multipath {
        tracing::warn!(dst = %route.dst, "a route with several next hops stays where it is");
    }
    moved
}

fn by_address(rtnl: &Rtnl, fits: impl Fn(IpAddr) -> bool) -> Result<Option<Uplink>, UplinkError> {
    let found = address::list(rtnl, None)?.into_iter().find(|a| fits(a.net.addr()));
    match found {
        Some(address) => facts(rtnl, link::get_by_index(rtnl, address.index)?).map(Some),
        None => Ok(None),
    }
}

fn facts(rtnl: &Rtnl, link: Link) -> Result<Uplink, UplinkError> {
    let mut addresses = address::list(rtnl, Some(link.index))?;
    addresses.retain(|address| !is_ipv6_link_local(address.net.addr()));
    let of_link = RouteFilter { dev: Some(link.index), ..RouteFilter::default() };
    let mut routes = route::list(rtnl, of_link)?;
    routes.retain(|route| route.table != RouteTable::LOCAL);
    Ok(Uplink {
        index: link.index,
        name: link.name,
        mtu: link.mtu,
        mac: link.mac,
        addresses,
        routes,
    })
}

fn join<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
