//! The key and certificate that this server shows: one for all replicas, made by the leader.
//!
//! It is kept in a Secret. Its authority is published in a ConfigMap, for agents, and written into
//! the API server's registrations. A replica shows a certificate of its own until it has read the
//! common one, so that its health can be asked.
//!
//! Long before a certificate ends, the leader makes the next one with an authority of its own, and
//! has both authorities trusted; only when everybody had time to learn of it is the next one shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use antrea_runtime::CancellationToken;
use apiserver::pki::{
    Authority, Identity, PkiError, Validity, certificates_from_pem, end_of_certificate,
};
use apiserver::trust::ServingCert;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube_io::aggregation::{self, ServingKey, ServingKeys, Trusting};
use kube_io::replicas::CA_MAP;
use kube_io::{ApiError, Client};

/// Secret with the common key.
const SECRET: &str = "antrea-controller-tls";
/// How soon a replica looks again when there is none, or looking failed.
const LOOK_SOON: Duration = Duration::from_millis(500);

/// What the API server must trust us for.
const REGISTRATIONS: &[(Trusting, &str)] = &[
    (Trusting::ApiService, "v1beta2.controlplane.antrea.io"),
    (Trusting::ApiService, "v1alpha1.stats.antrea.io"),
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

/// How long certificates are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateTerms {
    /// Days that a certificate is valid.
    pub days: i32,
    /// The next one is made so long before the end.
    pub renew_before: Duration,
    /// The next one is shown so long after it was made.
    pub settle: Duration,
    /// How often a replica looks whether the common key changed.
    pub look_again: Duration,
}

impl Default for CertificateTerms {
    fn default() -> Self {
        Self {
            days: 365,
            renew_before: Duration::from_secs(120 * 24 * 3600),
            settle: Duration::from_secs(600),
            look_again: Duration::from_secs(30),
        }
    }
}

/// What is to be done about the common key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing.
    Keep,
    /// The next one is to be made.
    Prepare,
    /// The next one is to be shown.
    Promote,
}

fn decide(keys: &ServingKeys, now: Timestamp, terms: &CertificateTerms) -> Step {
    let left = |key: &ServingKey| {
        let certificates = [&key.ca_pem, &key.cert_pem].map(|pem| certificates_from_pem(pem));
        let ends = certificates.iter().flatten().filter_map(|der| end_of_certificate(der));
        // One that cannot be read has ended.
        ends.min().map_or(i64::MIN, |end| end.as_second().saturating_sub(now.as_second()))
    };
    let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let left_now = left(&keys.current);
    match &keys.next {
        Some((next, _)) if left(next) <= 0 => Step::Prepare,
        Some((_, since)) => {
            let settled = now.as_second() >= since.saturating_add(seconds(terms.settle));
            if settled || left_now <= 0 { Step::Promote } else { Step::Keep }
        }
        None if left_now <= seconds(terms.renew_before) => Step::Prepare,
        None => Step::Keep,
    }
}

/// The keys after a step.
fn after(
    mut keys: ServingKeys,
    step: &Step,
    next: impl FnOnce() -> Result<ServingKey, PkiError>,
    now: Timestamp,
) -> Result<ServingKeys, PkiError> {
    match step {
        Step::Keep => {}
        Step::Prepare => keys.next = Some((next()?, now.as_second())),
        Step::Promote => {
            if let Some((next, _)) = keys.next.take() {
                let former = std::mem::replace(&mut keys.current, next);
                keys.former_ca_pem = Some(former.ca_pem);
            }
        }
    }
    Ok(keys)
}

/// All authorities that are to be trusted, PEM.
fn bundle(keys: &ServingKeys) -> String {
    let next = keys.next.as_ref().map(|(next, _)| next.ca_pem.as_str());
    let all = [Some(keys.current.ca_pem.as_str()), next, keys.former_ca_pem.as_deref()];
    all.into_iter().flatten().map(|pem| format!("{}\n", pem.trim_end())).collect()
}

fn issue(namespace: &str, terms: &CertificateTerms) -> Result<ServingKey, PkiError> {
    let today = Timestamp::now().to_zoned(TimeZone::UTC).date();
    // Clocks differ.
    let from = today.yesterday().unwrap_or(today);
    let until = today.saturating_add(jiff::Span::new().days(terms.days));
    let authority = Authority::create_for("antrea-ca", Validity { from, until })?;
    let identity = authority.issue_serving(&names(namespace))?;
    Ok(ServingKey {
        ca_pem: authority.cert_pem().to_owned(),
        cert_pem: identity.cert_pem,
        key_pem: identity.key_pem,
    })
}

/// A certificate of this replica's own.
pub(super) fn own_identity(namespace: &str) -> Result<Identity, PkiError> {
    let key = issue(namespace, &CertificateTerms::default())?;
    Ok(Identity { cert_pem: key.cert_pem, key_pem: key.key_pem })
}

/// Shows the common certificate from when there is one, and each that takes its place; says when
/// the first one is shown.
pub(crate) async fn follow(
    client: Client,
    namespace: String,
    serving: ServingCert,
    terms: CertificateTerms,
    is_shown: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    let mut shown: Option<ServingKey> = None;
    loop {
        let wait = match aggregation::serving_keys(&client, &namespace, SECRET).await {
            Ok(Some(ServingKeys { current: key, .. })) => {
                if shown.as_ref() != Some(&key) {
                    let identity =
                        Identity { cert_pem: key.cert_pem.clone(), key_pem: key.key_pem.clone() };
                    match serving.replace(&identity) {
                        Ok(()) => {
                            is_shown.store(true, Ordering::Relaxed);
                            tracing::info!("shows the common serving certificate");
                        }
                        Err(error) => tracing::warn!(%error, "the common key cannot be used"),
                    }
                    shown = Some(key);
                }
                terms.look_again
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

/// What the leader does: makes the common key if there is none or it ends, and has it trusted.
pub(crate) async fn publish(
    client: Client,
    namespace: String,
    terms: CertificateTerms,
    stop: CancellationToken,
) {
    loop {
        let wait = match publish_once(&client, &namespace, &terms).await {
            Ok((step, registered)) => next_look(&step, registered, &terms),
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

/// What of the registrations the API server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registered {
    All,
    Some,
}

/// Whoever registers us later is not kept waiting: until then the API server refuses us.
fn next_look(step: &Step, registered: Registered, terms: &CertificateTerms) -> Duration {
    match (step, registered) {
        (Step::Keep, Registered::All) => terms.look_again,
        (Step::Keep, Registered::Some) => (LOOK_SOON * 4).min(terms.look_again),
        _ => LOOK_SOON,
    }
}

async fn publish_once(
    client: &Client,
    namespace: &str,
    terms: &CertificateTerms,
) -> Result<(Step, Registered), ApiError> {
    let now = Timestamp::now();
    let make = || issue(namespace, terms);
    let (keys, step) = match aggregation::serving_keys(client, namespace, SECRET).await? {
        Some(keys) => {
            let step = decide(&keys, now, terms);
            (after(keys, &step, make, now), step)
        }
        None => {
            let keys = make().map(|current| ServingKeys {
                current,
                next: None,
                former_ca_pem: None,
                version: String::new(),
            });
            (keys, Step::Prepare)
        }
    };
    let keys = match keys {
        Ok(keys) => keys,
        Err(error) => {
            tracing::error!(%error, "make the common serving key");
            return Ok((Step::Keep, Registered::All));
        }
    };
    if step != Step::Keep {
        aggregation::put_serving_keys(client, namespace, SECRET, &keys).await?;
        tracing::info!(?step, "changed the common serving key");
    }
    let trusted = bundle(&keys);
    aggregation::publish_ca(client, namespace, CA_MAP, &trusted).await?;
    let mut registered = Registered::All;
    for (what, name) in REGISTRATIONS {
        if !aggregation::inject_ca(client, *what, name, &trusted).await? {
            registered = Registered::Some;
        }
    }
    Ok((step, registered))
}

#[cfg(test)]
mod tests {
    use jiff::civil::{Date, date};

    use super::*;

    #[test]
    fn registrations_that_are_missing_are_looked_for_soon() {
        let terms = CertificateTerms::default();
        for (step, registered, want) in [
            (Step::Keep, Registered::All, terms.look_again),
            (Step::Keep, Registered::Some, Duration::from_secs(2)),
            (Step::Promote, Registered::All, LOOK_SOON),
            (Step::Prepare, Registered::Some, LOOK_SOON),
        ] {
            assert_eq!(next_look(&step, registered, &terms), want, "{step:?} {registered:?}");
        }
    }

    fn mk_key(until: Date) -> ServingKey {
        let from = until.saturating_sub(jiff::Span::new().days(100));
        let authority = Authority::create_for("ca", Validity { from, until }).unwrap();
        let identity = authority.issue_serving(&["localhost".to_owned()]).unwrap();
        let ca_pem = authority.cert_pem().to_owned();
        ServingKey { ca_pem, cert_pem: identity.cert_pem, key_pem: identity.key_pem }
    }

    #[test]
    fn a_key_is_replaced_in_two_steps_and_its_authority_is_trusted_in_between() {
        let terms = CertificateTerms {
            days: 90,
            renew_before: Duration::from_secs(30 * 24 * 3600),
            settle: Duration::from_secs(600),
            look_again: Duration::from_secs(30),
        };
        let at = |date: Date, seconds: i64| {
            let start = date.to_zoned(TimeZone::UTC).unwrap().timestamp().as_second();
            Timestamp::from_second(start + seconds).unwrap()
        };
        let end = date(2027, 4, 1);
        let current = mk_key(end);
        let keys = ServingKeys {
            current: current.clone(),
            next: None,
            former_ca_pem: None,
            version: "7".to_owned(),
        };
        assert_eq!(decide(&keys, at(date(2027, 3, 1), 0), &terms), Step::Keep);
        let now = at(date(2027, 3, 2), 0);
        assert_eq!(decide(&keys, now, &terms), Step::Prepare);
        let next = mk_key(date(2027, 6, 1));
        let keys = after(keys, &Step::Prepare, || Ok(next.clone()), now).unwrap();
        assert_eq!(keys.current, current);
        assert_eq!(certificates_from_pem(&bundle(&keys)).len(), 2);
        assert_eq!(decide(&keys, at(date(2027, 3, 2), 599), &terms), Step::Keep);
        assert_eq!(decide(&keys, at(end, 0), &terms), Step::Promote, "it has ended");
        let now = at(date(2027, 3, 2), 600);
        assert_eq!(decide(&keys, now, &terms), Step::Promote);
        let keys = after(keys, &Step::Promote, || unreachable!(), now).unwrap();
        assert_eq!((&keys.current, &keys.next), (&next, &None));
        assert_eq!(keys.former_ca_pem.as_ref(), Some(&current.ca_pem));
        assert_eq!(certificates_from_pem(&bundle(&keys)).len(), 2);
        assert_eq!(decide(&keys, now, &terms), Step::Keep);
        let broken = ServingKey { cert_pem: "?".into(), ca_pem: "?".into(), ..current };
        let keys = ServingKeys { current: broken, ..keys };
        assert_eq!(decide(&keys, now, &terms), Step::Prepare);
    }
}
