//! Which node a Pod fits on. Pure.

use std::collections::BTreeMap;

use apiserver::meta;
use apiserver::rbac::selects;
use serde_json::{Value, json};

/// The node for a Pod, or why there is none.
pub(super) fn choose(
    pod: &Value,
    nodes: &BTreeMap<String, Value>,
    pods: &BTreeMap<String, Value>,
) -> Result<String, String> {
    let spec = &pod["spec"];
    for kind in ["podAffinity", "podAntiAffinity"] {
        if !spec["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"].is_null() {
            return Err(format!("{kind} is not known to this scheduler"));
        }
    }
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut best: Option<(usize, &str)> = None;
    for node in nodes.values() {
        let name = meta::name(node);
        let used = pods.values().filter(|other| other["spec"]["nodeName"] == name).count();
        match unfit(spec, node, used) {
            Some(reason) => *reasons.entry(reason).or_default() += 1,
            None if best.is_none_or(|(fewest, _)| used < fewest) => best = Some((used, name)),
            None => {}
        }
    }
    if let Some((_, name)) = best {
        return Ok(name.to_owned());
    }
    if nodes.is_empty() {
        return Err("no nodes available to schedule pods".into());
    }
    let reasons: Vec<String> =
        reasons.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    Err(format!("0/{} nodes are available: {}.", nodes.len(), reasons.join(", ")))
}

fn unfit(spec: &Value, node: &Value, used: usize) -> Option<&'static str> {
    let conditions = node["status"]["conditions"].as_array();
    let ready = conditions
        .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
    if !ready {
        return Some("node(s) were not ready");
    }
    if node["spec"]["unschedulable"] == true {
        return Some("node(s) were unschedulable");
    }
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let hard = |taint: &&Value| taint["effect"] != "PreferNoSchedule";
    if taints.iter().filter(hard).any(|taint| !tolerates(spec, taint)) {
        return Some("node(s) had untolerated taints");
    }
    if !selects(&json!({ "matchLabels": spec["nodeSelector"] }), node) || !affine(spec, node) {
        return Some("node(s) didn't match Pod's node affinity/selector");
    }
    let room = node["status"]["allocatable"]["pods"].as_str().and_then(|n| n.parse().ok());
    if room.is_some_and(|room: usize| used >= room) {
        return Some("Too many pods");
    }
    None
}

fn tolerates(spec: &Value, taint: &Value) -> bool {
    let tolerations = spec["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
    tolerations.iter().any(|toleration| {
        let text = |field: &str| toleration[field].as_str().unwrap_or("");
        let effect = text("effect").is_empty() || toleration["effect"] == taint["effect"];
        let key = text("key").is_empty() || toleration["key"] == taint["key"];
        let value = match text("operator") {
            "Exists" => true,
            _ => text("value") == taint["value"].as_str().unwrap_or(""),
        };
        effect && key && value
    })
}

fn affine(spec: &Value, node: &Value) -> bool {
    let required =
        &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let Some(terms) = required["nodeSelectorTerms"].as_array() else { return true };
    terms.iter().any(|term| {
        let labels = selects(&json!({ "matchExpressions": term["matchExpressions"] }), node);
        let fields = term["matchFields"].as_array().into_iter().flatten().all(|field| {
            let values = field["values"].as_array().map(Vec::as_slice).unwrap_or_default();
            let named = values.iter().any(|value| value == meta::name(node));
            field["key"] == "metadata.name" && (named == (field["operator"] == "In"))
        });
        labels && fields
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_node(name: &str, extra: Value) -> (String, Value) {
        let mut node = json!({
            "metadata": { "name": name, "labels": { "host": name } },
            "spec": {},
            "status": {
                "conditions": [{ "type": "Ready", "status": "True" }],
                "allocatable": { "pods": "2" },
            },
        });
        json_patch::merge(&mut node, &extra);
        (format!("/{name}"), node)
    }

    #[track_caller]
    fn check(spec: Value, nodes: &[(&str, Value)], want: Result<&str, &str>) {
        let nodes = nodes.iter().map(|(name, extra)| mk_node(name, extra.clone())).collect();
        let mut pods = BTreeMap::new();
        for (name, node) in [("p", "a"), ("q", "a"), ("r", "b")] {
            pods.insert(name.to_owned(), json!({ "spec": { "nodeName": node } }));
        }
        let got = choose(&json!({ "spec": spec }), &nodes, &pods);
        match want {
            Ok(want) => assert_eq!(got.as_deref(), Ok(want)),
            Err(want) => assert!(got.as_ref().is_err_and(|why| why.contains(want)), "{got:?}"),
        }
    }

    #[test]
    fn pods_go_to_fit_nodes_with_the_fewest_pods() {
        let none = || json!({});
        let tainted = json!({ "spec": { "taints": [{ "key": "k", "effect": "NoSchedule" }] } });
        check(none(), &[("a", none()), ("b", none()), ("c", none())], Ok("c"));
        check(none(), &[("a", none()), ("b", none())], Ok("b"));
        check(none(), &[("a", none())], Err("Too many pods"));
        check(none(), &[("c", tainted.clone())], Err("1 node(s) had untolerated taints"));
        let tolerant = json!({ "tolerations": [{ "key": "k", "operator": "Exists" }] });
        check(tolerant, &[("c", tainted)], Ok("c"));
        check(json!({ "nodeSelector": { "host": "b" } }), &[("b", none()), ("c", none())], Ok("b"));
        check(json!({ "nodeSelector": { "host": "x" } }), &[("c", none())], Err("selector"));
        let not_ready = json!({ "status": { "conditions": [] } });
        check(none(), &[("c", not_ready)], Err("not ready"));
        check(none(), &[("c", json!({ "spec": { "unschedulable": true } }))], Err("unschedulable"));
        let affinity = json!({ "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [{
                "matchExpressions": [{ "key": "host", "operator": "In", "values": ["c"] }],
            }] },
        } } });
        check(affinity, &[("b", none()), ("c", none())], Ok("c"));
    }
}
