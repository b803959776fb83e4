use std::net::IpAddr;

use host::address::{self, Address, AddressError};
use host::link;
use host::neighbour;
use host::route::{self, Route, RouteError, RouteFilter, RouteKind, RouteProtocol, RouteTable};
use host::{IfIndex, MacAddr, Rtnl, garp};
use ipnet::IpNet;
use testkit::netns::{NamedNetns, in_netns, sh};

use super::{SOON, eventually};

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A link that is up and has carrier.
fn mk_link(rtnl: &Rtnl) -> IfIndex {
    let veth = link::create_veth_pair(rtnl, "gw0", "far0", 1450).unwrap();
    link::set_up(rtnl, veth.pod).unwrap();
    link::set_up(rtnl, veth.host).unwrap();
    link::wait_up(rtnl, "gw0", SOON).unwrap();
    veth.host
}

#[test]
#[ignore = "needs root: make test"]
fn addresses_come_at_once_and_converge_to_the_wanted_ones() {
    in_netns(|| {
        sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
        let rtnl = Rtnl::open().unwrap();
        let index = mk_link(&rtnl);
        address::add(&rtnl, index, net("10.77.1.1/24")).unwrap();
        address::add(&rtnl, index, net("fd00:77:1::1/64")).unwrap();
        let seen = sh("ip -o addr show dev gw0");
        assert!(seen.contains("10.77.1.1/24") && seen.contains("fd00:77:1::1/64"), "{seen}");
        assert!(!sh("ip -o addr show dev gw0 scope global").contains("tentative"));
        let again = address::add(&rtnl, index, net("10.77.1.1/24"));
        assert!(matches!(again, Err(AddressError::Exists { .. })), "{again:?}");
        address::replace(&rtnl, &Address::new(index, net("10.77.1.1/24"))).unwrap();

        sh("ip addr add 192.0.2.9/24 dev gw0");
        address::set(&rtnl, index, &[net("10.77.1.1/24"), net("10.77.9.1/24")]).unwrap();
        let seen = sh("ip -o addr show dev gw0");
        assert!(seen.contains("10.77.9.1/24") && seen.contains("fe80::"), "{seen}");
        assert!(!seen.contains("192.0.2.9") && !seen.contains("fd00:77"), "{seen}");

        address::delete(&rtnl, index, net("10.77.9.1/24")).unwrap();
        address::delete(&rtnl, index, net("10.77.9.1/24")).unwrap();
        address::delete(&rtnl, IfIndex(999), net("10.77.9.1/24")).unwrap();
        let missing = address::add(&rtnl, IfIndex(999), net("10.77.9.1/24"));
        assert!(matches!(missing, Err(AddressError::NoLink(_))), "{missing:?}");
        assert_eq!(address::list(&rtnl, Some(IfIndex(999))).unwrap(), []);
        let listed = address::list(&rtnl, Some(index)).unwrap();
        assert!(listed.contains(&Address::new(index, net("10.77.1.1/24"))), "{listed:?}");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn routes_are_added_replaced_found_by_protocol_and_deleted() {
    in_netns(|| {
        sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
        let rtnl = Rtnl::open().unwrap();
        let dev = mk_link(&rtnl);
        address::add(&rtnl, dev, net("10.77.1.1/24")).unwrap();
        address::add(&rtnl, dev, net("fd00:77:1::1/64")).unwrap();
        let routes = [
            Route::via_onlink(net("10.77.2.0/24"), ip("10.77.2.1"), dev),
            Route::via_onlink(net("fd00:77:2::/64"), ip("fd00:77:2::1"), dev),
            Route::on_link(net("169.254.0.253/32"), dev),
            Route::via(net("0.0.0.0/0"), ip("10.77.1.254"), dev)
                .with_metric(50)
                .with_src(ip("10.77.1.1")),
            Route::via(net("10.96.0.0/12"), ip("10.77.1.254"), dev).with_table(RouteTable(1234)),
        ];
        for route in &routes {
            route::add(&rtnl, route).unwrap();
            assert!(matches!(route::add(&rtnl, route), Err(RouteError::Exists(_))), "{route:?}");
            route::replace(&rtnl, route).unwrap();
        }
        let seen = sh("ip route; ip -6 route");
        for want in [
            "10.77.2.0/24 via 10.77.2.1 dev gw0 proto 165 onlink",
            "fd00:77:2::/64 via fd00:77:2::1 dev gw0 proto 165 metric 1024 onlink",
            "169.254.0.253 dev gw0 proto 165 scope link",
            "default via 10.77.1.254 dev gw0 proto 165 src 10.77.1.1 metric 50",
        ] {
            assert!(seen.contains(want), "no {want:?} in\n{seen}");
        }
        assert!(sh("ip route show table 1234").contains("10.96.0.0/12"));

        let moved = Route::via_onlink(net("10.77.2.0/24"), ip("10.77.2.9"), dev);
        route::replace(&rtnl, &moved).unwrap();
        assert!(sh("ip route").contains("10.77.2.0/24 via 10.77.2.9"));
        assert_eq!(
            route::lookup(&rtnl, ip("10.77.2.7")).unwrap().unwrap().via,
            Some(ip("10.77.2.9"))
        );

        sh("ip route add 10.88.0.0/16 via 10.77.1.254");
        let ours = route::list(&rtnl, RouteFilter::OURS).unwrap();
        assert_eq!(ours.len(), 4, "{ours:?}");
        assert!(
            ours.iter().all(|route| route.dev == Some(dev) && route.kind == RouteKind::Unicast)
        );
        let by_table = RouteFilter { table: Some(RouteTable(1234)), ..RouteFilter::default() };
        assert_eq!(route::list(&rtnl, by_table).unwrap(), [routes[4].clone()]);

        for route in ours.iter().chain([&routes[4]]) {
            route::delete(&rtnl, route).unwrap();
            route::delete(&rtnl, route).unwrap();
        }
        assert!(!sh("ip route show table all; ip -6 route show table all").contains("proto 165"));
        assert!(sh("ip route").contains("10.88.0.0/16"), "routes of others stay");
        assert_eq!(route::lookup(&rtnl, ip("203.0.113.1")).unwrap(), None);
        let bad = route::add(&rtnl, &Route::via(net("10.99.0.0/16"), ip("192.0.2.1"), dev));
        let Err(RouteError::Refused { source, .. }) = bad else { panic!("{bad:?}") };
        assert!(source.to_string().contains("gateway"), "{source}");
        assert_eq!(RouteProtocol::ANTREA.0, 165);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn neighbours_are_permanent_and_proxies_answer() {
    in_netns(|| {
        sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
        let rtnl = Rtnl::open().unwrap();
        let index = mk_link(&rtnl);
        let mac = MacAddr([0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff]);
        for address in ["169.254.0.253", "fd00:77:2::1"] {
            neighbour::set_permanent(&rtnl, index, ip(address), MacAddr([2; 6])).unwrap();
            neighbour::set_permanent(&rtnl, index, ip(address), mac).unwrap();
            let seen = sh("ip neigh show dev gw0; ip -6 neigh show dev gw0");
            assert!(seen.contains(&format!("{address} lladdr {mac} PERMANENT")), "{seen}");
            neighbour::add_proxy(&rtnl, index, ip(address)).unwrap();
        }
        let seen = sh("ip neigh show proxy; ip -6 neigh show proxy");
        assert!(seen.contains("169.254.0.253") && seen.contains("fd00:77:2::1"), "{seen}");
        let listed = neighbour::list(&rtnl, Some(index)).unwrap();
        assert_eq!(listed.iter().filter(|n| n.permanent && n.mac == Some(mac)).count(), 2);
        assert_eq!(listed.iter().filter(|n| n.proxy).count(), 2, "{listed:?}");
        for address in ["169.254.0.253", "fd00:77:2::1"] {
            for _ in 0..2 {
                neighbour::delete(&rtnl, index, ip(address)).unwrap();
                neighbour::delete_proxy(&rtnl, index, ip(address)).unwrap();
            }
        }
        let seen =
            sh("ip neigh show nud permanent dev gw0; ip neigh show proxy; ip -6 neigh show proxy");
        assert_eq!(seen, "");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn an_announcement_moves_an_address_in_a_neighbours_table() {
    let pod = NamedNetns::new("host-garp").unwrap();
    in_netns(|| {
        sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
        pod.sh(
            "sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0",
        );
        let rtnl = Rtnl::open().unwrap();
        let pod_netns = host::Netns::open(pod.path()).unwrap();
        let spec = link::VethSpec {
            host_name: "gw0",
            host_mac: None,
            pod_netns: &pod_netns,
            pod_name: "eth0",
            pod_mac: None,
            mtu: 1450,
            master: None,
        };
        let veth = link::create_veth(&rtnl, &spec).unwrap();
        link::set_up(&rtnl, veth.host).unwrap();
        link::set_up(&Rtnl::open_in(&pod_netns).unwrap(), veth.pod).unwrap();
        link::wait_up(&rtnl, "gw0", SOON).unwrap();
        address::add(&rtnl, veth.host, net("10.77.1.1/24")).unwrap();
        address::add(&rtnl, veth.host, net("fd00:77:1::1/64")).unwrap();
        let mac = MacAddr([0x0a, 0, 0, 0, 0, 0x33]);
        for (address, n) in [("10.77.1.2", ""), ("fd00:77:1::2", "-6")] {
            sh(&format!(
                "ip {n} neigh replace {address} lladdr 02:00:00:00:00:01 dev gw0 nud stale"
            ));
            garp::announce_in(&pod_netns, veth.pod, mac, ip(address)).unwrap();
            eventually("the neighbour has the new MAC", || {
                let seen = sh(&format!("ip {n} neigh show {address}"));
                if seen.contains(&mac.to_string()) { Ok(()) } else { Err(seen) }
            });
        }
        assert!(garp::announce_in(&pod_netns, IfIndex(999), mac, ip("10.77.1.2")).is_err());
    });
}
