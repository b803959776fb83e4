//! What we use of a Pod.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::Deserialize;

use crate::watch::Keyed;

/// What identifies a Pod: a Pod made anew under the same name has another UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
}

/// What we use of a Pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Version, for conditional writes.
    pub resource_version: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// When the Pod was made.
    pub created: Option<Timestamp>,
    /// The Pod is to stop within this many seconds.
    pub deletion_grace_seconds: Option<i64>,
    /// The Pod is being deleted.
    pub deleting: bool,
    /// What is to run.
    pub spec: PodSpec,
    /// Phase: Pending, Running, Succeeded, Failed or Unknown.
    pub phase: String,
    /// Addresses.
    pub pod_ips: Vec<IpAddr>,
    /// Condition Ready holds.
    pub ready: bool,
}

impl PodView {
    /// The Pod's identity.
    pub fn pod_key(&self) -> PodKey {
        PodKey { namespace: self.namespace.clone(), name: self.name.clone(), uid: self.uid.clone() }
    }

    /// The Pod has ended and will not run again.
    pub fn is_terminated(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

impl Keyed for PodView {
    type Key = PodKey;

    fn key(&self) -> PodKey {
        self.pod_key()
    }
}

/// What is to run in a Pod, and where.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Node, once placed.
    pub node_name: Option<String>,
    /// Labels that the Node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that the Pod bears.
    pub tolerations: Vec<Toleration>,
    /// Name of the scheduler that is to place it.
    pub scheduler_name: Option<String>,
    /// Uses the Node's network.
    pub host_network: bool,
    /// Host name inside, where it differs from the Pod's name.
    pub hostname: Option<String>,
    /// ServiceAccount it runs as.
    pub service_account_name: Option<String>,
    /// Always, OnFailure or Never.
    pub restart_policy: Option<String>,
    /// Seconds between asking and forcing it to stop.
    pub termination_grace_period_seconds: Option<i64>,
    /// Run one after the other before the containers.
    pub init_containers: Vec<Container>,
    /// Run side by side.
    pub containers: Vec<Container>,
}

/// One container of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// Image.
    pub image: String,
    /// Program and first arguments; the image's own when empty.
    pub command: Vec<String>,
    /// Further arguments.
    pub args: Vec<String>,
    /// Folder it starts in.
    pub working_dir: Option<String>,
    /// Environment.
    pub env: Vec<EnvVar>,
    /// Ports it serves.
    pub ports: Vec<ContainerPort>,
    /// Tells whether it can be sent work.
    pub readiness_probe: Option<Probe>,
    /// Tells whether it must be started anew.
    pub liveness_probe: Option<Probe>,
}

/// A variable of a container's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EnvVar {
    /// Name.
    pub name: String,
    /// Value, where given as text.
    pub value: String,
    /// Where the value comes from otherwise, as the API has it.
    pub value_from: Option<serde_json::Value>,
}

/// A port of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerPort {
    /// Name.
    pub name: Option<String>,
    /// Port inside the Pod.
    pub container_port: u16,
    /// Port of the Node that leads to it.
    pub host_port: Option<u16>,
    /// Address of the Node for `host_port`.
    #[serde(rename = "hostIP")]
    pub host_ip: Option<String>,
    /// TCP where not given.
    pub protocol: Option<String>,
}

/// A question that is asked of a container again and again.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Probe {
    /// A program to run inside, as the API has it.
    pub exec: Option<serde_json::Value>,
    /// An HTTP request to make, as the API has it.
    pub http_get: Option<serde_json::Value>,
    /// A TCP connection to make, as the API has it.
    pub tcp_socket: Option<serde_json::Value>,
    /// Seconds before the first time.
    pub initial_delay_seconds: Option<i64>,
    /// Seconds between two times.
    pub period_seconds: Option<i64>,
    /// Seconds for an answer.
    pub timeout_seconds: Option<i64>,
    /// Successes in a row that count as one.
    pub success_threshold: Option<i64>,
    /// Failures in a row that count as one.
    pub failure_threshold: Option<i64>,
}

/// A taint that a Pod bears.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Toleration {
    /// Key; empty for every key.
    pub key: String,
    /// Equal or Exists.
    pub operator: String,
    /// Value to equal.
    pub value: String,
    /// Effect; empty for every effect.
    pub effect: String,
}
