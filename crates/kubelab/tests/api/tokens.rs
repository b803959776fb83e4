//! Tokens of ServiceAccounts, and what their bearers may do.

use hyper::Method;
use kubelab::client::{Client, Credential};
use kubelab::testing;
use serde_json::{Value, json};

use crate::util::{create, create_node, mk_pod, send};

async fn review(client: &Client, spec: Value) -> Value {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec,
    });
    create(client, path, body).await["status"].clone()
}

#[tokio::test]
async fn a_pods_token_names_its_pod_and_node_and_ends_with_the_pod() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create_node(&client, "node-1").await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = create(&client, pods, mk_pod("p", "node-1")).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let bound = json!({
        "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"],
    });
    let answer = create(&client, path, json!({ "spec": { "boundObjectRef": bound } })).await;
    let token = answer["status"]["token"].as_str().unwrap().to_owned();

    let status = review(&client, json!({ "token": token })).await;
    assert_eq!(status["authenticated"], true);
    let user = &status["user"];
    assert_eq!(user["username"], "system:serviceaccount:default:default");
    assert_eq!(
        user["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"])
    );
    let extra =
        |name: &str| user["extra"][format!("authentication.kubernetes.io/{name}")][0].clone();
    assert_eq!(extra("node-name"), "node-1");
    assert_eq!(extra("pod-name"), "p");
    assert_eq!(extra("pod-uid"), pod["metadata"]["uid"]);
    assert!(extra("credential-id").as_str().unwrap().starts_with("JTI="));

    let other = review(&client, json!({ "token": token, "audiences": ["other"] })).await;
    assert_eq!(
        other,
        json!({ "user": {}, "error": "[invalid bearer token, token audiences \
            [\"https://kubernetes.default.svc\"] is invalid for the target audiences [\"other\"]]" })
    );

    let bearer = served.client(Credential::Token(token.clone())).unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let refused = send(&bearer, Method::GET, maps, &Value::Null).await;
    assert_eq!(refused.code, 403);
    assert_eq!(
        refused.json()["message"],
        "configmaps is forbidden: User \"system:serviceaccount:default:default\" cannot list \
         resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" });
    let own = create(&bearer, path, body).await;
    assert_eq!(own["status"]["userInfo"]["uid"], user["uid"]);

    let now = json!({ "gracePeriodSeconds": 0 });
    assert_eq!(send(&client, Method::DELETE, &format!("{pods}/p"), &now).await.code, 200);
    let status = review(&client, json!({ "token": token })).await;
    assert_eq!(
        status["error"],
        "[invalid bearer token, service account token has been invalidated]"
    );
    assert_eq!(send(&bearer, Method::GET, maps, &Value::Null).await.code, 401);
}

#[tokio::test]
async fn a_token_for_other_audiences_opens_nothing_here() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let answer = create(&client, path, json!({ "spec": { "audiences": ["aud-x"] } })).await;
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let status = review(&client, json!({ "token": token, "audiences": ["aud-x", "aud-y"] })).await;
    assert_eq!((&status["authenticated"], &status["audiences"]), (&json!(true), &json!(["aud-x"])));
    let bearer = served.client(Credential::Token(token)).unwrap();
    assert_eq!(send(&bearer, Method::GET, "/api", &Value::Null).await.code, 401);
}

#[tokio::test]
async fn roles_open_what_they_name() {
    let served = testing::start().await.unwrap();
    let applied = served.server.apply_yaml(
        "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: reader, namespace: kube-system}\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
         metadata: {name: reader}\nrules:\n\
         - {apiGroups: [\"\"], resources: [nodes], verbs: [get, list]}\n\
         - {nonResourceURLs: [/metrics], verbs: [get]}\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n\
         metadata: {name: reader}\n\
         roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}\n\
         subjects: [{kind: ServiceAccount, name: reader, namespace: kube-system}]\n",
    );
    assert_eq!(applied.unwrap(), 3);
    let token = served.server.token_for("kube-system", "reader").unwrap();
    assert!(served.server.token_for("kube-system", "nobody").is_err());
    let reader = served.client(Credential::Token(token)).unwrap();
    let anonymous = served.client(Credential::None).unwrap();
    let wrong = served.client(Credential::Token("nonsense".to_owned())).unwrap();
    for (client, method, path, code) in [
        (&reader, Method::GET, "/api/v1/nodes", 200),
        (&reader, Method::GET, "/api/v1/nodes?watch=1&timeoutSeconds=1", 403),
        (&reader, Method::POST, "/api/v1/nodes", 403),
        (&reader, Method::GET, "/api/v1/pods", 403),
        (&reader, Method::GET, "/metrics", 404),
        (&reader, Method::GET, "/configz", 403),
        (&reader, Method::GET, "/apis", 200),
        (&anonymous, Method::GET, "/readyz", 200),
        (&anonymous, Method::GET, "/version", 200),
        (&anonymous, Method::GET, "/api/v1/nodes", 403),
        (&anonymous, Method::GET, "/apis", 403),
        (&wrong, Method::GET, "/readyz", 401),
    ] {
        let answer = send(client, method.clone(), path, &Value::Null).await;
        assert_eq!(answer.code, code, "{method} {path}");
    }
    let headers = [("impersonate-user", "alice")];
    let answer = reader.send(Method::GET, "/api/v1/nodes", &headers, "").await.unwrap();
    assert_eq!(answer.code, 403);
}
