//! Rules of Antrea's own policies: targets, peers, ports and actions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::common::Protocol;
use crate::schema;
use crate::words::words;

/// One rule of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// What happens to traffic that matches.
    pub action: RuleAction,
    /// Targets of this rule; empty if the policy names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_to: Vec<AppliedTo>,
    /// Sources (ingress); empty is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<NetworkPolicyPeer>,
    /// Destinations (egress); empty is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<NetworkPolicyPeer>,
    /// Services (egress), in place of destinations and ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to_services: Vec<PeerService>,
    /// Ports; with no protocols either, any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<NetworkPolicyPort>,
    /// Protocols that have no ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<NetworkPolicyProtocol>,
    /// Requests of an application that are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub l7_protocols: Vec<L7Protocol>,
    /// Name of the rule, unique within the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether connections that match are written to the audit log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub enable_logging: bool,
    /// A word of the user's for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$"))]
    pub log_label: Option<String>,
}

words! {
    /// What happens to traffic that matches a rule.
    RuleAction {
        /// It passes.
        Allow = "Allow",
        /// It is discarded without a word.
        Drop = "Drop",
        /// It is discarded and the sender is told.
        Reject = "Reject",
        /// Kubernetes' own policies decide.
        Pass = "Pass",
    }
}

/// Targets of a policy or rule: Pods, Nodes or Services.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedTo {
    /// Pods by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces by label; alone, all their Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// ExternalEntities by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub external_entity_selector: Option<LabelSelector>,
    /// Name of a ClusterGroup (Group, in a namespaced policy), alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Pods that run with this ServiceAccount, alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<NamespacedName>,
    /// A NodePort Service, alone; ingress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<NamespacedName>,
    /// Nodes by label, alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
}

/// Name and Namespace of an object.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "camelCase")]
pub struct NamespacedName {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
}

/// The other side of a connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyPeer {
    /// Pods by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub pod_selector: Option<LabelSelector>,
    /// Namespaces by label; alone, all their Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// Namespaces in relation to that of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<PeerNamespaces>,
    /// ExternalEntities by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub external_entity_selector: Option<LabelSelector>,
    /// Addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_block: Option<IpBlock>,
    /// Name of a ClusterGroup (Group, in a namespaced policy), alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// A domain name, perhaps with `*`; egress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fqdn: Option<String>,
    /// Pods that run with this ServiceAccount, alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<NamespacedName>,
    /// Nodes by label, alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::label_selector")]
    pub node_selector: Option<LabelSelector>,
    /// How far selectors reach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// Namespaces in relation to that of the target; one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("minProperties" = 1, "maxProperties" = 1))]
pub struct PeerNamespaces {
    /// The target's own.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "match")]
    pub match_: Option<NamespaceMatch>,
    /// Those whose labels with these keys are there and have the same values as the target's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_labels: Vec<String>,
}

words! {
    /// A Namespace in relation to that of the target.
    NamespaceMatch {
        /// The target's own.
        SelfNamespace = "Self",
    }
}

words! {
    /// How far selectors reach.
    Scope {
        /// This cluster.
        Cluster = "Cluster",
        /// All clusters of the set.
        ClusterSet = "ClusterSet",
    }
}

/// Addresses: a network without some parts of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IpBlock {
    /// The network.
    #[serde(default)]
    #[schemars(extend("format" = "cidr"))]
    pub cidr: String,
    /// Parts of the network that do not belong to the block.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::cidrs")]
    pub except: Vec<String>,
}

/// A Service by reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PeerService {
    /// Name.
    pub name: String,
    /// Namespace; in a namespaced policy, its own by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Whether the Service is that of this cluster or of the set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
}

/// Ports of one protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyPort {
    /// The protocol; without it, TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::transport_protocol")]
    pub protocol: Option<Protocol>,
    /// Number, or name of a container's port; without it, every port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::int_or_string")]
    pub port: Option<IntOrString>,
    /// Last port of a range that begins at `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
    /// Source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_port: Option<i32>,
    /// Last source port of a range that begins at `sourcePort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_end_port: Option<i32>,
}

/// A protocol without ports; one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("oneOf" = [{"required": ["icmp"]}, {"required": ["igmp"]}]))]
pub struct NetworkPolicyProtocol {
    /// ICMP, and ICMPv6 between IPv6 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp: Option<IcmpProtocol>,
    /// IGMP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub igmp: Option<IgmpProtocol>,
}

/// Messages of ICMP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IcmpProtocol {
    /// Type; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub icmp_type: Option<i32>,
    /// Code; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 255))]
    pub icmp_code: Option<i32>,
}

/// Messages of IGMP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgmpProtocol {
    /// Type; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub igmp_type: Option<i32>,
    /// Multicast group; without it, any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("oneOf" = [{"format": "ipv4"}, {"format": "ipv6"}]))]
    pub group_address: Option<String>,
}

/// A protocol of applications; one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("oneOf" = [{"required": ["http"]}, {"required": ["tls"]}]))]
pub struct L7Protocol {
    /// HTTP requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProtocol>,
    /// TLS sessions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsProtocol>,
}

/// HTTP requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpProtocol {
    /// Host, perhaps with `*` at an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::http_method")]
    pub method: Option<String>,
    /// Path, perhaps with `*` at an end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// TLS sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsProtocol {
    /// Name that the client asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
}
