//! TLS servers that we ask in turn: aggregated APIs, webhooks.
//!
//! One HTTP/2 connection per address carries all requests to it; a server that speaks only
//! HTTP/1.1 gets a connection per request. Not here: which address (the lab looks into
//! EndpointSlices), what is asked.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::Uri;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::body::Body;
use crate::pki::{Identity, PkiError, certificates_from_pem};

/// Opens connections; a lab's may begin in another network namespace.
pub type Dial = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> + Send + Sync>;

/// Opens connections from here.
pub fn dial_here() -> Dial {
    Arc::new(|address| Box::pin(TcpStream::connect(address)))
}

/// A server that does not take a connection in this time is not there.
const CONNECT: Duration = Duration::from_secs(5);
/// How often a quiet connection is tried.
const PING: Duration = Duration::from_secs(10);

/// Why a server gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No connection.
    #[error("dial tcp {address}: connect: {}", plain(.source))]
    Dial {
        /// Where to.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// It is not the server that it should be, or speaks no TLS.
    #[error("tls: {0}")]
    Tls(io::Error),
    /// The name cannot be a server's, or the request cannot be sent.
    #[error("{0}")]
    Request(String),
    /// The connection broke.
    #[error("exchange: {0}")]
    Exchange(#[from] hyper::Error),
}

/// What the system says about a failed connection, without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => "i/o timeout".to_owned(),
        _ => error.to_string(),
    }
}

/// A server under one name, at one address or several.
pub struct Upstream {
    name: String,
    tls: TlsConnector,
    dial: Dial,
    open: Mutex<HashMap<SocketAddr, http2::SendRequest<Body>>>,
}

/// A connection that takes a request.
enum Sender {
    H2(http2::SendRequest<Body>),
    H1(http1::SendRequest<Body>),
}

impl Upstream {
    /// A server whose certificate is for `name` and signed by `ca_pem`; `identity` is shown to it.
    ///
    /// # Errors
    /// When keys or certificates are malformed.
    pub fn new(
        name: &str,
        ca_pem: &str,
        identity: Option<&Identity>,
        dial: Dial,
    ) -> Result<Self, PkiError> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(certificates_from_pem(ca_pem));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
                    .map_err(|_| PkiError::BadKey("client identity".to_owned()))?;
                builder.with_client_auth_cert(certificates_from_pem(&identity.cert_pem), key)?
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            name: name.to_owned(),
            tls: TlsConnector::from(Arc::new(config)),
            dial,
            open: Mutex::default(),
        })
    }

    fn opened(&self, address: SocketAddr) -> Option<http2::SendRequest<Body>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&address).filter(|sender| !sender.is_closed()).cloned()
    }

    /// Sends a request, whose URI is path and query, to an address.
    ///
    /// # Errors
    /// When there is no connection, or it breaks before the answer begins.
    pub async fn send(
        &self,
        address: SocketAddr,
        host: &str,
        request: hyper::Request<Body>,
    ) -> Result<hyper::Response<Incoming>, UpstreamError> {
        self.send_to_any(&[address], host, request).await
    }

    /// Sends a request, whose URI is path and query, to the first address that takes a connection.
    ///
    /// # Errors
    /// When none does, or the connection breaks before the answer begins.
    pub async fn send_to_any(
        &self,
        addresses: &[SocketAddr],
        host: &str,
        mut request: hyper::Request<Body>,
    ) -> Result<hyper::Response<Incoming>, UpstreamError> {
        let mut failure = UpstreamError::Request("no address".to_owned());
        for address in addresses {
            match self.reach(*address).await {
                Ok(Sender::H2(mut sender)) => {
                    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
                    let absolute = format!("https://{host}{path}").parse::<Uri>();
                    *request.uri_mut() =
                        absolute.map_err(|error| UpstreamError::Request(error.to_string()))?;
                    return Ok(sender.send_request(request).await?);
                }
                Ok(Sender::H1(mut sender)) => {
                    let value = HeaderValue::from_str(host)
                        .map_err(|error| UpstreamError::Request(error.to_string()))?;
                    request.headers_mut().insert(HOST, value);
                    return Ok(sender.send_request(request).await?);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// A connection that is open already, or a new one.
    async fn reach(&self, address: SocketAddr) -> Result<Sender, UpstreamError> {
        if let Some(sender) = self.opened(address) {
            return Ok(Sender::H2(sender));
        }
        let stream = self.connect(address).await?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        if !is_h2 {
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            return Ok(Sender::H1(sender));
        }
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(PING))
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await?;
        tokio::spawn(connection);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(address, sender.clone());
        Ok(Sender::H2(sender))
    }

    async fn connect(
        &self,
        address: SocketAddr,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, UpstreamError> {
        let dialed = tokio::time::timeout(CONNECT, (self.dial)(address)).await;
        let dialed = dialed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let socket = dialed.map_err(|source| UpstreamError::Dial { address, source })?;
        let _ = socket.set_nodelay(true);
        let name = ServerName::try_from(self.name.clone())
            .map_err(|error| UpstreamError::Request(error.to_string()))?;
        let secured = tokio::time::timeout(CONNECT, self.tls.connect(name, socket)).await;
        secured.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(UpstreamError::Tls)
    }
}
