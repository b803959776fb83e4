//! Why a call to the API server failed.

use std::fmt;

use apis::controlplane::wire::DecodeError;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

/// What was asked of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many objects.
    List,
    /// Follow many objects.
    Watch,
    /// Make an object.
    Create,
    /// Replace an object.
    Update,
    /// Change parts of an object.
    Patch,
    /// Remove an object.
    Delete,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        })
    }
}

/// A call that failed: what was asked, and why it was not done.
#[derive(Debug, thiserror::Error)]
#[error("{verb} {resource}{}{name}", if name.is_empty() { "" } else { " " })]
pub struct ApiError {
    /// What was asked.
    pub verb: Verb,
    /// Plural of the kind, with a subresource after a slash.
    pub resource: String,
    /// Name of the object, with its namespace before a slash; empty for a list.
    pub name: String,
    /// Why it failed.
    pub source: CallError,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server refused.
    #[error("{message} ({reason}, {code})")]
    Status {
        /// HTTP status.
        code: u16,
        /// One word for programs.
        reason: String,
        /// A sentence for people.
        message: String,
    },
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The server was not reached, or the connection broke.
    #[error("reach the server")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer is not what we understand.
    #[error("understand the answer")]
    Decode(#[source] serde_json::Error),
    /// The answer, in protobuf, is not what we understand.
    #[error("understand the answer")]
    Message(#[source] DecodeError),
    /// What was to be sent is no valid request.
    #[error("form the request: {0}")]
    Request(String),
}

impl ApiError {
    /// HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        match &self.source {
            CallError::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The object does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// The object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == Some("AlreadyExists")
    }

    /// The object changed since it was read.
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409) && !self.is_already_exists()
    }

    /// Our rights do not allow this.
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The same call may succeed later without a change on our side.
    pub fn is_transient(&self) -> bool {
        match &self.source {
            CallError::Status { code, .. } => *code == 429 || *code >= 500,
            CallError::Timeout | CallError::Transport(_) => true,
            CallError::Decode(_) | CallError::Message(_) | CallError::Request(_) => false,
        }
    }

    fn reason(&self) -> Option<&str> {
        match &self.source {
            CallError::Status { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// The error and its sources on one line, for a log.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause: Option<&dyn std::error::Error> = Some(&self.source);
        while let Some(error) = cause {
            let part = error.to_string();
            if !text.ends_with(&part) {
                text.push_str(": ");
                text.push_str(&part);
            }
            cause = error.source();
        }
        text
    }
}

impl From<kube::Error> for CallError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            kube::Error::SerdeError(error) => Self::Decode(error),
            kube::Error::BuildRequest(error) => Self::Request(error.to_string()),
            other => Self::Transport(Box::new(other)),
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Status {
            code: status.code.and_then(|code| u16::try_from(code).ok()).unwrap_or(500),
            reason: status.reason.unwrap_or_default(),
            message: status.message.unwrap_or_default(),
        }
    }
}

impl From<kube::core::Status> for CallError {
    fn from(status: kube::core::Status) -> Self {
        Self::Status { code: status.code, reason: status.reason, message: status.message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_error(code: u16, reason: &str) -> ApiError {
        ApiError {
            verb: Verb::Patch,
            resource: "nodes".into(),
            name: "node-1".into(),
            source: CallError::Status { code, reason: reason.into(), message: "no".into() },
        }
    }

    #[test]
    fn kinds_of_refusal_are_told_apart() {
        assert!(mk_error(404, "NotFound").is_not_found());
        assert!(mk_error(409, "Conflict").is_conflict());
        assert!(!mk_error(409, "AlreadyExists").is_conflict());
        assert!(mk_error(409, "AlreadyExists").is_already_exists());
        assert!(mk_error(503, "ServiceUnavailable").is_transient());
        assert!(!mk_error(403, "Forbidden").is_transient());
    }

    #[test]
    fn the_chain_names_call_and_cause_once() {
        assert_eq!(mk_error(403, "Forbidden").chain(), "patch nodes node-1: no (Forbidden, 403)");
    }
}
