//! Watches of everything that policy is computed from, with only the fields that it needs.
//!
//! Objects carry the resource version at which they were seen, so that the reader can tell how far it
//! has read. Not here: what is computed (`policy`).

mod message;
mod pod;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;

use apis::policy::{ClusterGroup, ClusterNetworkPolicy, Group, NetworkPolicy, Tier};
use apis::upstream;
use futures::Stream;
use k8s_openapi::api::networking::v1::NetworkPolicy as K8sNetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::client::Client;
use crate::nodes::{Node, NodeView};
use crate::watch::{Form, Keyed, Versioned, watch_versions};

pub use pod::{PodFacts, PortFacts};

/// Annotation of a namespace that asks to log what Kubernetes' policies decide.
const ENABLE_LOGGING: &str = "networkpolicy.antrea.io/enable-logging";

/// An object that policy is computed from.
#[derive(Clone, Debug)]
pub struct Input<T> {
    /// Which object, and as of when.
    pub key: InputKey,
    /// What is used of it.
    pub object: T,
}

/// What identifies an object, and the resource version at which it was seen or gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputKey {
    /// Namespace; empty in cluster scope.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version as a number.
    pub version: u64,
}

impl InputKey {
    fn of(meta: &ObjectMeta) -> Self {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        Self {
            namespace: text(&meta.namespace),
            name: text(&meta.name),
            uid: text(&meta.uid),
            version: meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or(0),
        }
    }
}

impl<T> Keyed for Input<T> {
    type Key = InputKey;

    fn key(&self) -> InputKey {
        self.key.clone()
    }
}

/// What is used of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Whether it asks to log what Kubernetes' policies decide.
    pub log_policies: bool,
}

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Namespace)]
struct Namespace {
    #[serde(default, deserialize_with = "slim")]
    metadata: ObjectMeta,
}

/// Metadata without what takes most of its room and is never used.
pub(crate) fn slim<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Slim {
        namespace: Option<String>,
        name: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        generation: Option<i64>,
        labels: Option<BTreeMap<String, String>>,
        annotations: BTreeMap<String, String>,
    }
    let mut slim = Slim::deserialize(from)?;
    slim.annotations.retain(|key, _| key == ENABLE_LOGGING);
    Ok(ObjectMeta {
        namespace: slim.namespace,
        name: slim.name,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        labels: slim.labels,
        annotations: Some(slim.annotations).filter(|all| !all.is_empty()),
        ..ObjectMeta::default()
    })
}

type Inputs<T> = Versioned<Input<T>>;

/// Watches all Pods.
pub fn pods(client: &Client) -> impl Stream<Item = Inputs<PodFacts>> + Send + Unpin + 'static {
    watch_versions(client, pod_form())
}

/// Watches all namespaces.
pub fn namespaces(
    client: &Client,
) -> impl Stream<Item = Inputs<NamespaceFacts>> + Send + Unpin + 'static {
    watch_versions(client, namespace_form())
}

impl Namespace {
    fn into_input(self) -> Input<NamespaceFacts> {
        let meta = self.metadata;
        let wanted = meta.annotations.as_ref().and_then(|all| all.get(ENABLE_LOGGING));
        Input {
            key: InputKey::of(&meta),
            object: NamespaceFacts {
                log_policies: wanted.is_some_and(|value| is_true(value)),
                labels: meta.labels.into_iter().flatten().collect(),
            },
        }
    }
}

/// Watches Nodes.
pub fn nodes(client: &Client) -> impl Stream<Item = Inputs<NodeView>> + Send + Unpin + 'static {
    watch_versions(client, node_form())
}

fn of_node(object: NodeView) -> Input<NodeView> {
    let version = object.resource_version.parse().unwrap_or(0);
    let key = InputKey { name: object.name.clone(), version, ..InputKey::default() };
    Input { key, object }
}

/// A boolean as annotations write it.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Watches Kubernetes' NetworkPolicies.
pub fn k8s_policies(
    client: &Client,
) -> impl Stream<Item = Inputs<K8sNetworkPolicy>> + Send + Unpin + 'static {
    watch_versions(client, policy_form())
}

/// Watches Antrea's ClusterNetworkPolicies.
pub fn cluster_policies(
    client: &Client,
) -> impl Stream<Item = Inputs<ClusterNetworkPolicy>> + Send + Unpin + 'static {
    whole(client)
}

/// Watches Antrea's NetworkPolicies.
pub fn namespaced_policies(
    client: &Client,
) -> impl Stream<Item = Inputs<NetworkPolicy>> + Send + Unpin + 'static {
    whole(client)
}

/// Watches tiers.
pub fn tiers(client: &Client) -> impl Stream<Item = Inputs<Tier>> + Send + Unpin + 'static {
    whole(client)
}

/// Watches ClusterGroups.
pub fn cluster_groups(
    client: &Client,
) -> impl Stream<Item = Inputs<ClusterGroup>> + Send + Unpin + 'static {
    whole(client)
}

/// Watches Groups.
pub fn groups(client: &Client) -> impl Stream<Item = Inputs<Group>> + Send + Unpin + 'static {
    whole(client)
}

/// Watches Kubernetes' ClusterNetworkPolicies, whose kind need not be there.
pub fn upstream_policies(
    client: &Client,
) -> impl Stream<Item = Inputs<upstream::ClusterNetworkPolicy>> + Send + Unpin + 'static {
    whole(client)
}

fn whole<K>(client: &Client) -> impl Stream<Item = Inputs<K>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + Debug + Send + 'static,
{
    watch_versions(client, Form::json(into_input::<K>))
}

fn into_input<K: Resource<DynamicType = ()>>(mut object: K) -> Input<K> {
    let key = InputKey::of(object.meta());
    object.meta_mut().managed_fields = None;
    object.meta_mut().annotations = None;
    Input { key, object }
}

fn pod_form() -> Form<pod::Pod, Input<PodFacts>> {
    Form::either(pod::Pod::into_input, message::pod)
}

fn namespace_form() -> Form<Namespace, Input<NamespaceFacts>> {
    Form::either(Namespace::into_input, message::namespace)
}

fn policy_form() -> Form<K8sNetworkPolicy, Input<K8sNetworkPolicy>> {
    Form::either(into_input, message::network_policy)
}

fn node_form() -> Form<Node, Input<NodeView>> {
    let of = |node: Node| of_node(node.into_view());
    let read = |message: &[u8]| Node::read(message).map(|node| of_node(node.into_view()));
    Form::either(of, read)
}
