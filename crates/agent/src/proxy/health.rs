//! Answers load balancers that ask whether this node has servers of a Service, and everybody who asks
//! whether the proxy works.
//!
//! One listener for each Service with a health-check port. What cannot be bound is told in the log and
//! tried again; it keeps nothing else from working.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use apis::service::ServiceName;
use serde_json::json;
use services::HealthCheck;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// Pause between attempts to listen.
const RETRY: Duration = Duration::from_secs(5);
/// A client that has not asked within this time is not answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests longer than this are not read.
const LONGEST: usize = 8 << 10;
/// Clients of one listener at once.
const N_CLIENTS: usize = 64;

/// What is answered at one address.
#[derive(Clone, Debug)]
enum Asked {
    /// About a Service: its name, and how many ready servers this node has.
    Service(ServiceName, watch::Receiver<usize>),
    /// About the proxy: whether it is in sync.
    Proxy(watch::Receiver<bool>),
}

/// An answer, before it is text.
#[derive(Debug, PartialEq)]
struct Answer {
    healthy: bool,
    n_local: Option<usize>,
    body: serde_json::Value,
}

impl Asked {
    fn answer(&self) -> Answer {
        match self {
            Self::Service(ServiceName { namespace, name }, n_local) => {
                let n_local = *n_local.borrow();
                let body = json!({
                    "service": {"namespace": **namespace, "name": **name},
                    "localEndpoints": n_local,
                    "serviceProxyHealthy": true,
                });
                Answer { healthy: n_local > 0, n_local: Some(n_local), body }
            }
            Self::Proxy(synced) => {
                let healthy = *synced.borrow();
                Answer { healthy, n_local: None, body: json!({ "healthy": healthy }) }
            }
        }
    }
}

impl Answer {
    fn text(&self) -> String {
        let status = if self.healthy { "200 OK" } else { "503 Service Unavailable" };
        let body = self.body.to_string();
        let weight = self
            .n_local
            .map_or(String::new(), |n| format!("X-Load-Balancing-Endpoint-Weight: {n}\r\n"));
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\n\
             X-Content-Type-Options: nosniff\r\n{weight}Content-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

/// A listener and what it says.
#[derive(Debug)]
struct Listening {
    port: u16,
    n_local_tx: watch::Sender<usize>,
    task: JoinHandle<()>,
}

/// All listeners for Services.
#[derive(Debug, Default)]
pub(super) struct HealthChecks {
    listening: BTreeMap<ServiceName, Listening>,
}

impl HealthChecks {
    /// This is answered about the Service from now on; without a check nothing is.
    pub(super) fn set(&mut self, name: ServiceName, check: Option<HealthCheck>) {
        let Some(HealthCheck { port, n_local }) = check else {
            self.stop(&name);
            return;
        };
        if let Some(known) = self.listening.get(&name)
            && known.port == port
        {
            known.n_local_tx.send_replace(n_local);
            return;
        }
        self.stop(&name);
        let (n_local_tx, n_local_rx) = watch::channel(n_local);
        let asked = Asked::Service(name.clone(), n_local_rx);
        let task = tokio::spawn(serve(everywhere(port), asked));
        self.listening.insert(name, Listening { port, n_local_tx, task });
    }

    fn stop(&mut self, name: &ServiceName) {
        if let Some(known) = self.listening.remove(name) {
            known.task.abort();
        }
    }
}

impl Drop for HealthChecks {
    fn drop(&mut self) {
        self.listening.values().for_each(|known| known.task.abort());
    }
}

/// Answers whether the proxy works, for ever.
pub(super) async fn serve_proxy(address: SocketAddr, synced_rx: watch::Receiver<bool>) {
    let addresses = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => everywhere(address.port()),
        _ => vec![address],
    };
    serve(addresses, Asked::Proxy(synced_rx)).await;
}

/// Both families where there are both, else the one there is.
fn everywhere(port: u16) -> Vec<SocketAddr> {
    vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()]
}

/// Listens at the first of the addresses that can be had, and answers.
async fn serve(addresses: Vec<SocketAddr>, asked: Asked) {
    let listener = loop {
        match TcpListener::bind(&addresses[..]).await {
            Ok(listener) => break listener,
            Err(error) => {
                tracing::warn!(%error, ?addresses, ?asked, "health checks are not answered");
                tokio::time::sleep(RETRY).await;
            }
        }
    };
    let clients = Arc::new(Semaphore::new(N_CLIENTS));
    loop {
        // Never closed.
        let turn = clients.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let asked = asked.clone();
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(PATIENCE, reply(stream, &asked)).await;
                    drop(turn);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: give others time to close theirs.
                tracing::warn!(%error, "accept a health check");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn reply(mut stream: TcpStream, asked: &Asked) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = stream.read(&mut buffer).await?;
        if n == 0 || request.len() > LONGEST {
            return Ok(());
        }
        request.extend_from_slice(&buffer[..n]);
    }
    stream.write_all(asked.answer().text().as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(port: u16) -> String {
        let mut text = String::new();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }

    /// A port that was free a moment ago.
    async fn free_port() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        listener.local_addr().unwrap().port()
    }

    async fn eventually(port: u16) -> String {
        let asked = async {
            loop {
                if TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                    return ask(port).await;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), asked).await.unwrap()
    }

    /// Case C5.
    #[tokio::test]
    async fn balancers_hear_whether_servers_are_here() {
        let port = free_port().await;
        let name = ServiceName::new("x", "web");
        let mut checks = HealthChecks::default();
        checks.set(name.clone(), Some(HealthCheck { port, n_local: 2 }));
        let text = eventually(port).await;
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(text.contains("\r\nX-Load-Balancing-Endpoint-Weight: 2\r\n"), "{text}");
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(
            body,
            json!({"service": {"namespace": "x", "name": "web"}, "localEndpoints": 2,
                "serviceProxyHealthy": true})
        );
        checks.set(name.clone(), Some(HealthCheck { port, n_local: 0 }));
        let text = ask(port).await;
        assert!(text.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{text}");
        checks.set(name.clone(), None);
        let gone = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
    }

    #[tokio::test]
    async fn a_port_that_another_has_is_taken_when_it_is_free() {
        tokio::time::pause();
        let taken = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).await.unwrap();
        let port = taken.local_addr().unwrap().port();
        let mut checks = HealthChecks::default();
        checks.set(ServiceName::new("x", "web"), Some(HealthCheck { port, n_local: 1 }));
        tokio::time::sleep(RETRY / 2).await;
        drop(taken);
        tokio::time::sleep(RETRY).await;
        tokio::time::resume();
        assert!(eventually(port).await.starts_with("HTTP/1.1 200 OK\r\n"));
    }

    #[tokio::test]
    async fn the_proxy_says_whether_it_is_in_sync() {
        let port = free_port().await;
        let (synced_tx, synced_rx) = watch::channel(false);
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let serving = tokio::spawn(serve_proxy(address, synced_rx));
        assert!(eventually(port).await.starts_with("HTTP/1.1 503 "));
        synced_tx.send_replace(true);
        assert!(ask(port).await.starts_with("HTTP/1.1 200 "));
        serving.abort();
    }
}
