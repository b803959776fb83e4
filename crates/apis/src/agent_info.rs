//! AntreaAgentInfo: what the agent of one Node reports about itself.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_core::TypeMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    ConditionStatus, NetworkPolicyControllerInfo, ObjectReference, Timestamp, whole_seconds,
};
use crate::crd::{Column, custom_kind};
use crate::schema;

/// Report of an agent; the object's name is that of its Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AntreaAgentInfo {
    /// Kind and version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub types: TypeMeta,
    /// Name, labels and the like.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Version of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The agent's Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_ref: Option<ObjectReference>,
    /// The agent's Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<ObjectReference>,
    /// Pod CIDRs of the Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_subnets: Vec<String>,
    /// Open vSwitch on the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ovs_info: Option<OvsInfo>,
    /// What of network policy is applied on the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy_controller_info: Option<NetworkPolicyControllerInfo>,
    /// Container interfaces that the agent knows on the Node.
    #[serde(default)]
    pub local_pod_num: i32,
    /// Health of the agent and its connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agent_conditions: Vec<AgentCondition>,
    /// Port of the agent's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub api_port: Option<u16>,
    /// PEM certificate to trust when talking to the agent's API.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "apiCABundle")]
    #[schemars(schema_with = "schema::bytes")]
    pub api_ca_bundle: Option<ByteString>,
    /// Range of ports used by NodePortLocal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_port_local_port_range: Option<String>,
    /// How the Node is attached to the network between Nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_info: Option<NetworkInfo>,
}

/// Open vSwitch on a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OvsInfo {
    /// Version that ovs-vswitchd reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The integration bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bridge_name: Option<String>,
    /// Number of flows by table name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub flow_table: BTreeMap<String, i32>,
}

/// How a Node is attached to the network between Nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkInfo {
    /// Interface of the traffic between Nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport_interface: Option<String>,
    /// MTU of that interface.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "transportInterfaceMTU")]
    #[schemars(range(min = 0))]
    pub transport_interface_mtu: Option<i32>,
    /// MTU given to Pods.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "podMTU")]
    #[schemars(range(min = 0))]
    pub pod_mtu: Option<i32>,
    /// Addresses of that interface, at most one per family.
    #[serde(default, skip_serializing_if = "Vec::is_empty", rename = "transportInterfaceIPs")]
    #[schemars(length(max = 2))]
    pub transport_interface_ips: Vec<String>,
}

/// One statement about an agent's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentCondition {
    /// What is stated.
    #[serde(rename = "type")]
    pub type_: AgentConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When the agent last said so.
    pub last_heartbeat_time: Time,
    /// The cause in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cause for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl AgentCondition {
    /// States something as of `at`.
    pub fn new(type_: AgentConditionType, status: ConditionStatus, at: Timestamp) -> Self {
        let last_heartbeat_time = whole_seconds(at);
        Self { type_, status, last_heartbeat_time, reason: None, message: None }
    }

    /// Adds why, in one word and for people.
    #[must_use]
    pub fn because(mut self, reason: &str, message: &str) -> Self {
        self.reason = Some(reason.into());
        self.message = Some(message.into());
        self
    }
}

/// What an [`AgentCondition`] is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum AgentConditionType {
    /// The agent runs and reports.
    AgentHealthy,
    /// The agent is connected to a controller.
    ControllerConnectionUp,
    /// The agent is connected to ovsdb-server.
    #[serde(rename = "OVSDBConnectionUp")]
    OvsdbConnectionUp,
    /// The agent programs the bridge.
    OpenflowConnectionUp,
}

custom_kind! {
    AntreaAgentInfo {
        group: "crd.antrea.io",
        version: "v1beta1",
        scope: Cluster,
        plural: "antreaagentinfos",
        singular: "antreaagentinfo",
        short_names: &["aai"],
        subresources: &[],
        refine: crate::crd::as_derived,
        columns: &[
            Column::new(
                "Healthy",
                ".agentConditions[?(@.type=='AgentHealthy')].status",
                "Health status of the agent",
            ),
            Column::date(
                "Last Heartbeat",
                ".agentConditions[?(@.type=='AgentHealthy')].lastHeartbeatTime",
                "When the agent last reported",
            ),
            Column::new("Version", ".version", "Version of the agent").priority(1),
            Column::new("Node", ".nodeRef.name", "Node of the agent").priority(1),
            Column::integer("Num Pods", ".localPodNum", "Pods on the Node").priority(2),
            Column::new("Subnets", ".nodeSubnets", "Pod CIDRs of the Node").priority(2),
        ],
    }
}
