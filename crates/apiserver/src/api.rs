//! One API: from a request to its answer.
//!
//! Authentication, impersonation, authorization, then the resource, discovery or health.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use hyper::Method;
use hyper::header::{HeaderMap, IF_NONE_MATCH};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::admission::Webhooks;
use crate::aggregation::{Aggregator, Served};
use crate::authn::{Authenticator, Credentials};
use crate::authz::{Attributes, Authorizer, Target};
use crate::body::{self, Response};
use crate::discovery::{self, Half};
use crate::negotiate::View;
use crate::objects::{Admission, AdmitAll};
use crate::protobuf::Protobuf;
use crate::request_info::RequestInfo;
use crate::resource::{Call, Registry, Resource};
use crate::server::{Handler, Request};
use crate::status::ApiError;
use crate::store::Store;
use crate::user::{AUTHENTICATED, User};
use crate::{openapi, rest};

/// Everything that answering needs.
pub struct Api {
    /// The objects.
    pub store: Arc<Store>,
    /// The served resources.
    pub registry: Arc<Registry>,
    /// Finds out who asks.
    pub authenticator: Arc<dyn Authenticator>,
    /// Judges what they may do.
    pub authorizer: Arc<dyn Authorizer>,
    /// Admission for all kinds.
    pub admission: Arc<dyn Admission>,
    /// Reads and writes protobuf.
    pub protobuf: Arc<Protobuf>,
    /// The `/version` document.
    pub version: Value,
    /// Address that `/api` gives, as `127.0.0.1:6443`.
    pub server_address: String,
    /// Those who are asked about writes.
    pub webhooks: Option<Arc<dyn Webhooks>>,
    /// Groups that other servers serve.
    pub aggregator: Option<Arc<dyn Aggregator>>,
    /// Answers of paths that are no resources, as webhooks; each for its exact path.
    pub pages: BTreeMap<String, Arc<dyn Page>>,
    /// Requests other than watches that are answered at once; more get 429. No limit where `None`.
    pub in_flight: Option<Arc<Semaphore>>,
    /// Cancelled when the server stops; watches end then.
    pub stopping: CancellationToken,
}

/// Answers requests for a path that is no resource.
pub trait Page: Send + Sync {
    /// Answers one request; it is authorized already.
    fn answer(
        &self,
        user: User,
        info: RequestInfo,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>>;
}

/// What an API behind an `APIService` is made from; see [`Api::aggregated`].
pub struct Aggregated {
    /// The served resources, each with a source or a [`crate::resource::Connect`].
    pub registry: Arc<Registry>,
    /// Finds out who asks, as [`crate::delegated::Authentication`].
    pub authenticator: Arc<dyn Authenticator>,
    /// Judges what they may do, as [`crate::delegated::Authorization`].
    pub authorizer: Arc<dyn Authorizer>,
    /// Answers of other paths.
    pub pages: BTreeMap<String, Arc<dyn Page>>,
    /// The `/version` document.
    pub version: Value,
    /// Requests other than watches that are answered at once.
    pub max_in_flight: usize,
    /// Cancelled when the server stops.
    pub stopping: CancellationToken,
}

impl Handler for Api {
    fn handle(self: Arc<Self>, request: Request) -> BoxFuture<'static, Response> {
        Box::pin(async move {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            match self.answer(request).await {
                Ok(response) => response,
                Err(error) => {
                    if error.code >= 500 {
                        tracing::warn!(%method, %path, code = error.code, %error, "request");
                    } else {
                        tracing::debug!(%method, %path, code = error.code, %error, "request");
                    }
                    error.to_response()
                }
            }
        })
    }
}

impl Api {
    /// An API whose resources bring their own sources; nothing is stored.
    pub fn aggregated(parts: Aggregated) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::new(Store::new(1)),
            registry: parts.registry,
            authenticator: parts.authenticator,
            authorizer: parts.authorizer,
            admission: Arc::new(AdmitAll),
            protobuf: Arc::default(),
            version: parts.version,
            server_address: String::new(),
            webhooks: None,
            aggregator: None,
            pages: parts.pages,
            in_flight: Some(Arc::new(Semaphore::new(parts.max_in_flight.max(1)))),
            stopping: parts.stopping,
        })
    }

    async fn answer(self: Arc<Self>, request: Request) -> Result<Response, ApiError> {
        let info = RequestInfo::parse(request.method(), request.uri());
        let permit = match &self.in_flight {
            Some(limit) if info.verb != "watch" => Some(
                Arc::clone(limit).try_acquire_owned().map_err(|_| ApiError::too_many_requests())?,
            ),
            _ => None,
        };
        let answer = self.answer_within(info, request).await;
        drop(permit);
        answer
    }

    async fn answer_within(
        self: Arc<Self>,
        info: RequestInfo,
        request: Request,
    ) -> Result<Response, ApiError> {
        let user = self.authenticator.authenticate(&Credentials::of(&request)).await?;
        let user = self.impersonate(user, request.headers()).await?;
        let act = Attributes::of(&user, &info);
        if !self.authorizer.authorize(&act).await?.allowed {
            return Err(act.refusal());
        }
        if let Some(page) = self.pages.get(&info.path) {
            return page.answer(user, info, request).await;
        }
        if let Some((aggregator, group, version)) = self.elsewhere(&info.path) {
            return aggregator.forward(&group, &version, user, request).await;
        }
        match info.resource.clone() {
            None => self.answer_path(&info, &request),
            Some(path) => {
                let found = self.registry.get(&path.group, &path.version, &path.resource);
                let Some(resource) = found else {
                    if self.registry.has_version(&path.group, &path.version) {
                        return Err(ApiError::no_such_resource());
                    }
                    return Ok(page_not_found());
                };
                let call = Call { api: self, user, info, path, resource };
                dispatch(call, request).await
            }
        }
    }

    /// The other server that a path belongs to: `/apis/GROUP/VERSION...`, or its OpenAPI.
    fn elsewhere(&self, path: &str) -> Option<(Arc<dyn Aggregator>, String, String)> {
        let aggregator = self.aggregator.as_ref()?;
        let rest = path.strip_prefix("/openapi/v3").unwrap_or(path).strip_prefix("/apis/")?;
        let mut parts = rest.split('/');
        let (group, version) = (parts.next()?, parts.next()?);
        let claims =
            !self.registry.has_version(group, version) && aggregator.claims(group, version);
        claims.then(|| (Arc::clone(aggregator), group.to_owned(), version.to_owned()))
    }

    fn served_elsewhere(&self) -> Vec<Served> {
        self.aggregator.as_ref().map(|aggregator| aggregator.served()).unwrap_or_default()
    }

    /// The user as whom a request wants to be treated, if its sender may ask for that.
    async fn impersonate(&self, user: User, headers: &HeaderMap) -> Result<User, ApiError> {
        let text = |value: &hyper::header::HeaderValue| value.to_str().ok().map(str::to_owned);
        let Some(name) = headers.get("impersonate-user").and_then(text) else {
            if headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
                return Err(ApiError::bad_request(
                    "requested impersonation without impersonating a user",
                ));
            }
            return Ok(user);
        };
        let mut groups: Vec<String> =
            headers.get_all("impersonate-group").iter().filter_map(text).collect();
        let account = name.strip_prefix("system:serviceaccount:").and_then(|n| n.split_once(':'));
        let (resource, namespace, target) = match account {
            Some((namespace, account)) => ("serviceaccounts", namespace, account),
            None => ("users", "", name.as_str()),
        };
        let mut wanted = vec![(resource, namespace.to_owned(), target.to_owned())];
        wanted.extend(groups.iter().map(|group| ("groups", String::new(), group.clone())));
        for (resource, namespace, name) in wanted {
            let act = Attributes {
                user: user.clone(),
                verb: "impersonate".to_owned(),
                object: Target::Resource {
                    group: String::new(),
                    resource: resource.to_owned(),
                    subresource: String::new(),
                    namespace,
                    name,
                },
            };
            if !self.authorizer.authorize(&act).await?.allowed {
                return Err(act.refusal());
            }
        }
        if let Some((namespace, _)) = account
            && groups.is_empty()
        {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        if name == "system:anonymous" {
            return Ok(User::anonymous());
        }
        groups.retain(|group| group != AUTHENTICATED);
        Ok(User::new(name, groups))
    }

    fn answer_path(&self, info: &RequestInfo, request: &Request) -> Result<Response, ApiError> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let parts: Vec<&str> = info.path.split('/').filter(|part| !part.is_empty()).collect();
        match parts.as_slice() {
            ["healthz" | "livez" | "readyz", ..] => Ok(self.health(info, parts[0])),
            ["version"] => Ok(rest::answer(rest::form(request)?, 200, &self.version)),
            [] => Ok(body::json(200, &serde_json::json!({ "paths": self.paths() }))),
            ["api"] => self.discover(request, Half::Core),
            ["apis"] => self.discover(request, Half::Groups),
            ["api", version] => self.discover_version(request, "", version),
            ["apis", group] => {
                let form = rest::form(request)?;
                match discovery::group(&self.registry.all(), &self.served_elsewhere(), group) {
                    Some(document) => Ok(rest::answer(form, 200, &document)),
                    None => Ok(page_not_found()),
                }
            }
            ["apis", group, version] => self.discover_version(request, group, version),
            ["openapi", "v2"] => {
                let accept = rest::header(request, hyper::header::ACCEPT).unwrap_or_default();
                let is_asked = |each: &str| each.trim().starts_with(openapi::V2_ASKED);
                Ok(match accept.split(',').any(is_asked) {
                    true => body::with_type(200, openapi::V2_MESSAGE, openapi::v2_message()),
                    false => body::json(200, &openapi::v2()),
                })
            }
            ["openapi", "v3"] => {
                let others = self.served_elsewhere();
                Ok(body::json(200, &openapi::index(&self.registry.all(), &others)))
            }
            ["openapi", "v3", "api", version] => Ok(self.openapi("", version)),
            ["openapi", "v3", "apis", group, version] => Ok(self.openapi(group, version)),
            _ => Ok(page_not_found()),
        }
    }

    fn paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = [
            "/api",
            "/apis",
            "/healthz",
            "/livez",
            "/openapi/v2",
            "/openapi/v3",
            "/readyz",
            "/version",
        ]
        .map(str::to_owned)
        .to_vec();
        let groups = discovery::all_groups(&self.registry.all(), &self.served_elsewhere());
        for (group, versions) in groups {
            for version in versions {
                paths.push(match group.as_str() {
                    "" => format!("/api/{version}"),
                    group => format!("/apis/{group}/{version}"),
                });
            }
        }
        paths.sort();
        paths
    }

    fn health(&self, info: &RequestInfo, check: &str) -> Response {
        if self.stopping.is_cancelled() && check == "readyz" {
            return body::text(500, "[-]shutdown failed: stopping\nreadyz check failed\n");
        }
        if info.query.get("verbose").is_some() {
            return body::text(200, format!("[+]ping ok\n[+]shutdown ok\n{check} check passed\n"));
        }
        body::text(200, "ok")
    }

    fn discover(&self, request: &Request, half: Half) -> Result<Response, ApiError> {
        let form = rest::form(request)?;
        let resources = self.registry.all();
        if form.view != View::Discovery {
            let document = match half {
                Half::Core => discovery::legacy_versions(&self.server_address),
                Half::Groups => discovery::group_list(&resources, &self.served_elsewhere()),
            };
            return Ok(rest::answer(form, 200, &document));
        }
        let others = match half {
            Half::Core => Vec::new(),
            Half::Groups => self.served_elsewhere(),
        };
        let document = discovery::aggregated(&resources, &others, half).to_string();
        let etag = discovery::etag(document.as_bytes());
        let headers =
            [("content-type", discovery::AGGREGATED), ("etag", &etag), ("vary", "Accept")];
        if rest::header(request, IF_NONE_MATCH).as_deref() == Some(&etag) {
            return Ok(body::build(304, &headers[1..], body::empty()));
        }
        Ok(body::build(200, &headers, body::full(document)))
    }

    fn discover_version(
        &self,
        request: &Request,
        group: &str,
        version: &str,
    ) -> Result<Response, ApiError> {
        let form = rest::form(request)?;
        match discovery::resource_list(&self.registry.all(), group, version) {
            Some(document) => Ok(rest::answer(form, 200, &document)),
            None => Ok(page_not_found()),
        }
    }

    fn openapi(&self, group: &str, version: &str) -> Response {
        match openapi::document(&self.registry.all(), group, version) {
            Some(document) => body::json(200, &document),
            None => page_not_found(),
        }
    }
}

fn page_not_found() -> Response {
    body::text(404, "404 page not found\n")
}

async fn dispatch(call: Call, request: Request) -> Result<Response, ApiError> {
    let resource: Arc<Resource> = call.resource.clone();
    let connect = match call.path.subresource.as_str() {
        "" => resource.connect.clone(),
        name => match resource.subresource(name) {
            None => return Err(ApiError::no_such_resource()),
            Some(part) => {
                if !part.verbs.contains(&call.info.verb.as_str()) {
                    return Err(ApiError::method_not_allowed());
                }
                part.connect.clone()
            }
        },
    };
    match connect {
        None => rest::serve(call, request).await,
        Some(connect) => {
            let whole = call.path.subresource.is_empty();
            if whole && !resource.verbs.contains(&call.info.verb.as_str()) {
                return Err(ApiError::method_not_allowed());
            }
            connect.connect(call, request).await
        }
    }
}
