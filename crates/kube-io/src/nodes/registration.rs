//! Being a Node: what a kubelet tells the API server about its machine.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::Node;
use super::{NodeCondition, NodeView, set_conditions};
use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

/// What a Node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeRegistration {
    /// Name.
    pub name: String,
    /// Labels to set; others stay.
    pub labels: BTreeMap<String, String>,
    /// Annotations to set; others stay.
    pub annotations: BTreeMap<String, String>,
    /// Addresses of type InternalIP.
    pub internal_addresses: Vec<IpAddr>,
    /// Capacity by resource, such as `pods` -> `110`.
    pub capacity: BTreeMap<String, String>,
    /// Port of the kubelet's API, where there is one.
    pub kubelet_port: Option<u16>,
    /// Members of `status.nodeInfo`, such as `kubeletVersion`.
    pub node_info: BTreeMap<String, String>,
}

impl NodeRegistration {
    fn object(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": self.labels,
                "annotations": self.annotations,
            },
        })
    }

    fn status(&self) -> Value {
        let mut addresses: Vec<Value> = self
            .internal_addresses
            .iter()
            .map(|address| json!({"type": "InternalIP", "address": address}))
            .collect();
        addresses.push(json!({"type": "Hostname", "address": self.name}));
        let mut status = json!({
            "addresses": addresses,
            "capacity": self.capacity,
            "allocatable": self.capacity,
        });
        if !self.node_info.is_empty() {
            // All members of nodeInfo are required by the API.
            let members = [
                "machineID",
                "systemUUID",
                "bootID",
                "kernelVersion",
                "osImage",
                "containerRuntimeVersion",
                "kubeletVersion",
                "kubeProxyVersion",
                "operatingSystem",
                "architecture",
            ];
            let known = |key: &&str| self.node_info.get(*key).cloned().unwrap_or_default();
            let info: BTreeMap<&str, String> =
                members.iter().map(|key| (*key, known(key))).collect();
            status["nodeInfo"] = json!(info);
        }
        if let Some(port) = self.kubelet_port {
            status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": port}});
        }
        json!({"status": status})
    }
}

/// Makes the Node, or brings an existing one up to date, with its status but without conditions.
///
/// # Errors
/// When the server refuses.
pub async fn register(
    client: &Client,
    registration: &NodeRegistration,
) -> Result<NodeView, ApiError> {
    let object = registration.object();
    let name = registration.name.as_str();
    match Call::on::<Node>(Verb::Create).object(&object).run(client).await {
        Err(error) if error.is_already_exists() => {
            let patch = json!({"metadata": object["metadata"]});
            Call::on::<Node>(Verb::Patch).name(name).merge(&patch).run(client).await?;
        }
        result => result?,
    }
    let node: Node = Call::on::<Node>(Verb::Patch)
        .name(name)
        .subresource("status")
        .merge(&registration.status())
        .send(client)
        .await?;
    Ok(node.into_view())
}

/// Reports the Node's conditions as of `now`; conditions not named stay.
///
/// # Errors
/// When the server refuses.
pub async fn heartbeat(
    client: &Client,
    name: &str,
    conditions: &[NodeCondition],
    now: Timestamp,
) -> Result<(), ApiError> {
    set_conditions(client, name, conditions, now).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_holds_addresses_and_capacity() {
        let registration = NodeRegistration {
            name: "n1".into(),
            internal_addresses: vec!["172.30.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            capacity: BTreeMap::from([("pods".into(), "110".into())]),
            node_info: BTreeMap::from([("kubeletVersion".into(), "v1.36.0".into())]),
            kubelet_port: Some(10250),
            ..NodeRegistration::default()
        };
        let status = &registration.status()["status"];
        assert_eq!(status["addresses"][1], json!({"type": "InternalIP", "address": "fd00::1"}));
        assert_eq!(status["addresses"][2]["type"], "Hostname");
        assert_eq!(status["allocatable"]["pods"], "110");
        assert_eq!(status["nodeInfo"]["kubeletVersion"], "v1.36.0");
        assert_eq!(status["nodeInfo"]["machineID"], "");
        assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
    }
}
