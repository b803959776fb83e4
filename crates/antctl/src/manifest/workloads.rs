//! Gives Pods the name of what makes them, and makes a Pod of each template that has none.

use std::collections::{BTreeMap, BTreeSet};

use ::policy::verdict::Objects;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::kinds::Controller;

/// Namespace and name of a Pod.
type PodName = (String, String);
/// Kind, Namespace and name of what makes Pods.
type Maker = (String, String, String);

/// Adds a Pod for each template without Pods, and returns all names with their Pods.
pub(super) fn arrange(
    objects: &mut Objects,
    controllers: Vec<Controller>,
) -> BTreeMap<String, Vec<PodName>> {
    let owners: BTreeMap<Maker, Vec<OwnerReference>> = controllers
        .iter()
        .map(|one| {
            ((one.kind.clone(), one.namespace.clone(), one.name.clone()), one.owners.clone())
        })
        .collect();
    let mut named: BTreeMap<String, Vec<PodName>> = BTreeMap::new();
    let mut with_pods: BTreeSet<Maker> = BTreeSet::new();
    for pod in &objects.pods {
        let namespace = namespace_of(&pod.metadata);
        let name = pod.metadata.name.clone().unwrap_or_default();
        let references = pod.metadata.owner_references.as_deref().unwrap_or_default();
        let maker = maker(&owners, &namespace, references);
        let title = match &maker {
            Some((kind, namespace, name)) => format!("{namespace}/{name}[{kind}]"),
            None => format!("{namespace}/{name}"),
        };
        named.entry(title).or_default().push((namespace, name));
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Succeeded" | "Failed")) {
            with_pods.extend(maker);
        }
    }
    for one in controllers {
        let Controller { kind, namespace, name, owners: references, template } = one;
        // A ReplicaSet of a Deployment has the Deployment's name.
        let maker = maker(&owners, &namespace, &references)
            .unwrap_or_else(|| (kind.clone(), namespace.clone(), name.clone()));
        if with_pods.contains(&maker) {
            continue;
        }
        let is_top = maker == (kind.clone(), namespace.clone(), name.clone());
        if !is_top && owners.contains_key(&maker) {
            continue;
        }
        let pod_name = format!("{name}[{kind}]");
        let metadata = ObjectMeta {
            name: Some(pod_name.clone()),
            namespace: Some(namespace.clone()),
            labels: template.metadata.and_then(|metadata| metadata.labels),
            ..ObjectMeta::default()
        };
        objects.pods.push(Pod { metadata, spec: template.spec, status: None });
        let (kind, owner_namespace, owner) = maker;
        let title = format!("{owner_namespace}/{owner}[{kind}]");
        named.entry(title).or_default().push((namespace, pod_name));
    }
    named
}

/// What stands at the top of a chain of owners.
fn maker(
    owners: &BTreeMap<Maker, Vec<OwnerReference>>,
    namespace: &str,
    references: &[OwnerReference],
) -> Option<Maker> {
    let mut references = references;
    let mut top = None;
    // A chain has a Pod, a ReplicaSet or Job, and what made that; a circle has no top.
    for _ in 0..8 {
        let manager = references.iter().find(|owner| owner.controller == Some(true));
        let Some(owner) = manager.or_else(|| references.first()) else { break };
        // The Pods that a kubelet makes from files belong to nobody.
        if owner.kind == "Node" {
            break;
        }
        let key = (owner.kind.clone(), namespace.to_owned(), owner.name.clone());
        references = owners.get(&key).map(Vec::as_slice).unwrap_or_default();
        top = Some(key);
    }
    top
}

fn namespace_of(metadata: &ObjectMeta) -> String {
    let namespace = metadata.namespace.clone().filter(|namespace| !namespace.is_empty());
    namespace.unwrap_or_else(|| "default".to_owned())
}
