//! Which way a request takes: to one of the controller's replicas, or through the API server.
//!
//! All requests of an agent go to one replica, chosen at random, for as long as it answers. Where it
//! does not, the next is chosen at once, and the one that failed is left alone for a while. The API
//! server is the way while no replica is known, and when none answers.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use http::Uri;
use kube::client::Body;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{certificates, http2};
use crate::client::{Client, ConnectError};
use crate::error::CallError;
use crate::replicas::{self, Replicas};

/// A replica that failed is not chosen for so long if there is another one.
const SHUNNED: Duration = Duration::from_secs(5);
/// For so long the replicas are waited for before the first request goes another way.
const DISCOVERY: Duration = Duration::from_secs(2);
/// A replica is kept for so long at least, where nothing fails.
const KEPT: Duration = Duration::from_secs(1200);

/// Where a request went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// The one way that there is.
    Fixed,
    /// The API server, which hands it on.
    ApiServer,
    /// A replica.
    Replica(SocketAddr),
}

/// Whether trying at once is worthwhile after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// There is another way, which did not fail lately.
    Another,
    /// All ways failed lately.
    Wait,
}

/// All ways to the controller.
pub(super) enum Ways {
    /// There is one.
    Fixed(kube::Client),
    /// There are several.
    Choice(Box<Choice>),
}

impl Ways {
    /// A client for the next request, and where it leads.
    pub(super) async fn next(&self) -> Result<(Place, kube::Client), CallError> {
        match self {
            Self::Fixed(http) => Ok((Place::Fixed, http.clone())),
            Self::Choice(choice) => {
                choice.await_known().await;
                let chosen = choice.choose(Instant::now());
                chosen.map_err(|error| CallError::Transport(Box::new(error)))
            }
        }
    }

    /// A request failed there.
    pub(super) fn failed(&self, place: Place) -> Next {
        match self {
            Self::Fixed(_) => Next::Wait,
            Self::Choice(choice) => choice.failed(place, Instant::now()),
        }
    }

    /// Something came from there.
    pub(super) fn works(&self, place: Place) {
        if let Self::Choice(choice) = self {
            let mut state = choice.lock();
            state.failed.remove(&place);
            if place != Place::ApiServer {
                state.n_retreats = 0;
            }
        }
    }

    /// A stream from there ended in good order: now and then that is when the replica is changed.
    pub(super) fn ended(&self) {
        if let Self::Choice(choice) = self {
            let mut state = choice.lock();
            if state.current.is_some_and(|(_, since)| since.elapsed() > KEPT) {
                state.current = None;
            }
        }
    }

    /// Waits until there is a better way than one that is in use.
    pub(super) async fn better_than(&self, place: Place) {
        let Self::Choice(choice) = self else { return std::future::pending().await };
        if place != Place::ApiServer {
            return std::future::pending().await;
        }
        let mut known = choice.known.subscribe();
        let usable = |known: &Option<Replicas>| known.as_ref().is_some_and(is_usable);
        if known.wait_for(usable).await.is_err() {
            return std::future::pending().await;
        }
        // Ever later, as there may be no way to them at all.
        let n_retreats = choice.lock().n_retreats.min(8);
        tokio::time::sleep(SHUNNED * (1 << n_retreats)).await;
        choice.leave(Place::ApiServer);
    }
}

fn is_usable(replicas: &Replicas) -> bool {
    replicas.ca_pem.is_some() && replicas.endpoints.iter().any(|endpoint| endpoint.ready)
}

/// The choice among replicas.
pub(super) struct Choice {
    client: Client,
    server_name: String,
    state: Mutex<State>,
    /// What the cluster tells; the task that asks it ends with this.
    known: Arc<watch::Sender<Option<Replicas>>>,
}

#[derive(Default)]
struct State {
    replicas: Replicas,
    open: HashMap<Place, kube::Client>,
    current: Option<(Place, Instant)>,
    failed: HashMap<Place, Instant>,
    /// How often the API server was taken although there are replicas.
    n_retreats: u32,
}

impl Choice {
    /// Begins to ask the cluster for replicas; needs a runtime.
    pub(super) fn start(client: &Client, namespace: &str) -> Self {
        let (known_tx, _) = watch::channel(None);
        let known = Arc::new(known_tx);
        let weak = Arc::downgrade(&known);
        let mut told = replicas::follow(client, namespace);
        tokio::spawn(async move {
            loop {
                let gone = async {
                    while weak.strong_count() > 0 {
                        tokio::time::sleep(SHUNNED).await;
                    }
                };
                let replicas = tokio::select! {
                    replicas = told.next() => replicas,
                    () = gone => return,
                };
                let (Some(replicas), Some(known)) = (replicas, weak.upgrade()) else { return };
                known.send_replace(Some(replicas));
            }
        });
        let server_name = replicas::server_name(namespace);
        Self { client: client.clone(), server_name, state: Mutex::default(), known }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn await_known(&self) {
        if self.known.borrow().is_some() {
            return;
        }
        let mut known = self.known.subscribe();
        let _ = tokio::time::timeout(DISCOVERY, known.wait_for(Option::is_some)).await;
    }

    fn leave(&self, place: Place) {
        let mut state = self.lock();
        if state.current.is_some_and(|(current, _)| current == place) {
            state.current = None;
        }
    }

    fn failed(&self, place: Place, now: Instant) -> Next {
        let mut state = self.lock();
        state.failed.insert(place, now);
        state.open.remove(&place);
        if state.current.is_some_and(|(current, _)| current == place) {
            state.current = None;
        }
        let mut places = state.places().into_iter();
        match places.any(|(place, _)| !state.is_shunned(place, now)) {
            true => Next::Another,
            false => Next::Wait,
        }
    }

    fn choose(&self, now: Instant) -> Result<(Place, kube::Client), ConnectError> {
        let mut state = self.lock();
        if let Some(replicas) = &*self.known.borrow()
            && *replicas != state.replicas
        {
            if replicas.ca_pem != state.replicas.ca_pem {
                // Streams that flow go on; whatever begins anew trusts the new authority.
                state.open.clear();
            }
            state.replicas.clone_from(replicas);
        }
        let current = state.current.map(|(place, _)| place);
        let place = current.unwrap_or_else(|| state.pick(now));
        if current.is_none() {
            tracing::debug!(?place, "chose a way to the controller");
            state.current = Some((place, now));
            if place == Place::ApiServer && is_usable(&state.replicas) {
                state.n_retreats = state.n_retreats.saturating_add(1);
            }
        }
        if let Some(open) = state.open.get(&place) {
            return Ok((place, open.clone()));
        }
        let mut config = self.client.config().clone();
        if let Place::Replica(address) = place {
            let url = format!("https://{address}");
            config.cluster_url =
                url.parse::<Uri>().map_err(|_| ConnectError::Override(url.clone()))?;
            config.tls_server_name = Some(self.server_name.clone());
            let ca_pem = state.replicas.ca_pem.clone().unwrap_or_default();
            config.root_cert = Some(certificates(&ca_pem));
            config.root_cert_file = None;
        }
        let http = http2(&config).map_err(|error| ConnectError::Build(Box::new(error)))?;
        state.open.insert(place, http.clone());
        Ok((place, http))
    }
}

impl State {
    /// All ways with their rank: the lower, the better.
    fn places(&self) -> Vec<(Place, u8)> {
        let replicas = self.replicas.endpoints.iter().filter(|_| self.replicas.ca_pem.is_some());
        let replicas = replicas.map(|one| (Place::Replica(one.address), u8::from(!one.ready)));
        replicas.chain([(Place::ApiServer, 2)]).collect()
    }

    fn is_shunned(&self, place: Place, now: Instant) -> bool {
        self.failed.get(&place).is_some_and(|at| now < *at + SHUNNED)
    }

    fn pick(&self, now: Instant) -> Place {
        let rank = |(place, rank): &(Place, u8)| match self.is_shunned(*place, now) {
            false => (None, *rank),
            // Of those that failed, the one that did so first.
            true => (self.failed.get(place).copied(), *rank),
        };
        let places = self.places();
        let best = places.iter().map(rank).min();
        let best: Vec<Place> = places
            .iter()
            .filter(|place| Some(rank(place)) == best)
            .map(|(place, _)| *place)
            .collect();
        let n = rand::random_range(0..best.len().max(1));
        best.get(n).copied().unwrap_or(Place::ApiServer)
    }
}

/// A request without a body, or with one that can be sent again.
pub(super) fn copy_of(request: &http::Request<Vec<u8>>) -> http::Request<Body> {
    let mut copy = http::Request::new(Body::from(request.body().clone()));
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::Endpoint;

    fn mk_state(ready: &[(u16, bool)]) -> State {
        let endpoints = ready.iter().map(|(port, ready)| Endpoint {
            address: ([127, 0, 0, 1], *port).into(),
            ready: *ready,
        });
        let replicas = Replicas { endpoints: endpoints.collect(), ca_pem: Some("PEM".into()) };
        State { replicas, ..State::default() }
    }

    fn port(place: Place) -> u16 {
        match place {
            Place::Replica(address) => address.port(),
            _ => 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ready_ones_come_first_and_those_that_failed_last() {
        let now = Instant::now();
        let mut state = mk_state(&[(1, true), (2, true), (3, false)]);
        let picked = |state: &State, now| {
            let all = (0..200).map(|_| port(state.pick(now)));
            all.collect::<std::collections::BTreeSet<u16>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(picked(&state, now), [1, 2]);
        state.failed.insert(Place::Replica(([127, 0, 0, 1], 1).into()), now);
        assert_eq!(picked(&state, now), [2]);
        let later = now + Duration::from_millis(1);
        state.failed.insert(Place::Replica(([127, 0, 0, 1], 2).into()), later);
        assert_eq!(picked(&state, later), [3]);
        state.failed.insert(Place::Replica(([127, 0, 0, 1], 3).into()), later);
        assert_eq!(picked(&state, later), [0], "then through the API server");
        state.failed.insert(Place::ApiServer, later);
        assert_eq!(picked(&state, later), [1], "all failed: the one that did so first");
        assert_eq!(picked(&state, now + SHUNNED), [1], "its time is over");
        assert_eq!(picked(&mk_state(&[]), now), [0]);
    }
}
