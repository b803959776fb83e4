//! The connection to the API server.

mod limit;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::header::{HeaderValue, USER_AGENT};
use http::uri::Uri;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use limit::Limiter;

/// A connection to the API server; cheap to clone.
#[derive(Clone)]
pub struct Client {
    kube: kube::Client,
    limiter: Arc<Limiter>,
    server: Arc<str>,
    config: Arc<Config>,
}

/// How to talk to the API server.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Program and version, for the server's audit log.
    pub user_agent: String,
    /// Use this server (`host`, `host:port` or a URL) instead of the configured one.
    pub server_override: Option<String>,
    /// Calls per second in the long run; watches do not count.
    pub qps: f64,
    /// Calls that may be made at once before `qps` counts.
    pub burst: u32,
}

/// Why there is no connection to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig file cannot be read or is no kubeconfig.
    #[error("read kubeconfig {path}")]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<kube::config::KubeconfigError>,
    },
    /// This process does not run in a Pod, and nobody named a kubeconfig.
    #[error(
        "{variable} is not set, as it is in every Pod: to run elsewhere, name a kubeconfig by \
         clientConnection.kubeconfig in the configuration file"
    )]
    NotInCluster {
        /// The variable that is looked for.
        variable: &'static str,
    },
    /// This process does not run in a Pod with a ServiceAccount.
    #[error("read the Pod's ServiceAccount")]
    InCluster(#[source] kube::config::InClusterError),
    /// The override is no host, no host with port and no URL.
    #[error("kubeAPIServerOverride {0:?} is neither a host, host:port nor a URL")]
    Override(String),
    /// The program's name cannot be sent.
    #[error("user agent {0:?} cannot be sent")]
    UserAgent(String),
    /// TLS or credentials cannot be set up.
    #[error("set up TLS and credentials")]
    Build(#[source] Box<kube::Error>),
}

/// What Kubernetes sets in every container, so that it finds the API server.
const IN_CLUSTER: [&str; 2] = ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"];

impl ClientOptions {
    /// Options of a program, with the customary limits of 50 calls per second and 100 at once.
    pub fn new(program: &str, version: &str) -> Self {
        let user_agent = format!("{program}/{version}");
        Self { user_agent, server_override: None, qps: 50.0, burst: 100 }
    }

    /// Sets the limits; zero keeps the customary one.
    pub fn limit(&mut self, qps: f64, burst: u32) {
        if qps > 0.0 {
            self.qps = qps;
        }
        if burst > 0 {
            self.burst = burst;
        }
    }
}

impl Client {
    /// Uses a kubeconfig file, or the Pod's ServiceAccount where none is given.
    ///
    /// # Errors
    /// See [`ConnectError`]. The server itself is not contacted.
    pub async fn new(
        kubeconfig: Option<&Path>,
        options: &ClientOptions,
    ) -> Result<Self, ConnectError> {
        match kubeconfig {
            Some(path) => Self::from_kubeconfig(path, options).await,
            None => Self::in_cluster(options),
        }
    }

    /// Uses the current context of a kubeconfig file.
    ///
    /// # Errors
    /// See [`ConnectError`]. The server itself is not contacted.
    pub async fn from_kubeconfig(
        path: &Path,
        options: &ClientOptions,
    ) -> Result<Self, ConnectError> {
        let failed =
            |source| ConnectError::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
        let file = Kubeconfig::read_from(path).map_err(failed)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
            .await
            .map_err(failed)?;
        Self::build(config, options)
    }

    /// Uses the ServiceAccount of the Pod that this process runs in.
    ///
    /// # Errors
    /// See [`ConnectError`]. The server itself is not contacted.
    pub fn in_cluster(options: &ClientOptions) -> Result<Self, ConnectError> {
        let absent = |name: &&str| std::env::var_os(name).is_none_or(|value| value.is_empty());
        if let Some(variable) = IN_CLUSTER.into_iter().find(absent) {
            return Err(ConnectError::NotInCluster { variable });
        }
        let config = Config::incluster().map_err(ConnectError::InCluster)?;
        Self::build(config, options)
    }

    fn build(mut config: Config, options: &ClientOptions) -> Result<Self, ConnectError> {
        if let Some(server) = options.server_override.as_deref().filter(|text| !text.is_empty()) {
            config.cluster_url = server_url(server)?;
        }
        let user_agent = HeaderValue::from_str(&options.user_agent)
            .map_err(|_| ConnectError::UserAgent(options.user_agent.clone()))?;
        config.headers.push((USER_AGENT, user_agent));
        // Our loops try again by themselves and must learn soon that something failed.
        config.default_retry = false;
        let server = config.cluster_url.to_string().into();
        let kept = Arc::new(config.clone());
        let kube =
            kube::Client::try_from(config).map_err(|error| ConnectError::Build(Box::new(error)))?;
        let limiter = Arc::new(Limiter::new(options.qps, options.burst));
        Ok(Self { kube, limiter, server, config: kept })
    }

    /// The same connection with limits of its own: what is asked on behalf of others must not wait for,
    /// nor hold up, what this program does itself.
    #[must_use]
    pub fn with_limit(&self, qps: f64, burst: u32) -> Self {
        Self { limiter: Arc::new(Limiter::new(qps, burst)), ..self.clone() }
    }

    /// URL of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    pub(crate) fn kube(&self) -> &kube::Client {
        &self.kube
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn limiter(&self) -> &Limiter {
        &self.limiter
    }
}

/// Reads `host`, `host:port` or a URL; TLS is assumed unless a URL says otherwise.
fn server_url(text: &str) -> Result<Uri, ConnectError> {
    let refused = || ConnectError::Override(text.to_owned());
    let url = if text.contains("://") {
        text.to_owned()
    } else if text.parse::<std::net::Ipv6Addr>().is_ok() {
        format!("https://[{text}]")
    } else {
        format!("https://{text}")
    };
    let uri: Uri = url.parse().map_err(|_| refused())?;
    let known_scheme = matches!(uri.scheme_str(), Some("https" | "http"));
    match uri.host() {
        Some(host) if known_scheme && !host.is_empty() => Ok(uri),
        _ => Err(refused()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_customary_ones_where_none_are_given() {
        for ((qps, burst), want) in
            [((0.0, 0), (50.0, 100)), ((5.0, 0), (5.0, 100)), ((0.0, 7), (50.0, 7))]
        {
            let mut options = ClientOptions::new("test", "v0");
            options.limit(qps, burst);
            assert_eq!((options.qps, options.burst), want);
        }
    }

    #[test]
    fn server_overrides() {
        for (text, want) in [
            ("10.0.0.1", Some("https://10.0.0.1/")),
            ("api.example:6443", Some("https://api.example:6443/")),
            ("fd00::1", Some("https://[fd00::1]/")),
            ("[fd00::1]:6443", Some("https://[fd00::1]:6443/")),
            ("http://127.0.0.1:8080", Some("http://127.0.0.1:8080/")),
            ("ftp://x", None),
            ("a b", None),
            ("https://", None),
        ] {
            let got = server_url(text).ok().map(|uri| uri.to_string());
            assert_eq!(got.as_deref(), want, "{text}");
        }
    }

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named() {
        let options = ClientOptions::new("test", "v0");
        let error = Client::new(Some(Path::new("/nowhere/kubeconfig")), &options).await;
        assert_eq!(error.err().unwrap().to_string(), "read kubeconfig /nowhere/kubeconfig");
    }
}
