//! Locks that connections to a server share (RFC 7047 sections 4.1.8 to 4.1.10).
//!
//! A connection that has a lock keeps it until it gives it back, another one steals it, or it ends.
//! [`Operation::Assert`](crate::Operation::Assert) makes a transaction depend on it.

use serde_json::{Value as Json, json};

/// What is asked about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMethod {
    /// Have it when nobody else has it any more.
    Lock,
    /// Have it now, whoever has it.
    Steal,
    /// Give it back, or wait for it no longer.
    Unlock,
}

/// What a server tells about a lock by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// This connection has it now.
    Locked(String),
    /// Another connection took it.
    Stolen(String),
}

/// Why a message about a lock is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message about a lock: {0}")]
pub struct LockError(&'static str);

impl LockMethod {
    /// Method and parameters of the request about the lock of this name.
    #[must_use]
    pub fn request(self, lock: &str) -> (&'static str, Json) {
        let method = match self {
            Self::Lock => "lock",
            Self::Steal => "steal",
            Self::Unlock => "unlock",
        };
        (method, json!([lock]))
    }
}

/// Reads the answer to `lock` or `steal`: whether the connection has the lock already.
pub fn lock_reply(result: &Json) -> Result<bool, LockError> {
    result.get("locked").and_then(Json::as_bool).ok_or(LockError("locked is no boolean"))
}

impl LockEvent {
    /// Reads a notification; nothing when it is about something else.
    pub fn from_notification(method: &str, params: &Json) -> Result<Option<Self>, LockError> {
        if !matches!(method, "locked" | "stolen") {
            return Ok(None);
        }
        let name = match params.as_array().map(Vec::as_slice) {
            Some([Json::String(name)]) => name.clone(),
            _ => return Err(LockError("its parameter is one name")),
        };
        Ok(Some(if method == "locked" { Self::Locked(name) } else { Self::Stolen(name) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_about_locks_are_told_apart() {
        assert_eq!(LockMethod::Steal.request("x"), ("steal", json!(["x"])));
        assert_eq!(lock_reply(&json!({"locked": true})), Ok(true));
        assert!(lock_reply(&json!({})).is_err());
        let read = |method, params| LockEvent::from_notification(method, &params);
        assert_eq!(read("locked", json!(["x"])), Ok(Some(LockEvent::Locked("x".into()))));
        assert_eq!(read("stolen", json!(["x"])), Ok(Some(LockEvent::Stolen("x".into()))));
        assert_eq!(read("update3", json!([])), Ok(None));
        assert!(read("locked", json!(["x", 1])).is_err());
    }
}
