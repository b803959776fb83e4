//! Collects objects whose owners are gone, and finishes foreground and orphaning deletes.

use std::collections::BTreeSet;
use std::sync::Arc;

use apiserver::api::Api;
use apiserver::meta;
use apiserver::query::{DeleteOptions, Propagation};
use apiserver::resource::{Gone, Resource};
use apiserver::store::{Stored, Tx, key};
use serde_json::{Value, json};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// One look at all objects.
pub(super) fn step(api: &Api) {
    let mut seen = BTreeSet::new();
    let resources: Vec<Arc<Resource>> = api
        .registry
        .all()
        .into_iter()
        .filter(|resource| resource.connect.is_none() && seen.insert(resource.collection()))
        .collect();
    let involved = resources.iter().any(|resource| {
        let (_, objects) = api.store.list(&resource.collection(), "");
        objects.iter().any(|object| {
            !owners(object.value()).is_empty()
                || waits(object.value(), FOREGROUND)
                || waits(object.value(), ORPHAN)
        })
    });
    if involved {
        api.store.write(|tx| collect(tx, &resources));
    }
}

fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn waits(object: &Value, finalizer: &str) -> bool {
    meta::is_deleting(object) && meta::finalizers(object).contains(&finalizer)
}

fn collect(tx: &mut Tx<'_>, resources: &[Arc<Resource>]) {
    let mut all: Vec<(Arc<Resource>, Stored)> = Vec::new();
    for resource in resources {
        for object in tx.list(&resource.collection(), "") {
            all.push((Arc::clone(resource), object));
        }
    }
    let alive: BTreeSet<&str> = all.iter().map(|(_, object)| meta::uid(object.value())).collect();
    for (resource, object) in &all {
        let owners = owners(object.value());
        let gone = |owner: &Value| !alive.contains(owner["uid"].as_str().unwrap_or(""));
        if !owners.is_empty() && owners.iter().all(gone) && !meta::is_deleting(object.value()) {
            delete(tx, resource, object.value(), Propagation::Background);
        }
    }
    for (resource, object) in &all {
        let uid = meta::uid(object.value());
        let owned = |other: &Value| owners(other).iter().any(|owner| owner["uid"] == uid);
        let dependents = all.iter().filter(|(_, other)| owned(other.value()));
        if waits(object.value(), ORPHAN) {
            for (kind, dependent) in dependents {
                release(tx, kind, dependent.value(), uid);
            }
            drop_finalizer(tx, resource, object.value(), ORPHAN);
        } else if waits(object.value(), FOREGROUND) {
            let mut blocked = false;
            for (kind, dependent) in dependents {
                let blocks = owners(dependent.value())
                    .iter()
                    .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true);
                if !meta::is_deleting(dependent.value()) {
                    delete(tx, kind, dependent.value(), Propagation::Background);
                }
                let own = key(meta::namespace(dependent.value()), meta::name(dependent.value()));
                blocked |= blocks && tx.get(&kind.collection(), &own).is_some();
            }
            if !blocked {
                drop_finalizer(tx, resource, object.value(), FOREGROUND);
            }
        }
    }
}

fn delete(tx: &mut Tx<'_>, resource: &Resource, object: &Value, propagation: Propagation) {
    let options = DeleteOptions {
        dry_run: false,
        grace: None,
        uid: Some(meta::uid(object).to_owned()),
        resource_version: None,
        propagation,
    };
    let (namespace, name) = (meta::namespace(object), meta::name(object));
    if let Err(error) = apiserver::objects::delete(tx, resource, namespace, name, &options) {
        tracing::debug!(%error, namespace, name, "collect");
    }
}

/// Takes the reference to an owner out of a dependent.
fn release(tx: &mut Tx<'_>, resource: &Resource, object: &Value, owner: &str) {
    let key = key(meta::namespace(object), meta::name(object));
    let Some(current) = tx.get(&resource.collection(), &key) else { return };
    let mut value = current.value().clone();
    let kept: Vec<Value> =
        owners(&value).iter().filter(|own| own["uid"] != owner).cloned().collect();
    let kept = if kept.is_empty() { Value::Null } else { json!(kept) };
    meta::set(&mut value, "ownerReferences", kept);
    tx.put(&resource.collection(), &key, value);
}

fn drop_finalizer(tx: &mut Tx<'_>, resource: &Resource, object: &Value, finalizer: &str) {
    let key = key(meta::namespace(object), meta::name(object));
    let Some(current) = tx.get(&resource.collection(), &key) else { return };
    let mut value = current.value().clone();
    let kept: Vec<&str> =
        meta::finalizers(current.value()).into_iter().filter(|own| *own != finalizer).collect();
    if kept.is_empty() {
        meta::set(&mut value, "finalizers", Value::Null);
        let grace = value["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        if grace == 0 {
            tx.remove(&resource.collection(), &key);
            resource.strategy.written(tx, &value, Gone::Yes);
            return;
        }
    } else {
        meta::set(&mut value, "finalizers", json!(kept));
    }
    tx.put(&resource.collection(), &key, value);
}
