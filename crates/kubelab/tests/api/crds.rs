//! Custom resources.

use hyper::Method;
use kubelab::client::Credential;
use kubelab::testing;
use serde_json::{Value, json};

use crate::util::{create, get, send};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.test/v1/namespaces/default/widgets";

fn mk_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.test" },
        "spec": {
            "group": "example.test",
            "names": { "kind": "Widget", "plural": "widgets", "shortNames": ["wd"] },
            "scope": "Namespaced",
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "additionalPrinterColumns": [
                    { "name": "Size", "type": "integer", "jsonPath": ".spec.size" },
                    { "name": "Ready", "type": "string",
                      "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status" },
                ],
                "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": { "type": "object", "properties": { "size": { "type": "integer" } } },
                        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                    },
                } },
            }],
        },
    })
}

fn mk_widget(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "example.test/v1", "kind": "Widget",
        "metadata": { "name": name }, "spec": spec,
    })
}

#[tokio::test]
async fn a_definition_serves_its_resource_until_it_is_deleted() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    assert!(get(&client, WIDGETS).await.is_none());
    let definition = create(&client, DEFINITIONS, mk_definition()).await;
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"));
    let resources = get(&client, "/apis/example.test/v1").await.unwrap();
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wd"]));

    let made = create(&client, WIDGETS, mk_widget("w", json!({ "size": 1 }))).await;
    assert_eq!(made["metadata"]["generation"], 1);
    let widget = format!("{WIDGETS}/w");
    let patch = json!({ "spec": { "size": 2 }, "status": { "x": 1 } });
    let patched = send(&client, Method::PATCH, &widget, &patch).await.json();
    assert_eq!(patched["metadata"]["generation"], 2);
    assert!(patched.get("status").is_none(), "{patched}");
    let patch = json!({
        "metadata": { "labels": { "l": "1" } }, "spec": { "size": 3 },
        "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    let path = format!("{widget}/status");
    let patched = send(&client, Method::PATCH, &path, &patch).await.json();
    assert_eq!(patched["metadata"]["generation"], 2);
    assert_eq!(patched["spec"]["size"], 2);
    assert!(patched["metadata"].get("labels").is_none());

    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = client.send(Method::GET, WIDGETS, &headers, "").await.unwrap().json();
    assert_eq!(table["rows"][0]["cells"], json!(["w", 2, "True"]));
    let list = get(&client, WIDGETS).await.unwrap();
    assert_eq!(list["kind"], "WidgetList");
    assert_eq!(list["items"][0]["kind"], "Widget");

    let headers = [("content-type", "application/strategic-merge-patch+json")];
    let refused = client.send(Method::PATCH, &widget, &headers, "{}").await.unwrap();
    assert_eq!(refused.code, 415);
    let stale = mk_widget("w", json!({}));
    assert_eq!(send(&client, Method::PUT, &widget, &stale).await.code, 422);

    let path = format!("{DEFINITIONS}/widgets.example.test");
    assert_eq!(send(&client, Method::DELETE, &path, &Value::Null).await.code, 200);
    assert_eq!(send(&client, Method::GET, WIDGETS, &Value::Null).await.code, 404);
    create(&client, DEFINITIONS, mk_definition()).await;
    assert_eq!(get(&client, WIDGETS).await.unwrap()["items"], json!([]));
}

#[tokio::test]
async fn what_we_ship_is_served() {
    let served = testing::start().await.unwrap();
    for manifest in [
        include_str!("../../../../deploy/crds/antreaagentinfos.yaml"),
        include_str!("../../../../deploy/crds/antreacontrollerinfos.yaml"),
        include_str!("../../../../deploy/crds/clustergroups.yaml"),
        include_str!("../../../../deploy/crds/clusternetworkpolicies.yaml"),
        include_str!("../../../../deploy/crds/groups.yaml"),
        include_str!("../../../../deploy/crds/networkpolicies.yaml"),
        include_str!("../../../../deploy/crds/tiers.yaml"),
        include_str!("../../../../deploy/rbac.yaml"),
    ] {
        served.server.apply_yaml(manifest).unwrap();
        served.server.apply_yaml(manifest).unwrap(); // Again, as an update.
    }
    let token = served.server.token_for("kube-system", "antrea-agent").unwrap();
    let agent = served.client(Credential::Token(token)).unwrap();
    let infos = "/apis/crd.antrea.io/v1beta1/antreaagentinfos";
    let info = json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "AntreaAgentInfo",
        "metadata": { "name": "node-1" }, "version": "v0.1.0",
        "agentConditions": [{
            "type": "AgentHealthy", "status": "True", "lastHeartbeatTime": "2026-11-30T00:00:00Z",
        }],
    });
    let path = format!("{infos}?fieldValidation=Strict");
    create(&agent, &path, info).await;
    let headers = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let client = served.admin_client().unwrap();
    let table = client.send(Method::GET, infos, &headers, "").await.unwrap().json();
    assert_eq!(table["rows"][0]["cells"][1], "True");
}

#[tokio::test]
async fn custom_objects_are_checked_against_their_structure() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create(&client, DEFINITIONS, mk_definition()).await;
    for (query, spec, code) in [
        ("", json!({ "size": "big" }), 422),
        ("?fieldValidation=Strict", json!({ "sise": 1 }), 400),
        ("?fieldValidation=Strict", json!({ "size": 1 }), 201),
    ] {
        let path = format!("{WIDGETS}{query}");
        let answer = send(&client, Method::POST, &path, &mk_widget("c", spec.clone())).await;
        assert_eq!(answer.code, code, "{spec}: {}", answer.json());
    }
    let answer = send(&client, Method::POST, WIDGETS, &mk_widget("d", json!({ "x": 1 }))).await;
    assert_eq!(answer.headers["warning"], "299 - \"unknown field \\\"spec.x\\\"\"");
    let mut bad = mk_definition();
    bad["metadata"]["name"] = json!("other.example.test");
    assert_eq!(send(&client, Method::POST, DEFINITIONS, &bad).await.code, 422);
    let mut bad = mk_definition();
    bad["spec"]["conversion"] = json!({ "strategy": "Webhook" });
    assert_eq!(send(&client, Method::POST, DEFINITIONS, &bad).await.code, 422);
}

/// The schema of the recorded exchanges with Kubernetes' own server.
fn mk_checked() -> Value {
    let mut definition = mk_definition();
    let spec = json!({
        "type": "object", "required": ["size"],
        "x-kubernetes-validations": [{
            "rule": "!has(self.max) || self.size <= self.max",
            "message": "size must not be over max",
        }],
        "properties": {
            "size": { "type": "integer", "minimum": 1, "maximum": 10 },
            "max": { "type": "integer" },
            "mode": { "type": "string", "enum": ["A", "B"], "default": "A" },
            "id": {
                "type": "string", "maxLength": 8, "pattern": "^[a-z]+$",
                "x-kubernetes-validations": [
                    { "rule": "self == oldSelf", "message": "id is immutable" },
                ],
            },
            "tags": {
                "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set",
            },
            "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "nested": {
                "type": "object", "default": {},
                "properties": { "on": { "type": "boolean", "default": true } },
            },
            "port": { "x-kubernetes-int-or-string": true },
        },
    });
    let schema = json!({ "type": "object", "required": ["spec"], "properties": {
        "spec": spec,
        "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
    } });
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
    definition
}

#[tokio::test]
async fn objects_are_pruned_filled_in_and_judged_by_their_schema() {
    let served = testing::start().await.unwrap();
    let client = served.admin_client().unwrap();
    create(&client, DEFINITIONS, mk_checked()).await;
    let spec = json!({
        "size": 3, "id": "abc", "bogus": 1, "any": { "x": { "y": 1 } }, "port": "http",
    });
    let answer = send(&client, Method::POST, WIDGETS, &mk_widget("a", spec)).await;
    assert_eq!(answer.headers["warning"], "299 - \"unknown field \\\"spec.bogus\\\"\"");
    assert_eq!(
        answer.json()["spec"],
        json!({ "any": { "x": { "y": 1 } }, "id": "abc", "mode": "A", "nested": { "on": true },
                "port": "http", "size": 3 })
    );
    const REST: &str = "<nil>: Invalid value: null: some validation rules were not checked \
                        because the object was invalid; correct the existing errors to complete \
                        validation";
    for (spec, want) in [
        (
            json!({ "size": 11, "mode": "C", "id": "ABCDEFGHIJ", "tags": ["t", "t"] }),
            format!(
                "[spec.id: Too long: may not be more than 8 bytes, spec.mode: Unsupported value: \
                 \"C\": supported values: \"A\", \"B\", spec.size: Invalid value: 11: spec.size \
                 in body should be less than or equal to 10, spec.tags[1]: Duplicate value: \
                 \"t\", {REST}]"
            ),
        ),
        (
            json!({ "max": "x" }),
            format!(
                "[spec.max: Invalid value: \"string\": spec.max in body must be of type integer: \
                 \"string\", spec.size: Required value, {REST}]"
            ),
        ),
        (
            json!({ "size": 5, "max": 2 }),
            "spec: Invalid value: size must not be over max".to_owned(),
        ),
    ] {
        let answer = send(&client, Method::POST, WIDGETS, &mk_widget("b", spec)).await;
        let message = answer.json()["message"].clone();
        let want = format!("Widget.example.test \"b\" is invalid: {want}");
        assert_eq!((answer.code, message), (422, json!(want)));
    }
    let path = format!("{WIDGETS}/a");
    let patch = json!({ "spec": { "id": "zzz" } });
    let refused = send(&client, Method::PATCH, &path, &patch).await.json();
    let want = "Widget.example.test \"a\" is invalid: spec.id: Invalid value: \"zzz\": id is \
                immutable";
    assert_eq!(refused["message"], want);
    let patch = json!({ "status": { "phase": "Ready", "junk": 1 } });
    let path = format!("{path}/status");
    let patched = send(&client, Method::PATCH, &path, &patch).await.json();
    assert_eq!(patched["status"], json!({ "phase": "Ready" }));

    let mut bad = mk_checked();
    bad["metadata"]["name"] = json!("gadgets.example.test");
    bad["spec"]["names"] = json!({ "kind": "Gadget", "plural": "gadgets" });
    let spec = &mut bad["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["x-kubernetes-validations"] = json!([{ "rule": "self.size <" }]);
    assert_eq!(send(&client, Method::POST, DEFINITIONS, &bad).await.code, 422);
}
