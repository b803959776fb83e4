//! The review kinds: who is this, and may they do that.

use std::sync::Arc;

use apiserver::authz::{Attributes, Decision, Target};
use apiserver::body::Response;
use apiserver::meta;
use apiserver::names::GroupKind;
use apiserver::objects::{check_kind, check_shape};
use apiserver::query::WriteOptions;
use apiserver::rbac::Rbac;
use apiserver::resource::{Call, Connect};
use apiserver::rest;
use apiserver::server::Request;
use apiserver::status::{ApiError, FieldError};
use apiserver::token::{ISSUER, shared_audiences};
use apiserver::user::User;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::accounts::Accounts;

/// Answers all review kinds.
pub(crate) struct Reviews {
    accounts: Arc<Accounts>,
    rbac: Arc<Rbac>,
}

impl Reviews {
    pub(crate) fn new(accounts: Arc<Accounts>, rbac: Arc<Rbac>) -> Self {
        Self { accounts, rbac }
    }
}

impl Connect for Reviews {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let (accounts, rbac) = (Arc::clone(&self.accounts), Arc::clone(&self.rbac));
        Box::pin(async move {
            let form = rest::form(&request)?;
            let options = WriteOptions::parse(&call.info.query, "CreateOptions")?;
            let mut review = rest::read_object(&call.api, request, &call.resource.kind).await?;
            check_kind(&call.api.registry, &call.resource, &mut review)?;
            check_shape(&call.resource, &mut review, options.field_validation)?;
            match call.resource.kind.as_str() {
                "TokenReview" => token_review(&accounts, &mut review),
                "SelfSubjectReview" => {
                    meta::set(&mut review, "creationTimestamp", json!(meta::now()));
                    review["status"] = json!({ "userInfo": call.user });
                }
                "SelfSubjectRulesReview" => rules_review(&rbac, &call.user, &mut review),
                _ => access_review(&rbac, &call, &mut review)?,
            }
            Ok(rest::answer(form, 201, &review))
        })
    }
}

fn token_review(accounts: &Accounts, review: &mut Value) {
    let token = review["spec"]["token"].as_str().unwrap_or("").to_owned();
    let mut audiences: Vec<String> = review["spec"]["audiences"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|audience| audience.as_str().map(str::to_owned))
        .collect();
    if audiences.is_empty() {
        audiences.push(ISSUER.to_owned());
    }
    let checked = accounts
        .review(&token)
        .and_then(|(user, claims)| Ok((user, shared_audiences(&claims, &audiences)?)));
    review["status"] = match checked {
        Ok((user, shared)) => {
            json!({ "authenticated": true, "user": user, "audiences": shared })
        }
        Err(apiserver::token::TokenError::NotOurs) => {
            json!({ "user": {}, "error": "invalid bearer token" })
        }
        Err(error) => {
            json!({ "user": {}, "error": format!("[invalid bearer token, {error}]") })
        }
    };
}

fn refuse(field: &str, value: &Value, why: &str) -> ApiError {
    let error = FieldError::invalid(field, value, why);
    let mut refused =
        ApiError::invalid(&GroupKind::new("authorization.k8s.io", ""), "", vec![error]);
    if let Some(details) = &mut refused.details {
        details.kind.clear();
    }
    refused
}

fn access_review(rbac: &Rbac, call: &Call, review: &mut Value) -> Result<(), ApiError> {
    let spec = &review["spec"];
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() == path.is_object() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        return Err(refuse("spec.resourceAttributes", resource, why));
    }
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or("").to_owned();
    if call.resource.kind == "LocalSubjectAccessReview"
        && text(resource, "namespace") != call.path.namespace
    {
        let value = &resource["namespace"];
        let field = "spec.resourceAttributes.namespace";
        return Err(refuse(field, value, "must match metadata.namespace"));
    }
    let user = if call.resource.kind == "SelfSubjectAccessReview" {
        call.user.clone()
    } else {
        let groups = spec["groups"].as_array().into_iter().flatten();
        let groups: Vec<String> = groups.filter_map(|g| g.as_str().map(str::to_owned)).collect();
        if text(spec, "user").is_empty() && groups.is_empty() {
            let why = "at least one of user or group must be specified";
            return Err(refuse("spec.user", &spec["user"], why));
        }
        User { username: text(spec, "user"), groups, ..User::default() }
    };
    let (verb, object) = if resource.is_object() {
        let object = Target::Resource {
            group: text(resource, "group"),
            resource: text(resource, "resource"),
            subresource: text(resource, "subresource"),
            namespace: text(resource, "namespace"),
            name: text(resource, "name"),
        };
        (text(resource, "verb"), object)
    } else {
        (text(path, "verb"), Target::Path(text(path, "path")))
    };
    let Decision { allowed, reason } = rbac.decide(&Attributes { user, verb, object });
    review["status"] = json!({ "allowed": allowed });
    if !reason.is_empty() {
        review["status"]["reason"] = json!(reason);
    }
    Ok(())
}

fn rules_review(rbac: &Rbac, user: &User, review: &mut Value) {
    let namespace = review["spec"]["namespace"].as_str().unwrap_or("").to_owned();
    let (paths, resources): (Vec<Value>, Vec<Value>) = rbac
        .rules(user, &namespace)
        .into_iter()
        .partition(|rule| rule["nonResourceURLs"].is_array());
    review["spec"] = json!({});
    review["status"] = json!({
        "resourceRules": resources, "nonResourceRules": paths, "incomplete": false,
    });
}
