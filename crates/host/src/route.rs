//! Routes of both families: add, replace, delete, list.
//!
//! Routes that we make carry [`RouteProtocol::ANTREA`], by which a restarted agent finds the stale
//! ones. Not here: which routes a node needs (the agent decides).

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use nix::errno::Errno;

pub use crate::address::Scope;
use crate::mac::IfIndex;
use crate::netlink::{NetlinkError, Rtnl};
use crate::uapi::*;
use crate::wire::{AF_INET, AF_INET6, AF_UNSPEC, Attrs, Request, family_of, ip, u32_at};

/// Who made a route (`proto` in `ip route`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteProtocol(pub u8);

impl RouteProtocol {
    /// The kernel itself, such as the route to an address's prefix.
    pub const KERNEL: Self = Self(2);
    /// An administrator, during boot (what `ip route add` writes).
    pub const BOOT: Self = Self(3);
    /// An administrator.
    pub const STATIC: Self = Self(4);
    /// From a router advertisement, renewed by the kernel.
    pub const ROUTER_ADVERTISEMENT: Self = Self(9);
    /// Ours. A number nobody has registered.
    pub const ANTREA: Self = Self(165);
    /// Ours, of those that lead to Services. Another number nobody has registered.
    pub const ANTREA_SERVICES: Self = Self(166);
}

/// A routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteTable(pub u32);

impl RouteTable {
    /// The table that `ip route` shows.
    pub const MAIN: Self = Self(254);
    /// The table of the host's own addresses.
    pub const LOCAL: Self = Self(255);
}

/// What happens to a packet that matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKind {
    /// It is sent.
    Unicast,
    /// It is for this host.
    Local,
    /// It is dropped silently.
    Blackhole,
    /// It is refused with ICMP unreachable.
    Unreachable,
    /// Anything else, by the kernel's number.
    Other(u8),
}

impl RouteKind {
    fn to_wire(self) -> u8 {
        match self {
            Self::Unicast => 1,
            Self::Local => 2,
            Self::Blackhole => 6,
            Self::Unreachable => 7,
            Self::Other(number) => number,
        }
    }

    fn from_wire(number: u8) -> Self {
        match number {
            1 => Self::Unicast,
            2 => Self::Local,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            other => Self::Other(other),
        }
    }
}

/// `IP6_RT_PRIO_USER`: what an IPv6 route without a metric gets.
const IPV6_METRIC: u32 = 1024;

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Destination; `0.0.0.0/0` or `::/0` for the default route.
    pub dst: IpNet,
    /// Next hop; none for a destination on the link.
    pub via: Option<IpAddr>,
    /// Outgoing link.
    pub dev: Option<IfIndex>,
    /// Source address that the host prefers for it.
    pub src: Option<IpAddr>,
    /// Lower wins. The kernel puts 1024 on an IPv6 route without one.
    pub metric: Option<u32>,
    /// Who made it.
    pub protocol: RouteProtocol,
    /// Which table.
    pub table: RouteTable,
    /// How far the destination is. Only IPv4 has it.
    pub scope: Scope,
    /// The next hop is on the link although no address says so.
    pub onlink: bool,
    /// What happens.
    pub kind: RouteKind,
    /// Path MTU of this route.
    pub mtu: Option<u32>,
    /// It has several next hops: read-only here, they are not listed.
    pub multipath: bool,
}

impl Route {
    /// A route of ours in the main table to something on the link.
    pub fn on_link(dst: IpNet, dev: IfIndex) -> Self {
        Self {
            dst,
            via: None,
            dev: Some(dev),
            src: None,
            metric: None,
            protocol: RouteProtocol::ANTREA,
            table: RouteTable::MAIN,
            scope: if dst.addr().is_ipv4() { Scope::Link } else { Scope::Global },
            onlink: false,
            kind: RouteKind::Unicast,
            mtu: None,
            multipath: false,
        }
    }

    /// A route of ours in the main table by way of a next hop.
    pub fn via(dst: IpNet, via: IpAddr, dev: IfIndex) -> Self {
        Self { via: Some(via), scope: Scope::Global, ..Self::on_link(dst, dev) }
    }

    /// A route of ours by way of a next hop that no address of the link covers.
    pub fn via_onlink(dst: IpNet, via: IpAddr, dev: IfIndex) -> Self {
        Self { onlink: true, ..Self::via(dst, via, dev) }
    }

    /// The same with a preferred source address.
    #[must_use]
    pub fn with_src(self, src: IpAddr) -> Self {
        Self { src: Some(src), ..self }
    }

    /// The metric that the kernel has for it.
    pub fn metric_in_force(&self) -> u32 {
        let without = if self.dst.addr().is_ipv4() { 0 } else { IPV6_METRIC };
        self.metric.unwrap_or(without)
    }

    /// The same with a metric.
    #[must_use]
    pub fn with_metric(self, metric: u32) -> Self {
        Self { metric: Some(metric), ..self }
    }

    /// The same in another table.
    #[must_use]
    pub fn with_table(self, table: RouteTable) -> Self {
        Self { table, ..self }
    }

    /// The same under another protocol number.
    #[must_use]
    pub fn with_protocol(self, protocol: RouteProtocol) -> Self {
        Self { protocol, ..self }
    }

    /// Whether this is a default route.
    pub fn is_default(&self) -> bool {
        self.dst.prefix_len() == 0
    }
}

/// Why an operation on routes failed.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// The route is there already.
    #[error("route to {0} exists already")]
    Exists(IpNet),
    /// The table could not be read.
    #[error("list routes")]
    List(#[source] NetlinkError),
    /// The kernel refused: the link is gone or down, the next hop is not reachable on it ...
    #[error("{action} route to {dst}{}", .via.map(|via| format!(" via {via}")).unwrap_or_default())]
    Refused {
        /// What was tried.
        action: &'static str,
        /// To where.
        dst: IpNet,
        /// By way of.
        via: Option<IpAddr>,
        /// Why not.
        source: NetlinkError,
    },
}

/// Which routes to list. All of them by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RouteFilter {
    /// Of this table.
    pub table: Option<RouteTable>,
    /// Made by this protocol.
    pub protocol: Option<RouteProtocol>,
    /// Leaving by this link.
    pub dev: Option<IfIndex>,
}

impl RouteFilter {
    /// Our routes in the main table.
    pub const OURS: Self =
        Self { table: Some(RouteTable::MAIN), protocol: Some(RouteProtocol::ANTREA), dev: None };
    /// Our routes to Services in the main table.
    pub const SERVICES: Self =
        Self { protocol: Some(RouteProtocol::ANTREA_SERVICES), ..Self::OURS };

    fn matches(&self, route: &Route) -> bool {
        self.table.is_none_or(|table| table == route.table)
            && self.protocol.is_none_or(|protocol| protocol == route.protocol)
            && self.dev.is_none_or(|dev| Some(dev) == route.dev)
    }
}

/// Adds a route; [`RouteError::Exists`] when one with the same destination and metric is there.
pub fn add(rtnl: &Rtnl, route: &Route) -> Result<(), RouteError> {
    send(rtnl, "add", RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, route)
}

/// Adds a route in the place of the one with the same destination, metric and table.
pub fn replace(rtnl: &Rtnl, route: &Route) -> Result<(), RouteError> {
    send(rtnl, "set", RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, route)
}

/// Removes a route; success when it is not there.
pub fn delete(rtnl: &Rtnl, route: &Route) -> Result<(), RouteError> {
    match send(rtnl, "delete", RTM_DELROUTE, 0, route) {
        Err(RouteError::Refused { source, .. })
            if matches!(source.errno(), Some(Errno::ESRCH | Errno::ENODEV | Errno::ENOENT)) =>
        {
            Ok(())
        }
        other => other,
    }
}

/// Lists routes of both families; cached (cloned) routes are left out.
pub fn list(rtnl: &Rtnl, filter: RouteFilter) -> Result<Vec<Route>, RouteError> {
    let mut request = Request::new(RTM_GETROUTE, 0);
    request.bytes(&rtmsg(AF_UNSPEC, 0, 0, 0, 0, 0, 0));
    rtnl.netlink()
        .dump(&request, |reply| parse(reply.payload).filter(|route| filter.matches(route)))
        .map_err(RouteError::List)
}

/// The route by which the kernel would send to this address now, `None` when there is none.
pub fn lookup(rtnl: &Rtnl, to: IpAddr) -> Result<Option<Route>, RouteError> {
    let mut request = Request::new(RTM_GETROUTE, 0);
    let bits = if to.is_ipv4() { 32 } else { 128 };
    request.bytes(&rtmsg(family_of(to), bits, 0, 0, 0, 0, 0)).attr_ip(RTA_DST, to);
    let mut found = None;
    match rtnl.netlink().get(request, |reply| found = parse_any(reply.payload)) {
        Ok(()) => Ok(found),
        Err(error)
            if matches!(
                error.errno(),
                Some(Errno::ENETUNREACH | Errno::EHOSTUNREACH | Errno::ESRCH)
            ) =>
        {
            Ok(None)
        }
        Err(source) => Err(RouteError::List(source)),
    }
}

fn send(
    rtnl: &Rtnl,
    action: &'static str,
    kind: u16,
    flags: u16,
    route: &Route,
) -> Result<(), RouteError> {
    rtnl.netlink().request(encode(kind, flags, route)).map_err(|source| match source.errno() {
        Some(Errno::EEXIST) => RouteError::Exists(route.dst),
        _ => RouteError::Refused { action, dst: route.dst, via: route.via, source },
    })
}

fn encode(kind: u16, flags: u16, route: &Route) -> Request {
    let dst = route.dst.network();
    let table = u8::try_from(route.table.0).unwrap_or(0);
    // A delete matches any scope when told "nowhere".
    let scope = if kind == RTM_DELROUTE { 255 } else { route.scope.to_wire() };
    let hop_flags = if route.onlink { RTNH_F_ONLINK } else { 0 };
    let mut request = Request::new(kind, flags);
    request.bytes(&rtmsg(
        family_of(dst),
        route.dst.prefix_len(),
        table,
        route.protocol.0,
        scope,
        route.kind.to_wire(),
        hop_flags,
    ));
    request.attr_u32(RTA_TABLE, route.table.0);
    if !route.is_default() {
        request.attr_ip(RTA_DST, dst);
    }
    if let Some(via) = route.via {
        request.attr_ip(RTA_GATEWAY, via);
    }
    if let Some(dev) = route.dev {
        request.attr_u32(RTA_OIF, dev.0);
    }
    if let Some(src) = route.src {
        request.attr_ip(RTA_PREFSRC, src);
    }
    if let Some(metric) = route.metric {
        request.attr_u32(RTA_PRIORITY, metric);
    }
    if let Some(mtu) = route.mtu {
        request.nest(RTA_METRICS, |metrics| {
            metrics.attr_u32(RTAX_MTU, mtu);
        });
    }
    request
}

/// ```text
///   rtmsg  family:u8 dst_len:u8 src_len:u8 tos:u8  table:u8 protocol:u8 scope:u8 type:u8  flags:u32
/// ```
fn rtmsg(
    family: u8,
    dst_len: u8,
    table: u8,
    protocol: u8,
    scope: u8,
    kind: u8,
    flags: u32,
) -> [u8; 12] {
    let [a, b, c, d] = flags.to_ne_bytes();
    [family, dst_len, 0, 0, table, protocol, scope, kind, a, b, c, d]
}

/// Reads the payload of `RTM_NEWROUTE` or `RTM_DELROUTE`.
pub(crate) fn parse(payload: &[u8]) -> Option<Route> {
    let cloned = u32_at(payload, 8)? & RTM_F_CLONED != 0;
    parse_any(payload).filter(|_| !cloned)
}

fn parse_any(payload: &[u8]) -> Option<Route> {
    let &[family, dst_len, _, _, table, protocol, scope, kind, ..] = payload else { return None };
    let mut route = Route {
        dst: match family {
            AF_INET => IpNet::V4(Ipv4Net::default()),
            AF_INET6 => IpNet::V6(Ipv6Net::default()),
            _ => return None,
        },
        via: None,
        dev: None,
        src: None,
        metric: None,
        protocol: RouteProtocol(protocol),
        table: RouteTable(u32::from(table)),
        scope: Scope::from_wire(scope),
        onlink: u32_at(payload, 8)? & RTNH_F_ONLINK != 0,
        kind: RouteKind::from_wire(kind),
        mtu: None,
        multipath: false,
    };
    for (kind, value) in Attrs::after(payload, 12) {
        match kind {
            RTA_DST => route.dst = IpNet::new(ip(value)?, dst_len).ok()?,
            RTA_GATEWAY => route.via = ip(value),
            RTA_OIF => route.dev = u32_at(value, 0).map(IfIndex),
            RTA_PREFSRC => route.src = ip(value),
            RTA_PRIORITY => route.metric = u32_at(value, 0).filter(|&metric| metric != 0),
            RTA_TABLE => route.table = RouteTable(u32_at(value, 0)?),
            RTA_METRICS => {
                route.mtu = Attrs(value).find(RTAX_MTU).and_then(|mtu| u32_at(mtu, 0));
            }
            RTA_MULTIPATH => route.multipath = true,
            _ => {}
        }
    }
    Some(route)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sent_route_is_read_back() {
        let dev = IfIndex(4);
        for route in [
            Route::on_link("10.77.1.0/24".parse().unwrap(), dev),
            Route::via("0.0.0.0/0".parse().unwrap(), "172.30.0.100".parse().unwrap(), dev),
            Route::via_onlink("fd00:77:2::/64".parse().unwrap(), "fd00::253".parse().unwrap(), dev)
                .with_metric(9)
                .with_src("fd00::1".parse().unwrap())
                .with_table(RouteTable(1234)),
            Route { mtu: Some(1400), ..Route::on_link("::/0".parse().unwrap(), dev) },
        ] {
            let bytes = encode(RTM_NEWROUTE, 0, &route).finish(1);
            assert_eq!(parse(&bytes[16..]), Some(route));
            for end in 0..bytes.len() {
                let _ = parse(&bytes[..end]);
            }
        }
    }
}
