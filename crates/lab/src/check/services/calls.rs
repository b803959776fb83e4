//! One exchange with a Service, or its refusal.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::world::Client;
use crate::echo::Answer;
use crate::error::{Doing, LabError, Result};
use crate::{interrupt, netns, probe};

/// What carries an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    pub(super) const ALL: [Self; 2] = [Self::Tcp, Self::Udp];
}

/// A refusal is there after this time: long before a lost packet would be sent again.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Asks who answers.
pub(super) fn ask(
    from: &Client,
    target: SocketAddr,
    transport: Transport,
    within: Duration,
) -> Result<Answer> {
    match transport {
        Transport::Tcp => probe::tcp_who(&from.netns, target, within),
        Transport::Udp => probe::udp_who(&from.netns, target, within),
    }
    .doing(|| format!("{} asks {target}", from.name))
}

/// Asks by a socket that stays; an answer to an earlier question of it is passed over.
pub(super) fn ask_by(socket: &UdpSocket, within: Duration) -> Result<Answer> {
    let within = within * interrupt::patience();
    socket.set_nonblocking(true).doing(|| "set up the socket".into())?;
    let mut buffer = [0; 2048];
    // Refusals that came meanwhile are errors of the socket, and as old as the answers.
    while !matches!(socket.recv(&mut buffer), Err(error) if error.kind() == ErrorKind::WouldBlock) {
    }
    socket
        .set_nonblocking(false)
        .and_then(|()| socket.set_read_timeout(Some(within)))
        .doing(|| "set up the socket".into())?;
    socket.send(b"who").doing(|| "send over UDP".into())?;
    let n = socket.recv(&mut buffer).doing(|| "wait for the UDP answer".into())?;
    serde_json::from_slice(&buffer[..n]).doing(|| "decode the UDP answer".into())
}

/// The target refuses: at once, and by the right answer.
pub(super) fn refused(from: &Client, target: SocketAddr, transport: Transport) -> Result<()> {
    let within = AT_ONCE * interrupt::patience();
    let began = Instant::now();
    let outcome = match transport {
        Transport::Tcp => {
            netns::enter(&from.netns, || TcpStream::connect_timeout(&target, within))?.map(drop)
        }
        Transport::Udp => {
            let socket = probe::udp_socket(&from.netns, target)?;
            socket.set_read_timeout(Some(within)).doing(|| "set up the socket".into())?;
            socket.send(b"who").and_then(|_| socket.recv(&mut [0; 256])).map(drop)
        }
    };
    match outcome {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused && began.elapsed() < within => {
            Ok(())
        }
        other => {
            let (name, seconds) = (&from.name, began.elapsed().as_secs_f64());
            let why =
                format!("{name} to {target} by {transport:?}: {other:?} after {seconds:.3} s");
            Err(LabError::new(why))
        }
    }
}
