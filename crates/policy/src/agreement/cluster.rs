//! A cluster in a form that both ways can be fed from.

use std::net::IpAddr;

use apis::policy::GroupSpec;
use serde_json::{Value, json};

use crate::index::{NamedPort, NamespaceInput, NodeInput, PodInput, PortProtocol};
use crate::translate::Event;
use crate::verdict::Objects;

#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) account: String,
    pub(super) node: String,
    pub(super) host_network: bool,
    pub(super) finished: bool,
    pub(super) ips: Vec<IpAddr>,
    /// Name, protocol, number.
    pub(super) ports: Vec<(String, &'static str, u16)>,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) labels: Vec<(String, String)>,
    pub(super) ips: Vec<IpAddr>,
}

#[derive(Clone, Debug)]
pub(super) enum Policy {
    K8s(Value),
    Cluster(Value),
    Namespaced(Value),
    Upstream(Value),
}

#[derive(Clone, Debug, Default)]
pub(super) struct World {
    pub(super) namespaces: Vec<(String, Vec<(String, String)>)>,
    pub(super) nodes: Vec<Node>,
    pub(super) pods: Vec<Pod>,
    /// Name, priority.
    pub(super) tiers: Vec<(String, i32)>,
    /// Namespace (empty for a ClusterGroup), name, spec.
    pub(super) groups: Vec<(String, String, Value)>,
    pub(super) policies: Vec<Policy>,
    pub(super) names: Vec<(String, IpAddr)>,
    /// Addresses of nobody.
    pub(super) outside: Vec<IpAddr>,
}

fn map(labels: &[(String, String)]) -> Value {
    Value::Object(labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect())
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"))
}

impl World {
    pub(super) fn objects(&self) -> Objects {
        let mut objects = Objects::default();
        for (name, labels) in &self.namespaces {
            objects
                .namespaces
                .push(read(json!({"metadata": {"name": name, "labels": map(labels)}})));
        }
        for node in &self.nodes {
            let addresses: Vec<Value> =
                node.ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
            objects.nodes.push(read(json!({
                "metadata": {"name": node.name, "labels": map(&node.labels)},
                "status": {"addresses": addresses},
            })));
        }
        for pod in &self.pods {
            let ips: Vec<Value> = pod.ips.iter().map(|ip| json!({"ip": ip})).collect();
            let ports: Vec<Value> = pod
                .ports
                .iter()
                .map(|(name, protocol, number)| {
                    json!({"name": name, "protocol": protocol, "containerPort": number})
                })
                .collect();
            objects.pods.push(read(json!({
                "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": map(&pod.labels)},
                "spec": {
                    "nodeName": pod.node, "hostNetwork": pod.host_network,
                    "serviceAccountName": pod.account,
                    "containers": [{"name": "c", "ports": ports}],
                },
                "status": {
                    "phase": if pod.finished { "Succeeded" } else { "Running" }, "podIPs": ips,
                },
            })));
        }
        for (name, priority) in &self.tiers {
            objects.tiers.push(read(json!({
                "apiVersion": "crd.antrea.io/v1beta1", "kind": "Tier",
                "metadata": {"name": name}, "spec": {"priority": priority},
            })));
        }
        for (namespace, name, spec) in &self.groups {
            let mut object = json!({
                "apiVersion": "crd.antrea.io/v1beta1", "metadata": {"name": name}, "spec": spec,
            });
            if namespace.is_empty() {
                object["kind"] = json!("ClusterGroup");
                objects.cluster_groups.push(read(object));
            } else {
                object["kind"] = json!("Group");
                object["metadata"]["namespace"] = json!(namespace);
                objects.groups.push(read(object));
            }
        }
        for policy in &self.policies {
            match policy.clone() {
                Policy::K8s(value) => objects.network_policies.push(read(value)),
                Policy::Cluster(value) => objects.antrea_cluster_policies.push(read(value)),
                Policy::Namespaced(value) => objects.antrea_policies.push(read(value)),
                Policy::Upstream(value) => objects.cluster_policies.push(read(value)),
            }
        }
        objects.names.clone_from(&self.names);
        objects
    }

    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (name, labels) in &self.namespaces {
            events.push(Event::Namespace(NamespaceInput {
                name: name.clone(),
                labels: labels.clone(),
                ..NamespaceInput::default()
            }));
        }
        for node in &self.nodes {
            events.push(Event::Node(NodeInput {
                name: node.name.clone(),
                labels: node.labels.clone(),
                ips: node.ips.clone(),
            }));
        }
        for pod in &self.pods {
            let port = |(name, protocol, number): &(String, &'static str, u16)| NamedPort {
                name: name.as_str().into(),
                protocol: match *protocol {
                    "UDP" => PortProtocol::Udp,
                    "SCTP" => PortProtocol::Sctp,
                    _ => PortProtocol::Tcp,
                },
                port: *number,
            };
            events.push(Event::Pod(PodInput {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                labels: pod.labels.clone(),
                service_account: pod.account.clone(),
                node: pod.node.clone(),
                host_network: pod.host_network,
                finished: pod.finished,
                ips: pod.ips.clone(),
                ports: pod.ports.iter().map(port).collect(),
            }));
        }
        for (name, priority) in &self.tiers {
            events.push(Event::Tier { name: name.clone(), priority: Some(*priority) });
        }
        for (namespace, name, spec) in &self.groups {
            let spec: GroupSpec = read(spec.clone());
            events.push(Event::Group {
                namespace: namespace.clone(),
                name: name.clone(),
                spec: Some(Box::new(spec)),
            });
        }
        for policy in &self.policies {
            events.push(match policy.clone() {
                Policy::K8s(value) => Event::K8sPolicy(Box::new(read(value))),
                Policy::Cluster(value) => Event::ClusterPolicy(Box::new(read(value))),
                Policy::Namespaced(value) => Event::NamespacedPolicy(Box::new(read(value))),
                Policy::Upstream(value) => Event::UpstreamPolicy(Box::new(read(value))),
            });
        }
        events
    }

    /// The objects, to be read by a person.
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for (name, labels) in &self.namespaces {
            text.push_str(&format!("namespace {name} {labels:?}\n"));
        }
        for node in &self.nodes {
            text.push_str(&format!("{node:?}\n"));
        }
        for pod in &self.pods {
            text.push_str(&format!("{pod:?}\n"));
        }
        for (namespace, name, spec) in &self.groups {
            text.push_str(&format!("group {namespace}/{name} {spec}\n"));
        }
        text.push_str(&format!("tiers {:?} names {:?}\n", self.tiers, self.names));
        for policy in &self.policies {
            let (Policy::K8s(value)
            | Policy::Cluster(value)
            | Policy::Namespaced(value)
            | Policy::Upstream(value)) = policy;
            text.push_str(&format!("{} {}\n", value["metadata"], value["spec"]));
        }
        text
    }
}
