//! A small HTTPS client of the API: one request per connection, watches as lines.
//!
//! For the scheduler and for tests that look at raw answers. Programs use `kube-io`.

use std::sync::Arc;

use crate::pki::{Identity, certificates_from_pem};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Why a request brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is not `https://HOST[:PORT]`, or the credentials are malformed.
    #[error("client settings: {0}")]
    Settings(String),
    /// No connection.
    #[error("connect")]
    Connect(#[from] std::io::Error),
    /// The connection broke, or the other side speaks no HTTP.
    #[error("exchange")]
    Exchange(#[from] hyper::Error),
    /// The server refused.
    #[error("server answers {code}: {message}")]
    Refused {
        /// HTTP status code.
        code: u16,
        /// Message of the `Status`.
        message: String,
    },
    /// The server's answer is no JSON.
    #[error("parse answer")]
    Parse(#[from] serde_json::Error),
}

/// How a client shows who it is.
#[derive(Clone, Debug)]
pub enum Credential {
    /// It does not.
    None,
    /// By a bearer token.
    Token(String),
    /// By a client certificate.
    Certificate(Identity),
}

/// An answer that was read whole.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub code: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; `null` when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

/// A client of one server.
#[derive(Clone)]
pub struct Client {
    host: String,
    port: u16,
    tls: TlsConnector,
    token: Option<String>,
}

impl Client {
    /// A client of `https://HOST[:PORT]` that trusts `ca_pem`.
    pub fn new(url: &str, ca_pem: &str, credential: Credential) -> Result<Self, ClientError> {
        let bad = |what: &str| ClientError::Settings(what.to_owned());
        let address = url.strip_prefix("https://").ok_or_else(|| bad("URL is not https"))?;
        let address = address.split('/').next().unwrap_or("");
        let (host, port) = match address.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().map_err(|_| bad("URL has a bad port"))?)
            }
            _ => (address, 443),
        };
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(certificates_from_pem(ca_pem));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&error.to_string()))?
            .with_root_certificates(roots);
        let mut token = None;
        let config = match credential {
            Credential::Certificate(identity) => {
                let key = PrivateKeyDer::from_pem_slice(identity.key_pem.as_bytes())
                    .map_err(|_| bad("client key is malformed"))?;
                builder
                    .with_client_auth_cert(certificates_from_pem(&identity.cert_pem), key)
                    .map_err(|error| bad(&error.to_string()))?
            }
            Credential::Token(text) => {
                token = Some(text);
                builder.with_no_client_auth()
            }
            Credential::None => builder.with_no_client_auth(),
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        Ok(Self { host, port, tls: TlsConnector::from(Arc::new(config)), token })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<hyper::Response<Incoming>, ClientError> {
        let bad = |what: String| ClientError::Settings(what);
        let socket = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let _ = socket.set_nodelay(true);
        let name =
            ServerName::try_from(self.host.clone()).map_err(|error| bad(error.to_string()))?;
        let stream = self.tls.connect(name, socket).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "connection to the API server");
            }
        });
        let mut request = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header("host", format!("{}:{}", self.host, self.port));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request =
            request.body(Full::new(body.into())).map_err(|error| bad(error.to_string()))?;
        Ok(sender.send_request(request).await?)
    }

    /// Sends a request and reads the whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Answer, ClientError> {
        let answer = self.exchange(method, path, headers, body).await?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer { code: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Sends a request whose answer must be a success, and gives its JSON.
    pub async fn json(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let answer = self.send(method, path, &[("content-type", media_type)], body).await?;
        if answer.code >= 300 {
            return Err(refused(answer.code, &answer.body));
        }
        Ok(serde_json::from_slice(&answer.body)?)
    }

    /// Starts a watch.
    pub async fn watch(&self, path: &str, accept: &str) -> Result<Lines, ClientError> {
        let headers = [("accept", accept)];
        let answer = self.exchange(Method::GET, path, &headers, Bytes::new()).await?;
        if answer.status() != StatusCode::OK {
            let code = answer.status().as_u16();
            let body = answer.into_body().collect().await?.to_bytes();
            return Err(refused(code, &body));
        }
        Ok(Lines { body: answer.into_body(), buffer: BytesMut::new() })
    }

    /// Asks for a protocol switch, and gives the answer with its upgrade.
    pub async fn upgrade(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<hyper::Response<Incoming>, ClientError> {
        self.exchange(Method::GET, path, headers, Bytes::new()).await
    }
}

fn refused(code: u16, body: &[u8]) -> ClientError {
    let message = match serde_json::from_slice::<Value>(body) {
        Ok(status) => status["message"].as_str().unwrap_or("").to_owned(),
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    ClientError::Refused { code, message }
}

/// The events of a watch.
pub struct Lines {
    body: Incoming,
    buffer: BytesMut,
}

impl Lines {
    /// The next event; `None` when the stream ended.
    pub async fn next(&mut self) -> Result<Option<Value>, ClientError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.split_to(end + 1);
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_may_leave_out_the_port() {
        for (url, want) in [
            ("https://127.0.0.1:6443", Some(("127.0.0.1", 6443))),
            ("https://api.example.test", Some(("api.example.test", 443))),
            ("https://[::1]:6443/", Some(("::1", 6443))),
            ("https://[::1]", Some(("::1", 443))),
            ("http://127.0.0.1:80", None),
            ("https://127.0.0.1:x", None),
        ] {
            let client = Client::new(url, "", Credential::None).ok();
            let got = client.as_ref().map(|client| (client.host.as_str(), client.port));
            assert_eq!(got, want, "{url}");
        }
    }
}
