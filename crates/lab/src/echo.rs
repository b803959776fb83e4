//! The echo service of lab Pods, and of the nodes and the outside host while a matrix runs.
//!
//! TCP, one line per request: `who` answers with JSON, `ping ...` with the same line, `sink` takes
//! bytes until the client closes and answers their number, `GET ...` answers JSON as HTTP.
//! UDP: `seq ...` comes back as it is, everything else is answered with JSON.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce};
use serde::{Deserialize, Serialize};

/// The port it listens on, TCP and UDP.
pub const PORT: u16 = 8080;

/// What the far side says about an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the answering Pod or host.
    pub pod: String,
    /// The address it was reached at.
    pub own: IpAddr,
    /// The address it saw as the sender.
    pub peer: IpAddr,
}

/// Bytes that a socket for datagrams holds.
const RECEIVE_BUFFER: usize = 4 << 20;
/// Longest request line; more closes the connection.
const MAX_LINE: u64 = 4096;

/// Sockets for both families; of IPv4 alone where the kernel has no IPv6.
///
/// # Errors
/// When the port is taken.
pub fn listen(port: u16) -> io::Result<(TcpListener, UdpSocket)> {
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    match TcpListener::bind(both) {
        Ok(tcp) => Ok((tcp, UdpSocket::bind(both)?)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(error),
        Err(_) => {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            Ok((TcpListener::bind(any)?, UdpSocket::bind(any)?))
        }
    }
}

/// Gives a socket room for what arrives while the machine gives its reader no time: datagrams that
/// overflow there would count as lost on the way.
pub fn make_room(socket: &UdpSocket) {
    let wanted = RECEIVE_BUFFER;
    // Past the machine's limit only root may go; without it the limit has to do.
    if setsockopt(socket, RcvBufForce, &wanted).is_err() {
        let _ = setsockopt(socket, RcvBuf, &wanted);
    }
}

/// Serves TCP for ever, one thread per connection.
pub fn serve_tcp(listener: &TcpListener, name: &str) {
    let name: Arc<str> = name.into();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let name = Arc::clone(&name);
                let spawned = std::thread::Builder::new()
                    .stack_size(128 * 1024)
                    .spawn(move || drop(serve_connection(&stream, &name)));
                if spawned.is_err() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
            // Out of descriptors, or a connection that ended before it was taken.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Serves UDP for ever.
pub fn serve_udp(socket: &UdpSocket, name: &str) {
    make_room(socket);
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok((n, peer)) = socket.recv_from(&mut buffer) else { continue };
        let request = &buffer[..n];
        // A lost answer looks like a lost request to the client, who judges.
        if request.starts_with(b"seq ") {
            let _ = socket.send_to(request, peer);
        } else if let Some(own) = own_address(socket, peer) {
            let _ = socket.send_to(&encode(name, own, peer.ip().to_canonical()), peer);
        }
    }
}

fn serve_connection(stream: &TcpStream, name: &str) -> io::Result<()> {
    let (own, peer) = (stream.local_addr()?.ip(), stream.peer_addr()?.ip());
    // A socket of both families shows IPv4 in the form of IPv6.
    let (own, peer) = (own.to_canonical(), peer.to_canonical());
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut writer = stream;
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.starts_with(b"who") {
            writer.write_all(&encode(name, own, peer))?;
        } else if line.starts_with(b"ping") {
            writer.write_all(&line)?;
        } else if line.starts_with(b"sink") {
            let n = io::copy(&mut reader, &mut io::sink())?;
            return writer.write_all(format!("{n}\n").as_bytes());
        } else if line.starts_with(b"GET ") || line.starts_with(b"HEAD ") {
            return answer_http(&mut reader, writer, &encode(name, own, peer));
        } else {
            return Ok(());
        }
    }
}

fn answer_http(
    reader: &mut BufReader<&TcpStream>,
    mut writer: &TcpStream,
    body: &[u8],
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = reader.take(MAX_LINE).read_until(b'\n', &mut line)?;
        if n == 0 || line == b"\r\n" || line == b"\n" {
            break;
        }
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    writer.write_all(head.as_bytes())?;
    writer.write_all(body)
}

fn encode(name: &str, own: IpAddr, peer: IpAddr) -> Vec<u8> {
    let answer = Answer { pod: name.into(), own, peer };
    let mut text = serde_json::to_vec(&answer).unwrap_or_default();
    text.push(b'\n');
    text
}

/// The address a peer is answered from: the one the socket is bound to. Only for a socket that is
/// bound to none the kernel is asked, which looks at the routes of the calling thread's namespace and
/// not at those of the socket's.
fn own_address(socket: &UdpSocket, peer: SocketAddr) -> Option<IpAddr> {
    let bound = socket.local_addr().ok()?.ip();
    if bound.is_unspecified() { own_address_towards(peer) } else { Some(bound.to_canonical()) }
}

/// The address the kernel would answer this peer from.
fn own_address_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if peer.is_ipv4() {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_answered_and_garbage_closes_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve_tcp(&listener, "x/y"));
        for (request, want) in [
            ("who\n", "{\"pod\":\"x/y\",\"own\":\"127.0.0.1\",\"peer\":\"127.0.0.1\"}\n"),
            ("ping 17\n", "ping 17\n"),
            ("sink\nabcdef", "6\n"),
            ("\u{0}\u{1}garbage\n", ""),
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut seen = String::new();
            // A reset after garbage is as good as a close.
            let _ = stream.read_to_string(&mut seen);
            assert_eq!(seen, want, "{request:?}");
        }
    }

    #[test]
    fn numbered_datagrams_come_back_as_they_are() {
        // The kernel itself would choose 127.0.0.1 as source.
        let socket = UdpSocket::bind("127.0.0.2:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || serve_udp(&socket, "x/y"));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut buffer = [0; 256];
        for (request, want) in
            [("seq 5", "seq 5"), ("who", "{\"pod\":\"x/y\",\"own\":\"127.0.0.2\"")]
        {
            client.send_to(request.as_bytes(), address).unwrap();
            let n = client.recv(&mut buffer).unwrap();
            assert!(String::from_utf8_lossy(&buffer[..n]).starts_with(want));
        }
    }
}
