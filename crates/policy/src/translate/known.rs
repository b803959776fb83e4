//! Which objects of the cluster the engine knows, for a reader that was told all of a kind again.

use super::Engine;
use super::event::{Event, PolicyKind};
use super::policies::State;

/// Kind of an object of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InputKind {
    /// Pods.
    Pod,
    /// Namespaces.
    Namespace,
    /// Nodes.
    Node,
    /// Policies of a kind.
    Policy(PolicyKind),
    /// Tiers.
    Tier,
    /// ClusterGroups.
    ClusterGroup,
    /// Groups.
    Group,
}

/// An object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Known {
    /// Its kind.
    pub kind: InputKind,
    /// Its namespace; empty in cluster scope and for policies.
    pub namespace: String,
    /// Its name; for a policy its UID.
    pub name: String,
}

impl Known {
    /// The event that it is gone.
    pub fn gone(self) -> Event {
        let Self { kind, namespace, name } = self;
        match kind {
            InputKind::Pod => Event::PodGone { namespace, name },
            InputKind::Namespace => Event::NamespaceGone { name },
            InputKind::Node => Event::NodeGone { name },
            InputKind::Policy(kind) => Event::PolicyGone { kind, uid: name },
            InputKind::Tier => Event::Tier { name, priority: None },
            InputKind::ClusterGroup | InputKind::Group => {
                Event::Group { namespace, name, spec: None }
            }
        }
    }
}

impl Engine {
    /// The objects of a kind that it knows.
    pub fn known(&self, kind: InputKind) -> Vec<Known> {
        let known = |namespace: &str, name: &str| Known {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        match kind {
            InputKind::Pod => {
                let pods = self.index.pods();
                pods.map(|(_, record)| known(record.namespace(), record.name())).collect()
            }
            InputKind::Namespace => {
                self.index.namespaces().map(|(_, name, _)| known("", name)).collect()
            }
            InputKind::Node => {
                let nodes = self.index.seen_nodes();
                nodes.map(|node| known("", self.index.node_name(node))).collect()
            }
            InputKind::Policy(PolicyKind::K8s) => {
                let of_kind = self.policies.iter().filter(|(_, policy)| {
                    policy.kind == PolicyKind::K8s && policy.state != State::Gone
                });
                of_kind.map(|(_, policy)| known("", &policy.uid)).collect()
            }
            InputKind::Policy(kind) => self.natives.uids(kind).map(|uid| known("", uid)).collect(),
            InputKind::Tier => self.natives.tier_names().map(|name| known("", name)).collect(),
            InputKind::ClusterGroup => self
                .natives
                .group_names()
                .filter(|(namespace, _)| namespace.is_empty())
                .map(|(_, name)| known("", name))
                .collect(),
            InputKind::Group => self
                .natives
                .group_names()
                .filter(|(namespace, _)| !namespace.is_empty())
                .map(|(namespace, name)| known(namespace, name))
                .collect(),
        }
    }
}
