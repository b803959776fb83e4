//! What a server behind an `APIService` needs of the cluster: its key, who trusts it, whom it trusts,
//! and the cluster's judgement of tokens and acts.

use std::collections::BTreeMap;

use apis::common::ByteString;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// A serving certificate with its authority, PEM all.
#[derive(Clone, PartialEq, Eq)]
pub struct ServingKey {
    /// Authority that clients trust.
    pub ca_pem: String,
    /// Certificate.
    pub cert_pem: String,
    /// Private key.
    pub key_pem: String,
}

impl std::fmt::Debug for ServingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingKey").field("ca_pem", &self.ca_pem).finish_non_exhaustive()
    }
}

/// The serving key of all replicas, and those before and after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingKeys {
    /// The one that is shown.
    pub current: ServingKey,
    /// The one that is shown next, once everybody trusts its authority; and since when they are told
    /// to, in seconds of Unix time.
    pub next: Option<(ServingKey, i64)>,
    /// Authority of the one that was shown before, PEM.
    pub former_ca_pem: Option<String>,
    /// Version of the object, for a conditional write; empty before the first.
    pub version: String,
}

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: BTreeMap<String, ByteString>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    resource_version: String,
}

const CA: &str = "ca.crt";
const CERT: &str = "tls.crt";
const KEY: &str = "tls.key";
const NEXT: [&str; 3] = ["next-ca.crt", "next-tls.crt", "next-tls.key"];
const NEXT_SINCE: &str = "next-since";
const FORMER_CA: &str = "former-ca.crt";

/// Reads the serving keys that all replicas share; `None` if there is no whole one.
///
/// # Errors
/// When the server does not answer.
pub async fn serving_keys(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<ServingKeys>, ApiError> {
    let call = Call::to(Verb::Get, "", "v1", "secrets").namespace(namespace).name(name);
    let mut secret = match call.send::<Secret>(client).await {
        Err(error) if error.is_not_found() => return Ok(None),
        result => result?,
    };
    let mut text = |key: &str| {
        let bytes = secret.data.remove(key)?.0;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    };
    let mut key = |[ca, cert, key]: [&str; 3]| {
        Some(ServingKey { ca_pem: text(ca)?, cert_pem: text(cert)?, key_pem: text(key)? })
    };
    let (Some(current), next) = (key([CA, CERT, KEY]), key(NEXT)) else { return Ok(None) };
    let since = text(NEXT_SINCE).and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Some(ServingKeys {
        current,
        next: next.map(|next| (next, since)),
        former_ca_pem: text(FORMER_CA),
        version: secret.metadata.resource_version,
    }))
}

/// Keeps serving keys for all replicas, provided that they are still as they were read; those of an
/// empty version take the place of whatever is there.
///
/// # Errors
/// When the server refuses; [`ApiError::is_conflict`] if somebody else wrote in between.
pub async fn put_serving_keys(
    client: &Client,
    namespace: &str,
    name: &str,
    keys: &ServingKeys,
) -> Result<(), ApiError> {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, text: &str| {
        data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
    };
    let names = [[CA, CERT, KEY], NEXT];
    let all = [Some(&keys.current), keys.next.as_ref().map(|(next, _)| next)];
    for ([ca, cert, key], own) in names.into_iter().zip(all) {
        if let Some(own) = own {
            put(ca, &own.ca_pem);
            put(cert, &own.cert_pem);
            put(key, &own.key_pem);
        }
    }
    if let Some((_, since)) = &keys.next {
        put(NEXT_SINCE, &since.to_string());
    }
    if let Some(pem) = &keys.former_ca_pem {
        put(FORMER_CA, pem);
    }
    let mut secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "antrea"}},
        "type": "kubernetes.io/tls",
        "data": data,
    });
    let to = |verb| Call::to(verb, "", "v1", "secrets").namespace(namespace);
    if !keys.version.is_empty() {
        secret["metadata"]["resourceVersion"] = json!(keys.version);
        return to(Verb::Update).name(name).object(&secret).run(client).await;
    }
    match to(Verb::Create).object(&secret).run(client).await {
        Err(error) if error.is_already_exists() => {
            to(Verb::Update).name(name).object(&secret).run(client).await
        }
        result => result,
    }
}

#[derive(Deserialize)]
struct ConfigMap {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

/// Publishes an authority in a ConfigMap, for clients that reach the server by themselves.
///
/// # Errors
/// When the server refuses.
pub async fn publish_ca(
    client: &Client,
    namespace: &str,
    name: &str,
    ca_pem: &str,
) -> Result<(), ApiError> {
    let to = |verb| Call::to(verb, "", "v1", "configmaps").namespace(namespace);
    let map = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "antrea"}},
        "data": {CA: ca_pem},
    });
    match to(Verb::Get).name(name).send::<ConfigMap>(client).await {
        Ok(there) if there.data.get(CA).map(String::as_str) == Some(ca_pem) => Ok(()),
        Ok(_) => to(Verb::Update).name(name).object(&map).run(client).await,
        Err(error) if error.is_not_found() => match to(Verb::Create).object(&map).run(client).await
        {
            Err(error) if error.is_already_exists() => Ok(()),
            result => result,
        },
        Err(error) => Err(error),
    }
}

/// Reads the authority that [`publish_ca`] published; `None` if it is not there.
///
/// # Errors
/// When the server does not answer.
pub async fn published_ca(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, ApiError> {
    let call = Call::to(Verb::Get, "", "v1", "configmaps").namespace(namespace).name(name);
    match call.send::<ConfigMap>(client).await {
        Ok(mut map) => Ok(map.data.remove(CA).filter(|pem| !pem.is_empty())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What the API server is to trust a server of ours for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusting {
    /// An `APIService`.
    ApiService,
    /// A `ValidatingWebhookConfiguration`.
    Validating,
    /// A `MutatingWebhookConfiguration`.
    Mutating,
}

/// Makes the API server trust an authority for one of its registrations, and says whether that is
/// there.
///
/// # Errors
/// When the server refuses.
pub async fn inject_ca(
    client: &Client,
    what: Trusting,
    name: &str,
    ca_pem: &str,
) -> Result<bool, ApiError> {
    let (group, plural) = match what {
        Trusting::ApiService => ("apiregistration.k8s.io", "apiservices"),
        Trusting::Validating => ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        Trusting::Mutating => ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    };
    let call = |verb| Call::to(verb, group, "v1", plural).name(name);
    let mut object: Value = match call(Verb::Get).send(client).await {
        Err(error) if error.is_not_found() => return Ok(false),
        result => result?,
    };
    let before = object.clone();
    let bundle = json!(ByteString(ca_pem.as_bytes().to_vec()));
    match what {
        Trusting::ApiService => object["spec"]["caBundle"] = bundle,
        _ => {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["clientConfig"]["caBundle"] = bundle.clone();
            }
        }
    }
    if object != before {
        call(Verb::Update).object(&object).run(client).await?;
    }
    Ok(true)
}

/// Whom the API server lets speak for others, and whose certificates it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationConfig {
    /// Authorities of client certificates.
    pub client_ca: String,
    /// Authorities of front proxies.
    pub request_header_ca: String,
    /// Names that a front proxy's certificate may have.
    pub allowed_names: Vec<String>,
    /// Headers with the user's name.
    pub username_headers: Vec<String>,
    /// Headers with the user's UID.
    pub uid_headers: Vec<String>,
    /// Headers with groups.
    pub group_headers: Vec<String>,
    /// Beginnings of headers with further facts.
    pub extra_header_prefixes: Vec<String>,
}

/// Reads `kube-system/extension-apiserver-authentication`; `None` if it is not there.
///
/// # Errors
/// When the server does not answer.
pub async fn authentication_config(
    client: &Client,
) -> Result<Option<AuthenticationConfig>, ApiError> {
    let call = Call::to(Verb::Get, "", "v1", "configmaps")
        .namespace("kube-system")
        .name("extension-apiserver-authentication");
    let map = match call.send::<ConfigMap>(client).await {
        Err(error) if error.is_not_found() => return Ok(None),
        result => result?,
    };
    let text = |key: &str| map.data.get(key).cloned().unwrap_or_default();
    let list = |key: &str| -> Vec<String> { serde_json::from_str(&text(key)).unwrap_or_default() };
    Ok(Some(AuthenticationConfig {
        client_ca: text("client-ca-file"),
        request_header_ca: text("requestheader-client-ca-file"),
        allowed_names: list("requestheader-allowed-names"),
        username_headers: list("requestheader-username-headers"),
        uid_headers: list("requestheader-uid-headers"),
        group_headers: list("requestheader-group-headers"),
        extra_header_prefixes: list("requestheader-extra-headers-prefix"),
    }))
}

/// A user, as reviews name one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReviewedUser {
    /// Name.
    pub username: String,
    /// UID.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Further facts.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Asks whose token something is; `None` if it is nobody's.
///
/// # Errors
/// When the server does not answer.
pub async fn review_token(client: &Client, token: &str) -> Result<Option<ReviewedUser>, ApiError> {
    #[derive(Deserialize)]
    struct Answer {
        status: Status,
    }
    #[derive(Deserialize)]
    #[serde(default)]
    #[derive(Default)]
    struct Status {
        authenticated: bool,
        user: ReviewedUser,
    }
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    });
    let call = Call::to(Verb::Create, "authentication.k8s.io", "v1", "tokenreviews");
    let answer: Answer = call.object(&body).send(client).await?;
    Ok(answer.status.authenticated.then_some(answer.status.user))
}

/// On what an act is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActTarget {
    /// A resource.
    Resource {
        /// API group.
        group: String,
        /// Plural name.
        resource: String,
        /// Subresource; empty for none.
        subresource: String,
        /// Namespace; empty for all.
        namespace: String,
        /// Name; empty for all.
        name: String,
    },
    /// A path that is no resource.
    Path(String),
}

/// Asks whether a user may do something; gives the answer and its reason.
///
/// # Errors
/// When the server does not answer.
pub async fn review_access(
    client: &Client,
    user: &ReviewedUser,
    verb: &str,
    target: &ActTarget,
) -> Result<(bool, String), ApiError> {
    #[derive(Deserialize)]
    struct Answer {
        status: Status,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        allowed: bool,
        reason: String,
    }
    let mut spec = json!({
        "user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra,
    });
    match target {
        ActTarget::Resource { group, resource, subresource, namespace, name } => {
            spec["resourceAttributes"] = json!({
                "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name, "verb": verb,
            });
        }
        ActTarget::Path(path) => {
            spec["nonResourceAttributes"] = json!({"path": path, "verb": verb});
        }
    }
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": spec,
    });
    let call = Call::to(Verb::Create, "authorization.k8s.io", "v1", "subjectaccessreviews");
    let answer: Answer = call.object(&body).send(client).await?;
    Ok((answer.status.allowed, answer.status.reason))
}
