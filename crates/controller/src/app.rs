//! Starts the parts of a replica and ends them in order.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use addresses::PoolError;
use antrea_runtime::{CancellationToken, Checks, HealthConfig, HealthError, HealthServer, VERSION};
use kube_io::lease::{ApiStore, Elector, Lease};
use kube_io::{Client, ConnectError};

use crate::lead::lead;
use crate::leader::{Leader, LeaderSetup};
use crate::metrics::Metrics;
use crate::settings::Settings;

/// Name of the Lease that the leader holds.
const LEASE: &str = "antrea-controller";
/// A replica that has not heard from the API server for so long is not ready.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// Why the controller could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No way to talk to the API server.
    #[error("connect to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// The API port cannot be served.
    #[error("serve the API port")]
    Health(#[from] HealthError),
    /// The configured prefixes cannot be used.
    #[error("nodeIPAM")]
    Pool(#[from] PoolError),
}

/// Runs a replica until `shutdown` is cancelled, then hands the Lease on.
///
/// # Errors
/// When it cannot start; a server that is not there yet is waited for.
pub async fn run(settings: Settings, shutdown: CancellationToken) -> Result<(), RunError> {
    tracing::info!(version = VERSION, "antrea-controller starts");
    let setup = LeaderSetup::new(&settings)?;
    let client =
        Client::new(settings.config.kubeconfig.as_deref(), &settings.client_options()).await?;
    let checks = Checks::new();
    checks.add_live("ping", || Ok(()));
    let metrics = Metrics::new();
    let health = serve(&settings, &checks, &metrics, &shutdown).await?;
    let namespace = settings.environment.pod_namespace.as_str();
    let elector = Elector::start(
        ApiStore::new(&client, namespace, LEASE),
        Lease::new(namespace, LEASE),
        &settings.identity(),
        settings.terms,
    );
    let contact = elector.contact();
    checks.add_ready("kubernetes-api", move || {
        let silence = contact.silence();
        if silence < LONGEST_SILENCE {
            Ok(())
        } else {
            Err(format!("no answer for {} s", silence.as_secs()))
        }
    });
    tracing::info!(server = client.server(), api = %health.local_addr(), "antrea-controller runs");

    lead(elector.leadership(), &shutdown, || Leader::start(&client, &setup, &metrics)).await;
    elector.release().await;
    tracing::info!("antrea-controller ended");
    Ok(())
}

async fn serve(
    settings: &Settings,
    checks: &Checks,
    metrics: &Metrics,
    shutdown: &CancellationToken,
) -> Result<HealthServer, HealthError> {
    let metrics = settings.config.enable_prometheus_metrics.then(|| antrea_runtime::Metrics {
        registry: metrics.prometheus(),
        token: token(&settings.run_dir),
    });
    let service = format!("antrea.{}.svc", settings.environment.pod_namespace);
    let config = |addr| HealthConfig {
        addr,
        names: vec!["antrea".into(), service.clone()],
        checks: checks.clone(),
        metrics: metrics.clone(),
        shutdown: shutdown.clone(),
    };
    let addr = settings.api_addr;
    match HealthServer::start(config(addr)).await {
        // All addresses were asked for, and this machine has no IPv6.
        Err(HealthError::Listen { source, .. })
            if addr.ip().is_ipv6()
                && addr.ip().is_unspecified()
                && source.kind() != std::io::ErrorKind::AddrInUse =>
        {
            let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), addr.port());
            HealthServer::start(config(addr)).await
        }
        result => result,
    }
}

/// Token for reading metrics; without one nobody can.
fn token(run_dir: &Path) -> Option<String> {
    let path = run_dir.join("apiserver/loopback-client-token");
    match antrea_runtime::token::loopback_token(&path) {
        Ok(token) => Some(token),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no token for metrics");
            None
        }
    }
}
