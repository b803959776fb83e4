//! Whom the cluster's API server lets speak for others, followed as it changes.

use std::time::Duration;

use antrea_runtime::CancellationToken;
use apiserver::trust::{ClientTrust, FrontProxy, Trusted};
use kube_io::Client;
use kube_io::aggregation::{self, AuthenticationConfig};

/// How often the ConfigMap is read.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How soon it is read again when that failed.
const LOOK_SOON: Duration = Duration::from_secs(2);

/// Believes as the cluster says, until `stop`.
pub(super) async fn follow(client: Client, trust: ClientTrust, stop: CancellationToken) {
    let mut known: Option<AuthenticationConfig> = None;
    loop {
        let wait = match aggregation::authentication_config(&client).await {
            Ok(Some(config)) => {
                if known.as_ref() != Some(&config) {
                    match trust.replace(trusted(&config)) {
                        Ok(()) => tracing::info!("trusts the API server's front proxy"),
                        Err(error) => tracing::warn!(%error, "authorities cannot be used"),
                    }
                    known = Some(config);
                }
                LOOK_AGAIN
            }
            Ok(None) => LOOK_SOON,
            Err(error) => {
                tracing::warn!(error = %error.chain(), "read extension-apiserver-authentication");
                LOOK_SOON
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn trusted(config: &AuthenticationConfig) -> Trusted {
    let usual = FrontProxy::default();
    let or = |given: &[String], usual: Vec<String>| match given {
        [] => usual,
        given => given.iter().map(|name| name.to_ascii_lowercase()).collect(),
    };
    let front_proxy = (!config.request_header_ca.is_empty()).then(|| FrontProxy {
        ca_pem: config.request_header_ca.clone(),
        allowed_names: config.allowed_names.clone(),
        user_headers: or(&config.username_headers, usual.user_headers),
        uid_headers: or(&config.uid_headers, usual.uid_headers),
        group_headers: or(&config.group_headers, usual.group_headers),
        extra_prefixes: or(&config.extra_header_prefixes, usual.extra_prefixes),
    });
    Trusted { client_ca_pem: config.client_ca.clone(), front_proxy }
}
