//! What the controller says about a policy or a group.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// How far a policy is realized.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyStatus {
    /// All in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::text")]
    pub phase: Option<NetworkPolicyPhase>,
    /// Generation of the policy that this is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// Nodes that have it.
    #[serde(default)]
    pub current_nodes_realized: i32,
    /// Nodes that need it.
    #[serde(default)]
    pub desired_nodes_realized: i32,
    /// Statements about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

words! {
    /// How far a policy is realized, in one word.
    NetworkPolicyPhase {
        /// Not looked at yet, or not possible.
        Pending = "Pending",
        /// Not all Nodes have it.
        Realizing = "Realizing",
        /// All Nodes have it.
        Realized = "Realized",
        /// All Nodes have answered, and some could not.
        Failed = "Failed",
    }
}

/// A statement about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What is stated.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// Whether it holds: `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: String,
    /// When that last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// The cause in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cause for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
