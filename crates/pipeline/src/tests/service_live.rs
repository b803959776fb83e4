//! Real connections to Services, between real stacks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use testkit::netns::{NamedNetns, in_netns, sh};

use super::fixture::{mk_policy_config, mk_service_node};
use super::live::mk_pod_netns;
use super::policy_flows::mk_rule;
use super::service_flows::{mk_endpoint, mk_frontend, mk_group};
use super::switch::Switch;
use crate::Families;
use crate::policy::{self, ClauseKey, Direction, Verdict};
use crate::service::{
    Datapath, Endpoint, Frontend, FrontendAddress, Group, Place, Protocol, Target, endpoint_flows,
    frontend_flows, group,
};

pub(super) const WAIT: Duration = Duration::from_secs(5);

/// The node with Pods 2 and 3, with the routes that a host serving Services has.
pub(super) struct World {
    pub(super) switch: Switch,
    pub(super) pod2: NamedNetns,
    pub(super) pod3: NamedNetns,
}

impl World {
    pub(super) fn start() -> Self {
        let switch = Switch::start_as(&mk_service_node(Families::Dual));
        sh("ip addr add 10.77.1.1/24 dev gw0 && ip addr add fd00:77:1::1/64 dev gw0 nodad && \
            ip link set gw0 up");
        sh("ip neigh add 169.254.0.253 lladdr aa:bb:cc:dd:ee:ff dev gw0 nud permanent && \
            ip neigh add fc01::aabb:ccdd:eeff lladdr aa:bb:cc:dd:ee:ff dev gw0 nud permanent && \
            ip route add 169.254.0.253 dev gw0 && \
            ip route add 169.254.0.252 via 169.254.0.253 dev gw0 onlink && \
            ip route add 10.96.0.0/16 via 169.254.0.253 dev gw0 onlink && \
            ip -6 route add fc01::aabb:ccdd:eeff dev gw0 && \
            ip -6 route add fd00:96::/64 via fc01::aabb:ccdd:eeff dev gw0 onlink");
        let (pod2, pod3) = (mk_pod_netns(2), mk_pod_netns(3));
        for pod in [&pod2, &pod3] {
            pod.sh("ip link set lo up && for pod in pod2 pod3; do \
                    ethtool -K $pod tx off >/dev/null 2>&1 || true; done");
        }
        sh("ethtool -K gw0 tx off >/dev/null");
        Self { switch, pod2, pod3 }
    }

    /// Installs a Service of these endpoints.
    pub(super) fn serve(&self, frontend: &Frontend, of: &Group) {
        let node = mk_service_node(Families::Dual);
        let mut intents = group(of);
        intents.extend(frontend_flows(&node, frontend));
        intents.extend(of.endpoints.iter().flat_map(|e| endpoint_flows(&node, e)));
        self.switch.add_all(intents);
    }
}

/// Serves for ever: each byte is answered with a line, who serves and who the client is.
pub(super) fn serve_tcp(netns: &NamedNetns, name: &'static str, at: &str) {
    let at = at.to_owned();
    let listener = netns.run(move || TcpListener::bind(at).unwrap());
    accept(listener, name);
}

fn accept(listener: TcpListener, name: &'static str) {
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(peer) = stream.peer_addr() else { continue };
            thread::spawn(move || {
                let answer = format!("{name} {peer}\n");
                let mut byte = [0];
                // At "q" the server closes.
                while stream.read_exact(&mut byte).is_ok() && byte[0] != b'q' {
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

pub(super) fn serve_udp(netns: &NamedNetns, name: &'static str, at: &str) {
    let at = at.to_owned();
    let socket = netns.run(move || UdpSocket::bind(at).unwrap());
    thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(format!("{name} {peer}").as_bytes(), peer);
        }
    });
}

pub(super) fn dial(to: &str) -> TcpStream {
    let to: SocketAddr = to.parse().unwrap();
    let stream = once_free(&to.to_string(), || TcpStream::connect_timeout(&to, WAIT));
    stream.set_read_timeout(Some(WAIT)).unwrap();
    stream
}

/// Connects once its port is free: the end of the connection that had it may still be on its way.
pub(super) fn once_free<T>(what: &str, connect: impl Fn() -> io::Result<T>) -> T {
    let mut connected = None;
    testkit::wait_until(WAIT, &format!("{what}: the port is free again"), || {
        match connect() {
            Ok(it) => connected = Some(it),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => return false,
            Err(error) => panic!("{what}: {error}"),
        }
        true
    });
    connected.unwrap()
}

/// What the server says: its name, and the client's address and port.
pub(super) fn ask(stream: &mut TcpStream) -> (String, SocketAddr) {
    let to = stream.peer_addr().unwrap();
    stream.write_all(b"x").unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while byte[0] != b'\n' {
        stream.read_exact(&mut byte).unwrap_or_else(|e| panic!("{to}: {e}"));
        line.push(byte[0]);
    }
    let line = String::from_utf8(line).unwrap();
    let (name, peer) = line.trim().split_once(' ').unwrap();
    (name.to_owned(), peer.parse().unwrap())
}

fn answer(to: &str) -> (String, SocketAddr) {
    ask(&mut dial(to))
}

fn mk_udp(address: &str, port: u16, place: Place) -> Endpoint {
    Endpoint { protocol: Protocol::Udp, ..mk_endpoint(address, port, place) }
}

#[test]
#[ignore = "needs root: make test"]
fn services_answer_pods_and_the_host() {
    in_netns(|| {
        let world = World::start();
        serve_tcp(&world.pod3, "pod3", "[::]:8080");
        serve_tcp(&world.pod2, "pod2", "[::]:8080");
        serve_udp(&world.pod3, "pod3", "[::]:53");
        accept(TcpListener::bind("172.30.0.1:9090").unwrap(), "host");
        let to3 = mk_endpoint("10.77.1.3", 8080, Place::LocalPod);
        let to3_v6 = mk_endpoint("fd00:77:1::3", 8080, Place::LocalPod);
        let to2 = mk_endpoint("10.77.1.2", 8080, Place::LocalPod);
        let to2_v6 = mk_endpoint("fd00:77:1::2", 8080, Place::LocalPod);
        let host = mk_endpoint("172.30.0.1", 9090, Place::HostNetwork);
        for (address, id, endpoint) in [
            ("10.96.0.10", 1, to3),
            ("fd00:96::10", 2, to3_v6),
            ("10.96.0.11", 3, to2),
            ("fd00:96::11", 4, to2_v6),
            ("10.96.0.12", 5, host),
        ] {
            world.serve(&mk_frontend(address, 80, id), &mk_group(id, &[endpoint]));
        }
        let node_port = Frontend {
            address: FrontendAddress::NodePort { ipv6: false },
            external: true,
            ..mk_frontend("0.0.0.0", 30080, 6)
        };
        world.serve(&node_port, &mk_group(6, &[to3]));
        let dns = Frontend { protocol: Protocol::Udp, ..mk_frontend("10.96.0.10", 53, 7) };
        world.serve(&dns, &mk_group(7, &[mk_udp("10.77.1.3", 53, Place::LocalPod)]));
        let dns_v6 = Frontend { protocol: Protocol::Udp, ..mk_frontend("fd00:96::10", 53, 8) };
        world.serve(&dns_v6, &mk_group(8, &[mk_udp("fd00:77:1::3", 53, Place::LocalPod)]));

        let from_pod2 = |to: &'static str| {
            let (server, client) = world.pod2.run(|| answer(to));
            format!("{server} {}", client.ip().to_canonical())
        };
        // Another Pod, in both families.
        assert_eq!(from_pod2("10.96.0.10:80"), "pod3 10.77.1.2");
        assert_eq!(from_pod2("[fd00:96::10]:80"), "pod3 fd00:77:1::2");
        // Itself: the gateway's address stands for it.
        assert_eq!(from_pod2("10.96.0.11:80"), "pod2 10.77.1.1");
        assert_eq!(from_pod2("[fd00:96::11]:80"), "pod2 fd00:77:1::1");
        // A process of the host.
        assert_eq!(from_pod2("10.96.0.12:80"), "host 10.77.1.2");
        // A NodePort, at the node's own address.
        assert_eq!(from_pod2("172.30.0.1:30080"), "pod3 10.77.1.2");
        // The host itself, and what it forwards.
        let from_host = |to: &str| {
            let (server, client) = answer(to);
            format!("{server} {}", client.ip().to_canonical())
        };
        assert_eq!(from_host("10.96.0.10:80"), "pod3 10.77.1.1");
        assert_eq!(from_host("[fd00:96::10]:80"), "pod3 fd00:77:1::1");
        assert_eq!(from_host("10.96.0.12:80"), "host 169.254.0.253");
        assert_eq!(from_host("169.254.0.252:30080"), "pod3 10.77.1.1");
        sh("ip addr add 198.51.100.1/32 dev lo && ip route add 10.96.0.10/32 \
            via 169.254.0.253 dev gw0 onlink src 198.51.100.1");
        assert_eq!(from_host("10.96.0.10:80"), "pod3 198.51.100.1", "the client is kept");

        for (bind, to) in
            [("10.77.1.2:0", "10.96.0.10:53"), ("[fd00:77:1::2]:0", "[fd00:96::10]:53")]
        {
            let socket = world.pod2.run(|| UdpSocket::bind(bind).unwrap());
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(WAIT)).unwrap();
            for _ in 0..3 {
                socket.send(b"x").unwrap();
                let mut buffer = [0; 64];
                let len = socket.recv(&mut buffer).unwrap();
                assert!(buffer[..len].starts_with(b"pod3 "), "{to}");
            }
        }
    });
}

/// Long transfers, and a second exchange on a connection, pass the way of later packets.
#[test]
#[ignore = "needs root: make test"]
fn connections_go_on() {
    in_netns(|| {
        let world = World::start();
        serve_tcp(&world.pod3, "pod3", "[::]:8080");
        serve_tcp(&world.pod2, "pod2", "[::]:8080");
        let to3 = mk_endpoint("10.77.1.3", 8080, Place::LocalPod);
        let to2 = mk_endpoint("10.77.1.2", 8080, Place::LocalPod);
        world.serve(&mk_frontend("10.96.0.10", 80, 1), &mk_group(1, &[to3]));
        world.serve(&mk_frontend("10.96.0.11", 80, 2), &mk_group(2, &[to2]));
        for to in ["10.96.0.10:80", "10.96.0.11:80"] {
            let mut stream = world.pod2.run(|| dial(to));
            let first = ask(&mut stream);
            for _ in 0..200 {
                assert_eq!(ask(&mut stream), first, "{to}");
            }
        }
    });
}

/// The same source port to a Service and directly to its endpoint, in both orders, to one of two
/// Services with one endpoint each: all of them get through and stay.
#[test]
#[ignore = "needs root: make test"]
fn one_source_port_for_a_service_and_its_endpoint() {
    in_netns(|| {
        let world = World::start();
        serve_tcp(&world.pod3, "pod3", "[::]:8080");
        let v4 = mk_endpoint("10.77.1.3", 8080, Place::LocalPod);
        let v6 = mk_endpoint("fd00:77:1::3", 8080, Place::LocalPod);
        for (address, id, endpoint) in
            [("10.96.0.10", 1, v4), ("fd00:96::10", 2, v6), ("10.96.0.20", 3, v4)]
        {
            world.serve(&mk_frontend(address, 80, id), &mk_group(id, &[endpoint]));
        }
        for (port, tos) in [
            (40000, ["10.96.0.10:80", "10.77.1.3:8080"]),
            (40001, ["10.77.1.3:8080", "10.96.0.10:80"]),
            (20000, ["10.96.0.10:80", "10.77.1.3:8080"]),
            (20001, ["10.77.1.3:8080", "10.96.0.10:80"]),
            (40002, ["[fd00:96::10]:80", "[fd00:77:1::3]:8080"]),
            (40003, ["[fd00:77:1::3]:8080", "[fd00:96::10]:80"]),
            (40004, ["10.96.0.10:80", "10.96.0.20:80"]),
        ] {
            // The port that is left is used for each other end.
            world.pod2.sh(&format!("sysctl -qw net.ipv4.ip_local_port_range='{port} {port}'"));
            // Twice: with the ports of connections that just ended.
            for round in 0..2 {
                let mut streams = tos.map(|to| world.pod2.run(|| dial(to)));
                let first = streams.each_mut().map(ask);
                for (stream, first) in streams.iter_mut().zip(&first) {
                    assert_eq!(stream.local_addr().unwrap().port(), port);
                    assert_eq!(ask(stream), *first, "{port} {tos:?} {round}");
                }
                assert_ne!(first[0].1, first[1].1, "{port} {tos:?}: the endpoint tells them apart");
                for stream in streams {
                    end(stream);
                }
            }
        }
        let version = world.switch.ovs.appctl(&["version"]);
        assert!(version.contains("Open vSwitch"), "it is alive: {version}");
    });
}

/// Ends a connection from the server's side, so that its port is free at once.
pub(super) fn end(mut stream: TcpStream) {
    stream.write_all(b"q").unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

/// The port of the endpoint that serves a connection, as connection tracking knows it.
pub(super) fn endpoint_of(world: &World, stream: &TcpStream) -> u16 {
    let (local, peer) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
    let dump = world.switch.ovs.appctl(&["dpctl/dump-conntrack"]);
    let ports = format!("dst={},sport={},dport={})", peer.ip(), local.port(), peer.port());
    let entry = dump.lines().find(|line| line.contains(&ports));
    let entry = entry.unwrap_or_else(|| panic!("no connection {ports}: {dump}"));
    let (_, reply) = entry.split_once("reply=(").unwrap();
    let (_, port) = reply.split_once("sport=").unwrap();
    port.split(',').next().and_then(|port| port.parse().ok()).unwrap()
}

/// Connections spread over all endpoints, of a group that is cut into parts too, and share decisions: few
/// of many connections ask for one.
#[test]
#[ignore = "needs root: make test"]
fn many_endpoints_are_reached_without_asking_for_each_connection() {
    const AT_ONCE: usize = 100;
    in_netns(|| {
        let world = World::start();
        for (id, n_endpoints) in [(1, 100_u16), (2, 300)] {
            let first = 10_000 * u16::try_from(id).unwrap();
            let ports = first..first + n_endpoints;
            let endpoints: Vec<_> =
                ports.map(|port| mk_udp("10.77.1.3", port, Place::LocalPod)).collect();
            let address = format!("10.96.0.{id}");
            let frontend = Frontend { protocol: Protocol::Udp, ..mk_frontend(&address, 53, id) };
            world.serve(&frontend, &mk_group(id, &endpoints));
            // Connections that were translated, and the endpoints that they went to.
            let translated = || -> (usize, usize) {
                let dump = world.switch.ovs.appctl(&["dpctl/dump-conntrack"]);
                let dialled = format!("dst={address},");
                let reply = |line: &str| line.split_once("reply=(").map(|(_, r)| r.to_owned());
                let port = |reply: String| {
                    let (_, port) = reply.split_once("sport=").unwrap();
                    port.split(',').next().unwrap().to_owned()
                };
                let lines = dump.lines().filter(|line| line.contains(&dialled));
                let ports: Vec<_> = lines.filter_map(reply).map(port).collect();
                (ports.len(), ports.iter().collect::<std::collections::BTreeSet<_>>().len())
            };
            let n_missed = || -> usize {
                let show = world.switch.ovs.appctl(&["dpctl/show"]);
                let (_, rest) = show.split_once("missed:").unwrap();
                rest.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap()
            };
            // No more at once than a port's queue takes.
            let open = |n_times: usize| {
                for _ in 0..n_times {
                    let (before, _) = translated();
                    world.pod2.run(|| {
                        for _ in 0..AT_ONCE {
                            let socket = UdpSocket::bind("10.77.1.2:0").unwrap();
                            socket.connect((address.as_str(), 53)).unwrap();
                            let _ = socket.send(b"x");
                        }
                    });
                    // Source ports may come again.
                    testkit::wait_until(WAIT, "connections are translated", || {
                        translated().0 >= before + AT_ONCE / 2
                    });
                }
            };
            open(20);
            let before = n_missed();
            open(20);
            let asked = n_missed() - before;
            assert!(asked < AT_ONCE * 20 / 3, "{asked} asked, {n_endpoints} endpoints");
            let (n_connections, reached) = translated();
            // Each has a slot; by chance a few connections less than 4,000 leave one out.
            let nearly_all = usize::from(n_endpoints) * 97 / 100;
            assert!(
                reached >= nearly_all,
                "{reached} of {n_endpoints}, {n_connections} connections"
            );
        }
    });
}

/// Policies see the endpoint, and which Service was dialled, in each packet of a connection that is not
/// let through, however many are sent.
#[test]
#[ignore = "needs root: make test"]
fn policies_see_endpoints_and_services() {
    in_netns(|| {
        let world = World::start();
        let families = Families::Dual;
        let config = mk_policy_config(families);
        serve_udp(&world.pod3, "pod3", "[::]:53");
        let endpoint = mk_udp("10.77.1.3", 53, Place::LocalPod);
        let udp = |frontend| Frontend { protocol: Protocol::Udp, ..frontend };
        for id in [1, 2] {
            let frontend = udp(mk_frontend(&format!("10.96.0.{id}"), 53, id));
            world.serve(&frontend, &mk_group(id, &[endpoint]));
        }
        let node_port = Frontend {
            address: FrontendAddress::NodePort { ipv6: false },
            external: true,
            ..udp(mk_frontend("0.0.0.0", 30053, 2))
        };
        world.switch.add_all(frontend_flows(&mk_service_node(families), &node_port));
        // A client outside, whose packets the host forwards.
        sh("ip addr add 192.0.2.1/32 dev lo");
        let answered = |from: &str, to: &str| {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
            (0..4).any(|_| socket.send(b"x").is_ok() && socket.recv(&mut [0; 64]).is_ok())
        };
        let from_pod2 = |to: &'static str| world.pod2.run(|| answered("0.0.0.0", to));
        let group = openflow::GroupId;
        let tiered =
            |id, direction, verdict| mk_rule(id, direction, policy::Place::Tiered, verdict);
        let drop = |id, direction| tiered(id, direction, Verdict::Drop);
        let at_node_port = |id, verdict| {
            mk_rule(id, Direction::Egress, policy::Place::NodePort, verdict)
                .from(&["0.0.0.0/0"])
                .through(&[ClauseKey::ToNodePort(group(2))])
        };
        let rules = [
            (
                "a Service by its group",
                vec![
                    drop(11, Direction::Egress)
                        .from(&["10.77.1.2/32"])
                        .through(&[ClauseKey::ToService(group(1))]),
                ],
                [false, true, true, true, true, true],
            ),
            (
                "the endpoint on the way out",
                vec![drop(12, Direction::Egress).from(&["10.77.1.2/32"]).to(&["10.77.1.3/32"])],
                [false, false, false, false, true, true],
            ),
            (
                "the endpoint on the way in",
                vec![drop(13, Direction::Ingress).from(&["10.77.1.2/32"]).pods(&[3])],
                [false, false, false, false, true, true],
            ),
            (
                "a NodePort: what its clients may send elsewhere does not count, and the node passes",
                vec![
                    at_node_port(14, Verdict::Drop),
                    tiered(15, Direction::Egress, Verdict::Allow)
                        .from(&["10.77.1.2/32"])
                        .to(&["0.0.0.0/0"]),
                ],
                [true, true, true, false, false, true],
            ),
            (
                "a NodePort that lets all in: its clients' own rules hold",
                vec![
                    at_node_port(16, Verdict::Allow),
                    drop(17, Direction::Egress).from(&["10.77.1.2/32"]).to(&["10.77.1.3/32"]),
                ],
                [false, false, false, false, true, true],
            ),
        ];
        for (what, rules, want) in rules {
            let flows: Vec<_> = rules.iter().flat_map(|rule| rule.flows(&config)).collect();
            world.switch.add(&flows);
            let got = || {
                [
                    from_pod2("10.96.0.1:53"),
                    from_pod2("10.96.0.2:53"),
                    from_pod2("10.77.1.3:53"),
                    from_pod2("172.30.0.1:30053"),
                    answered("192.0.2.1", "169.254.0.252:30053"),
                    answered("10.77.1.1", "169.254.0.252:30053"),
                ]
            };
            // The datapath may know for a moment longer what the flows were.
            testkit::wait_until(WAIT, what, || got() == want);
            assert_eq!(got(), want, "{what}");
            let mgmt = world.switch.ovs.mgmt("br-int").display().to_string();
            for flow in flows {
                let text = flow.normalize().to_string();
                let (matching, _) = text.split_once(" actions=").unwrap();
                let (_, matching) = matching.split_once("table=").unwrap();
                let matching = format!("table={matching}");
                world.switch.ovs.ofctl(&["--strict", "del-flows", &mgmt, &matching]);
            }
        }
    });
}

/// The flows for the kernel's datapath are such that a switch takes them.
#[test]
#[ignore = "needs root: make test"]
fn a_switch_takes_what_is_meant_for_the_kernel() {
    in_netns(|| {
        let mut node = mk_service_node(Families::Dual);
        node.services.as_mut().unwrap().datapath = Datapath::System;
        let flows = super::fixture::flows_of(&node);
        let apart = |flow: &&openflow::Flow| flow.to_string().contains("nat(src),");
        assert_eq!(flows.iter().filter(apart).count(), 4, "of all, and of the gateway");
        let switch = Switch::start(Families::Dual);
        switch.add(&flows);
        let has = switch.ovs.flows("br-int");
        let told = |family: &str| {
            let of = |line: &&String| line.contains(family) && line.contains("nat(src),");
            has.iter().filter(of).count()
        };
        assert_eq!((told("+new+trk,ip,"), told("+new+trk,ipv6,")), (2, 2), "{has:#?}");
    });
}

/// Ways that leave the node, as the switch explains them.
#[test]
#[ignore = "needs root: make test"]
fn ways_to_endpoints_of_other_nodes() {
    in_netns(|| {
        let mut node = mk_service_node(Families::V4);
        node.services.as_mut().unwrap().dsr = true;
        let switch = Switch::start_as(&node);
        let remote = mk_endpoint("10.77.2.9", 8080, Place::RemotePod);
        let local = mk_endpoint("10.77.1.2", 8080, Place::LocalPod);
        let outside = mk_endpoint("192.0.2.7", 443, Place::HostNetwork);
        let external = |address, n| Frontend { external: true, ..mk_frontend(address, 80, n) };
        let direct = Frontend {
            dsr: Some(Target::Group(openflow::GroupId(3))),
            ..external("203.0.113.1", 1)
        };
        let none = Frontend { target: Target::Reject, ..mk_frontend("10.96.0.9", 80, 0) };
        let mut intents = Vec::new();
        for (id, endpoint) in [(1, remote), (2, outside), (3, local)] {
            intents.extend(group(&mk_group(id, &[endpoint])));
            intents.extend(endpoint_flows(&node, &endpoint));
        }
        let ranges = vec!["198.51.100.0/24".parse().unwrap()];
        let narrow = Frontend { source_ranges: ranges, ..external("203.0.113.4", 3) };
        for frontend in [
            mk_frontend("10.96.0.1", 80, 1),
            mk_frontend("10.96.0.2", 80, 2),
            external("203.0.113.2", 1),
            direct,
            none,
            narrow,
        ] {
            intents.extend(frontend_flows(&node, &frontend));
        }
        switch.add_all(intents);
        let pod = "dp_hash=1,in_port=2,dl_src=0a:00:00:00:02:02,dl_dst=0a:00:00:00:01:01,tcp,\
                   tcp_dst=80,nw_ttl=64,nw_src=10.77.1.2";
        let client = "dp_hash=1,in_port=32769,dl_src=0a:00:00:00:01:01,\
                      dl_dst=aa:bb:cc:dd:ee:ff,tcp,tcp_dst=80,nw_ttl=64,nw_src=198.51.100.9";
        let other = "dp_hash=1,in_port=32769,dl_src=0a:00:00:00:01:01,\
                     dl_dst=aa:bb:cc:dd:ee:ff,tcp,tcp_dst=80,nw_ttl=64,nw_src=192.0.2.99";
        let peer = "dp_hash=1,in_port=32768,tun_src=172.30.0.2,tun_dst=172.30.0.1,\
                    dl_src=0a:00:00:00:01:02,dl_dst=aa:bb:cc:dd:ee:ff,tcp,tcp_dst=80,nw_ttl=64,\
                    nw_src=198.51.100.9";
        let snat = "nat(src=10.77.1.1)";
        for (what, from, to, want, translates) in [
            ("Pod to a remote endpoint", pod, "10.96.0.1", "tunnel to 172.30.0.2", None),
            ("Pod to outside", pod, "10.96.0.2", "gw0", None),
            (
                "outside to a remote endpoint",
                client,
                "203.0.113.2",
                "tunnel to 172.30.0.2",
                Some(snat),
            ),
            ("direct server return", client, "203.0.113.1", "tunnel to 172.30.0.2", None),
            ("from the first node", peer, "203.0.113.1", "pod2", None),
            ("a source that is served", client, "203.0.113.4", "pod2", None),
            ("a source that is not", other, "203.0.113.4", "drop", None),
            ("no endpoint", pod, "10.96.0.9", "drop", None),
        ] {
            let trace = switch.trace(&format!("{from},nw_dst={to}"), "trk,new");
            // What goes to the agent, the trace shows as such.
            if what == "no endpoint" {
                assert!(trace.text.contains("controller("), "{what}\n{}", trace.text);
                continue;
            }
            // A trace begins the pass behind a translation with the tunnel's end set already, takes
            // it for where the packet came from, and says so; a packet does not.
            let reflected = trace.text.contains("Not tunneling to our own address");
            let verdict = if reflected { "tunnel to 172.30.0.2".into() } else { trace.verdict() };
            assert!(!reflected || translates.is_some(), "{what}\n{}", trace.text);
            assert_eq!(verdict, want, "{what}\n{}", trace.text);
            let translated = trace.text.lines().any(|line| line.contains("nat(src="));
            assert_eq!(translated, translates.is_some(), "{what}\n{}", trace.text);
            if let Some(nat) = translates {
                assert!(trace.text.contains(nat), "{what}\n{}", trace.text);
            }
        }
        // The first node keeps no connection that it sees one half of.
        let trace = switch.trace(&format!("{client},nw_dst=203.0.113.1"), "trk,new");
        assert!(!trace.text.contains("ct(commit"), "{}", trace.text);
        let broken = switch.trace(&format!("{client},nw_dst=203.0.113.2"), "trk,inv");
        assert_eq!(broken.verdict(), "drop", "{}", broken.text);
    });
}
