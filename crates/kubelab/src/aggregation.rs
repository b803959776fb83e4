//! APIServices: whether their servers answer, and requests handed on to them.
//!
//! Each is tried when it, its Service or the slices change, and otherwise now and then. What it
//! serves is learned by the same request that tries it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use apiserver::aggregation::{
    Aggregator, Served, aggregated_resources, name_user, passed_on, request_in_name,
};
use apiserver::api::Api;
use apiserver::body::{self, Response};
use apiserver::meta;
use apiserver::pki::Identity;
use apiserver::resource::{Gone, collection};
use apiserver::server::Request;
use apiserver::status::ApiError;
use apiserver::store::{Store, Stored};
use apiserver::upstream::{Dial, Upstream};
use apiserver::user::{MASTERS, User};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::endpoints::{self, Missing};
use crate::kinds::{each, text};

/// API group of APIServices.
pub(crate) const GROUP: &str = "apiregistration.k8s.io";
/// How often one that answers is tried.
const TRY_AGAIN: Duration = Duration::from_secs(10);
/// How often one that does not is tried.
const TRY_SOON: Duration = Duration::from_millis(500);
/// How long a trial may take.
const TRIAL: Duration = Duration::from_secs(5);
/// Largest discovery document that is read.
const MAX_DOCUMENT: usize = 1 << 20;

/// What is known of one APIService.
#[derive(Default)]
struct Known {
    served: Option<Served>,
    tried: Option<Instant>,
    upstream: Option<(String, Arc<Upstream>)>,
}

/// All APIServices of a store.
pub(crate) struct Aggregation {
    store: Arc<Store>,
    identity: Identity,
    dial: Dial,
    known: Mutex<HashMap<String, Known>>,
}

fn plain(code: u16, message: String) -> Response {
    body::text(code, format!("{message}\n"))
}

impl Aggregation {
    pub(crate) fn new(store: Arc<Store>, identity: Identity, dial: Dial) -> Self {
        Self { store, identity, dial, known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, group: &str, version: &str) -> Option<Stored> {
        self.store.get(&collection(GROUP, "apiservices"), &format!("{version}.{group}"))
    }

    /// The connections to an APIService's server; new ones when what it should show has changed.
    fn upstream(&self, service: &Value) -> Result<Arc<Upstream>, ApiError> {
        let spec = &service["spec"];
        let (namespace, name) =
            (text(&spec["service"], "namespace"), text(&spec["service"], "name"));
        let id = format!("{name}.{namespace} {}", text(spec, "caBundle"));
        let mut known = self.known();
        let known = known.entry(meta::name(service).to_owned()).or_default();
        if let Some((own, upstream)) = &known.upstream
            && *own == id
        {
            return Ok(Arc::clone(upstream));
        }
        let ca = BASE64.decode(text(spec, "caBundle")).unwrap_or_default();
        let ca = String::from_utf8_lossy(&ca).into_owned();
        let server = format!("{name}.{namespace}.svc");
        let upstream = Upstream::new(&server, &ca, Some(&self.identity), Arc::clone(&self.dial))
            .map_err(ApiError::internal)?;
        let upstream = Arc::new(upstream);
        known.upstream = Some((id, Arc::clone(&upstream)));
        Ok(upstream)
    }

    fn find(&self, service: &Value) -> Result<endpoints::Found, Missing> {
        let reference = &service["spec"]["service"];
        let port = reference["port"].as_i64().unwrap_or(443);
        endpoints::find(&self.store, text(reference, "namespace"), text(reference, "name"), port)
    }

    /// What its server says that it serves, or reason and message why it does not.
    async fn discover(&self, service: &Value) -> Result<Value, (&'static str, String)> {
        let spec = &service["spec"];
        let (namespace, name) =
            (text(&spec["service"], "namespace"), text(&spec["service"], "name"));
        let found = self.find(service).map_err(|missing| match missing {
            Missing::Service => {
                ("ServiceNotFound", format!("service/{name} in {namespace:?} is not present"))
            }
            Missing::Port => (
                "ServicePortError",
                format!(
                    "service/{name} in {namespace:?} is not listening on port {}",
                    spec["service"]["port"]
                ),
            ),
            Missing::Slices => (
                "EndpointsNotFound",
                format!("cannot find endpointslices for service/{name} in {namespace:?}"),
            ),
            Missing::Ready => (
                "MissingEndpoints",
                format!("endpoints for service/{name} in {namespace:?} have no addresses"),
            ),
        })?;
        let path = format!("/apis/{}/{}", text(spec, "group"), text(spec, "version"));
        let failed = |why: String| {
            let url = format!("https://{}{path}", found.host);
            let message = format!("failing or missing response from {url}: {why}");
            ("FailedDiscoveryCheck", message)
        };
        let upstream = self.upstream(service).map_err(|error| failed(error.to_string()))?;
        let mut request = hyper::Request::new(body::empty());
        *request.uri_mut() =
            path.parse().map_err(|_| failed("the path is malformed".to_owned()))?;
        name_user(request.headers_mut(), &User::new("system:kube-aggregator", [MASTERS]));
        let answer = upstream
            .send_to_any(&found.addresses, &found.host, request)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let status = answer.status();
        if !status.is_success() {
            return Err(failed(format!("bad status from {path}: {}", status.as_u16())));
        }
        let document = Limited::new(answer.into_body(), MAX_DOCUMENT).collect().await;
        let document = document.map_err(|error| failed(error.to_string()))?.to_bytes();
        serde_json::from_slice(&document).map_err(|error| failed(error.to_string()))
    }

    async fn check(&self, api: &Api, service: Stored) {
        let value = service.value();
        let outcome = match tokio::time::timeout(TRIAL, self.discover(value)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(("FailedDiscoveryCheck", "no answer in time".to_owned())),
        };
        let condition = match &outcome {
            Ok(_) => ("True", "Passed", "all checks passed".to_owned()),
            Err((reason, message)) => ("False", *reason, message.clone()),
        };
        {
            let mut known = self.known();
            let known = known.entry(meta::name(value).to_owned()).or_default();
            known.tried = Some(Instant::now());
            known.served = outcome.ok().map(|list| Served {
                group: text(&value["spec"], "group").to_owned(),
                version: text(&value["spec"], "version").to_owned(),
                resources: aggregated_resources(&list),
            });
        }
        set_available(api, value, condition);
    }

    /// Tries all that are due.
    async fn step(self: &Arc<Self>, api: &Arc<Api>, changed: bool) {
        let (_, services) = self.store.list(&collection(GROUP, "apiservices"), "");
        self.known().retain(|name, _| services.iter().any(|s| meta::name(s.value()) == name));
        let mut checks = tokio::task::JoinSet::new();
        for service in services {
            let due = match self.known().get(meta::name(service.value())) {
                Some(Known { tried: Some(tried), served, .. }) => {
                    let patience = if served.is_some() { TRY_AGAIN } else { TRY_SOON };
                    changed || tried.elapsed() >= patience
                }
                _ => true,
            };
            if due {
                let (own, api) = (Arc::clone(self), Arc::clone(api));
                checks.spawn(async move { own.check(&api, service).await });
            }
        }
        checks.join_all().await;
    }

    /// Keeps trying until the API stops.
    pub(crate) async fn run(self: Arc<Self>, api: Arc<Api>) {
        let watched = [
            collection(GROUP, "apiservices"),
            "services".to_owned(),
            "discovery.k8s.io/endpointslices".to_owned(),
        ];
        let mut wakers: Vec<_> = watched.iter().map(|name| self.store.subscribe(name)).collect();
        let mut changed = true;
        loop {
            wakers.iter_mut().for_each(|waker| drop(waker.borrow_and_update()));
            self.step(&api, changed).await;
            let any = futures::future::select_all(
                wakers.iter_mut().map(|waker| Box::pin(waker.changed())),
            );
            changed = tokio::select! {
                () = api.stopping.cancelled() => return,
                _ = any => true,
                () = tokio::time::sleep(TRY_SOON) => false,
            };
        }
    }
}

fn set_available(api: &Api, service: &Value, condition: (&str, &str, String)) {
    let (status, reason, message) = condition;
    let name = collection(GROUP, "apiservices");
    api.store.write(|tx| {
        let Some(now) = tx.get(&name, meta::name(service)) else { return };
        let old = each(&now.value()["status"], "conditions").find(|c| c["type"] == "Available");
        let same = |field: &str, value: &str| old.is_some_and(|old| text(old, field) == value);
        if same("status", status) && same("reason", reason) && same("message", &message) {
            return;
        }
        let since = match old {
            Some(old) if same("status", status) => old["lastTransitionTime"].clone(),
            _ => json!(meta::now()),
        };
        let mut value = now.value().clone();
        value["status"] = json!({ "conditions": [{
            "type": "Available", "status": status, "lastTransitionTime": since,
            "reason": reason, "message": message,
        }] });
        let stored = tx.put(&name, meta::name(service), value);
        if let Some(resource) = api.registry.get(GROUP, "v1", "apiservices") {
            resource.strategy.written(tx, stored.value(), Gone::No);
        }
    });
}

impl Aggregator for Aggregation {
    fn claims(&self, group: &str, version: &str) -> bool {
        self.get(group, version).is_some()
    }

    fn served(&self) -> Vec<Served> {
        let known = self.known();
        let mut all = BTreeMap::new();
        for service in self.store.list(&collection(GROUP, "apiservices"), "").1 {
            let spec = &service.value()["spec"];
            let name = meta::name(service.value());
            let served = known.get(name).and_then(|known| known.served.clone());
            let rank = |field: &str| std::cmp::Reverse(spec[field].as_i64());
            if let Some(served) = served {
                let rank = (rank("groupPriorityMinimum"), rank("versionPriority"));
                all.insert((rank, name.to_owned()), served);
            }
        }
        all.into_values().collect()
    }

    fn forward(
        &self,
        group: &str,
        version: &str,
        user: User,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let Some(service) = self.get(group, version) else {
            return Box::pin(async { Ok(plain(404, "404 page not found".to_owned())) });
        };
        let tried = |known: &Known| known.served.is_some();
        let available = self.known().get(meta::name(service.value())).is_some_and(tried);
        let (found, upstream) = (self.find(service.value()), self.upstream(service.value()));
        Box::pin(async move {
            let (Ok(found), true) = (found, available) else {
                return Ok(plain(503, "service unavailable".to_owned()));
            };
            let request = request_in_name(&user, &found.host, request);
            match upstream?.send_to_any(&found.addresses, &found.host, request).await {
                Ok(answer) => Ok(passed_on(answer)),
                Err(error) => Ok(plain(503, format!("error trying to reach service: {error}"))),
            }
        })
    }
}
