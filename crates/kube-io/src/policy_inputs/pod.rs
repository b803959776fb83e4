//! The part of a Pod that policy needs.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;

use super::{Input, InputKey, slim};

/// What is used of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodFacts {
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Name of its ServiceAccount.
    pub service_account: String,
    /// Name of its Node; empty while it has none.
    pub node: String,
    /// Whether it uses its Node's network.
    pub host_network: bool,
    /// Whether it is Succeeded or Failed.
    pub finished: bool,
    /// Its addresses; what is no address is left out.
    pub ips: Vec<IpAddr>,
    /// Ports of its containers that have a name.
    pub ports: Vec<PortFacts>,
}

/// A port of a container that has a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortFacts {
    /// Name.
    pub name: String,
    /// Number.
    pub port: u16,
    /// Protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
}

#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Pod)]
pub(super) struct Pod {
    #[serde(default, deserialize_with = "slim")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    service_account_name: String,
    host_network: bool,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    ports: Vec<Port>,
    restart_policy: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Port {
    name: String,
    container_port: i32,
    protocol: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<PodIp>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: String,
}

impl Pod {
    pub(super) fn into_input(self) -> Input<PodFacts> {
        // An init container that is restarted for ever is a sidecar, whose ports count.
        let sidecars = self.spec.init_containers.iter();
        let sidecars = sidecars.filter(|container| container.restart_policy == "Always");
        let ports = self.spec.containers.iter().chain(sidecars).flat_map(|own| &own.ports);
        let ports = ports.filter(|port| !port.name.is_empty()).filter_map(|port| {
            Some(PortFacts {
                name: port.name.clone(),
                port: u16::try_from(port.container_port).ok().filter(|port| *port > 0)?,
                protocol: match port.protocol.as_str() {
                    "" => "TCP".to_owned(),
                    protocol => protocol.to_owned(),
                },
            })
        });
        let ports = ports.collect();
        let ips = self.status.pod_ips.iter().map(|ip| ip.ip.as_str());
        let mut ips: Vec<IpAddr> = ips.filter_map(|ip| ip.parse().ok()).collect();
        if ips.is_empty() {
            ips.extend(self.status.pod_ip.parse::<IpAddr>());
        }
        Input {
            key: InputKey::of(&self.metadata),
            object: PodFacts {
                labels: self.metadata.labels.into_iter().flatten().collect(),
                service_account: self.spec.service_account_name,
                node: self.spec.node_name,
                host_network: self.spec.host_network,
                finished: matches!(self.status.phase.as_str(), "Succeeded" | "Failed"),
                ips,
                ports,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "x", "name": "p", "resourceVersion": "5"},
            "spec": {
                "nodeName": "n1",
                "containers": [{"ports": [
                    {"name": "web", "containerPort": 80}, {"containerPort": 81},
                    {"name": "bad", "containerPort": 0}]}],
                "initContainers": [
                    {"restartPolicy": "Always", "ports": [
                        {"name": "side", "containerPort": 9, "protocol": "UDP"}]},
                    {"ports": [{"name": "init", "containerPort": 8}]}],
            },
            "status": {"phase": "Running", "podIP": "10.0.0.9",
                "podIPs": [{"ip": ""}, {"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
        }))
        .unwrap();
        let pod = pod.into_input();
        let names: Vec<&str> = pod.object.ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(names, ["web", "side"]);
        assert_eq!(pod.object.ips.len(), 2);
        assert_eq!((pod.key.version, pod.object.finished), (5, false));
    }
}
