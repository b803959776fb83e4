//! Owners and keys: who wants which flows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use openflow::{GroupId, MeterId};

use super::flows::FlowId;
use super::types::Owner;

/// Number of an (owner, key); small, as every flow has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SetId(pub(super) u32);

impl SetId {
    /// Nobody.
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// What is wanted under one key.
#[derive(Debug)]
pub(super) struct WantedSet {
    pub(super) owner: Owner,
    pub(super) key: Arc<str>,
    /// Its flows that it holds.
    pub(super) flows: Box<[FlowId]>,
    /// Flows that it wants and another key holds.
    pub(super) contested: Vec<FlowId>,
    /// Its groups, held or waited for.
    pub(super) groups: Vec<GroupId>,
    /// Its meters, held or waited for.
    pub(super) meters: Vec<MeterId>,
    /// Whether it was removed, and stands here only until its number is given anew.
    vacant: bool,
}

/// All keys of all owners.
#[derive(Debug, Default)]
pub(super) struct Owners {
    ids: BTreeMap<(Owner, Arc<str>), SetId>,
    sets: Vec<WantedSet>,
    free: Vec<SetId>,
    registered: BTreeSet<Owner>,
    /// Those without whose flows an empty switch gets none.
    first: BTreeSet<Owner>,
    synced: BTreeSet<Owner>,
}

impl Owners {
    pub(super) fn get(&self, owner: Owner, key: &Arc<str>) -> Option<SetId> {
        self.ids.get(&(owner, Arc::clone(key))).copied()
    }

    /// The number of a key, which gets one if it has none.
    pub(super) fn intern(&mut self, owner: Owner, key: &Arc<str>) -> SetId {
        if let Some(id) = self.get(owner, key) {
            return id;
        }
        let set = WantedSet {
            owner,
            key: Arc::clone(key),
            flows: Box::default(),
            contested: Vec::new(),
            groups: Vec::new(),
            meters: Vec::new(),
            vacant: false,
        };
        let id = match self.free.pop() {
            Some(id) => {
                self.sets[id.0 as usize] = set;
                id
            }
            None => {
                let id = u32::try_from(self.sets.len()).expect("fewer than 2^32 keys");
                self.sets.push(set);
                SetId(id)
            }
        };
        self.ids.insert((owner, Arc::clone(key)), id);
        id
    }

    /// Forgets a key that holds nothing any more.
    pub(super) fn forget(&mut self, id: SetId) {
        let set = &mut self.sets[id.0 as usize];
        debug_assert!(set.flows.is_empty() && set.contested.is_empty(), "the set holds nothing");
        if !set.vacant {
            set.vacant = true;
            self.ids.remove(&(set.owner, Arc::clone(&set.key)));
            self.free.push(id);
        }
    }

    pub(super) fn set(&self, id: SetId) -> &WantedSet {
        &self.sets[id.0 as usize]
    }

    pub(super) fn set_mut(&mut self, id: SetId) -> &mut WantedSet {
        &mut self.sets[id.0 as usize]
    }

    pub(super) fn register(&mut self, owner: Owner) {
        self.registered.insert(owner);
    }

    /// The owner takes part, and an empty switch waits for it.
    pub(super) fn register_first(&mut self, owner: Owner) {
        self.registered.insert(owner);
        self.first.insert(owner);
    }

    pub(super) fn mark_synced(&mut self, owner: Owner) {
        self.synced.insert(owner);
    }

    /// Whether all those are synced that an empty switch waits for.
    pub(super) fn first_synced(&self) -> bool {
        self.first.is_subset(&self.synced)
    }

    /// Whether there are owners and all of them are synced.
    pub(super) fn all_synced(&self) -> bool {
        !self.registered.is_empty() && self.registered.is_subset(&self.synced)
    }
}
