//! Every flow that is wanted or on the switch, in as few bytes as it gets.

use hashbrown::HashTable;
use openflow::TableId;

use super::counts::Counts;
use super::encoded::View;
use super::owners::SetId;

/// Number of a flow here; used again after the flow is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlowId(pub(super) u32);

/// What is known of a flow on the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) enum OnSwitch {
    /// It is not there.
    #[default]
    Absent,
    /// It may be there, perhaps in another form.
    Unknown,
    /// It is there as its bytes say.
    Exact,
}

/// Facts about a flow that are true or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u8);

impl Marks {
    /// On the list of flows to look at in the next flush.
    pub(super) const LISTED: u8 = 1;
    /// Part of the batch under way.
    pub(super) const IN_FLIGHT: u8 = 1 << 1;
    /// Changed since it was put into the batch under way.
    pub(super) const CHANGED: u8 = 1 << 2;
    /// Refused by the switch; not sent again before its retry.
    pub(super) const REFUSED: u8 = 1 << 3;
    /// Timed out; not sent again before it is set again.
    pub(super) const EXPIRED: u8 = 1 << 4;
    /// Found on the switch and claimed by nobody: deleted only once all owners are synced.
    pub(super) const UNCLAIMED: u8 = 1 << 5;
    /// Scratch of whoever walks over flows.
    pub(super) const SCRATCH: u8 = 1 << 6;

    pub(super) fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    pub(super) fn put(&mut self, mark: u8) {
        self.0 |= mark;
    }

    pub(super) fn take(&mut self, mark: u8) -> bool {
        let had = self.has(mark);
        self.0 &= !mark;
        had
    }
}

/// One flow.
#[derive(Debug)]
pub(super) struct Entry {
    /// The flow as wanted; when nobody wants it, as last seen on the switch.
    pub(super) bytes: Box<[u8]>,
    /// Who wants it.
    pub(super) set: SetId,
    pub(super) on_switch: OnSwitch,
    pub(super) marks: Marks,
}

impl Entry {
    pub(super) fn view(&self) -> View<'_> {
        View(&self.bytes)
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.set != SetId::NONE
    }
}

/// The flows, found by number or by what identifies them.
#[derive(Debug, Default)]
pub(super) struct Flows {
    entries: Vec<Option<Entry>>,
    free: Vec<FlowId>,
    /// By what identifies them.
    index: HashTable<FlowId>,
    /// Wanted flows on the switch, and unclaimed ones.
    pub(super) counts: Counts,
}

impl Flows {
    pub(super) fn get(&self, id: FlowId) -> Option<&Entry> {
        self.entries.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// The flow with this key.
    pub(super) fn find(&self, key: View<'_>) -> Option<FlowId> {
        let is_it = |id: &FlowId| self.get(*id).is_some_and(|entry| entry.view().same_key(key));
        self.index.find(key.key_hash(), is_it).copied()
    }

    /// Puts a flow in whose key is not there.
    pub(super) fn insert(&mut self, entry: Entry) -> FlowId {
        let hash = entry.view().key_hash();
        self.counts.add(&entry);
        let id = match self.free.pop() {
            Some(id) => {
                self.entries[id.0 as usize] = Some(entry);
                id
            }
            None => {
                let id = u32::try_from(self.entries.len()).expect("fewer than 2^32 flows");
                self.entries.push(Some(entry));
                FlowId(id)
            }
        };
        let entries = &self.entries;
        self.index.insert_unique(hash, id, |id| hash_of(entries, *id));
        id
    }

    /// Changes a flow; its key has to stay the same.
    pub(super) fn change<T>(&mut self, id: FlowId, act: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        let entry = self.entries.get_mut(id.0 as usize)?.as_mut()?;
        self.counts.remove(entry);
        let result = act(entry);
        self.counts.add(entry);
        Some(result)
    }

    /// Forgets a flow.
    pub(super) fn remove(&mut self, id: FlowId) {
        let Some(entry) = self.entries.get_mut(id.0 as usize).and_then(Option::take) else {
            return;
        };
        self.counts.remove(&entry);
        self.free.push(id);
        match self.index.find_entry(entry.view().key_hash(), |found| *found == id) {
            Ok(found) => drop(found.remove()),
            Err(_) => debug_assert!(false, "every flow is in the index"),
        }
    }

    /// The numbers of all flows, of one table or of all.
    pub(super) fn ids(&self, table: Option<TableId>) -> impl Iterator<Item = FlowId> + '_ {
        self.entries.iter().zip(0u32..).filter_map(move |(entry, id)| {
            let entry = entry.as_ref()?;
            table.is_none_or(|table| entry.view().table() == table).then_some(FlowId(id))
        })
    }
}

/// What the index finds a flow by.
fn hash_of(entries: &[Option<Entry>], id: FlowId) -> u64 {
    let entry = entries.get(id.0 as usize).and_then(Option::as_ref);
    entry.map_or(0, |entry| entry.view().key_hash())
}
