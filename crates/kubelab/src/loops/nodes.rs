//! The life of nodes: conditions of silent ones turn Unknown, taints follow the Ready condition.
//!
//! A node that reports not to be ready gets the not-ready taint, one of which nobody knows the
//! unreachable taint, a ready one neither. Nothing is evicted.

use std::time::{Duration, Instant};

use apiserver::api::Api;
use apiserver::meta;
use apiserver::store::key;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::heartbeats::{Beat, Heartbeats, set_unknown};
use crate::kinds::{NODES, NOT_READY, UNREACHABLE};

/// Namespace of the Leases that kubelets renew.
const LEASES_NAMESPACE: &str = "kube-node-lease";

/// What is remembered between looks.
pub(super) struct Nodes {
    heartbeats: Heartbeats,
    leases: Option<String>,
    began: Instant,
}

impl Nodes {
    /// Nodes that are silent for longer than `grace` are taken for unreachable.
    pub(super) fn new(api: &Api, grace: Duration) -> Self {
        let leases = api.registry.by_kind("coordination.k8s.io", "v1", "Lease");
        Self {
            heartbeats: Heartbeats::new(grace),
            leases: leases.map(|resource| resource.collection()),
            began: Instant::now(),
        }
    }

    /// One look at all nodes.
    pub(super) fn step(&mut self, api: &Api) {
        let (_, nodes) = api.store.list(NODES, "");
        let beats = nodes.iter().map(|node| {
            let name = meta::name(node.value());
            let lease = self
                .leases
                .as_ref()
                .and_then(|leases| api.store.get(leases, &key(LEASES_NAMESPACE, name)));
            let renewed = lease.map(|lease| lease.value()["spec"]["renewTime"].to_string());
            let ready = ready(node.value());
            let reported = ready.map(|ready| ready["lastHeartbeatTime"].to_string());
            let beat = Beat {
                renewed: renewed.unwrap_or_default(),
                reported: reported.unwrap_or_default(),
            };
            (name.to_owned(), beat)
        });
        let silent = self.heartbeats.step(self.began.elapsed(), beats);
        let wanted = |node: &Value| {
            let mut wanted = node.clone();
            if silent.iter().any(|name| name == meta::name(node)) {
                set_unknown(&mut wanted, Timestamp::now());
            }
            set_taints(&mut wanted);
            (wanted != *node).then_some(wanted)
        };
        if !nodes.iter().any(|node| wanted(node.value()).is_some()) {
            return;
        }
        api.store.write(|tx| {
            for node in tx.list(NODES, "") {
                if let Some(value) = wanted(node.value()) {
                    let name = meta::name(&value).to_owned();
                    tx.put(NODES, &name, value);
                }
            }
        });
    }
}

fn ready(node: &Value) -> Option<&Value> {
    node["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")
}

/// Puts the one taint on a node that its Ready condition asks for.
fn set_taints(node: &mut Value) {
    let wanted = match ready(node).and_then(|ready| ready["status"].as_str()) {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        _ => Some(NOT_READY),
    };
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.retain(|taint| {
        let ours = [NOT_READY, UNREACHABLE].iter().any(|key| taint["key"] == *key);
        !ours || wanted.is_some_and(|key| taint["key"] == key)
    });
    if let Some(key) = wanted
        && !taints.iter().any(|taint| taint["key"] == key)
    {
        taints.push(json!({ "key": key, "effect": "NoSchedule" }));
    }
    let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
    meta::set_part(&mut node["spec"], "taints", taints);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taints_follow_the_ready_condition() {
        let own = json!({ "key": "own", "effect": "NoExecute" });
        for (status, taints, want) in [
            (json!("True"), json!([{ "key": NOT_READY }]), Value::Null),
            (json!("True"), json!([own, { "key": UNREACHABLE }]), json!([own])),
            (json!("False"), Value::Null, json!([{ "key": NOT_READY, "effect": "NoSchedule" }])),
            (json!("False"), json!([{ "key": NOT_READY }]), json!([{ "key": NOT_READY }])),
            (
                json!("Unknown"),
                json!([own, { "key": NOT_READY }]),
                json!([own, { "key": UNREACHABLE, "effect": "NoSchedule" }]),
            ),
        ] {
            let mut node = json!({
                "spec": { "taints": taints },
                "status": { "conditions": [{ "type": "Ready", "status": status }] },
            });
            set_taints(&mut node);
            assert_eq!(node["spec"]["taints"], want, "{status}");
        }
    }
}
