//! The key and certificate that this server shows: one for all replicas, made by the leader.
//!
//! It is kept in a Secret. Its authority is published in a ConfigMap, for agents, and written into
//! the API server's registrations. A replica shows a certificate of its own until it has read the
//! common one, so that its health can be asked.

use std::time::Duration;

use antrea_runtime::CancellationToken;
use apiserver::pki::{Authority, Identity, PkiError};
use apiserver::trust::ServingCert;
use kube_io::aggregation::{self, ServingKey, Trusting};
use kube_io::{ApiError, Client};

/// Secret with the common key.
const SECRET: &str = "antrea-controller-tls";
/// ConfigMap with the authority.
const CA_MAP: &str = "antrea-ca";
/// How often a replica looks whether the common key changed.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How soon a replica looks again when there is none, or looking failed.
const LOOK_SOON: Duration = Duration::from_millis(500);

/// What the API server must trust us for.
const REGISTRATIONS: &[(Trusting, &str)] = &[
    (Trusting::ApiService, "v1beta2.controlplane.antrea.io"),
    (Trusting::Validating, "crdvalidator.antrea.io"),
    (Trusting::Mutating, "crdmutator.antrea.io"),
];

fn names(namespace: &str) -> Vec<String> {
    vec![
        format!("antrea.{namespace}.svc"),
        format!("antrea.{namespace}.svc.cluster.local"),
        format!("antrea.{namespace}"),
        "antrea".to_owned(),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
        "::1".to_owned(),
    ]
}

fn issue(namespace: &str) -> Result<ServingKey, PkiError> {
    let authority = Authority::create("antrea-ca")?;
    let identity = authority.issue_serving(&names(namespace))?;
    Ok(ServingKey {
        ca_pem: authority.cert_pem().to_owned(),
        cert_pem: identity.cert_pem,
        key_pem: identity.key_pem,
    })
}

/// A certificate of this replica's own.
pub(super) fn own_identity(namespace: &str) -> Result<Identity, PkiError> {
    let key = issue(namespace)?;
    Ok(Identity { cert_pem: key.cert_pem, key_pem: key.key_pem })
}

/// Shows the common certificate from when there is one, and each that takes its place.
pub(crate) async fn follow(
    client: Client,
    namespace: String,
    serving: ServingCert,
    stop: CancellationToken,
) {
    let mut shown: Option<ServingKey> = None;
    loop {
        let wait = match aggregation::serving_key(&client, &namespace, SECRET).await {
            Ok(Some(key)) => {
                if shown.as_ref() != Some(&key) {
                    let identity =
                        Identity { cert_pem: key.cert_pem.clone(), key_pem: key.key_pem.clone() };
                    match serving.replace(&identity) {
                        Ok(()) => tracing::info!("shows the common serving certificate"),
                        Err(error) => tracing::warn!(%error, "the common key cannot be used"),
                    }
                    shown = Some(key);
                }
                LOOK_AGAIN
            }
            Ok(None) => LOOK_SOON,
            Err(error) => {
                tracing::debug!(error = %error.chain(), "read the common serving key");
                LOOK_SOON * 4
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// What the leader does: makes the common key if there is none, and has it trusted.
pub(crate) async fn publish(client: Client, namespace: String, stop: CancellationToken) {
    loop {
        let wait = match publish_once(&client, &namespace).await {
            Ok(()) => LOOK_AGAIN,
            Err(error) => {
                tracing::warn!(error = %error.chain(), "publish the serving authority");
                LOOK_SOON * 4
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

async fn publish_once(client: &Client, namespace: &str) -> Result<(), ApiError> {
    let key = match aggregation::serving_key(client, namespace, SECRET).await? {
        Some(key) => key,
        None => match issue(namespace) {
            Ok(key) => {
                aggregation::put_serving_key(client, namespace, SECRET, &key).await?;
                key
            }
            Err(error) => {
                tracing::error!(%error, "make the common serving key");
                return Ok(());
            }
        },
    };
    aggregation::publish_ca(client, namespace, CA_MAP, &key.ca_pem).await?;
    for (what, name) in REGISTRATIONS {
        aggregation::inject_ca(client, *what, name, &key.ca_pem).await?;
    }
    Ok(())
}
