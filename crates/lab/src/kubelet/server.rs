//! The kubelet's own API on a unix socket: `exec` and `containerLogs`, as the API server asks.

use std::convert::Infallible;
use std::path::Path;

use base64::Engine;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use sha1::{Digest, Sha1};
use tokio::net::{UnixListener, UnixStream};

use super::Kubelet;
use super::exec::{self, ExecQuery};
use super::logs::{self, LogQuery};
use crate::container::ContainerDir;
use crate::error::{Doing, Result};
use crate::sandbox::Sandbox;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Makes the socket; one that a former kubelet left is replaced.
pub(super) fn listen(path: &Path) -> Result<UnixListener> {
    let _ = std::fs::remove_file(path);
    UnixListener::bind(path).doing(|| format!("listen on {}", path.display()))
}

/// Serves for ever.
pub(super) async fn serve(kubelet: Kubelet, listener: UnixListener) -> Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(connection(kubelet.clone(), stream));
            }
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(kubelet: Kubelet, stream: UnixStream) {
    let service = service_fn(move |request| {
        let kubelet = kubelet.clone();
        async move { Ok::<_, Infallible>(answer(&kubelet, request).await) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "connection");
    }
}

pub(super) async fn answer(kubelet: &Kubelet, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let query = pairs(request.uri().query().unwrap_or_default());
    match (parts.as_slice(), request.method()) {
        (["healthz"], &Method::GET) => text(StatusCode::OK, "ok"),
        (["exec", namespace, pod, container], &Method::GET | &Method::POST) => {
            match find(kubelet, namespace, pod, container, Which::Running) {
                Ok(found) => exec(request, found, ExecQuery::parse(&query)),
                Err(answer) => answer,
            }
        }
        (["containerLogs", namespace, pod, container], &Method::GET) => {
            let query = LogQuery::parse(&query, Timestamp::now());
            let which = if query.previous { Which::Previous } else { Which::Newest };
            match find(kubelet, namespace, pod, container, which) {
                Ok(found) => log(found.dir, query),
                Err(answer) => answer,
            }
        }
        (["exec" | "containerLogs", ..], _) => {
            text(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        }
        _ => text(StatusCode::NOT_FOUND, "the lab's kubelet serves exec and containerLogs"),
    }
}

/// Which attempt of a container is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Running,
    Newest,
    Previous,
}

struct Found {
    sandbox: Sandbox,
    dir: ContainerDir,
}

#[allow(clippy::result_large_err)] // The error is the whole answer to the client.
fn find(
    kubelet: &Kubelet,
    namespace: &str,
    pod: &str,
    container: &str,
    which: Which,
) -> std::result::Result<Found, Response<Body>> {
    let runtime = &kubelet.runtime;
    let mut sandboxes = runtime.list();
    sandboxes.retain(|s| s.pod.namespace == namespace && s.pod.name == pod);
    let Some(sandbox) = sandboxes.pop() else {
        let said = format!("pod {namespace}/{pod} is not on node {}", kubelet.node);
        return Err(text(StatusCode::NOT_FOUND, &said));
    };
    let waiting = |said: String| Err(text(StatusCode::BAD_REQUEST, &said));
    // A name from a request never leaves the sandbox's directory.
    if container.is_empty() || container.contains(['/', '.']) {
        return waiting(format!("container {container} is not valid for pod {pod}"));
    }
    let attempts = runtime.attempts(&sandbox, container);
    let attempt = match which {
        Which::Running | Which::Newest => attempts.last(),
        Which::Previous => attempts.iter().rev().nth(1),
    };
    let Some(attempt) = attempt else {
        return waiting(match which {
            Which::Previous => {
                format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
            }
            _ => format!(
                "container \"{container}\" in pod \"{pod}\" is waiting to start: ContainerCreating"
            ),
        });
    };
    let dir = runtime.container(&sandbox, container, *attempt);
    if which == Which::Running && (dir.running().is_none() || dir.exit().is_some()) {
        return waiting(format!("container {container} of pod {pod} does not run"));
    }
    Ok(Found { sandbox, dir })
}

fn exec(mut request: Request<Incoming>, found: Found, query: ExecQuery) -> Response<Body> {
    let header = |name: &str| {
        request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned()
    };
    let key = header("sec-websocket-key");
    let Some(protocol) = exec::choose_protocol(&header("sec-websocket-protocol")) else {
        return text(
            StatusCode::BAD_REQUEST,
            "exec takes WebSocket with v5.channel.k8s.io or v4.channel.k8s.io; \
             kubectl from 1.31 on speaks it",
        );
    };
    if !header("upgrade").eq_ignore_ascii_case("websocket") || key.is_empty() {
        return text(StatusCode::BAD_REQUEST, "exec takes a WebSocket upgrade");
    }
    if query.command.is_empty() {
        return text(StatusCode::BAD_REQUEST, "you must specify at least 1 command");
    }
    let Some(spec) = found.dir.spec() else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "the container's specification is gone");
    };
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => exec::serve(upgraded, found.sandbox, spec, query).await,
            Err(error) => tracing::warn!(%error, "upgrade to a WebSocket"),
        }
    });
    let mut answer = Response::new(empty());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    if let Ok(accept) = HeaderValue::from_str(&accept_key(&key)) {
        headers.insert("sec-websocket-accept", accept);
    }
    answer
}

/// Answer to a WebSocket key (RFC 6455, section 4.2.2).
fn accept_key(key: &str) -> String {
    let digest = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    base64::engine::general_purpose::STANDARD.encode(digest)
}

fn log(dir: ContainerDir, query: LogQuery) -> Response<Body> {
    let pieces = logs::stream(dir, query);
    let frames = futures::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(Bytes::from(piece))), pieces))
    });
    let mut answer = Response::new(StreamBody::new(frames).boxed_unsync());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}

pub(super) fn text(status: StatusCode, said: &str) -> Response<Body> {
    let mut answer = Response::new(Full::new(Bytes::from(format!("{said}\n"))).boxed_unsync());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    answer
}

fn empty() -> Body {
    Full::new(Bytes::new()).boxed_unsync()
}

/// Key and value pairs of a query, decoded.
fn pairs(query: &str) -> Vec<(String, String)> {
    query
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(key), decode(value))
        })
        .collect()
}

/// Undoes percent encoding; what is not encoded right stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let hex = bytes.get(i + 1..i + 3).and_then(|h| std::str::from_utf8(h).ok());
        match (bytes[i], hex.and_then(|h| u8::from_str_radix(h, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                i += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        i += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_the_specification_is_answered_as_it_says() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn queries_are_decoded() {
        let seen = pairs("command=echo&command=a%20b%2Bc&x=1+2&empty&bad=%zz%");
        let want = [
            ("command", "echo"),
            ("command", "a b+c"),
            ("x", "1 2"),
            ("empty", ""),
            ("bad", "%zz%"),
        ];
        assert_eq!(seen, want.map(|(k, v)| (k.to_owned(), v.to_owned())));
    }
}
