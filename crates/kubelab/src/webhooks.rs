//! Calling admission webhooks: who wants to be asked, and what they say.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use apiserver::admission::{Review, Webhooks, denied, rule_matches};
use apiserver::body;
use apiserver::patch::PatchFormat;
use apiserver::rbac::selects;
use apiserver::resource::{Resource, collection};
use apiserver::status::ApiError;
use apiserver::store::Store;
use apiserver::upstream::{Dial, Upstream};
use apiserver::webhook::Operation;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use crate::endpoints;
use crate::kinds::{NAMESPACES, each, text};

/// API group of webhook configurations.
pub(crate) const GROUP: &str = "admissionregistration.k8s.io";
/// Largest answer that is read.
const MAX_ANSWER: usize = 4 << 20;

/// The webhooks that a store's configurations name.
pub(crate) struct Callers {
    store: Arc<Store>,
    dial: Dial,
    open: Mutex<HashMap<(String, String), Arc<Upstream>>>,
}

/// Why a webhook gave no verdict.
type Failure = String;

impl Callers {
    pub(crate) fn new(store: Arc<Store>, dial: Dial) -> Self {
        Self { store, dial, open: Mutex::default() }
    }

    /// The webhooks of one kind that want to know about such writes, in order.
    fn concerned(
        &self,
        plural: &str,
        resource: &Resource,
        subresource: &str,
        operation: Operation,
    ) -> Vec<Value> {
        if resource.group == GROUP {
            return Vec::new(); // Nobody locks out the one who could unlock it.
        }
        let (_, configurations) = self.store.list(&collection(GROUP, plural), "");
        let hooks = configurations.iter().flat_map(|c| each(c.value(), "webhooks"));
        let wants = |hook: &&Value| {
            each(hook, "rules").any(|rule| rule_matches(rule, resource, subresource, operation))
        };
        hooks.filter(wants).cloned().collect()
    }

    fn selected(&self, hook: &Value, review: &Review<'_>) -> bool {
        let either = |selector: &Value| {
            [&review.object, &review.old]
                .into_iter()
                .any(|object| object.is_object() && selects(selector, object))
        };
        let namespace = match (review.resource.plural.as_str(), review.namespace) {
            (NAMESPACES, _) if review.resource.group.is_empty() => {
                either(&hook["namespaceSelector"])
            }
            (_, "") => true,
            (_, namespace) => self
                .store
                .get(NAMESPACES, namespace)
                .is_some_and(|found| selects(&hook["namespaceSelector"], found.value())),
        };
        namespace && either(&hook["objectSelector"])
    }

    /// Where a webhook is: its addresses, host and path, and the connections to it.
    async fn target(
        &self,
        client: &Value,
    ) -> Result<(Vec<SocketAddr>, String, String, Arc<Upstream>), Failure> {
        let service = &client["service"];
        let (addresses, host, name, path) = if service.is_object() {
            let (namespace, name) = (text(service, "namespace"), text(service, "name"));
            let port = service["port"].as_i64().unwrap_or(443);
            let found = endpoints::find(&self.store, namespace, name, port)
                .map_err(|_| format!("no endpoints available for service {name:?}"))?;
            let server = format!("{name}.{namespace}.svc");
            (found.addresses, format!("{server}:{port}"), server, text(service, "path").to_owned())
        } else {
            let url: hyper::Uri = text(client, "url")
                .parse()
                .map_err(|_| format!("url {:?} is malformed", text(client, "url")))?;
            let name = url.host().unwrap_or("").trim_matches(['[', ']']).to_owned();
            let port = url.port_u16().unwrap_or(443);
            let found = tokio::net::lookup_host((name.as_str(), port)).await;
            let found = found.map_err(|error| format!("lookup {name}: {error}"))?.next();
            let address = found.ok_or_else(|| format!("lookup {name}: no address"))?;
            let host = url.authority().map_or_else(String::new, ToString::to_string);
            (vec![address], host, name, url.path().to_owned())
        };
        let key = (name.clone(), text(client, "caBundle").to_owned());
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(upstream) = open.get(&key) {
            return Ok((addresses, host, path, Arc::clone(upstream)));
        }
        let ca = BASE64.decode(&key.1).unwrap_or_default();
        let ca = String::from_utf8_lossy(&ca).into_owned();
        let upstream = Upstream::new(&name, &ca, None, Arc::clone(&self.dial))
            .map_err(|error| error.to_string())?;
        let upstream = Arc::new(upstream);
        open.insert(key, Arc::clone(&upstream));
        Ok((addresses, host, path, upstream))
    }

    async fn ask(&self, hook: &Value, question: &Value) -> Result<Value, Failure> {
        let seconds = hook["timeoutSeconds"].as_u64().unwrap_or(10);
        let (addresses, host, path, upstream) = self
            .target(&hook["clientConfig"])
            .await
            .map_err(|why| format!("failed to call webhook: {why}"))?;
        let path = format!("{path}?timeout={seconds}s");
        let failed =
            |why: String| format!("failed to call webhook: Post \"https://{host}{path}\": {why}");
        let request = hyper::Request::post(&path)
            .header("content-type", "application/json")
            .header("accept", "application/json, */*")
            .header("user-agent", "kube-apiserver-admission")
            .body(body::full(question.to_string()))
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let answer = upstream.send_to_any(&addresses, &host, request).await;
            let answer = answer.map_err(|error| failed(error.to_string()))?;
            let status = answer.status();
            let bytes = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let bytes = bytes.map_err(|error| failed(error.to_string()))?.to_bytes();
            if !status.is_success() {
                let text = String::from_utf8_lossy(&bytes);
                return Err(format!(
                    "failed to call webhook: an error on the server ({:?}) has prevented the \
                     request from succeeding",
                    text.trim()
                ));
            }
            Ok(bytes)
        };
        let bytes = tokio::time::timeout(Duration::from_secs(seconds), exchange)
            .await
            .map_err(|_| failed("context deadline exceeded".to_owned()))??;
        let invalid = |why: &str| format!("received invalid webhook response: {why}");
        let answer: Value =
            serde_json::from_slice(&bytes).map_err(|error| invalid(&error.to_string()))?;
        let response = &answer["response"];
        if !response.is_object() {
            return Err(invalid("webhook response was absent"));
        }
        if response["uid"] != question["request"]["uid"] {
            return Err(invalid("response.uid is not the request's"));
        }
        Ok(response.clone())
    }

    /// What one webhook answers; `None` when it failed and may.
    async fn verdict(&self, hook: &Value, review: &Review<'_>) -> Result<Option<Value>, ApiError> {
        let name = text(hook, "name");
        match self.ask(hook, &review.question()).await {
            Ok(response) if response["allowed"] == true => Ok(Some(response)),
            Ok(response) => Err(denied(name, &response["status"])),
            Err(why) if text(hook, "failurePolicy") == "Ignore" => {
                tracing::warn!(webhook = name, why, "ignored webhook that failed");
                Ok(None)
            }
            Err(why) => Err(ApiError::internal(format!("failed calling webhook {name:?}: {why}"))),
        }
    }
}

const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

impl Webhooks for Callers {
    fn concerns(&self, resource: &Resource, subresource: &str, operation: Operation) -> bool {
        [MUTATING, VALIDATING]
            .into_iter()
            .any(|plural| !self.concerned(plural, resource, subresource, operation).is_empty())
    }

    fn mutate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move {
            let Review { resource, subresource, operation, .. } = review;
            let mut object = review.object.clone();
            for hook in self.concerned(MUTATING, resource, subresource, *operation) {
                let next = Review { object, old: review.old.clone(), ..*review };
                let response = match self.selected(&hook, &next) {
                    true => self.verdict(&hook, &next).await?,
                    false => None,
                };
                object = next.object;
                let Some(patch) = response.as_ref().and_then(|r| r["patch"].as_str()) else {
                    continue;
                };
                let apply = || -> Result<Value, String> {
                    let bytes = BASE64.decode(patch).map_err(|error| error.to_string())?;
                    let shape = &resource.shape;
                    apiserver::patch::apply(PatchFormat::Json, shape, &object, &bytes)
                        .map_err(|error| error.to_string())
                };
                object = apply().map_err(|why| {
                    let name = text(&hook, "name");
                    ApiError::internal(format!("failed calling webhook {name:?}: {why}"))
                })?;
            }
            Ok(object)
        })
    }

    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
    ) -> BoxFuture<'a, Result<Vec<String>, ApiError>> {
        Box::pin(async move {
            let Review { resource, subresource, operation, .. } = review;
            let hooks = self.concerned(VALIDATING, resource, subresource, *operation);
            let hooks: Vec<Value> =
                hooks.into_iter().filter(|hook| self.selected(hook, review)).collect();
            let asked = hooks.iter().map(|hook| self.verdict(hook, review));
            let mut warnings = Vec::new();
            for response in futures::future::try_join_all(asked).await?.into_iter().flatten() {
                let texts = each(&response, "warnings").filter_map(Value::as_str);
                warnings.extend(texts.map(str::to_owned));
            }
            Ok(warnings)
        })
    }
}
