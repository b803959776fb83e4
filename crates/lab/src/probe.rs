//! One exchange from a namespace: who answers, from where, and whom it saw.
//!
//! Only the socket is made inside the namespace; it stays there whichever thread uses it.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::echo::{self, Answer};
use crate::error::{Doing, LabError, Result};
use crate::{interrupt, netns};

/// Asks over TCP who answers.
///
/// # Errors
/// When the connection or the answer does not come in time.
pub fn tcp_who(netns: &Path, target: SocketAddr, within: Duration) -> Result<Answer> {
    let stream = tcp_connect(netns, target, within)?;
    let mut reader = BufReader::new(&stream);
    (&stream).write_all(b"who\n").doing(|| "send over TCP".into())?;
    let mut line = String::new();
    reader.read_line(&mut line).doing(|| "wait for the TCP answer".into())?;
    serde_json::from_str(&line).doing(|| "decode the TCP answer".into())
}

/// Opens a TCP connection from inside a namespace; reads and writes are bounded by `within` times
/// the [`interrupt::patience`] of this machine.
///
/// # Errors
/// When it is not accepted in time.
pub fn tcp_connect(netns: &Path, target: SocketAddr, within: Duration) -> Result<TcpStream> {
    let within = within * interrupt::patience();
    let stream = netns::enter(netns, || TcpStream::connect_timeout(&target, within))?
        .doing(|| format!("connect to {target} over TCP"))?;
    stream
        .set_read_timeout(Some(within))
        .and_then(|()| stream.set_write_timeout(Some(within)))
        .and_then(|()| stream.set_nodelay(true))
        .doing(|| "set up the connection".into())?;
    Ok(stream)
}

/// Asks over UDP who answers; a lost datagram is sent again until the time is over.
///
/// # Errors
/// When no answer comes in time.
pub fn udp_who(netns: &Path, target: SocketAddr, within: Duration) -> Result<Answer> {
    let within = within * interrupt::patience();
    let socket = udp_socket(netns, target)?;
    socket.set_read_timeout(Some(within / 4)).doing(|| "set up the socket".into())?;
    let deadline = Instant::now() + within;
    let mut buffer = [0; 2048];
    while Instant::now() < deadline {
        socket.send(b"who").doing(|| format!("send to {target} over UDP"))?;
        if let Ok(n) = socket.recv(&mut buffer) {
            return serde_json::from_slice(&buffer[..n]).doing(|| "decode the UDP answer".into());
        }
    }
    Err(LabError::new(format!("no answer from {target} over UDP")))
}

/// A UDP socket of the namespace, connected to `target`.
///
/// # Errors
/// When there is no way to the target.
pub fn udp_socket(netns: &Path, target: SocketAddr) -> Result<UdpSocket> {
    netns::enter(netns, || {
        let socket = UdpSocket::bind((unspecified(target), 0))?;
        socket.connect(target)?;
        Ok::<_, std::io::Error>(socket)
    })?
    .doing(|| format!("open a UDP socket towards {target}"))
}

/// Serves the echo protocol inside a namespace until this process ends, on a port of its own.
///
/// UDP is bound to each address: a socket bound to none would answer from the address that the
/// kernel prefers, which need not be the one that was asked.
///
/// # Errors
/// When no port can be had.
pub fn serve(netns: &Path, name: &str, addresses: &[IpAddr]) -> Result<u16> {
    let (tcp, udp, port) = netns::enter(netns, || {
        let mut failed = None;
        for _ in 0..16 {
            let tcp = echo::listen(0)?.0;
            let port = tcp.local_addr()?.port();
            let sockets: std::io::Result<Vec<_>> =
                addresses.iter().map(|a| UdpSocket::bind((*a, port))).collect();
            match sockets {
                Ok(udp) => return Ok((tcp, udp, port)),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| std::io::Error::other("no port")))
    })?
    .doing(|| format!("listen in {}", netns.display()))?;
    for socket in udp {
        let name = name.to_owned();
        std::thread::spawn(move || echo::serve_udp(&socket, &name));
    }
    let name = name.to_owned();
    std::thread::spawn(move || echo::serve_tcp(&tcp, &name));
    Ok(port)
}

fn unspecified(target: SocketAddr) -> IpAddr {
    if target.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}
