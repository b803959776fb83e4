//! Discovery: which groups, versions and resources there are, in both published forms.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::aggregation::Served;
use crate::names::api_version;
use crate::resource::{Resource, Scope};

/// The order in which groups are listed; others follow by name.
const ORDER: [&str; 8] = [
    "",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "rbac.authorization.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
];

/// Groups with their versions, the newest stable first.
pub fn groups(resources: &[impl AsRef<Resource>]) -> Vec<(String, Vec<String>)> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for resource in resources {
        let resource = resource.as_ref();
        let at = match groups.iter().position(|(group, _)| *group == resource.group) {
            Some(at) => at,
            None => {
                groups.push((resource.group.clone(), Vec::new()));
                groups.len() - 1
            }
        };
        if !groups[at].1.contains(&resource.version) {
            groups[at].1.push(resource.version.clone());
        }
    }
    let rank = |group: &str| ORDER.iter().position(|own| *own == group).unwrap_or(ORDER.len());
    groups.sort_by(|a, b| (rank(&a.0), &a.0).cmp(&(rank(&b.0), &b.0)));
    for (_, versions) in &mut groups {
        versions.sort_by_key(|version| std::cmp::Reverse(version_rank(version)));
    }
    groups
}

/// Groups with their versions, those that other servers serve last.
pub fn all_groups(
    resources: &[impl AsRef<Resource>],
    others: &[Served],
) -> Vec<(String, Vec<String>)> {
    let mut all = groups(resources);
    for other in others {
        match all.iter_mut().find(|(group, _)| *group == other.group) {
            Some((_, versions)) => versions.push(other.version.clone()),
            None => all.push((other.group.clone(), vec![other.version.clone()])),
        }
    }
    all
}

/// Rank of a version: stable before beta before alpha, then by number.
fn version_rank(version: &str) -> (u8, u32, u32) {
    let rest = version.strip_prefix('v').unwrap_or(version);
    let (major, stage, minor) = if let Some((major, minor)) = rest.split_once("beta") {
        (major, 1, minor)
    } else if let Some((major, minor)) = rest.split_once("alpha") {
        (major, 0, minor)
    } else {
        (rest, 2, "0")
    };
    (stage, major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
}

/// The `/api` document.
pub fn legacy_versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs":
            [{ "clientCIDR": "0.0.0.0/0", "serverAddress": server_address }],
    })
}

fn group_body(group: &str, versions: &[String]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": api_version(group, version), "version": version }))
        .collect();
    json!({ "name": group, "preferredVersion": versions.first(), "versions": versions })
}

/// The `/apis` document.
pub fn group_list(resources: &[impl AsRef<Resource>], others: &[Served]) -> Value {
    let groups: Vec<Value> = all_groups(resources, others)
        .iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_body(group, versions))
        .collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// The `/apis/GROUP` document.
pub fn group(resources: &[impl AsRef<Resource>], others: &[Served], name: &str) -> Option<Value> {
    let groups = all_groups(resources, others);
    let (group, versions) = groups.iter().find(|(group, _)| group == name && !group.is_empty())?;
    let mut body = group_body(group, versions);
    body["kind"] = json!("APIGroup");
    body["apiVersion"] = json!("v1");
    Some(body)
}

/// The document of one group and version.
pub fn resource_list(
    resources: &[impl AsRef<Resource>],
    group: &str,
    version: &str,
) -> Option<Value> {
    let mut entries = Vec::new();
    for resource in resources.iter().map(AsRef::as_ref) {
        if resource.group != group || resource.version != version {
            continue;
        }
        let namespaced = resource.scope == Scope::Namespaced;
        let mut entry = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": namespaced,
            "kind": resource.kind,
            "verbs": resource.verbs,
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        entries.push(entry);
        for subresource in &resource.subresources {
            let mut entry = json!({
                "name": format!("{}/{}", resource.plural, subresource.name),
                "singularName": "",
                "namespaced": namespaced,
                "kind": subresource.kind,
                "verbs": subresource.verbs,
            });
            if let Some((group, version)) = subresource.group_version {
                entry["group"] = json!(group);
                entry["version"] = json!(version);
            }
            entries.push(entry);
        }
    }
    if entries.is_empty() {
        return None;
    }
    let mut list = json!({
        "kind": "APIResourceList",
        "groupVersion": api_version(group, version),
        "resources": entries,
    });
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

/// Which half of aggregated discovery is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// `/api`.
    Core,
    /// `/apis`.
    Groups,
}

/// Media type of aggregated discovery.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The aggregated document of one half.
pub fn aggregated(resources: &[impl AsRef<Resource>], others: &[Served], half: Half) -> Value {
    let items: Vec<Value> = all_groups(resources, others)
        .iter()
        .filter(|(group, _)| group.is_empty() == (half == Half::Core))
        .map(|(group, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|version| {
                    let elsewhere = others
                        .iter()
                        .find(|other| other.group == *group && other.version == *version);
                    if let Some(Served { resources, .. }) = elsewhere {
                        return json!({
                            "version": version, "resources": resources, "freshness": "Current",
                        });
                    }
                    let entries: Vec<Value> = resources
                        .iter()
                        .map(AsRef::as_ref)
                        .filter(|r| r.group == *group && r.version == *version)
                        .map(aggregated_resource)
                        .collect();
                    json!({ "version": version, "resources": entries, "freshness": "Current" })
                })
                .collect();
            let metadata = match group.as_str() {
                "" => json!({}),
                name => json!({ "name": name }),
            };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    })
}

fn response_kind(resource: &Resource, kind: &str, other: Option<(&str, &str)>) -> Value {
    let (group, version) = match other {
        Some(other) => other,
        None => (resource.group.as_str(), resource.version.as_str()),
    };
    json!({ "group": group, "version": version, "kind": kind })
}

fn aggregated_resource(resource: &Resource) -> Value {
    let scope = match resource.scope {
        Scope::Namespaced => "Namespaced",
        Scope::Cluster => "Cluster",
    };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": response_kind(resource, &resource.kind, None),
        "scope": scope,
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    if !resource.subresources.is_empty() {
        let parts: Vec<Value> = resource
            .subresources
            .iter()
            .map(|part| {
                json!({
                    "subresource": part.name,
                    "responseKind": response_kind(resource, &part.kind, part.group_version),
                    "verbs": part.verbs,
                })
            })
            .collect();
        entry["subresources"] = json!(parts);
    }
    entry
}

/// A quoted tag that changes with the document.
pub fn etag(document: &[u8]) -> String {
    use std::fmt::Write;
    let mut tag = String::from("\"");
    for byte in Sha256::digest(document) {
        let _ = write!(tag, "{byte:02X}");
    }
    tag.push('"');
    tag
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["v1alpha1", "v1", "v2", "v1beta1", "v1beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_rank(version)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1"]);
    }
}
