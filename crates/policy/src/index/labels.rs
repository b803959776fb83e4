//! Label sets, each kept once.
//!
//! A set is one run of bytes: per label, ordered by key, the key and the value, each after its
//! length. Sets are counted by their users and freed with the last, because values such as the name
//! of a Job come and go for ever.

use std::hash::{BuildHasher, Hash, Hasher};

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHasher};

use super::slab::{Slab, ids};

ids! {
    /// Number of a label set.
    pub(super) LabelSetId;
}

/// Labels of an object, ordered by key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[u8]>);

impl Labels {
    /// Packs labels. One whose text is longer than Kubernetes ever allows is left out.
    pub fn pack<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut sorted: Vec<(&str, &str)> = labels.into_iter().collect();
        // The last of equal keys counts, as in a JSON object.
        sorted.reverse();
        sorted.sort_by_key(|(key, _)| *key);
        sorted.dedup_by_key(|(key, _)| *key);
        let size = sorted.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
        let mut bytes = Vec::with_capacity(size);
        for (key, value) in sorted {
            let (Ok(key_len), Ok(value_len)) =
                (u16::try_from(key.len()), u16::try_from(value.len()))
            else {
                continue;
            };
            bytes.extend_from_slice(&key_len.to_ne_bytes());
            bytes.extend_from_slice(key.as_bytes());
            bytes.extend_from_slice(&value_len.to_ne_bytes());
            bytes.extend_from_slice(value.as_bytes());
        }
        Self(bytes.into())
    }

    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest: &[u8] = &self.0;
        std::iter::from_fn(move || Some((field(&mut rest)?, field(&mut rest)?)))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.iter().find(|(own, _)| *own == key.as_bytes()).map(|(_, value)| value)
    }
}

fn field<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk::<2>()?;
    let (text, after) = after.split_at_checked(usize::from(u16::from_ne_bytes(*length)))?;
    *rest = after;
    Some(text)
}

/// Hash of one label, for tables by label.
pub(super) fn label_hash(key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    key.hash(&mut hasher);
    value.hash(&mut hasher);
    // Zero stands for "no label".
    hasher.finish() | 1
}

#[derive(Debug)]
struct Entry {
    labels: Labels,
    users: u32,
}

/// All label sets in use.
#[derive(Debug, Default)]
pub(super) struct LabelSets {
    entries: Slab<LabelSetId, Entry>,
    by_content: HashTable<LabelSetId>,
}

impl LabelSets {
    /// The number of a set, with one user more.
    pub(super) fn acquire(&mut self, labels: Labels) -> LabelSetId {
        let hash = FxBuildHasher.hash_one(&labels);
        if let Some(id) = self.by_content.find(hash, |id| self.entries[*id].labels == labels) {
            let id = *id;
            self.entries[id].users += 1;
            return id;
        }
        let id = self.entries.insert(Entry { labels, users: 1 });
        let entries = &self.entries;
        self.by_content.insert_unique(hash, id, |id| FxBuildHasher.hash_one(&entries[*id].labels));
        id
    }

    /// One user less.
    pub(super) fn release(&mut self, id: LabelSetId) {
        let entry = &mut self.entries[id];
        entry.users -= 1;
        if entry.users > 0 {
            return;
        }
        let hash = FxBuildHasher.hash_one(&entry.labels);
        if let Ok(found) = self.by_content.find_entry(hash, |own| *own == id) {
            found.remove();
        }
        self.entries.remove(id);
    }

    pub(super) fn get(&self, id: LabelSetId) -> &Labels {
        &self.entries[id].labels
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_kept_once_and_freed() {
        let mut sets = LabelSets::default();
        let a = sets.acquire(Labels::pack([("b", "2"), ("a", "1")]));
        let b = sets.acquire(Labels::pack([("a", "1"), ("b", "2")]));
        let c = sets.acquire(Labels::pack([("a", "1b"), ("", "2")]));
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert_eq!(sets.get(a).get("a"), Some(b"1".as_slice()));
        assert_eq!(sets.get(a).get("c"), None);
        for id in [a, b, c] {
            sets.release(id);
        }
        assert_eq!(sets.len(), 0);
        let again = sets.acquire(Labels::pack([("x", "y")]));
        assert_eq!(sets.get(again).iter().count(), 1);
    }

    #[test]
    fn odd_labels_are_plain_labels() {
        let long = "x".repeat(70_000);
        let labels = Labels::pack([
            ("", ""),
            ("host", "\0\u{1}"),
            ("all", "none"),
            ("all", "later"),
            ("l", long.as_str()),
        ]);
        assert_eq!(labels.get(""), Some(b"".as_slice()));
        assert_eq!(labels.get("host"), Some(b"\0\x01".as_slice()));
        assert_eq!(labels.get("all"), Some(b"later".as_slice()));
        assert_eq!(labels.get("l"), None);
        assert_eq!(labels.iter().count(), 3);
    }
}
