//! One source port, towards one endpoint, by several ways at once: all of them get through and stay.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use socket2::{Domain, Socket, Type};
use testkit::netns::{in_netns, sh};

use super::fixture::ip;
use super::service_flows::{mk_endpoint, mk_frontend, mk_group};
use super::service_live::{WAIT, World, ask, end, once_free, serve_tcp, serve_udp};
use crate::service::{Endpoint, Frontend, Place, Protocol};

/// Where endpoints serve, by TCP and by UDP.
const PORT: u16 = 8080;
const PROTOCOLS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// A connection that can be asked again.
enum Asked {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Asked {
    /// From this address and port, which others may have too.
    fn dial(protocol: Protocol, from: SocketAddr, to: SocketAddr) -> Self {
        let (kind, transport) = match protocol {
            Protocol::Tcp => (Type::STREAM, socket2::Protocol::TCP),
            _ => (Type::DGRAM, socket2::Protocol::UDP),
        };
        let socket = once_free(&format!("{from} to {to}"), || {
            let socket = Socket::new(Domain::for_address(to), kind, Some(transport))?;
            socket.set_reuse_address(true)?;
            socket.bind(&from.into())?;
            socket.connect_timeout(&to.into(), WAIT)?;
            Ok(socket)
        });
        socket.set_read_timeout(Some(WAIT)).unwrap();
        match protocol {
            Protocol::Tcp => Self::Tcp(socket.into()),
            _ => Self::Udp(socket.into()),
        }
    }

    /// The client, as the endpoint sees it.
    fn seen_as(&mut self, what: &str) -> SocketAddr {
        match self {
            Self::Tcp(stream) => ask(stream).1,
            Self::Udp(socket) => {
                socket.send(b"x").unwrap();
                let mut buffer = [0; 128];
                let len = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}"));
                let text = std::str::from_utf8(&buffer[..len]).unwrap();
                text.split_once(' ').unwrap().1.parse().unwrap()
            }
        }
    }

    fn end(self) {
        if let Self::Tcp(stream) = self {
            end(stream);
        }
    }
}

/// Serves one endpoint at an address, by all protocols.
fn serve(world: &World, address: &str, id: u32, endpoint: Endpoint) {
    for (n, protocol) in (0..).zip(PROTOCOLS) {
        let endpoint = Endpoint { protocol, ..endpoint };
        let frontend = Frontend { protocol, ..mk_frontend(address, 80, id + n) };
        world.serve(&frontend, &mk_group(id + n, &[endpoint]));
    }
}

/// Who asks, from which address, and whom.
#[derive(Clone, Copy, Debug)]
struct Way {
    from: From,
    source: IpAddr,
    to: SocketAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Host,
    Pod3,
}

/// All of these from one port at the same time, in this order; twice, with the ports of connections
/// that just ended.
fn together(world: &World, port: u16, ways: &[Way], protocol: Protocol) {
    for round in 0..2 {
        let what = format!("{port} {ways:?} {protocol:?} {round}");
        let mut open = Vec::new();
        let mut seen = Vec::new();
        for Way { from, source, to } in ways.iter().copied() {
            let own = SocketAddr::new(source, port);
            let mut asked = match from {
                From::Host => Asked::dial(protocol, own, to),
                From::Pod3 => world.pod3.run(move || Asked::dial(protocol, own, to)),
            };
            seen.push(asked.seen_as(&what));
            open.push(asked);
        }
        for (asked, seen) in open.iter_mut().zip(&seen) {
            assert_eq!(asked.seen_as(&what), *seen, "{what}");
        }
        let distinct: BTreeSet<_> = seen.iter().collect();
        assert_eq!(distinct.len(), ways.len(), "{what}: the endpoint tells them apart: {seen:?}");
        open.into_iter().for_each(Asked::end);
    }
}

/// What the host sends in its own name, what it sends for others, and what a Pod sends to itself: to an
/// endpoint all of it comes from the gateway's address.
#[test]
#[ignore = "needs root: make test"]
fn what_comes_from_the_gateways_address_is_told_apart() {
    in_netns(|| {
        let world = World::start();
        serve_tcp(&world.pod3, "pod3", "[::]:8080");
        serve_udp(&world.pod3, "pod3", "0.0.0.0:8080");
        serve_udp(&world.pod3, "pod3", "[fd00:77:1::3]:8080");
        sh("ip addr add 198.51.100.1/32 dev lo && ip -6 addr add 2001:db8::1/128 dev lo nodad");
        for (client, own, pod, first) in [
            ("198.51.100.1", ["10.96.0.10", "10.96.0.11", "10.96.0.12"], "10.77.1.3", 1),
            ("2001:db8::1", ["fd00:96::10", "fd00:96::11", "fd00:96::12"], "fd00:77:1::3", 20),
        ] {
            let [own, other, near] = own;
            // As if the Pod was on another node: what others send there goes in the gateway's name.
            let far = mk_endpoint(pod, PORT, Place::RemotePod);
            serve(&world, own, first, far);
            serve(&world, other, first + 2, far);
            let local = mk_endpoint(pod, PORT, Place::LocalPod);
            serve(&world, near, first + 4, local);
            let gateway = if ip(pod).is_ipv4() { "10.77.1.1" } else { "fd00:77:1::1" };
            let way = |from, source: &str, to: &str, port| {
                let to = SocketAddr::new(ip(to), port);
                Way { from, source: ip(source), to }
            };
            let service = way(From::Host, gateway, own, 80);
            let forwarded = way(From::Host, client, other, 80);
            let direct = way(From::Host, gateway, pod, PORT);
            let nearby = way(From::Host, gateway, near, 80);
            let itself = way(From::Pod3, pod, near, 80);
            let mut port = 20_000;
            for protocol in PROTOCOLS {
                for ways in [
                    [service, forwarded],
                    [direct, forwarded],
                    [direct, service],
                    [nearby, itself],
                    [direct, itself],
                    [nearby, forwarded],
                    [itself, forwarded],
                ] {
                    for ways in [ways, [ways[1], ways[0]]] {
                        for from in [port, port + 20_000] {
                            together(&world, from, &ways, protocol);
                        }
                        port += 1;
                    }
                }
                together(&world, port, &[service, nearby, direct, forwarded, itself], protocol);
                port += 1;
            }
        }
        let version = world.switch.ovs.appctl(&["version"]);
        assert!(version.contains("Open vSwitch"), "it is alive: {version}");
    });
}
