//! What agents tell the controller: how far policies are realized, and what traffic they saw.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::group::ObjectName;
use super::policy::NetworkPolicyReference;

/// How far a policy is realized on some Nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyStatus {
    /// Name of the [`super::NetworkPolicy`].
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// One entry for each Node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NetworkPolicyNodeStatus>,
}

/// How far a policy is realized on one Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicyNodeStatus {
    /// Name of the Node.
    pub node_name: String,
    /// Generation of the policy that is realized.
    pub generation: i64,
    /// Whether it could not be realized as written.
    pub realization_failure: bool,
    /// Why not.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Traffic that the rules of one Node met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatsSummary {
    /// Name of the Node.
    pub metadata: ObjectMeta,
    /// By Kubernetes NetworkPolicy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network_policies: Vec<NetworkPolicyStats>,
    /// By Antrea ClusterNetworkPolicy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub antrea_cluster_network_policies: Vec<NetworkPolicyStats>,
    /// By Antrea NetworkPolicy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub antrea_network_policies: Vec<NetworkPolicyStats>,
    /// Multicast groups that Pods have joined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub multicast: Vec<MulticastGroupInfo>,
}

/// Traffic that one policy met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyStats {
    /// The policy.
    pub network_policy: NetworkPolicyReference,
    /// All of it.
    #[serde(default)]
    pub traffic_stats: TrafficStats,
    /// By rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rule_traffic_stats: Vec<RuleTrafficStats>,
}

/// Counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TrafficStats {
    /// Packets.
    pub packets: i64,
    /// Bytes.
    pub bytes: i64,
    /// Connections.
    pub sessions: i64,
}

/// Traffic that one rule met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RuleTrafficStats {
    /// Name of the rule.
    pub name: String,
    /// All of it.
    pub traffic_stats: TrafficStats,
}

/// A multicast group with the Pods of a Node that have joined it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MulticastGroupInfo {
    /// Address of the group.
    pub group: String,
    /// The Pods.
    pub pods: Vec<ObjectName>,
}
