//! Takes the not-ready taint from nodes that became ready, and puts it on those that are not.

use apiserver::api::Api;
use apiserver::meta;
use serde_json::{Value, json};

use crate::kinds::{NODES, NOT_READY};

/// One look at all nodes.
pub(super) fn step(api: &Api) {
    let wrong = |node: &Value| is_ready(node) == is_tainted(node);
    let (_, nodes) = api.store.list(NODES, "");
    if !nodes.iter().any(|node| wrong(node.value())) {
        return;
    }
    api.store.write(|tx| {
        for node in tx.list(NODES, "") {
            if !wrong(node.value()) {
                continue;
            }
            let mut value = node.value().clone();
            let mut taints = value["spec"]["taints"].as_array().cloned().unwrap_or_default();
            if is_ready(&value) {
                taints.retain(|taint| taint["key"] != NOT_READY);
            } else {
                taints.push(json!({ "key": NOT_READY, "effect": "NoSchedule" }));
            }
            let taints = if taints.is_empty() { Value::Null } else { json!(taints) };
            meta::set_part(&mut value["spec"], "taints", taints);
            let name = meta::name(&value).to_owned();
            tx.put(NODES, &name, value);
        }
    });
}

fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

fn is_tainted(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array();
    taints.is_some_and(|all| all.iter().any(|taint| taint["key"] == NOT_READY))
}
