//! The computed objects as resources of an API.

use std::borrow::Cow;
use std::sync::Arc;

use apiserver::protobuf::ProtobufError;
use apiserver::query::At;
use apiserver::source::{Batch, Event, Listed, Object, Shared, Source, View};
use apiserver::status::ApiError;
use apiserver::store::{ChangeKind, VersionError};
use apiserver::user::User;
use bytes::Bytes;
use policy::store::{CountError, DeltaKind, Item, Reader, Store};
use policy::translate::ObjectKind;
use tokio::sync::watch;

use super::state::State;

/// Field by which a reader asks for the share of one Node.
pub(crate) const NODE_NAME: &str = "nodeName";
/// Extra fact of a token: the Node of the Pod that it was made for.
const TOKEN_NODE: &str = "authentication.kubernetes.io/node-name";
/// Extra fact of a token: the Pod that it was made for.
const TOKEN_POD: &str = "authentication.kubernetes.io/pod-name";

/// Who the agents are.
#[derive(Clone, Debug)]
pub(crate) struct Agents {
    namespace: String,
    user: String,
    controller: String,
}

/// Who tells how far policies are realized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reporter {
    /// The agent of this Node.
    Agent(String),
    /// Another replica, for agents.
    Replica,
}

impl Agents {
    /// The agents of an installation in a namespace.
    pub(crate) fn new(namespace: &str) -> Self {
        let user = |name| User::service_account_name(namespace, name);
        Self {
            namespace: namespace.to_owned(),
            user: user("antrea-agent"),
            controller: user("antrea-controller"),
        }
    }

    /// Who reports.
    pub(crate) fn reporter(&self, user: &User, state: &State) -> Result<Reporter, ApiError> {
        if user.username == self.controller {
            return Ok(Reporter::Replica);
        }
        let node = self.node(user, state)?;
        node.map(Reporter::Agent).ok_or_else(|| forbidden("only agents report".to_owned()))
    }

    /// The Node of an agent, from its token; `None` if the user is no agent.
    pub(crate) fn node(&self, user: &User, state: &State) -> Result<Option<String>, ApiError> {
        if user.username != self.user {
            return Ok(None);
        }
        if let Some(node) = user.extra_value(TOKEN_NODE) {
            return Ok(Some(node.to_owned()));
        }
        let node = user.extra_value(TOKEN_POD).and_then(|pod| {
            let store = state.lock();
            let index = store.engine().index();
            let placed = index.find_pod(&self.namespace, pod)?;
            let node = index.pod(placed.pod)?.1.node()?;
            Some((**index.node_name(node)).to_owned())
        });
        match node {
            Some(node) => Ok(Some(node)),
            None => Err(forbidden("the token of an agent must tell its Node".to_owned())),
        }
    }
}

/// A refusal that is not about a resource.
pub(crate) fn forbidden(why: String) -> ApiError {
    ApiError::forbidden_path(&why)
}

/// Computed objects of one kind.
pub(crate) struct PolicySource {
    state: Arc<State>,
    kind: ObjectKind,
    agents: Agents,
}

impl PolicySource {
    pub(crate) fn new(state: Arc<State>, kind: ObjectKind, agents: Agents) -> Self {
        Self { state, kind, agents }
    }

    fn shared(&self, item: Arc<Item>) -> Shared {
        let version = self.state.epoch().version(item.count());
        Arc::new(Served { item, version })
    }

    /// Who reads, and what besides they filter by.
    fn reader(store: &Store, view: &View) -> Reader {
        match &view.node {
            None => Reader::All,
            Some(node) => {
                store.engine().index().find_node(node).map_or(Reader::Stranger, Reader::Node)
            }
        }
    }

    /// Only names can be filtered by: the objects have no labels, and no other fields.
    fn selects(view: &View, item: &Item) -> bool {
        view.fields.wanted("metadata.name").is_none_or(|name| name == item.name())
    }

    fn error(&self, error: CountError) -> VersionError {
        let epoch = self.state.epoch();
        match error {
            CountError::TooOld { oldest } => VersionError::TooOld { oldest: epoch.version(oldest) },
            CountError::Ahead { current } => {
                VersionError::Ahead { current: epoch.version(current) }
            }
        }
    }

    /// A version of another epoch says nothing about this one.
    fn count(&self, version: u64, store: &Store) -> Result<u32, VersionError> {
        let epoch = self.state.epoch();
        let oldest = epoch.version(store.count());
        epoch.count(version).ok_or(VersionError::TooOld { oldest })
    }
}

impl Source for PolicySource {
    fn admit(&self, user: &User, view: &mut View) -> Result<(), ApiError> {
        let asked = view.fields.wanted(NODE_NAME).map(str::to_owned);
        let own = self.agents.node(user, &self.state)?;
        if let (Some(asked), Some(own)) = (&asked, &own)
            && asked != own
        {
            return Err(forbidden(format!("the agent of Node {own:?} cannot read for {asked:?}")));
        }
        if !self.state.is_complete() {
            return Err(ApiError::unavailable("policies are not computed yet".to_owned()));
        }
        view.node = own.or(asked);
        Ok(())
    }

    fn get(&self, view: &View, name: &str) -> Option<Shared> {
        let mut store = self.state.lock();
        let reader = Self::reader(&store, view);
        store.get(self.kind, reader, name).map(|item| self.shared(item))
    }

    fn list(&self, view: &View, at: At) -> Result<Listed, VersionError> {
        let mut store = self.state.lock();
        let current = store.count();
        match at {
            At::Latest | At::Any => {}
            At::NotOlderThan(version) => {
                if self.count(version, &store)? > current {
                    return Err(self.error(CountError::Ahead { current }));
                }
            }
            // Only the present is kept whole.
            At::Exact(version) => match self.count(version, &store)? {
                count if count == current => {}
                count if count > current => return Err(self.error(CountError::Ahead { current })),
                _ => return Err(self.error(CountError::TooOld { oldest: current })),
            },
        }
        let reader = Self::reader(&store, view);
        let items = store.list(self.kind, reader);
        // With the objects still locked: what is read from now on is not in them.
        let as_of = self.state.whole_as_of(store.as_of());
        drop(store);
        let items = items.into_iter().filter(|item| Self::selects(view, item));
        let objects = items.map(|item| self.shared(item)).collect();
        Ok(Listed { version: self.state.epoch().version(current), objects, as_of })
    }

    fn changes_after(
        &self,
        view: &View,
        version: u64,
        limit: usize,
    ) -> Result<Batch, VersionError> {
        let store = self.state.lock();
        let count = self.count(version, &store)?;
        let reader = Self::reader(&store, view);
        let read = store.changes_after(self.kind, reader, count, limit);
        let read = read.map_err(|error| self.error(error))?;
        // What was read last may be behind what is promised: promise only at the end.
        let as_of = Arc::clone(store.as_of());
        drop(store);
        let deltas = read.deltas.into_iter().filter(|delta| Self::selects(view, &delta.item));
        let events = deltas.map(|delta| Event {
            kind: match delta.kind {
                DeltaKind::Added => ChangeKind::Added,
                DeltaKind::Modified => ChangeKind::Modified,
                DeltaKind::Deleted => ChangeKind::Deleted,
            },
            object: self.shared(delta.item),
        });
        Ok(Batch {
            up_to: self.state.epoch().version(read.up_to),
            events: events.collect(),
            as_of: if read.more { Arc::default() } else { as_of },
            more: read.more,
        })
    }

    fn version(&self) -> u64 {
        self.state.epoch().version(self.state.lock().count())
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.state.subscribe()
    }
}

/// An object with its resource version.
struct Served {
    item: Arc<Item>,
    version: u64,
}

impl Object for Served {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.item.name())
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn kind(&self) -> Option<&str> {
        Some(self.item.kind())
    }

    fn json(&self) -> Bytes {
        self.item.json(self.version)
    }

    fn protobuf(&self) -> Result<Bytes, ProtobufError> {
        Ok(self.item.protobuf(self.version))
    }
}
