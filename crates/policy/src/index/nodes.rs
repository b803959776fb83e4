//! Nodes: names that Pods refer to, and what Node selectors need of them.

use std::net::IpAddr;
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::labels::Labels;
use super::pod::PodId;
use super::selector::Selector;
use super::{Index, NodeId};

/// A Node as the watch delivers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInput {
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
}

/// What a group member tells of a Node.
#[derive(Debug, PartialEq, Eq)]
pub struct NodeRecord {
    name: Arc<str>,
    ips: Box<[IpAddr]>,
}

impl NodeRecord {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its addresses, in order.
    pub fn ips(&self) -> &[IpAddr] {
        &self.ips
    }
}

/// A Node's place; Nodes keep their number for ever, as there are few names.
#[derive(Debug)]
pub(super) struct NodeSlot {
    name: Arc<str>,
    pods: FxHashSet<PodId>,
    seen: Option<(Labels, Arc<NodeRecord>)>,
}

impl Index {
    /// The number of a Node's name.
    pub fn node_id(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.node_by_name.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let id = NodeId(u32::try_from(self.nodes.len()).expect("Nodes are few"));
        self.nodes.push(NodeSlot {
            name: Arc::clone(&name),
            pods: FxHashSet::default(),
            seen: None,
        });
        self.node_by_name.insert(name, id);
        id
    }

    /// The number of a Node's name, if anything has it.
    pub fn find_node(&self, name: &str) -> Option<NodeId> {
        self.node_by_name.get(name).copied()
    }

    /// A Node's name.
    pub fn node_name(&self, id: NodeId) -> &Arc<str> {
        &self.nodes[id.0 as usize].name
    }

    /// A Node that has been seen.
    pub fn node(&self, id: NodeId) -> Option<&Arc<NodeRecord>> {
        self.nodes.get(id.0 as usize)?.seen.as_ref().map(|(_, record)| record)
    }

    /// Adds a Node, or changes the one of its name.
    pub fn upsert_node(&mut self, input: &NodeInput) -> NodeId {
        let id = self.node_id(&input.name);
        let mut ips = input.ips.clone();
        ips.sort();
        ips.dedup();
        let labels = input.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let slot = &mut self.nodes[id.0 as usize];
        let record = NodeRecord { name: Arc::clone(&slot.name), ips: ips.into() };
        slot.seen = Some((Labels::pack(labels), Arc::new(record)));
        id
    }

    /// Forgets a Node.
    pub fn remove_node(&mut self, id: NodeId) {
        if let Some(slot) = self.nodes.get_mut(id.0 as usize) {
            slot.seen = None;
        }
    }

    /// Every Node that anything has named.
    pub fn all_nodes(&self) -> impl Iterator<Item = NodeId> {
        (0u32..).zip(&self.nodes).map(|(id, _)| NodeId(id))
    }

    /// The Pods that are scheduled to a Node.
    pub fn pods_on(&self, id: NodeId) -> impl Iterator<Item = PodId> {
        self.nodes.get(id.0 as usize).into_iter().flat_map(|slot| slot.pods.iter().copied())
    }

    pub(super) fn move_to_node(&mut self, pod: PodId, from: Option<NodeId>, to: Option<NodeId>) {
        if from == to {
            return;
        }
        if let Some(from) = from {
            self.nodes[from.0 as usize].pods.remove(&pod);
        }
        if let Some(to) = to {
            self.nodes[to.0 as usize].pods.insert(pod);
        }
    }

    /// Whether a selector selects a Node that has been seen.
    pub fn selects_node(&self, selector: &Selector, id: NodeId) -> bool {
        let seen = self.nodes.get(id.0 as usize).and_then(|slot| slot.seen.as_ref());
        seen.is_some_and(|(labels, _)| selector.matches(labels))
    }

    /// The Nodes that have been seen.
    pub fn seen_nodes(&self) -> impl Iterator<Item = NodeId> + Clone {
        (0u32..).zip(&self.nodes).filter(|(_, slot)| slot.seen.is_some()).map(|(id, _)| NodeId(id))
    }
}
