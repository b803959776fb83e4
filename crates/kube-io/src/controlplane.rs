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
mod way;

use std::sync::Arc;
use std::time::Duration;

use apis::controlplane::wire::WireObject;
use apis::controlplane::{
    API_VERSION, AS_OF, AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch,
    NetworkPolicy, NetworkPolicyStatus, NodeStatsSummary, Typed, UP_TO,
};
use futures::{Stream, StreamExt};
use http::{Method, Request, header};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt};
use tower::{BoxError, ServiceBuilder};

use crate::call::refusal;
use crate::client::{Client, ConnectError};
use crate::error::{ApiError, CallError, Verb};

use way::{Choice, Next, Place, Ways};

pub(crate) use events::Frames;
pub use events::{AsOf, Event};

/// A call without an answer is given up after this time.
const DEADLINE: Duration = Duration::from_secs(10);
/// A connection that is not made in this time is given up.
const CONNECT: Duration = Duration::from_secs(2);
/// How often the connection is tried while nothing comes.
const PING: Duration = Duration::from_secs(2);
/// How long the answer to that may take.
const PONG: Duration = Duration::from_secs(3);
/// Attempts at a report.
const ATTEMPTS: u32 = 4;
/// Header of the answer to a health question, with a name of the process that answers, which is
/// another one after each start.
pub const INSTANCE: &str = "antrea-instance";

/// Which way to a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the API server.
    ApiServer,
    /// Straight to the replicas of an installation, wherever the cluster says they are; through the
    /// API server where none answers.
    Replicas {
        /// Namespace of the installation.
        namespace: String,
    },
    /// Straight to one server.
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
    ways: Arc<Ways>,
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
        .http2_keep_alive_timeout(PONG)
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
    /// With [`Route::Replicas`] it needs a runtime, on which it follows where they are.
    ///
    /// # Errors
    /// See [`ConnectError`]. No server is contacted.
    pub fn new(client: &Client, route: &Route, node: &str) -> Result<Self, ConnectError> {
        if let Route::Replicas { namespace } = route {
            let ways = Arc::new(Ways::Choice(Box::new(Choice::start(client, namespace))));
            return Ok(Self { ways, node: node.into() });
        }
        let mut config = client.config().clone();
        if let Route::Direct { url, server_name, ca_pem } = route {
            config.cluster_url = url.parse().map_err(|_| ConnectError::Override(url.clone()))?;
            config.tls_server_name = Some(server_name.clone());
            config.root_cert = Some(certificates(ca_pem));
            config.root_cert_file = None;
        }
        let http = http2(&config).map_err(|error| ConnectError::Build(Box::new(error)))?;
        Ok(Self { ways: Arc::new(Ways::Fixed(http)), node: node.into() })
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
        let resource = "networkpolicies/status";
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            let source = CallError::Request(format!("{name:?} is no name of an object"));
            let resource = resource.to_owned();
            return Err(ApiError { verb: Verb::Create, resource, name, source });
        }
        let path = format!("/apis/{API_VERSION}/networkpolicies/{name}/status");
        self.post(path, resource, &name, serde_json::to_vec(&Typed::new(status))).await
    }

    /// Tells the controllers what traffic the node's policies met; what it does not name stays as it
    /// was told before.
    ///
    /// # Errors
    /// When no controller takes it; see [`ApiError`].
    pub async fn report_traffic(&self, summary: &NodeStatsSummary) -> Result<(), ApiError> {
        let name = summary.metadata.name.clone().unwrap_or_default();
        let resource = "nodestatssummaries";
        let path = format!("/apis/{API_VERSION}/{resource}");
        self.post(path, resource, &name, serde_json::to_vec(&Typed::new(summary))).await
    }

    /// Posts to a controller, and to another one where one fails.
    async fn post(
        &self,
        path: String,
        resource: &str,
        name: &str,
        body: serde_json::Result<Vec<u8>>,
    ) -> Result<(), ApiError> {
        let failed = |source| ApiError {
            verb: Verb::Create,
            resource: resource.to_owned(),
            name: name.to_owned(),
            source,
        };
        let body = body.map_err(|error| failed(CallError::Request(error.to_string())))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(body)
            .map_err(|error| failed(CallError::Request(error.to_string())))?;
        let mut attempt = 1;
        loop {
            let (place, error) = match self.send(way::copy_of(&request)).await {
                Ok(_) => return Ok(()),
                Err(failure) => failure,
            };
            let error = failed(error);
            let another = error.is_transient() && self.ways.failed(place) == Next::Another;
            if !another || attempt == ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
        }
    }

    /// Asks which process answers; none if it does not say.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn instance(&self) -> Result<Option<String>, ApiError> {
        let failed = |source| {
            let (resource, name) = ("livez".to_owned(), String::new());
            ApiError { verb: Verb::Get, resource, name, source }
        };
        let request = Request::get("/livez")
            .body(Body::empty())
            .map_err(|error| failed(CallError::Request(error.to_string())))?;
        let (_, answer) = self.send(request).await.map_err(|(_, error)| failed(error))?;
        let header = answer.headers().get(INSTANCE).and_then(|value| value.to_str().ok());
        Ok(header.map(str::to_owned))
    }

    /// Sends a request; an answer other than success is an error.
    async fn send(
        &self,
        request: Request<Body>,
    ) -> Result<(Place, http::Response<Body>), (Place, CallError)> {
        let (place, http) = match self.ways.next().await {
            Ok(way) => way,
            Err(error) => return Err((Place::Fixed, error)),
        };
        let exchange = async {
            let answer = http.send(request).await?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            Err(refusal(answer).await)
        };
        match tokio::time::timeout(DEADLINE, exchange).await {
            Ok(Ok(answer)) => Ok((place, answer)),
            Ok(Err(error)) => Err((place, error)),
            Err(_) => Err((place, CallError::Timeout)),
        }
    }
}

/// The certificates of a PEM text, DER.
fn certificates(pem: &str) -> Vec<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let all = CertificateDer::pem_slice_iter(pem.as_bytes());
    all.filter_map(Result::ok).map(|certificate| certificate.to_vec()).collect()
}

/// Whether what was made from `new` may lack some of the changes that `seen` tells of.
fn lags(new: &AsOf, seen: &AsOf) -> bool {
    let number = |text: &String| text.parse::<u64>().unwrap_or(0);
    seen.iter().any(|(key, seen)| {
        let kind = key.strip_prefix(AS_OF);
        let up_to = kind.and_then(|kind| new.get(&format!("{UP_TO}{kind}")));
        up_to.map_or(0, number).max(new.get(key).map_or(0, number)) < number(seen)
    })
}

/// Takes what `new` tells of changes into `seen`, where nothing ever goes back.
fn saw(seen: &mut AsOf, new: &AsOf) {
    let number = |text: &String| text.parse::<u64>().unwrap_or(0);
    for (key, version) in new.iter().filter(|(key, _)| !key.starts_with(UP_TO)) {
        match seen.get_mut(key) {
            Some(known) if number(known) >= number(version) => {}
            Some(known) => known.clone_from(version),
            None => drop(seen.insert(key.clone(), version.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_inputs_lag() {
        let of = |pairs: &[(&str, &str)]| -> AsOf {
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
    fn how_far_a_kind_is_read_counts_where_its_last_change_left_nothing_behind() {
        let of = |kind: &str, as_of: u64, up_to: Option<u64>| -> AsOf {
            let as_of = (format!("{AS_OF}{kind}"), as_of.to_string());
            let up_to = up_to.map(|version| (format!("{UP_TO}{kind}"), version.to_string()));
            [as_of].into_iter().chain(up_to).collect()
        };
        // A Pod was deleted at 90, and nothing changed since.
        let mut seen = AsOf::new();
        saw(&mut seen, &of("pods", 90, None));
        for (new, want) in [
            (of("pods", 80, None), true),
            (of("pods", 80, Some(89)), true),
            (of("pods", 80, Some(100)), false),
            (of("nodes", 80, Some(100)), true),
        ] {
            assert_eq!(lags(&new, &seen), want, "{new:?}");
        }
        // One that began later and saw less of it changes nothing of what is asked of others.
        saw(&mut seen, &of("pods", 80, Some(100)));
        assert_eq!(seen, of("pods", 90, None));
        assert!(!lags(&of("pods", 90, None), &seen));
    }
}
