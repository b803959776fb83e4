//! What a request asks for, read from its method and URL.

use hyper::Method;

use crate::query::{Query, percent_decode};
use crate::selector::FieldSelector;

/// A request, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The path, decoded.
    pub path: String,
    /// The parameters.
    pub query: Query,
    /// Verb as authorization names it: `get`, `list`, `watch`, ...
    pub verb: String,
    /// The resource, if the path names one.
    pub resource: Option<ResourcePath>,
}

/// The resource that a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourcePath {
    /// API group; empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace; empty for cluster scope or all namespaces.
    pub namespace: String,
    /// Plural resource name.
    pub resource: String,
    /// Object name; empty for a collection.
    pub name: String,
    /// Subresource; empty for the object itself.
    pub subresource: String,
    /// Whether the name comes from a field selector and the path names a collection.
    pub name_from_selector: bool,
}

impl RequestInfo {
    /// Takes a request apart.
    pub fn parse(method: &Method, uri: &hyper::Uri) -> Self {
        let path = uri.path();
        let query = Query::parse(uri.query().unwrap_or(""));
        let parts: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(percent_decode).collect();
        let (resource, deprecated_watch) = match parse_resource(&parts) {
            Some((resource, watch)) => (Some(resource), watch),
            None => (None, false),
        };
        let Some(mut resource) = resource else {
            let verb = method.as_str().to_lowercase();
            return Self { path: percent_decode(path), query, verb, resource: None };
        };
        let single = !resource.name.is_empty();
        let verb = match *method {
            Method::GET | Method::HEAD if deprecated_watch || (!single && query.flag("watch")) => {
                "watch"
            }
            Method::GET | Method::HEAD if single => "get",
            Method::GET | Method::HEAD => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if single => "delete",
            Method::DELETE => "deletecollection",
            _ => "",
        };
        if !single && matches!(verb, "list" | "watch" | "deletecollection") {
            let selector = FieldSelector::parse(query.get("fieldSelector").unwrap_or(""));
            if let Some(name) = selector.ok().as_ref().and_then(|s| s.wanted("metadata.name")) {
                resource.name = name.to_owned();
                resource.name_from_selector = true;
            }
        }
        Self { path: percent_decode(path), query, verb: verb.to_owned(), resource: Some(resource) }
    }
}

fn parse_resource(parts: &[String]) -> Option<(ResourcePath, bool)> {
    let (group, version, mut rest) = match parts {
        [api, version, rest @ ..] if api == "api" => (String::new(), version, rest),
        [apis, group, version, rest @ ..] if apis == "apis" => (group.clone(), version, rest),
        _ => return None,
    };
    let watch = rest.first().is_some_and(|part| part == "watch") && rest.len() > 1;
    if watch {
        rest = &rest[1..];
    }
    let mut found = ResourcePath { group, version: version.clone(), ..ResourcePath::default() };
    if let [namespaces, namespace, inner @ ..] = rest
        && namespaces == "namespaces"
    {
        // `namespaces/x/status` is a part of the Namespace, all else lies inside of it.
        let own = inner.first().is_none_or(|part| part == "status" || part == "finalize");
        found.namespace.clone_from(namespace);
        if !own {
            rest = inner;
        }
    }
    let [resource, inner @ ..] = rest else { return None };
    found.resource.clone_from(resource);
    found.name = inner.first().cloned().unwrap_or_default();
    found.subresource = inner.get(1..).map(|parts| parts.join("/")).unwrap_or_default();
    if found.resource == "namespaces" && found.namespace.is_empty() {
        found.namespace.clone_from(&found.name);
    }
    Some((found, watch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: Method, uri: &str, want: &str) {
        let info = RequestInfo::parse(&method, &uri.parse().unwrap());
        let text = match &info.resource {
            None => format!("{} {}", info.verb, info.path),
            Some(r) => format!(
                "{} group={} version={} ns={} {}/{} sub={}",
                info.verb, r.group, r.version, r.namespace, r.resource, r.name, r.subresource
            ),
        };
        assert_eq!(text, want, "{uri}");
    }

    #[test]
    fn requests_are_taken_apart() {
        use Method as M;
        check(M::GET, "/healthz", "get /healthz");
        check(M::GET, "/api/v1", "get /api/v1");
        check(M::GET, "/api/v1/nodes", "list group= version=v1 ns= nodes/ sub=");
        check(M::GET, "/api/v1/namespaces/a", "get group= version=v1 ns=a namespaces/a sub=");
        check(
            M::PUT,
            "/api/v1/namespaces/a/finalize",
            "update group= version=v1 ns=a namespaces/a sub=finalize",
        );
        check(
            M::POST,
            "/api/v1/namespaces/a/pods/p/exec?command=ls",
            "create group= version=v1 ns=a pods/p sub=exec",
        );
        check(
            M::GET,
            "/apis/crd.antrea.io/v1beta1/antreaagentinfos?watch=1",
            "watch group=crd.antrea.io version=v1beta1 ns= antreaagentinfos/ sub=",
        );
        check(
            M::GET,
            "/api/v1/pods?fieldSelector=metadata.name%3Dp",
            "list group= version=v1 ns= pods/p sub=",
        );
        check(M::GET, "/api/v1/watch/namespaces/a/pods", "watch group= version=v1 ns=a pods/ sub=");
    }
}
