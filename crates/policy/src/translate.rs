//! From a user's policies to what agents are told.
//!
//! [`Engine`] takes the objects of the cluster one event at a time, and gives the policies and groups
//! of `controlplane.antrea.io` that change by them, each with its *span*: the Nodes that it is for.
//! All of it is a function of the objects alone: neither their order nor a replica's history shows.
//!
//! A step is cheap: groups are joined and left Pod by Pod, and nothing is told before
//! [`Engine::take_changes`], so that a batch of events costs each object one change.
//!
//! Never here: which Pods a selector selects (`index`), who watches (`store`), flows (`realize`).

mod antrea;
mod associations;
mod draft;
mod evaluate;
mod event;
mod flush;
mod groups;
mod k8s;
mod known;
mod members;
mod name;
mod natives;
mod policies;
mod span;
mod traffic;
mod upstream;
mod view;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::{FxHashMap, FxHashSet};

pub use associations::{NamedGroup, NamedMembers};
pub use draft::{GroupKind, Issue, Severity};
pub use evaluate::UnknownPod;
pub use event::{Change, Changes, Content, Event, ObjectId, ObjectKind, PolicyFacts, PolicyKind};
pub use known::{InputKind, Known};
pub use members::NodeMember;
pub use name::GroupName;
pub use span::Span;
pub use view::UserPolicy;

use crate::index::Index;
use crate::index::slab::{Slab, ids};
use groups::Group;
use members::Pending;
use natives::Natives;
use policies::Policy;

ids! {
    /// Number of a group.
    pub GroupId;
    /// Number of a policy.
    pub PolicyId;
}

/// Computes what agents are told; see the module's text.
#[derive(Debug, Default)]
pub struct Engine {
    index: Index,
    groups: Slab<GroupId, Group>,
    group_by_name: FxHashMap<(GroupKind, GroupName), GroupId>,
    /// Groups by the selector that they use, at the selector's number.
    groups_by_selector: Vec<groups::Users>,
    node_groups: FxHashSet<GroupId>,
    service_groups: FxHashSet<GroupId>,
    policies: Slab<PolicyId, Policy>,
    policy_by_name: HashTable<PolicyId>,
    policy_by_uid: HashTable<PolicyId>,
    names: FxHashSet<Arc<str>>,
    natives: Natives,
    dirty: Dirty,
}

/// What changed since changes were last taken.
#[derive(Debug, Default)]
struct Dirty {
    policies: FxHashSet<PolicyId>,
    groups: FxHashSet<GroupId>,
    members: FxHashMap<GroupId, Pending>,
    nodes: FxHashSet<crate::index::NodeId>,
    logging: FxHashSet<Arc<str>>,
}

impl Engine {
    /// Takes an event and gives what changes by it.
    pub fn step(&mut self, event: Event) -> Changes {
        self.apply(event);
        self.take_changes()
    }

    /// Takes an event; what changes by it is given by the next [`Self::take_changes`].
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Pod(pod) => self.upsert_pod(pod),
            Event::PodGone { namespace, name } => self.remove_pod(&namespace, &name),
            Event::Namespace(namespace) => self.upsert_namespace(&namespace),
            Event::NamespaceGone { name } => self.remove_namespace(&name),
            Event::Node(node) => self.upsert_node(&node),
            Event::NodeGone { name } => self.remove_node(&name),
            Event::K8sPolicy(policy) => self.upsert_k8s_policy(&policy),
            Event::ClusterPolicy(policy) => self.upsert_cluster_policy(*policy),
            Event::NamespacedPolicy(policy) => self.upsert_namespaced_policy(*policy),
            Event::UpstreamPolicy(policy) => self.upsert_upstream_policy(*policy),
            Event::Tier { name, priority } => self.set_tier(&name, priority),
            Event::Group { namespace, name, spec } => {
                self.set_named(&namespace, &name, spec.map(|spec| *spec));
            }
            Event::PolicyGone { kind, uid } => self.remove_policy(kind, &uid),
        }
    }

    /// The index, to look at.
    pub fn index(&self) -> &Index {
        &self.index
    }
}
