//! What comes in and what goes out.

use std::sync::Arc;

use apis::policy::{ClusterNetworkPolicy, GroupSpec, NetworkPolicy};
use apis::upstream;
use k8s_openapi::api::networking::v1::NetworkPolicy as K8sPolicy;

use super::draft::Issue;
use super::members::NodeMember;
use super::span::Span;
use super::{GroupId, PolicyId};
use crate::index::{NamespaceInput, NodeId, NodeInput, PodInput};

/// Kind of a user's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyKind {
    /// Kubernetes' NetworkPolicy.
    K8s,
    /// Antrea's ClusterNetworkPolicy.
    Cluster,
    /// Antrea's NetworkPolicy.
    Namespaced,
    /// The ClusterNetworkPolicy of policy.networking.k8s.io.
    Upstream,
}

/// What happens in the cluster.
#[derive(Clone, Debug)]
pub enum Event {
    /// A Pod is new or changed.
    Pod(PodInput),
    /// A Pod is gone.
    PodGone {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A namespace is new or changed.
    Namespace(NamespaceInput),
    /// A namespace is gone.
    NamespaceGone {
        /// Its name.
        name: String,
    },
    /// A Node is new or changed.
    Node(NodeInput),
    /// A Node is gone.
    NodeGone {
        /// Its name.
        name: String,
    },
    /// A policy of Kubernetes is new or changed.
    K8sPolicy(Box<K8sPolicy>),
    /// A ClusterNetworkPolicy of Antrea is new or changed.
    ClusterPolicy(Box<ClusterNetworkPolicy>),
    /// A NetworkPolicy of Antrea is new or changed.
    NamespacedPolicy(Box<NetworkPolicy>),
    /// A ClusterNetworkPolicy of Kubernetes is new or changed.
    UpstreamPolicy(Box<upstream::ClusterNetworkPolicy>),
    /// A tier is there, or is gone.
    Tier {
        /// Its name.
        name: String,
        /// Its priority; `None` if it is gone.
        priority: Option<i32>,
    },
    /// A ClusterGroup or Group is there, or is gone.
    Group {
        /// Its namespace; empty for a ClusterGroup.
        namespace: String,
        /// Its name.
        name: String,
        /// Who belongs to it; `None` if it is gone.
        spec: Option<Box<GroupSpec>>,
    },
    /// A policy is gone.
    PolicyGone {
        /// Its kind.
        kind: PolicyKind,
        /// Its UID.
        uid: String,
    },
}

/// Kind of a computed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A policy.
    NetworkPolicy,
    /// A group of targets.
    AppliedToGroup,
    /// A group of peers.
    AddressGroup,
}

/// Number of a computed object, for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// Of a policy.
    Policy(PolicyId),
    /// Of a group.
    Group(GroupId),
}

/// A computed object that is new, changed or gone.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: Arc<str>,
    /// Its number.
    pub id: ObjectId,
    /// Its span before; `None` if it is new.
    pub before: Option<Span>,
    /// Its span now; `None` if it is gone.
    pub after: Option<Span>,
    /// What of its content changed.
    pub content: Content,
}

/// What of an object's content changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Nothing.
    Same,
    /// All of it, or it is new.
    Whole,
    /// Members of a group.
    Members {
        /// Who is new.
        added: Vec<NodeMember>,
        /// Who is gone. Members that changed are here as they were, and in `added` as they are.
        removed: Vec<NodeMember>,
    },
}

/// What a policy's status is made of, on the controller's side.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyFacts {
    /// Kind of the user's policy.
    pub kind: PolicyKind,
    /// Its UID.
    pub uid: Arc<str>,
    /// Its namespace; empty for a cluster-wide one.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its generation.
    pub generation: i64,
    /// The Nodes it is for; `None` when it is gone.
    pub span: Option<Span>,
    /// What of it cannot be done as written.
    pub issues: Vec<Issue>,
}

/// What some events brought about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// Computed objects: groups that policies may need first, those that nobody needs last.
    pub objects: Vec<Change>,
    /// Nodes on which a Pod changed, whether or not that changed an object.
    pub nodes: Vec<NodeId>,
    /// Policies with a status that is made anew.
    pub facts: Vec<PolicyFacts>,
}
