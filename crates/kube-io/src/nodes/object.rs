//! The part of a Node object that we read.

use std::collections::BTreeMap;
use std::net::IpAddr;

use apis::controlplane::wire::{DecodeError, Reader, builtin};
use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::view::{NodeView, Taint, TaintEffect};

/// Annotation with the addresses to use between Nodes, separated by commas.
const TRANSPORT_ADDRESSES: &str = "node.antrea.io/transport-addresses";

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Node)]
pub(crate) struct Node {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Vec<String>,
    taints: Vec<TaintObject>,
    unschedulable: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TaintObject {
    key: String,
    value: String,
    effect: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    addresses: Vec<Address>,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "type")]
    type_: String,
    address: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    type_: String,
    status: String,
}

impl Node {
    /// Reads a Node in protobuf; images, capacity and `managedFields` are passed over.
    pub(crate) fn read(message: &[u8]) -> Result<Self, DecodeError> {
        let mut node = Self {
            metadata: ObjectMeta::default(),
            spec: Spec::default(),
            status: Status::default(),
        };
        let mut fields = Reader::new(message);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => node.metadata = builtin::object_meta(value.bytes(field)?)?,
                2 => node.spec.read(value.bytes(field)?)?,
                3 => node.status.read(value.bytes(field)?)?,
                _ => {}
            }
        }
        Ok(node)
    }

    /// Keeps what we use; what is malformed is logged and left out.
    pub(crate) fn into_view(self) -> NodeView {
        let meta = self.metadata;
        let name = meta.name.unwrap_or_default();
        let annotations = meta.annotations.unwrap_or_default();
        let mut cidrs = self.spec.pod_cidrs;
        if cidrs.is_empty() {
            cidrs.extend(self.spec.pod_cidr);
        }
        let of_type = |wanted: &str| {
            let texts = self.status.addresses.iter().filter(|address| address.type_ == wanted);
            parse_all::<IpAddr>(&name, "address", texts.map(|address| address.address.as_str()))
        };
        let holds = |wanted: &str| {
            let mut all = self.status.conditions.iter();
            all.any(|condition| condition.type_ == wanted && condition.status == "True")
        };
        let transport = annotations.get(TRANSPORT_ADDRESSES).map_or("", String::as_str);
        let transport = transport.split(',').map(str::trim).filter(|text| !text.is_empty());
        NodeView {
            pod_cidrs: parse_all::<IpNet>(&name, "Pod CIDR", cidrs.iter().map(String::as_str)),
            internal_addresses: of_type("InternalIP"),
            external_addresses: of_type("ExternalIP"),
            transport_addresses: parse_all(&name, "transport address", transport),
            taints: self.spec.taints.into_iter().map(TaintObject::into_view).collect(),
            unschedulable: self.spec.unschedulable,
            ready: holds("Ready"),
            network_unavailable: holds("NetworkUnavailable"),
            deleting: meta.deletion_timestamp.is_some(),
            labels: meta.labels.unwrap_or_default(),
            annotations: antrea_only(annotations),
            uid: meta.uid.unwrap_or_default(),
            resource_version: meta.resource_version.unwrap_or_default(),
            name,
        }
    }
}

impl Spec {
    fn read(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut fields = Reader::new(message);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => {
                    self.pod_cidr =
                        Some(value.text(field)?.to_owned()).filter(|cidr| !cidr.is_empty())
                }
                4 => self.unschedulable = value.varint(field)? != 0,
                5 => {
                    let [key, value, effect] = texts(value.bytes(field)?, [1, 2, 3])?;
                    self.taints.push(TaintObject { key, value, effect });
                }
                7 => self.pod_cidrs.push(value.text(field)?.to_owned()),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Status {
    fn read(&mut self, message: &[u8]) -> Result<(), DecodeError> {
        let mut fields = Reader::new(message);
        while let Some((field, value)) = fields.next()? {
            match field {
                4 => {
                    let [type_, status] = texts(value.bytes(field)?, [1, 2])?;
                    self.conditions.push(Condition { type_, status });
                }
                5 => {
                    let [type_, address] = texts(value.bytes(field)?, [1, 2])?;
                    self.addresses.push(Address { type_, address });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Texts of a message by their numbers.
fn texts<const N: usize>(message: &[u8], numbers: [u32; N]) -> Result<[String; N], DecodeError> {
    let mut found = [const { String::new() }; N];
    let mut fields = Reader::new(message);
    while let Some((field, value)) = fields.next()? {
        if let Some(at) = numbers.iter().position(|number| *number == field) {
            value.text(field)?.clone_into(&mut found[at]);
        }
    }
    Ok(found)
}

impl TaintObject {
    fn into_view(self) -> Taint {
        let effect = match self.effect.as_str() {
            "NoSchedule" => TaintEffect::NoSchedule,
            "NoExecute" => TaintEffect::NoExecute,
            _ => TaintEffect::PreferNoSchedule,
        };
        Taint { key: self.key, value: self.value, effect }
    }
}

/// Annotations of others may be large and are never used.
fn antrea_only(annotations: BTreeMap<String, String>) -> BTreeMap<String, String> {
    annotations.into_iter().filter(|(key, _)| key.contains("antrea.io/")).collect()
}

fn parse_all<'a, T: std::str::FromStr>(
    node: &str,
    what: &str,
    texts: impl Iterator<Item = &'a str>,
) -> Vec<T> {
    texts
        .filter_map(|text| {
            let parsed = text.parse().ok();
            if parsed.is_none() {
                tracing::warn!(node, text, "{what} of a Node cannot be read");
            }
            parsed
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(value: serde_json::Value) -> NodeView {
        serde_json::from_value::<Node>(value).unwrap().into_view()
    }

    #[test]
    fn a_full_node() {
        let node = view(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": "n1", "uid": "u1", "resourceVersion": "7",
                "labels": {"zone": "a"},
                "annotations": {
                    "node.antrea.io/transport-addresses": "10.1.0.1, fd01::1",
                    "other": "x".repeat(1000),
                },
            },
            "spec": {
                "podCIDR": "10.0.1.0/24",
                "podCIDRs": ["10.0.1.0/24", "fd00:1::/64"],
                "taints": [{"key": "k", "effect": "NoSchedule"}],
            },
            "status": {
                "addresses": [
                    {"type": "InternalIP", "address": "172.30.0.1"},
                    {"type": "Hostname", "address": "n1"},
                    {"type": "ExternalIP", "address": "192.0.2.1"},
                ],
                "conditions": [{"type": "Ready", "status": "True"}],
                "capacity": {"pods": "110"},
            },
        }));
        assert_eq!(node.pod_cidrs.len(), 2);
        assert_eq!(node.internal_addresses, ["172.30.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(node.external_addresses, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(node.transport_addresses.len(), 2);
        assert_eq!(node.annotations.len(), 1);
        assert_eq!(node.taints[0].effect, TaintEffect::NoSchedule);
        assert!(node.ready && !node.network_unavailable && !node.deleting);
        assert_eq!((node.uid.as_str(), node.resource_version.as_str()), ("u1", "7"));
        assert_eq!(node.addresses(), node.transport_addresses);
    }

    #[test]
    fn malformed_parts_are_left_out() {
        let node = view(json!({
            "metadata": {"name": "n1"},
            "spec": {"podCIDRs": ["nonsense", "10.0.1.0/24"]},
            "status": {"addresses": [{"type": "InternalIP", "address": "nonsense"}]},
        }));
        assert_eq!(node.pod_cidrs.len(), 1);
        assert!(node.internal_addresses.is_empty());
    }

    #[test]
    fn the_old_single_field_counts_alone() {
        let node = view(json!({"metadata": {"name": "n"}, "spec": {"podCIDR": "10.0.1.0/24"}}));
        assert_eq!(node.pod_cidrs.len(), 1);
    }
}
