//! Named groups of Pods or addresses that policies refer to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube_core::TypeMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::custom_kind;
use crate::policy::{Condition, IpBlock};
use crate::schema::{self, Refine};

/// A group for cluster-wide policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterGroup {
    /// Kind and version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub types: TypeMeta,
    /// Name, labels and the like.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Who belongs to the group.
    #[serde(default)]
    pub spec: GroupSpec,
    /// Whether the members are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<GroupStatus>,
}

/// A group for the policies of its Namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Kind and version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub types: TypeMeta,
    /// Name, Namespace, labels and the like.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// Who belongs to the group.
    #[serde(default)]
    pub spec: GroupSpec,
    /// Whether the members are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<GroupStatus>,
}

/// Who belongs to a group: one of the fields, but for a Namespace selector beside another selector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSpec {
    /// Members of these groups; one level only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub child_groups: Vec<String>,
    /// Pods by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces by label; alone, all their Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Nodes by label; ClusterGroup only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// ExternalEntities by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub external_entity_selector: Option<LabelSelector>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ip_blocks: Vec<IpBlock>,
    /// Pods behind a Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_reference: Option<ServiceReference>,
}

/// A Service whose endpoints are the members of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    /// Name.
    #[serde(default)]
    pub name: String,
    /// Namespace.
    #[serde(default)]
    pub namespace: String,
}

/// Whether the members of a group are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupStatus {
    /// Statements about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

fn refine_namespaced(schema: &mut Refine<'_>) {
    schema.without(&["spec.nodeSelector"]);
}

custom_kind! {
    ClusterGroup {
        group: "crd.antrea.io",
        version: "v1beta1",
        scope: Cluster,
        plural: "clustergroups",
        singular: "clustergroup",
        short_names: &["cg"],
        subresources: &["status"],
        refine: crate::crd::as_derived,
        columns: &[],
    }
}

custom_kind! {
    Group {
        group: "crd.antrea.io",
        version: "v1beta1",
        scope: Namespace,
        plural: "groups",
        singular: "group",
        short_names: &["grp"],
        subresources: &["status"],
        refine: refine_namespaced,
        columns: &[],
    }
}
