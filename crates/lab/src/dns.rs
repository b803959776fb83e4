//! A DNS server with a zone that scenarios change, and the questions that they ask.
//!
//! It knows as much of DNS as policies by name have to cope with: both families, other names on the
//! way, answers by TCP in pieces, cut ones, and what is no answer at all.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Doing, LabError, Result};
use crate::{netns, probe};

/// Where DNS is served.
pub const PORT: u16 = 53;
/// Pieces of an answer by TCP come in this time one after the other, so that they are apart.
const PIECE_PAUSE: Duration = Duration::from_millis(20);
const CONNECTION_PATIENCE: Duration = Duration::from_secs(20);
const A: u16 = 1;
const CNAME: u16 = 5;
const AAAA: u16 = 28;
const HEADER_LEN: usize = 12;

/// How a name is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As it should be.
    #[default]
    Well,
    /// By UDP with nothing but the bit that says that it is cut short.
    Truncated,
    /// With bytes that are no answer.
    Garbage,
}

/// What the zone says of a name.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// The name that it is another one for.
    pub alias: Option<String>,
    /// Seconds that an answer is good.
    pub ttl: u32,
    /// How it is answered.
    pub manner: Manner,
}

/// The server's names; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Zone(Arc<Mutex<BTreeMap<String, Entry>>>);

impl Zone {
    /// This is what there is to say of a name from now on.
    pub fn set(&self, name: impl Into<String>, entry: Entry) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name.into(), entry);
    }

    fn get(&self, name: &str) -> Option<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The answer to a message.
    fn answer(&self, message: &[u8], by_udp: bool) -> Option<Vec<u8>> {
        let (name, kind, end) = question(message)?;
        let mut answer = message[..2].to_vec();
        answer.extend([0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]);
        answer.extend(&message[HEADER_LEN..end]);
        let mut entry = self.get(&name);
        match entry.as_ref().map(|entry| entry.manner) {
            None => answer[3] |= 3,
            Some(Manner::Garbage) => return Some(b"this is no answer".to_vec()),
            Some(Manner::Truncated) if by_udp => {
                answer[2] |= 2;
                return Some(answer);
            }
            Some(_) => {}
        }
        let mut n_records = 0u16;
        let mut of = name;
        // A name that is for ever another one's is answered with as many of these.
        while let Some(at) = entry.take().filter(|_| n_records < 8) {
            let mut put = |kind: u16, data: &[u8]| {
                put_name(&mut answer, &of);
                answer.extend(kind.to_be_bytes());
                answer.extend([0, 1]);
                answer.extend(at.ttl.to_be_bytes());
                answer.extend(u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
                answer.extend(data);
                n_records += 1;
            };
            match at.alias {
                Some(alias) => {
                    let mut data = Vec::new();
                    put_name(&mut data, &alias);
                    put(CNAME, &data);
                    entry = self.get(&alias);
                    of = alias;
                }
                None => at.addresses.iter().for_each(|address| match address {
                    IpAddr::V4(ip) if kind == A => put(A, &ip.octets()),
                    IpAddr::V6(ip) if kind == AAAA => put(AAAA, &ip.octets()),
                    _ => {}
                }),
            }
        }
        answer[6..8].copy_from_slice(&n_records.to_be_bytes());
        Some(answer)
    }
}

fn put_name(bytes: &mut Vec<u8>, name: &str) {
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap_or(0));
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
}

/// Name and kind of the one question of a message, and where it ends.
fn question(message: &[u8]) -> Option<(String, u16, usize)> {
    let mut at = HEADER_LEN;
    let mut labels = Vec::new();
    loop {
        let len = usize::from(*message.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + len)?).to_ascii_lowercase());
        at += len;
    }
    let [high, low, ..] = message.get(at..at + 4)? else { return None };
    Some((labels.join("."), u16::from_be_bytes([*high, *low]), at + 4))
}

/// Serves a zone at addresses inside a namespace until this process ends.
///
/// # Errors
/// When the port cannot be had.
pub fn serve(netns: &Path, addresses: &[IpAddr], zone: &Zone) -> Result<()> {
    for address in addresses {
        let at = SocketAddr::new(*address, PORT);
        let (udp, tcp) = netns::enter(netns, || {
            Ok::<_, std::io::Error>((UdpSocket::bind(at)?, TcpListener::bind(at)?))
        })?
        .doing(|| format!("serve DNS at {at}"))?;
        let by_udp = zone.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((n, peer)) = udp.recv_from(&mut buffer) {
                if let Some(answer) = by_udp.answer(&buffer[..n], true) {
                    let _ = udp.send_to(&answer, peer);
                }
            }
        });
        let by_tcp = zone.clone();
        std::thread::spawn(move || {
            for stream in tcp.incoming().flatten() {
                // A connection that breaks is of no interest but to whoever asked.
                let _ = serve_stream(stream, &by_tcp);
            }
        });
    }
    Ok(())
}

/// One answer in three pieces, of which the first ends within its length.
fn serve_stream(mut stream: TcpStream, zone: &Zone) -> std::io::Result<()> {
    stream.set_read_timeout(Some(CONNECTION_PATIENCE))?;
    stream.set_nodelay(true)?;
    let message = read_message(&mut stream)?;
    let answer = zone.answer(&message, false).ok_or(ErrorKind::InvalidData)?;
    let mut bytes = u16::try_from(answer.len()).unwrap_or(0).to_be_bytes().to_vec();
    bytes.extend(answer);
    let (first, rest) = bytes.split_at(1);
    let (second, third) = rest.split_at(rest.len() / 2);
    for piece in [first, second, third] {
        stream.write_all(piece)?;
        std::thread::sleep(PIECE_PAUSE);
    }
    Ok(())
}

fn read_message(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut message = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// How a question travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In one datagram, which is not sent again.
    Udp,
    /// By a connection.
    Tcp,
}

/// Asks for the addresses of a name, of the family that the server's address has; gives the bytes
/// of the answer.
///
/// # Errors
/// When none comes in time.
pub fn ask(
    netns: &Path,
    server: IpAddr,
    name: &str,
    transport: Transport,
    within: Duration,
) -> Result<Vec<u8>> {
    let target = SocketAddr::new(server, PORT);
    let kind = if server.is_ipv4() { A } else { AAAA };
    let id: u16 = rand::random();
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    put_name(&mut message, name);
    message.extend(kind.to_be_bytes());
    message.extend([0, 1]);
    match transport {
        Transport::Udp => {
            let socket = probe::udp_socket(netns, target)?;
            let within = within * crate::interrupt::patience();
            socket.set_read_timeout(Some(within)).doing(|| "set up the socket".into())?;
            socket.send(&message).doing(|| format!("ask for {name}"))?;
            let mut buffer = vec![0; 1500];
            let n = socket.recv(&mut buffer).doing(|| format!("wait for the answer on {name}"))?;
            buffer.truncate(n);
            Ok(buffer)
        }
        Transport::Tcp => {
            let mut stream = probe::tcp_connect(netns, target, within)?;
            let mut bytes = u16::try_from(message.len()).unwrap_or(0).to_be_bytes().to_vec();
            bytes.extend(message);
            stream.write_all(&bytes).doing(|| format!("ask for {name}"))?;
            read_message(&mut stream).doing(|| format!("wait for the answer on {name}"))
        }
    }
}

/// The last address in an answer.
///
/// # Errors
/// When it has none.
pub fn address_in(answer: &[u8], family: IpAddr) -> Result<IpAddr> {
    // Our own server puts the address last.
    let address = match family {
        IpAddr::V4(_) => answer.last_chunk::<4>().map(|ip| IpAddr::from(*ip)),
        IpAddr::V6(_) => answer.last_chunk::<16>().map(|ip| IpAddr::from(*ip)),
    };
    let has_records = answer.get(6..8).is_some_and(|n| n != [0, 0]);
    address.filter(|_| has_records).ok_or_else(|| LabError::new("the answer has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_question(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        put_name(&mut message, name);
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    #[test]
    fn names_are_answered_as_the_zone_says() {
        let zone = Zone::default();
        let ip: IpAddr = "192.0.2.7".parse().unwrap();
        zone.set("b.test", Entry { addresses: vec![ip], ttl: 9, ..Entry::default() });
        zone.set("a.test", Entry { alias: Some("b.test".into()), ttl: 9, ..Entry::default() });
        zone.set("t.test", Entry { manner: Manner::Truncated, ..Entry::default() });
        let answer = zone.answer(&mk_question("A.test", A), true).unwrap();
        assert_eq!(answer[..8], [0, 9, 0x81, 0x80, 0, 1, 0, 2]);
        assert_eq!(address_in(&answer, ip).unwrap(), ip);
        let none = zone.answer(&mk_question("a.test", AAAA), true).unwrap();
        assert_eq!(none[6..8], [0, 1], "only the other name");
        let unknown = zone.answer(&mk_question("x.test", A), true).unwrap();
        assert_eq!((unknown[3], address_in(&unknown, ip).is_err()), (0x83, true));
        assert_eq!(zone.answer(&mk_question("t.test", A), true).unwrap()[2], 0x83);
        assert_eq!(zone.answer(&mk_question("t.test", A), false).unwrap()[2], 0x81);
        assert_eq!(zone.answer(b"x", true), None);
    }
}
