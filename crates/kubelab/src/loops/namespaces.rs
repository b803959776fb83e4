//! Empties namespaces that are on their way out, and keeps the default objects of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apiserver::api::Api;
use apiserver::meta;
use apiserver::names::GroupResource;
use apiserver::query::{DeleteOptions, Propagation};
use apiserver::resource::{Gone, Resource, Scope};
use apiserver::store::{Tx, prefix};
use serde_json::{Value, json};

use crate::kinds::{CONTENT_FINALIZER, NAMESPACES, ensure_defaults};

/// One look at all namespaces.
pub(super) fn step(api: &Api, ca_pem: &str) {
    let (_, namespaces) = api.store.list(NAMESPACES, "");
    for namespace in namespaces {
        let name = meta::name(namespace.value()).to_owned();
        if !meta::is_deleting(namespace.value()) {
            api.store.write(|tx| {
                let current = tx.get(NAMESPACES, &name);
                if current.is_some_and(|current| !meta::is_deleting(current.value())) {
                    ensure_defaults(tx, &name, ca_pem);
                }
            });
            continue;
        }
        let mut seen = BTreeSet::new();
        let resources: Vec<Arc<Resource>> = api
            .registry
            .all()
            .into_iter()
            .filter(|resource| resource.scope == Scope::Namespaced && resource.connect.is_none())
            .filter(|resource| seen.insert(resource.collection()))
            .collect();
        let own = api.registry.get("", "v1", NAMESPACES);
        api.store.write(|tx| empty(tx, &name, &resources, own.as_deref()));
    }
}

/// What is left in a namespace.
#[derive(Default)]
struct Left {
    resources: BTreeMap<GroupResource, usize>,
    finalizers: BTreeMap<String, usize>,
}

fn empty(tx: &mut Tx<'_>, name: &str, resources: &[Arc<Resource>], own: Option<&Resource>) {
    let options = DeleteOptions {
        dry_run: false,
        grace: None,
        uid: None,
        resource_version: None,
        propagation: Propagation::Background,
    };
    let mut left = Left::default();
    for resource in resources {
        let collection = resource.collection();
        for object in tx.list(&collection, &prefix(name)) {
            if !meta::is_deleting(object.value()) {
                let own = meta::name(object.value());
                if let Err(error) = apiserver::objects::delete(tx, resource, name, own, &options) {
                    tracing::warn!(%error, namespace = name, "empty namespace");
                }
            }
        }
        for object in tx.list(&collection, &prefix(name)) {
            *left.resources.entry(resource.group_resource()).or_default() += 1;
            for finalizer in meta::finalizers(object.value()) {
                *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
            }
        }
    }
    let Some(namespace) = tx.get(NAMESPACES, name) else { return };
    let mut value = namespace.value().clone();
    if left.resources.is_empty() {
        let finalizers: Vec<Value> = value["spec"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|finalizer| **finalizer != CONTENT_FINALIZER)
            .cloned()
            .collect();
        let done = finalizers.is_empty() && meta::finalizers(&value).is_empty();
        value["spec"]["finalizers"] = json!(finalizers);
        if done {
            tx.remove(NAMESPACES, name);
            if let Some(own) = own {
                own.strategy.written(tx, &value, Gone::Yes);
            }
            return;
        }
    }
    set_conditions(&mut value, &left);
    if value != *namespace.value() {
        tx.put(NAMESPACES, name, value);
    }
}

fn set_conditions(namespace: &mut Value, left: &Left) {
    let resources: Vec<String> = left
        .resources
        .iter()
        .map(|(resource, count)| {
            format!("{}.{} has {count} resource instances", resource.resource, resource.group)
        })
        .collect();
    let finalizers: Vec<String> = left
        .finalizers
        .iter()
        .map(|(name, count)| format!("{name} in {count} resource instances"))
        .collect();
    let remaining = match resources.as_slice() {
        [] => (false, "ContentRemoved", "All content successfully removed".to_owned()),
        some => (
            true,
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", some.join(", ")),
        ),
    };
    let held = match finalizers.as_slice() {
        [] => (
            false,
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished".to_owned(),
        ),
        some => (
            true,
            "SomeFinalizersRemain",
            format!("Some content in the namespace has finalizers remaining: {}", some.join(", ")),
        ),
    };
    let fine = |reason: &'static str, message: &str| (false, reason, message.to_owned());
    let wanted = [
        (
            "NamespaceDeletionDiscoveryFailure",
            fine("ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            fine("ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            fine(
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        ("NamespaceContentRemaining", remaining),
        ("NamespaceFinalizersRemaining", held),
    ];
    let before = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let conditions: Vec<Value> = wanted
        .into_iter()
        .map(|(kind, (status, reason, message))| {
            let status = if status { "True" } else { "False" };
            let old = before.iter().find(|old| old["type"] == kind && old["status"] == status);
            let since =
                old.map_or_else(|| json!(meta::now()), |old| old["lastTransitionTime"].clone());
            json!({
                "type": kind, "status": status, "lastTransitionTime": since,
                "reason": reason, "message": message,
            })
        })
        .collect();
    namespace["status"]["conditions"] = json!(conditions);
}
