//! What a controller tells the agent of a node: policies and groups, as streams of changes.
//!
//! All requests of one [`Controlplane`] share one HTTP/2 connection, to the API server (which hands
//! them on to a controller) or straight to a controller's Service. A stream begins with
//! [`Event::Replaced`], goes on with changes, and continues by itself where it broke off; where the
//! server cannot continue, another `Replaced` follows. State that is older than what was seen
//! before, as a controller's replica that lags gives it, is not handed on.
//!
//! Never decides anything: what the objects mean is `policy::realize`'s.

mod events;
mod follow;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apis::controlplane::wire::WireObject;
use apis::controlplane::{
    API_VERSION, AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch,
    NetworkPolicy, NetworkPolicyStatus, Typed,
};
use futures::{Stream, StreamExt};
use http::{Method, Request, header};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use tower::{BoxError, ServiceBuilder};

use crate::client::{Client, ConnectError};
use crate::error::{ApiError, CallError, Verb};

pub use events::{AsOf, Event};

/// A call without an answer is given up after this time.
const DEADLINE: Duration = Duration::from_secs(10);
/// A connection that is not made in this time is given up.
const CONNECT: Duration = Duration::from_secs(5);
/// How often the connection is tried while nothing comes.
const PING: Duration = Duration::from_secs(5);
/// Largest text of an error that is read.
const MAX_ERROR: usize = 64 << 10;

/// Which way to a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the API server.
    ApiServer,
    /// Straight to a controller's Service.
    Direct {
        /// URL, as `https://10.96.0.7:443`.
        url: String,
        /// Name in its certificate, as `antrea.kube-system.svc`.
        server_name: String,
        /// Authority of its certificate, PEM.
        ca_pem: String,
    },
}

/// A connection to the controllers; cheap to clone.
#[derive(Clone)]
pub struct Controlplane {
    http: kube::Client,
    node: Arc<str>,
}

/// The same client as for the API server, but over HTTP/2 alone.
fn http2(config: &kube::Config) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    let mut https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_only();
    if let Some(name) = config.tls_server_name.as_ref().and_then(|n| n.clone().try_into().ok()) {
        https = https.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    let client = HttpClient::builder(TokioExecutor::new())
        .http2_only(true)
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING)
        .http2_keep_alive_timeout(PING)
        .build(https.enable_http2().wrap_connector(connector));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

impl Controlplane {
    /// The way of a node's agent to the controllers, with the credentials of `client`.
    ///
    /// # Errors
    /// See [`ConnectError`]. No server is contacted.
    pub fn new(client: &Client, route: &Route, node: &str) -> Result<Self, ConnectError> {
        let mut config = client.config().clone();
        if let Route::Direct { url, server_name, ca_pem } = route {
            config.cluster_url = url.parse().map_err(|_| ConnectError::Override(url.clone()))?;
            config.tls_server_name = Some(server_name.clone());
            config.root_cert = Some(certificates(ca_pem));
            config.root_cert_file = None;
        }
        let http = http2(&config).map_err(|error| ConnectError::Build(Box::new(error)))?;
        Ok(Self { http, node: node.into() })
    }

    /// The policies of the node.
    pub fn network_policies(
        &self,
    ) -> impl Stream<Item = Event<NetworkPolicy, NetworkPolicy>> + Send + Unpin + 'static {
        self.follow("networkpolicies")
    }

    /// The groups whose members the node's policies name as peers.
    pub fn address_groups(
        &self,
    ) -> impl Stream<Item = Event<AddressGroup, AddressGroupPatch>> + Send + Unpin + 'static {
        self.follow("addressgroups")
    }

    /// The groups of the node's own Pods that policies are applied to.
    pub fn applied_to_groups(
        &self,
    ) -> impl Stream<Item = Event<AppliedToGroup, AppliedToGroupPatch>> + Send + Unpin + 'static
    {
        self.follow("appliedtogroups")
    }

    fn follow<T: WireObject, P: WireObject>(
        &self,
        plural: &'static str,
    ) -> impl Stream<Item = Event<T, P>> + Send + Unpin + 'static {
        let follower = follow::Follower::new(self.clone(), plural);
        futures::stream::unfold(follower, |mut follower| async move {
            let event = follower.next().await;
            Some((event, follower))
        })
        .boxed()
    }

    /// Tells the controllers how far the node has realized a policy.
    ///
    /// # Errors
    /// When no controller takes it; see [`ApiError`].
    pub async fn report(&self, status: &NetworkPolicyStatus) -> Result<(), ApiError> {
        let name = status.metadata.name.clone().unwrap_or_default();
        let failed = |source| ApiError {
            verb: Verb::Create,
            resource: "networkpolicies/status".to_owned(),
            name: name.clone(),
            source,
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err(failed(CallError::Request(format!("{name:?} is no name of an object"))));
        }
        let body = serde_json::to_vec(&Typed::new(status))
            .map_err(|error| failed(CallError::Request(error.to_string())))?;
        let path = format!("/apis/{API_VERSION}/networkpolicies/{name}/status");
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(body))
            .map_err(|error| failed(CallError::Request(error.to_string())))?;
        self.send(request).await.map(|_| ()).map_err(failed)
    }

    /// Sends a request; an answer other than success is an error.
    async fn send(&self, request: Request<Body>) -> Result<http::Response<Body>, CallError> {
        let exchange = async {
            let answer = self.http.send(request).await?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            let code = answer.status().as_u16();
            let limited = http_body_util::Limited::new(answer.into_body(), MAX_ERROR);
            let body = limited.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
            Err(refusal(code, &body))
        };
        match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Timeout),
        }
    }
}

/// What an answer with an error code says: a `Status`, or plain text.
fn refusal(code: u16, body: &[u8]) -> CallError {
    let status: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    let message = match text("message") {
        message if message.is_empty() => String::from_utf8_lossy(body).trim().to_owned(),
        message => message,
    };
    CallError::Status { code, reason: text("reason"), message }
}

/// The certificates of a PEM text, DER.
fn certificates(pem: &str) -> Vec<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.filter_map(Result::ok).map(|certificate| certificate.to_vec()).collect()
}

/// Whether `new` was made from older inputs than `seen`.
fn lags(new: &BTreeMap<String, String>, seen: &BTreeMap<String, String>) -> bool {
    let number = |text: &String| text.parse::<u64>().unwrap_or(0);
    seen.iter().any(|(key, seen)| new.get(key).map_or(0, number) < number(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_inputs_lag() {
        let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let seen = of(&[("pods", "20"), ("nodes", "9")]);
        for (new, want) in [
            (of(&[("pods", "20"), ("nodes", "9")]), false),
            (of(&[("pods", "100"), ("nodes", "9"), ("tiers", "1")]), false),
            (of(&[("pods", "19"), ("nodes", "10")]), true),
            (of(&[("pods", "21")]), true),
        ] {
            assert_eq!(lags(&new, &seen), want, "{new:?}");
        }
        assert!(!lags(&of(&[]), &of(&[])));
    }

    #[test]
    fn refusals_may_be_plain_text() {
        for (body, want) in [
            (r#"{"kind":"Status","message":"no","reason":"Forbidden"}"#, "no (Forbidden, 403)"),
            ("service unavailable\n", "service unavailable (, 403)"),
        ] {
            assert_eq!(refusal(403, body.as_bytes()).to_string(), want);
        }
    }
}
