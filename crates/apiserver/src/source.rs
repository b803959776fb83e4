//! Objects that can be listed and watched, wherever they are kept.
//!
//! A [`Source`] answers for one resource: what there is now, what changed after a version, and a
//! signal that something did. `rest` and `watch` turn that into lists, pages, event streams,
//! bookmarks, tables, JSON and protobuf. The lab's store is one source ([`StoreSource`]); a
//! controller brings its own, which keeps typed objects, shares their encodings and shows every
//! watcher only what its [`View`] selects.
//!
//! What a source must keep to:
//! - versions are positive and grow; one counter for all sources that a client may mix is best.
//!   [`Epoch`] makes versions that another process' versions are never taken for.
//! - [`Source::changes_after`] judges visibility: an object that enters the view is
//!   [`ChangeKind::Added`] with the whole object, one that leaves it is [`ChangeKind::Deleted`].
//! - [`Batch::as_of`] is read under the same lock as the events: whoever has seen the events up to
//!   `up_to` has seen everything that `as_of` promises.
//! - [`Source::subscribe`] fires after each change, and when `as_of` moved.
//!
//! Not here: who may ask (`authz`), how versions and selectors are parsed (`query`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::watch;

use crate::protobuf::ProtobufError;
use crate::query::At;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use crate::store::{ChangeKind, VersionError};
use crate::user::User;

mod stored;

pub use stored::StoreSource;

/// An object in the forms in which it is sent. Implementations keep what they encode.
pub trait Object: Send + Sync {
    /// Namespace and name, as `ns/name`; only the name in cluster scope. Orders lists.
    fn key(&self) -> Cow<'_, str>;

    /// Version of the last change.
    fn version(&self) -> u64;

    /// The kind in its own encodings, as `AddressGroupPatch`; the resource's where this is `None`.
    fn kind(&self) -> Option<&str> {
        None
    }

    /// The whole object as JSON, `kind` and `apiVersion` included.
    fn json(&self) -> Bytes;

    /// The object as JSON as lists hold it.
    fn item_json(&self) -> Bytes {
        self.json()
    }

    /// The protobuf message without the envelope.
    ///
    /// # Errors
    /// Where the kind has none, or not with what this object holds.
    fn protobuf(&self) -> Result<Bytes, ProtobufError> {
        Err(ProtobufError::Kind(self.kind().unwrap_or_default().to_owned()))
    }

    /// The object as a JSON value, for tables and the metadata form.
    fn value(&self) -> Cow<'_, Value> {
        Cow::Owned(serde_json::from_slice(&self.json()).unwrap_or_default())
    }
}

/// A shared object.
pub type Shared = Arc<dyn Object>;

/// Which objects a reader sees.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Namespace; empty for all, and in cluster scope.
    pub namespace: String,
    /// Labels that objects must have.
    pub labels: LabelSelector,
    /// Fields that objects must have. A source gives its own meaning to fields that the resource
    /// offers, as `nodeName`.
    pub fields: FieldSelector,
    /// What [`Source::admit`] makes of the reader, as the node whose share it sees.
    pub node: Option<String>,
}

/// What happened to an object, in the eyes of a watcher.
#[derive(Clone)]
pub struct Event {
    /// What happened.
    pub kind: ChangeKind,
    /// The object (or its patch) as the event carries it.
    pub object: Shared,
}

/// What the inputs of a source were read up to, by the name of the annotation that tells it.
pub type AsOf = Arc<BTreeMap<String, String>>;

/// Some changes, oldest first.
pub struct Batch {
    /// Everything visible up to this version is in `events`, or was before.
    pub up_to: u64,
    /// The visible changes.
    pub events: Vec<Event>,
    /// Whether more may be read at once.
    pub more: bool,
    /// What the state at `up_to` was made from; empty where the source does not tell.
    pub as_of: AsOf,
}

/// The objects at a version.
pub struct Listed {
    /// The version.
    pub version: u64,
    /// The objects in the order of their keys.
    pub objects: Vec<Shared>,
    /// What they were made from.
    pub as_of: AsOf,
}

/// Objects of one resource; see the module's text.
pub trait Source: Send + Sync {
    /// Judges who reads, and may narrow what they see. Authorization came before.
    ///
    /// # Errors
    /// When the reader may not see what the view asks for.
    fn admit(&self, _user: &User, _view: &mut View) -> Result<(), ApiError> {
        Ok(())
    }

    /// One object; `None` where the view holds none of this name.
    fn get(&self, view: &View, name: &str) -> Option<Shared>;

    /// The objects as they were at a version, or are. [`At::NotOlderThan`] may give newer ones.
    ///
    /// # Errors
    /// When that version cannot be read any more, or not yet.
    fn list(&self, view: &View, at: At) -> Result<Listed, VersionError>;

    /// Up to about `limit` changes after a version.
    ///
    /// # Errors
    /// When changes after that version are not all known any more.
    fn changes_after(&self, view: &View, version: u64, limit: usize)
    -> Result<Batch, VersionError>;

    /// The newest version.
    fn version(&self) -> u64;

    /// Wakes when there may be something new.
    fn subscribe(&self) -> watch::Receiver<u64>;
}

/// Versions of one process: an epoch in the upper bits, a counter in the lower.
///
/// A version of another epoch is refused as too old, so that a client of a process that is gone
/// lists again instead of trusting a number that means something else here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// The epoch that a number names, 1 to 2^30.
    pub fn new(number: u32) -> Self {
        Self(number & (u32::MAX >> 2) | 1 << 30)
    }

    /// An epoch that no other process has, as likely as not one in a billion.
    pub fn random() -> Self {
        Self::new(rand::random())
    }

    /// The version of a count.
    pub fn version(self, count: u32) -> u64 {
        u64::from(self.0) << 32 | u64::from(count)
    }

    /// The count of a version of this epoch.
    pub fn count(self, version: u64) -> Option<u32> {
        let [_, _, _, _, count @ ..] = version.to_be_bytes();
        (version >> 32 == u64::from(self.0)).then(|| u32::from_be_bytes(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_other_epochs_have_no_count() {
        let (a, b) = (Epoch::new(1), Epoch::new(2));
        assert_eq!(a.count(a.version(7)), Some(7));
        assert_eq!(b.count(a.version(7)), None);
        assert_eq!(a.count(0), None, "no version is 0");
        assert!(i64::try_from(Epoch::new(u32::MAX).version(u32::MAX)).is_ok());
    }
}
