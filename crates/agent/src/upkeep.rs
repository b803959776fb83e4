//! Keeps links, addresses, routes and parameters of the node as start-up made them.
//!
//! The gateway and `br-phy` are the node's own: somebody may flush an address, set another MTU or
//! take a link down, and ovs-vswitchd may make a link anew. This looks at what is there and changes
//! what is not right; looking again changes nothing. Not here: when to look (`node_loop`), routes
//! to other nodes (`forwarding`), drop chains (`guards`).

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use host::address::{self, Address, Lifetime};
use host::iptables_forward::{self, Forward};
use host::iptables_leftovers::{self, Removed};
use host::link::IfIndex;
use host::monitor::Change;
use host::netlink::Rtnl;
use host::route::{self, Route, RouteProtocol};
use host::uplink::Uplink;

use crate::gateway::{self, GatewayLink};
use crate::netdev;

/// A link that has just been made may take this long to appear.
const PATIENCE: Duration = Duration::from_secs(2);
/// An address with this many seconds left may have expired: the kernel rounds them up, and expires
/// addresses a little early.
const EXPIRY_GRAIN: u32 = 2;
/// Routes of a DHCP client (`/etc/iproute2/rt_protos`).
const DHCP: RouteProtocol = RouteProtocol(16);

/// What is kept, and how.
pub struct Upkeep {
    /// The kernel of this node.
    pub rtnl: Rtnl,
    /// The gateway.
    pub gateway: GatewayLink,
    /// The uplink in `br-phy`, on the userspace datapath.
    pub uplink: Option<KeptUplink>,
    /// Index of the gateway when last seen.
    pub gateway_index: IfIndex,
}

/// The uplink that `br-phy` holds.
#[derive(Clone, Debug)]
pub struct KeptUplink {
    /// The link itself.
    pub name: String,
    /// What `br-phy` had when last seen.
    pub bridge: Uplink,
    /// When that was.
    pub seen: Instant,
}

impl Upkeep {
    /// Puts right what is not, and returns the index of the gateway.
    ///
    /// # Errors
    /// The first thing that could not be put right; the rest is tried all the same.
    pub async fn mend(&mut self) -> Result<IfIndex> {
        let uplink = match self.uplink.clone() {
            Some(kept) => self.rtnl.call(move |rtnl| mend_uplink(rtnl, &kept)).await?,
            None => Ok(None),
        };
        let wanted = self.gateway.clone();
        let gateway =
            self.rtnl.call(move |rtnl| gateway::configure(rtnl, &wanted, PATIENCE)).await?;
        if let (Ok(Some(now)), Some(kept)) = (&uplink, &mut self.uplink) {
            kept.bridge = now.clone();
            kept.seen = Instant::now();
        }
        self.gateway_index = gateway.context("gateway")?;
        uplink?;
        Ok(self.gateway_index)
    }

    /// Lets Pod traffic through where iptables' FORWARD policy is DROP.
    pub async fn forward(&self) {
        for family in [iptables_forward::Family::Ipv4, iptables_forward::Family::Ipv6] {
            match iptables_forward::allow(family, &self.gateway.name).await {
                Ok(Forward::Added) => tracing::info!(?family, "iptables FORWARD accepts Pods"),
                Ok(Forward::NotNeeded | Forward::Present) => {}
                Err(error) => {
                    tracing::warn!("iptables FORWARD: {}", crate::nodes::chain(&error));
                }
            }
        }
    }

    /// Removes the rules of a Go agent that had this node before; ours are in force by now.
    pub async fn adopt(&self) {
        match iptables_leftovers::remove().await {
            Ok(removed) if removed == Removed::default() => {}
            Ok(removed) => tracing::info!(?removed, "rules of a Go agent are removed"),
            Err(error) => {
                tracing::warn!("rules of a Go agent stay: {}", crate::nodes::chain(&error));
            }
        }
    }

    /// Whether a notification of the kernel is about a link that is kept.
    pub fn concerns(&self, change: &Change) -> bool {
        let uplink = self.uplink.as_ref();
        let named = |name: &str| {
            name == self.gateway.name
                || uplink.is_some_and(|kept| name == kept.name || name == netdev::BRIDGE)
        };
        let on = |index: IfIndex| {
            index == self.gateway_index || uplink.is_some_and(|kept| index == kept.bridge.index)
        };
        match change {
            Change::LinkSet(link) | Change::LinkGone(link) => named(&link.name),
            // One that comes to the uplink belongs on its bridge; its index is not known here.
            Change::AddressSet(address) => uplink.is_some() || on(address.index),
            Change::AddressGone(address) => on(address.index),
            Change::RouteSet(_) => false,
            Change::RouteGone(route) => route.dev.is_some_and(on),
            Change::Lost => true,
        }
    }
}

fn mend_uplink(rtnl: &Rtnl, kept: &KeptUplink) -> Result<Option<Uplink>> {
    netdev::ensure_null_bridge(rtnl)?;
    let now = netdev::take_over(rtnl, &kept.name).context("br-phy")?;
    let lost = lost(&kept.bridge, &now, kept.seen.elapsed());
    if lost.is_nothing() {
        return Ok(Some(now));
    }
    tracing::warn!(
        addresses = ?lost.addresses.iter().map(|address| address.net).collect::<Vec<_>>(),
        routes = ?lost.routes.iter().map(|route| route.dst).collect::<Vec<_>>(),
        "br-phy lost what the node lives by: put back"
    );
    for address in &lost.addresses {
        address::replace(rtnl, address).context("put addresses of br-phy back")?;
    }
    for route in &lost.routes {
        route::replace(rtnl, route).context("put routes of br-phy back")?;
    }
    Ok(Some(netdev::facts(rtnl)?))
}

/// What a link had and has to get back.
#[derive(Debug, Default, PartialEq, Eq)]
struct Lost {
    addresses: Vec<Address>,
    routes: Vec<Route>,
}

impl Lost {
    fn is_nothing(&self) -> bool {
        self.addresses.is_empty() && self.routes.is_empty()
    }
}

/// Compares what the bridge had with what it has. Pure.
///
/// Another address of the family, or another route to the same destination, is somebody's decision
/// and stays. Routes of routing daemons come and go by their own rules. An address that was given
/// for a time comes back for what is left of it, and not at all once that is over: `age` is how long
/// ago `before` was.
fn lost(before: &Uplink, now: &Uplink, age: Duration) -> Lost {
    let has_family =
        |is_ipv4: bool| now.addresses.iter().any(|address| address.net.addr().is_ipv4() == is_ipv4);
    let addresses: Vec<Address> = before
        .addresses
        .iter()
        .filter(|address| !address.temporary && !has_family(address.net.addr().is_ipv4()))
        .filter_map(|address| {
            let lifetime = match address.lifetime {
                Some(lifetime) => Some(remaining(lifetime, age)?),
                None => None,
            };
            Some(Address { index: now.index, tentative: false, lifetime, ..address.clone() })
        })
        .collect();
    let of_family = |is_ipv4: bool| {
        has_family(is_ipv4)
            || addresses.iter().any(|address| address.net.addr().is_ipv4() == is_ipv4)
    };
    let ours_to_keep = |route: &&Route| {
        !route.multipath
            && [RouteProtocol::BOOT, RouteProtocol::STATIC, DHCP].contains(&route.protocol)
    };
    let is_there = |route: &Route| {
        now.routes.iter().any(|other| other.dst == route.dst && other.table == route.table)
    };
    let mut routes: Vec<Route> = before
        .routes
        .iter()
        .filter(ours_to_keep)
        .filter(|route| !is_there(route) && of_family(route.dst.addr().is_ipv4()))
        .map(|route| Route { dev: Some(now.index), ..route.clone() })
        .collect();
    // Next hops of the others are checked against those on the link.
    routes.sort_by_key(|route| (route.via.is_some() && !route.onlink, route.is_default()));
    Lost { addresses, routes }
}

/// What is left of a time; none when it is over, as near as the kernel tells in whole seconds.
fn remaining(lifetime: Lifetime, age: Duration) -> Option<Lifetime> {
    let age = u32::try_from(age.as_secs()).unwrap_or(u32::MAX);
    let valid = lifetime.valid.saturating_sub(age);
    let preferred = match lifetime.preferred {
        u32::MAX => u32::MAX,
        seconds => seconds.saturating_sub(age),
    };
    (valid > EXPIRY_GRAIN).then_some(Lifetime { preferred, valid })
}

#[cfg(test)]
mod tests {
    use host::link::{MacAddr, create_veth_pair};
    use testkit::netns::{in_netns, sh};

    use super::*;

    fn mk_uplink(index: u32, addresses: &[&str], routes: &[Route]) -> Uplink {
        let index = IfIndex(index);
        Uplink {
            index,
            name: "br-phy".into(),
            mtu: 1500,
            mac: None,
            addresses: addresses
                .iter()
                .map(|text| Address::new(index, text.parse().unwrap()))
                .collect(),
            routes: routes
                .iter()
                .map(|route| Route { dev: Some(index), ..route.clone() })
                .collect(),
        }
    }

    fn mk_route(dst: &str, via: &str, protocol: RouteProtocol) -> Route {
        let route = Route::via_onlink(dst.parse().unwrap(), via.parse().unwrap(), IfIndex(1));
        Route { protocol, ..route }
    }

    #[test]
    fn what_was_lost_comes_back_and_what_was_replaced_stays_so() {
        let default = mk_route("0.0.0.0/0", "172.30.0.254", RouteProtocol::STATIC);
        let learned = mk_route("10.9.0.0/16", "172.30.0.7", RouteProtocol(186));
        let before = mk_uplink(
            5,
            &["172.30.0.1/24", "172.30.0.9/24", "fd00::1/64"],
            &[default.clone(), learned],
        );
        let shown = |now: Uplink| {
            let lost = lost(&before, &now, Duration::ZERO);
            assert!(lost.addresses.iter().all(|address| address.index == now.index));
            assert!(lost.routes.iter().all(|route| route.dev == Some(now.index)));
            let addresses = lost.addresses.iter().map(|address| address.net.to_string());
            addresses.chain(lost.routes.iter().map(|route| route.dst.to_string())).collect()
        };
        let all: Vec<String> = shown(mk_uplink(8, &[], &[]));
        assert_eq!(all, ["172.30.0.1/24", "172.30.0.9/24", "fd00::1/64", "0.0.0.0/0"]);
        assert!(lost(&before, &before, Duration::ZERO).is_nothing());
        let other = mk_route("0.0.0.0/0", "172.30.0.253", RouteProtocol::STATIC);
        let moved: Vec<String> = shown(mk_uplink(5, &["172.30.0.7/24"], &[other]));
        assert_eq!(moved, ["fd00::1/64"], "another IPv4 address and gateway stay");
    }

    #[test]
    fn an_address_given_for_a_time_comes_back_for_the_rest_of_it() {
        let default = mk_route("0.0.0.0/0", "172.30.0.254", DHCP);
        let mut before = mk_uplink(5, &["172.30.0.1/24"], &[default]);
        let gone = mk_uplink(5, &[], &[]);
        let forever = u32::MAX;
        for (name, given, age, want) in [
            ("without end", None, 3600, Some(None)),
            ("taken at once", Some((50, 60)), 0, Some(Some((50, 60)))),
            ("half over", Some((10, 60)), 30, Some(Some((0, 30)))),
            ("always preferred", Some((forever, 60)), 30, Some(Some((forever, 30)))),
            ("over", Some((60, 60)), 60, None),
            ("over as the kernel counts", Some((60, 60)), 59, None),
            ("long over", Some((60, 60)), 4000, None),
        ] {
            let lifetime = |(preferred, valid)| Lifetime { preferred, valid };
            before.addresses[0].lifetime = given.map(lifetime);
            let lost = lost(&before, &gone, Duration::from_secs(age));
            let back = lost.addresses.first().map(|address| address.lifetime);
            assert_eq!(back, want.map(|left| left.map(lifetime)), "{name}");
            assert_eq!(lost.routes.len(), lost.addresses.len(), "{name}: no route without one");
        }
    }

    fn mk_gateway() -> GatewayLink {
        GatewayLink {
            name: "gw".into(),
            mac: MacAddr([2, 0, 0, 0, 0, 7]),
            mtu: 1450,
            addresses: vec!["10.77.1.1/24".parse().unwrap()],
            families: pipeline::Families::V4,
        }
    }

    fn run(upkeep: &mut Upkeep) -> Result<IfIndex> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(upkeep.mend())
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn a_gateway_that_was_changed_by_hand_is_put_right() {
        in_netns(|| {
            let rtnl = Rtnl::open().unwrap();
            create_veth_pair(&rtnl, "gw", "far", 1500).unwrap();
            let mut upkeep = Upkeep {
                rtnl: rtnl.clone(),
                gateway: mk_gateway(),
                uplink: None,
                gateway_index: IfIndex(0),
            };
            for damage in [
                "true",
                "ip addr flush dev gw",
                "ip addr add 10.77.1.99/24 dev gw",
                "ip link set gw down",
                "ip link set gw mtu 1300",
                "ip link set gw address 02:00:00:00:00:99",
                "sysctl -qw net.ipv4.ip_forward=0",
                "ip link del gw; ip link add gw type veth peer name far",
            ] {
                sh(damage);
                let index = run(&mut upkeep).unwrap();
                let seen = sh("ip -o addr show dev gw; ip -o link show dev gw");
                for want in [
                    format!("{}: gw", index.0),
                    "10.77.1.1/24".into(),
                    "mtu 1450".into(),
                    "02:00:00:00:00:07".into(),
                    ",UP".into(),
                ] {
                    assert!(seen.contains(&want), "{damage}: {want} in {seen}");
                }
                assert!(!seen.contains("10.77.1.99"), "{damage}: {seen}");
                assert_eq!(sh("sysctl -n net.ipv4.ip_forward").trim(), "1", "{damage}");
            }
        });
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn an_uplink_bridge_gets_back_what_it_lost() {
        in_netns(|| {
            let rtnl = Rtnl::open().unwrap();
            create_veth_pair(&rtnl, "gw", "far", 1500).unwrap();
            create_veth_pair(&rtnl, "eth0", "wire", 1500).unwrap();
            create_veth_pair(&rtnl, netdev::BRIDGE, "inside", 1500).unwrap();
            sh("ip link set wire up; ip link set inside up; ip link set eth0 up");
            sh("ip addr add 172.30.0.1/24 dev eth0; ip route add default via 172.30.0.254");
            let bridge = netdev::take_over(&rtnl, "eth0").unwrap();
            let mut upkeep = Upkeep {
                rtnl: rtnl.clone(),
                gateway: mk_gateway(),
                uplink: Some(KeptUplink { name: "eth0".into(), bridge, seen: Instant::now() }),
                gateway_index: IfIndex(0),
            };
            for damage in [
                "true",
                "ip addr flush dev br-phy",
                "ip link set br-phy down",
                "ip route del default",
                "ip addr del 172.30.0.1/24 dev br-phy; ip addr add 172.30.0.1/24 dev eth0; \
                 ip route add default via 172.30.0.254",
                "ip link del br-phy; ip link add br-phy type veth peer name inside; \
                 ip link set inside up",
            ] {
                sh(damage);
                run(&mut upkeep).unwrap();
                let seen = sh("ip -o addr show dev br-phy; ip -o link show dev br-phy");
                assert!(seen.contains("172.30.0.1/24") && seen.contains(",UP"), "{damage}: {seen}");
                assert!(!sh("ip -o addr show dev eth0").contains("172.30.0.1"), "{damage}");
                let route = sh("ip route show default");
                assert_eq!(
                    route.split(" proto").next().unwrap().trim(),
                    "default via 172.30.0.254 dev br-phy",
                    "{damage}"
                );
            }
        });
    }
}
