//! The AntreaControllerInfo object: the controller's report about itself.

use apis::AntreaControllerInfo;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// Writes the report, as a new object or over the one there is; one that says the same is left alone.
///
/// # Errors
/// When the server refuses.
pub async fn upsert(client: &Client, info: &AntreaControllerInfo) -> Result<(), ApiError> {
    crate::call::upsert(client, info).await
}

/// Reads the report.
///
/// # Errors
/// When the server does not answer with it.
pub async fn get(client: &Client) -> Result<AntreaControllerInfo, ApiError> {
    let call = Call::on::<AntreaControllerInfo>(Verb::Get);
    call.name(apis::controller_info::NAME).send(client).await
}
