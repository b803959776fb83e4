//! One source port, to a Service and to its endpoint directly at the same time.
//!
//! At the endpoint both would be the same connection, so one of them has to get another port.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::calls::{Transport, ask_by};
use super::world::{Client, World};
use super::{ANSWERED, check};
use crate::echo::{self, Answer};
use crate::error::{Doing, LabError, Result};
use crate::{interrupt, netns};

/// A connection that can be asked again.
pub(super) enum Connection {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Connection {
    /// Connects from a port, from any when it is 0; others may use that port too.
    pub(super) fn open(
        from: &Client,
        port: u16,
        to: SocketAddr,
        transport: Transport,
    ) -> Result<Self> {
        let within = ANSWERED * interrupt::patience();
        let own = SocketAddr::new(from.address(to.ip())?, port);
        let (kind, protocol) = match transport {
            Transport::Tcp => (Type::STREAM, Protocol::TCP),
            Transport::Udp => (Type::DGRAM, Protocol::UDP),
        };
        let socket = netns::enter(&from.netns, || {
            let socket = Socket::new(Domain::for_address(to), kind, Some(protocol))?;
            socket.set_reuse_address(true)?;
            socket.bind(&own.into())?;
            socket.connect_timeout(&to.into(), within)?;
            socket.set_read_timeout(Some(within))?;
            Ok::<_, std::io::Error>(socket)
        })?
        .doing(|| format!("{} connects from {own} to {to} by {transport:?}", from.name))?;
        Ok(match transport {
            Transport::Tcp => Self::Tcp(socket.into()),
            Transport::Udp => Self::Udp(socket.into()),
        })
    }

    fn port(&self) -> Result<u16> {
        match self {
            Self::Tcp(stream) => stream.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
        }
        .map(|own| own.port())
        .doing(|| "look at the socket".into())
    }

    /// Asks who answers.
    pub(super) fn ask(&self) -> Result<Answer> {
        use std::io::{BufRead, BufReader, Write};
        match self {
            Self::Udp(socket) => ask_by(socket, Duration::from_secs(2)),
            Self::Tcp(stream) => {
                let mut writer = stream;
                writer.write_all(b"who\n").doing(|| "send over TCP".into())?;
                let mut line = String::new();
                let mut reader = BufReader::new(stream);
                reader.read_line(&mut line).doing(|| "wait for the TCP answer".into())?;
                serde_json::from_str(&line).doing(|| "decode the TCP answer".into())
            }
        }
    }
}

/// Both ways are open at the same time, whichever came first; gives the number of such pairs.
pub(super) fn shared(world: &World<'_>) -> Result<usize> {
    let endpoint = world.client("alone")?;
    let mut n = 0;
    for client in world.clients() {
        for service in world.targets("alone")? {
            let direct = SocketAddr::new(endpoint.address(service.ip())?, echo::PORT);
            for transport in Transport::ALL {
                for (what, first, second) in [
                    ("the Service first", service, direct),
                    ("the endpoint first", direct, service),
                ] {
                    pair(client, first, second, transport)
                        .doing(|| format!("{} by {transport:?}, {what}", client.name))?;
                    n += 1;
                }
            }
        }
    }
    Ok(n)
}

fn pair(from: &Client, first: SocketAddr, second: SocketAddr, transport: Transport) -> Result<()> {
    let own = from.address(first.ip())?;
    let who = ["services/alone".to_owned()];
    let one = Connection::open(from, 0, first, transport)?;
    check(&one.ask()?, from, &who, &[own])?;
    let port = one.port()?;
    let other = Connection::open(from, port, second, transport)?;
    if other.port()? != port {
        return Err(LabError::new("the second socket has another port"));
    }
    for _ in 0..3 {
        check(&other.ask()?, from, &who, &[own]).doing(|| format!("ask {second}"))?;
        check(&one.ask()?, from, &who, &[own]).doing(|| format!("ask {first} again"))?;
    }
    Ok(())
}
