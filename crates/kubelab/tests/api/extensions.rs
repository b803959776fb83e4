//! What extends the API server: aggregated servers and admission webhooks.

use std::time::Duration;

use apiserver::trust::{FrontProxy, Trusted};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hyper::Method;
use kubelab::client::{Client, Credential};
use kubelab::testing::{self, TestServer};
use serde_json::{Value, json};

use crate::aggregated::{GROUP, Served};
use crate::util::{create, create_node, eventually, get, mk_pod, send};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const TOYS: &str = "/apis/toys.example.test/v1/toys";

/// A server of toys behind the Service `toys` in the namespace `lab`.
async fn mk_toys(client: &Client) -> Served {
    let toys = Served::start().await;
    create(client, "/api/v1/namespaces", json!({ "metadata": { "name": "lab" } })).await;
    let spec = json!({ "ports": [{ "port": 443, "targetPort": 10349 }] });
    let service = json!({ "metadata": { "name": "toys" }, "spec": spec });
    create(client, "/api/v1/namespaces/lab/services", service).await;
    toys
}

async fn add_slice(client: &Client, toys: &Served) {
    let slice = json!({
        "metadata": { "name": "toys", "labels": { "kubernetes.io/service-name": "toys" } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": [toys.address.ip().to_string()] }],
        "ports": [{ "port": toys.address.port() }],
    });
    create(client, "/apis/discovery.k8s.io/v1/namespaces/lab/endpointslices", slice).await;
}

fn ca_bundle(toys: &Served) -> String {
    BASE64.encode(toys.authority.cert_pem())
}

async fn available(client: &Client, reason: &str) {
    eventually(reason, async || {
        let service = get(client, &format!("{SERVICES}/v1.{GROUP}")).await?;
        let condition = &service["status"]["conditions"][0];
        (condition["reason"] == reason).then_some(())
    })
    .await;
}

/// A token of a Pod that runs on a node.
async fn pod_token(served: &TestServer, client: &Client, node: &str) -> Client {
    create_node(client, node).await;
    create(client, "/api/v1/namespaces/default/pods", mk_pod("agent", node)).await;
    let reference = json!({ "kind": "Pod", "apiVersion": "v1", "name": "agent" });
    let request = json!({ "spec": { "boundObjectRef": reference } });
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let token = create(client, path, request).await;
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let role = json!({
        "metadata": { "name": "toys" },
        "rules": [{ "apiGroups": [GROUP], "resources": ["toys"], "verbs": ["get", "list", "watch"] }],
    });
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", role).await;
    let binding = json!({
        "metadata": { "name": "toys" }, "roleRef": { "kind": "ClusterRole", "name": "toys" },
        "subjects": [{ "kind": "ServiceAccount", "name": "default", "namespace": "default" }],
    });
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
    served.client(Credential::Token(token)).unwrap()
}

#[tokio::test]
async fn requests_for_a_group_go_to_its_server() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    let toys = mk_toys(&client).await;
    assert_eq!(send(&client, Method::GET, TOYS, &Value::Null).await.code, 404);
    let mut service = json!({
        "metadata": { "name": format!("v1.{GROUP}") },
        "spec": {
            "group": GROUP, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "caBundle": ca_bundle(&toys), "service": { "name": "toys", "namespace": "lab" },
        },
    });
    let made = create(&client, SERVICES, service.clone()).await;
    assert_eq!(made["spec"]["service"]["port"], 443);
    available(&client, "EndpointsNotFound").await;
    let answer = send(&client, Method::GET, TOYS, &Value::Null).await;
    assert_eq!((answer.code, answer.body.as_ref()), (503, b"service unavailable\n".as_slice()));
    add_slice(&client, &toys).await;
    available(&client, "FailedDiscoveryCheck").await; // The front proxy is not trusted yet.

    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    let data = get(&client, path).await.unwrap()["data"].clone();
    let text = |name: &str| data[name].as_str().unwrap().to_owned();
    assert_eq!(text("requestheader-allowed-names"), r#"["front-proxy-client"]"#);
    let ca_pem = text("requestheader-client-ca-file");
    let allowed_names = vec!["front-proxy-client".to_owned()];
    let front_proxy = FrontProxy { ca_pem, allowed_names, ..FrontProxy::default() };
    let client_ca_pem = text("client-ca-file");
    toys.trust.replace(Trusted { client_ca_pem, front_proxy: Some(front_proxy) }).unwrap();
    available(&client, "Passed").await;

    toys.toys.put("ball", &["n1"]);
    toys.toys.put("kite", &["n2"]);
    let list = get(&client, TOYS).await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    // The name of the agent's node comes out of its token and through the headers.
    let agent = pod_token(&served, &client, "n1").await;
    let list = get(&agent, TOYS).await.unwrap();
    assert_eq!(list["items"][0]["metadata"]["name"], "ball");
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let path = format!("{TOYS}?watch=1");
    let mut lines = agent.watch(&path, "application/json").await.unwrap();
    assert_eq!(lines.next().await.unwrap().unwrap()["type"], "ADDED");
    toys.toys.put("drum", &["n1"]);
    let event = tokio::time::timeout(Duration::from_secs(5), lines.next()).await;
    assert_eq!(event.unwrap().unwrap().unwrap()["object"]["metadata"]["name"], "drum");
    assert_eq!(send(&agent, Method::DELETE, TOYS, &Value::Null).await.code, 403);

    for (accept, pointer, want) in [
        ("application/json", "/groups", json!(GROUP)),
        (
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "/items",
            json!({ "name": GROUP }),
        ),
    ] {
        let answer = client.send(Method::GET, "/apis", &[("accept", accept)], "").await.unwrap();
        let all = answer.json().pointer(pointer).unwrap().as_array().unwrap().clone();
        assert!(all.iter().any(|g| g["name"] == want || g["metadata"] == want), "{accept}");
    }
    let group = get(&client, &format!("/apis/{GROUP}")).await.unwrap();
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let openapi = get(&client, &format!("/openapi/v3/apis/{GROUP}/v1")).await.unwrap();
    assert!(openapi["paths"][TOYS].is_object(), "{openapi}");

    let address = toys.address;
    drop(toys);
    eventually("the server is missed", async || {
        let answer = send(&client, Method::GET, TOYS, &Value::Null).await;
        (answer.code == 503).then_some(())
    })
    .await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    let path = format!("{SERVICES}/v1.{GROUP}");
    assert_eq!(send(&client, Method::DELETE, &path, &Value::Null).await.code, 200);
    assert_eq!(send(&client, Method::GET, TOYS, &Value::Null).await.code, 404);
    service["metadata"]["name"] = json!("wrong");
    assert_eq!(send(&client, Method::POST, SERVICES, &service).await.code, 422);
}

fn mk_hooks(kind: &str, client_config: &Value, policy: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": { "name": "hook" },
        "webhooks": [{
            "name": "hook.example.test", "clientConfig": client_config, "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": policy, "timeoutSeconds": 5,
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                "resources": ["configmaps"],
            }],
            "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "lab" } },
        }],
    })
}

const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/lab/configmaps";

#[tokio::test]
async fn webhooks_judge_and_change_what_is_written() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    let toys = mk_toys(&client).await;
    add_slice(&client, &toys).await;
    let config = json!({
        "service": { "name": "toys", "namespace": "lab", "path": "/validate/toys" },
        "caBundle": ca_bundle(&toys),
    });
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        let path = format!("{HOOKS}/{}s", kind.to_lowercase());
        create(&client, &path, mk_hooks(kind, &config, "Fail")).await;
    }
    let map = |name: &str, data: Value| json!({ "metadata": { "name": name }, "data": data });
    let message = "admission webhook \"hook.example.test\" denied the request: color: red is not \
                   supported yet";

    let refused = send(&client, Method::POST, MAPS, &map("a", json!({ "color": "red" }))).await;
    assert_eq!((refused.code, &refused.json()["message"]), (422, &json!(message)));
    let dry = format!("{MAPS}?dryRun=All");
    let tried = create(&client, &dry, map("a", json!({ "x": "1" }))).await;
    assert_eq!(tried["data"], json!({ "x": "1", "color": "blue" }));
    assert!(get(&client, &format!("{MAPS}/a")).await.is_none());
    let made = create(&client, MAPS, map("a", json!({ "x": "1" }))).await;
    assert_eq!(made["data"], json!({ "x": "1", "color": "blue" }));

    let path = format!("{MAPS}/a");
    let patch = json!({ "data": { "color": "red" } });
    let refused = send(&client, Method::PATCH, &path, &patch).await;
    assert_eq!((refused.code, &refused.json()["message"]), (422, &json!(message)));
    let patch = json!({ "data": { "color": "green", "y": "2" } });
    let changed = send(&client, Method::PATCH, &path, &patch).await.json();
    assert_eq!(changed["data"], json!({ "x": "1", "y": "2", "color": "blue" }));
    let stale = json!({ "metadata": { "name": "a", "resourceVersion": "1" }, "data": {} });
    assert_eq!(send(&client, Method::PUT, &path, &stale).await.code, 409);

    let headers = [("content-type", "application/apply-patch+yaml")];
    let apply = async |name: &str, data: Value| {
        let mut object = map(name, data);
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("ConfigMap");
        let path = format!("{MAPS}/{name}?fieldManager=test");
        client.send(Method::PATCH, &path, &headers, object.to_string()).await.unwrap()
    };
    assert_eq!(apply("s", json!({ "color": "red" })).await.code, 422);
    let made = apply("s", json!({ "x": "1" })).await;
    assert_eq!((made.code, &made.json()["data"]["color"]), (201, &json!("blue")));
    assert_eq!(apply("s", json!({ "x": "2" })).await.code, 200);
    assert_eq!(send(&client, Method::DELETE, &path, &Value::Null).await.code, 200);
    // Other namespaces are none of its business.
    let other = "/api/v1/namespaces/default/configmaps";
    let made = create(&client, other, map("a", json!({ "color": "red" }))).await;
    assert_eq!(made["data"]["color"], "red");
}

#[tokio::test]
async fn a_webhook_that_fails_counts_as_its_policy_says() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create(&client, "/api/v1/namespaces", json!({ "metadata": { "name": "lab" } })).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = json!({ "url": format!("https://{closed}/validate") });
    let hooks = format!("{HOOKS}/validatingwebhookconfigurations");
    for (policy, code) in [("Ignore", 201), ("Fail", 500)] {
        let body = mk_hooks("ValidatingWebhookConfiguration", &config, policy);
        create(&client, &hooks, body).await;
        let map = json!({ "metadata": { "name": policy.to_lowercase() } });
        let answer = send(&client, Method::POST, MAPS, &map).await;
        assert_eq!(answer.code, code, "{policy}: {}", answer.json());
        if code == 500 {
            let want = format!(
                "Internal error occurred: failed calling webhook \"hook.example.test\": failed to \
                 call webhook: Post \"https://{closed}/validate?timeout=5s\": dial tcp {closed}: \
                 connect: connection refused"
            );
            assert_eq!(answer.json()["message"], want.as_str());
        }
        let path = format!("{hooks}/hook");
        assert_eq!(send(&client, Method::DELETE, &path, &Value::Null).await.code, 200);
    }
    let mut bad = mk_hooks("ValidatingWebhookConfiguration", &config, "Fail");
    bad["webhooks"][0]["sideEffects"] = Value::Null;
    let refused = send(&client, Method::POST, &hooks, &bad).await.json();
    let want = "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun";
    assert!(refused["message"].as_str().unwrap().ends_with(want), "{refused}");
}
