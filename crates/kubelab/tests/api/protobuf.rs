//! Built-in kinds as protobuf: lists, single objects and watches hold what JSON holds.

use hyper::Method;
use kubelab::client::Client;
use kubelab::testing;
use serde_json::{Value, json};

use crate::util::{create, create_node, get, mk_pod};

const ACCEPT: [(&str, &str); 1] =
    [("accept", "application/vnd.kubernetes.protobuf,application/json")];

/// Reads an answer's body, which must be protobuf.
async fn read(client: &Client, path: &str) -> Vec<u8> {
    let answer = client.send(Method::GET, path, &ACCEPT, "").await.unwrap();
    assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf", "{path}");
    answer.body.to_vec()
}

#[tokio::test]
async fn objects_come_as_protobuf_too() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create_node(&client, "n1").await;
    let pods = "/api/v1/namespaces/default/pods";
    let mut pod = mk_pod("web", "n1");
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": "m", "optional": true}}]);
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"port": "http"}});
    create(&client, pods, pod).await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = json!({"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [
        {"ports": [{"port": 80}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]}});
    create(&client, policies, policy).await;
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let labels = json!({"app": "web"});
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": labels}, "strategy": {"rollingUpdate": {"maxSurge": "50%"}},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [
            {"name": "c", "image": "echo"}]}}}});
    create(&client, deployments, deployment).await;
    let services = "/api/v1/namespaces/default/services";
    // As clients say it that send protobuf.
    let ports = json!([{"port": 80, "nodePort": 0}]);
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": ports}});
    create(&client, services, service).await;
    let made = get(&client, &format!("{services}/s")).await.unwrap();
    assert!(made["spec"]["ports"][0]["nodePort"].is_null(), "{made}");
    let reader = kubelab::protobuf().unwrap();
    let deployment = format!("{deployments}/d");
    let namespace = "/api/v1/namespaces/default".to_owned();
    let node = "/api/v1/nodes/n1".to_owned();
    let slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes".to_owned();
    let service = "/api/v1/namespaces/default/services/kubernetes".to_owned();
    let pod = format!("{pods}/web");
    for path in [pod, format!("{policies}/p"), deployment, namespace, node, slice, service] {
        // An object may change between two answers.
        let mut want = get(&client, &path).await.unwrap();
        let got = loop {
            let got = reader.decode(&read(&client, &path).await).unwrap();
            if got["metadata"]["resourceVersion"] == want["metadata"]["resourceVersion"] {
                break got;
            }
            want = get(&client, &path).await.unwrap();
        };
        assert_eq!(full(&got), full(&want), "{path}");
    }
}

/// An object without what says nothing: protobuf has no empty lists.
fn full(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let entries = map.iter().map(|(name, value)| (name.clone(), full(value)));
            Value::Object(entries.filter(|(_, value)| !says_nothing(value)).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(full).collect()),
        other => other.clone(),
    }
}

fn says_nothing(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[tokio::test]
async fn lists_and_watches_come_as_protobuf_too() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create(&client, "/api/v1/namespaces", json!({"metadata": {"name": "one"}})).await;
    let list = read(&client, "/api/v1/namespaces?limit=1").await;
    let text = String::from_utf8_lossy(&list);
    assert!(text.contains("NamespaceList") && text.contains("default"), "{text:?}");
    let path = "/api/v1/namespaces?watch=1&timeoutSeconds=1&fieldSelector=metadata.name=one";
    let answer = client.send(Method::GET, path, &ACCEPT, "").await.unwrap();
    assert_eq!(answer.headers["content-type"], "application/vnd.kubernetes.protobuf;stream=watch");
    let length = u32::from_be_bytes(answer.body[..4].try_into().unwrap()) as usize;
    let frame = String::from_utf8_lossy(&answer.body[4..4 + length]);
    assert!(frame.contains("ADDED") && frame.contains("k8s\0") && frame.contains("one"));
    let answer = client.send(Method::GET, "/api/v1/configmaps", &ACCEPT, "").await.unwrap();
    assert_eq!(answer.headers["content-type"], "application/json", "a kind without that form");
}
