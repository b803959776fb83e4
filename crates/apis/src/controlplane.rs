//! What the controller computes for agents: `controlplane.antrea.io/v1beta2`.
//!
//! Plain data with the published JSON names. Kind and version are those of the Rust type ([`Object`])
//! and are added when an object is written ([`Typed`]). The protobuf form is in [`wire`].
//! Not here: how the objects are computed (`policy::translate`) or served (`apiserver`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ListMeta, ObjectMeta};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

mod bytes;
pub mod group;
pub mod policy;
pub mod query;
pub mod report;
pub mod wire;

pub use group::{
    AddressGroup, AddressGroupPatch, AppliedToGroup, AppliedToGroupPatch, GroupMember, NamedPort,
    NodeReference, ObjectName,
};
pub use policy::{
    Direction, HttpProtocol, IpBlock, L7Protocol, NetworkPolicy, NetworkPolicyPeer,
    NetworkPolicyReference, NetworkPolicyRule, PolicyType, Service, TlsProtocol,
};
pub use query::{
    ClusterGroupMembers, DEFAULT_ISOLATION, Entity, GroupAssociation, GroupMembers, GroupReference,
    IpGroupAssociation, NetworkPolicyEvaluation, NetworkPolicyEvaluationRequest,
    NetworkPolicyEvaluationResponse, RuleRef,
};
pub use report::{
    MulticastGroupInfo, NetworkPolicyNodeStatus, NetworkPolicyStats, NetworkPolicyStatus,
    NodeStatsSummary, RuleTrafficStats, TrafficStats,
};

pub use crate::common::Protocol;
pub use crate::policy::RuleAction;

/// Name of the group.
pub const GROUP: &str = "controlplane.antrea.io";
/// Served version of the group.
pub const VERSION: &str = "v1beta2";
/// Both, as objects carry them.
pub const API_VERSION: &str = "controlplane.antrea.io/v1beta2";

/// Beginning of the annotations with which bookmarks tell how far the controller has read the
/// cluster: the plural of a kind follows, and the value is the highest resource version of its
/// objects that counts in everything before the bookmark.
pub const AS_OF: &str = "as-of.controlplane.antrea.io/";
/// Beginning of the annotations with which the bookmark behind a watch's initial objects tells how
/// far the controller has read each kind. Where nothing changed lately it is above what [`AS_OF`]
/// tells, as what was deleted last has left no object behind.
pub const UP_TO: &str = "up-to.controlplane.antrea.io/";

/// A kind of this group.
pub trait Object: Serialize + DeserializeOwned + Clone + PartialEq + Send + Sync + 'static {
    /// The kind's name.
    const KIND: &'static str;

    /// Name, version and the like.
    fn metadata(&self) -> &ObjectMeta;
}

/// An object together with its kind and version, as JSON has it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Typed<'a, T> {
    /// Group and version.
    pub api_version: &'static str,
    /// Kind.
    pub kind: &'static str,
    /// The object.
    #[serde(flatten)]
    pub object: &'a T,
}

impl<'a, T: Object> Typed<'a, T> {
    /// Adds kind and version to an object.
    pub fn new(object: &'a T) -> Self {
        Self { api_version: API_VERSION, kind: T::KIND, object }
    }
}

/// Objects of one kind, as a list request is answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct List<T> {
    /// Version of the whole list.
    #[serde(default)]
    pub metadata: ListMeta,
    /// The objects.
    pub items: Vec<T>,
}

/// Names the kind of each type.
macro_rules! objects {
    ($($type:ident $kind:literal,)+) => {
        $(
            impl Object for $type {
                const KIND: &'static str = $kind;

                fn metadata(&self) -> &ObjectMeta {
                    &self.metadata
                }
            }
        )+
    };
}

objects! {
    AddressGroup "AddressGroup",
    AddressGroupPatch "AddressGroupPatch",
    AppliedToGroup "AppliedToGroup",
    AppliedToGroupPatch "AppliedToGroupPatch",
    NetworkPolicy "NetworkPolicy",
    NetworkPolicyStatus "NetworkPolicyStatus",
    NetworkPolicyEvaluation "NetworkPolicyEvaluation",
    ClusterGroupMembers "ClusterGroupMembers",
    GroupMembers "GroupMembers",
    GroupAssociation "GroupAssociation",
    IpGroupAssociation "IPGroupAssociation",
    NodeStatsSummary "NodeStatsSummary",
}
