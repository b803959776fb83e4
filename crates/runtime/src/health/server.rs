//! Serves health checks and metrics over HTTPS with a self-signed certificate.
//!
//! `/livez`, `/readyz` and `/healthz` are open, as kubelet's probes carry no credentials; `/metrics`
//! and further pages, which tell what a daemon knows, want the bearer token the server was given and are
//! refused without one. Anything else is 404.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use prometheus::{Encoder, Registry, TextEncoder};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::checks::{Checks, Endpoint};
use crate::certificate::{CertificateError, self_signed};
use crate::token;

/// Connections served at the same time; more wait in the listen queue.
const MAX_CONNECTIONS: usize = 128;
/// `EAFNOSUPPORT`: a kernel that was started without IPv6.
const ADDRESS_FAMILY_NOT_SUPPORTED: i32 = 97;
/// Time a client has for the TLS handshake, and for the headers of a request.
const CLIENT_DEADLINE: Duration = Duration::from_secs(10);

/// What a [`HealthServer`] serves and where.
pub struct HealthConfig {
    /// Address to listen on; port 0 takes a free one. `::` takes both families, or IPv4 alone on a
    /// kernel without IPv6.
    pub addr: SocketAddr,
    /// Names and addresses for the certificate, besides localhost.
    pub names: Vec<String>,
    /// The checks behind the endpoints.
    pub checks: Checks,
    /// Metrics to serve under `/metrics`, or none.
    pub metrics: Option<Metrics>,
    /// Further pages, by path, in JSON.
    pub pages: BTreeMap<&'static str, Page>,
    /// File for a new token that readers of metrics and pages must send. It is written once the
    /// address is ours, so that a second program that is started by mistake takes nothing from the
    /// first. The certificate is put beside it, as `certificate.pem`, for those who send the token.
    pub token_file: Option<PathBuf>,
    /// Ends the server.
    pub shutdown: CancellationToken,
}

/// Gives the JSON of a page.
pub type Page = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = String> + Send>> + Send + Sync>;

/// Metrics and who may read them.
#[derive(Clone)]
pub struct Metrics {
    /// The collected metrics.
    pub registry: Registry,
    /// Token that a reader must send as `Authorization: Bearer`; without one nobody may read.
    pub token: Option<String>,
}

async fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    match TcpListener::bind(addr).await {
        Err(error)
            if addr.ip() == Ipv6Addr::UNSPECIFIED
                && error.raw_os_error() == Some(ADDRESS_FAMILY_NOT_SUPPORTED) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, addr.port())).await
        }
        bound => bound,
    }
}

/// Why the server could not start.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The address is taken or not ours.
    #[error("listen on {addr}")]
    Listen {
        /// The address asked for.
        addr: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The token for readers of metrics could not be written.
    #[error("write {path}")]
    Token {
        /// Its file.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The serving certificate could not be made.
    #[error("prepare serving certificate")]
    Certificate(#[from] CertificateError),
}

/// A running health server; it ends with its shutdown token.
pub struct HealthServer {
    local_addr: SocketAddr,
    certificate_pem: String,
}

impl HealthServer {
    /// Listens and starts serving in the background.
    ///
    /// # Errors
    /// See [`HealthError`].
    pub async fn start(config: HealthConfig) -> Result<Self, HealthError> {
        let addr = config.addr;
        let listen_error = |source| HealthError::Listen { addr, source };
        let serving = self_signed(&config.names)?;
        let listener = listen(addr).await.map_err(listen_error)?;
        let local_addr = listener.local_addr().map_err(listen_error)?;
        let acceptor = TlsAcceptor::from(serving.tls);
        let mut metrics = config.metrics;
        let mut own_token = None;
        if let Some(path) = config.token_file {
            let certificate = path.with_file_name("certificate.pem");
            let written = token::loopback_token(&path).and_then(|token| {
                std::fs::write(certificate, &serving.pem)?;
                Ok(token)
            });
            own_token = Some(written.map_err(|source| HealthError::Token { path, source })?);
        }
        if let (Some(metrics), Some(token)) = (&mut metrics, &own_token) {
            metrics.token = Some(token.clone());
        }
        let (checks, pages) = (config.checks, config.pages);
        let routes = Arc::new(Routes { checks, metrics, pages, token: own_token });
        tokio::spawn(accept_loop(listener, acceptor, routes, config.shutdown));
        tracing::debug!(%local_addr, "serving health endpoints");
        Ok(Self { local_addr, certificate_pem: serving.pem })
    }

    /// The address it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// PEM of the serving certificate, for clients that want to trust it.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }
}

async fn accept_loop(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    routes: Arc<Routes>,
    shutdown: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => return,
            accepted = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, listener.accept().await)
            } => accepted,
        };
        let (slot, stream) = match accepted {
            (Ok(slot), Ok((stream, _))) => (slot, stream),
            (_, Err(error)) => {
                // Out of descriptors, most likely: give others time to close theirs.
                tracing::warn!(%error, "accept health connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            (Err(_), _) => return,
        };
        let (acceptor, routes, shutdown) =
            (acceptor.clone(), Arc::clone(&routes), shutdown.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = serve(stream, acceptor, routes) => {}
            }
            drop(slot);
        });
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, routes: Arc<Routes>) {
    let stream = match tokio::time::timeout(CLIENT_DEADLINE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::trace!(%error, "TLS handshake"),
        Err(_) => return tracing::trace!("TLS handshake took too long"),
    };
    let service = service_fn(move |request| {
        let routes = Arc::clone(&routes);
        async move { Ok::<_, Infallible>(routes.answer(&request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(CLIENT_DEADLINE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(CLIENT_DEADLINE));
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::trace!(%error, "health connection");
    }
}

struct Routes {
    checks: Checks,
    metrics: Option<Metrics>,
    pages: BTreeMap<&'static str, Page>,
    token: Option<String>,
}

impl Routes {
    async fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let endpoint = match request.uri().path().trim_end_matches('/') {
            "/livez" => Endpoint::Livez,
            "/readyz" => Endpoint::Readyz,
            "/healthz" => Endpoint::Healthz,
            "/metrics" => return self.metrics(request),
            path => {
                return match self.pages.get(path) {
                    Some(page) => self.page(request, page).await,
                    None => plain(StatusCode::NOT_FOUND, "404 page not found\n"),
                };
            }
        };
        if let Some(refusal) = refuse_method(request.method()) {
            return refusal;
        }
        let answer = self.checks.answer(endpoint, request.uri().query().unwrap_or_default());
        let status =
            if answer.healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
        plain(status, answer.text)
    }

    async fn page<B>(&self, request: &Request<B>, page: &Page) -> Response<Full<Bytes>> {
        if let Some(refusal) = refuse_method(request.method()) {
            return refusal;
        }
        if !has_token(request, self.token.as_deref()) {
            return plain(StatusCode::FORBIDDEN, "this page needs a bearer token\n");
        }
        let mut response = plain(StatusCode::OK, page().await);
        let form = HeaderValue::from_static("application/json");
        response.headers_mut().insert(CONTENT_TYPE, form);
        response
    }

    fn metrics<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        let Some(metrics) = &self.metrics else {
            return plain(StatusCode::NOT_FOUND, "metrics are disabled\n");
        };
        if let Some(refusal) = refuse_method(request.method()) {
            return refusal;
        }
        if !has_token(request, metrics.token.as_deref()) {
            return plain(StatusCode::FORBIDDEN, "metrics need a bearer token\n");
        }
        let mut text = Vec::new();
        let encoder = TextEncoder::new();
        if let Err(error) = encoder.encode(&metrics.registry.gather(), &mut text) {
            tracing::warn!(%error, "encode metrics");
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded\n");
        }
        let mut response = plain(StatusCode::OK, text);
        let form = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, form);
        response
    }
}

/// Whether a request has the token; without one, none has.
fn has_token<B>(request: &Request<B>, token: Option<&str>) -> bool {
    let given = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bearer "));
    let both = given.zip(token);
    both.is_some_and(|(given, token)| same(given.as_bytes(), token.as_bytes()))
}

/// Compares without telling by time where two tokens differ.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (x, y)| differ | (x ^ y)) == 0
}

fn refuse_method(method: &Method) -> Option<Response<Full<Bytes>>> {
    if method == Method::GET || method == Method::HEAD {
        return None;
    }
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    Some(response)
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

#[cfg(test)]
mod tests;
