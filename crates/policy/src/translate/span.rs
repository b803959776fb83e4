//! Which Nodes an object is for.

use std::sync::Arc;

use crate::index::NodeId;

/// A set of Nodes. Copies are cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span(Arc<[NodeId]>);

impl Default for Span {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

impl Span {
    /// Whether a Node is in it.
    pub fn contains(&self, node: NodeId) -> bool {
        self.0.binary_search(&node).is_ok()
    }

    /// The Nodes, ordered by number.
    pub fn nodes(&self) -> &[NodeId] {
        &self.0
    }

    /// How many Nodes are in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no Node is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The Nodes that are in it and not in the other.
    pub fn minus<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = NodeId> + 'a {
        self.0.iter().copied().filter(|node| !other.contains(*node))
    }

    /// The Nodes of all of them.
    pub(super) fn union<'a>(spans: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut distinct: Vec<&Self> = Vec::new();
        for span in spans {
            // Thousands of policies may share the span of one group.
            let known = distinct.iter().rev().take(8).any(|own| Arc::ptr_eq(&own.0, &span.0));
            if !span.is_empty() && !known {
                distinct.push(span);
            }
        }
        match distinct.as_slice() {
            [] => Self::default(),
            [one] => (*one).clone(),
            many => {
                let mut nodes: Vec<NodeId> =
                    many.iter().flat_map(|span| span.nodes()).copied().collect();
                nodes.sort_unstable();
                nodes.dedup();
                Self(nodes.into())
            }
        }
    }
}

impl FromIterator<NodeId> for Span {
    /// From Nodes in order.
    fn from_iter<T: IntoIterator<Item = NodeId>>(nodes: T) -> Self {
        let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
        nodes.sort_unstable();
        nodes.dedup();
        if nodes.is_empty() { Self::default() } else { Self(nodes.into()) }
    }
}
