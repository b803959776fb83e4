//! What a transaction gave (RFC 7047 sections 4.1.3 and 5.2).

use std::fmt;

use serde_json::Value as Json;
use uuid::Uuid;

use crate::value::{Atom, ValueError};

/// What one operation gave.
#[derive(Clone, Debug, PartialEq)]
pub enum OpResult {
    /// An insert: the new row.
    Inserted(Uuid),
    /// An update, mutate or delete: how many rows.
    Count(u64),
    /// A select: the rows, columns by name.
    Rows(Vec<serde_json::Map<String, Json>>),
    /// Anything else: done.
    Done,
}

/// An error that the database gave for one operation, or for the transaction as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpFailure {
    /// Which operation, counted from 0; none when committing failed.
    pub operation: Option<usize>,
    /// The kind: `constraint violation`, `timed out`, ...
    pub error: String,
    /// What about it.
    pub details: Option<String>,
}

/// The kinds of errors that the protocol names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A constraint of the schema is violated, a duplicate name for instance.
    ConstraintViolation,
    /// A row would refer to one that is not there.
    ReferentialIntegrity,
    /// A wait did not find in time what it asks for.
    TimedOut,
    /// An assert names a lock that this connection does not have.
    NotOwner,
    /// An abort operation.
    Aborted,
    /// A division by zero.
    Domain,
    /// A result that is no 64-bit number.
    Range,
    /// The request has not the form that the protocol wants; or names a table or column that is
    /// not there.
    Syntax,
    /// The request names a database that is not there.
    UnknownDatabase,
    /// Two rows have one name in a transaction.
    DuplicateUuidName,
    /// Something is not implemented, not allowed, or the method is not known.
    NotSupported,
    /// Memory or disk is full.
    ResourcesExhausted,
    /// The disk failed.
    Io,
    /// The database is not usable: it is converted, leaves its cluster, has no leader.
    Unavailable,
    /// An error that this crate has no name for.
    Other,
}

impl ErrorKind {
    /// The kind of the error with this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "constraint violation" => Self::ConstraintViolation,
            "referential integrity violation" => Self::ReferentialIntegrity,
            "timed out" => Self::TimedOut,
            "not owner" => Self::NotOwner,
            "aborted" => Self::Aborted,
            "domain error" => Self::Domain,
            "range error" => Self::Range,
            "syntax error" | "unknown table" | "unknown column" => Self::Syntax,
            "unknown database" => Self::UnknownDatabase,
            "duplicate uuid-name" => Self::DuplicateUuidName,
            "not supported" | "not allowed" | "unknown method" => Self::NotSupported,
            "resources exhausted" => Self::ResourcesExhausted,
            "I/O error" => Self::Io,
            "canceled" | "database not available" | "not leader" | "cluster error" => {
                Self::Unavailable
            }
            _ => Self::Other,
        }
    }
}

impl OpFailure {
    /// Which of the protocol's errors it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of(&self.error)
    }

    /// Whether a constraint of the schema was violated, a duplicate name for instance.
    #[must_use]
    pub fn is_constraint_violation(&self) -> bool {
        self.error == "constraint violation"
    }

    /// Whether a [`Wait`](crate::Operation::Wait) did not find what it asks for.
    #[must_use]
    pub fn is_wait_failure(&self) -> bool {
        self.error == "timed out"
    }
}

impl fmt::Display for OpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.operation {
            Some(number) => write!(f, "operation {number}: {}", self.error)?,
            None => write!(f, "commit: {}", self.error)?,
        }
        match &self.details {
            Some(details) => write!(f, ": {details}"),
            None => Ok(()),
        }
    }
}

/// Why a transaction's reply gives no results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransactError {
    /// The database refused it; nothing was changed.
    #[error("{0}")]
    Refused(OpFailure),
    /// The reply is no list of results.
    #[error("malformed transaction reply: {0}")]
    Malformed(&'static str),
    /// The reply holds something that is no value.
    #[error("malformed transaction reply")]
    Value(#[from] ValueError),
}

/// Reads the reply to a transaction of `n_operations` operations.
pub fn parse_results(n_operations: usize, reply: &Json) -> Result<Vec<OpResult>, TransactError> {
    let items = reply.as_array().ok_or(TransactError::Malformed("not an array"))?;
    for (index, item) in items.iter().enumerate() {
        if let Some(error) = item.get("error").filter(|error| !error.is_null()) {
            return Err(TransactError::Refused(OpFailure {
                operation: (index < n_operations).then_some(index),
                error: error.as_str().map_or_else(|| error.to_string(), str::to_owned),
                details: item.get("details").and_then(Json::as_str).map(str::to_owned),
            }));
        }
    }
    if items.len() < n_operations {
        return Err(TransactError::Malformed("fewer results than operations"));
    }
    items.iter().take(n_operations).map(parse_result).collect()
}

fn parse_result(item: &Json) -> Result<OpResult, TransactError> {
    let Json::Object(object) = item else {
        return Err(TransactError::Malformed("a result is not an object"));
    };
    if let Some(uuid) = object.get("uuid") {
        return match Atom::from_json(uuid)? {
            Atom::Uuid(uuid) => Ok(OpResult::Inserted(uuid)),
            _ => Err(TransactError::Malformed("an insert's uuid is not one")),
        };
    }
    if let Some(count) = object.get("count") {
        let count = count.as_u64().ok_or(TransactError::Malformed("a count is not a number"))?;
        return Ok(OpResult::Count(count));
    }
    if let Some(rows) = object.get("rows") {
        let rows = rows.as_array().ok_or(TransactError::Malformed("rows are not an array"))?;
        return rows
            .iter()
            .map(|row| row.as_object().cloned())
            .collect::<Option<_>>()
            .map(OpResult::Rows)
            .ok_or(TransactError::Malformed("a row is not an object"));
    }
    Ok(OpResult::Done)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_typed() {
        let uuid = Uuid::from_u128(7);
        let reply =
            json!([{"uuid": ["uuid", uuid.to_string()]}, {"count": 2}, {}, {"rows": [{"a": 1}]}]);
        let results = parse_results(4, &reply).unwrap();
        assert_eq!(results[0], OpResult::Inserted(uuid));
        assert_eq!(results[1], OpResult::Count(2));
        assert_eq!(results[2], OpResult::Done);
        assert!(matches!(&results[3], OpResult::Rows(rows) if rows[0]["a"] == 1));
    }

    #[test]
    fn the_first_error_wins_and_says_where() {
        let reply = json!([{}, {"error": "timed out", "details": "too late"}, null]);
        let error = parse_results(3, &reply).unwrap_err();
        assert_eq!(error.to_string(), "operation 1: timed out: too late");
        let TransactError::Refused(failure) = error else { panic!() };
        assert!(failure.is_wait_failure());

        let reply = json!([{"count": 1}, {"error": "constraint violation"}]);
        let error = parse_results(1, &reply).unwrap_err();
        assert_eq!(error.to_string(), "commit: constraint violation");
    }

    #[test]
    fn malformed_replies_are_errors() {
        for reply in
            [json!({}), json!([]), json!([1]), json!([{"uuid": 1}]), json!([{"count": -1}])]
        {
            assert!(parse_results(1, &reply).is_err(), "{reply}");
        }
    }
}
