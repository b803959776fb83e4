//! Deployments down to Pods, as a client sees them.

use hyper::Method;
use kubelab::client::Client;
use kubelab::testing;
use serde_json::{Value, json};

use crate::util::{create, create_node, eventually, get, send};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn mk_deployment(image: &str) -> Value {
    json!({
        "metadata": { "name": "web" },
        "spec": {
            "replicas": 3,
            "selector": { "matchLabels": { "app": "web" } },
            "strategy": { "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "nodeName": "node-1", "containers": [{ "name": "c", "image": image }] },
            },
        },
    })
}

/// Names and images of the Pods that are not on their way out; every one of them is made ready.
async fn serve(client: &Client) -> Vec<(String, String)> {
    let list = get(client, PODS).await.unwrap();
    let mut seen = Vec::new();
    for pod in list["items"].as_array().unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if pod["metadata"]["deletionTimestamp"].is_string() {
            // As the kubelet says when a Pod has ended.
            let path = format!("{PODS}/{name}?gracePeriodSeconds=0");
            send(client, Method::DELETE, &path, &Value::Null).await;
            continue;
        }
        if pod["status"]["phase"] != "Running" {
            let status = json!({ "status": {
                "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }],
            } });
            let path = format!("{PODS}/{name}/status");
            assert_eq!(send(client, Method::PATCH, &path, &status).await.code, 200);
        }
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap();
        seen.push((name.to_owned(), image.to_owned()));
    }
    seen
}

async fn await_image(client: &Client, image: &str, least: usize) {
    eventually(&format!("all Pods have {image}"), || async {
        let pods = serve(client).await;
        assert!(pods.len() <= 4, "{pods:?}");
        assert!(pods.len() >= least, "{pods:?}");
        let all = pods.iter().all(|(_, own)| own == image);
        let status = get(client, &format!("{DEPLOYMENTS}/web")).await?["status"].take();
        (all && pods.len() == 3 && status["updatedReplicas"] == 3 && status["readyReplicas"] == 3)
            .then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_deployment_makes_pods_and_replaces_them_one_by_one() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create_node(&client, "node-1").await;
    create(&client, DEPLOYMENTS, mk_deployment("example.test/app:1")).await;
    await_image(&client, "example.test/app:1", 0).await;
    let first = serve(&client).await;

    // One that somebody deletes comes back.
    let path = format!("{PODS}/{}", first[0].0);
    assert_eq!(send(&client, Method::DELETE, &path, &Value::Null).await.code, 200);
    await_image(&client, "example.test/app:1", 2).await;

    let patch = json!({ "spec": { "template": { "spec": {
        "containers": [{ "name": "c", "image": "example.test/app:2" }],
    } } } });
    let path = format!("{DEPLOYMENTS}/web");
    assert_eq!(send(&client, Method::PATCH, &path, &patch).await.code, 200);
    await_image(&client, "example.test/app:2", 3).await;

    let deployment = get(&client, &path).await.unwrap();
    assert_eq!(deployment["status"]["conditions"][0]["status"], "True", "{deployment}");
    assert_eq!(deployment["status"]["observedGeneration"], deployment["metadata"]["generation"]);
    let patch = json!({ "spec": { "replicas": 0 } });
    assert_eq!(send(&client, Method::PATCH, &path, &patch).await.code, 200);
    eventually("no Pod is left", || async { serve(&client).await.is_empty().then_some(()) }).await;
    let patch = json!({ "spec": { "replicas": 1 } });
    send(&client, Method::PATCH, &path, &patch).await;
    eventually("one is back", || async { (serve(&client).await.len() == 1).then_some(()) }).await;
    assert_eq!(send(&client, Method::DELETE, &path, &Value::Null).await.code, 200);
    eventually("all goes with its owner", || async {
        let sets = get(&client, "/apis/apps/v1/namespaces/default/replicasets").await?;
        let none = sets["items"].as_array()?.is_empty();
        (serve(&client).await.is_empty() && none).then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_by_name() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    for (field, value, want) in [
        ("minReadySeconds", json!(5), "spec.minReadySeconds: Forbidden"),
        ("paused", json!(true), "spec.paused: Forbidden"),
        ("replicas", json!(-1), "spec.replicas: Invalid value: -1"),
        ("selector", json!({ "matchLabels": { "a": "b" } }), "`selector` does not match"),
        ("selector", json!({}), "spec.selector: Required value"),
        ("strategy", json!({ "rollingUpdate": { "maxSurge": "x" } }), "maxSurge: Invalid value"),
        (
            "template",
            json!({ "metadata": { "labels": { "app": "web" } } }),
            "spec.template.spec.containers: Required value",
        ),
    ] {
        let mut body = mk_deployment("x");
        body["spec"][field] = value;
        let answer = send(&client, Method::POST, DEPLOYMENTS, &body).await;
        let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.code == 422 && message.contains(want), "{field}: {message}");
    }
}
