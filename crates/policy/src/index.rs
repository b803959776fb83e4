//! Which Pods a selector selects.
//!
//! Pods of one namespace with equal labels form a *cohort*; a selector is matched against cohorts,
//! never against Pods, and only against those that a label it needs leads to. A *scope* (one
//! namespace, or those that a namespace selector selects) and a Pod selector together are kept once
//! however many policies write them.
//!
//! Never here: what a group is called or who is told (`translate`). The caller asks for the effect
//! of a change of a namespace before it makes it, so that it can note what was.

mod cohorts;
mod labels;
mod nodes;
mod pod;
mod selector;
pub(crate) mod slab;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use hashbrown::HashTable;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

pub(crate) use cohorts::pack_labels;
pub use cohorts::{Cohort, Effect, Released, Scope};
pub use labels::Labels;
pub use nodes::{NodeInput, NodeRecord};
pub use pod::{NamedPort, PodId, PodInput, PodRecord, PortProtocol};
pub use selector::{SERVICE_ACCOUNT_LABEL, Selector, SelectorError};

use cohorts::{GroupSelector, NamespaceSelector};
use labels::{LabelSetId, LabelSets};
use nodes::NodeSlot;
use pod::PodSlot;
use slab::{Slab, ids};

ids! {
    /// Number of a namespace.
    pub NamespaceId;
    /// Number of a Node.
    pub NodeId;
    /// Number of a cohort.
    pub CohortId;
    /// Number of a namespace selector.
    pub NamespaceSelectorId;
    /// Number of a selector with its scope.
    pub SelectorId;
}

/// A few numbers, in place.
type Few<T> = SmallVec<[T; 4]>;

#[derive(Debug)]
struct Namespace {
    name: Arc<str>,
    /// Labels, once the namespace itself has been seen.
    labels: Option<LabelSetId>,
    log_policies: bool,
    cohorts: Vec<CohortId>,
    /// Users besides the namespace itself: Pods and whoever asked for its number.
    users: u32,
}

/// A namespace as the watch delivers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceInput {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Whether its annotation asks to log what Kubernetes' policies decide.
    pub log_policies: bool,
}

/// Pods, namespaces and selectors; see the module's text.
#[derive(Debug, Default)]
pub struct Index {
    label_sets: LabelSets,
    namespaces: Slab<NamespaceId, Namespace>,
    namespace_by_name: FxHashMap<Arc<str>, NamespaceId>,
    nodes: Vec<NodeSlot>,
    node_by_name: FxHashMap<Arc<str>, NodeId>,
    pods: Slab<PodId, PodSlot>,
    pod_by_name: HashTable<PodId>,
    port_sets: FxHashMap<Arc<[NamedPort]>, ()>,
    cohorts: Slab<CohortId, Cohort>,
    cohort_by_labels: FxHashMap<(NamespaceId, LabelSetId), CohortId>,
    cohorts_by_label: FxHashMap<(NamespaceId, u64), Few<CohortId>>,
    namespace_selectors: Slab<NamespaceSelectorId, NamespaceSelector>,
    namespace_selector_by_content: FxHashMap<Selector, NamespaceSelectorId>,
    selectors: Slab<SelectorId, GroupSelector>,
    selector_by_content: HashTable<SelectorId>,
    selectors_by_label: FxHashMap<(Scope, u64), Few<SelectorId>>,
}

/// Where a Pod was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The Pod.
    pub pod: PodId,
    /// Its cohort.
    pub cohort: CohortId,
}

impl Index {
    /// A Pod by name.
    pub fn find_pod(&self, namespace: &str, name: &str) -> Option<Placed> {
        let namespace = *self.namespace_by_name.get(namespace)?;
        self.find_pod_in(namespace, name)
    }

    fn find_pod_in(&self, namespace: NamespaceId, name: &str) -> Option<Placed> {
        let found = self.pod_by_name.find(pod_hash(namespace, name), |id| {
            let slot = &self.pods[*id];
            slot.namespace == namespace && *slot.record.name == *name
        });
        found.map(|id| Placed { pod: *id, cohort: self.pods[*id].cohort })
    }

    /// The cohort and record of a Pod; `None` when it went.
    pub fn pod(&self, id: PodId) -> Option<(CohortId, &Arc<PodRecord>)> {
        self.pods.get(id).map(|slot| (slot.cohort, &slot.record))
    }

    /// All Pods.
    pub fn pods(&self) -> impl Iterator<Item = (PodId, &Arc<PodRecord>)> {
        self.pods.iter().map(|(id, slot)| (id, &slot.record))
    }

    /// Adds a Pod, or changes the one of its name.
    pub fn upsert_pod(&mut self, input: PodInput) -> Placed {
        let namespace = self.use_namespace(&input.namespace);
        let labels = pack_pod_labels(&input);
        let record = Arc::new(self.mk_record(namespace, input));
        match self.find_pod_in(namespace, &record.name) {
            Some(there) => {
                self.release_namespace(namespace);
                let cohort = self.move_to_cohort(there, namespace, labels);
                self.move_to_node(there.pod, self.pods[there.pod].record.node, record.node);
                self.pods[there.pod].record = record;
                Placed { pod: there.pod, cohort }
            }
            None => {
                let cohort = self.cohort(namespace, labels);
                let hash = pod_hash(namespace, &record.name);
                let node = record.node;
                let pod = self.pods.insert(PodSlot { record, namespace, cohort, position: 0 });
                self.join(pod, cohort);
                self.move_to_node(pod, None, node);
                let pods = &self.pods;
                self.pod_by_name.insert_unique(hash, pod, |id| {
                    let slot = &pods[*id];
                    pod_hash(slot.namespace, &slot.record.name)
                });
                Placed { pod, cohort }
            }
        }
    }

    /// Forgets a Pod.
    pub fn remove_pod(&mut self, id: PodId) {
        let Some(slot) = self.pods.get(id) else { return };
        let (namespace, cohort) = (slot.namespace, slot.cohort);
        let hash = pod_hash(namespace, &slot.record.name);
        if let Ok(found) = self.pod_by_name.find_entry(hash, |own| *own == id) {
            found.remove();
        }
        self.leave(id, cohort);
        self.move_to_node(id, self.pods[id].record.node, None);
        self.pods.remove(id);
        self.release_namespace(namespace);
    }

    fn mk_record(&mut self, namespace: NamespaceId, input: PodInput) -> PodRecord {
        let node = match input.node.as_str() {
            "" => None,
            node => Some(self.node_id(node)),
        };
        PodRecord {
            name: input.name.into(),
            namespace: Arc::clone(&self.namespaces[namespace].name),
            node,
            ips: pod::Ips::new(input.ips),
            ports: self.port_set(input.ports),
            networked: !input.host_network && !input.finished,
        }
    }

    /// Pods of one Deployment share their ports.
    fn port_set(&mut self, mut ports: Vec<NamedPort>) -> Option<Arc<[NamedPort]>> {
        if ports.is_empty() {
            return None;
        }
        ports.sort();
        ports.dedup();
        if let Some((known, ())) = self.port_sets.get_key_value(ports.as_slice()) {
            return Some(Arc::clone(known));
        }
        if self.port_sets.len() >= 1024 {
            self.port_sets.retain(|set, ()| Arc::strong_count(set) > 1);
        }
        let set: Arc<[NamedPort]> = ports.into();
        self.port_sets.insert(Arc::clone(&set), ());
        Some(set)
    }

    /// The number of a namespace, for as long as the caller uses it.
    pub fn use_namespace(&mut self, name: &str) -> NamespaceId {
        let id = self.namespace_id(name);
        self.namespaces[id].users += 1;
        id
    }

    fn namespace_id(&mut self, name: &str) -> NamespaceId {
        if let Some(id) = self.namespace_by_name.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id = self.namespaces.insert(Namespace {
            name: Arc::clone(&name),
            labels: None,
            log_policies: false,
            cohorts: Vec::new(),
            users: 0,
        });
        self.namespace_by_name.insert(name, id);
        id
    }

    /// Ends a use of a namespace's number.
    pub fn release_namespace(&mut self, id: NamespaceId) {
        let namespace = &mut self.namespaces[id];
        namespace.users -= 1;
        self.drop_unused_namespace(id);
    }

    fn drop_unused_namespace(&mut self, id: NamespaceId) {
        let namespace = &self.namespaces[id];
        if namespace.users == 0 && namespace.labels.is_none() {
            self.namespace_by_name.remove(&namespace.name);
            self.namespaces.remove(id);
        }
    }

    /// A namespace's name.
    pub fn namespace_name(&self, id: NamespaceId) -> &str {
        &self.namespaces[id].name
    }

    /// A namespace that has been seen, by name.
    pub fn find_namespace(&self, name: &str) -> Option<NamespaceId> {
        let id = *self.namespace_by_name.get(name)?;
        self.namespaces[id].labels.is_some().then_some(id)
    }

    /// Labels of a namespace, once it has been seen.
    pub fn namespace_labels(&self, id: NamespaceId) -> Option<&Labels> {
        self.namespaces[id].labels.map(|labels| self.label_sets.get(labels))
    }

    /// Whether a namespace asks to log what Kubernetes' policies decide.
    pub fn logs_policies(&self, id: NamespaceId) -> bool {
        self.namespaces[id].log_policies
    }

    /// The namespaces that have been seen.
    pub fn namespaces(&self) -> impl Iterator<Item = (NamespaceId, &str, &Labels)> {
        self.namespaces.iter().filter_map(|(id, namespace)| {
            Some((id, &*namespace.name, self.label_sets.get(namespace.labels?)))
        })
    }
}

fn pod_hash(namespace: NamespaceId, name: &str) -> u64 {
    use std::hash::BuildHasher;
    rustc_hash::FxBuildHasher.hash_one((namespace, name))
}

fn pack_pod_labels(input: &PodInput) -> Labels {
    let labels = input.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let account = input.service_account.as_str();
    let account = (!account.is_empty()).then_some((SERVICE_ACCOUNT_LABEL, account));
    Labels::pack(labels.chain(account))
}
