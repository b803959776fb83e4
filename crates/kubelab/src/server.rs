//! Starting a server, and what its owner can do with it while it runs.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apiserver::pki::{Authority, Identity, PkiError};
use apiserver::server::TlsServer;
use apiserver::status::ApiError;
use apiserver::token::TokenKey;
use apiserver::upstream::{self, Dial};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ipnet::IpNet;
use tokio_util::sync::CancellationToken;

use crate::cluster::Cluster;

/// What a server is started with.
pub struct Options {
    /// Bound sockets to serve on; each may belong to another network namespace.
    pub listeners: Vec<TcpListener>,
    /// Where the certificate authority, the token key and all objects are kept across restarts.
    pub data_dir: PathBuf,
    /// Directory with `<node>/kubelet.sock`, the kubelets that run `exec` and `logs`.
    pub kubelet_dir: Option<PathBuf>,
    /// What to do about a kubelet that does not answer; `NODE` in it stands for its node's name.
    pub kubelet_advice: String,
    /// Ranges of ClusterIPs: one per family, the primary family first.
    pub service_cidrs: Vec<IpNet>,
    /// Address under which the cluster's Pods and nodes reach the server; the first listener's
    /// where it is not given.
    pub advertise: Option<SocketAddr>,
    /// Names and addresses that the serving certificate must hold, besides the usual ones.
    pub cert_names: Vec<String>,
    /// How many changes per resource can be watched back.
    pub watch_window: usize,
    /// How the server reaches aggregated APIs and webhooks, where that is not from its own
    /// network namespace.
    pub dial: Option<Dial>,
    /// How long a node may be silent before its conditions turn Unknown.
    pub node_grace: Duration,
}

/// How long a node may be silent where nothing else is said.
pub const NODE_GRACE: Duration = Duration::from_secs(40);

impl Options {
    /// Usual settings, with nothing to listen on yet.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            listeners: Vec::new(),
            data_dir: data_dir.into(),
            kubelet_dir: None,
            kubelet_advice: String::new(),
            service_cidrs: vec![IpNet::V4(ipnet::Ipv4Net::new_assert([10, 96, 0, 0].into(), 16))],
            advertise: None,
            cert_names: Vec::new(),
            watch_window: 4096,
            dial: None,
            node_grace: NODE_GRACE,
        }
    }
}

/// Why a server could not start, or an owner's call failed.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Keys or certificates.
    #[error("prepare keys")]
    Pki(#[from] PkiError),
    /// A listener cannot be used.
    #[error("use listener")]
    Listener(#[source] std::io::Error),
    /// The data directory cannot be used.
    #[error("use data directory")]
    DataDir(#[source] std::io::Error),
    /// The API refused.
    #[error("API")]
    Api(#[from] ApiError),
    /// The text is not a list of objects.
    #[error("parse manifest: {0}")]
    Manifest(String),
}

/// The server's constructor.
pub struct Server;

impl Server {
    /// Starts a server on the current tokio runtime.
    pub async fn start(options: Options) -> Result<RunningServer, ServerError> {
        std::fs::create_dir_all(&options.data_dir).map_err(ServerError::DataDir)?;
        let authority = Authority::load_or_create(&options.data_dir, "ca")?;
        let proxies = Authority::load_or_create(&options.data_dir, "front-proxy-ca")?;
        let token_key = TokenKey::load_or_create(&options.data_dir.join("service-account.key"))?;

        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for listener in options.listeners {
            listener.set_nonblocking(true).map_err(ServerError::Listener)?;
            addresses.push(listener.local_addr().map_err(ServerError::Listener)?);
            listeners
                .push(tokio::net::TcpListener::from_std(listener).map_err(ServerError::Listener)?);
        }
        let mut names: Vec<String> = [
            "localhost",
            "127.0.0.1",
            "::1",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ]
        .map(str::to_owned)
        .to_vec();
        names.extend(
            options
                .service_cidrs
                .iter()
                .filter_map(|range| range.hosts().next().map(|first| first.to_string())),
        );
        names.extend(options.advertise.iter().map(|address| address.ip().to_string()));
        names.extend(addresses.iter().map(|address| address.ip().to_string()));
        names.extend(options.cert_names);
        names.sort();
        names.dedup();
        let identity = authority.issue_serving(&names)?;
        let tls = apiserver::server::tls_config(&identity, Some(authority.cert_pem()))?;

        let stopping = CancellationToken::new();
        let cluster = Cluster::new(crate::cluster::Setup {
            token_key,
            journal: options.data_dir.join("objects.jsonl"),
            ca_pem: authority.cert_pem().to_owned(),
            kubelet_dir: options.kubelet_dir,
            kubelet_advice: options.kubelet_advice,
            service_cidrs: options.service_cidrs,
            endpoint: options.advertise.or(addresses.first().copied()),
            watch_window: options.watch_window,
            node_grace: options.node_grace,
            dial: options.dial.unwrap_or_else(upstream::dial_here),
            front_proxy: proxies.issue_client(crate::bootstrap::FRONT_PROXY, None)?,
            front_proxy_ca_pem: proxies.cert_pem().to_owned(),
            stopping: stopping.clone(),
        })?;
        let server = TlsServer::start(listeners, tls, cluster.handler(), stopping);
        cluster.start_loops();
        Ok(RunningServer { server, cluster, authority, addresses })
    }
}

/// A running server; dropping it stops it.
pub struct RunningServer {
    server: TlsServer,
    cluster: Arc<Cluster>,
    authority: Authority,
    addresses: Vec<SocketAddr>,
}

impl RunningServer {
    /// Addresses that are served, in the order of [`Options::listeners`].
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Certificate of the cluster's authority, PEM.
    pub fn ca_pem(&self) -> &str {
        self.authority.cert_pem()
    }

    /// A kubeconfig whose user may do everything.
    pub fn admin_kubeconfig(&self, server_url: &str) -> Result<String, ServerError> {
        let identity = self.admin_identity()?;
        let user = format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            BASE64.encode(identity.cert_pem),
            BASE64.encode(identity.key_pem)
        );
        Ok(self.kubeconfig(server_url, "kubernetes-admin", "default", &user))
    }

    /// A client certificate whose user may do everything.
    pub fn admin_identity(&self) -> Result<Identity, ServerError> {
        Ok(self.authority.issue_client("kubernetes-admin", Some(apiserver::user::MASTERS))?)
    }

    /// A kubeconfig that acts as a ServiceAccount, which must exist.
    pub fn kubeconfig_for(
        &self,
        server_url: &str,
        namespace: &str,
        service_account: &str,
    ) -> Result<String, ServerError> {
        let token = self.token_for(namespace, service_account)?;
        let user = format!("    token: {token}\n");
        Ok(self.kubeconfig(server_url, service_account, namespace, &user))
    }

    /// A kubeconfig that acts as a ServiceAccount on a node: its token tells the node's name.
    pub fn kubeconfig_on_node(
        &self,
        server_url: &str,
        namespace: &str,
        service_account: &str,
        node: &str,
    ) -> Result<String, ServerError> {
        let token = self.cluster.token_on_node(namespace, service_account, node)?;
        let user = format!("    token: {token}\n");
        Ok(self.kubeconfig(server_url, service_account, namespace, &user))
    }

    fn kubeconfig(&self, server_url: &str, user: &str, namespace: &str, secret: &str) -> String {
        let ca = BASE64.encode(self.ca_pem());
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: lab\n  cluster:\n    \
             server: {server_url}\n    certificate-authority-data: {ca}\nusers:\n- name: {user}\n  \
             user:\n{secret}contexts:\n- name: lab\n  context:\n    cluster: lab\n    \
             user: {user}\n    namespace: {namespace}\ncurrent-context: lab\n"
        )
    }

    /// A token of a ServiceAccount, which must exist; valid for a year.
    pub fn token_for(&self, namespace: &str, name: &str) -> Result<String, ServerError> {
        Ok(self.cluster.token_for(namespace, name)?)
    }

    /// Creates the objects of a YAML text, or replaces those that exist; gives their number.
    ///
    /// Works as the cluster's administrator, without a connection.
    pub fn apply_yaml(&self, yaml: &str) -> Result<usize, ServerError> {
        self.cluster.apply_yaml(yaml)
    }

    /// Ends watches, lets other requests finish, and stops.
    pub async fn shutdown(self) {
        self.server.shutdown(Duration::from_secs(2)).await;
    }
}
