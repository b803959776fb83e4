//! Where a Lease is kept: the API server, or memory in tests.

use std::future::Future;

use super::object::Lease;
use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// Why a Lease was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote it in between.
    #[error("the Lease changed in between")]
    Conflict,
    /// It could not be reached, or access was refused.
    #[error("{0}")]
    Failed(String),
}

/// Keeps one Lease; every write is conditional on the version that it was read at.
pub trait LeaseStore: Send + Sync + 'static {
    /// Reads the Lease.
    fn read(&self) -> impl Future<Output = Result<Option<Lease>, StoreError>> + Send;
    /// Makes the Lease.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Lease, StoreError>> + Send;
    /// Writes over the version that `lease` carries.
    fn replace(&self, lease: &Lease) -> impl Future<Output = Result<Lease, StoreError>> + Send;
}

/// A Lease on the API server.
pub struct ApiStore {
    client: Client,
    namespace: String,
    name: String,
}

impl ApiStore {
    /// The Lease of this name.
    pub fn new(client: &Client, namespace: &str, name: &str) -> Self {
        Self { client: client.clone(), namespace: namespace.into(), name: name.into() }
    }
}

impl LeaseStore for ApiStore {
    async fn read(&self) -> Result<Option<Lease>, StoreError> {
        let call = Call::on::<Lease>(Verb::Get).namespace(&self.namespace).name(&self.name);
        match call.send(&self.client).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(explain(&error)),
        }
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let call = Call::on::<Lease>(Verb::Create).namespace(&self.namespace).object(lease);
        call.send(&self.client).await.map_err(|error| explain(&error))
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let call = Call::on::<Lease>(Verb::Update).namespace(&self.namespace).name(&self.name);
        call.object(lease).send(&self.client).await.map_err(|error| explain(&error))
    }
}

fn explain(error: &ApiError) -> StoreError {
    // One that was removed since it was read is made anew after the next read.
    if error.is_conflict() || error.is_already_exists() || error.is_not_found() {
        StoreError::Conflict
    } else {
        StoreError::Failed(error.chain())
    }
}
