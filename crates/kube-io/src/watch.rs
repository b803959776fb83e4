//! Turns a watch into a stream that lists, follows, reconnects and lists again by itself.
//!
//! Level-triggered: between [`WatchEvent::Init`] and [`WatchEvent::InitDone`] every object there is
//! comes once, and what did not come is gone. That happens at the start and whenever the server can
//! no longer continue where the stream broke off.

mod versioned;

use std::fmt::Debug;
use std::pin::Pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::core::NamespaceResourceScope;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};

pub use versioned::Versioned;
#[cfg(test)]
pub(crate) use versioned::frames::{Frames, Heard};
pub(crate) use versioned::{Form, watch_versions};

/// First wait after a failure; each further one waits longer.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// Longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A watch is renewed after a random time from this range, so that clients do not do it together.
const WATCH_SECONDS: std::ops::Range<u32> = 180..290;

/// A view of an object that a watch delivers.
pub trait Keyed {
    /// What identifies the object.
    type Key: Clone + Debug;
    /// The object's identity.
    fn key(&self) -> Self::Key;
}

/// What a watch saw.
#[derive(Clone, Debug)]
pub enum WatchEvent<T: Keyed> {
    /// All objects follow, each as `Applied`; keep what is known until `InitDone`.
    Init,
    /// The object exists and looks like this.
    Applied(T),
    /// The object is gone.
    Deleted(T::Key),
    /// What did not come since `Init` is gone.
    InitDone,
    /// The watch broke; it is tried again, and what is known stays valid until then.
    Failed(String),
}

/// Which objects to watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    /// Field selector, or empty.
    pub fields: String,
    /// Label selector, or empty.
    pub labels: String,
}

/// Watches a cluster-scoped kind, or all namespaces of another.
pub(crate) fn watch<K, V>(
    client: &Client,
    selection: Selection,
    view: fn(K) -> V,
) -> impl Stream<Item = WatchEvent<V>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: Keyed + Send + 'static,
{
    follow(Api::<K>::all(client.kube().clone()), selection, view)
}

/// Watches a kind in one namespace.
pub(crate) fn watch_in<K, V>(
    client: &Client,
    namespace: &str,
    selection: Selection,
    view: fn(K) -> V,
) -> impl Stream<Item = WatchEvent<V>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + DeserializeOwned
        + Debug
        + Send
        + 'static,
    V: Keyed + Send + 'static,
{
    follow(Api::<K>::namespaced(client.kube().clone(), namespace), selection, view)
}

type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<K>>> + Send>>;

struct Following<K, V> {
    events: Events<K>,
    view: fn(K) -> V,
    failures: u32,
    wait: Option<Duration>,
}

fn follow<K, V>(
    api: Api<K>,
    selection: Selection,
    view: fn(K) -> V,
) -> impl Stream<Item = WatchEvent<V>> + Send + Unpin + 'static
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    V: Keyed + Send + 'static,
{
    let mut config = watcher::Config::default().timeout(rand::random_range(WATCH_SECONDS));
    if !selection.fields.is_empty() {
        config = config.fields(&selection.fields);
    }
    if !selection.labels.is_empty() {
        config = config.labels(&selection.labels);
    }
    let events: Events<K> = Box::pin(watcher::watcher(api, config));
    let state = Following { events, view, failures: 0, wait: None };
    futures::stream::unfold(state, |mut state| async move {
        if let Some(wait) = state.wait.take() {
            tokio::time::sleep(wait).await;
        }
        let event = state.events.next().await?;
        let seen = match event {
            Ok(event) => {
                // `Init` only says that a list is about to be asked for.
                if !matches!(event, watcher::Event::Init) {
                    state.failures = 0;
                }
                translate(event, state.view)
            }
            Err(error) => {
                state.wait = Some(backoff(state.failures));
                state.failures = state.failures.saturating_add(1);
                let error = explain::<K>(error);
                tracing::debug!(error = %error.chain(), "watch broke");
                WatchEvent::Failed(error.chain())
            }
        };
        Some((seen, state))
    })
    .boxed()
}

fn translate<K, V: Keyed>(event: watcher::Event<K>, view: fn(K) -> V) -> WatchEvent<V> {
    match event {
        watcher::Event::Init => WatchEvent::Init,
        watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
            WatchEvent::Applied(view(object))
        }
        watcher::Event::Delete(object) => WatchEvent::Deleted(view(object).key()),
        watcher::Event::InitDone => WatchEvent::InitDone,
    }
}

fn explain<K: Resource<DynamicType = ()>>(error: watcher::Error) -> ApiError {
    let (verb, source) = match error {
        watcher::Error::InitialListFailed(error) => (Verb::List, error.into()),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            (Verb::Watch, error.into())
        }
        watcher::Error::WatchError(status) => (Verb::Watch, (*status).into()),
        other => (Verb::Watch, crate::error::CallError::Transport(Box::new(other))),
    };
    Call::on::<K>(verb).error(source)
}

/// Wait before the next attempt after so many failures in a row, with a third of it random.
fn backoff(failures: u32) -> Duration {
    let full = FIRST_WAIT.saturating_mul(1 << failures.min(10)).min(LONGEST_WAIT);
    full.mul_f64(rand::random_range(0.67..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit() {
        assert!(backoff(0) <= FIRST_WAIT);
        assert!(backoff(3) > FIRST_WAIT * 5);
        for failures in [10, 1000, u32::MAX] {
            assert!(backoff(failures) <= LONGEST_WAIT);
            assert!(backoff(failures) >= LONGEST_WAIT / 2);
        }
    }
}
