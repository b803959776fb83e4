//! Steps that many tests take.

use std::future::Future;
use std::time::Duration;

use hyper::Method;
use kubelab::client::{Answer, Client};
use serde_json::{Value, json};

/// Waits until `look` finds something; panics after five seconds with what was waited for.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "not seen in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends JSON and gives the answer.
pub(crate) async fn send(client: &Client, method: Method, path: &str, body: &Value) -> Answer {
    let media_type = match method {
        Method::PATCH => "application/merge-patch+json",
        _ => "application/json",
    };
    let headers = [("content-type", media_type)];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.send(method, path, &headers, body).await.unwrap()
}

/// Creates an object that must be taken.
#[track_caller]
pub(crate) fn create<'a>(
    client: &'a Client,
    path: &'a str,
    body: Value,
) -> impl Future<Output = Value> + use<'a> {
    let caller = std::panic::Location::caller();
    async move {
        let answer = send(client, Method::POST, path, &body).await;
        assert_eq!(answer.code, 201, "{caller}: {}", answer.json());
        answer.json()
    }
}

/// Reads an object; `None` when it is not there.
pub(crate) async fn get(client: &Client, path: &str) -> Option<Value> {
    let answer = send(client, Method::GET, path, &Value::Null).await;
    (answer.code == 200).then(|| answer.json())
}

/// A ConfigMap.
pub(crate) fn mk_config_map(name: &str, labels: Value) -> Value {
    json!({ "metadata": { "name": name, "labels": labels } })
}

/// A ready Node with its status as a second step.
pub(crate) async fn create_node(client: &Client, name: &str) {
    create(client, "/api/v1/nodes", json!({ "metadata": { "name": name } })).await;
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    let path = format!("/api/v1/nodes/{name}/status");
    assert_eq!(send(client, Method::PATCH, &path, &status).await.code, 200);
}

/// A Pod with one container.
pub(crate) fn mk_pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "nodeName": node,
            "containers": [{ "name": "c", "image": "example.test/app:1" }],
        },
    })
}
