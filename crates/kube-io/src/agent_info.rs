//! AntreaAgentInfo objects: each agent's report about itself.

use apis::AntreaAgentInfo;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// Writes a report, as a new object or over the one there is; one that says the same is left alone.
///
/// # Errors
/// When the server refuses.
pub async fn upsert(client: &Client, info: &AntreaAgentInfo) -> Result<(), ApiError> {
    crate::call::upsert(client, info).await
}

/// Reads the report of a Node's agent.
///
/// # Errors
/// When the server does not answer with one.
pub async fn get(client: &Client, node: &str) -> Result<AntreaAgentInfo, ApiError> {
    Call::on::<AntreaAgentInfo>(Verb::Get).name(node).send(client).await
}

/// Reads all reports.
///
/// # Errors
/// When the server does not answer with a list.
pub async fn list(client: &Client) -> Result<Vec<AntreaAgentInfo>, ApiError> {
    let (all, _) = Call::on::<AntreaAgentInfo>(Verb::List).list(client).await?;
    Ok(all)
}

/// Removes the report of a Node that is gone.
///
/// # Errors
/// When the server refuses; a report that is gone already is no error.
pub async fn delete(client: &Client, node: &str) -> Result<(), ApiError> {
    match Call::on::<AntreaAgentInfo>(Verb::Delete).name(node).run(client).await {
        Err(error) if error.is_not_found() => Ok(()),
        result => result,
    }
}
