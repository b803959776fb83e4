//! Objects of any kind, by the path of their kind.

use serde_json::Value;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// Which object.
#[derive(Clone, Copy, Debug)]
pub struct ObjectPath<'a> {
    /// API group; empty for the core one.
    pub group: &'a str,
    /// Its version.
    pub version: &'a str,
    /// Plural of the kind.
    pub plural: &'a str,
    /// Namespace, where it is in one.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
}

impl<'a> ObjectPath<'a> {
    fn call(&self, verb: Verb) -> Call<'a> {
        let call = Call::to(verb, self.group, self.version, self.plural).name(self.name);
        match self.namespace {
            Some(namespace) => call.namespace(namespace),
            None => call,
        }
    }
}

/// Makes an object in the namespace of the path, whose name does not count.
///
/// # Errors
/// When the server refuses.
pub async fn create(client: &Client, path: ObjectPath<'_>, object: &Value) -> Result<(), ApiError> {
    let call = Call::to(Verb::Create, path.group, path.version, path.plural);
    let call = match path.namespace {
        Some(namespace) => call.namespace(namespace),
        None => call,
    };
    call.object(object).run(client).await
}

/// Reads an object.
///
/// # Errors
/// When the server does not answer with it.
pub async fn get(client: &Client, object: ObjectPath<'_>) -> Result<Value, ApiError> {
    object.call(Verb::Get).send(client).await
}

/// Reads all objects of a kind, as the list that the server gives; the path's name does not count.
///
/// # Errors
/// When the server does not answer with them.
pub async fn list(client: &Client, path: ObjectPath<'_>) -> Result<Value, ApiError> {
    let call = Call::to(Verb::List, path.group, path.version, path.plural);
    let call = match path.namespace {
        Some(namespace) => call.namespace(namespace),
        None => call,
    };
    call.send(client).await
}

/// Deletes an object; one that is gone is no error.
///
/// # Errors
/// When the server refuses.
pub async fn delete(client: &Client, object: ObjectPath<'_>) -> Result<(), ApiError> {
    match object.call(Verb::Delete).run(client).await {
        Err(error) if error.is_not_found() => Ok(()),
        result => result,
    }
}

/// Changes an object by a merge patch.
///
/// # Errors
/// When the server refuses.
pub async fn merge(client: &Client, object: ObjectPath<'_>, patch: &Value) -> Result<(), ApiError> {
    object.call(Verb::Patch).merge(patch).run(client).await
}

/// Changes the status of an object by a merge patch.
///
/// # Errors
/// When the server refuses.
pub async fn merge_status(
    client: &Client,
    object: ObjectPath<'_>,
    patch: &Value,
) -> Result<(), ApiError> {
    object.call(Verb::Patch).subresource("status").merge(patch).run(client).await
}
