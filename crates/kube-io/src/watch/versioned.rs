//! A watch that also tells up to which resource version it has read.
//!
//! Whoever computes something from several kinds, and tells others as of when, needs more than the
//! versions of the objects that are there: after a list, that of the list, since what was deleted
//! last left no object behind; on a quiet kind, that of bookmarks.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::{ListParams, WatchParams};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::{Keyed, Selection, WATCH_SECONDS, WatchEvent, backoff};
use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, CallError, Verb};

/// Objects per page of a list.
const PAGE: u32 = 500;
/// A call without the beginning of an answer is given up after this time.
const DEADLINE: Duration = Duration::from_secs(30);
/// A watch that neither tells anything nor ends for so long after its time is given up.
const OVERTIME: Duration = Duration::from_secs(5);

/// What a watch saw, and how far it has read.
#[derive(Clone, Debug)]
pub enum Versioned<V: Keyed> {
    /// Something was seen.
    Seen(WatchEvent<V>),
    /// Everything up to this resource version has been told.
    UpTo(u64),
}

/// Watches a kind in all namespaces.
pub(crate) fn watch_versions<K, V>(
    client: &Client,
    selection: Selection,
    view: fn(K) -> V,
) -> impl Stream<Item = Versioned<V>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: Keyed<Key: Send> + Send + 'static,
{
    let state = Following {
        api: Api::<K>::all(client.kube().clone()),
        selection,
        view,
        at: At::Start,
        ready: VecDeque::new(),
        failures: 0,
        wait: None,
    };
    futures::stream::unfold(state, |mut state| async move {
        let told = state.next().await;
        Some((told, state))
    })
    .boxed()
}

type Frames<K> = Pin<Box<dyn Stream<Item = kube::Result<kube::api::WatchEvent<K>>> + Send>>;

/// How far a watch has come.
enum At<K> {
    /// All objects are to be listed.
    Start,
    /// Some pages of the list are read; this asks for the next.
    Page(String),
    /// All before this version is told.
    Version(String),
    /// And what follows is being read.
    Open(String, Frames<K>),
}

struct Following<K, V: Keyed> {
    api: Api<K>,
    selection: Selection,
    view: fn(K) -> V,
    at: At<K>,
    ready: VecDeque<Versioned<V>>,
    failures: u32,
    wait: Option<Duration>,
}

impl<K, V> Following<K, V>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: Keyed<Key: Send> + Send + 'static,
{
    async fn next(&mut self) -> Versioned<V> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return told;
            }
            if let Some(wait) = self.wait.take() {
                tokio::time::sleep(wait).await;
            }
            if let Err(error) = self.step().await {
                self.wait = Some(backoff(self.failures));
                self.failures = self.failures.saturating_add(1);
                tracing::debug!(error = %error.chain(), "watch broke");
                return Versioned::Seen(WatchEvent::Failed(error.chain()));
            }
        }
    }

    /// Does what comes next; dropped while it waits, it is done again.
    async fn step(&mut self) -> Result<(), ApiError> {
        match &mut self.at {
            At::Start => {
                self.list(None).await?;
                Ok(())
            }
            At::Page(token) => {
                let token = token.clone();
                self.list(Some(token)).await
            }
            At::Version(version) => {
                let version = version.clone();
                self.open(version).await
            }
            At::Open(_, frames) => {
                let longest = Duration::from_secs(u64::from(WATCH_SECONDS.end)) + OVERTIME;
                let frame = tokio::time::timeout(longest, frames.next()).await;
                self.take(frame.unwrap_or(None))
            }
        }
    }

    async fn list(&mut self, token: Option<String>) -> Result<(), ApiError> {
        let params = ListParams {
            label_selector: some(&self.selection.labels),
            field_selector: some(&self.selection.fields),
            limit: Some(PAGE),
            continue_token: token.clone(),
            ..ListParams::default()
        };
        let answer = within(self.api.list(&params)).await;
        let page = match answer {
            Ok(page) => page,
            Err(source) => {
                // What a list was to go on with may have expired.
                self.at = At::Start;
                return Err(Call::on::<K>(Verb::List).error(source));
            }
        };
        if token.is_none() {
            self.ready.push_back(Versioned::Seen(WatchEvent::Init));
        }
        let objects = page.items.into_iter().map(self.view);
        self.ready.extend(objects.map(|object| Versioned::Seen(WatchEvent::Applied(object))));
        self.failures = 0;
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => self.at = At::Page(token),
            None => {
                let version = page.metadata.resource_version.unwrap_or_default();
                self.ready.push_back(Versioned::Seen(WatchEvent::InitDone));
                self.read_up_to(&version);
                self.at = At::Version(version);
            }
        }
        Ok(())
    }

    async fn open(&mut self, version: String) -> Result<(), ApiError> {
        let params = WatchParams {
            label_selector: some(&self.selection.labels),
            field_selector: some(&self.selection.fields),
            timeout: Some(rand::random_range(WATCH_SECONDS)),
            bookmarks: true,
            ..WatchParams::default()
        };
        match within(self.api.watch(&params, &version)).await {
            Ok(frames) => {
                self.at = At::Open(version, frames.boxed());
                Ok(())
            }
            Err(source) => {
                if is_expired(&source) {
                    self.at = At::Start;
                }
                Err(Call::on::<K>(Verb::Watch).error(source))
            }
        }
    }

    /// Takes what an open watch told, or its end.
    fn take(
        &mut self,
        frame: Option<kube::Result<kube::api::WatchEvent<K>>>,
    ) -> Result<(), ApiError> {
        use kube::api::WatchEvent as Frame;
        let At::Open(version, _) = &mut self.at else { return Ok(()) };
        let of = |object: &K| object.meta().resource_version.clone().unwrap_or_default();
        let (seen, now) = match frame {
            Some(Ok(Frame::Added(object) | Frame::Modified(object))) => {
                let now = of(&object);
                (Some(WatchEvent::Applied((self.view)(object))), now)
            }
            Some(Ok(Frame::Deleted(object))) => {
                let now = of(&object);
                (Some(WatchEvent::Deleted((self.view)(object).key())), now)
            }
            Some(Ok(Frame::Bookmark(bookmark))) => (None, bookmark.metadata.resource_version),
            // The server ends watches now and then.
            None => {
                self.at = At::Version(std::mem::take(version));
                return Ok(());
            }
            Some(Ok(Frame::Error(status))) => {
                let source = CallError::from(*status);
                self.at = match is_expired(&source) {
                    true => At::Start,
                    false => At::Version(std::mem::take(version)),
                };
                return Err(Call::on::<K>(Verb::Watch).error(source));
            }
            Some(Err(error)) => {
                self.at = At::Version(std::mem::take(version));
                return Err(Call::on::<K>(Verb::Watch).error(error.into()));
            }
        };
        self.failures = 0;
        version.clone_from(&now);
        self.ready.extend(seen.map(Versioned::Seen));
        self.read_up_to(&now);
        Ok(())
    }

    fn read_up_to(&mut self, version: &str) {
        // One that is no number cannot be compared, and is promised nothing of.
        self.ready.extend(version.parse().ok().map(Versioned::UpTo));
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn is_expired(error: &CallError) -> bool {
    matches!(error, CallError::Status { code: 410, .. })
}

async fn within<T>(answer: impl Future<Output = kube::Result<T>>) -> Result<T, CallError> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Ok(answer) => answer.map_err(CallError::from),
        Err(_) => Err(CallError::Timeout),
    }
}
