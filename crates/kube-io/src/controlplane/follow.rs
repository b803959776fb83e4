//! Follows one kind: connects, resumes, lists again, waits between attempts.

use std::marker::PhantomData;
use std::time::Duration;

use apis::controlplane::API_VERSION;
use apis::controlplane::wire::WireObject;
use http::{Request, header};
use kube::client::Body;
use tokio::time::Instant;

use super::events::{AsOf, Event, Frames, Heard, hear};
use super::way::{Next, Place};
use super::{Controlplane, lags, saw};
use crate::error::{ApiError, CallError, Verb};

/// What an answer may be in.
const ACCEPT: &str = "application/vnd.kubernetes.protobuf;stream=watch";
/// Longest wait before the first new attempt; a random part of it is taken.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait between attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Longest wait before another replica is tried; a random part of it is taken.
const TURN: Duration = Duration::from_millis(50);
/// For so long newer state is waited for, before older is taken after all: the cluster may have
/// been restored from a backup.
const LAG_PATIENCE: Duration = Duration::from_secs(30);
/// A watch is renewed after a random time from this range, so that agents spread over controllers.
const WATCH_SECONDS: std::ops::Range<u32> = 1800..3600;

/// One kind's stream.
pub(super) struct Follower<T, P> {
    via: Controlplane,
    plural: &'static str,
    frames: Option<(Place, Frames)>,
    /// Up to which version all is told.
    version: Option<u64>,
    /// Initial objects that are not all here yet.
    initial: Option<Vec<T>>,
    /// The newest inputs that any state we told was made from.
    seen: AsOf,
    lagging_since: Option<Instant>,
    failures: u32,
    wait: Option<Duration>,
    patches: PhantomData<fn() -> P>,
}

/// Why a stream has to be taken up again.
enum Broken {
    /// The server ended it, as it does now and then.
    Ended,
    /// It cannot continue from our version.
    Expired,
    /// There is a better way to follow it.
    Better,
    /// It failed, and where.
    Failed(Place, CallError),
}

impl<T: WireObject, P: WireObject> Follower<T, P> {
    pub(super) fn new(via: Controlplane, plural: &'static str) -> Self {
        Self {
            via,
            plural,
            frames: None,
            version: None,
            initial: None,
            seen: AsOf::new(),
            lagging_since: None,
            failures: 0,
            wait: None,
            patches: PhantomData,
        }
    }

    /// The next event. May be dropped while it waits: nothing is lost.
    pub(super) async fn next(&mut self) -> Event<T, P> {
        loop {
            if let Some(wait) = self.wait {
                tokio::time::sleep(wait).await;
                self.wait = None;
            }
            let broken = match self.step().await {
                Ok(Some(event)) => return event,
                Ok(None) => continue,
                Err(broken) => broken,
            };
            self.frames = None;
            self.initial = None;
            match broken {
                Broken::Ended => {
                    self.via.ways.ended();
                    self.wait = Some(backoff(0));
                }
                Broken::Better => {}
                Broken::Expired => self.version = None,
                Broken::Failed(place, source) => {
                    self.wait = Some(match self.via.ways.failed(place) {
                        Next::Another => part_of(TURN),
                        Next::Wait => backoff(self.failures),
                    });
                    self.failures = self.failures.saturating_add(1);
                    return Event::Failed(self.error(source).chain());
                }
            }
        }
    }

    fn error(&self, source: CallError) -> ApiError {
        let resource = self.plural.to_owned();
        ApiError { verb: Verb::Watch, resource, name: String::new(), source }
    }

    async fn step(&mut self) -> Result<Option<Event<T, P>>, Broken> {
        let (place, frames) = match &mut self.frames {
            Some(open) => open,
            None => {
                let open = self.connect().await?;
                self.initial = self.version.is_none().then(Vec::new);
                self.frames.insert(open)
            }
        };
        let place = *place;
        let transport = |why: String| Broken::Failed(place, CallError::Transport(why.into()));
        let frame = tokio::select! {
            frame = frames.next() => frame.map_err(transport)?,
            () = self.via.ways.better_than(place) => return Err(Broken::Better),
        };
        let Some(frame) = frame else {
            return Err(Broken::Ended);
        };
        let (heard, version) =
            hear(&frame).map_err(|error| transport(format!("malformed event: {error}")))?;
        self.failures = 0;
        let event = self.digest(place, heard)?;
        self.via.ways.works(place);
        // Until the initial objects are complete there is nothing to continue from.
        if self.initial.is_none() {
            let version = version.and_then(|version| version.parse().ok());
            self.version = self.version.max(version);
        }
        Ok(event)
    }

    fn digest(&mut self, place: Place, heard: Heard<T, P>) -> Result<Option<Event<T, P>>, Broken> {
        Ok(match (heard, &mut self.initial) {
            (Heard::Added(object), Some(initial)) => {
                initial.push(object);
                None
            }
            (Heard::Bookmark { as_of, ends_initial: true }, Some(objects)) => {
                let objects = std::mem::take(objects);
                self.check_lag(place, &as_of)?;
                self.initial = None;
                saw(&mut self.seen, &as_of);
                Some(Event::Replaced { objects, as_of })
            }
            (Heard::Added(object), None) => Some(Event::Added(object)),
            (Heard::Modified(patch), None) => Some(Event::Modified(patch)),
            (Heard::Deleted(name), None) => Some(Event::Deleted(name)),
            (Heard::Bookmark { as_of, .. }, None) => {
                saw(&mut self.seen, &as_of);
                Some(Event::Bookmark { as_of })
            }
            (Heard::Expired, _) => return Err(Broken::Expired),
            (Heard::Refused(error), _) => return Err(Broken::Failed(place, error)),
            (Heard::Modified(_) | Heard::Deleted(_) | Heard::Bookmark { .. }, Some(_)) => {
                let why = "changes come before the initial objects are complete";
                return Err(Broken::Failed(place, CallError::Transport(why.into())));
            }
        })
    }

    /// Refuses state that is older than what was told, for a while.
    fn check_lag(&mut self, place: Place, as_of: &AsOf) -> Result<(), Broken> {
        if !lags(as_of, &self.seen) {
            self.lagging_since = None;
            return Ok(());
        }
        let since = *self.lagging_since.get_or_insert_with(Instant::now);
        if since.elapsed() < LAG_PATIENCE {
            let why = "the controller's replica is behind what another one told";
            return Err(Broken::Failed(place, CallError::Transport(why.into())));
        }
        tracing::warn!(plural = self.plural, "taking over state that is older than what we had");
        self.lagging_since = None;
        self.seen.clear();
        Ok(())
    }

    async fn connect(&mut self) -> Result<(Place, Frames), Broken> {
        let start = match self.version {
            Some(version) => format!("resourceVersion={version}"),
            None => "sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
        };
        let seconds = rand::random_range(WATCH_SECONDS);
        let path = format!(
            "/apis/{API_VERSION}/{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}\
             &fieldSelector=nodeName%3D{}&{start}",
            self.plural, self.via.node
        );
        let request = Request::get(path)
            .header(header::ACCEPT, ACCEPT)
            .body(Body::empty())
            .map_err(|error| Broken::Failed(Place::Fixed, CallError::Request(error.to_string())))?;
        match self.via.send(request).await {
            Ok((place, answer)) => Ok((place, Frames::new(answer.into_body()))),
            Err((_, CallError::Status { code: 410, .. })) if self.version.is_some() => {
                Err(Broken::Expired)
            }
            Err((place, error)) => Err(Broken::Failed(place, error)),
        }
    }
}

/// A random wait before the next attempt after so many failures in a row.
fn backoff(failures: u32) -> Duration {
    let longest = FIRST_WAIT.saturating_mul(1 << failures.min(10)).min(LONGEST_WAIT);
    part_of(longest)
}

/// A random part of a time.
fn part_of(longest: Duration) -> Duration {
    longest.mul_f64(rand::random_range(0.1..=1.0))
}
