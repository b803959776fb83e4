//! Groups of Pods and addresses, and how they change.

use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use crate::common::Protocol;

/// Peers of rules. Its name is a function of the selector it stands for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressGroup {
    /// Name, version and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who belongs to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_members: Vec<GroupMember>,
}

/// Change of an [`AddressGroup`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressGroupPatch {
    /// Name and version of the group.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who is new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_group_members: Vec<GroupMember>,
    /// Who is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_group_members: Vec<GroupMember>,
}

/// Targets of policies and rules.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedToGroup {
    /// Name, version and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who belongs to it; a watching Node sees its own only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_members: Vec<GroupMember>,
}

/// Change of an [`AppliedToGroup`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedToGroupPatch {
    /// Name and version of the group.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Who is new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_group_members: Vec<GroupMember>,
    /// Who is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed_group_members: Vec<GroupMember>,
}

/// One member of a group: a Pod, a Node, a Service or something outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupMember {
    /// The Pod, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectName>,
    /// The ExternalEntity, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_entity: Option<ObjectName>,
    /// Its addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "super::bytes::addrs")]
    pub ips: Vec<IpAddr>,
    /// Its ports that have names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<NamedPort>,
    /// The Node, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeReference>,
    /// The Service, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ObjectName>,
}

/// Name of something in a Namespace: a Pod, a Service, an ExternalEntity.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectName {
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

/// Name of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeReference {
    /// Name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A container's port that has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NamedPort {
    /// Number.
    #[serde(default)]
    pub port: i32,
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Protocol.
    #[serde(default = "super::policy::tcp")]
    pub protocol: Protocol,
}
