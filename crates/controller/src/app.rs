//! Starts the parts of a replica and ends them in order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use addresses::PoolError;
use antrea_config::Gate;
use antrea_runtime::{CancellationToken, Checks, VERSION};
use kube_io::lease::{ApiStore, Elector, Lease};
use kube_io::{Client, ConnectError};
use tokio::sync::mpsc;

use crate::lead::lead;
use crate::leader::{Leader, LeaderSetup};
use crate::metrics::Metrics;
use crate::policy::{self, Reports, State, Statistics};
use crate::serve::{self, ServeConfig, ServeError, identity};
use crate::settings::Settings;

/// Name of the Lease that the leader holds.
const LEASE: &str = "antrea-controller";
/// A replica that has not heard from the API server for so long is not ready.
const LONGEST_SILENCE: Duration = Duration::from_secs(30);

/// Time that requests have to finish when the controller ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why the controller could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No way to talk to the API server.
    #[error("connect to the Kubernetes API")]
    Connect(#[from] ConnectError),
    /// The API port cannot be served.
    #[error("serve the API port")]
    Serve(#[from] ServeError),
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
    let namespace = settings.environment.pod_namespace.as_str();
    let state = Arc::new(State::new());
    let reports = Arc::new(Reports::default());
    let server = serve::start(ServeConfig {
        addr: settings.api_addr,
        namespace: namespace.to_owned(),
        checks: checks.clone(),
        metrics: settings.config.enable_prometheus_metrics.then(|| antrea_runtime::Metrics {
            registry: metrics.prometheus(),
            token: token(&settings.run_dir),
        }),
        state: Arc::clone(&state),
        client: client.clone(),
        pages: policy::webhook_pages(&state),
        reports: Arc::clone(&reports),
        statistics: match settings.config.gates.configured(Gate::NetworkPolicyStats) {
            true => Statistics::On,
            false => Statistics::Off,
        },
        shutdown: shutdown.clone(),
    })
    .await?;
    let serving = server.serving.clone();
    let (reader, of, terms) = (client.clone(), namespace.to_owned(), settings.certificates);
    let is_shown = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&is_shown);
    tokio::spawn(identity::follow(reader, of, serving, terms, shown, shutdown.clone()));
    // Until then the API server, which is told of one authority for all replicas, would not trust
    // this one, and tries again only after a minute.
    checks.add_ready("serving-certificate", move || match is_shown.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err("the certificate of all replicas is not there yet".to_owned()),
    });
    let (facts_tx, facts_rx) = mpsc::unbounded_channel();
    tokio::spawn(policy::follow_facts(Arc::clone(&reports), Arc::clone(&state), facts_rx));
    tokio::spawn(policy::feed(client.clone(), Arc::clone(&state), facts_tx, shutdown.clone()));
    let computed = Arc::clone(&state);
    checks.add_ready("policies", move || match computed.is_complete() {
        true => Ok(()),
        false => Err("not everything has been read yet".to_owned()),
    });
    let (peers, of) = (client.clone(), namespace.to_owned());
    tokio::spawn(policy::tell_peers(peers, of, Arc::clone(&reports), shutdown.clone()));
    tokio::spawn(policy::forget_traffic(
        Arc::clone(&reports),
        Arc::clone(&state),
        shutdown.clone(),
    ));
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
    tracing::info!(server = client.server(), api = %server.local_addr, "antrea-controller runs");

    lead(elector.leadership(), &shutdown, || {
        Leader::start(&client, &setup, &reports, &state, &metrics)
    })
    .await;
    elector.release().await;
    server.tls.shutdown(PATIENCE).await;
    tracing::info!("antrea-controller ended");
    Ok(())
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
