//! The cluster-wide policy that Kubernetes' network group publishes:
//! `policy.networking.k8s.io/v1alpha2`, kind `ClusterNetworkPolicy`.
//!
//! Its CustomResourceDefinition is not ours to install.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use kube_core::TypeMeta;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// Group and version of the kind.
pub const API_VERSION: &str = "policy.networking.k8s.io/v1alpha2";

/// A policy for Pods of any Namespace, before or after Kubernetes' own policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetworkPolicy {
    /// Kind and version.
    #[serde(flatten)]
    pub types: TypeMeta,
    /// Name, labels and the like.
    pub metadata: ObjectMeta,
    /// What the user wants.
    pub spec: ClusterNetworkPolicySpec,
    /// What implementations say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ClusterNetworkPolicyStatus>,
}

/// What a [`ClusterNetworkPolicy`] asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetworkPolicySpec {
    /// Before or after Kubernetes' own policies.
    pub tier: Tier,
    /// Rank within the tier, 0 to 1000; a lower number goes first.
    pub priority: i32,
    /// Targets.
    pub subject: Subject,
    /// Rules about traffic to the targets, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<IngressRule>,
    /// Rules about traffic from the targets, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub egress: Vec<EgressRule>,
}

words! {
    /// Where a policy stands in relation to Kubernetes' own.
    Tier {
        /// Before them.
        Admin = "Admin",
        /// After them.
        Baseline = "Baseline",
    }
}

words! {
    /// What happens to traffic that matches a rule.
    Action {
        /// It passes.
        Accept = "Accept",
        /// It is discarded.
        Deny = "Deny",
        /// The next tier decides.
        Pass = "Pass",
    }
}

/// Targets of a policy; one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// All Pods of these Namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    /// These Pods of these Namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<NamespacedPod>,
}

/// Pods by their own labels and those of their Namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NamespacedPod {
    /// Namespaces by label; empty is all.
    pub namespace_selector: LabelSelector,
    /// Pods by label; empty is all.
    pub pod_selector: LabelSelector,
}

/// A rule about traffic to the targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IngressRule {
    /// Name of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What happens to traffic that matches.
    pub action: Action,
    /// Sources; never empty.
    #[serde(default)]
    pub from: Vec<Peer>,
    /// Protocols and ports; empty is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
}

/// A rule about traffic from the targets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EgressRule {
    /// Name of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What happens to traffic that matches.
    pub action: Action,
    /// Destinations; never empty.
    #[serde(default)]
    pub to: Vec<Peer>,
    /// Protocols and ports; empty is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
}

/// The other side of a connection; exactly one field. A source has only the first two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// All Pods of these Namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<LabelSelector>,
    /// These Pods of these Namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<NamespacedPod>,
    /// Addresses of these Nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<LabelSelector>,
    /// Networks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<String>,
    /// Domain names, perhaps with a leading `*.`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub domain_names: Vec<String>,
}

/// Traffic of one protocol, or to a port by name; exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    /// TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<Transport>,
    /// UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Transport>,
    /// SCTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sctp: Option<Transport>,
    /// Name of a container's port, of whichever protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_named_port: Option<String>,
}

/// Traffic of a protocol with ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Transport {
    /// Destination port; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<Port>,
}

/// A port or a range of ports; exactly one field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// One port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i32>,
    /// A range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<PortRange>,
}

/// Ports from one to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PortRange {
    /// First port.
    pub start: i32,
    /// Last port.
    pub end: i32,
}

/// What implementations say about a policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetworkPolicyStatus {
    /// Statements about it.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

impl kube_core::Resource for ClusterNetworkPolicy {
    type DynamicType = ();
    type Scope = k8s_openapi::ClusterResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "ClusterNetworkPolicy".into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "policy.networking.k8s.io".into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1alpha2".into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "clusternetworkpolicies".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
