//! The front half of API aggregation: groups that other servers serve.
//!
//! Who they are and whether they answer is the [`Aggregator`]'s; here is how a request is handed
//! on: with the caller's name in headers, without their credentials.

use std::net::SocketAddr;

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::body::{Body, Response};
use crate::query::percent_encode;
use crate::server::{Peer, Request};
use crate::status::ApiError;
use crate::user::User;

/// A version of a group that another server serves and that answers now.
#[derive(Clone, Debug)]
pub struct Served {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Its resources in the form of aggregated discovery.
    pub resources: Value,
}

/// Knows the other servers.
pub trait Aggregator: Send + Sync {
    /// Whether another server is responsible for a version of a group, answering or not.
    fn claims(&self, group: &str, version: &str) -> bool;

    /// What the others serve now, in order of priority.
    fn served(&self) -> Vec<Served>;

    /// Hands a request on; the caller may do what it asks for.
    fn forward(
        &self,
        group: &str,
        version: &str,
        user: User,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>>;
}

/// Headers that concern one connection.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host"];

fn is_dropped(name: &str) -> bool {
    HOP_BY_HOP.contains(&name)
        || name == "authorization"
        || name.starts_with("x-remote-")
        || name.starts_with("impersonate-")
}

fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    let name = HeaderName::from_bytes(name.to_lowercase().as_bytes());
    if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
        headers.append(name, value);
    }
}

/// Says in whose name a request is made.
pub fn name_user(headers: &mut HeaderMap, user: &User) {
    set(headers, "x-remote-user", &user.username);
    if !user.uid.is_empty() {
        set(headers, "x-remote-uid", &user.uid);
    }
    for group in &user.groups {
        set(headers, "x-remote-group", group);
    }
    for (key, values) in &user.extra {
        for value in values {
            set(headers, &format!("x-remote-extra-{}", percent_encode(key)), value);
        }
    }
}

/// The request that the other server gets.
pub fn request_in_name(user: &User, host: &str, request: Request) -> hyper::Request<Body> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.address);
    let (parts, body) = request.into_parts();
    let mut next = hyper::Request::new(body.map_err(Into::into).boxed_unsync());
    *next.method_mut() = parts.method;
    let headers = next.headers_mut();
    for (name, value) in &parts.headers {
        if !is_dropped(name.as_str()) {
            headers.append(name.clone(), value.clone());
        }
    }
    name_user(headers, user);
    if let Some(address) = peer.map(|peer: SocketAddr| peer.ip().to_string()) {
        set(headers, "x-forwarded-for", &address);
    }
    set(headers, "x-forwarded-host", host);
    set(headers, "x-forwarded-proto", "https");
    set(headers, "x-forwarded-uri", parts.uri.path());
    if let Some(path) = parts.uri.path_and_query() {
        *next.uri_mut() = hyper::Uri::from(path.clone());
    }
    next
}

/// The answer as our client gets it.
pub fn passed_on(answer: hyper::Response<Incoming>) -> Response {
    let (mut parts, body) = answer.into_parts();
    for name in HOP_BY_HOP {
        parts.headers.remove(name);
    }
    hyper::Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
}

/// Resources of an `APIResourceList` in the form of aggregated discovery.
pub fn aggregated_resources(list: &Value) -> Value {
    let entries = || list["resources"].as_array().into_iter().flatten();
    let name = |entry: &Value| entry["name"].as_str().unwrap_or("").to_owned();
    let kind = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or("");
        json!({ "group": text("group"), "version": text("version"), "kind": text("kind") })
    };
    entries()
        .filter(|entry| !name(entry).contains('/'))
        .map(|entry| {
            let parent = format!("{}/", name(entry));
            let mut resource = json!({
                "resource": name(entry),
                "responseKind": kind(entry),
                "scope": if entry["namespaced"] == true { "Namespaced" } else { "Cluster" },
                "singularResource": entry["singularName"],
                "verbs": entry["verbs"],
            });
            for field in ["shortNames", "categories"] {
                if entry[field].is_array() {
                    resource[field] = entry[field].clone();
                }
            }
            let parts: Vec<Value> = entries()
                .filter_map(|part| {
                    let subresource = name(part).strip_prefix(&parent)?.to_owned();
                    Some(json!({
                        "subresource": subresource,
                        "responseKind": kind(part),
                        "verbs": part["verbs"],
                    }))
                })
                .collect();
            if !parts.is_empty() {
                resource["subresources"] = json!(parts);
            }
            resource
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_named_in_headers() {
        let mut user = User::new("carol", ["one"]);
        user.uid = "u-1".to_owned();
        user.extra.insert("scopes/a".to_owned(), vec!["x".to_owned(), "y".to_owned()]);
        let mut headers = HeaderMap::new();
        name_user(&mut headers, &user);
        let all = |name: &str| headers.get_all(name).iter().collect::<Vec<_>>();
        assert_eq!(all("x-remote-user"), ["carol"]);
        assert_eq!(all("x-remote-uid"), ["u-1"]);
        assert_eq!(all("x-remote-group"), ["one", "system:authenticated"]);
        assert_eq!(all("x-remote-extra-scopes%2fa"), ["x", "y"]);
    }

    #[test]
    fn resource_lists_become_aggregated() {
        let list = json!({ "resources": [
            { "name": "toys", "singularName": "toy", "namespaced": false, "kind": "Toy",
              "verbs": ["get"], "shortNames": ["ty"] },
            { "name": "toys/status", "singularName": "", "namespaced": false, "kind": "ToyStatus",
              "verbs": ["create"] },
        ] });
        let resources = aggregated_resources(&list);
        assert_eq!(resources[0]["resource"], "toys");
        assert_eq!(resources[0]["shortNames"], json!(["ty"]));
        assert_eq!(resources[0]["subresources"][0]["subresource"], "status");
        assert_eq!(resources.as_array().unwrap().len(), 1);
    }
}
