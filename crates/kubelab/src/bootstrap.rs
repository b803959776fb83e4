//! What a cluster holds from its start: namespaces, roles, the `kubernetes` Service.

use std::net::SocketAddr;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::server::ServerError;

/// Makes the first objects.
pub(crate) fn run(
    cluster: &Cluster,
    service_cidrs: &[IpNet],
    endpoint: Option<SocketAddr>,
) -> Result<(), ServerError> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
        });
        cluster.apply(object)?;
    }
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "name": "kube-scheduler", "namespace": "kube-system" },
    }))?;
    for object in roles() {
        cluster.apply(object)?;
    }
    let Some(address) = service_cidrs.first().and_then(|range| range.hosts().next()) else {
        return Ok(());
    };
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let port = endpoint.map_or(6443, |endpoint| endpoint.port());
    let metadata = json!({
        "name": "kubernetes", "namespace": "default",
        "labels": { "component": "apiserver", "provider": "kubernetes" },
    });
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {
            "clusterIP": address.to_string(),
            "clusterIPs": [address.to_string()],
            "ipFamilies": [family],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port }],
        },
    }))?;
    let Some(endpoint) = endpoint.filter(|endpoint| endpoint.is_ipv4() == address.is_ipv4()) else {
        return Ok(());
    };
    let mut metadata = metadata;
    metadata["labels"] = json!({ "kubernetes.io/service-name": "kubernetes" });
    cluster.apply(json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": family,
        "endpoints": [{
            "addresses": [endpoint.ip().to_string()], "conditions": { "ready": true },
        }],
        "ports": [{ "name": "https", "port": endpoint.port(), "protocol": "TCP" }],
    }))
}

/// Common name of the certificate that is shown to aggregated servers.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// Tells aggregated servers whom to believe.
pub(crate) fn publish_trust(
    cluster: &Cluster,
    ca_pem: &str,
    proxy_ca_pem: &str,
) -> Result<(), ServerError> {
    let name = "extension-apiserver-authentication";
    let list = |text: &str| json!([text]).to_string();
    cluster.apply(json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": "kube-system" },
        "data": {
            "client-ca-file": ca_pem,
            "requestheader-allowed-names": list(FRONT_PROXY),
            "requestheader-client-ca-file": proxy_ca_pem,
            "requestheader-extra-headers-prefix": list("X-Remote-Extra-"),
            "requestheader-group-headers": list("X-Remote-Group"),
            "requestheader-uid-headers": list("X-Remote-Uid"),
            "requestheader-username-headers": list("X-Remote-User"),
        },
    }))?;
    cluster.apply(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": format!("{name}-reader"), "namespace": "kube-system" },
        "rules": [{
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name],
            "verbs": ["get", "list", "watch"],
        }],
    }))
}

fn role(name: &str, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": name, "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" } },
        "rules": rules,
    })
}

fn binding(name: &str, groups: &[&str]) -> Value {
    let subjects: Vec<Value> =
        groups.iter().map(|group| json!({ "kind": "Group", "name": group })).collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name, "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" } },
        "roleRef": { "kind": "ClusterRole", "name": name },
        "subjects": subjects,
    })
}

fn roles() -> Vec<Value> {
    let create = |group: &str, resources: &[&str]| json!({ "verbs": ["create"], "apiGroups": [group], "resources": resources });
    let get = |urls: &[&str]| json!([{ "verbs": ["get"], "nonResourceURLs": urls }]);
    let all = json!([
        { "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] },
        { "verbs": ["*"], "nonResourceURLs": ["*"] },
    ]);
    let own = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let basic = json!([
        create("authorization.k8s.io", &own),
        create("authentication.k8s.io", &["selfsubjectreviews"]),
    ]);
    let delegator = json!([
        create("authentication.k8s.io", &["tokenreviews"]),
        create("authorization.k8s.io", &["subjectaccessreviews"]),
    ]);
    let public = ["/healthz", "/livez", "/readyz", "/version", "/version/"];
    let discovery = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/",
    ];
    let known = "system:authenticated";
    let scheduler = json!([
        { "verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["nodes", "pods"] },
        create("", &["bindings", "pods/binding", "events"]),
        { "verbs": ["patch", "update"], "apiGroups": [""], "resources": ["pods/status"] },
    ]);
    let mut schedules = binding("system:kube-scheduler", &[]);
    schedules["subjects"] = json!([
        { "kind": "User", "name": "system:kube-scheduler" },
        { "kind": "ServiceAccount", "name": "kube-scheduler", "namespace": "kube-system" },
    ]);
    vec![
        role("system:kube-scheduler", scheduler),
        schedules,
        role("cluster-admin", all),
        binding("cluster-admin", &["system:masters"]),
        role("system:basic-user", basic),
        binding("system:basic-user", &[known]),
        role("system:discovery", get(&discovery)),
        binding("system:discovery", &[known]),
        role("system:public-info-viewer", get(&public)),
        binding("system:public-info-viewer", &[known, "system:unauthenticated"]),
        role("system:auth-delegator", delegator),
    ]
}
