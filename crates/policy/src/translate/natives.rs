//! Antrea's own policies and Kubernetes' ClusterNetworkPolicy: kept as the user wrote them, and
//! translated again when something that they name changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::policy::{
    ClusterNetworkPolicy, GroupSpec, IpBlock, NetworkPolicy, NetworkPolicySpec, SYSTEM_TIERS,
};
use apis::upstream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use rustc_hash::{FxHashMap, FxHashSet};

use super::draft::{GroupSource, Needs, PodsSpec, ScopeSpec};
use super::event::PolicyKind;
use super::traffic::ip_block;
use super::{Engine, antrea, upstream as cluster};
use crate::index::{Index, Selector};

/// Namespace (empty for a ClusterGroup) and name of a group that a user named.
pub(super) type NamedKey = (Box<str>, Box<str>);

/// What natives are translated with, besides the index.
#[derive(Debug, Default)]
pub(super) struct Natives {
    sources: FxHashMap<(PolicyKind, Arc<str>), Native>,
    by_name: FxHashMap<(PolicyKind, String, Option<String>), Arc<str>>,
    tiers: BTreeMap<Box<str>, i32>,
    named: BTreeMap<NamedKey, Arc<GroupSpec>>,
    dirty: DirtyNatives,
}

#[derive(Debug, Default)]
struct DirtyNatives {
    sources: FxHashSet<(PolicyKind, Arc<str>)>,
    tiers: BTreeSet<Box<str>>,
    named: BTreeSet<NamedKey>,
    namespaces: bool,
}

#[derive(Debug)]
struct Native {
    source: Source,
    needs: Needs,
}

/// A policy as its user wrote it.
#[derive(Clone, Debug)]
enum Source {
    Antrea(Arc<(ObjectMeta, NetworkPolicySpec)>),
    Upstream(Arc<upstream::ClusterNetworkPolicy>),
}

impl Source {
    fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Antrea(parts) => &parts.0,
            Self::Upstream(policy) => &policy.metadata,
        }
    }
}

impl Natives {
    /// Notes that a namespace is new, gone or labelled anew.
    pub(super) fn namespaces_changed(&mut self) {
        self.dirty.namespaces = true;
    }

    /// UIDs of the policies of a kind.
    pub(super) fn uids(&self, kind: PolicyKind) -> impl Iterator<Item = &str> {
        self.sources.keys().filter(move |(own, _)| *own == kind).map(|(_, uid)| &**uid)
    }

    pub(super) fn tier_names(&self) -> impl Iterator<Item = &str> {
        self.tiers.keys().map(|name| &**name)
    }

    pub(super) fn group_names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.named.keys().map(|(namespace, name)| (&**namespace, &**name))
    }

    pub(super) fn forget(&mut self, kind: PolicyKind, uid: &str) {
        let key = (kind, uid.into());
        if let Some(gone) = self.sources.remove(&key) {
            let meta = gone.source.metadata();
            let name = (kind, meta.namespace.clone().unwrap_or_default(), meta.name.clone());
            if self.by_name.get(&name) == Some(&key.1) {
                self.by_name.remove(&name);
            }
        }
        self.dirty.sources.remove(&key);
    }

    fn put(&mut self, kind: PolicyKind, uid: Option<&str>, source: Source) {
        let key: (PolicyKind, Arc<str>) = (kind, Arc::from(uid.unwrap_or_default()));
        let meta = source.metadata();
        let name = (kind, meta.namespace.clone().unwrap_or_default(), meta.name.clone());
        if let Some(other) = self.by_name.insert(name, Arc::clone(&key.1))
            && other != key.1
        {
            // An object of the same name is another one, deleted unseen.
            let other = (kind, other);
            self.sources.remove(&other);
            self.dirty.sources.remove(&other);
        }
        self.dirty.sources.insert(key.clone());
        self.sources.insert(key, Native { source, needs: Needs::default() });
    }

    /// The policies that must be translated again.
    fn take_dirty(&mut self) -> Vec<(PolicyKind, Arc<str>)> {
        let dirty = std::mem::take(&mut self.dirty);
        let mut keys = dirty.sources;
        if dirty.namespaces || !dirty.tiers.is_empty() || !dirty.named.is_empty() {
            for (key, native) in &self.sources {
                let needs = &native.needs;
                let needed = (dirty.namespaces && needs.namespaces)
                    || needs.tier.as_ref().is_some_and(|tier| dirty.tiers.contains(tier))
                    || needs.groups.iter().any(|group| dirty.named.contains(group));
                if needed {
                    keys.insert(key.clone());
                }
            }
        }
        let mut keys: Vec<_> = keys.into_iter().collect();
        keys.sort();
        keys
    }

    /// The priority of a tier. Those of the system are there before their objects are.
    pub(super) fn tier(&self, name: &str) -> Option<i32> {
        if let Some(priority) = self.tiers.get(name) {
            return Some(*priority);
        }
        // Once they had capital letters.
        let mut system = SYSTEM_TIERS.iter();
        system.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, priority)| *priority)
    }

    /// What a group that a user named stands for.
    pub(super) fn resolve(&self, namespace: &str, name: &str, needs: &mut Needs) -> Resolved {
        let mut resolved = Resolved::default();
        let Some(spec) = self.lookup(namespace, name, needs) else {
            resolved.problem(format!("there is no group {name:?}"));
            return resolved;
        };
        if spec.child_groups.is_empty() {
            resolved.add(namespace, &spec);
            return resolved;
        }
        for child in &spec.child_groups {
            match self.lookup(namespace, child, needs) {
                None => resolved.problem(format!("there is no group {child:?}")),
                Some(spec) if spec.child_groups.is_empty() => resolved.add(namespace, &spec),
                Some(_) => resolved.problem(format!("child group {child:?} has children itself")),
            }
        }
        resolved.source.pods.sort();
        resolved.source.pods.dedup();
        resolved.source.nodes.sort();
        resolved.source.nodes.dedup();
        resolved
    }

    fn lookup(&self, namespace: &str, name: &str, needs: &mut Needs) -> Option<Arc<GroupSpec>> {
        let key: NamedKey = (namespace.into(), name.into());
        let spec = self.named.get(&key).cloned();
        needs.groups.insert(key);
        spec
    }
}

/// What a named group stands for.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) source: GroupSource,
    pub(super) ip_blocks: Vec<apis::controlplane::IpBlock>,
    pub(super) problems: Vec<String>,
}

impl Resolved {
    fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    fn add(&mut self, namespace: &str, spec: &GroupSpec) {
        if let Err(error) = self.try_add(namespace, spec) {
            self.problem(error);
        }
    }

    fn try_add(&mut self, namespace: &str, spec: &GroupSpec) -> Result<(), String> {
        if spec.external_entity_selector.is_some() {
            return Err("externalEntitySelector is not supported yet".into());
        }
        if spec.service_reference.is_some() {
            return Err("serviceReference is not supported yet".into());
        }
        let selects = spec.pod_selector.is_some() || spec.namespace_selector.is_some();
        let kinds = [selects, spec.node_selector.is_some(), !spec.ip_blocks.is_empty()];
        if kinds.iter().filter(|set| **set).count() > 1 {
            return Err("the group mixes kinds of members".into());
        }
        if selects {
            let pods =
                pods_spec(namespace, spec.pod_selector.as_ref(), spec.namespace_selector.as_ref())?;
            self.source.pods.push(pods);
        }
        if let Some(selector) = &spec.node_selector {
            if !namespace.is_empty() {
                return Err("nodeSelector is for ClusterGroups".into());
            }
            self.source.nodes.push(compile(selector)?);
        }
        for IpBlock { cidr, except } in &spec.ip_blocks {
            match ip_block(cidr, except.iter().map(String::as_str)) {
                Ok(block) => self.ip_blocks.push(block),
                Err(error) => self.problem(format!("ipBlocks: {error}")),
            }
        }
        Ok(())
    }
}

/// Compiles a selector of the API.
pub(super) fn compile(selector: &LabelSelector) -> Result<Selector, String> {
    Selector::compile(selector).map_err(|error| error.to_string())
}

/// Pods by selectors, in a namespace unless a namespace selector says otherwise; without a
/// namespace, in all of them.
pub(super) fn pods_spec(
    namespace: &str,
    pods: Option<&LabelSelector>,
    namespaces: Option<&LabelSelector>,
) -> Result<PodsSpec, String> {
    let pods = pods.map_or_else(|| Ok(Selector::everything()), compile)?;
    let scope = match (namespaces, namespace) {
        (Some(selector), _) => ScopeSpec::Namespaces(compile(selector)?),
        (None, "") => ScopeSpec::Namespaces(Selector::everything()),
        (None, namespace) => ScopeSpec::Namespace(namespace.into()),
    };
    Ok(PodsSpec { scope, pods })
}

impl Engine {
    /// Names and priorities of the tiers that have objects.
    pub fn all_tiers(&self) -> impl Iterator<Item = (&str, i32)> {
        self.natives.tiers.iter().map(|(name, priority)| (&**name, *priority))
    }

    /// Whether a policy is of a tier.
    pub fn uses_tier(&self, tier: &str) -> bool {
        self.natives.sources.values().any(|native| match &native.source {
            Source::Antrea(parts) => parts.1.tier.as_deref() == Some(tier),
            Source::Upstream(_) => false,
        })
    }

    /// What a Group is (a ClusterGroup where the namespace is empty).
    pub fn group_spec(&self, namespace: &str, name: &str) -> Option<&GroupSpec> {
        self.natives.named.get(&(namespace.into(), name.into())).map(|spec| &**spec)
    }

    /// A group that has another as a child.
    pub fn parent_group(&self, namespace: &str, name: &str) -> Option<&str> {
        let mut all = self.natives.named.iter();
        let parent = all.find(|((own, _), spec)| {
            **own == *namespace && spec.child_groups.iter().any(|child| child == name)
        });
        parent.map(|((_, parent), _)| &**parent)
    }
}

/// What a translation may look at.
pub(super) struct Context<'a> {
    pub(super) index: &'a Index,
    pub(super) natives: &'a Natives,
}

impl Engine {
    pub(super) fn upsert_cluster_policy(&mut self, policy: ClusterNetworkPolicy) {
        let uid = policy.metadata.uid.clone();
        let source = Source::Antrea(Arc::new((policy.metadata, policy.spec)));
        self.natives.put(PolicyKind::Cluster, uid.as_deref(), source);
    }

    pub(super) fn upsert_namespaced_policy(&mut self, policy: NetworkPolicy) {
        let uid = policy.metadata.uid.clone();
        let source = Source::Antrea(Arc::new((policy.metadata, policy.spec)));
        self.natives.put(PolicyKind::Namespaced, uid.as_deref(), source);
    }

    pub(super) fn upsert_upstream_policy(&mut self, policy: upstream::ClusterNetworkPolicy) {
        let uid = policy.metadata.uid.clone();
        self.natives.put(PolicyKind::Upstream, uid.as_deref(), Source::Upstream(Arc::new(policy)));
    }

    pub(super) fn set_tier(&mut self, name: &str, priority: Option<i32>) {
        let before = match priority {
            Some(priority) => self.natives.tiers.insert(name.into(), priority),
            None => self.natives.tiers.remove(name),
        };
        if before != priority {
            self.natives.dirty.tiers.insert(name.into());
        }
    }

    pub(super) fn set_named(&mut self, namespace: &str, name: &str, spec: Option<GroupSpec>) {
        let key: NamedKey = (namespace.into(), name.into());
        match spec {
            Some(spec) => {
                let known = self.natives.named.insert(key.clone(), Arc::new(spec));
                if known == self.natives.named.get(&key).cloned() {
                    return;
                }
            }
            None => {
                if self.natives.named.remove(&key).is_none() {
                    return;
                }
            }
        }
        self.natives.dirty.named.insert(key);
    }

    /// Translates the policies for which something changed.
    pub(super) fn translate_natives(&mut self) {
        for (kind, uid) in self.natives.take_dirty() {
            let key = (kind, uid);
            let Some(native) = self.natives.sources.get(&key) else { continue };
            let source = native.source.clone();
            let context = Context { index: &self.index, natives: &self.natives };
            let draft = match &source {
                Source::Antrea(parts) => antrea::translate(&context, kind, &parts.0, &parts.1),
                Source::Upstream(policy) => cluster::translate(policy),
            };
            if let Some(native) = self.natives.sources.get_mut(&key) {
                native.needs = draft.needs.clone();
            }
            self.install(draft);
        }
    }
}
