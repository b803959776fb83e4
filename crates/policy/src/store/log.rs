//! The last changes of one kind of object, and what each is in a reader's eyes.

use std::collections::VecDeque;
use std::sync::Arc;

use apis::controlplane::GroupMember;
use rustc_hash::FxHashMap;

use super::{CountError, Deltas, Item, Reader};
use crate::index::NodeId;
use crate::translate::{Change, Content, NodeMember, ObjectKind, Span};

/// What a change is for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaKind {
    /// The object is new to it; `item` is the whole of it.
    Added,
    /// The object changed; `item` is the whole of a policy, the patch of a group.
    Modified,
    /// The object is not for it any more; `item` has only its name.
    Deleted,
}

/// A change in a reader's eyes.
#[derive(Clone, Debug)]
pub struct Delta {
    /// What it is.
    pub kind: DeltaKind,
    /// What is told of the object.
    pub item: Arc<Item>,
}

/// A change with everything that some reader may be told of it.
#[derive(Debug)]
pub(super) struct Entry {
    count: u32,
    pub(super) kind: ObjectKind,
    before: Option<Span>,
    after: Option<Span>,
    changed: bool,
    bare: Arc<Item>,
    /// The whole object, for those to whom it is new (or any reader, if it is a policy).
    pub(super) whole: Option<Arc<Item>>,
    /// What changed in a group, for those who see all of it.
    pub(super) patch: Option<Arc<Item>>,
    /// What is new or changed on each Node, in a group of targets.
    pub(super) by_node: FxHashMap<NodeId, Arc<Item>>,
}

impl Entry {
    pub(super) fn new(count: u32, change: &Change) -> Self {
        Self {
            count,
            kind: change.kind,
            before: change.before.clone(),
            after: change.after.clone(),
            changed: change.content != Content::Same,
            bare: Arc::new(Item::bare(change.kind, &change.name, count)),
            whole: None,
            patch: None,
            by_node: FxHashMap::default(),
        }
    }

    /// Splits a change of members by Node.
    pub(super) fn split(
        &mut self,
        added: Vec<NodeMember>,
        removed: Vec<NodeMember>,
        name: &Arc<str>,
    ) {
        #[derive(Default)]
        struct Part {
            added: Vec<GroupMember>,
            removed: Vec<GroupMember>,
        }
        let mut all = Part::default();
        let mut parts: FxHashMap<NodeId, Part> = FxHashMap::default();
        for member in added {
            all.added.push(member.member.clone());
            if let Some(node) = member.node {
                parts.entry(node).or_default().added.push(member.member);
            }
        }
        for member in removed {
            all.removed.push(member.member.clone());
            if let Some(node) = member.node {
                parts.entry(node).or_default().removed.push(member.member);
            }
        }
        let patch = |part: Part| {
            Arc::new(Item::patch(self.kind, name, self.count, part.added, part.removed))
        };
        self.patch = Some(patch(all));
        for (node, part) in parts {
            // For a Node that is new to the group the whole of its share is there already.
            self.by_node.entry(node).or_insert_with(|| patch(part));
        }
    }

    fn delta(&self, reader: Reader) -> Option<Delta> {
        let (was, is) = match reader {
            Reader::Stranger => return None,
            Reader::All => (self.before.is_some(), self.after.is_some()),
            Reader::Node(node) => {
                let sees =
                    |span: &Option<Span>| span.as_ref().is_some_and(|span| span.contains(node));
                (sees(&self.before), sees(&self.after))
            }
        };
        let own = match reader {
            Reader::Node(node) if self.kind == ObjectKind::AppliedToGroup => {
                self.by_node.get(&node)
            }
            _ => None,
        };
        let by_node = matches!(reader, Reader::Node(_)) && self.kind == ObjectKind::AppliedToGroup;
        let (kind, item) = match (was, is) {
            (false, false) => return None,
            (true, false) => (DeltaKind::Deleted, &self.bare),
            (false, true) => (DeltaKind::Added, if by_node { own? } else { self.whole.as_ref()? }),
            (true, true) if !self.changed => return None,
            (true, true) if by_node => (DeltaKind::Modified, own?),
            (true, true) => (DeltaKind::Modified, self.patch.as_ref().or(self.whole.as_ref())?),
        };
        Some(Delta { kind, item: Arc::clone(item) })
    }
}

/// The last changes of a kind.
#[derive(Debug, Default)]
pub(super) struct Log {
    entries: VecDeque<Entry>,
    /// All changes after this count are in `entries`.
    complete_after: u32,
}

impl Log {
    pub(super) fn starting_after(count: u32) -> Self {
        Self { entries: VecDeque::new(), complete_after: count }
    }

    pub(super) fn push(&mut self, entry: Entry, window: usize) {
        self.entries.push_back(entry);
        while self.entries.len() > window {
            if let Some(gone) = self.entries.pop_front() {
                self.complete_after = gone.count;
            }
        }
    }

    pub(super) fn read(
        &self,
        reader: Reader,
        count: u32,
        limit: usize,
        current: u32,
    ) -> Result<Deltas, CountError> {
        if count < self.complete_after {
            return Err(CountError::TooOld { oldest: self.complete_after });
        }
        let start = self.entries.partition_point(|entry| entry.count <= count);
        let mut deltas = Vec::new();
        for entry in self.entries.range(start..) {
            if let Some(delta) = entry.delta(reader) {
                deltas.push(delta);
            }
            if deltas.len() >= limit.max(1) {
                return Ok(Deltas { up_to: entry.count, deltas, more: true });
            }
        }
        Ok(Deltas { up_to: current, deltas, more: false })
    }
}
