//! ServiceAccounts as users: their tokens, and who shows which credentials.

use std::sync::Arc;

use apiserver::authn::{Authenticator, Credentials};
use apiserver::body::{self, Response};
use apiserver::meta;
use apiserver::names::{GroupKind, GroupResource};
use apiserver::resource::{Call, Connect};
use apiserver::rest;
use apiserver::server::Request;
use apiserver::status::{ApiError, FieldError};
use apiserver::store::{Store, key};
use apiserver::token::{Bound, Claims, ISSUER, KubernetesClaim, TokenError, TokenKey};
use apiserver::user::User;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::kinds::{NODES, POD, SERVICE_ACCOUNTS};

/// Mints and checks the cluster's tokens.
pub(crate) struct Accounts {
    store: Arc<Store>,
    token_key: TokenKey,
}

/// Shortest validity of a token.
const MIN_SECONDS: i64 = 600;
/// Longest validity of a token.
const MAX_SECONDS: i64 = 1 << 32;

impl Accounts {
    pub(crate) fn new(store: Arc<Store>, token_key: TokenKey) -> Self {
        Self { store, token_key }
    }

    /// A token for a component that the cluster's owner starts; valid for a year.
    pub(crate) fn mint_for_owner(&self, namespace: &str, name: &str) -> Result<String, ApiError> {
        let account = self.account(namespace, name)?;
        let audiences = vec![ISSUER.to_owned()];
        self.mint(&account, audiences, 365 * 86_400, None).map(|(token, _)| token)
    }

    /// As [`Self::mint_for_owner`], for a component on a node, which need not be registered yet.
    pub(crate) fn mint_for_node(
        &self,
        namespace: &str,
        name: &str,
        node: &str,
    ) -> Result<String, ApiError> {
        let account = self.account(namespace, name)?;
        let audiences = vec![ISSUER.to_owned()];
        let node = json!({"kind": "Node", "metadata": {"name": node}});
        self.mint(&account, audiences, 365 * 86_400, Some(&node)).map(|(token, _)| token)
    }

    fn account(&self, namespace: &str, name: &str) -> Result<Value, ApiError> {
        let found = self.store.get(SERVICE_ACCOUNTS, &key(namespace, name));
        found
            .map(|account| account.value().clone())
            .ok_or_else(|| ApiError::not_found(&GroupResource::new("", SERVICE_ACCOUNTS), name))
    }

    fn mint(
        &self,
        account: &Value,
        audiences: Vec<String>,
        seconds: i64,
        bound: Option<&Value>,
    ) -> Result<(String, i64), ApiError> {
        let now = Timestamp::now().as_second();
        let (namespace, name) = (meta::namespace(account), meta::name(account));
        let bind = |object: &Value| Bound {
            name: meta::name(object).to_owned(),
            uid: meta::uid(object).to_owned(),
        };
        let pod = bound.filter(|object| object["kind"] == "Pod");
        let node = pod
            .and_then(|pod| pod["spec"]["nodeName"].as_str())
            .and_then(|node| self.store.get(NODES, node));
        let claims = Claims {
            aud: audiences,
            exp: now + seconds,
            iat: now,
            iss: ISSUER.to_owned(),
            jti: uuid::Uuid::new_v4().to_string(),
            kubernetes: KubernetesClaim {
                namespace: namespace.to_owned(),
                node: node
                    .map(|node| bind(node.value()))
                    .or_else(|| bound.filter(|object| object["kind"] == "Node").map(bind)),
                pod: pod.map(bind),
                secret: bound.filter(|object| object["kind"] == "Secret").map(bind),
                serviceaccount: bind(account),
            },
            nbf: now,
            sub: User::service_account_name(namespace, name),
        };
        let token = self.token_key.mint(&claims);
        let token = token.ok_or_else(|| ApiError::internal("no randomness to sign a token"))?;
        Ok((token, claims.exp))
    }

    /// Checks a token and that what it is bound to still exists.
    pub(crate) fn review(&self, token: &str) -> Result<(User, Claims), TokenError> {
        let claims = self.token_key.verify(token, Timestamp::now().as_second())?;
        let bound_to = &claims.kubernetes;
        let namespace = &bound_to.namespace;
        let lives = |collection: &str, bound: &Bound| {
            self.store
                .get(collection, &key(namespace, &bound.name))
                .is_some_and(|object| meta::uid(object.value()) == bound.uid)
        };
        let all = lives(SERVICE_ACCOUNTS, &bound_to.serviceaccount)
            && bound_to.pod.as_ref().is_none_or(|pod| lives(POD, pod))
            && bound_to.secret.as_ref().is_none_or(|secret| lives("secrets", secret));
        if !all {
            return Err(TokenError::Invalidated);
        }
        let account = &bound_to.serviceaccount;
        let groups =
            ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        let mut user = User::new(User::service_account_name(namespace, &account.name), groups);
        user.uid.clone_from(&account.uid);
        let mut extra = |name: &str, value: String| {
            user.extra.insert(format!("authentication.kubernetes.io/{name}"), vec![value]);
        };
        extra("credential-id", format!("JTI={}", claims.jti));
        if let Some(node) = &bound_to.node {
            extra("node-name", node.name.clone());
            extra("node-uid", node.uid.clone());
        }
        if let Some(pod) = &bound_to.pod {
            extra("pod-name", pod.name.clone());
            extra("pod-uid", pod.uid.clone());
        }
        Ok((user, claims))
    }
}

/// Takes tokens of ServiceAccounts and client certificates of the cluster's authority.
pub(crate) struct Authentication(pub(crate) Arc<Accounts>);

impl Authenticator for Authentication {
    fn authenticate<'a>(
        &'a self,
        credentials: &'a Credentials,
    ) -> BoxFuture<'a, Result<User, ApiError>> {
        let user = match &credentials.bearer {
            Some(token) => self.0.review(token).map_err(|_| ApiError::unauthorized()).and_then(
                |(user, claims)| {
                    let ours = claims.aud.iter().any(|audience| audience == ISSUER);
                    if ours { Ok(user) } else { Err(ApiError::unauthorized()) }
                },
            ),
            None => Ok(credentials.certificate_user().unwrap_or_else(User::anonymous)),
        };
        Box::pin(async move { user })
    }
}

/// `serviceaccounts/NAME/token`.
pub(crate) struct TokenRequests(pub(crate) Arc<Accounts>);

impl Connect for TokenRequests {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let accounts = Arc::clone(&self.0);
        Box::pin(async move {
            let form = rest::form(&request)?;
            let body = rest::read_object(&call.api, request, "TokenRequest").await?;
            let answer = accounts.request(&call, body)?;
            Ok(rest::answer(form, 201, &answer))
        })
    }
}

impl Accounts {
    fn request(&self, call: &Call, body: Value) -> Result<Value, ApiError> {
        let (namespace, name) = (&call.path.namespace, &call.path.name);
        let account = self.account(namespace, name)?;
        let spec = &body["spec"];
        let seconds = spec["expirationSeconds"].as_i64().unwrap_or(3600);
        let refused = if seconds < MIN_SECONDS {
            Some("may not specify a duration less than 10 minutes")
        } else if seconds > MAX_SECONDS {
            Some("may not specify a duration larger than 2^32 seconds")
        } else {
            None
        };
        if let Some(why) = refused {
            let error = FieldError::invalid("spec.expirationSeconds", seconds, why);
            let kind = GroupKind::new("authentication.k8s.io", "TokenRequest");
            return Err(ApiError::invalid(&kind, "", vec![error]));
        }
        let mut audiences: Vec<String> = spec["audiences"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|audience| audience.as_str().map(str::to_owned))
            .collect();
        if audiences.is_empty() {
            audiences.push(ISSUER.to_owned());
        }
        let reference = &spec["boundObjectRef"];
        let bound = if reference.is_object() {
            Some(self.bound_object(namespace, name, reference)?)
        } else {
            None
        };
        let (token, expires) = self.mint(&account, audiences.clone(), seconds, bound.as_ref())?;
        let expires = Timestamp::from_second(expires).map_err(ApiError::internal)?;
        Ok(json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": meta::uid(&account),
                "creationTimestamp": meta::now(),
            },
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": reference,
            },
            "status": { "token": token, "expirationTimestamp": meta::time(expires) },
        }))
    }

    fn bound_object(
        &self,
        namespace: &str,
        account: &str,
        reference: &Value,
    ) -> Result<Value, ApiError> {
        let kind = reference["kind"].as_str().unwrap_or("");
        let name = reference["name"].as_str().unwrap_or("");
        let collection = match kind {
            "Pod" => POD,
            "Secret" => "secrets",
            other => {
                return Err(ApiError::bad_request(format!(
                    "cannot bind token for serviceaccount {account:?} to object of kind {other:?}"
                )));
            }
        };
        let Some(found) = self.store.get(collection, &key(namespace, name)) else {
            return Err(ApiError::not_found(&GroupResource::new("", collection), name));
        };
        let uid = reference["uid"].as_str().unwrap_or("");
        if !uid.is_empty() && uid != meta::uid(found.value()) {
            let why = format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. \
                 The object might have been deleted and then recreated"
            );
            return Err(ApiError::conflict(&GroupResource::new("", kind), name, &why));
        }
        let own = found.value()["spec"]["serviceAccountName"].as_str().unwrap_or("");
        if kind == "Pod" && own != account {
            return Err(ApiError::bad_request(format!(
                "cannot bind token for serviceaccount {account:?} to pod running with different \
                 serviceaccount name."
            )));
        }
        Ok(found.value().clone())
    }
}

/// An answer with a `Status` that reports success.
pub(crate) fn created() -> Response {
    body::json(201, &apiserver::status::success(Some(201), None))
}
