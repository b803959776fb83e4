//! Versioned objects in memory, with a window of changes to watch back and list back.
//!
//! One counter gives every write its resourceVersion. Watchers read the window at their own pace
//! and are told when it has moved past them, so a slow one costs nothing. Not here: what may be
//! written (`rest`), how it is sent (`watch`).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::meta;

mod journal;

use journal::Journal;

/// An object as it was written, with its encodings kept.
#[derive(Clone, Debug)]
pub struct Stored(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    value: Value,
    version: u64,
    json: OnceLock<Bytes>,
    item: OnceLock<Bytes>,
}

impl Stored {
    /// Wraps an object; its version is what its metadata says.
    pub fn new(value: Value) -> Self {
        let version = meta::version(&value);
        Self(Arc::new(Inner { value, version, json: OnceLock::new(), item: OnceLock::new() }))
    }

    /// The object.
    pub fn value(&self) -> &Value {
        &self.0.value
    }

    /// Its version.
    pub fn version(&self) -> u64 {
        self.0.version
    }

    /// The object as JSON.
    pub fn json(&self) -> Bytes {
        let encode = || serde_json::to_vec(&self.0.value).unwrap_or_default().into();
        self.0.json.get_or_init(encode).clone()
    }

    /// The object as JSON without kind and apiVersion, as lists of built-in kinds hold it.
    pub fn item_json(&self) -> Bytes {
        let encode = || serde_json::to_vec(&Item(&self.0.value)).unwrap_or_default().into();
        self.0.item.get_or_init(encode).clone()
    }
}

struct Item<'a>(&'a Value);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.as_object().into_iter().flatten() {
            if name != "kind" && name != "apiVersion" {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It came into being.
    Added,
    /// It changed.
    Modified,
    /// It went.
    Deleted,
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Version of the change.
    pub version: u64,
    /// Key of the object.
    pub key: String,
    /// What happened.
    pub kind: ChangeKind,
    /// The object after the change; for a deletion, as it was last, with the deletion's version.
    pub object: Stored,
    /// The object before the change.
    pub before: Option<Stored>,
}

/// Why a version cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionError {
    /// The window has moved past it; it holds changes after `oldest`.
    TooOld {
        /// Oldest version that can be read.
        oldest: u64,
    },
    /// It has not been given out yet.
    Ahead {
        /// Newest version.
        current: u64,
    },
}

struct Collection {
    objects: BTreeMap<String, Stored>,
    history: VecDeque<Change>,
    /// Changes after this version are all in `history`.
    complete_after: u64,
    changed: watch::Sender<u64>,
}

impl Collection {
    fn new(revision: u64) -> Self {
        Self {
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            complete_after: 0,
            changed: watch::Sender::new(revision),
        }
    }
}

struct State {
    revision: u64,
    collections: HashMap<String, Collection>,
    journal: Option<Journal>,
}

impl State {
    fn collection(&mut self, name: &str) -> &mut Collection {
        let revision = self.revision;
        if !self.collections.contains_key(name) {
            self.collections.insert(name.to_owned(), Collection::new(revision));
        }
        self.collections.entry(name.to_owned()).or_insert_with(|| Collection::new(revision))
    }
}

/// Objects by collection and key; see the module's text.
pub struct Store {
    state: Mutex<State>,
    window: usize,
    any: watch::Sender<u64>,
}

/// Key of an object: its namespace, if any, and name.
pub fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

/// Prefix of the keys of a namespace's objects; empty for all namespaces or cluster scope.
pub fn prefix(namespace: &str) -> String {
    if namespace.is_empty() { String::new() } else { format!("{namespace}/") }
}

impl Store {
    /// An empty store that keeps the last `window` changes of each collection.
    pub fn new(window: usize) -> Self {
        Self::starting_at(window, 1)
    }

    /// An empty store whose first version is `revision`. A server that forgets everything when it
    /// ends must start above whatever it gave out before, or its clients would wait in watches for
    /// versions that are never reached.
    pub fn starting_at(window: usize, revision: u64) -> Self {
        Self {
            state: Mutex::new(State { revision, collections: HashMap::new(), journal: None }),
            window: window.max(1),
            any: watch::Sender::new(revision),
        }
    }

    /// A store that begins with what the file holds and adds every write to it. Its first version
    /// must be above all that were given out before, as its watch window begins empty.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(window: usize, revision: u64, path: &Path) -> io::Result<Self> {
        let (journal, objects) = Journal::open(path)?;
        let store = Self::starting_at(window, revision);
        {
            let mut state = store.lock();
            for ((collection, key), object) in objects {
                let collection = state.collection(&collection);
                collection.objects.insert(key, Stored::new(object));
                collection.complete_after = revision;
            }
            state.journal = Some(journal);
        }
        Ok(store)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while holding the lock leaves whole objects, at worst too few of them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and writes with nobody in between.
    pub fn write<T>(&self, work: impl FnOnce(&mut Tx<'_>) -> T) -> T {
        let mut state = self.lock();
        let before = state.revision;
        let mut tx = Tx { state: &mut state, window: self.window, writes: Vec::new() };
        let result = work(&mut tx);
        let writes = tx.writes;
        if let Some(journal) = &mut state.journal {
            journal.add(&writes);
        }
        if state.revision != before {
            self.any.send_replace(state.revision);
        }
        result
    }

    /// The newest version.
    pub fn revision(&self) -> u64 {
        self.lock().revision
    }

    /// One object.
    pub fn get(&self, collection: &str, key: &str) -> Option<Stored> {
        self.lock().collection(collection).objects.get(key).cloned()
    }

    /// The newest objects whose key starts with `prefix`, in order of their keys.
    pub fn list(&self, collection: &str, prefix: &str) -> (u64, Vec<Stored>) {
        let mut state = self.lock();
        let items = with_prefix(&state.collection(collection).objects, prefix)
            .map(|(_, object)| object.clone())
            .collect();
        (state.revision, items)
    }

    /// The objects with their keys as they were at a version.
    pub fn list_at(
        &self,
        collection: &str,
        prefix: &str,
        version: Option<u64>,
    ) -> Result<(u64, Vec<(String, Stored)>), VersionError> {
        let mut state = self.lock();
        let current = state.revision;
        let collection = state.collection(collection);
        let mut objects: BTreeMap<String, Stored> = with_prefix(&collection.objects, prefix)
            .map(|(key, object)| (key.clone(), object.clone()))
            .collect();
        let at = version.unwrap_or(current);
        if at > current {
            return Err(VersionError::Ahead { current });
        }
        if at < collection.complete_after {
            return Err(VersionError::TooOld { oldest: collection.complete_after });
        }
        for change in collection.history.iter().rev().take_while(|change| change.version > at) {
            if !change.key.starts_with(prefix) {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok((at, objects.into_iter().collect()))
    }

    /// Up to `limit` changes after a version, and the version up to which that is all.
    pub fn changes_after(
        &self,
        collection: &str,
        prefix: &str,
        version: u64,
        limit: usize,
    ) -> Result<(u64, Vec<Change>), VersionError> {
        let mut state = self.lock();
        let current = state.revision;
        let collection = state.collection(collection);
        if version < collection.complete_after {
            return Err(VersionError::TooOld { oldest: collection.complete_after });
        }
        let start = collection.history.partition_point(|change| change.version <= version);
        let mut up_to = current.max(version);
        let mut found = Vec::new();
        for change in collection.history.range(start..) {
            if found.len() == limit {
                break;
            }
            up_to = change.version;
            if change.key.starts_with(prefix) {
                found.push(change.clone());
            }
        }
        if found.len() < limit {
            up_to = current.max(version);
        }
        Ok((up_to, found))
    }

    /// Wakes when a collection changed.
    pub fn subscribe(&self, collection: &str) -> watch::Receiver<u64> {
        self.lock().collection(collection).changed.subscribe()
    }

    /// Wakes when anything changed.
    pub fn subscribe_all(&self) -> watch::Receiver<u64> {
        self.any.subscribe()
    }

    /// Forgets the changes up to now, as compaction does.
    pub fn compact(&self) {
        let mut state = self.lock();
        let revision = state.revision;
        for collection in state.collections.values_mut() {
            collection.history.clear();
            collection.complete_after = revision;
        }
    }
}

fn with_prefix<'a>(
    objects: &'a BTreeMap<String, Stored>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Stored)> {
    objects.range(prefix.to_owned()..).take_while(move |(key, _)| key.starts_with(prefix))
}

/// A read and write access that nobody interrupts.
pub struct Tx<'a> {
    state: &'a mut State,
    window: usize,
    /// For the journal, where there is one.
    writes: Vec<(String, String, Option<Stored>)>,
}

impl Tx<'_> {
    /// One object.
    pub fn get(&self, collection: &str, key: &str) -> Option<Stored> {
        self.state.collections.get(collection)?.objects.get(key).cloned()
    }

    /// The objects whose key starts with `prefix`, in order of their keys.
    pub fn list(&self, collection: &str, prefix: &str) -> Vec<Stored> {
        let Some(collection) = self.state.collections.get(collection) else { return Vec::new() };
        with_prefix(&collection.objects, prefix).map(|(_, object)| object.clone()).collect()
    }

    /// Writes an object under a new version.
    pub fn put(&mut self, collection: &str, key: &str, mut value: Value) -> Stored {
        let version = self.next_version();
        meta::set(&mut value, "resourceVersion", json!(version.to_string()));
        let object = Stored::new(value);
        let held = self.state.collection(collection);
        let before = held.objects.insert(key.to_owned(), object.clone());
        let kind = if before.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.record(
            collection,
            Change { version, key: key.to_owned(), kind, object: object.clone(), before },
        );
        object
    }

    /// Removes an object; gives it as it was last, with the version of its deletion.
    pub fn remove(&mut self, collection: &str, key: &str) -> Option<Stored> {
        let before = self.state.collection(collection).objects.remove(key)?;
        let version = self.next_version();
        let mut value = before.value().clone();
        meta::set(&mut value, "resourceVersion", json!(version.to_string()));
        let object = Stored::new(value);
        self.record(
            collection,
            Change {
                version,
                key: key.to_owned(),
                kind: ChangeKind::Deleted,
                object: object.clone(),
                before: Some(before),
            },
        );
        Some(object)
    }

    /// Removes all objects of a collection, and the collection.
    pub fn remove_collection(&mut self, collection: &str) {
        for key in self.state.collection(collection).objects.keys().cloned().collect::<Vec<_>>() {
            self.remove(collection, &key);
        }
    }

    /// The newest version.
    pub fn revision(&self) -> u64 {
        self.state.revision
    }

    fn next_version(&mut self) -> u64 {
        self.state.revision += 1;
        self.state.revision
    }

    fn record(&mut self, collection: &str, change: Change) {
        if self.state.journal.is_some() {
            let object = (change.kind != ChangeKind::Deleted).then(|| change.object.clone());
            self.writes.push((collection.to_owned(), change.key.clone(), object));
        }
        let version = change.version;
        let window = self.window;
        let collection = self.state.collection(collection);
        collection.history.push_back(change);
        while collection.history.len() > window {
            if let Some(gone) = collection.history.pop_front() {
                collection.complete_after = gone.version;
            }
        }
        collection.changed.send_replace(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_object(name: &str, x: u64) -> Value {
        json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": name}, "x": x})
    }

    #[test]
    fn old_versions_can_be_listed_within_the_window() {
        let store = Store::new(3);
        let versions: Vec<u64> = store.write(|tx| {
            let mut versions = vec![tx.revision()];
            for (name, x) in [("a", 1), ("b", 1), ("a", 2)] {
                versions.push(tx.put("c", name, mk_object(name, x)).version());
            }
            tx.remove("c", "b");
            versions
        });
        let names = |version| {
            let (_, items) = store.list_at("c", "", Some(version)).unwrap();
            items.iter().map(|(k, o)| format!("{k}{}", o.value()["x"])).collect::<Vec<_>>()
        };
        assert_eq!(names(versions[1]), ["a1"]);
        assert_eq!(names(versions[2]), ["a1", "b1"]);
        assert_eq!(names(versions[3]), ["a2", "b1"]);
        assert_eq!(names(store.revision()), ["a2"]);
        assert_eq!(
            store.list_at("c", "", Some(versions[0])).unwrap_err(),
            VersionError::TooOld { oldest: versions[1] }
        );
        assert!(matches!(store.list_at("c", "", Some(99)), Err(VersionError::Ahead { .. })));
        let (up_to, changes) = store.changes_after("c", "", versions[2], 10).unwrap();
        assert_eq!(up_to, store.revision());
        let kinds: Vec<_> = changes.iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [ChangeKind::Modified, ChangeKind::Deleted]);
        assert!(store.changes_after("c", "", versions[0], 10).is_err());
    }

    #[test]
    fn objects_survive_a_restart_and_a_line_cut_off() {
        use std::io::Write;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let store = Store::open(9, 100, &path).unwrap();
        store.write(|tx| {
            tx.put("c", "a", mk_object("a", 1));
            tx.put("c", "b", mk_object("b", 1));
            tx.put("c", "a", mk_object("a", 2));
            tx.remove("c", "b");
        });
        drop(store);
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(br#"["c","d",{"kin"#).unwrap();
        for start in [1000, 2000] {
            let store = Store::open(9, start, &path).unwrap();
            let (_, all) = store.list("c", "");
            let seen: Vec<_> = all.iter().map(|o| (o.version(), o.value()["x"].clone())).collect();
            assert_eq!(seen, [(103, json!(2))]);
            let old = store.changes_after("c", "", 103, 10).unwrap_err();
            assert_eq!(old, VersionError::TooOld { oldest: start }, "clients list again");
        }
    }

    #[test]
    fn list_items_leave_out_their_kind() {
        let stored = Stored::new(mk_object("a", 1));
        let item: Value = serde_json::from_slice(&stored.item_json()).unwrap();
        assert_eq!(item, json!({"metadata": {"name": "a"}, "x": 1}));
    }
}
