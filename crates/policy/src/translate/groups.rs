//! Groups: who uses them, by which selectors they are filled, on which Nodes their members are.

use apis::controlplane::ObjectName;
use smallvec::SmallVec;

use super::draft::{GroupKind, GroupRef, GroupSource, PodsSpec, ScopeSpec};
use super::name::GroupName;
use super::span::Span;
use super::{Engine, GroupId, PolicyId};
use crate::index::slab::Id;
use crate::index::{NodeId, Released, Scope, Selector, SelectorId};

/// Groups that use a selector: mostly one of each kind.
pub(super) type Users = SmallVec<[GroupId; 2]>;

#[derive(Debug)]
pub(super) struct Group {
    pub(super) kind: GroupKind,
    pub(super) name: GroupName,
    pub(super) selectors: SmallVec<[SelectorId; 1]>,
    pub(super) node_selectors: Box<[Selector]>,
    /// A Service as a target.
    pub(super) service: Option<Box<ObjectName>>,
    pub(super) policies: SmallVec<[PolicyId; 2]>,
    /// How many members each Node has; kept for targets only.
    pub(super) members_by_node: Vec<(NodeId, u32)>,
    pub(super) span: Span,
    /// The span that was told last; `None` before the first time.
    pub(super) told: Option<Span>,
}

impl Group {
    pub(super) fn count_up(&mut self, node: NodeId) {
        match self.members_by_node.binary_search_by_key(&node, |(node, _)| *node) {
            Ok(at) => self.members_by_node[at].1 += 1,
            Err(at) => self.members_by_node.insert(at, (node, 1)),
        }
    }

    pub(super) fn count_down(&mut self, node: NodeId) {
        if let Ok(at) = self.members_by_node.binary_search_by_key(&node, |(node, _)| *node) {
            self.members_by_node[at].1 -= 1;
            if self.members_by_node[at].1 == 0 {
                self.members_by_node.remove(at);
            }
        }
    }
}

impl Engine {
    /// The Nodes that have members of a group of targets, shared with its present span if they are
    /// the same. A Service is a member on each Node.
    pub(super) fn span_of_members(&self, group: &Group) -> Span {
        fn shared(present: &Span, nodes: impl Iterator<Item = NodeId> + Clone) -> Span {
            match nodes.clone().eq(present.nodes().iter().copied()) {
                true => present.clone(),
                false => nodes.collect(),
            }
        }
        match &group.service {
            Some(_) => shared(&group.span, self.index.seen_nodes()),
            None => shared(&group.span, group.members_by_node.iter().map(|(node, _)| *node)),
        }
    }

    /// A Node came or went: groups of Services span another set of Nodes.
    pub(super) fn nodes_changed(&mut self) {
        self.dirty.groups.extend(self.service_groups.iter().copied());
    }

    /// The number of a group, made if it is new and changed if its source did, with one user more.
    pub(super) fn use_group(&mut self, reference: GroupRef, policy: PolicyId) -> GroupId {
        let GroupRef { kind, name, source } = reference;
        if let Some(id) = self.group_by_name.get(&(kind, name.clone())).copied() {
            if matches!(name, GroupName::Text(_)) {
                self.change_source(id, source);
            }
            let group = &mut self.groups[id];
            if !group.policies.contains(&policy) {
                group.policies.push(policy);
                self.dirty.groups.insert(id);
            }
            return id;
        }
        let id = self.groups.insert(Group {
            kind,
            name: name.clone(),
            selectors: SmallVec::new(),
            node_selectors: Box::new([]),
            service: None,
            policies: SmallVec::from_slice(&[policy]),
            members_by_node: Vec::new(),
            span: Span::default(),
            told: None,
        });
        self.group_by_name.insert((kind, name), id);
        self.set_source(id, source);
        self.dirty.groups.insert(id);
        id
    }

    /// Ends a policy's use of a group.
    pub(super) fn release_group(&mut self, id: GroupId, policy: PolicyId) {
        let policies = &mut self.groups[id].policies;
        if let Some(at) = policies.iter().position(|own| *own == policy) {
            policies.swap_remove(at);
        }
        self.dirty.groups.insert(id);
    }

    /// Forgets a group that nobody uses.
    pub(super) fn drop_group(&mut self, id: GroupId) {
        self.drop_selectors(id);
        self.dirty.members.remove(&id);
        self.service_groups.remove(&id);
        if let Some(group) = self.groups.remove(id) {
            self.group_by_name.remove(&(group.kind, group.name));
        }
    }

    fn change_source(&mut self, id: GroupId, source: GroupSource) {
        let selectors: SmallVec<[SelectorId; 1]> =
            source.pods.into_iter().map(|spec| self.use_pods(spec)).collect();
        let nodes = source.nodes.into_boxed_slice();
        let group = &self.groups[id];
        if group.selectors == selectors && group.node_selectors == nodes {
            for selector in selectors {
                self.release_pods(selector);
            }
            return;
        }
        self.note_members(id);
        self.drop_selectors(id);
        self.put_selectors(id, selectors, nodes);
        self.note_newcomers(id);
        self.dirty.groups.insert(id);
    }

    fn set_source(&mut self, id: GroupId, source: GroupSource) {
        let selectors = source.pods.into_iter().map(|spec| self.use_pods(spec)).collect();
        self.put_selectors(id, selectors, source.nodes.into());
        // The name of such a group says which Service it is, so this never changes.
        if let Some(service) = source.service {
            self.groups[id].service = Some(Box::new(service));
            self.service_groups.insert(id);
        }
    }

    fn put_selectors(
        &mut self,
        id: GroupId,
        selectors: SmallVec<[SelectorId; 1]>,
        nodes: Box<[Selector]>,
    ) {
        for selector in &selectors {
            let place = selector.index();
            if self.groups_by_selector.len() <= place {
                self.groups_by_selector.resize_with(place + 1, Users::new);
            }
            let users = &mut self.groups_by_selector[place];
            if !users.contains(&id) {
                users.push(id);
            }
        }
        if nodes.is_empty() {
            self.node_groups.remove(&id);
        } else {
            self.node_groups.insert(id);
        }
        let group = &mut self.groups[id];
        group.selectors = selectors;
        group.node_selectors = nodes;
    }

    fn drop_selectors(&mut self, id: GroupId) {
        for selector in std::mem::take(&mut self.groups[id].selectors) {
            self.groups_by_selector[selector.index()].retain(|own| *own != id);
            self.release_pods(selector);
        }
        self.node_groups.remove(&id);
    }

    fn use_pods(&mut self, spec: PodsSpec) -> SelectorId {
        let scope = match &spec.scope {
            ScopeSpec::Namespace(name) => Scope::Namespace(self.index.use_namespace(name)),
            ScopeSpec::Namespaces(selector) => {
                Scope::Namespaces(self.index.use_namespace_selector(selector))
            }
        };
        self.index.use_selector(scope, spec.pods)
    }

    fn release_pods(&mut self, selector: SelectorId) {
        if self.index.release_selector(selector) == Released::Gone
            && let Some(users) = self.groups_by_selector.get_mut(selector.index())
        {
            users.clear();
        }
    }
}
