//! The Pods of ReplicaSets, and the ReplicaSets of Deployments.
//!
//! Not here: taking over Pods that nobody owns, going back to an earlier revision.

use apiserver::api::Api;
use apiserver::meta;
use apiserver::objects::Writer;
use apiserver::query::{DeleteOptions, Propagation};
use apiserver::resource::Resource;
use apiserver::store::{Stored, key, prefix};
use serde_json::{Value, json};

use crate::cluster::{PLAIN, system_user};
use crate::kinds::{POD, Round, each, share, text};

const DEPLOYMENTS: &str = "apps/deployments";
const SETS: &str = "apps/replicasets";
/// The label that tells the Pods of one template from those of the next.
const HASH: &str = "pod-template-hash";

/// One look at all of them.
pub(super) fn step(api: &Api) {
    let (_, sets) = api.store.list(SETS, "");
    for set in sets.iter().map(Stored::value).filter(|set| !meta::is_deleting(set)) {
        replicate(api, set);
    }
    let (_, deployments) = api.store.list(DEPLOYMENTS, "");
    for own in deployments.iter().map(Stored::value).filter(|own| !meta::is_deleting(own)) {
        deploy(api, own);
    }
}

fn owned_by(object: &Value, owner: &Value) -> bool {
    let uid = meta::uid(owner);
    each(&object["metadata"], "ownerReferences").any(|own| own["uid"] == uid)
}

fn is_ready(pod: &Value) -> bool {
    each(&pod["status"], "conditions").any(|own| own["type"] == "Ready" && own["status"] == "True")
}

/// Those that an object owns.
fn children(api: &Api, collection: &str, owner: &Value) -> Vec<Stored> {
    let (_, all) = api.store.list(collection, &prefix(meta::namespace(owner)));
    all.into_iter()
        .filter(|own| owned_by(own.value(), owner) && !meta::is_deleting(own.value()))
        .collect()
}

/// Makes as many Pods as a ReplicaSet wants, or ends some.
fn replicate(api: &Api, set: &Value) {
    let Some(resource) = api.registry.by_kind("", "v1", "Pod") else { return };
    let mut pods = children(api, POD, set);
    pods.retain(|pod| !matches!(text(&pod.value()["status"], "phase"), "Succeeded" | "Failed"));
    // Those that serve stay, and of these the oldest.
    pods.sort_by_key(|pod| (!is_ready(pod.value()), pod.version()));
    let wanted = count(&set["spec"]["replicas"]);
    for _ in pods.len()..wanted {
        let mut pod = set["spec"]["template"].clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        create(api, &resource, set, "ReplicaSet", pod, None);
    }
    for pod in pods.iter().skip(wanted) {
        delete(api, &resource, pod.value());
    }
    let n_ready = pods.iter().filter(|pod| is_ready(pod.value())).count();
    let status = json!({
        "replicas": pods.len(), "fullyLabeledReplicas": pods.len(), "readyReplicas": n_ready,
        "availableReplicas": n_ready, "observedGeneration": set["metadata"]["generation"],
    });
    change(api, SETS, set, |own| own["status"] = status.clone());
}

fn count(value: &Value) -> usize {
    value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

/// How large a ReplicaSet is, and shall be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    wanted: i64,
    ready: i64,
}

/// What a Deployment allows while it changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    replicas: i64,
    surge: i64,
    unavailable: i64,
}

impl Bounds {
    fn of(spec: &Value) -> Self {
        let replicas = spec["replicas"].as_i64().unwrap_or(1);
        let rolling = &spec["strategy"]["rollingUpdate"];
        let of = |field: &str, round| share(&rolling[field], replicas, round).unwrap_or(0);
        let surge = of("maxSurge", Round::Up);
        let unavailable = of("maxUnavailable", Round::Down);
        // One of them moves, or nothing would.
        Self { replicas, surge, unavailable: unavailable.max(i64::from(surge == 0)) }
    }

    /// The sizes to go to next: of the new set, and of the old ones.
    fn roll(self, new: Size, old: &[Size]) -> (i64, Vec<i64>) {
        let total = new.wanted + old.iter().map(|own| own.wanted).sum::<i64>();
        let room = (self.replicas + self.surge - total).max(0);
        let next = self.replicas.min(new.wanted + room);
        let least = self.replicas - self.unavailable;
        // Old ones that do not serve go first; then as many as the others can be without.
        let mut spare = (total - least - (new.wanted - new.ready)).max(0);
        let mut sizes: Vec<i64> = old.iter().map(|own| own.wanted).collect();
        for (size, own) in sizes.iter_mut().zip(old) {
            let gone = (own.wanted - own.ready).clamp(0, spare);
            (*size, spare) = (*size - gone, spare - gone);
        }
        let ready = new.ready + old.iter().map(|own| own.ready).sum::<i64>();
        let mut spare = spare.min((ready - least).max(0));
        for size in &mut sizes {
            let gone = (*size).min(spare);
            (*size, spare) = (*size - gone, spare - gone);
        }
        (next, sizes)
    }
}

/// Brings the ReplicaSets of a Deployment one step further.
fn deploy(api: &Api, own: &Value) {
    let Some(resource) = api.registry.by_kind("apps", "v1", "ReplicaSet") else { return };
    let sets = children(api, SETS, own);
    let hash = hash(&own["spec"]["template"]);
    let is_new = |set: &&Stored| set.value()["metadata"]["labels"][HASH] == *hash;
    let Some(new) = sets.iter().find(is_new) else {
        let mut template = own["spec"]["template"].clone();
        let labels = template["metadata"]["labels"].clone();
        template["metadata"]["labels"][HASH] = json!(hash);
        let mut selector = own["spec"]["selector"].clone();
        selector["matchLabels"][HASH] = json!(hash);
        let mut set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "labels": labels },
            "spec": { "replicas": 0, "selector": selector, "template": template },
        });
        set["metadata"]["labels"][HASH] = json!(hash);
        let name = format!("{}-{hash}", meta::name(own));
        return create(api, &resource, own, "Deployment", set, Some(&name));
    };
    let size = |set: &Stored| {
        let of = |part: &str, field: &str| set.value()[part][field].as_i64().unwrap_or(0);
        Size { wanted: of("spec", "replicas"), ready: of("status", "readyReplicas") }
    };
    let old: Vec<&Stored> = sets.iter().filter(|set| !is_new(set)).collect();
    let old_sizes: Vec<Size> = old.iter().map(|set| size(set)).collect();
    let bounds = Bounds::of(&own["spec"]);
    let (next, sizes) = if own["spec"]["strategy"]["type"] == "Recreate" {
        let pods = |set: &&Stored| count(&set.value()["status"]["replicas"]);
        let left: usize = old.iter().map(pods).sum();
        (if left == 0 { bounds.replicas } else { size(new).wanted }, vec![0; old.len()])
    } else {
        bounds.roll(size(new), &old_sizes)
    };
    for (set, wanted) in std::iter::once((new, next)).chain(old.iter().copied().zip(sizes)) {
        change(api, SETS, set.value(), |set| set["spec"]["replicas"] = json!(wanted));
    }
    report(api, own, new, &sets);
    // Of those that have no more Pods only so many are kept.
    let mut empty: Vec<&Stored> =
        old.into_iter().filter(|set| count(&set.value()["status"]["replicas"]) == 0).collect();
    empty.retain(|set| set.value()["spec"]["replicas"] == 0);
    empty.sort_by_key(|set| set.version());
    let kept = count(&own["spec"]["revisionHistoryLimit"]);
    for set in empty.iter().take(empty.len().saturating_sub(kept)) {
        delete(api, &resource, set.value());
    }
}

/// Writes the status of a Deployment.
fn report(api: &Api, own: &Value, new: &Stored, sets: &[Stored]) {
    let sum = |field: &str| -> usize {
        sets.iter().map(|set| count(&set.value()["status"][field])).sum()
    };
    let (replicas, ready) = (sum("replicas"), sum("readyReplicas"));
    let bounds = Bounds::of(&own["spec"]);
    let wanted = count(&own["spec"]["replicas"]);
    let enough = i64::try_from(ready).is_ok_and(|n| n >= bounds.replicas - bounds.unavailable);
    let (holds, reason) = if enough { ("True", "Available") } else { ("False", "Unavailable") };
    let former = each(&own["status"], "conditions").find(|former| former["status"] == holds);
    let now = json!(meta::now());
    let condition = former.cloned().unwrap_or_else(|| {
        json!({
            "type": "Available", "status": holds, "reason": format!("MinimumReplicas{reason}"),
            "message": format!("{ready} of {wanted} replicas are ready"),
            "lastUpdateTime": now, "lastTransitionTime": now,
        })
    });
    let status = json!({
        "observedGeneration": own["metadata"]["generation"], "replicas": replicas,
        "updatedReplicas": new.value()["status"]["replicas"], "readyReplicas": ready,
        "availableReplicas": ready, "unavailableReplicas": wanted.saturating_sub(ready),
        "conditions": [condition],
    });
    change(api, DEPLOYMENTS, own, |own| own["status"] = status.clone());
}

/// Ten letters that tell a template from others (FNV-1a).
fn hash(template: &Value) -> String {
    const LETTERS: &[u8; 16] = b"bcdfghjklmnpqrst";
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in template.to_string().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let letter = |n: u32| usize::try_from((hash >> (4 * n)) & 15).map_or(b'x', |at| LETTERS[at]);
    (0..10).map(|n| char::from(letter(n))).collect()
}

/// Creates what an object owns, as any writer does.
fn create(
    api: &Api,
    resource: &Resource,
    owner: &Value,
    kind: &str,
    mut object: Value,
    name: Option<&str>,
) {
    match name {
        Some(name) => meta::set(&mut object, "name", json!(name)),
        None => meta::set(&mut object, "generateName", json!(format!("{}-", meta::name(owner)))),
    }
    let reference = json!([{
        "apiVersion": "apps/v1", "kind": kind, "name": meta::name(owner), "uid": meta::uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }]);
    meta::set(&mut object, "ownerReferences", reference);
    let user = system_user();
    let writer = Writer {
        store: &api.store,
        registry: &api.registry,
        admission: api.admission.as_ref(),
        user: &user,
        options: PLAIN,
        manager: "kube-controller-manager",
    };
    if let Err(error) = writer.create(resource, meta::namespace(owner), object) {
        tracing::warn!(%error, owner = meta::name(owner), "create what it owns");
    }
}

fn delete(api: &Api, resource: &Resource, object: &Value) {
    let options = DeleteOptions {
        dry_run: false,
        grace: None,
        uid: Some(meta::uid(object).to_owned()),
        resource_version: None,
        propagation: Propagation::Background,
    };
    let (namespace, name) = (meta::namespace(object), meta::name(object));
    api.store.write(|tx| {
        if let Err(error) = apiserver::objects::delete(tx, resource, namespace, name, &options) {
            tracing::debug!(%error, namespace, name, "delete one too many");
        }
    });
}

/// Changes an object, if it is still the same and that makes a difference.
fn change(api: &Api, collection: &str, seen: &Value, how: impl Fn(&mut Value)) {
    let mut wanted = seen.clone();
    how(&mut wanted);
    if wanted == *seen {
        return;
    }
    let key = key(meta::namespace(seen), meta::name(seen));
    api.store.write(|tx| {
        let current = tx.get(collection, &key);
        if current.is_some_and(|current| current.value() == seen) {
            if wanted["spec"] != seen["spec"] {
                let generation = seen["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                meta::set(&mut wanted, "generation", json!(generation));
            }
            tx.put(collection, &key, wanted);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolling_update_keeps_within_its_bounds() {
        for (name, surge, unavailable) in [
            ("one at a time, none missing", json!(1), json!(0)),
            ("one at a time, none more", json!(0), json!(1)),
            ("quarters", json!("25%"), json!("25%")),
            ("all at once", json!("100%"), json!("100%")),
            ("neither", json!(0), json!(0)),
        ] {
            let spec = json!({
                "replicas": 5,
                "strategy": { "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable } },
            });
            let bounds = Bounds::of(&spec);
            let mut new = Size { wanted: 0, ready: 0 };
            // One of the old Pods never served.
            let mut old = vec![Size { wanted: 3, ready: 3 }, Size { wanted: 2, ready: 1 }];
            let mut n_steps = 0;
            while new != (Size { wanted: 5, ready: 5 }) || old.iter().any(|own| own.wanted > 0) {
                let (next, sizes) = bounds.roll(new, &old);
                let total = next + sizes.iter().sum::<i64>();
                assert!(total <= 5 + bounds.surge.max(1), "{name}: {total} Pods");
                for (own, size) in old.iter_mut().zip(&sizes) {
                    *own = Size { wanted: *size, ready: own.ready.min(*size) };
                }
                let ready = new.ready + old.iter().map(|own| own.ready).sum::<i64>();
                let least = 5 - bounds.unavailable;
                assert!(ready >= least.min(4), "{name}: {ready} of at least {least} serve");
                new.wanted = next;
                // Pods come up one by one.
                new.ready = (new.ready + 1).min(new.wanted);
                n_steps += 1;
                assert!(n_steps < 40, "{name}: it does not end: {new:?} {old:?}");
            }
        }
    }

    #[test]
    fn shares_are_rounded_as_kubernetes_does() {
        for (value, round, want) in [
            (json!("25%"), Round::Up, Some(2)),
            (json!("25%"), Round::Down, Some(1)),
            (json!(3), Round::Up, Some(3)),
            (json!("x%"), Round::Up, None),
            (json!(-1), Round::Up, None),
        ] {
            assert_eq!(share(&value, 5, round), want, "{value}");
        }
    }
}
