//! A watch that also tells up to which resource version it has read.
//!
//! Whoever computes something from several kinds, and tells others as of when, needs more than the
//! versions of the objects that are there: after a list, that of the list, since what was deleted
//! last left no object behind; on a quiet kind, that of bookmarks.
//!
//! Kubernetes' own kinds are asked for in protobuf, of which only the fields in use are decoded, item
//! by item as a page comes in. A server may answer in JSON all the same.

pub(super) mod frames;

use std::collections::VecDeque;
use std::time::Duration;

use apis::controlplane::wire::DecodeError;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use http::Response;
use http_body_util::BodyExt;
use kube::Resource;
use kube::client::Body;
use serde::de::DeserializeOwned;

use super::{Keyed, WATCH_SECONDS, WatchEvent, backoff};
use crate::call::{Call, DEADLINE, List, Media, PAGE};
use crate::client::Client;
use crate::error::{ApiError, CallError, Verb};
use crate::lists::{ListMeta, ListReader};
use frames::{Frames, Heard};

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

/// Reads an object's protobuf message.
type Read<V> = fn(&[u8]) -> Result<V, DecodeError>;

/// How objects of a kind are read.
pub(crate) struct Form<K, V> {
    of_json: fn(K) -> V,
    of_message: Option<Read<V>>,
}

impl<K, V> Form<K, V> {
    /// From JSON alone, as CRDs have it.
    pub(crate) fn json(of_json: fn(K) -> V) -> Self {
        Self { of_json, of_message: None }
    }

    /// From protobuf where the server has that, else from JSON.
    pub(crate) fn either(of_json: fn(K) -> V, of_message: Read<V>) -> Self {
        Self { of_json, of_message: Some(of_message) }
    }

    /// Reads an object of a server's JSON.
    #[cfg(test)]
    pub(crate) fn of_json(&self, object: K) -> V {
        (self.of_json)(object)
    }

    /// Reads an object in protobuf.
    #[cfg(test)]
    pub(crate) fn of_message(&self, message: &[u8]) -> Result<V, DecodeError> {
        self.of_message.map_or(Err(DecodeError::Magic), |read| read(message))
    }

    fn media(&self) -> Media {
        if self.of_message.is_some() { Media::Protobuf } else { Media::Json }
    }
}

/// Watches a kind in all namespaces.
pub(crate) fn watch_versions<K, V>(
    client: &Client,
    form: Form<K, V>,
) -> impl Stream<Item = Versioned<V>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    V: Keyed<Key: Send> + Send + 'static,
{
    let state = Following {
        client: client.clone(),
        form,
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

/// How far a watch has come.
enum At {
    /// All objects are to be listed.
    Start,
    /// Some pages of the list are read; this asks for the next.
    Page(String),
    /// A page is coming in.
    Reading(ListReader, Body),
    /// All before this version is told.
    Version(String),
    /// And what follows is being read.
    Open(String, Frames),
}

struct Following<K, V: Keyed> {
    client: Client,
    form: Form<K, V>,
    at: At,
    ready: VecDeque<Versioned<V>>,
    failures: u32,
    wait: Option<Duration>,
}

impl<K, V> Following<K, V>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
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
        let done = match &mut self.at {
            At::Start => self.list(String::new()).await,
            At::Page(token) => {
                let token = token.clone();
                self.list(token).await
            }
            At::Reading(_, body) => {
                let frame = tokio::time::timeout(DEADLINE, body.frame()).await;
                let frame = frame.map_err(|_| CallError::Timeout).and_then(|frame| {
                    let frame = frame.transpose();
                    frame.map_err(|error| CallError::Transport(Box::new(error)))
                });
                // Trailers say nothing to us.
                frame.and_then(|frame| self.read(frame.map(|f| f.into_data().unwrap_or_default())))
            }
            At::Version(version) => {
                let version = version.clone();
                return self.open(version).await;
            }
            At::Open(_, frames) => {
                let longest = Duration::from_secs(u64::from(WATCH_SECONDS.end)) + OVERTIME;
                let heard = tokio::time::timeout(longest, frames.next(&self.form)).await;
                return self.take(heard.unwrap_or(Ok(None)));
            }
        };
        done.map_err(|source| {
            // What a list was to go on with may have expired.
            self.at = At::Start;
            Call::on::<K>(Verb::List).error(source)
        })
    }

    async fn list(&mut self, token: String) -> Result<(), CallError> {
        let is_first = token.is_empty();
        let mut call = Call::on::<K>(Verb::List).query("limit", PAGE.to_string());
        if !is_first {
            call = call.query("continue", token);
        }
        let answer = call.open(&self.client, self.form.media()).await?;
        if is_first {
            self.ready.push_back(Versioned::Seen(WatchEvent::Init));
        }
        if Media::of(&answer) == Media::Protobuf {
            let reader = ListReader::new(&K::api_version(&()), &K::kind(&()));
            self.at = At::Reading(reader, answer.into_body());
            return Ok(());
        }
        let page: List<K> = whole(answer).await?;
        let objects = page.items.into_iter().map(self.form.of_json);
        self.ready.extend(objects.map(|object| Versioned::Seen(WatchEvent::Applied(object))));
        self.end_page(ListMeta {
            resource_version: page.metadata.resource_version,
            continue_token: page.metadata.continue_token,
        });
        Ok(())
    }

    /// Reads a piece of a page, or its end.
    fn read(&mut self, data: Option<Bytes>) -> Result<(), CallError> {
        let At::Reading(reader, _) = &mut self.at else { return Ok(()) };
        let Some(of_message) = self.form.of_message else { return Ok(()) };
        match data {
            Some(data) => {
                let ready = &mut self.ready;
                let pushed = reader.push(&data, |item| {
                    ready.push_back(Versioned::Seen(WatchEvent::Applied(of_message(item)?)));
                    Ok(())
                });
                pushed.map_err(CallError::Message)
            }
            None => {
                let reader = std::mem::replace(reader, ListReader::new("", ""));
                let meta = reader.finish().map_err(CallError::Message)?;
                self.end_page(meta);
                Ok(())
            }
        }
    }

    fn end_page(&mut self, meta: ListMeta) {
        self.failures = 0;
        if !meta.continue_token.is_empty() {
            self.at = At::Page(meta.continue_token);
            return;
        }
        self.ready.push_back(Versioned::Seen(WatchEvent::InitDone));
        self.read_up_to(&meta.resource_version);
        self.at = At::Version(meta.resource_version);
    }

    async fn open(&mut self, version: String) -> Result<(), ApiError> {
        let seconds = rand::random_range(WATCH_SECONDS);
        let call = Call::on::<K>(Verb::Watch)
            .query("watch", "true".to_owned())
            .query("allowWatchBookmarks", "true".to_owned())
            .query("timeoutSeconds", seconds.to_string())
            .query("resourceVersion", version.clone());
        match call.open(&self.client, self.form.media()).await {
            Ok(answer) => {
                self.at = At::Open(version, Frames::of(answer));
                Ok(())
            }
            Err(source) => {
                if is_expired(&source) {
                    self.at = At::Start;
                }
                Err(call.error(source))
            }
        }
    }

    /// Takes what an open watch told, or its end.
    fn take(
        &mut self,
        heard: Result<Option<(Heard<V>, String)>, CallError>,
    ) -> Result<(), ApiError> {
        let At::Open(version, _) = &mut self.at else { return Ok(()) };
        let resume = At::Version(std::mem::take(version));
        let source = match heard {
            Ok(Some((Heard::Refused(source), _))) => source,
            Ok(Some((heard, now))) => {
                version.clone_from(&now);
                self.failures = 0;
                self.ready.extend(heard.into_event().map(Versioned::Seen));
                self.read_up_to(&now);
                return Ok(());
            }
            // The server ends watches now and then.
            Ok(None) => {
                self.at = resume;
                return Ok(());
            }
            Err(source) => source,
        };
        self.at = if is_expired(&source) { At::Start } else { resume };
        Err(Call::on::<K>(Verb::Watch).error(source))
    }

    fn read_up_to(&mut self, version: &str) {
        // One that is no number cannot be compared, and is promised nothing of.
        self.ready.extend(version.parse().ok().map(Versioned::UpTo));
    }
}

/// A whole answer in JSON.
async fn whole<T: DeserializeOwned>(answer: Response<Body>) -> Result<T, CallError> {
    let body = tokio::time::timeout(DEADLINE, answer.into_body().collect()).await;
    let body = body.map_err(|_| CallError::Timeout)?;
    let body = body.map_err(|error| CallError::Transport(Box::new(error)))?;
    serde_json::from_slice(&body.to_bytes()).map_err(CallError::Decode)
}

fn is_expired(error: &CallError) -> bool {
    matches!(error, CallError::Status { code: 410, .. })
}
