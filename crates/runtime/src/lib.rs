//! What every daemon of ours shares: log flags, health endpoints over HTTPS, signals, the version.
//!
//! Turns command-line flags into a running logger, and a set of named checks into `/livez`,
//! `/readyz` and `/healthz`. Knows nothing of Kubernetes or Open vSwitch.
//! Not here: configuration files (`antrea_config`), the aggregated API (`apiserver`).

pub mod certificate;
pub mod health;
pub mod logging;
pub mod shutdown;
pub mod token;

pub use health::checks::Checks;
pub use health::server::{HealthConfig, HealthError, HealthServer, Metrics, Page};
pub use logging::{LogArgs, LogError};
pub use tokio_util::sync::CancellationToken;

/// Version that programs report in `--version`, in their logs and in the API.
///
/// Packagers set `ANTREA_VERSION` when they compile; otherwise it is the crates' version.
pub const VERSION: &str = match option_env!("ANTREA_VERSION") {
    Some(version) => version,
    None => concat!("v", env!("CARGO_PKG_VERSION")),
};

/// Makes *ring* the TLS provider of this process; every `main` calls it first.
pub fn install_crypto() {
    // An error means that a provider is installed already, which is what we want.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
