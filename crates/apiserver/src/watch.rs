//! Watches: changes of a collection as a stream of JSON lines.
//!
//! A stream reads the store's window when its client is ready for more; one that falls out of the
//! window, or asks for a version that has left it, gets one `ERROR` event with a 410 and ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::BodyError;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use crate::store::{Change, ChangeKind, Store, Stored, VersionError};

/// How often a quiet watch gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch gets a last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// How many changes are read at once.
const BATCH: usize = 128;

/// Where a watch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With an event for each object that exists.
    WithObjects {
        /// Whether a bookmark tells where they end.
        marked: bool,
    },
    /// After a version.
    After(u64),
    /// Now.
    Now,
}

/// Writes one event's object.
pub trait Encode: Send {
    /// The object of an event.
    fn object(&mut self, object: &Stored) -> Bytes;
    /// The object of a bookmark, `{"metadata": ...}` filled in.
    fn bookmark(&mut self, metadata: Value) -> Bytes;
}

/// What a watch is about.
pub struct WatchRequest {
    /// The store.
    pub store: Arc<Store>,
    /// The collection.
    pub collection: String,
    /// Prefix of the keys.
    pub prefix: String,
    /// Labels that objects must have.
    pub labels: LabelSelector,
    /// Fields that objects must have.
    pub fields: FieldSelector,
    /// Where it starts.
    pub start: Start,
    /// Whether bookmarks are sent.
    pub bookmarks: bool,
    /// When it ends.
    pub timeout: Duration,
    /// Ends it early.
    pub stop: CancellationToken,
    /// Writes the objects.
    pub encode: Box<dyn Encode>,
}

struct Watch {
    request: WatchRequest,
    changed: watch::Receiver<u64>,
    cursor: u64,
    ready: VecDeque<Bytes>,
    end: Instant,
    next_bookmark: Instant,
    over: bool,
}

/// The lines of a watch.
pub fn stream(request: WatchRequest) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
    let watch = Watch::new(request);
    futures::stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok(line), watch))
    })
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

impl Watch {
    fn new(mut request: WatchRequest) -> Self {
        let changed = request.store.subscribe(&request.collection);
        let mut ready = VecDeque::new();
        let cursor = match request.start {
            Start::After(version) => version,
            Start::Now => request.store.revision(),
            Start::WithObjects { marked } => {
                let (revision, objects) = request.store.list(&request.collection, &request.prefix);
                for object in &objects {
                    if request.labels.matches(object.value())
                        && request.fields.matches(object.value())
                    {
                        ready.push_back(line("ADDED", &request.encode.object(object)));
                    }
                }
                if marked {
                    let metadata = json!({
                        "resourceVersion": revision.to_string(),
                        "annotations": {"k8s.io/initial-events-end": "true"},
                    });
                    ready.push_back(line("BOOKMARK", &request.encode.bookmark(metadata)));
                }
                revision
            }
        };
        let now = Instant::now();
        let end = now + request.timeout;
        let last = if request.timeout > BOOKMARK_BEFORE_END {
            end - BOOKMARK_BEFORE_END
        } else {
            end + BOOKMARK_EVERY
        };
        let next_bookmark = last.min(now + BOOKMARK_EVERY);
        Self { request, changed, cursor, ready, end, next_bookmark, over: false }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(line) = self.ready.pop_front() {
                return Some(line);
            }
            if self.over {
                return None;
            }
            self.changed.borrow_and_update();
            self.read();
            if !self.ready.is_empty() || self.over {
                continue;
            }
            let stop = self.request.stop.clone();
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep_until(self.end) => return None,
                () = tokio::time::sleep_until(self.next_bookmark) => self.bookmark(),
                changed = self.changed.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
            }
        }
    }

    fn bookmark(&mut self) {
        self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
        // A version ahead of ours was asked for: there is nothing to tell yet.
        if self.request.bookmarks && self.cursor <= self.request.store.revision() {
            let metadata = json!({ "resourceVersion": self.cursor.to_string() });
            self.ready.push_back(line("BOOKMARK", &self.request.encode.bookmark(metadata)));
        }
    }

    /// Reads changes until some are for this watch, or none are left.
    fn read(&mut self) {
        let request = &mut self.request;
        while self.ready.is_empty() {
            let read = request.store.changes_after(
                &request.collection,
                &request.prefix,
                self.cursor,
                BATCH,
            );
            let (up_to, changes) = match read {
                Ok(read) => read,
                Err(VersionError::TooOld { oldest }) => {
                    let text = format!("too old resource version: {} ({oldest})", self.cursor);
                    let status = ApiError::expired(text).to_status().to_string();
                    self.ready.push_back(line("ERROR", status.as_bytes()));
                    self.over = true;
                    return;
                }
                Err(VersionError::Ahead { .. }) => return,
            };
            let full = changes.len() == BATCH;
            self.cursor = up_to;
            for change in &changes {
                if let Some((kind, object)) = visible(&request.labels, &request.fields, change) {
                    self.ready.push_back(line(kind, &request.encode.object(&object)));
                }
            }
            if !full {
                return;
            }
        }
    }
}

/// The event that a change is for those who see only what the selectors select.
fn visible(
    labels: &LabelSelector,
    fields: &FieldSelector,
    change: &Change,
) -> Option<(&'static str, Stored)> {
    let selects =
        |object: &Stored| labels.matches(object.value()) && fields.matches(object.value());
    let before = change.before.as_ref().filter(|before| selects(before));
    let after = (change.kind != ChangeKind::Deleted && selects(&change.object)).then_some(());
    match (before, after) {
        (None, Some(())) => Some(("ADDED", change.object.clone())),
        (Some(_), Some(())) => Some(("MODIFIED", change.object.clone())),
        (Some(_), None) if change.kind == ChangeKind::Deleted => {
            Some(("DELETED", change.object.clone()))
        }
        (Some(before), None) => {
            // It left the selection: what it was, with the version of the change.
            let mut value = before.value().clone();
            crate::meta::set(&mut value, "resourceVersion", json!(change.version.to_string()));
            Some(("DELETED", Stored::new(value)))
        }
        (None, None) => None,
    }
}
