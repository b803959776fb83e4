//! The computed objects of this replica, shared by the loop that changes them and those who read.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apiserver::source::Epoch;
use policy::store::{AsOf, Committed, Store};
use policy::translate::{Event, ObjectKind};
use tokio::sync::watch;

use super::groups::{GroupFacts, GroupsSeen};

/// Changes of each kind that a reader may be behind.
const WINDOW: usize = 4096;

/// The computed objects; see the module's text.
pub(crate) struct State {
    store: Mutex<Store>,
    epoch: Epoch,
    version: watch::Sender<u64>,
    complete: watch::Sender<bool>,
    read_up_to: Mutex<AsOf>,
    groups: watch::Sender<GroupsSeen>,
}

impl State {
    /// Nothing computed yet.
    pub(crate) fn new() -> Self {
        let (epoch, store) = (Epoch::random(), Store::new(WINDOW));
        let version = watch::Sender::new(epoch.version(store.count()));
        Self {
            store: Mutex::new(store),
            epoch,
            version,
            complete: watch::Sender::new(false),
            read_up_to: Mutex::default(),
            groups: watch::Sender::new(GroupsSeen::new()),
        }
    }

    /// The objects, with nobody in between.
    pub(super) fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many policies, address groups and target groups there are.
    pub(crate) fn n_objects(&self) -> [usize; 3] {
        let store = self.lock();
        [ObjectKind::NetworkPolicy, ObjectKind::AddressGroup, ObjectKind::AppliedToGroup]
            .map(|kind| store.engine().list(kind, None).len())
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The newest version, as a signal.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Whether everything that the cluster has was taken in once.
    pub(crate) fn is_complete(&self) -> bool {
        *self.complete.borrow()
    }

    /// Notes what groups' objects are, those that are gone without facts.
    pub(super) fn note_groups(&self, facts: Vec<((String, String), Option<GroupFacts>)>) {
        if facts.is_empty() {
            return;
        }
        self.groups.send_modify(|groups| {
            for (key, facts) in facts {
                match facts {
                    Some(facts) => drop(groups.insert(key, facts)),
                    None => drop(groups.remove(&key)),
                }
            }
        });
    }

    /// Tells when groups' objects change.
    pub(super) fn groups_changed(&self) -> watch::Receiver<GroupsSeen> {
        self.groups.subscribe()
    }

    /// The groups' objects.
    pub(super) fn groups_seen(&self) -> GroupsSeen {
        self.groups.borrow().clone()
    }

    /// UID of a group that a user named.
    pub(super) fn group_uid(&self, namespace: &str, name: &str) -> Option<String> {
        let key = (namespace.to_owned(), name.to_owned());
        self.groups.borrow().get(&key).map(|facts| facts.uid.clone())
    }

    /// Notes how far the inputs are read, without a change.
    pub(super) fn read_up_to(&self, versions: AsOf) {
        *self.read_up_to.lock().unwrap_or_else(PoisonError::into_inner) = versions;
    }

    /// What a whole list is made from: the last changes, and how far everything is read.
    ///
    /// The latter is behind rather than ahead of the former, whatever goes on in between.
    pub(super) fn whole_as_of(&self, changes: &AsOf) -> AsOf {
        let up_to = self.read_up_to.lock().unwrap_or_else(PoisonError::into_inner);
        let both = up_to.iter().chain(changes.iter());
        Arc::new(both.map(|(key, version)| (key.clone(), version.clone())).collect())
    }

    /// Takes events in, without showing anything of it yet.
    pub(super) fn apply(&self, events: Vec<Event>) {
        let mut store = self.lock();
        for event in events {
            store.apply(event);
        }
    }

    /// Shows what was taken in.
    pub(super) fn commit(&self, as_of: AsOf) -> Committed {
        let mut store = self.lock();
        let committed =
            if self.is_complete() { store.commit(as_of) } else { store.commit_first(as_of) };
        let version = self.epoch.version(store.count());
        drop(store);
        self.complete.send_replace(true);
        self.version.send_replace(version);
        committed
    }
}
