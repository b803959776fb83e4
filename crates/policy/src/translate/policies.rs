//! Policies: what is kept of each, and how a translation takes the place of the one before.

use std::hash::BuildHasher;
use std::sync::Arc;

use apis::controlplane::{NetworkPolicy, PolicyType, wire};
use bytes::Bytes;
use k8s_openapi::api::networking::v1::NetworkPolicy as K8sPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rustc_hash::FxBuildHasher;
use smallvec::SmallVec;

use super::draft::{Draft, Issue};
use super::event::PolicyKind;
use super::span::Span;
use super::{Engine, GroupId, PolicyId, k8s};

/// Numbers of groups: a policy mostly has one of each kind.
type Groups = SmallVec<[GroupId; 2]>;

#[derive(Debug)]
pub(super) struct Policy {
    pub(super) kind: PolicyKind,
    pub(super) uid: Arc<str>,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) generation: Option<i64>,
    pub(super) created: Option<i64>,
    /// What agents are told, encoded, without metadata: the smallest form there is.
    pub(super) body: Bytes,
    pub(super) groups: Groups,
    pub(super) issues: Vec<Issue>,
    pub(super) span: Span,
    /// The span that was told last; `None` before the first time.
    pub(super) told: Option<Span>,
    pub(super) state: State,
}

/// What has to be told of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing, unless its span changes.
    Told,
    /// Its content.
    Changed,
    /// That it is gone.
    Gone,
}

impl PolicyKind {
    /// The kind that a source is of.
    pub(super) fn of(type_: &PolicyType) -> Self {
        match type_ {
            PolicyType::AntreaClusterNetworkPolicy => Self::Cluster,
            PolicyType::AntreaNetworkPolicy => Self::Namespaced,
            PolicyType::K8sClusterNetworkPolicy => Self::Upstream,
            _ => Self::K8s,
        }
    }
}

fn encode(body: &NetworkPolicy) -> Bytes {
    wire::encode_message(body).into_boxed_slice().into()
}

/// A policy from its encoded body.
pub(super) fn decode(body: &[u8]) -> NetworkPolicy {
    wire::decode_message(body).expect("the body was encoded by the same code")
}

fn uid_hash(kind: PolicyKind, uid: &str) -> u64 {
    FxBuildHasher.hash_one((kind, uid))
}

fn name_hash(kind: PolicyKind, namespace: &str, name: &str) -> u64 {
    FxBuildHasher.hash_one((kind, namespace, name))
}

impl Engine {
    pub(super) fn upsert_k8s_policy(&mut self, policy: &K8sPolicy) {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let namespace = self.index.find_namespace(namespace);
        let logging = match namespace.is_some_and(|id| self.index.logs_policies(id)) {
            true => k8s::Logging::On,
            false => k8s::Logging::Off,
        };
        self.install(k8s::translate(policy, logging));
    }

    pub(super) fn find_policy(&self, kind: PolicyKind, uid: &str) -> Option<PolicyId> {
        let found = self.policy_by_uid.find(uid_hash(kind, uid), |id| {
            let policy = &self.policies[*id];
            policy.kind == kind && *policy.uid == *uid
        });
        found.copied()
    }

    pub(super) fn find_policy_by_name(
        &self,
        kind: PolicyKind,
        namespace: &str,
        name: &str,
    ) -> Option<PolicyId> {
        let found = self.policy_by_name.find(name_hash(kind, namespace, name), |id| {
            let policy = &self.policies[*id];
            policy.kind == kind
                && *policy.namespace == *namespace
                && *policy.name == *name
                && policy.state != State::Gone
        });
        found.copied()
    }

    pub(super) fn remove_policy(&mut self, kind: PolicyKind, uid: &str) {
        self.natives.forget(kind, uid);
        if let Some(id) = self.find_policy(kind, uid) {
            self.mark_gone(id);
        }
    }

    fn mark_gone(&mut self, id: PolicyId) {
        self.policies[id].state = State::Gone;
        self.dirty.policies.insert(id);
    }

    /// Puts a translation in place.
    pub(super) fn install(&mut self, draft: Draft) {
        let kind = PolicyKind::of(&draft.source.type_);
        let (namespace, name) = (draft.source.namespace.as_str(), draft.source.name.as_str());
        // An object of the same name is another one, deleted unseen.
        if let Some(old) = self.find_policy_by_name(kind, namespace, name)
            && *self.policies[old].uid != *draft.source.uid
        {
            let uid = Arc::clone(&self.policies[old].uid);
            self.natives.forget(kind, &uid);
            self.mark_gone(old);
        }
        let id = match self.find_policy(kind, &draft.source.uid) {
            Some(id) => id,
            None => self.add_policy(kind, &draft),
        };
        let mut draft = draft;
        if draft.is_refused() {
            draft.rules.clear();
            draft.applied_to.clear();
            draft.groups.clear();
        }
        let mut groups = Groups::new();
        for reference in draft.groups {
            let group = self.use_group(reference, id);
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        for group in std::mem::take(&mut self.policies[id].groups) {
            if !groups.contains(&group) {
                self.release_group(group, id);
            }
        }
        let body = encode(&NetworkPolicy {
            metadata: ObjectMeta::default(),
            rules: draft.rules,
            applied_to_groups: draft.applied_to,
            priority: draft.priority,
            tier_priority: draft.tier_priority,
            source_ref: Some(draft.source),
        });
        let policy = &mut self.policies[id];
        policy.groups = groups;
        let same = policy.body == body && policy.generation == draft.generation;
        if policy.state == State::Gone || !same {
            policy.state = State::Changed;
            policy.body = body;
            policy.generation = draft.generation;
        }
        policy.issues = draft.issues;
        self.dirty.policies.insert(id);
    }

    fn add_policy(&mut self, kind: PolicyKind, draft: &Draft) -> PolicyId {
        let namespace = self.shared(&draft.source.namespace);
        let policy = Policy {
            kind,
            uid: draft.source.uid.as_str().into(),
            namespace,
            name: draft.source.name.as_str().into(),
            generation: None,
            created: draft.created,
            body: Bytes::new(),
            groups: Groups::new(),
            issues: Vec::new(),
            span: Span::default(),
            told: None,
            state: State::Changed,
        };
        let by_uid = uid_hash(kind, &policy.uid);
        let by_name = name_hash(kind, &policy.namespace, &policy.name);
        let id = self.policies.insert(policy);
        let policies = &self.policies;
        self.policy_by_uid.insert_unique(by_uid, id, |id| {
            let policy = &policies[*id];
            uid_hash(policy.kind, &policy.uid)
        });
        self.policy_by_name.insert_unique(by_name, id, |id| {
            let policy = &policies[*id];
            name_hash(policy.kind, &policy.namespace, &policy.name)
        });
        id
    }

    /// Forgets a policy that is gone.
    pub(super) fn drop_policy(&mut self, id: PolicyId) {
        for group in std::mem::take(&mut self.policies[id].groups) {
            self.release_group(group, id);
        }
        let Some(policy) = self.policies.remove(id) else { return };
        let by_uid = uid_hash(policy.kind, &policy.uid);
        let by_name = name_hash(policy.kind, &policy.namespace, &policy.name);
        for (table, hash) in
            [(&mut self.policy_by_uid, by_uid), (&mut self.policy_by_name, by_name)]
        {
            if let Ok(found) = table.find_entry(hash, |own| *own == id) {
                found.remove();
            }
        }
    }

    /// Sets whether the policies of some namespaces log, as their annotation now says.
    pub(super) fn update_logging(&mut self) {
        let namespaces = std::mem::take(&mut self.dirty.logging);
        if namespaces.is_empty() {
            return;
        }
        let mut changed = Vec::new();
        for (id, policy) in self.policies.iter() {
            if policy.kind == PolicyKind::K8s && namespaces.contains(&policy.namespace) {
                let namespace = self.index.find_namespace(&policy.namespace);
                let wanted = namespace.is_some_and(|id| self.index.logs_policies(id));
                changed.push((id, wanted));
            }
        }
        for (id, wanted) in changed {
            let policy = &mut self.policies[id];
            let mut body = decode(&policy.body);
            if body.rules.iter().all(|rule| rule.enable_logging == wanted) {
                continue;
            }
            for rule in &mut body.rules {
                rule.enable_logging = wanted;
            }
            policy.body = encode(&body);
            if policy.state == State::Told {
                policy.state = State::Changed;
            }
            self.dirty.policies.insert(id);
        }
    }

    /// A namespace's name, shared by its policies.
    fn shared(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}
