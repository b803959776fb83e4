//! The computed objects as they are served: versions, a window of changes, a view for each Node.
//!
//! Pure, and made for a server that reads: [`Store::list`] gives what a reader sees now,
//! [`Store::changes_after`] what changed in its eyes after a version. An object that enters the span
//! of a reader's Node is added whole, one that leaves it is deleted, a group that stays is patched; of
//! a group of targets a Node sees its own members alone. Objects are encoded once, for all readers.
//!
//! Versions here are counts; the server makes resource versions of them. Not here: what the objects
//! are (`translate`), who may read them (`controller`).

mod item;
mod log;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use item::Item;
pub use log::{Delta, DeltaKind};

use crate::index::NodeId;
use crate::translate::{
    Change, Content, Engine, Event, NodeMember, ObjectId, ObjectKind, PolicyFacts,
};
use log::{Entry, Log};

/// How the inputs of the state are named, and up to which resource version each was read.
pub type AsOf = Arc<BTreeMap<String, String>>;

/// A count is not known any more, or not yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountError {
    /// Changes after it may have left the window, whose changes are those after `oldest`.
    TooOld {
        /// The oldest count that can be read.
        oldest: u32,
    },
    /// It has not been given out.
    Ahead {
        /// The newest count.
        current: u32,
    },
}

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Someone who sees everything.
    All,
    /// A Node.
    Node(NodeId),
    /// A Node of which nothing has been heard: it sees nothing.
    Stranger,
}

/// What a commit brought about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Committed {
    /// How many objects changed.
    pub n_changes: usize,
    /// Policies with a status that is made anew.
    pub facts: Vec<PolicyFacts>,
}

/// Some changes in a reader's eyes, oldest first.
#[derive(Debug)]
pub struct Deltas {
    /// Everything up to this count is in `deltas`, or was before.
    pub up_to: u32,
    /// The changes.
    pub deltas: Vec<Delta>,
    /// Whether there are more.
    pub more: bool,
}

/// Computed objects with their versions; see the module's text.
#[derive(Debug)]
pub struct Store {
    engine: Engine,
    count: u32,
    versions: FxHashMap<ObjectId, u32>,
    /// Whole groups that do not depend on the reader, as they were encoded last.
    encoded: FxHashMap<ObjectId, Arc<Item>>,
    logs: BTreeMap<ObjectKind, Log>,
    window: usize,
    as_of: AsOf,
}

impl Store {
    /// A store that keeps the last `window` changes of each kind.
    pub fn new(window: usize) -> Self {
        Self {
            engine: Engine::default(),
            count: 1,
            versions: FxHashMap::default(),
            encoded: FxHashMap::default(),
            logs: BTreeMap::new(),
            window: window.max(1),
            as_of: AsOf::default(),
        }
    }

    /// Takes an event; readers see nothing of it before the next [`Self::commit`].
    pub fn apply(&mut self, event: Event) {
        self.engine.apply(event);
    }

    /// The engine, to look at.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The newest count.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// What the state was made from.
    pub fn as_of(&self) -> &AsOf {
        &self.as_of
    }

    /// Makes visible what was applied, made from inputs read up to `as_of`.
    pub fn commit(&mut self, as_of: AsOf) -> Committed {
        let changes = self.engine.take_changes();
        let n_changes = changes.objects.len();
        for change in changes.objects {
            self.count += 1;
            let entry = self.entry(change);
            let log = self.logs.entry(entry.kind).or_default();
            log.push(entry, self.window);
        }
        self.as_of = as_of;
        Committed { n_changes, facts: changes.facts }
    }

    /// Makes visible what was applied first, before there are readers: nobody can ask for its
    /// changes one by one.
    pub fn commit_first(&mut self, as_of: AsOf) -> Committed {
        let changes = self.engine.take_changes();
        self.count += 1;
        for change in &changes.objects {
            match change.after {
                Some(_) => self.versions.insert(change.id, self.count),
                None => self.versions.remove(&change.id),
            };
        }
        for kind in
            [ObjectKind::NetworkPolicy, ObjectKind::AppliedToGroup, ObjectKind::AddressGroup]
        {
            self.logs.insert(kind, Log::starting_after(self.count));
        }
        self.forget_encoded(changes.objects.iter().map(|change| change.id));
        self.as_of = as_of;
        Committed { n_changes: changes.objects.len(), facts: changes.facts }
    }

    fn forget_encoded(&mut self, ids: impl Iterator<Item = ObjectId>) {
        for id in ids {
            self.encoded.remove(&id);
        }
    }

    fn entry(&mut self, change: Change) -> Entry {
        match change.after {
            Some(_) => self.versions.insert(change.id, self.count),
            None => self.versions.remove(&change.id),
        };
        if change.content != Content::Same || change.after.is_none() {
            self.forget_encoded(std::iter::once(change.id));
        }
        let count = self.count;
        let mut entry = Entry::new(count, &change);
        let Some(after) = &change.after else { return entry };
        let nobody = crate::translate::Span::default();
        let before = change.before.as_ref().unwrap_or(&nobody);
        let joiners: Vec<NodeId> = after.minus(before).collect();
        match change.kind {
            ObjectKind::NetworkPolicy => {
                if change.content == Content::Whole || !joiners.is_empty() {
                    entry.whole = self.whole(change.id);
                }
            }
            ObjectKind::AddressGroup => {
                if change.content == Content::Whole || !joiners.is_empty() {
                    entry.whole = self.whole(change.id);
                }
                if let Content::Members { added, removed } = &change.content {
                    let members = |all: &[NodeMember]| {
                        all.iter().map(|member| member.member.clone()).collect()
                    };
                    let (added, removed) = (members(added), members(removed));
                    let patch = Item::patch(change.kind, &change.name, count, added, removed);
                    entry.patch = Some(Arc::new(patch));
                }
            }
            ObjectKind::AppliedToGroup => {
                for node in joiners {
                    if let Some(item) = self.on_node(change.id, node) {
                        entry.by_node.insert(node, Arc::new(item));
                    }
                }
                if change.content == Content::Whole {
                    entry.whole = self.whole(change.id);
                }
                if let Content::Members { added, removed } = change.content {
                    entry.split(added, removed, &change.name);
                }
            }
        }
        entry
    }

    fn version(&self, id: ObjectId) -> u32 {
        self.versions.get(&id).copied().unwrap_or(self.count)
    }

    /// An object with all that is in it.
    fn whole(&mut self, id: ObjectId) -> Option<Arc<Item>> {
        let version = self.version(id);
        if let Some(known) = self.encoded.get(&id)
            && known.count() == version
        {
            return Some(Arc::clone(known));
        }
        let item = match id {
            // Made of what the engine holds anyway: not worth being kept.
            ObjectId::Policy(id) => {
                let (uid, generation, body) = self.engine.policy_body(id)?;
                return Some(Arc::new(Item::policy(uid, version, generation, body)));
            }
            ObjectId::Group(group) => {
                let (kind, name, members) = self.engine.group(group)?;
                Item::group(kind, &name, version, members)
            }
        };
        let item = Arc::new(item);
        self.encoded.insert(id, Arc::clone(&item));
        Some(item)
    }

    /// A group of targets with its members on one Node.
    fn on_node(&self, id: ObjectId, node: NodeId) -> Option<Item> {
        let ObjectId::Group(group) = id else { return None };
        let group = self.engine.applied_to_group(group, Some(node))?;
        let name = group.metadata.name.unwrap_or_default();
        let kind = ObjectKind::AppliedToGroup;
        Some(Item::group(kind, &name, self.version(id), group.group_members))
    }

    /// An object in a reader's eyes.
    fn seen(&mut self, kind: ObjectKind, id: ObjectId, reader: Reader) -> Option<Arc<Item>> {
        match (kind, reader) {
            (ObjectKind::AppliedToGroup, Reader::Node(node)) => {
                self.on_node(id, node).map(Arc::new)
            }
            _ => self.whole(id),
        }
    }

    /// What a reader sees of a kind, ordered by name.
    pub fn list(&mut self, kind: ObjectKind, reader: Reader) -> Vec<Arc<Item>> {
        let node = match reader {
            Reader::All => None,
            Reader::Node(node) => Some(node),
            Reader::Stranger => return Vec::new(),
        };
        let ids = self.engine.list(kind, node).into_iter();
        let mut items: Vec<Arc<Item>> = ids.filter_map(|id| self.seen(kind, id, reader)).collect();
        items.sort_by(|a, b| a.name().cmp(b.name()));
        items
    }

    /// One object, if the reader sees it.
    pub fn get(&mut self, kind: ObjectKind, reader: Reader, name: &str) -> Option<Arc<Item>> {
        let id = self.engine.find(kind, name)?;
        let span = self.engine.span(id)?;
        match reader {
            Reader::Stranger => None,
            Reader::Node(node) if !span.contains(node) => None,
            _ => self.seen(kind, id, reader),
        }
    }

    /// Up to `limit` changes after a count, in a reader's eyes.
    ///
    /// # Errors
    /// When not all changes after that count are known any more, or the count is not given out yet.
    pub fn changes_after(
        &self,
        kind: ObjectKind,
        reader: Reader,
        count: u32,
        limit: usize,
    ) -> Result<Deltas, CountError> {
        if count > self.count {
            return Err(CountError::Ahead { current: self.count });
        }
        let Some(log) = self.logs.get(&kind) else {
            return Ok(Deltas { up_to: self.count, deltas: Vec::new(), more: false });
        };
        log.read(reader, count, limit, self.count)
    }
}
