//! ServiceAccounts: tokens for programs that run under one.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// What a token is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenRequest {
    /// Who is to accept it; the API server when empty.
    pub audiences: Vec<String>,
    /// How long it is to be valid; the server may choose otherwise.
    pub expiration_seconds: Option<i64>,
    /// The object with which it becomes invalid.
    pub bound_to: Option<BoundObject>,
}

/// An object whose end is the end of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundObject {
    /// Pod, Secret or Node.
    pub kind: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// A token, and when it ends.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// To be sent as a bearer token.
    pub token: String,
    /// When it becomes invalid.
    pub expires: Option<Timestamp>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Answer {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: String,
    #[serde(default)]
    expiration_timestamp: Option<Timestamp>,
}

/// Asks for a token of a ServiceAccount.
///
/// # Errors
/// When the server refuses.
pub async fn request_token(
    client: &Client,
    namespace: &str,
    name: &str,
    request: &TokenRequest,
) -> Result<Token, ApiError> {
    let mut spec = json!({"audiences": request.audiences});
    if let Some(seconds) = request.expiration_seconds {
        spec["expirationSeconds"] = seconds.into();
    }
    if let Some(object) = &request.bound_to {
        spec["boundObjectRef"] = json!({
            "apiVersion": "v1",
            "kind": object.kind,
            "name": object.name,
            "uid": object.uid,
        });
    }
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": spec,
    });
    let answer: Answer = Call::to(Verb::Create, "", "v1", "serviceaccounts")
        .namespace(namespace)
        .name(name)
        .subresource("token")
        .object(&body)
        .send(client)
        .await?;
    Ok(Token { token: answer.status.token, expires: answer.status.expiration_timestamp })
}
