//! Nodes: watching them, giving them Pod CIDRs, and being one.

mod object;
mod registration;
mod view;

use futures::Stream;
use ipnet::IpNet;
use jiff::Timestamp;
use serde_json::json;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};
use crate::time::seconds;
use crate::watch::{Selection, WatchEvent, watch as watch_kind};
pub(crate) use object::Node;

pub use registration::{NodeRegistration, heartbeat, register};
pub use view::{NodeView, Taint, TaintEffect};

/// What a watch of Nodes saw; `Deleted` carries the Node's name.
pub type NodeEvent = WatchEvent<NodeView>;

/// A condition that we write into a Node's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeCondition {
    /// What it is about, such as `Ready` or `NetworkUnavailable`.
    pub type_: String,
    /// Whether it holds.
    pub status: apis::common::ConditionStatus,
    /// The cause in one word.
    pub reason: String,
    /// The cause for people.
    pub message: String,
    /// When `status` last changed.
    pub last_transition: Timestamp,
}

/// Watches all Nodes.
pub fn watch(client: &Client) -> impl Stream<Item = NodeEvent> + Send + Unpin + 'static {
    watch_kind(client, Selection::default(), Node::into_view)
}

/// Reads one Node.
///
/// # Errors
/// When the server does not answer with a Node.
pub async fn get(client: &Client, name: &str) -> Result<NodeView, ApiError> {
    let node: Node = Call::on::<Node>(Verb::Get).name(name).send(client).await?;
    Ok(node.into_view())
}

/// Reads all Nodes as of now, and the version that this list has.
///
/// The answer is not from a cache: it holds whatever any writer has written before the call.
///
/// # Errors
/// When the server does not answer with a list.
pub async fn list(client: &Client) -> Result<(Vec<NodeView>, String), ApiError> {
    let (nodes, version) = Call::on::<Node>(Verb::List).list::<Node>(client).await?;
    Ok((nodes.into_iter().map(Node::into_view).collect(), version))
}

/// Gives a Node its Pod CIDRs, provided that it is still as `node` shows it.
///
/// # Errors
/// [`ApiError::is_conflict`] when the Node changed since; then it is not touched.
pub async fn patch_pod_cidrs(
    client: &Client,
    node: &NodeView,
    cidrs: &[IpNet],
) -> Result<NodeView, ApiError> {
    let texts: Vec<String> = cidrs.iter().map(ToString::to_string).collect();
    let patch = json!({
        "metadata": {"uid": node.uid, "resourceVersion": node.resource_version},
        "spec": {"podCIDR": texts.first(), "podCIDRs": texts},
    });
    let call = Call::on::<Node>(Verb::Patch).name(&node.name).merge(&patch);
    let changed: Node = call.send(client).await?;
    Ok(changed.into_view())
}

/// Writes one condition and leaves the others as they are.
///
/// # Errors
/// When the server refuses.
pub async fn set_condition(
    client: &Client,
    name: &str,
    condition: &NodeCondition,
) -> Result<(), ApiError> {
    set_conditions(client, name, std::slice::from_ref(condition), Timestamp::now()).await
}

async fn set_conditions(
    client: &Client,
    name: &str,
    conditions: &[NodeCondition],
    now: Timestamp,
) -> Result<(), ApiError> {
    let conditions: Vec<_> = conditions
        .iter()
        .map(|condition| {
            json!({
                "type": condition.type_,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastHeartbeatTime": seconds(now),
                "lastTransitionTime": seconds(condition.last_transition),
            })
        })
        .collect();
    let patch = json!({"status": {"conditions": conditions}});
    Call::on::<Node>(Verb::Patch)
        .name(name)
        .subresource("status")
        .strategic(&patch)
        .run(client)
        .await
}

/// Removes a Node.
///
/// # Errors
/// When the server refuses; a Node that is gone already is no error.
pub async fn delete(client: &Client, name: &str) -> Result<(), ApiError> {
    match Call::on::<Node>(Verb::Delete).name(name).run(client).await {
        Err(error) if error.is_not_found() => Ok(()),
        result => result,
    }
}
