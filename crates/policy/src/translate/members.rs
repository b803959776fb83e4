//! Who is in which group, and what was before changes that nobody has been told of.

use std::sync::Arc;

use apis::controlplane::{GroupMember, NamedPort, NodeReference, ObjectName, Protocol};
use rustc_hash::FxHashMap;

use super::draft::GroupKind;
use super::groups::Group;
use super::{Engine, GroupId};
use crate::index::slab::Id;
use crate::index::{
    CohortId, Effect, NamespaceInput, NodeId, NodeInput, NodeRecord, PodId, PodInput, PodRecord,
    PortProtocol, pack_labels,
};

/// A member as it was when it was last told of; `None` if it was none.
type Before<T> = Option<Arc<T>>;

/// Members of one group that may have changed.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) pods: FxHashMap<PodId, Before<PodRecord>>,
    pub(super) nodes: FxHashMap<NodeId, Before<NodeRecord>>,
}

/// A member of a group, and the Node that must know it if the group is one of targets.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMember {
    /// The Node that the member is on.
    pub node: Option<NodeId>,
    /// The member.
    pub member: GroupMember,
}

/// Whether a Pod can be a member of a kind of group.
pub(super) fn fits(kind: GroupKind, record: &PodRecord) -> bool {
    match kind {
        GroupKind::AppliedTo => record.is_target(),
        GroupKind::Address => record.is_peer(),
    }
}

/// Whether two records make the same member.
pub(super) fn same(kind: GroupKind, a: &PodRecord, b: &PodRecord) -> bool {
    let alike = a.name() == b.name() && a.namespace() == b.namespace() && a.ports() == b.ports();
    alike
        && match kind {
            GroupKind::AppliedTo => a.node() == b.node(),
            GroupKind::Address => a.ips().eq(b.ips()),
        }
}

/// The form for agents.
pub(super) fn pod_member(kind: GroupKind, record: &PodRecord) -> GroupMember {
    let port = |port: &crate::index::NamedPort| NamedPort {
        port: port.port.into(),
        name: (*port.name).to_owned(),
        protocol: match port.protocol {
            PortProtocol::Tcp => Protocol::Tcp,
            PortProtocol::Udp => Protocol::Udp,
            PortProtocol::Sctp => Protocol::Sctp,
        },
    };
    GroupMember {
        pod: Some(ObjectName {
            name: record.name().to_owned(),
            namespace: record.namespace().to_owned(),
        }),
        ips: match kind {
            GroupKind::AppliedTo => Vec::new(),
            GroupKind::Address => record.ips().collect(),
        },
        ports: record.ports().iter().map(port).collect(),
        ..GroupMember::default()
    }
}

/// The form for agents.
pub(super) fn service_member(service: &ObjectName) -> GroupMember {
    GroupMember { service: Some(service.clone()), ..GroupMember::default() }
}

/// The form for agents.
pub(super) fn node_member(record: &NodeRecord) -> GroupMember {
    GroupMember {
        node: Some(NodeReference { name: record.name().to_owned() }),
        ips: record.ips().to_vec(),
        ..GroupMember::default()
    }
}

impl Engine {
    pub(super) fn upsert_pod(&mut self, input: PodInput) {
        if let Some(there) = self.index.find_pod(&input.namespace, &input.name) {
            self.note_pod(there.pod, there.cohort);
        }
        let placed = self.index.upsert_pod(input);
        self.note_newcomer(placed.pod, placed.cohort);
        let record = self.index.pod(placed.pod).map(|(_, record)| record);
        self.dirty.nodes.extend(record.and_then(|record| record.node()));
    }

    pub(super) fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(there) = self.index.find_pod(namespace, name) else { return };
        self.note_pod(there.pod, there.cohort);
        self.index.remove_pod(there.pod);
    }

    pub(super) fn upsert_namespace(&mut self, input: &NamespaceInput) {
        let effects = self.index.namespace_effects(&input.name, Some(&pack_labels(input)));
        self.note_effects(&effects);
        let known = self.index.find_namespace(&input.name);
        let logged = known.is_some_and(|id| self.index.logs_policies(id));
        let before = known.and_then(|id| self.index.namespace_labels(id));
        if before != Some(&pack_labels(input)) {
            self.natives.namespaces_changed();
        }
        self.index.upsert_namespace(input, &effects);
        if logged != input.log_policies {
            self.dirty.logging.insert(input.name.as_str().into());
        }
    }

    pub(super) fn remove_namespace(&mut self, name: &str) {
        let effects = self.index.namespace_effects(name, None);
        self.note_effects(&effects);
        self.natives.namespaces_changed();
        if self.index.find_namespace(name).is_some_and(|id| self.index.logs_policies(id)) {
            self.dirty.logging.insert(name.into());
        }
        self.index.remove_namespace(name, &effects);
    }

    pub(super) fn upsert_node(&mut self, input: &NodeInput) {
        let id = self.index.node_id(&input.name);
        if self.index.node(id).is_none() {
            self.nodes_changed();
        }
        self.note_node(id);
        self.index.upsert_node(input);
        self.note_node(id);
    }

    pub(super) fn remove_node(&mut self, name: &str) {
        let Some(id) = self.index.find_node(name) else { return };
        self.note_node(id);
        self.nodes_changed();
        self.index.remove_node(id);
    }

    /// Whether a group has the Pods of a cohort.
    pub(super) fn has_cohort(&self, group: &Group, cohort: CohortId) -> bool {
        group.selectors.iter().any(|selector| self.index.selects(*selector, cohort))
    }

    /// Whether a group has a Node.
    pub(super) fn has_node(&self, group: &Group, node: NodeId) -> bool {
        group.node_selectors.iter().any(|selector| self.index.selects_node(selector, node))
    }

    /// The cohorts of a group, each once.
    pub(super) fn cohorts_of(&self, group: &Group) -> Vec<CohortId> {
        let mut cohorts: Vec<CohortId> = Vec::new();
        for selector in &group.selectors {
            cohorts.extend_from_slice(self.index.selected(*selector));
        }
        if group.selectors.len() > 1 {
            cohorts.sort_unstable();
            cohorts.dedup();
        }
        cohorts
    }

    /// The Pods of a group.
    pub(super) fn pods_of<'a>(
        &'a self,
        group: &'a Group,
    ) -> impl Iterator<Item = (PodId, &'a Arc<PodRecord>)> {
        let kind = group.kind;
        let pods = self.cohorts_of(group).into_iter();
        let pods = pods.flat_map(|cohort| self.index.cohort_of(cohort).pods().iter().copied());
        pods.filter_map(move |pod| {
            let (_, record) = self.index.pod(pod)?;
            fits(kind, record).then_some((pod, record))
        })
    }

    /// Notes, before a change of a Pod, in which groups it is.
    fn note_pod(&mut self, pod: PodId, cohort: CohortId) {
        let Some((_, record)) = self.index.pod(pod) else { return };
        for selector in self.index.cohort_of(cohort).selectors() {
            for id in &self.groups_by_selector[selector.index()] {
                let group = &self.groups[*id];
                if group.told.is_some() {
                    let before = fits(group.kind, record).then(|| Arc::clone(record));
                    let pending = self.dirty.members.entry(*id).or_default();
                    pending.pods.entry(pod).or_insert(before);
                }
            }
        }
    }

    /// Notes, after a change of a Pod, in which groups it may be new.
    fn note_newcomer(&mut self, pod: PodId, cohort: CohortId) {
        for selector in self.index.cohort_of(cohort).selectors() {
            for id in &self.groups_by_selector[selector.index()] {
                if self.groups[*id].told.is_some() {
                    let pending = self.dirty.members.entry(*id).or_default();
                    pending.pods.entry(pod).or_insert(None);
                }
            }
        }
    }

    /// Notes, before they happen, whom effects of a namespace's change are about.
    fn note_effects(&mut self, effects: &[Effect]) {
        for effect in effects {
            let (Effect::Gains(selector, cohort) | Effect::Loses(selector, cohort)) = effect;
            let Some(users) = self.groups_by_selector.get(selector.index()) else { continue };
            for id in users {
                let group = &self.groups[*id];
                if group.told.is_none() {
                    continue;
                }
                let was_in = self.has_cohort(group, *cohort);
                let pending = self.dirty.members.entry(*id).or_default();
                for pod in self.index.cohort_of(*cohort).pods() {
                    let record = self.index.pod(*pod).map(|(_, record)| record);
                    let before = record.filter(|record| was_in && fits(group.kind, record));
                    pending.pods.entry(*pod).or_insert_with(|| before.cloned());
                }
            }
        }
    }

    fn note_node(&mut self, node: NodeId) {
        let record = self.index.node(node);
        for id in &self.node_groups {
            let group = &self.groups[*id];
            if group.told.is_some() {
                let before = record.filter(|_| self.has_node(group, node)).cloned();
                let pending = self.dirty.members.entry(*id).or_default();
                pending.nodes.entry(node).or_insert(before);
            }
        }
    }

    /// Notes, before a group's selectors change, who is in it.
    pub(super) fn note_members(&mut self, id: GroupId) {
        let group = &self.groups[id];
        if group.told.is_none() {
            return;
        }
        let pending = self.dirty.members.remove(&id);
        let mut pending = pending.unwrap_or_default();
        for (pod, record) in self.pods_of(group) {
            pending.pods.entry(pod).or_insert_with(|| Some(Arc::clone(record)));
        }
        for node in self.index.seen_nodes().filter(|node| self.has_node(group, *node)) {
            pending.nodes.entry(node).or_insert_with(|| self.index.node(node).cloned());
        }
        self.dirty.members.insert(id, pending);
    }

    /// Notes, after a group's selectors changed, who may be new in it.
    pub(super) fn note_newcomers(&mut self, id: GroupId) {
        let group = &self.groups[id];
        if group.told.is_none() {
            return;
        }
        let pending = self.dirty.members.remove(&id);
        let mut pending = pending.unwrap_or_default();
        for (pod, _) in self.pods_of(group) {
            pending.pods.entry(pod).or_insert(None);
        }
        for node in self.index.seen_nodes().filter(|node| self.has_node(group, *node)) {
            pending.nodes.entry(node).or_insert(None);
        }
        self.dirty.members.insert(id, pending);
    }
}
