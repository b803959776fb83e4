//! Turns what was noted since the last time into changes.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::draft::GroupKind;
use super::event::{Change, Changes, Content, ObjectId, ObjectKind, PolicyFacts, PolicyKind};
use super::members::{NodeMember, Pending, node_member, pod_member, same};
use super::policies::State;
use super::span::Span;
use super::{Engine, GroupId, PolicyId, members};
use crate::index::NodeId;

impl Engine {
    /// What changed since the last time.
    pub fn take_changes(&mut self) -> Changes {
        self.update_logging();
        self.translate_natives();
        let mut changes = Changes {
            nodes: std::mem::take(&mut self.dirty.nodes).into_iter().collect(),
            ..Changes::default()
        };
        changes.nodes.sort_unstable();
        let gone = self.take_gone(&mut changes.facts);
        let mut unused = Vec::new();
        let groups = self.update_groups(&mut unused);
        let policies = self.update_policies(&mut changes.facts);
        self.tell_groups(groups, &mut changes.objects);
        changes.objects.extend(policies);
        changes.objects.extend(gone);
        for id in unused {
            let group = &self.groups[id];
            if let Some(before) = group.told.clone() {
                changes.objects.push(Change {
                    kind: object_kind(group.kind),
                    name: group.name.to_string().into(),
                    id: ObjectId::Group(id),
                    before: Some(before),
                    after: None,
                    content: Content::Same,
                });
            }
            self.drop_group(id);
        }
        changes
    }

    /// Drops the policies that are gone.
    fn take_gone(&mut self, facts: &mut Vec<PolicyFacts>) -> Vec<Change> {
        let mut gone: Vec<PolicyId> = self.dirty.policies.iter().copied().collect();
        gone.retain(|id| self.policies[*id].state == State::Gone);
        gone.sort_unstable();
        let mut changes = Vec::new();
        for id in gone {
            self.dirty.policies.remove(&id);
            let policy = &self.policies[id];
            if let Some(before) = policy.told.clone() {
                changes.push(Change {
                    kind: ObjectKind::NetworkPolicy,
                    name: Arc::clone(&policy.uid),
                    id: ObjectId::Policy(id),
                    before: Some(before),
                    after: None,
                    content: Content::Same,
                });
            }
            if has_status(policy.kind) {
                facts.push(PolicyFacts { span: None, issues: Vec::new(), ..self.facts(id) });
            }
            self.drop_policy(id);
        }
        changes
    }

    /// Brings members up to date. Gives the groups with what changed in each.
    fn update_groups(&mut self, unused: &mut Vec<GroupId>) -> Vec<(GroupId, Content)> {
        let mut ids: FxHashSet<GroupId> = std::mem::take(&mut self.dirty.groups);
        let mut pending = std::mem::take(&mut self.dirty.members);
        ids.extend(pending.keys());
        let mut ids: Vec<GroupId> = ids.into_iter().collect();
        ids.sort_unstable();
        let mut updated = Vec::with_capacity(ids.len());
        for id in ids {
            let group = &self.groups[id];
            if group.policies.is_empty() {
                unused.push(id);
                continue;
            }
            let content = if group.told.is_none() {
                self.count_members(id);
                Content::Whole
            } else {
                match pending.remove(&id) {
                    Some(pending) => self.compare(id, pending),
                    None => Content::Same,
                }
            };
            if self.groups[id].kind == GroupKind::AppliedTo {
                let span = self.span_of_members(&self.groups[id]);
                if span != self.groups[id].span || self.groups[id].told.is_none() {
                    self.groups[id].span = span;
                    self.dirty.policies.extend(self.groups[id].policies.iter().copied());
                }
            }
            updated.push((id, content));
        }
        updated
    }

    /// Counts the members of a new group by Node.
    fn count_members(&mut self, id: GroupId) {
        let group = &self.groups[id];
        if group.kind != GroupKind::AppliedTo {
            return;
        }
        let mut nodes: Vec<NodeId> =
            self.pods_of(group).filter_map(|(_, record)| record.node()).collect();
        nodes.sort_unstable();
        let counts = nodes.chunk_by(|a, b| a == b);
        let counts = counts.map(|run| (run[0], u32::try_from(run.len()).unwrap_or(u32::MAX)));
        self.groups[id].members_by_node = counts.collect();
    }

    /// Compares members that may have changed with what they were.
    fn compare(&mut self, id: GroupId, pending: Pending) -> Content {
        let group = &self.groups[id];
        let kind = group.kind;
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for (pod, before) in pending.pods {
            let now = self.index.pod(pod).filter(|(cohort, record)| {
                members::fits(kind, record) && self.has_cohort(group, *cohort)
            });
            let now = now.map(|(_, record)| record);
            if let (Some(before), Some(now)) = (&before, now)
                && same(kind, before, now)
            {
                continue;
            }
            let member = |record: &crate::index::PodRecord| NodeMember {
                node: record.node(),
                member: pod_member(kind, record),
            };
            removed.extend(before.as_deref().map(member));
            added.extend(now.map(|now| member(now)));
        }
        for (node, before) in pending.nodes {
            let now = self.index.node(node).filter(|_| self.has_node(group, node));
            if before.as_ref() == now {
                continue;
            }
            let member = |record: &Arc<crate::index::NodeRecord>| NodeMember {
                node: Some(node),
                member: node_member(record),
            };
            removed.extend(before.as_ref().map(member));
            added.extend(now.map(member));
        }
        if added.is_empty() && removed.is_empty() {
            return Content::Same;
        }
        added.sort_by(|a, b| a.member.cmp(&b.member));
        removed.sort_by(|a, b| a.member.cmp(&b.member));
        if kind == GroupKind::AppliedTo {
            let group = &mut self.groups[id];
            removed.iter().filter_map(|member| member.node).for_each(|node| group.count_down(node));
            added.iter().filter_map(|member| member.node).for_each(|node| group.count_up(node));
        }
        Content::Members { added, removed }
    }

    /// Brings the spans of policies up to date. Gives the policies that changed.
    fn update_policies(&mut self, facts: &mut Vec<PolicyFacts>) -> Vec<Change> {
        let ids = std::mem::take(&mut self.dirty.policies);
        let mut ids: Vec<PolicyId> = ids.into_iter().collect();
        ids.sort_unstable();
        let mut changes = Vec::with_capacity(ids.len());
        for id in ids {
            let policy = &self.policies[id];
            let groups = policy.groups.iter().map(|id| &self.groups[*id]);
            let targets = groups.filter(|group| group.kind == GroupKind::AppliedTo);
            let span = Span::union(targets.map(|group| &group.span));
            let moved = span != policy.span;
            if moved {
                for group in self.policies[id].groups.clone() {
                    if self.groups[group].kind == GroupKind::Address {
                        self.dirty.groups.insert(group);
                    }
                }
            }
            let policy = &mut self.policies[id];
            let before = policy.told.replace(span.clone());
            let changed = std::mem::replace(&mut policy.state, State::Told) == State::Changed;
            policy.span = span.clone();
            if has_status(policy.kind) {
                facts.push(self.facts(id));
            }
            let content = match changed {
                true => Content::Whole,
                false if before.as_ref() == Some(&span) => continue,
                false => Content::Same,
            };
            changes.push(Change {
                kind: ObjectKind::NetworkPolicy,
                name: Arc::clone(&self.policies[id].uid),
                id: ObjectId::Policy(id),
                before,
                after: Some(span),
                content,
            });
        }
        changes
    }

    /// Brings the spans of groups up to date, and tells of the groups that changed.
    fn tell_groups(&mut self, mut updated: Vec<(GroupId, Content)>, changes: &mut Vec<Change>) {
        let again = std::mem::take(&mut self.dirty.groups);
        if !again.is_empty() {
            let known: FxHashSet<GroupId> = updated.iter().map(|(id, _)| *id).collect();
            let mut rest: Vec<GroupId> = again.difference(&known).copied().collect();
            rest.sort_unstable();
            updated.extend(rest.into_iter().map(|id| (id, Content::Same)));
        }
        for (id, content) in updated {
            let group = &self.groups[id];
            let span = match group.kind {
                GroupKind::AppliedTo => group.span.clone(),
                GroupKind::Address => {
                    Span::union(group.policies.iter().map(|id| &self.policies[*id].span))
                }
            };
            let group = &mut self.groups[id];
            group.span = span.clone();
            let before = group.told.replace(span.clone());
            if content == Content::Same && before.as_ref() == Some(&span) {
                continue;
            }
            changes.push(Change {
                kind: object_kind(group.kind),
                name: group.name.to_string().into(),
                id: ObjectId::Group(id),
                before,
                after: Some(span),
                content,
            });
        }
    }

    fn facts(&self, id: PolicyId) -> PolicyFacts {
        let policy = &self.policies[id];
        PolicyFacts {
            kind: policy.kind,
            uid: Arc::clone(&policy.uid),
            namespace: Arc::clone(&policy.namespace),
            name: Arc::clone(&policy.name),
            generation: policy.generation.unwrap_or_default(),
            span: Some(policy.span.clone()),
            issues: policy.issues.clone(),
        }
    }
}

/// Whether a kind of policy has a status of ours.
fn has_status(kind: PolicyKind) -> bool {
    matches!(kind, PolicyKind::Cluster | PolicyKind::Namespaced)
}

fn object_kind(kind: GroupKind) -> ObjectKind {
    match kind {
        GroupKind::AppliedTo => ObjectKind::AppliedToGroup,
        GroupKind::Address => ObjectKind::AddressGroup,
    }
}
