//! AntreaControllerInfo: what the controller reports about itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube_core::TypeMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::{
    ConditionStatus, NetworkPolicyControllerInfo, ObjectReference, Timestamp, whole_seconds,
};
use crate::crd::{Column, custom_kind};

/// Name of the only object of this kind.
pub const NAME: &str = "antrea-controller";

/// Report of the controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AntreaControllerInfo {
    /// Kind and version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub types: TypeMeta,
    /// Name, labels and the like.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Version of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The controller's Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_ref: Option<ObjectReference>,
    /// Node of that Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_ref: Option<ObjectReference>,
    /// Service through which the controller is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_ref: Option<ObjectReference>,
    /// How much network policy the controller computes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy_controller_info: Option<NetworkPolicyControllerInfo>,
    /// Agents that watch this controller.
    #[serde(default)]
    pub connected_agent_num: i32,
    /// Health of the controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controller_conditions: Vec<ControllerCondition>,
    /// Port of the controller's API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub api_port: Option<u16>,
}

/// One statement about the controller's health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerCondition {
    /// What is stated.
    #[serde(rename = "type")]
    pub type_: ControllerConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When the controller last said so.
    pub last_heartbeat_time: Time,
    /// The cause in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cause for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ControllerCondition {
    /// States something as of `at`.
    pub fn new(type_: ControllerConditionType, status: ConditionStatus, at: Timestamp) -> Self {
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

/// What a [`ControllerCondition`] is about.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ControllerConditionType {
    /// The controller runs and reports.
    ControllerHealthy,
}

custom_kind! {
    AntreaControllerInfo {
        group: "crd.antrea.io",
        version: "v1beta1",
        scope: Cluster,
        plural: "antreacontrollerinfos",
        singular: "antreacontrollerinfo",
        short_names: &["aci"],
        subresources: &[],
        refine: crate::crd::as_derived,
        columns: &[
            Column::new(
                "Healthy",
                ".controllerConditions[?(@.type=='ControllerHealthy')].status",
                "Health status of the controller",
            ),
            Column::date(
                "Last Heartbeat",
                ".controllerConditions[?(@.type=='ControllerHealthy')].lastHeartbeatTime",
                "When the controller last reported",
            ),
            Column::new("Version", ".version", "Version of the controller").priority(1),
            Column::integer(
                "Connected Agents",
                ".connectedAgentNum",
                "Agents that are connected to the controller",
            )
            .priority(1),
            Column::new("Node", ".nodeRef.name", "Node of the controller").priority(1),
            Column::integer(
                "Num Network Policies",
                ".networkPolicyControllerInfo.networkPolicyNum",
                "Policies that the controller computes",
            )
            .priority(2),
        ],
    }
}
