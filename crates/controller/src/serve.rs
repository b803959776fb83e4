//! The API that this replica serves: computed policy for agents, health, metrics, webhooks.
//!
//! Not here: what is served (`policy`), HTTP itself (`apiserver`).

pub(crate) mod identity;
mod pages;
mod reviews;
mod trust;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use antrea_runtime::{CancellationToken, Checks, VERSION};
use apis::controlplane::{GROUP, VERSION as GROUP_VERSION};
use apiserver::api::{Aggregated, Api, Page};
use apiserver::delegated::Authorization;
use apiserver::negotiate::Offer;
use apiserver::pki::PkiError;
use apiserver::resource::{Registry, Resource, Scope, Subresource};
use apiserver::server::TlsServer;
use apiserver::trust::{ClientTrust, ServingCert, tls_config};
use kube_io::Client;
use policy::translate::ObjectKind;
use tokio::net::TcpListener;

use crate::policy::{Agents, NODE_NAME, PolicySource, Reports, State, Statistics, StatusEndpoint};
pub use identity::CertificateTerms;
use identity::own_identity;
use pages::{Health, MetricsPage};
use reviews::{LocalOr, Reviews};

/// Requests other than watches that are answered at once.
const MAX_IN_FLIGHT: usize = 400;
/// Reviews of callers per second in the long run.
const REVIEWS_PER_SECOND: f64 = 1000.0;
/// Reviews that may be asked for at once: all agents of a large cluster come back together after a
/// restart, each with a token and three watches.
const REVIEWS_AT_ONCE: u32 = 20_000;
/// Paths that are open to all: kubelet's probes and the API server's webhooks carry no credentials.
const OPEN: &[&str] = &["/healthz", "/livez", "/readyz", "/validate/*", "/mutate/*", "/convert/*"];

/// Why the API port could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address is taken or not ours.
    #[error("listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// No certificate could be made.
    #[error("prepare serving certificate")]
    Pki(#[from] PkiError),
}

/// What is served, and to whom.
pub(crate) struct ServeConfig {
    pub(crate) addr: SocketAddr,
    /// Namespace of the installation.
    pub(crate) namespace: String,
    pub(crate) checks: Checks,
    pub(crate) metrics: Option<antrea_runtime::Metrics>,
    pub(crate) state: Arc<State>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) statistics: Statistics,
    pub(crate) client: Client,
    /// Further paths, as those of webhooks.
    pub(crate) pages: BTreeMap<String, Arc<dyn Page>>,
    pub(crate) shutdown: CancellationToken,
}

/// The served API.
pub(crate) struct Server {
    pub(crate) local_addr: SocketAddr,
    /// The certificate that is shown; replaced when all replicas have a common one.
    pub(crate) serving: ServingCert,
    pub(crate) tls: TlsServer,
}

/// Starts to serve, with a certificate of this replica's own until there is a common one.
pub(crate) async fn start(config: ServeConfig) -> Result<Server, ServeError> {
    let ServeConfig {
        addr,
        namespace,
        checks,
        metrics,
        state,
        reports,
        statistics,
        client,
        mut pages,
        shutdown,
    } = config;
    let listener = listen(addr).await?;
    let local_addr = listener.local_addr().map_err(|source| ServeError::Listen { addr, source })?;
    let serving = ServingCert::new(&own_identity(&namespace)?)?;
    let clients = ClientTrust::new();
    tokio::spawn(trust::follow(client.clone(), clients.clone(), shutdown.clone()));

    for endpoint in Health::all(&checks, reports.instance()) {
        pages.insert(endpoint.path(), Arc::new(endpoint));
    }
    let local_token = metrics.as_ref().and_then(|metrics| metrics.token.clone());
    if let Some(metrics) = metrics {
        pages.insert("/metrics".into(), Arc::new(MetricsPage(metrics.registry)));
    }
    let reviews = Reviews(client.with_limit(REVIEWS_PER_SECOND, REVIEWS_AT_ONCE));
    let api = Api::aggregated(Aggregated {
        registry: registry(&state, &reports, &Agents::new(&namespace), statistics),
        authenticator: Arc::new(LocalOr::new(local_token, clients.clone(), reviews.clone())),
        authorizer: Arc::new(Authorization::new(reviews, OPEN)),
        pages,
        version: serde_json::json!({"gitVersion": VERSION}),
        max_in_flight: MAX_IN_FLIGHT,
        stopping: shutdown.clone(),
    });
    let tls = tls_config(&serving, &clients)?;
    let tls = TlsServer::start(vec![listener], tls, api, shutdown);
    Ok(Server { local_addr, serving, tls })
}

async fn listen(addr: SocketAddr) -> Result<TcpListener, ServeError> {
    match TcpListener::bind(addr).await {
        // All addresses were asked for, and this machine has no IPv6.
        Err(error)
            if addr.ip().is_ipv6()
                && addr.ip().is_unspecified()
                && error.kind() != io::ErrorKind::AddrInUse =>
        {
            let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), addr.port());
            let bound = TcpListener::bind(addr).await;
            bound.map_err(|source| ServeError::Listen { addr, source })
        }
        bound => bound.map_err(|source| ServeError::Listen { addr, source }),
    }
}

fn registry(
    state: &Arc<State>,
    reports: &Arc<Reports>,
    agents: &Agents,
    statistics: Statistics,
) -> Arc<Registry> {
    let registry = Registry::default();
    for (kind, name, plural) in [
        (ObjectKind::NetworkPolicy, "NetworkPolicy", "networkpolicies"),
        (ObjectKind::AppliedToGroup, "AppliedToGroup", "appliedtogroups"),
        (ObjectKind::AddressGroup, "AddressGroup", "addressgroups"),
    ] {
        let source = PolicySource::new(Arc::clone(state), kind, agents.clone());
        let of = (GROUP, GROUP_VERSION);
        let mut resource = Resource::read_only(of, name, plural, Scope::Cluster, Arc::new(source));
        resource.offer = Offer::TextAndProtobuf;
        resource.fields = vec![NODE_NAME.to_owned()];
        if kind == ObjectKind::NetworkPolicy {
            let endpoint = StatusEndpoint {
                reports: Arc::clone(reports),
                state: Arc::clone(state),
                agents: agents.clone(),
            };
            resource.subresources.push(Subresource {
                name: "status",
                group_version: None,
                kind: "NetworkPolicyStatus".to_owned(),
                verbs: vec!["create"],
                connect: Some(Arc::new(endpoint)),
            });
        }
        registry.insert(resource);
    }
    let statistics = crate::policy::statistics(state, reports, statistics);
    for resource in crate::policy::questions(state, reports, agents).into_iter().chain(statistics) {
        registry.insert(resource);
    }
    Arc::new(registry)
}
