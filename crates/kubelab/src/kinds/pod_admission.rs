//! Admission of new Pods: ServiceAccount, token volume, tolerations, class.

use apiserver::meta;
use apiserver::names::GroupResource;
use apiserver::resource::WriteContext;
use apiserver::schema::quantity_millis;
use apiserver::status::ApiError;
use apiserver::store::key;
use serde_json::{Value, json};

use super::SERVICE_ACCOUNTS;
use super::pod::{CONTAINERS, POD};
use super::util::{each, each_mut, set_default, text};

/// Where the token is mounted.
const TOKEN_DIR: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

pub(super) fn admit(
    context: &mut WriteContext<'_, '_>,
    object: &mut Value,
) -> Result<(), ApiError> {
    let namespace = meta::namespace(object).to_owned();
    let name = meta::name(object).to_owned();
    let spec = &mut object["spec"];
    let account = [text(spec, "serviceAccountName"), text(spec, "serviceAccount"), "default"]
        .into_iter()
        .find(|name| !name.is_empty())
        .unwrap_or("default")
        .to_owned();
    spec["serviceAccountName"] = json!(account);
    spec["serviceAccount"] = json!(account);
    let Some(found) = context.tx.get(SERVICE_ACCOUNTS, &key(&namespace, &account)) else {
        let why = format!(
            "error looking up service account {namespace}/{account}: serviceaccount {account:?} \
             not found"
        );
        return Err(ApiError::forbidden(&GroupResource::new("", POD), &name, &why));
    };
    let mounts = spec["automountServiceAccountToken"]
        .as_bool()
        .or(found.value()["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if mounts {
        mount_token(spec);
    }
    if let Some(secrets) = found.value()["imagePullSecrets"].as_array() {
        set_default(spec, "imagePullSecrets", json!(secrets));
    }
    tolerate_outages(spec);
    spec["priority"] = json!(0);
    spec["preemptionPolicy"] = json!("PreemptLowerPriority");
    let class = qos_class(spec);
    object["status"] = json!({ "phase": "Pending", "qosClass": class });
    Ok(())
}

/// Adds what every Pod tolerates for a while; a writer that replaces the list need not know it.
pub(super) fn tolerate_outages(spec: &mut Value) {
    set_default(spec, "tolerations", json!([]));
    for taint in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = each(spec, "tolerations").any(|own| {
            matches!(text(own, "key"), "") && text(own, "operator") == "Exists"
                || text(own, "key") == taint && matches!(text(own, "effect"), "NoExecute" | "")
        });
        if !tolerated && let Some(list) = spec["tolerations"].as_array_mut() {
            list.push(json!({
                "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300,
            }));
        }
    }
}

/// Adds the volume with token, authority and namespace, and mounts it everywhere.
fn mount_token(spec: &mut Value) {
    let suffix: String = uuid::Uuid::new_v4().simple().to_string().chars().take(5).collect();
    let name = format!("kube-api-access-{suffix}");
    let mut mounted = false;
    for list in CONTAINERS {
        for container in each_mut(spec, list) {
            let own = each(container, "volumeMounts").any(|m| text(m, "mountPath") == TOKEN_DIR);
            if own {
                continue;
            }
            mounted = true;
            set_default(container, "volumeMounts", json!([]));
            if let Some(mounts) = container["volumeMounts"].as_array_mut() {
                mounts.push(json!({ "name": name, "readOnly": true, "mountPath": TOKEN_DIR }));
            }
        }
    }
    if !mounted {
        return;
    }
    set_default(spec, "volumes", json!([]));
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({
            "name": name,
            "projected": {
                "sources": [
                    { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                    { "configMap": {
                        "name": "kube-root-ca.crt",
                        "items": [{ "key": "ca.crt", "path": "ca.crt" }],
                    } },
                    { "downwardAPI": { "items": [{
                        "path": "namespace",
                        "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                    }] } },
                ],
                "defaultMode": 420,
            },
        }));
    }
}

/// Guaranteed, Burstable or BestEffort, by what the containers ask for.
fn qos_class(spec: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for list in ["initContainers", "containers"] {
        for container in each(spec, list) {
            for resource in ["cpu", "memory"] {
                let amount = |kind: &str| {
                    let text = container["resources"][kind][resource].as_str()?;
                    quantity_millis(text).filter(|millis| *millis > 0)
                };
                let (limit, request) = (amount("limits"), amount("requests"));
                any |= limit.is_some() || request.is_some();
                guaranteed &= limit.is_some() && limit == request;
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
