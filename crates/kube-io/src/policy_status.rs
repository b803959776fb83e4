//! What the controller writes about policies: their statuses, and the tiers that always exist.

use apis::policy::{GroupStatus, NetworkPolicyStatus, Tier, TierSpec};
use serde_json::json;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// The policy or group that a status is of.
#[derive(Clone, Copy, Debug)]
pub struct StatusOf<'a> {
    /// Namespace of a NetworkPolicy or Group; none for a ClusterNetworkPolicy or ClusterGroup.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
    /// UID; a status of another object of that name is not touched.
    pub uid: &'a str,
}

/// Writes the status of one of Antrea's policies.
///
/// # Errors
/// When the server refuses; [`ApiError::is_conflict`] if another object has taken the name.
pub async fn write(
    client: &Client,
    of: &StatusOf<'_>,
    status: &NetworkPolicyStatus,
) -> Result<(), ApiError> {
    let plural = match of.namespace {
        Some(_) => "networkpolicies",
        None => "clusternetworkpolicies",
    };
    let patch = json!({"metadata": {"uid": of.uid}, "status": status});
    let mut call = Call::to(Verb::Patch, "crd.antrea.io", "v1beta1", plural);
    if let Some(namespace) = of.namespace {
        call = call.namespace(namespace);
    }
    call.name(of.name).subresource("status").merge(&patch).run(client).await
}

/// Writes the status of a Group, or of a ClusterGroup.
///
/// # Errors
/// When the server refuses; [`ApiError::is_conflict`] if another object has taken the name.
pub async fn write_group(
    client: &Client,
    of: &StatusOf<'_>,
    status: &GroupStatus,
) -> Result<(), ApiError> {
    let plural = if of.namespace.is_some() { "groups" } else { "clustergroups" };
    let patch = json!({"metadata": {"uid": of.uid}, "status": status});
    let mut call = Call::to(Verb::Patch, "crd.antrea.io", "v1beta1", plural);
    if let Some(namespace) = of.namespace {
        call = call.namespace(namespace);
    }
    call.name(of.name).subresource("status").merge(&patch).run(client).await
}

/// Makes a tier if it is not there.
///
/// # Errors
/// When the server refuses.
pub async fn make_tier(client: &Client, name: &str, priority: i32) -> Result<(), ApiError> {
    let mut tier = Tier { spec: TierSpec { priority, description: None }, ..Tier::default() };
    tier.types.api_version = "crd.antrea.io/v1beta1".to_owned();
    tier.types.kind = "Tier".to_owned();
    tier.metadata.name = Some(name.to_owned());
    let call = Call::to(Verb::Create, "crd.antrea.io", "v1beta1", "tiers");
    match call.object(&tier).run(client).await {
        Err(error) if error.is_already_exists() => Ok(()),
        result => result,
    }
}
