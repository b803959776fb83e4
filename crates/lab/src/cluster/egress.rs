//! The way of an API server that is not ours into the lab: a proxy on a unix socket.
//!
//! Nodes and the controller have their addresses in namespaces that nothing outside of the lab
//! reaches. Kubernetes' API server can be told (`--egress-selector-config-file`) to ask a proxy for
//! connections to the cluster: HTTP CONNECT, the address as the target. Whoever may open the socket
//! reaches the underlay; that is root.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpSocket, TcpStream, UnixListener, UnixStream};

use crate::error::{Doing, Result};
use crate::netns;
use crate::state::Store;

/// Where the proxy of a lab listens.
pub(super) fn socket(store: &Store) -> PathBuf {
    store.get().egress_socket.unwrap_or_else(|| store.layout().dir().join("egress.sock"))
}

/// Connects from inside a namespace.
pub(super) async fn dial(netns: &Path, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = netns::enter(netns, || match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    });
    let socket = socket.map_err(|error| io::Error::other(error.chain()))??;
    socket.connect(address).await
}

/// Makes the socket; one that a former process left is replaced.
pub(super) fn listen(path: &Path) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).doing(|| format!("listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .doing(|| format!("protect {}", path.display()))?;
    Ok(listener)
}

/// Carries connections into the namespace for ever.
pub(super) async fn serve(listener: UnixListener, netns: PathBuf) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, netns.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: UnixStream, netns: PathBuf) {
    let service = service_fn(move |request| {
        let netns = netns.clone();
        async move { Ok::<_, Infallible>(answer(request, &netns).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection");
    }
}

async fn answer(request: Request<Incoming>, netns: &Path) -> Response<Full<Bytes>> {
    let refused = |status, said: String| {
        let mut answer = Response::new(Full::from(said + "\n"));
        *answer.status_mut() = status;
        answer
    };
    if request.method() != Method::CONNECT {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "this proxy takes CONNECT".into());
    }
    let target = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let Ok(address) = target.parse::<SocketAddr>() else {
        return refused(StatusCode::BAD_REQUEST, format!("{target:?} is no address with a port"));
    };
    let mut inner = match dial(netns, address).await {
        Ok(inner) => inner,
        Err(error) => return refused(StatusCode::BAD_GATEWAY, format!("{address}: {error}")),
    };
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(outer) => {
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(outer), &mut inner).await;
            }
            Err(error) => tracing::debug!(%error, "take over a connection"),
        }
    });
    Response::new(Full::default())
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What the proxy says to a request, and what comes from behind it.
    async fn ask(request: &str, then: &str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("egress.sock");
        let proxy = tokio::spawn(serve(listen(&path).unwrap(), "/proc/self/ns/net".into()));
        let mut stream = UnixStream::connect(&path).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            seen.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(then.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut seen).await.unwrap();
        proxy.abort();
        String::from_utf8(seen).unwrap()
    }

    #[tokio::test]
    #[ignore = "needs root"]
    async fn connections_reach_what_they_name() {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).await.unwrap();
            stream.write_all(said.to_uppercase().as_bytes()).await.unwrap();
        });
        let request = format!("CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let seen = ask(&request, "hello").await;
        assert!(seen.starts_with("HTTP/1.1 200 OK") && seen.ends_with("\r\n\r\nHELLO"), "{seen}");
    }

    #[tokio::test]
    async fn what_is_no_connection_is_refused_by_name() {
        for (line, want) in [
            ("GET / HTTP/1.1", "405 Method Not Allowed"),
            ("CONNECT localhost:80 HTTP/1.1", "400 Bad Request"),
        ] {
            let request = format!("{line}\r\nHost: x\r\nConnection: close\r\n\r\n");
            let seen = ask(&request, "").await;
            assert!(seen.contains(want), "{line}: {seen}");
        }
    }
}
