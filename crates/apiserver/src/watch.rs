//! Watches: changes of a source as a stream of events.
//!
//! A stream reads the source's window when its client is ready for more; one that falls out of the
//! window, or asks for a version that has left it, gets one `ERROR` event with a 410 and ends. So a
//! slow client costs no memory beyond one batch of shared bytes, and a dead one ends with its
//! connection. Bookmarks tell how far a quiet watch has read, and at once (though not more often
//! than every `PROGRESS`) when the inputs of the source went on without a visible change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::body::BodyError;
use crate::query::At;
use crate::source::{AsOf, Shared, Source, View};
use crate::status::ApiError;
use crate::store::{ChangeKind, VersionError};

/// Annotation of the bookmark that ends a watch's initial objects.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// How often a quiet watch gets a bookmark.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// How long before its end a watch gets a last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Shortest time between two bookmarks that tell of the inputs' progress.
const PROGRESS: Duration = Duration::from_millis(20);
/// How many changes are read at once.
const BATCH: usize = 128;
/// Events go out together up to about so many bytes: each piece costs room and time on its way.
const TOGETHER: usize = 16 << 10;

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

/// Writes events.
pub trait Encode: Send {
    /// An event about an object.
    fn event(&mut self, kind: &str, object: &Shared) -> Bytes;
    /// A bookmark with the given metadata.
    fn bookmark(&mut self, metadata: Value) -> Bytes;
    /// The event that ends a watch with an error.
    fn error(&mut self, error: &ApiError) -> Bytes;
}

/// What a watch is about.
pub struct WatchRequest {
    /// The source.
    pub source: Arc<dyn Source>,
    /// Which objects are seen.
    pub view: View,
    /// Where it starts.
    pub start: Start,
    /// Whether bookmarks are sent.
    pub bookmarks: bool,
    /// When it ends.
    pub timeout: Duration,
    /// Ends it early.
    pub stop: CancellationToken,
    /// Writes the events.
    pub encode: Box<dyn Encode>,
}

struct Watch {
    request: WatchRequest,
    changed: watch::Receiver<u64>,
    cursor: u64,
    /// Objects at the start that are not encoded yet: a reader takes them as fast as it can.
    initial: std::vec::IntoIter<Shared>,
    /// Whether a bookmark is to tell their end.
    marks_end: bool,
    ready: VecDeque<Bytes>,
    end: Instant,
    next_bookmark: Instant,
    last_bookmark: Instant,
    as_of: AsOf,
    told: AsOf,
    over: bool,
}

/// The events of a watch, encoded.
pub fn stream(request: WatchRequest) -> impl Stream<Item = Result<Bytes, BodyError>> + Send {
    let watch = Watch::new(request);
    futures::stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok(line), watch))
    })
}

/// The name of a change in events.
pub fn event_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "ADDED",
        ChangeKind::Modified => "MODIFIED",
        ChangeKind::Deleted => "DELETED",
    }
}

impl Watch {
    fn new(request: WatchRequest) -> Self {
        let now = Instant::now();
        let end = now + request.timeout;
        let last = if request.timeout > BOOKMARK_BEFORE_END {
            end - BOOKMARK_BEFORE_END
        } else {
            end + BOOKMARK_EVERY
        };
        let mut watch = Self {
            changed: request.source.subscribe(),
            request,
            cursor: 0,
            initial: Vec::new().into_iter(),
            marks_end: false,
            ready: VecDeque::new(),
            end,
            next_bookmark: last.min(now + BOOKMARK_EVERY),
            last_bookmark: now,
            as_of: AsOf::default(),
            told: AsOf::default(),
            over: false,
        };
        match watch.request.start {
            Start::After(version) => watch.cursor = version,
            Start::Now => watch.cursor = watch.request.source.version(),
            Start::WithObjects { marked } => watch.start(marked),
        }
        watch
    }

    fn start(&mut self, marked: bool) {
        let request = &mut self.request;
        let listed = match request.source.list(&request.view, At::Latest) {
            Ok(listed) => listed,
            Err(error) => return self.fail(error),
        };
        self.initial = listed.objects.into_iter();
        self.marks_end = marked;
        self.cursor = listed.version;
        self.as_of = listed.as_of;
    }

    /// Some of what is to be told, in one piece.
    fn take(&mut self) -> Option<Bytes> {
        let mut size = self.ready.iter().map(Bytes::len).sum::<usize>();
        while size < TOGETHER {
            let Some(object) = self.initial.next() else { break };
            let event = self.request.encode.event("ADDED", &object);
            size += event.len();
            self.ready.push_back(event);
        }
        if self.initial.len() == 0 && std::mem::take(&mut self.marks_end) {
            self.initial = Vec::new().into_iter();
            self.bookmark(&[(INITIAL_EVENTS_END, "true")]);
        }
        together(&mut self.ready)
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.take() {
                return Some(piece);
            }
            if self.over {
                return None;
            }
            self.changed.borrow_and_update();
            self.read();
            if !self.ready.is_empty() || self.over {
                continue;
            }
            let mut bookmark = self.next_bookmark;
            if self.request.bookmarks && self.as_of != self.told {
                bookmark = bookmark.min(self.last_bookmark + PROGRESS);
            }
            let stop = self.request.stop.clone();
            tokio::select! {
                () = stop.cancelled() => return None,
                () = tokio::time::sleep_until(self.end) => return None,
                () = tokio::time::sleep_until(bookmark) => self.usual_bookmark(),
                changed = self.changed.changed() => {
                    if changed.is_err() {
                        return None;
                    }
                }
            }
        }
    }

    fn usual_bookmark(&mut self) {
        self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
        // A version ahead of ours was asked for: there is nothing to tell yet.
        if self.request.bookmarks && self.cursor <= self.request.source.version() {
            self.bookmark(&[]);
        }
    }

    fn bookmark(&mut self, annotations: &[(&str, &str)]) {
        self.last_bookmark = Instant::now();
        self.told = Arc::clone(&self.as_of);
        let mut metadata = json!({ "resourceVersion": self.cursor.to_string() });
        for (key, value) in annotations {
            metadata["annotations"][key] = json!(value);
        }
        for (key, value) in self.as_of.iter() {
            metadata["annotations"][key] = json!(value);
        }
        self.ready.push_back(self.request.encode.bookmark(metadata));
    }

    fn fail(&mut self, error: VersionError) {
        if let VersionError::TooOld { oldest } = error {
            let text = format!("too old resource version: {} ({oldest})", self.cursor);
            self.ready.push_back(self.request.encode.error(&ApiError::expired(text)));
            self.over = true;
        }
    }

    /// Reads changes until some are for this watch, or none are left.
    fn read(&mut self) {
        while self.ready.is_empty() {
            let request = &mut self.request;
            let batch = match request.source.changes_after(&request.view, self.cursor, BATCH) {
                Ok(batch) => batch,
                Err(error) => return self.fail(error),
            };
            self.cursor = batch.up_to;
            for event in &batch.events {
                let line = request.encode.event(event_name(event.kind), &event.object);
                self.ready.push_back(line);
            }
            if !batch.more {
                // What the inputs came to is only known to be all told at the end.
                self.as_of = batch.as_of;
                return;
            }
        }
    }
}

/// Takes the first events off, as many as go out together.
fn together(ready: &mut VecDeque<Bytes>) -> Option<Bytes> {
    let first = ready.pop_front()?;
    let (mut n, mut size) = (0, first.len());
    while let Some(next) = ready.get(n)
        && size + next.len() <= TOGETHER
    {
        n += 1;
        size += next.len();
    }
    let mut piece = first;
    if n > 0 {
        let mut whole = BytesMut::with_capacity(size);
        whole.extend_from_slice(&piece);
        ready.drain(..n).for_each(|event| whole.extend_from_slice(&event));
        piece = whole.freeze();
    }
    if ready.is_empty() {
        // Most watches are quiet for most of their time.
        *ready = VecDeque::new();
    }
    Some(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_events_go_out_together_and_large_ones_alone() {
        let mut ready: VecDeque<Bytes> =
            [3, 4, TOGETHER, TOGETHER + 1, 5].map(|size| vec![7; size].into()).into();
        let mut sizes = Vec::new();
        while let Some(piece) = together(&mut ready) {
            sizes.push(piece.len());
        }
        assert_eq!(sizes, [7, TOGETHER, TOGETHER + 1, 5]);
    }
}
