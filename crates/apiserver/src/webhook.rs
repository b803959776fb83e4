//! Serving admission webhooks: an `AdmissionReview` in, a verdict out.
//!
//! A [`Reviewer`] sees the request in our types; [`Webhook`] puts one behind a path of an
//! [`crate::api::Api`]. Not here: calling webhooks (the lab's API server does).

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::api::Page;
use crate::body::{self, Response};
use crate::request_info::RequestInfo;
use crate::rest::read_body;
use crate::server::Request;
use crate::status::ApiError;
use crate::user::User;

/// What is about to be done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It is made.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// Something is done through it, as exec.
    Connect,
}

/// What a webhook is asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmissionRequest {
    /// Identifies the question.
    pub uid: String,
    /// What is about to be done.
    pub operation: Operation,
    /// Group, version and kind of the object.
    pub kind: (String, String, String),
    /// Group, version and plural name of the resource.
    pub resource: (String, String, String),
    /// Subresource; empty for none.
    pub subresource: String,
    /// Namespace; empty in cluster scope.
    pub namespace: String,
    /// Name; empty where the server will make one up.
    pub name: String,
    /// Who does it.
    pub user: User,
    /// The object as it would be; null for a deletion.
    pub object: Value,
    /// The object as it is; null for a creation.
    pub old: Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// A webhook's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may be done.
    Allow,
    /// It may be done, and whoever does it is told these sentences.
    Warn(Vec<String>),
    /// It may be done to the object as a JSON patch (an array of operations) changes it.
    Patch(Value),
    /// It may not be done; `code` is the HTTP status that the user gets.
    Deny {
        /// HTTP status, as 403 or 422.
        code: u16,
        /// Sentence for people.
        message: String,
    },
}

/// Judges what is about to be done.
pub trait Reviewer: Send + Sync {
    /// Judges one request.
    fn review(&self, request: AdmissionRequest) -> BoxFuture<'_, Verdict>;
}

/// A page that answers admission reviews.
pub struct Webhook(pub Arc<dyn Reviewer>);

fn triple(value: &Value, last: &str) -> (String, String, String) {
    let text = |field: &str| value[field].as_str().unwrap_or("").to_owned();
    (text("group"), text("version"), text(last))
}

impl AdmissionRequest {
    /// Reads an `AdmissionReview`.
    ///
    /// # Errors
    /// When it is none, or of an operation that there is not.
    pub fn parse(review: &Value) -> Result<Self, ApiError> {
        let request = &review["request"];
        let bad = |what: &str| ApiError::bad_request(format!("admission review: {what}"));
        let text = |field: &str| request[field].as_str().unwrap_or("").to_owned();
        if review["kind"] != "AdmissionReview" || !request.is_object() {
            return Err(bad("no request"));
        }
        let operation = match text("operation").as_str() {
            "CREATE" => Operation::Create,
            "UPDATE" => Operation::Update,
            "DELETE" => Operation::Delete,
            "CONNECT" => Operation::Connect,
            _ => return Err(bad("unknown operation")),
        };
        Ok(Self {
            uid: text("uid"),
            operation,
            kind: triple(&request["kind"], "kind"),
            resource: triple(&request["resource"], "resource"),
            subresource: text("subResource"),
            namespace: text("namespace"),
            name: text("name"),
            user: User::from_json(&request["userInfo"]),
            object: request["object"].clone(),
            old: request["oldObject"].clone(),
            dry_run: request["dryRun"] == true,
        })
    }
}

/// The `AdmissionReview` that answers a question.
pub fn answer(uid: &str, verdict: &Verdict) -> Value {
    use base64::Engine;
    let mut response = json!({ "uid": uid, "allowed": true });
    match verdict {
        Verdict::Allow => {}
        Verdict::Warn(warnings) => response["warnings"] = json!(warnings),
        Verdict::Patch(patch) => {
            let text = base64::engine::general_purpose::STANDARD.encode(patch.to_string());
            response["patchType"] = json!("JSONPatch");
            response["patch"] = json!(text);
        }
        Verdict::Deny { code, message } => {
            response["allowed"] = json!(false);
            response["status"] = json!({ "code": code, "message": message });
        }
    }
    json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response })
}

impl Page for Webhook {
    fn answer(
        &self,
        _user: User,
        _info: RequestInfo,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let reviewer = Arc::clone(&self.0);
        Box::pin(async move {
            if request.method() != hyper::Method::POST {
                return Err(ApiError::method_not_allowed());
            }
            let bytes = read_body(request).await?;
            let review = serde_json::from_slice(&bytes)
                .map_err(|error| ApiError::bad_request(error.to_string()))?;
            let asked = AdmissionRequest::parse(&review)?;
            let uid = asked.uid.clone();
            let verdict = reviewer.review(asked).await;
            Ok(body::json(200, &answer(&uid, &verdict)))
        })
    }
}
