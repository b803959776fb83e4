//! The objects of the JSON store as a source.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{AsOf, Batch, Event, Listed, Object, Shared, Source, View};
use crate::meta;
use crate::negotiate::Offer;
use crate::protobuf::{Protobuf, ProtobufError};
use crate::query::At;
use crate::resource::Resource;
use crate::store::{Change, ChangeKind, Store, Stored, VersionError, key, prefix};

/// A resource whose objects are in a [`Store`].
pub struct StoreSource {
    store: Arc<Store>,
    collection: String,
    /// The `apiVersion` under which objects of a CRD are read, whatever they were written under.
    api_version: Option<String>,
    /// What writes objects as protobuf, and their kind, where the resource offers that.
    protobuf: Option<(Arc<Protobuf>, Arc<str>)>,
}

impl StoreSource {
    /// The source of a resource.
    pub fn new(store: Arc<Store>, resource: &Resource, protobuf: &Arc<Protobuf>) -> Self {
        let api_version = resource.custom.then(|| resource.api_version());
        let offers = resource.offer == Offer::TextAndProtobuf;
        let protobuf = offers.then(|| (Arc::clone(protobuf), resource.kind.as_str().into()));
        Self { store, collection: resource.collection(), api_version, protobuf }
    }

    /// An object of this source's store in the form in which it is sent.
    pub(crate) fn shared(&self, object: Stored) -> Shared {
        let object = match &self.api_version {
            Some(version) if object.value()["apiVersion"] != version.as_str() => {
                let mut value = object.value().clone();
                meta::set_part(&mut value, "apiVersion", json!(version));
                Stored::new(value)
            }
            _ => object,
        };
        match (&self.api_version, &self.protobuf) {
            (Some(_), _) => Arc::new(Custom(object)),
            (None, Some((protobuf, kind))) => {
                let (protobuf, kind) = (Arc::clone(protobuf), Arc::clone(kind));
                Arc::new(Numbered { object, protobuf, kind })
            }
            (None, None) => Arc::new(object),
        }
    }
}

fn selects(view: &View, object: &Stored) -> bool {
    view.labels.matches(object.value()) && view.fields.matches(object.value())
}

impl Object for Stored {
    fn key(&self) -> Cow<'_, str> {
        Cow::Owned(key(meta::namespace(self.value()), meta::name(self.value())))
    }

    fn version(&self) -> u64 {
        self.version()
    }

    fn json(&self) -> Bytes {
        self.json()
    }

    fn item_json(&self) -> Bytes {
        self.item_json()
    }

    fn value(&self) -> Cow<'_, Value> {
        Cow::Borrowed(self.value())
    }
}

/// An object of a CRD: lists repeat its kind.
struct Custom(Stored);

impl Object for Custom {
    fn key(&self) -> Cow<'_, str> {
        Object::key(&self.0)
    }

    fn version(&self) -> u64 {
        self.0.version()
    }

    fn json(&self) -> Bytes {
        self.0.json()
    }

    fn value(&self) -> Cow<'_, Value> {
        Cow::Borrowed(self.0.value())
    }
}

/// An object of a kind whose fields have numbers.
struct Numbered {
    object: Stored,
    protobuf: Arc<Protobuf>,
    kind: Arc<str>,
}

impl Object for Numbered {
    fn key(&self) -> Cow<'_, str> {
        Object::key(&self.object)
    }

    fn version(&self) -> u64 {
        self.object.version()
    }

    fn json(&self) -> Bytes {
        self.object.json()
    }

    fn item_json(&self) -> Bytes {
        self.object.item_json()
    }

    fn protobuf(&self) -> Result<Bytes, ProtobufError> {
        self.protobuf.encode(&self.kind, self.object.value()).map(Bytes::from)
    }

    fn value(&self) -> Cow<'_, Value> {
        Object::value(&self.object)
    }
}

impl Source for StoreSource {
    fn get(&self, view: &View, name: &str) -> Option<Shared> {
        let found = self.store.get(&self.collection, &key(&view.namespace, name))?;
        Some(self.shared(found))
    }

    fn list(&self, view: &View, at: At) -> Result<Listed, VersionError> {
        let version = match at {
            At::Exact(version) => Some(version),
            At::NotOlderThan(version) => {
                let current = self.store.revision();
                if version > current {
                    return Err(VersionError::Ahead { current });
                }
                None
            }
            At::Latest | At::Any => None,
        };
        let prefix = prefix(&view.namespace);
        let (version, objects) = self.store.list_at(&self.collection, &prefix, version)?;
        let objects = objects
            .into_iter()
            .filter(|(_, object)| selects(view, object))
            .map(|(_, object)| self.shared(object))
            .collect();
        Ok(Listed { version, objects, as_of: AsOf::default() })
    }

    fn changes_after(
        &self,
        view: &View,
        version: u64,
        limit: usize,
    ) -> Result<Batch, VersionError> {
        let prefix = prefix(&view.namespace);
        let (up_to, changes) =
            self.store.changes_after(&self.collection, &prefix, version, limit)?;
        let more = changes.len() == limit;
        let events = changes
            .iter()
            .filter_map(|change| visible(view, change))
            .map(|(kind, object)| Event { kind, object: self.shared(object) })
            .collect();
        Ok(Batch { up_to, events, more, as_of: AsOf::default() })
    }

    fn version(&self) -> u64 {
        self.store.revision()
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.store.subscribe(&self.collection)
    }
}

/// The event that a change is for those who see only what the selectors select.
fn visible(view: &View, change: &Change) -> Option<(ChangeKind, Stored)> {
    let before = change.before.as_ref().filter(|before| selects(view, before));
    let after = change.kind != ChangeKind::Deleted && selects(view, &change.object);
    match (before, after) {
        (None, true) => Some((ChangeKind::Added, change.object.clone())),
        (Some(_), true) => Some((ChangeKind::Modified, change.object.clone())),
        (Some(_), false) if change.kind == ChangeKind::Deleted => {
            Some((ChangeKind::Deleted, change.object.clone()))
        }
        (Some(before), false) => {
            // It left the selection: what it was, with the version of the change.
            let mut value = before.value().clone();
            meta::set(&mut value, "resourceVersion", json!(change.version.to_string()));
            Some((ChangeKind::Deleted, Stored::new(value)))
        }
        (None, false) => None,
    }
}
