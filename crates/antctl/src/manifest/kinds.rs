//! Reads objects by kind.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ::policy::verdict::Objects;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Complaint, ObjectKey, Place};

/// An object that makes Pods from a template.
#[derive(Clone, Debug)]
pub(super) struct Controller {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) owners: Vec<OwnerReference>,
    pub(super) template: PodTemplateSpec,
}

/// What has been read so far.
#[derive(Default)]
pub(crate) struct Reader {
    pub(super) objects: Objects,
    pub(super) controllers: Vec<Controller>,
    pub(super) places: BTreeMap<ObjectKey, Place>,
    pub(super) complaints: Vec<Complaint>,
}

/// Kinds of crd.antrea.io that say nothing about who may connect to whom.
const OTHER_KINDS: [&str; 15] = [
    "AntreaAgentInfo",
    "AntreaControllerInfo",
    "AntreaNodeConfig",
    "BGPPolicy",
    "Egress",
    "ExternalEntity",
    "ExternalIPPool",
    "ExternalNode",
    "FlowExporterDestination",
    "IPPool",
    "NodeLatencyMonitor",
    "PacketCapture",
    "SupportBundleCollection",
    "Traceflow",
    "TrafficControl",
];

/// Kinds whose objects make Pods: group, version and name.
const WORKLOAD_KINDS: [(&str, &str, &str); 7] = [
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "DaemonSet"),
    ("apps", "v1", "ReplicaSet"),
    ("", "v1", "ReplicationController"),
    ("batch", "v1", "Job"),
    ("batch", "v1", "CronJob"),
];

impl Reader {
    /// Reads one object, unless its kind does not matter.
    pub(super) fn put(&mut self, place: Place, object: Value) {
        let word = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (api, kind) = (word("apiVersion"), word("kind"));
        if kind.is_empty() || api.is_empty() {
            return self
                .error(place, "not a Kubernetes object: apiVersion or kind is missing".into());
        }
        let (group, version) = api.rsplit_once('/').unwrap_or(("", api));
        let kind = kind.to_owned();
        match (group, version, kind.as_str()) {
            ("", "v1", "Pod") => self.read(place, &object, Check::Lenient, |o| &mut o.pods),
            ("", "v1", "Namespace") => {
                self.read(place, &object, Check::Lenient, |o| &mut o.namespaces);
            }
            ("", "v1", "Node") => self.read(place, &object, Check::Lenient, |o| &mut o.nodes),
            ("", "v1", "Service") => self.read(place, &object, Check::Lenient, |o| &mut o.services),
            ("networking.k8s.io", "v1", "NetworkPolicy") => {
                self.read(place, &object, Check::Strict, |o| &mut o.network_policies);
            }
            ("crd.antrea.io", "v1beta1", "ClusterNetworkPolicy") => {
                self.read(place, &object, Check::Strict, |o| &mut o.antrea_cluster_policies);
            }
            ("crd.antrea.io", "v1beta1", "NetworkPolicy") => {
                self.read(place, &object, Check::Strict, |o| &mut o.antrea_policies);
            }
            ("crd.antrea.io", "v1beta1", "Tier") => {
                self.read(place, &object, Check::Strict, |o| &mut o.tiers);
            }
            ("crd.antrea.io", "v1beta1", "ClusterGroup") => {
                self.read(place, &object, Check::Strict, |o| &mut o.cluster_groups);
            }
            ("crd.antrea.io", "v1beta1", "Group") => {
                self.read(place, &object, Check::Strict, |o| &mut o.groups);
            }
            ("policy.networking.k8s.io", "v1alpha2", "ClusterNetworkPolicy") => {
                self.read(place, &object, Check::Strict, |o| &mut o.cluster_policies);
            }
            _ if WORKLOAD_KINDS.contains(&(group, version, &kind)) => {
                self.controller(place, &object, &kind);
            }
            _ if is_unsupported(group, &kind) => {
                self.error(place, format!("{api} {kind} is not supported"));
            }
            _ => {}
        }
    }

    fn read<T: DeserializeOwned + Serialize>(
        &mut self,
        place: Place,
        object: &Value,
        check: Check,
        list: fn(&mut Objects) -> &mut Vec<T>,
    ) {
        let typed: T = match serde_json::from_value(object.clone()) {
            Ok(typed) => typed,
            Err(error) => return self.error(place, format!("{}: {error}", title(object))),
        };
        if check == Check::Strict {
            // What does not come back was not understood.
            let back = serde_json::to_value(&typed).unwrap_or_default();
            if let Some(field) = lost_field(object.get("spec"), back.get("spec"), "spec") {
                self.error(place.clone(), format!("{}: unknown field {field}", title(object)));
            }
        }
        if self.is_first(place, object) {
            list(&mut self.objects).push(typed);
        }
    }

    fn controller(&mut self, place: Place, object: &Value, kind: &str) {
        let path = match kind {
            "CronJob" => "/spec/jobTemplate/spec/template",
            _ => "/spec/template",
        };
        let template = object.pointer(path).cloned().unwrap_or_default();
        let owners = object.pointer("/metadata/ownerReferences").cloned();
        let owners = owners.and_then(|owners| serde_json::from_value(owners).ok());
        let template = match serde_json::from_value(template) {
            Ok(template) => template,
            Err(error) => {
                let text = format!("{}: {}: {error}", title(object), path.replace('/', "."));
                return self.error(place, text);
            }
        };
        let (namespace, name) = names(object);
        if name.is_empty() {
            return self.error(place, format!("{kind} without a name"));
        }
        if self.is_first(place, object) {
            let owners = owners.unwrap_or_default();
            let kind = kind.to_owned();
            self.controllers.push(Controller { kind, namespace, name, owners, template });
        }
    }

    /// Whether an object has not been read before; one that has is not read again.
    fn is_first(&mut self, place: Place, object: &Value) -> bool {
        match self.places.entry(key(object)) {
            Entry::Vacant(entry) => {
                entry.insert(place);
                true
            }
            Entry::Occupied(entry) => {
                let text = format!("{} is also at {}", title(object), entry.get());
                self.complaints.push(Complaint { place, text, is_error: true });
                false
            }
        }
    }
}

/// How closely an object is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// Fields that we do not know are none of our business.
    Lenient,
    /// A field that we do not know may be what a rule hangs on.
    Strict,
}

/// Whether an object may say who may connect to whom in a way that is not known here.
fn is_unsupported(group: &str, kind: &str) -> bool {
    let is_workload = WORKLOAD_KINDS.iter().any(|(_, _, known)| *known == kind);
    match group {
        "crd.antrea.io" | "policy.networking.k8s.io" => !OTHER_KINDS.contains(&kind),
        "security.antrea.tanzu.vmware.com" | "core.antrea.tanzu.vmware.com" => true,
        "networking.k8s.io" | "extensions" => kind == "NetworkPolicy" || is_workload,
        "apps" | "batch" => is_workload,
        "projectcalico.org" | "crd.projectcalico.org" | "cilium.io" => {
            kind.ends_with("NetworkPolicy")
        }
        _ => false,
    }
}

fn key(object: &Value) -> ObjectKey {
    let word = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let group = word("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let (namespace, name) = names(object);
    let cluster_wide = ["Namespace", "Node", "ClusterNetworkPolicy", "ClusterGroup", "Tier"];
    let namespace = if cluster_wide.contains(&word("kind")) { String::new() } else { namespace };
    (format!("{group}/{}", word("kind")), namespace, name)
}

fn names(object: &Value) -> (String, String) {
    let word = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let namespace = match word("/metadata/namespace") {
        "" => "default",
        namespace => namespace,
    };
    (namespace.to_owned(), word("/metadata/name").to_owned())
}

fn title(object: &Value) -> String {
    let (kind, namespace, name) = key(object);
    let kind = kind.rsplit('/').next().unwrap_or_default().to_owned();
    match namespace.as_str() {
        "" => format!("{kind} {name}"),
        namespace => format!("{kind} {namespace}/{name}"),
    }
}

/// The first field of an object that is not in what was made of it. Empty lists and texts may get
/// lost, and what is false.
fn lost_field(input: Option<&Value>, output: Option<&Value>, path: &str) -> Option<String> {
    match (input?, output) {
        (Value::Object(fields), Some(output)) => fields.iter().find_map(|(name, field)| {
            lost_field(Some(field), output.get(name), &format!("{path}.{name}"))
        }),
        (Value::Array(items), output) => items.iter().enumerate().find_map(|(index, item)| {
            let path = format!("{path}[{index}]");
            lost_field(Some(item), output.and_then(|output| output.get(index)), &path)
        }),
        (Value::Null | Value::Bool(false), None) => None,
        (Value::String(text), None) if text.is_empty() => None,
        (_, None) => Some(path.to_owned()),
        (_, Some(_)) => None,
    }
}
