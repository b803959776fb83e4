//! The computed objects as they are now.

use std::sync::Arc;

use apis::controlplane::{AddressGroup, AppliedToGroup, GroupMember, NetworkPolicy};
use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustc_hash::FxHashSet;

use super::draft::GroupKind;
use super::event::{ObjectId, ObjectKind, PolicyKind};
use super::members::{node_member, pod_member, service_member};
use super::name::GroupName;
use super::policies::{Policy, decode};
use super::span::Span;
use super::{Engine, GroupId, PolicyId};
use crate::index::NodeId;
use crate::index::slab::Id;

/// A user's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserPolicy<'a> {
    /// Its namespace; empty for a cluster-wide one.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// When it was made, in seconds since 1970, if its object says so.
    pub created: Option<i64>,
}

impl Engine {
    /// The users' policies of a kind that have been told of.
    pub fn user_policies(&self, kind: PolicyKind) -> impl Iterator<Item = UserPolicy<'_>> {
        let told = move |policy: &&Policy| policy.kind == kind && policy.told.is_some();
        let all = self.policies.iter().map(|(_, policy)| policy).filter(told);
        all.map(|policy| UserPolicy {
            namespace: &policy.namespace,
            name: &policy.name,
            uid: &policy.uid,
            created: policy.created,
        })
    }

    /// Whether there is a policy with this UID, of whatever kind.
    pub fn has_policy(&self, uid: &str) -> bool {
        use PolicyKind::{Cluster, K8s, Namespaced, Upstream};
        [K8s, Cluster, Namespaced, Upstream]
            .iter()
            .any(|kind| self.find_policy(*kind, uid).is_some())
    }

    /// The user's policy of this name, if it has been told of.
    pub fn user_policy(
        &self,
        kind: PolicyKind,
        namespace: &str,
        name: &str,
    ) -> Option<UserPolicy<'_>> {
        let id = self.find_policy_by_name(kind, namespace, name)?;
        let policy = self.policies.get(id).filter(|policy| policy.told.is_some())?;
        Some(UserPolicy {
            namespace: &policy.namespace,
            name: &policy.name,
            uid: &policy.uid,
            created: policy.created,
        })
    }

    /// The numbers of all objects of a kind, or of those that are for a Node.
    pub fn list(&self, kind: ObjectKind, node: Option<NodeId>) -> Vec<ObjectId> {
        match (kind, node) {
            (ObjectKind::NetworkPolicy, None) => {
                let all = self.policies.iter().filter(|(_, policy)| policy.told.is_some());
                all.map(|(id, _)| ObjectId::Policy(id)).collect()
            }
            (kind, None) => {
                let of_kind = |kind| match kind {
                    GroupKind::AppliedTo => ObjectKind::AppliedToGroup,
                    GroupKind::Address => ObjectKind::AddressGroup,
                };
                let all = self.groups.iter();
                let all =
                    all.filter(|(_, group)| of_kind(group.kind) == kind && group.told.is_some());
                all.map(|(id, _)| ObjectId::Group(id)).collect()
            }
            (ObjectKind::AppliedToGroup, Some(node)) => {
                self.targets_on(node).into_iter().map(ObjectId::Group).collect()
            }
            (ObjectKind::NetworkPolicy, Some(node)) => {
                self.policies_on(node).into_iter().map(ObjectId::Policy).collect()
            }
            (ObjectKind::AddressGroup, Some(node)) => {
                let mut groups = FxHashSet::default();
                for policy in self.policies_on(node) {
                    groups.extend(self.policies[policy].groups.iter().copied());
                }
                let mut groups: Vec<GroupId> = groups.into_iter().collect();
                groups.retain(|id| self.groups[*id].kind == GroupKind::Address);
                groups.sort_unstable();
                groups.into_iter().map(ObjectId::Group).collect()
            }
        }
    }

    fn targets_on(&self, node: NodeId) -> Vec<GroupId> {
        let mut groups = FxHashSet::default();
        for pod in self.index.pods_on(node) {
            let Some((cohort, _)) = self.index.pod(pod) else { continue };
            for selector in self.index.cohort_of(cohort).selectors() {
                groups.extend(self.groups_by_selector[selector.index()].iter().copied());
            }
        }
        groups.extend(self.service_groups.iter().copied());
        let mut groups: Vec<GroupId> = groups.into_iter().collect();
        groups.retain(|id| {
            let group = &self.groups[*id];
            group.kind == GroupKind::AppliedTo
                && group.told.as_ref().is_some_and(|span| span.contains(node))
        });
        groups.sort_unstable();
        groups
    }

    fn policies_on(&self, node: NodeId) -> Vec<PolicyId> {
        let mut policies = FxHashSet::default();
        for group in self.targets_on(node) {
            policies.extend(self.groups[group].policies.iter().copied());
        }
        let mut policies: Vec<PolicyId> = policies.into_iter().collect();
        policies.sort_unstable();
        policies
    }

    /// The name of an object.
    pub fn name(&self, id: ObjectId) -> Option<String> {
        match id {
            ObjectId::Policy(id) => self.policies.get(id).map(|policy| (*policy.uid).to_owned()),
            ObjectId::Group(id) => self.groups.get(id).map(|group| group.name.to_string()),
        }
    }

    /// The number of an object.
    pub fn find(&self, kind: ObjectKind, name: &str) -> Option<ObjectId> {
        let group = |kind| self.group_by_name.get(&(kind, GroupName::parse(name))).copied();
        match kind {
            ObjectKind::AppliedToGroup => group(GroupKind::AppliedTo).map(ObjectId::Group),
            ObjectKind::AddressGroup => group(GroupKind::Address).map(ObjectId::Group),
            ObjectKind::NetworkPolicy => {
                use super::PolicyKind::{Cluster, K8s, Namespaced, Upstream};
                let mut kinds = [K8s, Cluster, Namespaced, Upstream].into_iter();
                kinds.find_map(|kind| self.find_policy(kind, name)).map(ObjectId::Policy)
            }
        }
    }

    /// A policy.
    pub fn policy(&self, id: PolicyId) -> Option<NetworkPolicy> {
        let policy = self.policies.get(id)?;
        let mut body = decode(&policy.body);
        body.metadata =
            ObjectMeta { generation: policy.generation, ..named((*policy.uid).to_owned()) };
        Some(body)
    }

    /// UID, generation and encoded body of a policy.
    pub(crate) fn policy_body(&self, id: PolicyId) -> Option<(&Arc<str>, Option<i64>, Bytes)> {
        let policy = self.policies.get(id)?;
        Some((&policy.uid, policy.generation, policy.body.clone()))
    }

    /// The Nodes that an object is for, as they were told last.
    pub fn span(&self, id: ObjectId) -> Option<&Span> {
        match id {
            ObjectId::Policy(id) => self.policies.get(id)?.told.as_ref(),
            ObjectId::Group(id) => self.groups.get(id)?.told.as_ref(),
        }
    }

    /// Kind, name and all members of a group.
    pub(crate) fn group(&self, id: GroupId) -> Option<(ObjectKind, String, Vec<GroupMember>)> {
        let group = self.groups.get(id)?;
        let kind = match group.kind {
            GroupKind::AppliedTo => ObjectKind::AppliedToGroup,
            GroupKind::Address => ObjectKind::AddressGroup,
        };
        Some((kind, group.name.to_string(), self.members(id, None)))
    }

    /// A group of peers with all its members.
    pub fn address_group(&self, id: GroupId) -> Option<AddressGroup> {
        let group = self.groups.get(id)?;
        Some(AddressGroup {
            metadata: named(group.name.to_string()),
            group_members: self.members(id, None),
        })
    }

    /// A group of targets with all its members, or those on one Node.
    pub fn applied_to_group(&self, id: GroupId, node: Option<NodeId>) -> Option<AppliedToGroup> {
        let group = self.groups.get(id)?;
        Some(AppliedToGroup {
            metadata: named(group.name.to_string()),
            group_members: self.members(id, node),
        })
    }

    fn members(&self, id: GroupId, node: Option<NodeId>) -> Vec<GroupMember> {
        let group = &self.groups[id];
        let pods = self.pods_of(group);
        let pods = pods.filter(|(_, record)| node.is_none() || record.node() == node);
        let mut members: Vec<GroupMember> =
            pods.map(|(_, record)| pod_member(group.kind, record)).collect();
        if !group.node_selectors.is_empty() {
            let nodes = self.index.seen_nodes().filter(|node| self.has_node(group, *node));
            members
                .extend(nodes.filter_map(|id| self.index.node(id)).map(|node| node_member(node)));
        }
        members.extend(group.service.as_deref().map(service_member));
        members.sort_unstable();
        members
    }
}

fn named(name: String) -> ObjectMeta {
    ObjectMeta { name: Some(name), ..ObjectMeta::default() }
}
