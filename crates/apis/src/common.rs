//! Types that several kinds share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

pub use k8s_openapi::ByteString;
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
pub use k8s_openapi::jiff::Timestamp;

/// A reference to an object of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// Group and version of the object's kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Part of the object that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field_path: Option<String>,
    /// Kind of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Name of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Version of the object that is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// UID of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

impl ObjectReference {
    /// Refers to a Node.
    pub fn node(name: &str) -> Self {
        Self { kind: Some("Node".into()), name: Some(name.into()), ..Self::default() }
    }

    /// Refers to a Pod.
    pub fn pod(namespace: &str, name: &str) -> Self {
        Self::namespaced("Pod", namespace, name)
    }

    /// Refers to a Service.
    pub fn service(namespace: &str, name: &str) -> Self {
        Self::namespaced("Service", namespace, name)
    }

    fn namespaced(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: Some(kind.into()),
            namespace: Some(namespace.into()),
            name: Some(name.into()),
            ..Self::default()
        }
    }
}

words! {
    /// A protocol above IP that policies can name.
    Protocol {
        /// TCP.
        Tcp = "TCP",
        /// UDP.
        Udp = "UDP",
        /// SCTP.
        Sctp = "SCTP",
        /// ICMP, and ICMPv6 between IPv6 addresses.
        Icmp = "ICMP",
        /// IGMP.
        Igmp = "IGMP",
    }
}

/// State of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Nobody can say.
    Unknown,
}

impl From<bool> for ConditionStatus {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

/// A time in whole seconds, as the API shows times.
pub fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).unwrap_or(at))
}

/// How much network policy a program works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkPolicyControllerInfo {
    /// Policies.
    pub network_policy_num: i32,
    /// AddressGroups.
    pub address_group_num: i32,
    /// AppliedToGroups.
    pub applied_to_group_num: i32,
}
