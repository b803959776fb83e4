//! Errors as Kubernetes answers them: a `Status` object with code, reason and details.
//!
//! Texts follow the public API; clients match on code and reason, people read the message.

use serde::Serialize;
use serde_json::{Value, json};

use crate::body::{self, Response};
use crate::names::{GroupKind, GroupResource};

/// A refused request.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, as `NotFound`.
    pub reason: &'static str,
    /// Sentence for people.
    pub message: String,
    /// What the error is about; `None` leaves the field out.
    pub details: Option<Box<Details>>,
    /// Continue token that goes with an expired one.
    pub continue_token: Option<String>,
}

/// The `details` of a `Status`.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Details {
    /// Name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// API group of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Resource or kind of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Field by field reasons.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<Cause>,
    /// When trying again makes sense.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// One cause of a refused object.
#[derive(Debug, Clone, Serialize)]
pub struct Cause {
    /// Machine-readable reason, as `FieldValueInvalid`.
    pub reason: &'static str,
    /// Sentence for people.
    pub message: String,
    /// Path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

/// What is wrong with one field.
#[derive(Debug, Clone)]
pub struct FieldError {
    reason: &'static str,
    field: String,
    message: String,
}

impl FieldError {
    fn new(reason: &'static str, field: &str, message: String) -> Self {
        Self { reason, field: field.to_owned(), message }
    }

    /// The field must be there.
    pub fn required(field: &str, detail: &str) -> Self {
        let message = match detail {
            "" => "Required value".to_owned(),
            detail => format!("Required value: {detail}"),
        };
        Self::new("FieldValueRequired", field, message)
    }

    /// The value breaks a rule.
    pub fn invalid(field: &str, value: impl Serialize, detail: &str) -> Self {
        let value = serde_json::to_string(&value).unwrap_or_default();
        Self::new("FieldValueInvalid", field, format!("Invalid value: {value}: {detail}"))
    }

    /// The value is of another type.
    pub fn wrong_type(field: &str, seen: &str, detail: &str) -> Self {
        let message = format!("Invalid value: {seen:?}: {detail}");
        Self::new("FieldValueTypeInvalid", field, message)
    }

    /// A rule is broken, by a value too large to be shown.
    pub fn refused(field: &str, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {detail}"))
    }

    /// The value is none of a closed list.
    pub fn unsupported(field: &str, value: impl Serialize, supported: &[&str]) -> Self {
        let value = serde_json::to_string(&value).unwrap_or_default();
        let supported: Vec<_> = supported.iter().map(|text| format!("{text:?}")).collect();
        let supported = supported.join(", ");
        let message = format!("Unsupported value: {value}: supported values: {supported}");
        Self::new("FieldValueNotSupported", field, message)
    }

    /// The field may not be set or changed.
    pub fn forbidden(field: &str, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    /// The value is used twice.
    pub fn duplicate(field: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_string(&value).unwrap_or_default();
        Self::new("FieldValueDuplicate", field, format!("Duplicate value: {value}"))
    }

    /// What the value names is not there.
    pub fn not_found(field: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_string(&value).unwrap_or_default();
        Self::new("FieldValueNotFound", field, format!("Not found: {value}"))
    }

    /// The same of a part of another object.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }

    /// The value has too many bytes.
    pub fn too_long(field: &str, limit: usize) -> Self {
        let message = format!("Too long: may not be more than {limit} bytes");
        Self::new("FieldValueTooLong", field, message)
    }
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl ApiError {
    /// An error from code, reason and text, without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    fn about(mut self, resource: &GroupResource, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: resource.group.clone(),
            kind: resource.resource.clone(),
            ..Details::default()
        }));
        self
    }

    fn with_empty_details(mut self) -> Self {
        self.details = Some(Box::default());
        self
    }

    /// Adds a cause to the details.
    #[must_use]
    pub fn with_cause(mut self, reason: &'static str, message: &str, field: &str) -> Self {
        let cause = Cause { reason, message: message.to_owned(), field: field.to_owned() };
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    /// The named object does not exist.
    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} {name:?} not found")).about(resource, name)
    }

    /// No such resource is served.
    pub fn no_such_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_empty_details()
    }

    /// The name is taken.
    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} {name:?} already exists"))
            .about(resource, name)
    }

    /// The write was made for another state of the object.
    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} {name:?}: {why}");
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// The write was made for an older version of the object.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(resource, name, why)
    }

    /// Another manager owns what an apply would change.
    pub fn apply_conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    /// The object breaks rules of its kind.
    pub fn invalid(kind: &GroupKind, name: &str, errors: Vec<FieldError>) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for error in &errors {
            let text = error.to_string();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let text = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = Self::new(422, "Invalid", format!("{kind} {name:?} is invalid: {text}"));
        error.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes: errors
                .into_iter()
                .map(|e| Cause { reason: e.reason, message: e.message, field: e.field })
                .collect(),
            retry_after_seconds: None,
        }));
        error
    }

    /// The request cannot be understood.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Not allowed, by a rule that says why.
    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {name:?} is forbidden: {why}")
        };
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// A path that is no resource is not allowed.
    pub fn forbidden_path(why: &str) -> Self {
        Self::new(403, "Forbidden", format!("forbidden: {why}")).with_empty_details()
    }

    /// The credentials are not accepted.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// The verb does not exist for the resource.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_empty_details()
    }

    /// The body's media type is not understood.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// A patch type is not understood.
    pub fn unsupported_patch() -> Self {
        Self::unsupported_media_type("415: Unsupported Media Type").with_empty_details()
    }

    /// None of the acceptable media types is offered.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(406, "NotAcceptable", message)
    }

    /// No offered media type at all matches.
    pub fn no_representation(offered: &str) -> Self {
        Self::not_acceptable(format!("406: Not Acceptable\n\nAvailable representations: {offered}"))
            .with_empty_details()
    }

    /// A JSON patch did not apply.
    pub fn patch_failed() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message).with_empty_details()
    }

    /// The asked version is not held any more.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The asked version lies ahead of ours.
    pub fn version_ahead(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = Self::new(504, "Timeout", message).with_cause(
            "ResourceVersionTooLarge",
            "Too large resource version",
            "",
        );
        if let Some(details) = &mut error.details {
            details.retry_after_seconds = Some(1);
        }
        error
    }

    /// The body is larger than we take.
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message).with_empty_details()
    }

    /// More is asked at once than we answer.
    pub fn too_many_requests() -> Self {
        let message = "Too many requests, please try again later.";
        let mut error = Self::new(429, "TooManyRequests", message);
        error.details =
            Some(Box::new(Details { retry_after_seconds: Some(1), ..Details::default() }));
        error
    }

    /// Something of ours failed.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        let text = message.to_string();
        let mut error = Self::new(500, "InternalError", format!("Internal error occurred: {text}"));
        error.details = Some(Box::new(Details {
            causes: vec![Cause { reason: "", message: text, field: String::new() }],
            ..Details::default()
        }));
        error
    }

    /// Something we need to answer is not there now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// The `Status` object of this error.
    pub fn to_status(&self) -> Value {
        let mut metadata = json!({});
        if let Some(token) = &self.continue_token {
            metadata["continue"] = json!(token);
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some(details) = &self.details {
            status["details"] = json!(details);
        }
        status
    }

    /// The answer that carries this error.
    pub fn to_response(&self) -> Response {
        let mut response = body::json(self.code, &self.to_status());
        let retry = self.details.as_ref().and_then(|details| details.retry_after_seconds);
        if let Some(seconds) = retry {
            response.headers_mut().insert(hyper::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A `Status` that reports success.
pub fn success(code: Option<u16>, details: Option<Value>) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"
    });
    if let Some(details) = details {
        status["details"] = details;
    }
    if let Some(code) = code {
        status["code"] = json!(code);
    }
    status
}
