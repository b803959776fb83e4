//! The TLS server: several listeners, HTTP/1.1 and HTTP/2 by ALPN, orderly end.
//!
//! What is answered is the [`Handler`]'s. A listener may have been opened in another network
//! namespace; accepting works from any thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::body::Response;
use crate::pki::{Identity, PkiError, certificates_from_pem};

/// A request as it came in.
pub type Request = hyper::Request<Incoming>;

/// Who is at the other end of a connection; a request extension.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address of the other end.
    pub address: SocketAddr,
    /// Verified client certificate, DER.
    pub certificate: Option<Arc<[u8]>>,
    /// The certificate with what the client sent to connect it with an authority.
    pub chain: Arc<[CertificateDer<'static>]>,
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Errors are answers too.
    fn handle(self: Arc<Self>, request: Request) -> BoxFuture<'static, Response>;
}

/// The TLS configuration of a server with this identity, taking client certificates of `client_ca`.
pub fn tls_config(
    identity: &Identity,
    client_ca_pem: Option<&str>,
) -> Result<rustls::ServerConfig, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match client_ca_pem {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = rustls::RootCertStore::empty();
            for certificate in certificates_from_pem(pem) {
                roots.add(certificate)?;
            }
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                Arc::new(roots),
                provider,
            )
            .allow_unauthenticated()
            .build()?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let chain: Vec<CertificateDer<'static>> = certificates_from_pem(&identity.cert_pem);
    let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
        .map_err(|_| PkiError::BadKey("serving identity".to_owned()))?;
    let mut config = builder.with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// A running server; dropping it stops it without waiting.
pub struct TlsServer {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl TlsServer {
    /// Starts to accept on all listeners, until `stop` is cancelled.
    pub fn start(
        listeners: Vec<TcpListener>,
        tls: rustls::ServerConfig,
        handler: Arc<dyn Handler>,
        stop: CancellationToken,
    ) -> Self {
        let server = Self { stop, tasks: TaskTracker::new() };
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        for listener in listeners {
            let worker = Worker {
                acceptor: acceptor.clone(),
                handler: Arc::clone(&handler),
                stop: server.stop.clone(),
                tasks: server.tasks.clone(),
            };
            server.tasks.spawn(worker.accept(listener));
        }
        server
    }

    /// Stops accepting, lets requests finish for up to `patience`, then closes what is left.
    pub async fn shutdown(self, patience: Duration) {
        self.stop.cancel();
        self.tasks.close();
        let _ = tokio::time::timeout(patience, self.tasks.wait()).await;
    }
}

#[derive(Clone)]
struct Worker {
    acceptor: TlsAcceptor,
    handler: Arc<dyn Handler>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A client that does not finish its handshake in this time is let go.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How often a quiet HTTP/2 client must answer; a dead one's watches end with it.
const PING: Duration = Duration::from_secs(15);
/// Requests at once on one connection, watches among them.
const MAX_STREAMS: u32 = 4096;

impl Worker {
    async fn accept(self, listener: TcpListener) {
        loop {
            let accepted = tokio::select! {
                () = self.stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, address)) => {
                    let worker = self.clone();
                    self.tasks.spawn(async move { worker.serve(socket, address).await });
                }
                Err(error) => {
                    // Out of descriptors, most likely: others must close before we go on.
                    tracing::warn!(%error, "accept");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn serve(self, socket: tokio::net::TcpStream, address: SocketAddr) {
        let _ = socket.set_nodelay(true);
        let accepted = tokio::time::timeout(HANDSHAKE, self.acceptor.accept(socket)).await;
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, %address, "TLS handshake");
                return;
            }
            Err(_) => return,
        };
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificate = chain.first().map(|certificate| Arc::from(certificate.as_ref()));
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let peer = Peer { address, certificate, chain };
        let handler = Arc::clone(&self.handler);
        let service = service_fn(move |mut request: Request| {
            request.extensions_mut().insert(peer.clone());
            let answer = Arc::clone(&handler).handle(request);
            async move { Ok::<_, std::convert::Infallible>(answer.await) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(Some(PING))
            .keep_alive_timeout(PING)
            .max_concurrent_streams(MAX_STREAMS);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        tokio::select! {
            result = connection.as_mut() => {
                if let Err(error) = result {
                    tracing::debug!(%error, %address, "connection");
                }
            }
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                let _ = connection.await;
            }
        }
    }
}
