//! Questions that the controller answers about groups and policies.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::group::{GroupMember, ObjectName};
use super::policy::{Direction, NetworkPolicyReference};
use crate::policy::RuleAction;

/// Rule index that stands for the isolation which a Kubernetes NetworkPolicy brings about.
pub const DEFAULT_ISOLATION: i32 = i32::MAX;

/// Members of a ClusterGroup, page by page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterGroupMembers {
    /// Name of the group.
    pub metadata: ObjectMeta,
    /// Members on this page.
    pub effective_members: Vec<GroupMember>,
    /// Networks of the group.
    #[serde(rename = "effectiveIPBlocks", with = "super::bytes::nets")]
    pub effective_ip_blocks: Vec<ipnet::IpNet>,
    /// Members in all.
    pub total_members: i64,
    /// Pages in all.
    pub total_pages: i64,
    /// This page, from 1.
    pub current_page: i64,
}

/// Members of a Group, page by page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupMembers {
    /// Name and Namespace of the group.
    pub metadata: ObjectMeta,
    /// Members on this page.
    pub effective_members: Vec<GroupMember>,
    /// Networks of the group.
    #[serde(rename = "effectiveIPBlocks", with = "super::bytes::nets")]
    pub effective_ip_blocks: Vec<ipnet::IpNet>,
    /// Members in all.
    pub total_members: i64,
    /// Pages in all.
    pub total_pages: i64,
    /// This page, from 1.
    pub current_page: i64,
}

/// Groups that a Pod or ExternalEntity belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupAssociation {
    /// Name and Namespace of the member.
    pub metadata: ObjectMeta,
    /// The groups.
    pub associated_groups: Vec<GroupReference>,
}

/// Groups that an address belongs to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IpGroupAssociation {
    /// The address, as name.
    pub metadata: ObjectMeta,
    /// The groups.
    pub associated_groups: Vec<GroupReference>,
}

/// A reference to a ClusterGroup or Group.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupReference {
    /// Its Namespace; empty for a ClusterGroup.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// Which rule decides about traffic between two Pods: question and answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicyEvaluation {
    /// Nothing of interest.
    pub metadata: ObjectMeta,
    /// The question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<NetworkPolicyEvaluationRequest>,
    /// The answer; without it, no rule decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<NetworkPolicyEvaluationResponse>,
}

/// The two Pods that a [`NetworkPolicyEvaluation`] is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicyEvaluationRequest {
    /// Where the connection comes from.
    pub source: Entity,
    /// Where it goes.
    pub destination: Entity,
}

/// One end of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entity {
    /// The Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectName>,
}

/// The rule that decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyEvaluationResponse {
    /// Policy of the rule.
    pub network_policy: NetworkPolicyReference,
    /// Place among the rules of its direction, or [`DEFAULT_ISOLATION`].
    #[serde(default)]
    pub rule_index: i32,
    /// The rule in short.
    pub rule: RuleRef,
}

/// A rule in short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleRef {
    /// Its direction.
    pub direction: Direction,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What happens to traffic that matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<RuleAction>,
}
