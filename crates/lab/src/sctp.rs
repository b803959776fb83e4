//! SCTP without the kernel's: an INIT from one namespace, and who answers it in another.
//!
//! Packets are made by hand and sent on raw sockets, so no module is needed. What is exchanged is the
//! first half of an association: INIT, and INIT ACK or ABORT. Whom the far side saw stands in the
//! state cookie of its answer.
//!
//! The userspace datapath of Open vSwitch 3.1 knows a connection of SCTP by its two addresses alone, for
//! some time after its end too: where the next one is to be judged anew it is to forget ([`forget`]).
//!
//! Not here: what packets look like (`packet`).

mod packet;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::socket::{SockaddrStorage, recvfrom};
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{Doing, Result};
use crate::layout::NodeLayout;
use crate::{interrupt, netns, ovs};
use packet::{Chunk, Init, Packet};

/// SCTP's number among the protocols of IP.
const SCTP: i32 = 132;
/// A server looks this often whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// An INIT is sent again after this time.
const AGAIN: Duration = Duration::from_millis(250);

/// What the far side says about an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the answering server.
    pub name: String,
    /// The address and port it was reached at.
    pub own: SocketAddr,
    /// The address and port it saw as the sender's.
    pub peer: SocketAddr,
}

/// What became of an INIT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Somebody agreed.
    Answered(Answer),
    /// The far side, or somebody on the way, refused: an ABORT, or this ICMP error as the system
    /// tells it.
    Refused(Option<io::ErrorKind>),
    /// No answer came in time.
    Silence,
}

/// Answers INITs in a namespace while it lives.
#[derive(Debug)]
pub struct Server {
    over: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl Server {
    /// Agrees to associations at these ports of these addresses of a namespace, and refuses those at
    /// any other port; so a namespace has one such server.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or has no such address.
    pub fn start(netns: &Path, name: &str, addresses: &[IpAddr], ports: &[u16]) -> Result<Self> {
        let ports: BTreeSet<u16> = ports.iter().copied().collect();
        let mut server = Self { over: Arc::default(), workers: Vec::new() };
        for address in addresses {
            let socket = netns::enter(netns, || listen(*address))?
                .doing(|| format!("listen at {address} for SCTP in {}", netns.display()))?;
            let (over, name, ports) = (Arc::clone(&server.over), name.to_owned(), ports.clone());
            let own = *address;
            let serve = move || serve(&socket, &name, own, &ports, &over);
            server.workers.push(std::thread::spawn(serve));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            // A server that panicked answers nobody, which its clients tell.
            let _ = worker.join();
        }
    }
}

/// Asks for an association from a port of a namespace, from any where none is given, and ends it at
/// once when somebody agrees. `within` counts times the [`interrupt::patience`] of this machine.
///
/// # Errors
/// When the namespace cannot be entered, or nothing can be sent.
pub fn ask(
    netns: &Path,
    port: Option<u16>,
    target: SocketAddr,
    within: Duration,
) -> Result<Outcome> {
    let socket = netns::enter(netns, || connect(target.ip()))?
        .doing(|| format!("open a raw socket towards {target}"))?;
    let port = port.unwrap_or_else(|| rand::random_range(1024..=u16::MAX));
    exchange(&socket, port, target, within * interrupt::patience())
        .doing(|| format!("ask {target} over SCTP"))
}

/// Lets a node's switch forget all connections.
///
/// # Errors
/// When the switch does not answer.
pub fn forget(node: &NodeLayout) -> Result<()> {
    ovs::appctl(node, &["dpctl/flush-conntrack"]).map(drop)
}

fn exchange(
    socket: &Socket,
    port: u16,
    target: SocketAddr,
    within: Duration,
) -> io::Result<Outcome> {
    let init = Init { own_tag: rand::random_range(1..=u32::MAX), first: rand::random() };
    let mk_packet = |tag, chunk| Packet { from: port, to: target.port(), tag, chunk }.encode();
    let deadline = Instant::now() + within;
    let mut due = Instant::now();
    let mut buffer = vec![0; 65_536];
    loop {
        let now = Instant::now();
        if now >= deadline {
            return Ok(Outcome::Silence);
        }
        if now >= due {
            due = now + AGAIN;
            if let Err(error) = socket.send(&mk_packet(0, Chunk::Init(init))) {
                return refusal(error);
            }
        }
        socket
            .set_read_timeout(Some(due.min(deadline).saturating_duration_since(now).max(LOOK)))?;
        let read = match receive(socket, &mut buffer) {
            Ok((n, _)) => payload(target.ip(), &buffer[..n]).and_then(Packet::decode),
            Err(error) if is_silence(&error) => continue,
            Err(error) => return refusal(error),
        };
        match read.and_then(|seen| judge(&seen, port, target.port(), init)) {
            Some((outcome, Some(tag))) => {
                socket.send(&mk_packet(tag, Chunk::Abort))?;
                return Ok(outcome);
            }
            Some((outcome, None)) => return Ok(outcome),
            None => {}
        }
    }
}

/// What a packet is to the one who sent `init`: an outcome, and the tag of an association that
/// there is now; nothing where it is no answer to it.
fn judge(seen: &Packet, port: u16, to: u16, init: Init) -> Option<(Outcome, Option<u32>)> {
    if (seen.from, seen.to, seen.tag) != (to, port, init.own_tag) {
        return None;
    }
    match &seen.chunk {
        Chunk::Init(_) => None,
        Chunk::Abort => Some((Outcome::Refused(None), None)),
        Chunk::InitAck(other, cookie) => {
            let answer = serde_json::from_slice(cookie).ok()?;
            Some((Outcome::Answered(answer), Some(other.own_tag)))
        }
    }
}

/// What a server says to a packet.
fn reply(
    seen: &Packet,
    name: &str,
    (own, peer): (IpAddr, IpAddr),
    ports: &BTreeSet<u16>,
) -> Option<Packet> {
    let Chunk::Init(init) = seen.chunk else { return None };
    let chunk = if ports.contains(&seen.to) {
        let (own, peer) = (SocketAddr::new(own, seen.to), SocketAddr::new(peer, seen.from));
        let answer = Answer { name: name.to_owned(), own, peer };
        let cookie = serde_json::to_vec(&answer).ok()?;
        Chunk::InitAck(Init { own_tag: rand::random_range(1..=u32::MAX), ..init }, cookie)
    } else {
        Chunk::Abort
    };
    Some(Packet { from: seen.to, to: seen.from, tag: init.own_tag, chunk })
}

fn serve(socket: &Socket, name: &str, own: IpAddr, ports: &BTreeSet<u16>, over: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    while !over.load(Ordering::SeqCst) {
        let Ok((n, Some(peer))) = receive(socket, &mut buffer) else { continue };
        let Some(seen) = payload(own, &buffer[..n]).and_then(Packet::decode) else { continue };
        if let Some(answer) = reply(&seen, name, (own, peer), ports) {
            // A lost answer looks like a lost request to the client, who judges.
            let _ = socket.send_to(&answer.encode(), &SocketAddr::new(peer, 0).into());
        }
    }
}

fn raw(ip: IpAddr) -> io::Result<Socket> {
    let domain = if ip.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    Socket::new(domain, Type::RAW, Some(Protocol::from(SCTP)))
}

fn listen(own: IpAddr) -> io::Result<Socket> {
    let socket = raw(own)?;
    socket.bind(&SocketAddr::new(own, 0).into())?;
    socket.set_read_timeout(Some(LOOK))?;
    Ok(socket)
}

/// A socket that takes only what comes from there, ICMP errors too.
fn connect(to: IpAddr) -> io::Result<Socket> {
    let socket = raw(to)?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    Ok(socket)
}

fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<(usize, Option<IpAddr>)> {
    let (n, from) = recvfrom::<SockaddrStorage>(socket.as_raw_fd(), buffer)?;
    let from = from.and_then(|from| {
        let v4 = from.as_sockaddr_in().map(|from| IpAddr::V4(from.ip()));
        v4.or_else(|| from.as_sockaddr_in6().map(|from| IpAddr::V6(from.ip())))
    });
    Ok((n, from))
}

/// Raw sockets of IPv4 show the header of IP, those of IPv6 do not.
fn payload(ip: IpAddr, bytes: &[u8]) -> Option<&[u8]> {
    if ip.is_ipv6() {
        return Some(bytes);
    }
    let words = bytes.first()? & 0x0f;
    bytes.get(usize::from(words) * 4..)
}

fn is_silence(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// What ICMP said is an answer; anything else is our own failure.
fn refusal(error: io::Error) -> io::Result<Outcome> {
    use nix::errno::Errno::{EACCES, ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, ENOPROTOOPT, EPROTO};
    const TOLD: [nix::errno::Errno; 6] =
        [ECONNREFUSED, EHOSTUNREACH, ENETUNREACH, EACCES, ENOPROTOOPT, EPROTO];
    match error.raw_os_error().map(nix::errno::Errno::from_raw) {
        Some(number) if TOLD.contains(&number) => Ok(Outcome::Refused(Some(error.kind()))),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INIT: Init = Init { own_tag: 17, first: 5 };

    #[test]
    fn only_an_answer_to_ones_own_packet_counts() {
        let answer = r#"{"name":"x","own":"10.0.0.1:80","peer":"10.0.0.2:1027"}"#;
        let agreed = Chunk::InitAck(Init { own_tag: 3, first: 0 }, answer.into());
        let good = Packet { from: 80, to: 1027, tag: 17, chunk: agreed };
        let judged = |packet: &Packet| judge(packet, 1027, 80, INIT);
        let (outcome, tag) = judged(&good).expect("it is one");
        assert_eq!(tag, Some(3));
        let answer = serde_json::from_str(answer).unwrap();
        assert_eq!(outcome, Outcome::Answered(answer));
        let refused = Packet { chunk: Chunk::Abort, ..good.clone() };
        assert_eq!(judged(&refused), Some((Outcome::Refused(None), None)));
        for other in [
            Packet { from: 81, ..good.clone() },
            Packet { to: 1028, ..good.clone() },
            Packet { tag: 0, ..good.clone() },
            Packet { chunk: Chunk::Init(INIT), ..good.clone() },
            Packet { chunk: Chunk::InitAck(INIT, b"{".to_vec()), ..good.clone() },
        ] {
            assert_eq!(judged(&other), None, "{other:?}");
        }
    }

    #[test]
    fn a_server_agrees_at_its_ports_refuses_elsewhere_and_answers_nothing_else() {
        let ips = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let ports = BTreeSet::from([80]);
        let said = |to, chunk| reply(&Packet { from: 1027, to, tag: 0, chunk }, "x", ips, &ports);
        let agreed = said(80, Chunk::Init(INIT)).expect("it answers");
        assert_eq!((agreed.from, agreed.to, agreed.tag), (80, 1027, 17));
        let Chunk::InitAck(_, cookie) = agreed.chunk else { panic!("{:?}", agreed.chunk) };
        let answer: Answer = serde_json::from_slice(&cookie).unwrap();
        assert_eq!(answer.peer, "10.0.0.2:1027".parse().unwrap());
        let refused = said(81, Chunk::Init(INIT)).expect("it answers");
        assert_eq!((refused.tag, refused.chunk), (17, Chunk::Abort));
        assert_eq!(said(80, Chunk::Abort), None);
        assert_eq!(said(81, Chunk::Abort), None);
        assert_eq!(said(1027, Chunk::InitAck(INIT, Vec::new())), None);
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn associations_are_agreed_to_refused_and_met_with_silence() {
        let name = format!("antrea-lab-test-sctp-{}", std::process::id());
        let path = Path::new(crate::layout::NETNS_DIR).join(name);
        netns::create(&path).unwrap();
        let within = Duration::from_millis(600);
        for ip in ["127.0.0.1", "::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            let to = |port| ask(&path, Some(2000), SocketAddr::new(ip, port), within).unwrap();
            let server = Server::start(&path, "x", &[ip], &[80]).unwrap();
            let answer = Answer {
                name: "x".into(),
                own: SocketAddr::new(ip, 80),
                peer: SocketAddr::new(ip, 2000),
            };
            assert_eq!(to(80), Outcome::Answered(answer));
            assert_eq!(to(81), Outcome::Refused(None));
            drop(server);
            // Somebody reads, and says nothing.
            let mute = netns::enter(&path, || listen(ip)).unwrap().unwrap();
            assert_eq!(to(80), Outcome::Silence);
            drop(mute);
        }
        netns::remove(&path).unwrap();
    }
}
