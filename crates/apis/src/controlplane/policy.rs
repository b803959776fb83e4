//! Policies as agents get them: selectors replaced by groups.

use ipnet::IpNet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

use super::group::ObjectName;
use crate::common::Protocol;
use crate::policy::RuleAction;
use crate::words::words;

/// A policy. Its name is the UID of the object it was made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Name, generation and the like.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Its rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<NetworkPolicyRule>,
    /// AppliedToGroups of all rules; empty if the rules name their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_to_groups: Vec<String>,
    /// Rank within the tier; a Kubernetes NetworkPolicy has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<f64>,
    /// Rank of the tier; a Kubernetes NetworkPolicy has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier_priority: Option<i32>,
    /// The object it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_ref: Option<NetworkPolicyReference>,
}

/// A reference to a user's policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyReference {
    /// Its kind.
    #[serde(rename = "type")]
    pub type_: PolicyType,
    /// Its Namespace; empty for a cluster-wide policy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its UID.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

words! {
    /// Kind of a user's policy.
    PolicyType {
        /// Kubernetes' NetworkPolicy.
        K8sNetworkPolicy = "K8sNetworkPolicy",
        /// Antrea's ClusterNetworkPolicy.
        AntreaClusterNetworkPolicy = "AntreaClusterNetworkPolicy",
        /// Antrea's NetworkPolicy.
        AntreaNetworkPolicy = "AntreaNetworkPolicy",
        /// The AdminNetworkPolicy of policy.networking.k8s.io.
        AdminNetworkPolicy = "AdminNetworkPolicy",
        /// The BaselineAdminNetworkPolicy of policy.networking.k8s.io.
        BaselineAdminNetworkPolicy = "BaselineAdminNetworkPolicy",
        /// The ClusterNetworkPolicy of policy.networking.k8s.io.
        K8sClusterNetworkPolicy = "K8sClusterNetworkPolicy",
    }
}

/// One rule of a [`NetworkPolicy`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRule {
    /// Which traffic of its targets the rule is about.
    pub direction: Direction,
    /// Sources, of an ingress rule.
    #[serde(default, skip_serializing_if = "NetworkPolicyPeer::is_empty")]
    pub from: NetworkPolicyPeer,
    /// Destinations, of an egress rule.
    #[serde(default, skip_serializing_if = "NetworkPolicyPeer::is_empty")]
    pub to: NetworkPolicyPeer,
    /// Protocols and ports; empty is any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Place among the rules of its direction; -1 in a Kubernetes NetworkPolicy.
    #[serde(default)]
    pub priority: i32,
    /// What happens to traffic that matches; without it, it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<RuleAction>,
    /// Whether connections that match are written to the audit log.
    #[serde(default)]
    pub enable_logging: bool,
    /// AppliedToGroups of this rule.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied_to_groups: Vec<String>,
    /// Name of the rule.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Requests of an application that are allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub l7_protocols: Vec<L7Protocol>,
    /// A word of the user's for the audit log.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub log_label: String,
}

impl NetworkPolicyRule {
    /// A rule of this direction that matches nothing in particular yet.
    pub fn new(direction: Direction) -> Self {
        Self {
            direction,
            from: NetworkPolicyPeer::default(),
            to: NetworkPolicyPeer::default(),
            services: Vec::new(),
            priority: 0,
            action: None,
            enable_logging: false,
            applied_to_groups: Vec::new(),
            name: String::new(),
            l7_protocols: Vec::new(),
            log_label: String::new(),
        }
    }

    /// The other side of the rule's traffic.
    pub fn peer(&self) -> &NetworkPolicyPeer {
        match self.direction {
            Direction::In => &self.from,
            Direction::Out => &self.to,
        }
    }
}

/// Which traffic of its targets a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Direction {
    /// To them.
    In,
    /// From them.
    Out,
}

impl Direction {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::Out => "Out",
        }
    }
}

/// The other side of a rule's traffic; nothing in it means nothing matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicyPeer {
    /// Names of AddressGroups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub address_groups: Vec<String>,
    /// Networks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ip_blocks: Vec<IpBlock>,
    /// Domain names, perhaps with `*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fqdns: Vec<String>,
    /// Services by reference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to_services: Vec<ObjectName>,
    /// Label identities of a cluster set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub label_identities: Vec<u32>,
}

impl NetworkPolicyPeer {
    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.address_groups.is_empty()
            && self.ip_blocks.is_empty()
            && self.fqdns.is_empty()
            && self.to_services.is_empty()
            && self.label_identities.is_empty()
    }
}

/// A network without some parts of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpBlock {
    /// The network.
    #[serde(with = "super::bytes::net")]
    pub cidr: IpNet,
    /// Parts of the network that do not belong to the block.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "super::bytes::nets")]
    pub except: Vec<IpNet>,
}

/// A protocol with what is asked of its header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Service {
    /// The protocol; without it, that of the named port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Destination port by number or name; without it, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    /// Last port of a range that begins at `port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
    /// Type of ICMP; without it, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<i32>,
    /// Code of ICMP; without it, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<i32>,
    /// Type of IGMP; without it, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub igmp_type: Option<i32>,
    /// Multicast group of IGMP; without it, any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group_address: String,
    /// Source port; without it, any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_port: Option<i32>,
    /// Last source port of a range that begins at `src_port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src_end_port: Option<i32>,
}

/// A protocol of applications; one of the two fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct L7Protocol {
    /// HTTP requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpProtocol>,
    /// TLS sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsProtocol>,
}

/// HTTP requests; an empty field is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HttpProtocol {
    /// Host.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Method.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub method: String,
    /// Path.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
}

/// TLS sessions; an empty field is any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsProtocol {
    /// Name that the client asks for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sni: String,
}

/// The protocol of a port that names none.
pub(super) fn tcp() -> Protocol {
    Protocol::Tcp
}
