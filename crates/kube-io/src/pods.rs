//! Pods: watching them, placing them on Nodes, and running them.

mod object;
mod status;
mod view;

use futures::Stream;
use serde_json::json;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};
use crate::watch::{Selection, WatchEvent, watch as watch_kind};
use object::Pod;

pub use status::{ContainerState, ContainerStatus, PodCondition, PodStatus};
pub use view::{Container, ContainerPort, EnvVar, PodKey, PodSpec, PodView, Probe, Toleration};

/// What a watch of Pods saw; `Deleted` carries the Pod's namespace, name and UID.
pub type PodEvent = WatchEvent<PodView>;

/// Watches all Pods.
pub fn watch(client: &Client) -> impl Stream<Item = PodEvent> + Send + Unpin + 'static {
    watch_kind(client, Selection::default(), Pod::into_view)
}

/// Watches the Pods of one Node.
pub fn watch_node(
    client: &Client,
    node: &str,
) -> impl Stream<Item = PodEvent> + Send + Unpin + 'static {
    let selection = Selection { fields: format!("spec.nodeName={node}"), ..Selection::default() };
    watch_kind(client, selection, Pod::into_view)
}

/// Watches the Pods that have no Node yet; one that gets a Node comes as `Deleted`.
pub fn watch_unscheduled(client: &Client) -> impl Stream<Item = PodEvent> + Send + Unpin + 'static {
    let selection = Selection { fields: "spec.nodeName=".into(), ..Selection::default() };
    watch_kind(client, selection, Pod::into_view)
}

/// Reads one Pod.
///
/// # Errors
/// When the server does not answer with a Pod.
pub async fn get(client: &Client, namespace: &str, name: &str) -> Result<PodView, ApiError> {
    let call = Call::on::<Pod>(Verb::Get).namespace(namespace).name(name);
    Ok(call.send::<Pod>(client).await?.into_view())
}

/// Reads the resource version of one Pod, as a number.
///
/// # Errors
/// When the server does not answer with a Pod.
pub async fn version(client: &Client, namespace: &str, name: &str) -> Result<u64, ApiError> {
    #[derive(serde::Deserialize)]
    struct Found {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let call = Call::on::<Pod>(Verb::Get).namespace(namespace).name(name);
    let found: Found = call.send(client).await?;
    Ok(found.metadata.resource_version.parse().unwrap_or(0))
}

/// Reads all Pods as of now, and the version that this list has.
///
/// # Errors
/// When the server does not answer with a list.
pub async fn list(client: &Client) -> Result<(Vec<PodView>, String), ApiError> {
    let (pods, version) = Call::on::<Pod>(Verb::List).list::<Pod>(client).await?;
    Ok((pods.into_iter().map(Pod::into_view).collect(), version))
}

/// Reports how a Pod is; what `status` leaves empty stays as it is on the server.
///
/// # Errors
/// [`ApiError::is_conflict`] when another Pod has taken the name; it is not touched then.
pub async fn patch_status(
    client: &Client,
    pod: &PodKey,
    status: &PodStatus,
) -> Result<PodView, ApiError> {
    let patch = json!({"metadata": {"uid": pod.uid}, "status": status});
    let call = Call::on::<Pod>(Verb::Patch)
        .namespace(&pod.namespace)
        .name(&pod.name)
        .subresource("status")
        .merge(&patch);
    Ok(call.send::<Pod>(client).await?.into_view())
}

/// Asks for a Pod's deletion, with the grace period it asked for itself.
///
/// # Errors
/// When the server refuses; a Pod that is gone already is no error.
pub async fn delete(client: &Client, pod: &PodKey) -> Result<(), ApiError> {
    let options = json!({"preconditions": {"uid": pod.uid}});
    delete_with(client, pod, &options).await
}

/// Removes a Pod from the server at once: its containers have stopped.
///
/// # Errors
/// When the server refuses; a Pod that is gone already is no error.
pub async fn delete_now(client: &Client, pod: &PodKey) -> Result<(), ApiError> {
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}});
    delete_with(client, pod, &options).await
}

async fn delete_with(
    client: &Client,
    pod: &PodKey,
    options: &serde_json::Value,
) -> Result<(), ApiError> {
    let mut body = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
    for (key, value) in options.as_object().into_iter().flatten() {
        body[key] = value.clone();
    }
    let call = Call::on::<Pod>(Verb::Delete).namespace(&pod.namespace).name(&pod.name);
    match call.object(&body).run(client).await {
        Err(error) if error.is_not_found() => Ok(()),
        // Another Pod has taken the name, so ours is gone.
        Err(error) if error.is_conflict() => Ok(()),
        result => result,
    }
}

/// Places a Pod on a Node.
///
/// # Errors
/// [`ApiError::is_conflict`] when it has a Node already, or another Pod has taken the name.
pub async fn bind(client: &Client, pod: &PodKey, node: &str) -> Result<(), ApiError> {
    let binding = json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    Call::on::<Pod>(Verb::Create)
        .namespace(&pod.namespace)
        .name(&pod.name)
        .subresource("binding")
        .object(&binding)
        .run(client)
        .await
}

/// Says why a Pod cannot be placed; shown by `kubectl describe`.
///
/// # Errors
/// When the server refuses.
pub async fn set_unschedulable(
    client: &Client,
    pod: &PodKey,
    message: &str,
) -> Result<(), ApiError> {
    let patch = json!({
        "metadata": {"uid": pod.uid},
        "status": {"conditions": [{
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
        }]},
    });
    Call::on::<Pod>(Verb::Patch)
        .namespace(&pod.namespace)
        .name(&pod.name)
        .subresource("status")
        .strategic(&patch)
        .run(client)
        .await
}
