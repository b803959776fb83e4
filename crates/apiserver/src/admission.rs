//! Admission by others: what is asked about a write before it is made.
//!
//! `rest` calls [`Webhooks`] around a trial run of the write, so that they see the object as it
//! would be stored; the write itself is made only if nothing changed meanwhile.

use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::meta;
use crate::resource::{Resource, Scope};
use crate::status::ApiError;
use crate::user::User;
use crate::webhook::Operation;

/// A write that is about to be made.
pub struct Review<'a> {
    /// The resource.
    pub resource: &'a Resource,
    /// Subresource; empty for the object itself.
    pub subresource: &'a str,
    /// Namespace; empty in cluster scope.
    pub namespace: &'a str,
    /// Name; empty where it is still to be made up.
    pub name: &'a str,
    /// What is done.
    pub operation: Operation,
    /// Who does it.
    pub user: &'a User,
    /// The object as it would be; null for a deletion.
    pub object: Value,
    /// The object as it is; null for a creation.
    pub old: Value,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// Those who are asked about writes.
pub trait Webhooks: Send + Sync {
    /// Whether anybody may want to be asked about such writes.
    fn concerns(&self, resource: &Resource, subresource: &str, operation: Operation) -> bool;

    /// The object as those who may change it leave it.
    fn mutate<'a>(&'a self, review: &'a Review<'a>) -> BoxFuture<'a, Result<Value, ApiError>>;

    /// Whether the write may be made; gives warnings for the writer.
    fn validate<'a>(
        &'a self,
        review: &'a Review<'a>,
    ) -> BoxFuture<'a, Result<Vec<String>, ApiError>>;
}

fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
        Operation::Delete => "DELETE",
        Operation::Connect => "CONNECT",
    }
}

/// Whether a rule of a webhook's configuration speaks of such writes.
pub fn rule_matches(
    rule: &Value,
    resource: &Resource,
    subresource: &str,
    operation: Operation,
) -> bool {
    let all = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let has = |field: &str, want: &str| all(field).any(|own| own == "*" || own == want);
    let scope = match rule["scope"].as_str().unwrap_or("*") {
        "Namespaced" => resource.scope == Scope::Namespaced,
        "Cluster" => resource.scope == Scope::Cluster,
        _ => true,
    };
    let named = all("resources").any(|own| {
        let (main, sub) = own.split_once('/').unwrap_or((own, ""));
        (main == "*" || main == resource.plural)
            && (sub == subresource || sub == "*" || own == "*/*")
    });
    scope
        && named
        && has("operations", operation_name(operation))
        && has("apiGroups", &resource.group)
        && has("apiVersions", &resource.version)
}

/// The error for a writer whom a webhook refused with a status.
pub fn denied(name: &str, status: &Value) -> ApiError {
    let text = |field: &str| status[field].as_str().unwrap_or("");
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("admission webhook {name:?} denied the request without explanation"),
        ("", reason) => format!("admission webhook {name:?} denied the request: {reason}"),
        (message, _) => format!("admission webhook {name:?} denied the request: {message}"),
    };
    let code = status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(400);
    let reason = match (text("reason"), code) {
        ("Invalid", _) | ("", 422) => "Invalid",
        ("Forbidden", _) | ("", 403) => "Forbidden",
        ("BadRequest", _) => "BadRequest",
        ("Conflict", _) | ("", 409) => "Conflict",
        _ => "",
    };
    ApiError::new(code, reason, message)
}

impl Review<'_> {
    /// The `AdmissionReview` that asks about this write.
    pub fn question(&self) -> Value {
        let resource = self.resource;
        let kind =
            json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
        let plural = json!({
            "group": resource.group, "version": resource.version, "resource": resource.plural,
        });
        let options = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => "PodExecOptions",
        };
        let mut options = json!({ "kind": options, "apiVersion": "meta.k8s.io/v1" });
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        let mut request = json!({
            "uid": uuid::Uuid::new_v4().to_string(),
            "kind": kind, "resource": plural, "requestKind": kind, "requestResource": plural,
            "operation": operation_name(self.operation),
            "userInfo": self.user,
            "object": self.object, "oldObject": self.old,
            "dryRun": self.dry_run, "options": options,
        });
        for (field, value) in [
            ("name", self.name),
            ("namespace", self.namespace),
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
        ] {
            if !value.is_empty() {
                request[field] = json!(value);
            }
        }
        if self.name.is_empty() && !meta::name(&self.object).is_empty() {
            request["name"] = json!(meta::name(&self.object));
        }
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request })
    }
}
