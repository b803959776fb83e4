//! Asks a DNS server for names whose addresses may be out of date.
//!
//! Which names, and when, is decided by `policy::realize`; a question without an answer is simply
//! asked again by it later.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pipeline::Families;
use policy::dns::{Answer, Asked, Extent, Question};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// Names that may wait to be asked for.
const QUEUE: usize = 1024;
/// Names that are asked for at the same time.
const AT_ONCE: usize = 32;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a question is sent to one server.
const TRIES: usize = 2;
/// Longest message that comes by UDP where nobody asked for longer ones, and some room.
const MAX_DATAGRAM: usize = 4096;
const PORT: u16 = 53;
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DnsServer {
    /// This one.
    Named {
        /// Its name or address.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Those of the node.
    OfNode,
}

impl DnsServer {
    /// The one of the key `dnsServerOverride`, that of the cluster, or those of the node.
    pub(crate) fn choose(configured: &str, kube_dns: Option<&(String, u16)>) -> Self {
        if !configured.is_empty() {
            return Self::parse(configured);
        }
        match kube_dns {
            Some((host, port)) => Self::Named { host: host.clone(), port: *port },
            None => Self::OfNode,
        }
    }

    /// A host, host:port or URL.
    fn parse(text: &str) -> Self {
        let text = text.split_once("://").map_or(text, |(_, rest)| rest).trim_end_matches('/');
        let named = |host: &str, port| Self::Named { host: host.into(), port };
        if let Ok(address) = text.parse::<SocketAddr>() {
            return named(&address.ip().to_string(), address.port());
        }
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return named(&ip.to_string(), PORT);
        }
        match text.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            Some((host, Ok(port))) => named(host, port),
            _ => named(text, PORT),
        }
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Named { host, port } => {
                Ok(tokio::net::lookup_host((host.as_str(), *port)).await?.collect())
            }
            Self::OfNode => Ok(servers_in(&tokio::fs::read_to_string(RESOLV_CONF).await?)),
        }
    }
}

/// The servers that a `resolv.conf` names.
fn servers_in(text: &str) -> Vec<SocketAddr> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().parse::<IpAddr>().ok())
        .map(|ip| SocketAddr::new(ip, PORT))
        .collect()
}

/// Asks for the names that it is given, and gives the answers, until one end is closed.
pub(super) fn start(
    server: DnsServer,
    families: Families,
) -> (mpsc::Sender<String>, mpsc::Receiver<Answer>) {
    let (name_tx, mut name_rx) = mpsc::channel::<String>(QUEUE);
    let (answer_tx, answer_rx) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let free = Arc::new(Semaphore::new(AT_ONCE));
        while let Some(name) = name_rx.recv().await {
            let Ok(permit) = Arc::clone(&free).acquire_owned().await else { return };
            let (server, answer_tx) = (server.clone(), answer_tx.clone());
            tokio::spawn(async move {
                for asked in [Asked::A, Asked::Aaaa] {
                    let wanted = match asked {
                        Asked::A => families.has_v4(),
                        Asked::Aaaa => families.has_v6(),
                    };
                    if !wanted {
                        continue;
                    }
                    match ask(&server, &name, asked).await {
                        Ok(answer) => drop(answer_tx.send(answer).await),
                        Err(error) => tracing::debug!(name, ?asked, %error, "no DNS answer"),
                    }
                }
                drop(permit);
            });
        }
    });
    (name_tx, answer_rx)
}

/// Asks one server after the other.
async fn ask(server: &DnsServer, name: &str, asked: Asked) -> io::Result<Answer> {
    let question = Question { id: random(), name: name.into(), asked };
    let bytes = question.to_bytes().ok_or(io::ErrorKind::InvalidInput)?;
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for server in timeout(PATIENCE, server.addresses()).await?? {
        for _ in 0..TRIES {
            match ask_one(server, &question, &bytes).await {
                Ok(answer) if answer.extent == Extent::Failure => {
                    last = io::Error::other("the server failed");
                    break;
                }
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
        }
    }
    Err(last)
}

async fn ask_one(server: SocketAddr, question: &Question, bytes: &[u8]) -> io::Result<Answer> {
    let answer = timeout(PATIENCE, by_udp(server, question, bytes)).await??;
    if answer.extent != Extent::Beginning {
        return Ok(answer);
    }
    // What is in the beginning is so, even if the rest does not come.
    match timeout(PATIENCE, by_tcp(server, question, bytes)).await {
        Ok(Ok(whole)) => Ok(whole),
        Ok(Err(_)) | Err(_) => Ok(answer),
    }
}

async fn by_udp(server: SocketAddr, question: &Question, bytes: &[u8]) -> io::Result<Answer> {
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        let n = socket.recv(&mut buffer).await?;
        // Whatever is no answer to this question is not ours.
        if let Some(answer) = question.answer(&buffer[..n]) {
            return Ok(answer);
        }
    }
}

async fn by_tcp(server: SocketAddr, question: &Question, bytes: &[u8]) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(server).await?;
    let len = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    let mut message = len.to_be_bytes().to_vec();
    message.extend_from_slice(bytes);
    stream.write_all(&message).await?;
    let mut answer = vec![0; stream.read_u16().await?.into()];
    stream.read_exact(&mut answer).await?;
    question.answer(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A number that nobody guesses.
fn random() -> u16 {
    let [a, b, ..] = RandomState::new().build_hasher().finish().to_be_bytes();
    u16::from_be_bytes([a, b])
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn named(host: &str, port: u16) -> DnsServer {
        DnsServer::Named { host: host.into(), port }
    }

    #[test]
    fn the_server_is_the_configured_the_clusters_or_the_nodes() {
        let kube_dns = ("10.96.0.10".to_owned(), 53);
        for (configured, kube_dns, want) in [
            ("", None, DnsServer::OfNode),
            ("", Some(&kube_dns), named("10.96.0.10", 53)),
            ("192.0.2.1", Some(&kube_dns), named("192.0.2.1", 53)),
            ("192.0.2.1:5353", None, named("192.0.2.1", 5353)),
            ("2001:db8::1", None, named("2001:db8::1", 53)),
            ("[2001:db8::1]", None, named("2001:db8::1", 53)),
            ("[2001:db8::1]:54", None, named("2001:db8::1", 54)),
            ("dns.example.org", None, named("dns.example.org", 53)),
            ("http://dns.example.org:54/", None, named("dns.example.org", 54)),
        ] {
            assert_eq!(DnsServer::choose(configured, kube_dns), want, "{configured}");
        }
        let text = "search x\nnameserver 192.0.2.1\n#nameserver 192.0.2.2\nnameserver ::1 \n";
        let servers: Vec<String> = servers_in(text).iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[::1]:53"]);
    }

    /// An answer with flags, and one address if there is one.
    fn mk_answer(question: &[u8], flags: u16, address: Option<[u8; 4]>) -> Vec<u8> {
        let mut bytes = question.to_vec();
        bytes[2..4].copy_from_slice(&flags.to_be_bytes());
        if let Some(address) = address {
            bytes[7] = 1;
            bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4]);
            bytes.extend(address);
        }
        bytes
    }

    /// The first datagram is another's, the second is cut short: the whole answer comes by TCP.
    #[tokio::test]
    async fn a_whole_answer_is_got() {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = udp.local_addr().unwrap();
        let tcp = TcpListener::bind(address).await.unwrap();
        let server = tokio::spawn(async move {
            let mut buffer = [0; 512];
            let (n, peer) = udp.recv_from(&mut buffer).await.unwrap();
            let mut other = mk_answer(&buffer[..n], 0x8180, Some([192, 0, 2, 66]));
            other[0] ^= 1;
            udp.send_to(&other, peer).await.unwrap();
            udp.send_to(&mk_answer(&buffer[..n], 0x8380, None), peer).await.unwrap();
            let (mut stream, _) = tcp.accept().await.unwrap();
            let mut question = vec![0; stream.read_u16().await.unwrap().into()];
            stream.read_exact(&mut question).await.unwrap();
            let answer = mk_answer(&question, 0x8180, Some([192, 0, 2, 7]));
            stream.write_u16(u16::try_from(answer.len()).unwrap()).await.unwrap();
            stream.write_all(&answer).await.unwrap();
        });
        let from = named("127.0.0.1", address.port());
        let (name_tx, mut answer_rx) = start(from, Families::V4);
        name_tx.send("a.test".into()).await.unwrap();
        let answer = answer_rx.recv().await.unwrap();
        assert_eq!(answer.addresses, [("192.0.2.7".parse().unwrap(), 9)]);
        assert_eq!((answer.name.as_str(), answer.extent), ("a.test", Extent::Whole));
        server.await.unwrap();
    }
}
