use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use host::monitor::{Change, Monitor, Topics};
use host::nft::service::ServiceRules;
use host::nft::{self, Transport};
use host::service::{self, ServiceRoutes, Virtual};
use host::sysctl::{Family, Sysctl};
use host::{MacAddr, Netns, Rtnl, link};
use ipnet::IpNet;
use testkit::netns::{NamedNetns, in_netns, sh};

use super::{SOON, block_on};

const NODE_PORT: u16 = 30_080;

/// One family's addresses of the test.
struct Net {
    virtuals: Virtual,
    node: &'static str,
    balancer: &'static str,
    range: &'static str,
}

fn nets() -> [Net; 2] {
    let mk = |service: &str, node_port: &str| Virtual {
        service: service.parse().unwrap(),
        node_port: node_port.parse().unwrap(),
    };
    [
        Net {
            virtuals: mk("169.254.0.253", "169.254.0.252"),
            node: "172.30.0.1",
            balancer: "198.51.100.7",
            range: "10.96.0.0/12",
        },
        Net {
            virtuals: mk("fc01::aabb:ccdd:eeff", "fc01::aabb:ccdd:eefe"),
            node: "fd00:30::1",
            balancer: "2001:db8:51::7",
            range: "fd00:96::/112",
        },
    ]
}

/// Asks from an address who was seen at the other side, which answers as the switch would.
fn seen_from(own: &str, to: &str, port: u16) -> Result<SocketAddr, std::io::Error> {
    let socket = UdpSocket::bind((own.parse::<IpAddr>().unwrap(), 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(5)))?;
    socket.connect((to.parse::<IpAddr>().unwrap(), port))?;
    socket.send(b"who")?;
    let mut buffer = [0; 128];
    let n = socket.recv(&mut buffer)?;
    Ok(std::str::from_utf8(&buffer[..n]).unwrap().parse().unwrap())
}

/// Answers at an address with who was seen, until the test's process ends.
fn answer(at: IpAddr, port: u16) {
    let socket = UdpSocket::bind((at, port)).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 128];
        while let Ok((_, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(from.to_string().as_bytes(), from);
        }
    });
}

/// The switch's end of the gateway: everything virtual is an address of it.
fn prepare_switch(switch: &NamedNetns) {
    switch.run(|| {
        sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
        sh("ip link set far0 up");
        for net in nets() {
            let Virtual { node_port, .. } = net.virtuals;
            let (host, len) = if node_port.is_ipv4() { ("", 32) } else { ("nodad", 128) };
            for ip in [node_port.to_string(), net.balancer.to_owned()] {
                sh(&format!("ip addr add {ip}/{len} dev far0 {host}"));
                answer(ip.parse().unwrap(), NODE_PORT);
            }
            let (gateway, _) = gateway(&net);
            sh(&format!("ip addr add {}/{} dev far0 {host}", far(&net), plen(&net)));
            sh(&format!("ip route add {}/{len} via {gateway}", net.node));
        }
    });
}

fn plen(net: &Net) -> u8 {
    if net.virtuals.service.is_ipv4() { 24 } else { 64 }
}

/// The gateway's own address and its prefix.
fn gateway(net: &Net) -> (&'static str, u8) {
    let ip = if net.virtuals.service.is_ipv4() { "10.77.1.1" } else { "fd00:77:1::1" };
    (ip, plen(net))
}

fn far(net: &Net) -> &'static str {
    if net.virtuals.service.is_ipv4() { "10.77.1.99" } else { "fd00:77:1::99" }
}

/// Routes in the order in which they were set or went.
fn order_of(monitor: &mut Monitor, n: usize) -> Vec<(bool, IpNet)> {
    let mut seen = Vec::new();
    while seen.len() < n {
        let changes = monitor.wait(SOON).unwrap();
        assert!(!changes.is_empty(), "{n} changes of routes are told, not {seen:?} alone");
        seen.extend(changes.iter().filter_map(|change| match change {
            Change::RouteSet(route) => Some((true, route.dst)),
            Change::RouteGone(route) => Some((false, route.dst)),
            _ => None,
        }));
    }
    seen
}

#[test]
#[ignore = "needs root: make test"]
fn traffic_to_services_goes_into_the_switch_and_stale_state_goes() {
    let switch = NamedNetns::new("host-services").unwrap();
    in_netns(|| {
        sh("sysctl -q -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0");
        sh("ip link set lo up");
        let rtnl = Rtnl::open().unwrap();
        let mac = MacAddr([2, 0, 0, 0, 0, 9]);
        let spec = link::VethSpec {
            host_name: "gw0",
            host_mac: None,
            pod_netns: &Netns::open(switch.path()).unwrap(),
            pod_name: "far0",
            pod_mac: Some(mac),
            mtu: 1450,
            master: None,
        };
        let gw0 = link::create_veth(&rtnl, &spec).unwrap();
        prepare_switch(&switch);
        link::set_up(&rtnl, gw0.host).unwrap();
        link::wait_up(&rtnl, "gw0", SOON).unwrap();
        for net in nets() {
            let (ip, plen) = gateway(&net);
            sh(&format!("ip addr add {ip}/{plen} dev gw0 nodad"));
            let len = if ip.contains(':') { 128 } else { 32 };
            sh(&format!("ip addr add {}/{len} dev lo", net.node));
        }
        Sysctl::conf(Family::Ipv4, "gw0", "route_localnet").set("1").unwrap();

        let mut routes = ServiceRoutes {
            gateway: gw0.host,
            mac,
            virtuals: nets().map(|net| net.virtuals).to_vec(),
            destinations: nets()
                .iter()
                .flat_map(|net| {
                    [net.range.parse().unwrap(), net.balancer.parse::<IpAddr>().unwrap().into()]
                })
                .collect(),
        };
        let made = service::sync(&rtnl, &routes).unwrap();
        assert_eq!((made.set_routes.len(), made.set_neighbours.len()), (8, 2), "{made:?}");
        let again = service::sync(&rtnl, &routes).unwrap();
        assert!(again.is_empty(), "{again:?}");
        let seen =
            sh("ip route show table main; ip -6 route show; ip neigh show; ip -6 neigh show");
        for want in [
            "169.254.0.253 dev gw0 proto 166 scope link",
            "169.254.0.252 via 169.254.0.253 dev gw0 proto 166 onlink",
            "10.96.0.0/12 via 169.254.0.253 dev gw0 proto 166 onlink",
            "fd00:96::/112 via fc01::aabb:ccdd:eeff dev gw0 proto 166",
            &format!("169.254.0.253 dev gw0 lladdr {mac} PERMANENT"),
            &format!("fc01::aabb:ccdd:eeff dev gw0 lladdr {mac} PERMANENT"),
        ] {
            assert!(seen.contains(want), "no {want:?} in\n{seen}");
        }

        let rules = ServiceRules {
            gateway: "gw0".into(),
            virtuals: routes.virtuals.clone(),
            node_port_addresses: ["172.30.0.1", "127.0.0.1", "fd00:30::1"]
                .map(|ip| ip.parse().unwrap())
                .to_vec(),
            node_ports: BTreeSet::from([(Transport::Udp, NODE_PORT), (Transport::Sctp, 30_081)]),
            external: nets().map(|net| net.balancer.parse().unwrap()).to_vec(),
        };
        block_on(nft::apply(&[rules.feature()])).unwrap();
        block_on(nft::apply(&[rules.feature()])).unwrap();
        for net in nets() {
            let (gateway, _) = gateway(&net);
            // The answer comes back as one of the address that was asked, or it is not taken.
            let from = seen_from(net.node, net.node, NODE_PORT).unwrap();
            assert_eq!(from.ip().to_string(), net.node, "a node port keeps the client");
            let from = seen_from(gateway, net.balancer, NODE_PORT).unwrap();
            assert_eq!(from.ip().to_string(), gateway, "an address of a load balancer");
            let tracked = sh(&format!(
                "conntrack -L -f {} -d {} 2>/dev/null",
                if gateway.contains(':') { "ipv6" } else { "ipv4" },
                net.balancer
            ));
            assert_eq!(tracked, "", "nothing tracks the way to a load balancer");
        }
        let from = seen_from("127.0.0.1", "127.0.0.1", NODE_PORT).unwrap();
        assert_eq!(from.ip().to_string(), "10.77.1.1", "loopback is hidden by the gateway");
        let closed = seen_from("172.30.0.1", "172.30.0.1", 30_082).unwrap_err();
        assert_eq!(closed.kind(), std::io::ErrorKind::ConnectionRefused, "not a node port");

        // A range that grows: what holds its addresses is there before the former one goes.
        let mut monitor = Monitor::open_in(rtnl.netns(), Topics::ROUTES).unwrap();
        let former: Vec<IpNet> = nets().iter().map(|net| net.range.parse().unwrap()).collect();
        let wider: Vec<IpNet> = former.iter().map(|net| net.supernet().unwrap()).collect();
        routes.destinations.retain(|net| !former.contains(net));
        routes.destinations.extend(&wider);
        service::sync(&rtnl, &routes).unwrap();
        let seen = order_of(&mut monitor, former.len() + wider.len());
        for (former, wider) in former.iter().zip(&wider) {
            let at = |is_set, net| seen.iter().position(|one| *one == (is_set, net));
            let (set, gone) = (at(true, *wider), at(false, *former));
            assert!(set.is_some() && set < gone, "{wider} before {former} goes: {seen:?}");
        }

        routes.destinations.clear();
        let changed = service::sync(&rtnl, &routes).unwrap();
        assert_eq!(changed.delete_routes.len(), 4, "{changed:?}");
        assert!(!sh("ip route").contains("10.96"), "a range that is no more");
        routes.virtuals.clear();
        service::sync(&rtnl, &routes).unwrap();
        assert_eq!(sh("ip route show proto 166; ip -6 route show proto 166"), "");
        assert_eq!(sh("ip neigh show nud permanent; ip -6 neigh show nud permanent"), "");
        block_on(nft::remove(&[ServiceRules::nothing("gw0").feature()])).unwrap();
        let left = sh("nft list ruleset");
        assert_eq!(left.trim(), "table inet antrea {\n}");
    });
}
