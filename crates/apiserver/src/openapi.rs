//! OpenAPI v3: enough for clients to find a kind's schema, its merge keys and its query options.
//!
//! Clients such as kubectl look into the second version too, for kinds that cannot be patched. There
//! they find a document that is whole and names no kind, and so check nothing themselves.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::aggregation::Served;
use crate::names::api_version;
use crate::resource::{Resource, Scope};
use crate::schema;

/// What those ask for who want the second version as a message; an `@` and a version may follow.
pub const V2_ASKED: &str = "application/com.github.proto-openapi.spec.v2";
/// Media type of that message. Not as it is asked for: an `@` cannot stand in one.
pub const V2_MESSAGE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The `/openapi/v2` document.
pub fn v2() -> Value {
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": "v1" },
        "paths": {},
        "definitions": {},
    })
}

/// The same as a message: field 1 is the version of the format.
pub fn v2_message() -> &'static [u8] {
    b"\x0a\x032.0"
}

/// Key of a group and version in the index, as `apis/apps/v1`.
fn index_key(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The `/openapi/v3` document.
pub fn index(resources: &[impl AsRef<Resource>], others: &[Served]) -> Value {
    let mut paths = serde_json::Map::new();
    for (group, versions) in crate::discovery::groups(resources) {
        for version in versions {
            let key = index_key(&group, &version);
            let text = document(resources, &group, &version).map(|d| d.to_string());
            let tag = crate::discovery::etag(text.unwrap_or_default().as_bytes());
            let url = format!("/openapi/v3/{key}?hash={}", tag.trim_matches('"'));
            paths.insert(key, json!({ "serverRelativeURL": url }));
        }
    }
    for Served { group, version, .. } in others {
        let key = index_key(group, version);
        let url = format!("/openapi/v3/{key}");
        paths.insert(key, json!({ "serverRelativeURL": url }));
    }
    json!({ "paths": paths })
}

/// The document of one group and version.
pub fn document(resources: &[impl AsRef<Resource>], group: &str, version: &str) -> Option<Value> {
    let mut paths = serde_json::Map::new();
    let mut components = BTreeMap::new();
    for resource in resources.iter().map(AsRef::as_ref) {
        if resource.group != group || resource.version != version {
            continue;
        }
        let name = component(resource);
        let mut schema = if resource.shape.name.is_empty() {
            schema::in_place(&resource.shape, &mut components)
        } else {
            schema::components(&resource.shape, &mut components);
            components.remove(&resource.shape.name).unwrap_or_default()
        };
        schema["x-kubernetes-group-version-kind"] = json!([gvk(resource)]);
        components.insert(name.clone(), schema);
        add_paths(resource, &name, &mut paths);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": "v1" },
        "paths": paths,
        "components": { "schemas": components },
    }))
}

fn gvk(resource: &Resource) -> Value {
    json!({ "group": resource.group, "version": resource.version, "kind": resource.kind })
}

fn component(resource: &Resource) -> String {
    format!(
        "{}.{}",
        api_version(&resource.group, &resource.version).replace('/', "."),
        resource.kind
    )
}

fn add_paths(resource: &Resource, component: &str, paths: &mut serde_json::Map<String, Value>) {
    let root = match resource.group.as_str() {
        "" => format!("/api/{}", resource.version),
        group => format!("/apis/{group}/{}", resource.version),
    };
    let collection = match resource.scope {
        Scope::Namespaced => format!("{root}/namespaces/{{namespace}}/{}", resource.plural),
        Scope::Cluster => format!("{root}/{}", resource.plural),
    };
    let mut on_collection = serde_json::Map::new();
    let mut on_object = serde_json::Map::new();
    for verb in &resource.verbs {
        let (method, action, place) = match *verb {
            "list" => ("get", "list", &mut on_collection),
            "create" => ("post", "post", &mut on_collection),
            "deletecollection" => ("delete", "deletecollection", &mut on_collection),
            "get" => ("get", "get", &mut on_object),
            "update" => ("put", "put", &mut on_object),
            "patch" => ("patch", "patch", &mut on_object),
            "delete" => ("delete", "delete", &mut on_object),
            _ => continue,
        };
        let names: &[&str] = match action {
            "post" | "put" | "patch" => &["dryRun", "fieldManager", "fieldValidation"],
            "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
            "get" => &["resourceVersion"],
            _ => &["labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"],
        };
        let parameters: Vec<Value> = names
            .iter()
            .map(|name| json!({ "name": name, "in": "query", "schema": { "type": "string" } }))
            .collect();
        let answer = json!({
            "description": "OK",
            "content": { "application/json": { "schema": schema::reference(component) } },
        });
        place.insert(
            method.to_owned(),
            json!({
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": gvk(resource),
                "parameters": parameters,
                "responses": { "200": answer },
            }),
        );
    }
    if !on_object.is_empty() {
        paths.insert(format!("{collection}/{{name}}"), Value::Object(on_object));
    }
    if !on_collection.is_empty() {
        paths.insert(collection, Value::Object(on_collection));
    }
}
