//! Antrea's own policies of `crd.antrea.io/v1beta1`: cluster-wide and namespaced policies, tiers.
//!
//! Both policy kinds share one Rust type for rules, peers and targets; what a kind lacks is left
//! out of its schema ([`CLUSTER_ONLY`], [`NAMESPACED_ONLY`] and the like), so that the API server
//! never stores it. Values that a schema constrains stay plain here (`cidr` is a string, a port an
//! `i32`): whoever uses an object must take a value out of range for one that matches nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::TypeMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{Column, custom_kind};
use crate::schema::Refine;

pub mod group;
pub mod rule;
pub mod status;

pub use group::{ClusterGroup, Group, GroupSpec, GroupStatus};
pub use rule::{
    AppliedTo, HttpProtocol, IcmpProtocol, IgmpProtocol, IpBlock, L7Protocol, NamespaceMatch,
    NamespacedName, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicyProtocol, PeerNamespaces,
    PeerService, Rule, RuleAction, Scope, TlsProtocol,
};
pub use status::{Condition, NetworkPolicyPhase, NetworkPolicyStatus};

/// A policy for Pods of any Namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetworkPolicy {
    /// Kind and version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub types: TypeMeta,
    /// Name, labels and the like.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// What the user wants.
    #[serde(default)]
    pub spec: NetworkPolicySpec,
    /// How far it is realized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<NetworkPolicyStatus>,
}

/// A policy for Pods of its own Namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Kind and version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub types: TypeMeta,
    /// Name, Namespace, labels and the like.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// What the user wants.
    #[serde(default)]
    pub spec: NetworkPolicySpec,
    /// How far it is realized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<NetworkPolicyStatus>,
}

/// What a [`ClusterNetworkPolicy`] or [`NetworkPolicy`] asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicySpec {
    /// Name of the policy's Tier; without it, `application`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Rank within the Tier; a lower number goes first.
    #[schemars(range(min = 1.0, max = 10000.0), extend("format" = "float"))]
    pub priority: f64,
    /// Targets of the whole policy; empty if the rules name their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_to: Vec<AppliedTo>,
    /// Rules about traffic to the targets, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<Rule>,
    /// Rules about traffic from the targets, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<Rule>,
}

/// A rank for policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tier {
    /// Kind and version.
    #[serde(flatten)]
    #[schemars(skip)]
    pub types: TypeMeta,
    /// Name, labels and the like.
    #[schemars(skip)]
    pub metadata: ObjectMeta,
    /// What the user wants.
    #[serde(default)]
    pub spec: TierSpec,
}

/// What a [`Tier`] is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TierSpec {
    /// Rank; a lower number goes first.
    #[schemars(range(min = 0, max = 255))]
    pub priority: i32,
    /// What the Tier is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Tier of a policy that names none.
pub const DEFAULT_TIER: &str = "application";
/// Priority of [`DEFAULT_TIER`].
pub const DEFAULT_TIER_PRIORITY: i32 = 250;
/// Priority of the `baseline` Tier, which comes after Kubernetes' own policies.
pub const BASELINE_TIER_PRIORITY: i32 = 253;

/// The Tiers that always exist: name and priority.
pub const SYSTEM_TIERS: &[(&str, i32)] = &[
    ("emergency", 50),
    ("securityops", 100),
    ("networkops", 150),
    ("platform", 200),
    (DEFAULT_TIER, DEFAULT_TIER_PRIORITY),
    ("baseline", BASELINE_TIER_PRIORITY),
];

/// What no rule of the direction can have, in either kind.
const NEVER: &[&str] = &[
    "spec.ingress.to",
    "spec.ingress.toServices",
    "spec.ingress.from.fqdn",
    "spec.egress.from",
    "spec.appliedTo.scope",
];

/// What only a cluster-wide policy can have.
pub const CLUSTER_ONLY: &[&str] = &[
    "spec.appliedTo.namespaceSelector",
    "spec.appliedTo.serviceAccount",
    "spec.appliedTo.service",
    "spec.appliedTo.nodeSelector",
    "spec.ingress.appliedTo.namespaceSelector",
    "spec.ingress.appliedTo.serviceAccount",
    "spec.ingress.appliedTo.service",
    "spec.ingress.appliedTo.nodeSelector",
    "spec.ingress.from.namespaces",
    "spec.ingress.from.serviceAccount",
    "spec.egress.appliedTo.namespaceSelector",
    "spec.egress.appliedTo.serviceAccount",
    "spec.egress.appliedTo.service",
    "spec.egress.appliedTo.nodeSelector",
    "spec.egress.to.namespaces",
    "spec.egress.to.serviceAccount",
];

/// What only a namespaced policy can have.
pub const NAMESPACED_ONLY: &[&str] = &[
    "spec.appliedTo.externalEntitySelector",
    "spec.ingress.from.externalEntitySelector",
    "spec.egress.to.externalEntitySelector",
];

fn refine_both(schema: &mut Refine<'_>) {
    schema.without(NEVER);
    schema.without(&[
        "spec.ingress.appliedTo.externalEntitySelector",
        "spec.egress.appliedTo.externalEntitySelector",
    ]);
    schema.numbers("spec.ingress.protocols.igmp.igmpType", &[17]);
    schema.numbers("spec.egress.protocols.igmp.igmpType", &[18, 22, 34]);
}

fn refine_cluster(schema: &mut Refine<'_>) {
    refine_both(schema);
    schema.without(NAMESPACED_ONLY);
    schema.without(&["spec.egress.appliedTo.service"]);
    schema.require("spec.egress.toServices", "namespace");
}

fn refine_namespaced(schema: &mut Refine<'_>) {
    refine_both(schema);
    schema.without(CLUSTER_ONLY);
}

const POLICY_COLUMNS: &[Column] = &[
    Column::new("Tier", ".spec.tier", "Tier of the policy"),
    Column::float("Priority", ".spec.priority", "Rank of the policy within its Tier"),
    Column::integer("Desired Nodes", ".status.desiredNodesRealized", "Nodes that need the policy"),
    Column::integer("Current Nodes", ".status.currentNodesRealized", "Nodes that have the policy"),
    Column::date("Age", ".metadata.creationTimestamp", "When the policy was made"),
];

custom_kind! {
    ClusterNetworkPolicy {
        group: "crd.antrea.io",
        version: "v1beta1",
        scope: Cluster,
        plural: "clusternetworkpolicies",
        singular: "clusternetworkpolicy",
        short_names: &["acnp"],
        subresources: &["status"],
        refine: refine_cluster,
        columns: POLICY_COLUMNS,
    }
}

custom_kind! {
    NetworkPolicy {
        group: "crd.antrea.io",
        version: "v1beta1",
        scope: Namespace,
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["annp", "anp"],
        subresources: &["status"],
        refine: refine_namespaced,
        columns: POLICY_COLUMNS,
    }
}

custom_kind! {
    Tier {
        group: "crd.antrea.io",
        version: "v1beta1",
        scope: Cluster,
        plural: "tiers",
        singular: "tier",
        short_names: &["tr"],
        subresources: &[],
        refine: crate::crd::as_derived,
        columns: &[
            Column::integer("Priority", ".spec.priority", "Rank of the Tier"),
            Column::date("Age", ".metadata.creationTimestamp", "When the Tier was made"),
        ],
    }
}
