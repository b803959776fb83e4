//! The controller computes policy on a lab cluster and serves it through the API server.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not inside #[test] functions")]

#[path = "cluster/world.rs"]
mod world;

use std::time::Duration;

use serde_json::Value;
use world::{Controller, World};

const SOON: Duration = Duration::from_secs(30);

const OBJECTS: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: a}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  nodeName: n1
  containers: [{name: c, image: echo, ports: [{name: http, containerPort: 80}]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {}}]
    ports: [{port: http}]
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: strict}
spec:
  priority: 5
  tier: securityops
  appliedTo: [{namespaceSelector: {matchLabels: {team: a}}}]
  ingress:
  - action: Drop
    name: no-ssh
    ports: [{protocol: TCP, port: 22}]
"#;

/// A cluster with policy kinds and one controller whose API is registered.
async fn mk_world() -> (World, Controller) {
    let world = World::start().await;
    world.add_node("n1").await;
    world.add_policy_kinds().await;
    let controller = Controller::spawn(&world, "ctl-a", "");
    world.register(&[controller.port]).await;
    world
        .eventually(SOON, "the API is available", async || {
            let path = "/apis/controlplane.antrea.io/v1beta2/networkpolicies";
            world.kubectl(&["get", "--raw", path]).is_none_or(|text| text.contains("items"))
        })
        .await;
    (world, controller)
}

fn list(world: &World, plural: &str, more: &str) -> Vec<Value> {
    let path = format!("/apis/controlplane.antrea.io/v1beta2/{plural}{more}");
    let text = world.kubectl(&["get", "--raw", &path]).unwrap_or_default();
    let list: Value = serde_json::from_str(&text).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_reach_whoever_may_read_them() {
    let (world, _controller) = mk_world().await;
    if world.kubectl(&["version", "--client"]).is_none() {
        return;
    }
    world
        .eventually(SOON, "the tiers of the system are made", async || {
            let tiers = world.kubectl(&["get", "tiers", "-o", "name"]).unwrap();
            tiers.lines().count() == 6
        })
        .await;
    world
        .eventually(SOON, "the webhooks are trusted", async || {
            world.kubectl_with(&["apply", "-f", "-"], OBJECTS).is_some_and(|(done, _)| done)
        })
        .await;
    world
        .eventually(SOON, "both policies are served", async || {
            list(&world, "networkpolicies", "").len() == 2
        })
        .await;
    let policies = list(&world, "networkpolicies", "");
    let acnp = policies.iter().find(|one| one["tierPriority"] == 100).unwrap();
    assert_eq!(acnp["rules"][0]["name"], "no-ssh");
    assert_eq!(acnp["sourceRef"]["name"], "strict");
    assert!(acnp["metadata"]["resourceVersion"].is_string());
    let on = |node: &str| format!("?fieldSelector=nodeName%3D{node}");
    assert_eq!(list(&world, "appliedtogroups", &on("n1")).len(), 2);
    assert_eq!(list(&world, "networkpolicies", &on("nowhere")).len(), 0);
    let table = world.kubectl(&["get", "networkpolicies.v1beta2.controlplane.antrea.io"]).unwrap();
    assert_eq!(table.lines().count(), 3, "{table}");
    world
        .eventually(SOON, "the policy's status is written", async || {
            let text = world.kubectl(&["get", "acnp", "strict", "-o", "json"]).unwrap();
            let policy: Value = serde_json::from_str(&text).unwrap_or_default();
            policy["status"]["phase"] == "Realizing"
                && policy["status"]["desiredNodesRealized"] == 1
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhooks_refuse_with_field_and_reason_and_fill_in() {
    let (world, _controller) = mk_world().await;
    let policy = |name: &str, tier: &str, rule: &str| {
        format!(
            "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {{name: {name}}}\n\
             spec: {{priority: 5{tier}, appliedTo: [{{podSelector: {{}}}}], ingress: [{rule}]}}\n"
        )
    };
    let apply = |text: &str| world.kubectl_with(&["apply", "-f", "-"], text);
    let Some((_, _)) = apply(&policy("probe", "", "{action: Drop}")) else { return };
    world
        .eventually(SOON, "the webhooks answer", async || {
            apply(&policy("good", "", "{action: Drop}")).unwrap().0
        })
        .await;
    let text = world.kubectl(&["get", "acnp", "good", "-o", "json"]).unwrap();
    let good: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(good["spec"]["tier"], "application");
    let name = good["spec"]["ingress"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("ingress-drop-"), "{name}");
    for (text, want) in [
        (policy("bad", ", tier: nowhere", "{action: Drop}"), "spec.tier: there is no tier"),
        (policy("bad", "", "{action: Drop, toServices: [{name: a, namespace: b}]}"), "toServices"),
        (
            policy("bad", "", "{action: Drop, ports: [{port: web, endPort: 9}]}"),
            "spec.ingress[0].ports[0].endPort",
        ),
        (
            "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: mine}\n\
             spec: {priority: 252}\n"
                .to_owned(),
            "spec.priority: 252 is reserved",
        ),
    ] {
        let (done, output) = apply(&text).unwrap();
        assert!(!done && output.contains(want), "{output}");
    }
}
