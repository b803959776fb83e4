//! Carries out the decisions of [`super::decide`] and tells when this replica leads.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::decide::{Candidate, Event, Now, Op, Terms};
use super::object::Lease;
use super::store::{LeaseStore, StoreError};

/// Waits are made up to this much longer, so that replicas do not act in step.
const JITTER: f64 = 0.2;

/// Whether this replica leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Another one may lead.
    Follower {
        /// Who does, as far as known.
        holder: Option<String>,
    },
    /// This one leads. A later leadership of this replica has a higher number, also where nobody led
    /// in between.
    Leader {
        /// Number of this leadership.
        term: u32,
    },
}

impl Leadership {
    /// This replica leads.
    pub fn is_leader(&self) -> bool {
        matches!(self, Self::Leader { .. })
    }
}

/// Tells when the server last answered; for health checks.
#[derive(Clone)]
pub struct Contact {
    start: Instant,
    /// Milliseconds after `start`.
    answered: Arc<AtomicU64>,
}

impl Contact {
    fn new() -> Self {
        Self { start: Instant::now(), answered: Arc::default() }
    }

    fn note(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered.store(millis, Ordering::Relaxed);
    }

    /// Time since the server last answered, or since the start if it never did.
    pub fn silence(&self) -> Duration {
        let answered = Duration::from_millis(self.answered.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(answered)
    }
}

/// A running candidacy.
pub struct Elector {
    leadership: watch::Receiver<Leadership>,
    contact: Contact,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Elector {
    /// Starts to compete for a Lease; `blank` names it, `identity` must differ between replicas.
    pub fn start(store: impl LeaseStore, blank: Lease, identity: &str, terms: Terms) -> Self {
        let (leadership_tx, leadership) = watch::channel(Leadership::Follower { holder: None });
        let (stop, stopped) = oneshot::channel();
        let contact = Contact::new();
        let run = Run {
            candidate: Candidate::new(identity, terms, blank),
            store,
            leadership_tx,
            contact: contact.clone(),
        };
        let task = tokio::spawn(run.run(stopped));
        Self { leadership, contact, stop, task }
    }

    /// Follows whether this replica leads.
    ///
    /// Two changes in quick succession may be seen as one: compare the term.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Tells when the server last answered.
    pub fn contact(&self) -> Contact {
        self.contact.clone()
    }

    /// Stops competing and gives the Lease up if it is held.
    ///
    /// Whatever only a leader may do must have ended before.
    pub async fn release(self) {
        // The task may have ended with its runtime, then there is nothing left to do.
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}

struct Run<S> {
    candidate: Candidate,
    store: S,
    leadership_tx: watch::Sender<Leadership>,
    contact: Contact,
}

impl<S: LeaseStore> Run<S> {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut event = Event::Tick;
        loop {
            let op = self.candidate.step(event, self.now());
            self.publish();
            event = tokio::select! {
                event = self.perform(op) => event,
                _ = &mut stopped => break,
            };
        }
        if let Some(lease) = self.candidate.release(self.now()) {
            self.publish();
            let given_up = tokio::time::timeout(RELEASE_DEADLINE, self.store.replace(&lease)).await;
            match given_up {
                Ok(Ok(_)) => tracing::info!("gave up leadership"),
                Ok(Err(error)) => tracing::warn!(%error, "give up leadership"),
                Err(_) => tracing::warn!("no answer when giving up leadership"),
            }
        }
    }

    async fn perform(&self, op: Op) -> Event {
        match op {
            Op::Read => self.bounded(self.store.read(), Event::Read).await,
            Op::Create(lease) => self.bounded(self.store.create(&lease), Event::Written).await,
            Op::Replace(lease) => self.bounded(self.store.replace(&lease), Event::Written).await,
            Op::Wait(wait) => {
                let wait = wait.mul_f64(1.0 + rand::random_range(0.0..JITTER));
                self.until_lost(tokio::time::sleep(wait)).await;
                Event::Tick
            }
        }
    }

    async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, StoreError>>,
        event: impl FnOnce(T) -> Event,
    ) -> Event {
        let deadline = self.candidate.call_deadline(self.now().steady);
        match tokio::time::timeout(deadline, call).await {
            Ok(Ok(answer)) => {
                self.contact.note();
                event(answer)
            }
            Ok(Err(StoreError::Conflict)) => {
                self.contact.note();
                Event::Conflict
            }
            Ok(Err(StoreError::Failed(error))) => {
                tracing::warn!(error, "reach the Lease");
                Event::Failed
            }
            Err(_) => {
                tracing::warn!("no answer from the Lease in time");
                Event::Failed
            }
        }
    }

    /// Waits, but not beyond the end of the present leadership.
    async fn until_lost(&self, wait: impl Future<Output = ()>) {
        let steady = self.now().steady;
        if self.candidate.term(steady).is_none() {
            return wait.await;
        }
        // An end means: tick, and the step finds that leadership is over.
        let _ = tokio::time::timeout(self.candidate.call_deadline(steady), wait).await;
    }

    fn now(&self) -> Now {
        Now { steady: self.contact.start.elapsed(), wall: Timestamp::now() }
    }

    fn publish(&self) {
        let next = match self.candidate.term(self.now().steady) {
            Some(term) => Leadership::Leader { term },
            None => Leadership::Follower { holder: self.candidate.holder().map(str::to_owned) },
        };
        self.leadership_tx.send_if_modified(|now| {
            let changed = *now != next;
            if changed {
                tracing::info!(?next, "leadership changed");
                *now = next;
            }
            changed
        });
    }
}

/// Time for the last write when the process ends.
const RELEASE_DEADLINE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
