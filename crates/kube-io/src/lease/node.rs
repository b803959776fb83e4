//! The Lease by which a Node shows that it lives.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::object::Lease;
use super::store::{ApiStore, LeaseStore, StoreError};
use crate::client::Client;

/// Namespace of these Leases.
const NAMESPACE: &str = "kube-node-lease";
/// Seconds after which a Node counts as silent.
const SECONDS: u32 = 40;

/// Renews a Node's Lease, or makes it.
///
/// # Errors
/// When the server refuses; a conflict is tried again once.
pub async fn renew_node(client: &Client, node: &str, node_uid: &str) -> Result<(), StoreError> {
    let store = ApiStore::new(client, NAMESPACE, node);
    match renew(&store, node, node_uid).await {
        Err(StoreError::Conflict) => renew(&store, node, node_uid).await,
        result => result,
    }
}

async fn renew(store: &ApiStore, node: &str, node_uid: &str) -> Result<(), StoreError> {
    let now = Timestamp::now();
    match store.read().await? {
        Some(lease) => store.replace(&lease.held_by(node, SECONDS, now)).await?,
        None => {
            let mut lease = Lease::new(NAMESPACE, node).held_by(node, SECONDS, now);
            // Neither of them means anything for a Lease that is never handed over.
            lease.spec.acquire_time = None;
            lease.spec.lease_transitions = None;
            lease.metadata.owner_references = Some(vec![OwnerReference {
                api_version: "v1".into(),
                kind: "Node".into(),
                name: node.into(),
                uid: node_uid.into(),
                ..OwnerReference::default()
            }]);
            store.create(&lease).await?
        }
    };
    Ok(())
}
