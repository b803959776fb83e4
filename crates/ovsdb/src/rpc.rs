//! JSON-RPC 1.0 messages (RFC 7047 section 4).

use serde_json::{Value as Json, json};

/// Number of a request of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub u64);

/// What the peer sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// An answer to a request of ours: its result, or its error.
    Response {
        /// The request.
        id: Id,
        /// What it gave.
        result: Result<Json, Json>,
    },
    /// Something we are told.
    Notification {
        /// What.
        method: String,
        /// About what.
        params: Json,
    },
    /// Something we are asked.
    Request {
        /// What to put on the answer.
        id: Json,
        /// What.
        method: String,
        /// About what.
        params: Json,
    },
}

/// Why a JSON value is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed JSON-RPC message: {0}")]
pub struct RpcError(&'static str);

impl Incoming {
    /// Reads a message.
    pub fn from_json(json: Json) -> Result<Self, RpcError> {
        let Json::Object(mut object) = json else { return Err(RpcError("not an object")) };
        let mut take = |key: &str| object.remove(key).unwrap_or(Json::Null);
        let (id, method) = (take("id"), take("method"));
        match (method, id) {
            (Json::String(method), Json::Null) => {
                Ok(Self::Notification { method, params: take("params") })
            }
            (Json::String(method), id) => Ok(Self::Request { id, method, params: take("params") }),
            (Json::Null, id) => {
                let id = id.as_u64().map(Id).ok_or(RpcError("answer to a request not ours"))?;
                let error = take("error");
                let result = if error.is_null() { Ok(take("result")) } else { Err(error) };
                Ok(Self::Response { id, result })
            }
            _ => Err(RpcError("method is not a string")),
        }
    }
}

/// A request.
#[must_use]
pub fn request(id: Id, method: &str, params: &Json) -> Json {
    json!({"id": id.0, "method": method, "params": params})
}

/// A notification.
#[must_use]
pub fn notification(method: &str, params: &Json) -> Json {
    json!({"id": null, "method": method, "params": params})
}

/// An answer.
#[must_use]
pub fn response(id: &Json, result: Result<Json, Json>) -> Json {
    match result {
        Ok(result) => json!({"id": id, "result": result, "error": null}),
        Err(error) => json!({"id": id, "result": null, "error": error}),
    }
}

/// The answer to an `echo` request: what it carried.
#[must_use]
pub fn echo_reply(id: &Json, params: Json) -> Json {
    response(id, Ok(params))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let read = |json: Json| Incoming::from_json(json);
        let echo = request(Id(3), "echo", &json!([]));
        assert!(matches!(read(echo), Ok(Incoming::Request { method, .. }) if method == "echo"));
        let update = notification("update2", &json!([1]));
        assert_eq!(
            read(update),
            Ok(Incoming::Notification { method: "update2".into(), params: json!([1]) })
        );
        assert_eq!(
            read(response(&json!(3), Ok(json!("x")))),
            Ok(Incoming::Response { id: Id(3), result: Ok(json!("x")) })
        );
        assert_eq!(
            read(response(&json!(3), Err(json!("bad")))),
            Ok(Incoming::Response { id: Id(3), result: Err(json!("bad")) })
        );
        for bad in [json!(1), json!({"method": 1}), json!({"id": "x", "result": 1}), json!({})] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }
}
