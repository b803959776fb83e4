//! The part of a Pod object that we read.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::view::{PodSpec, PodView};

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
pub(super) struct Pod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<PodIp>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Pod {
    /// Keeps what we use; what is malformed is logged and left out.
    pub(super) fn into_view(self) -> PodView {
        let meta = self.metadata;
        let name = meta.name.unwrap_or_default();
        let mut texts: Vec<String> = self.status.pod_ips.into_iter().map(|ip| ip.ip).collect();
        if texts.is_empty() && !self.status.pod_ip.is_empty() {
            texts.push(self.status.pod_ip);
        }
        let parse = |text: &String| {
            let parsed = text.parse().ok();
            if parsed.is_none() {
                tracing::warn!(pod = %name, text, "address of a Pod cannot be read");
            }
            parsed
        };
        let pod_ips = texts.iter().filter_map(parse).collect();
        let ready =
            |condition: &Condition| condition.type_ == "Ready" && condition.status == "True";
        PodView {
            pod_ips,
            ready: self.status.conditions.iter().any(ready),
            phase: self.status.phase,
            spec: self.spec,
            namespace: meta.namespace.unwrap_or_default(),
            uid: meta.uid.unwrap_or_default(),
            resource_version: meta.resource_version.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            annotations: meta.annotations.unwrap_or_default(),
            created: meta.creation_timestamp.map(|time| time.0),
            deletion_grace_seconds: meta.deletion_grace_period_seconds,
            deleting: meta.deletion_timestamp.is_some(),
            name,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_on_its_way_out() {
        let pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "namespace": "default", "name": "web", "uid": "u1", "resourceVersion": "9",
                "creationTimestamp": "2026-11-30T20:00:00Z",
                "deletionTimestamp": "2026-11-30T20:01:00Z", "deletionGracePeriodSeconds": 30,
            },
            "spec": {
                "nodeName": "n1", "hostNetwork": true, "restartPolicy": "Always",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{
                    "name": "c", "image": "nginx", "args": ["-v"], "volumeMounts": [],
                    "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"}],
                    "env": [{"name": "A", "value": "1"}],
                    "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
                }],
            },
            "status": {
                "phase": "Running", "podIP": "10.0.1.2",
                "podIPs": [{"ip": "10.0.1.2"}, {"ip": "fd00::2"}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }))
        .unwrap();
        let view = pod.into_view();
        assert_eq!(view.pod_ips.len(), 2);
        assert!(view.deleting && view.ready && view.spec.host_network);
        assert_eq!(view.deletion_grace_seconds, Some(30));
        assert_eq!(view.created.unwrap().to_string(), "2026-11-30T20:00:00Z");
        let container = &view.spec.containers[0];
        assert_eq!(container.ports[0].host_port, Some(8080));
        assert_eq!(container.readiness_probe.as_ref().unwrap().period_seconds, Some(1));
        assert_eq!(view.pod_key().uid, "u1");
    }

    #[test]
    fn a_pod_that_nobody_touched() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "web"}})).unwrap();
        let view = pod.into_view();
        assert_eq!(view.spec.node_name, None);
        assert!(!view.is_terminated() && view.pod_ips.is_empty());
    }
}
