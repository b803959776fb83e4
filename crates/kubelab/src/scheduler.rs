//! Puts Pods on nodes, through the API like any other client.

/// Where and as whom the scheduler works.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// URL of the API server, as `https://127.0.0.1:6443`.
    pub server: String,
    /// Certificate of the cluster's authority, PEM.
    pub ca_pem: String,
    /// Bearer token.
    pub token: String,
}

/// Runs until `stop` is cancelled; failures are logged and tried again.
pub async fn run(_options: SchedulerOptions, stop: tokio_util::sync::CancellationToken) {
    stop.cancelled().await;
}
