//! What a user's policy comes to before groups have numbers: rules by group name, and the groups.

use std::collections::BTreeSet;

use apis::controlplane::{NetworkPolicyReference, NetworkPolicyRule, ObjectName};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::name::GroupName;
use crate::index::Selector;

/// For what a group is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GroupKind {
    /// Targets of policies.
    AppliedTo,
    /// Peers of rules.
    Address,
}

/// The namespaces of a selector, by name or labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScopeSpec {
    Namespace(Box<str>),
    Namespaces(Selector),
}

/// Pods by namespace and labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PodsSpec {
    pub(super) scope: ScopeSpec,
    pub(super) pods: Selector,
}

impl PodsSpec {
    pub(super) fn name(&self) -> GroupName {
        match &self.scope {
            ScopeSpec::Namespace(namespace) => GroupName::of_namespace(namespace, &self.pods),
            ScopeSpec::Namespaces(selector) => GroupName::of_namespaces(selector, &self.pods),
        }
    }
}

/// Who belongs to a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupSource {
    pub(super) pods: Vec<PodsSpec>,
    pub(super) nodes: Vec<Selector>,
    /// A Service as a target: every Node serves its NodePorts.
    pub(super) service: Option<ObjectName>,
}

/// A group that a policy refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupRef {
    pub(super) kind: GroupKind,
    pub(super) name: GroupName,
    pub(super) source: GroupSource,
}

/// Something in a policy that cannot be done as written; what it is about matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issue {
    /// Where in the policy.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What it means for the policy.
    pub severity: Severity,
}

/// What an issue means for a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// A part of it matches nothing; the rest is realized.
    Part,
    /// None of it is realized.
    Whole,
}

/// What a policy's translation was made from besides the policy itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) tier: Option<Box<str>>,
    /// Groups by namespace (empty for ClusterGroups) and name, with their children.
    pub(super) groups: BTreeSet<(Box<str>, Box<str>)>,
    /// Whether it looked at the namespaces of the cluster.
    pub(super) namespaces: bool,
}

/// A translated policy.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) source: NetworkPolicyReference,
    pub(super) generation: Option<i64>,
    /// When the user's object was made, in seconds since 1970.
    pub(super) created: Option<i64>,
    pub(super) rules: Vec<NetworkPolicyRule>,
    pub(super) applied_to: Vec<String>,
    pub(super) priority: Option<f64>,
    pub(super) tier_priority: Option<i32>,
    pub(super) groups: Vec<GroupRef>,
    pub(super) issues: Vec<Issue>,
    pub(super) needs: Needs,
}

impl Draft {
    pub(super) fn new(source: NetworkPolicyReference, metadata: &ObjectMeta) -> Self {
        Self {
            source,
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()),
            rules: Vec::new(),
            applied_to: Vec::new(),
            priority: None,
            tier_priority: None,
            groups: Vec::new(),
            issues: Vec::new(),
            needs: Needs::default(),
        }
    }

    /// Refers to a group; gives its name.
    pub(super) fn refer(
        &mut self,
        kind: GroupKind,
        name: GroupName,
        source: GroupSource,
    ) -> String {
        let text = name.to_string();
        if !self.groups.iter().any(|own| own.kind == kind && own.name == name) {
            self.groups.push(GroupRef { kind, name, source });
        }
        text
    }

    /// Refers to the group of a selector; gives its name.
    pub(super) fn refer_pods(&mut self, kind: GroupKind, spec: PodsSpec) -> String {
        let name = spec.name();
        self.refer(kind, name, GroupSource { pods: vec![spec], ..GroupSource::default() })
    }

    /// Reports a part that matches nothing.
    pub(super) fn report(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let (field, message) = (field.into(), message.into());
        self.issues.push(Issue { field, message, severity: Severity::Part });
    }

    /// Gives up the whole policy.
    pub(super) fn refuse(&mut self, field: impl Into<String>, message: impl Into<String>) {
        let (field, message) = (field.into(), message.into());
        self.issues.push(Issue { field, message, severity: Severity::Whole });
    }

    pub(super) fn is_refused(&self) -> bool {
        self.issues.iter().any(|issue| issue.severity == Severity::Whole)
    }
}
