//! The lock that a session needs, if it needs one (RFC 7047, section 4.1.8).

use std::time::Duration;

use ovsdb::{Id, LockMethod, Operation, request};
use tokio::time::Instant;

/// A former connection of ours may have the lock for a moment after its end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection's lock.
#[derive(Debug, Default)]
pub(super) struct Lock {
    /// None needs nothing.
    name: Option<String>,
    progress: Progress,
}

#[derive(Debug, Default)]
enum Progress {
    #[default]
    NotAsked,
    Asked(Id, Instant),
    /// Another one has it, since when we ask.
    Queued(Instant),
    /// The same for so long that it was said.
    Waits,
    Held,
}

impl Lock {
    pub(super) fn new(name: Option<String>) -> Self {
        Self { name, progress: Progress::NotAsked }
    }

    /// The bytes of a request for it.
    pub(super) fn ask(&mut self, id: Id, now: Instant) -> Option<Vec<u8>> {
        let (method, params) = LockMethod::Lock.request(self.name.as_ref()?);
        self.progress = Progress::Asked(id, now);
        Some(request(id, method, &params).to_string().into_bytes())
    }

    pub(super) fn asked_at(&self) -> Option<Instant> {
        match self.progress {
            Progress::Asked(_, at) => Some(at),
            _ => None,
        }
    }

    pub(super) fn was_asked_by(&self, id: Id) -> bool {
        matches!(self.progress, Progress::Asked(asked, _) if asked == id)
    }

    /// The request is answered, by whether we have it.
    pub(super) fn answered(&mut self, is_held: bool, now: Instant) {
        self.progress = if is_held { Progress::Held } else { Progress::Queued(now) };
    }

    /// It is ours from now on.
    pub(super) fn granted(&mut self) {
        self.progress = Progress::Held;
    }

    /// Whether it is ours, or none is needed.
    pub(super) fn is_there(&self) -> bool {
        self.name.is_none() || matches!(self.progress, Progress::Held)
    }

    /// When it has to be said that another one has it.
    pub(super) fn patience_ends(&self) -> Option<Instant> {
        match self.progress {
            Progress::Queued(since) => Some(since + PATIENCE),
            _ => None,
        }
    }

    /// Whether that is now; once.
    pub(super) fn begins_to_wait(&mut self, now: Instant) -> bool {
        let is_over = self.patience_ends().is_some_and(|end| now >= end);
        if is_over {
            self.progress = Progress::Waits;
        }
        is_over
    }

    /// What fails a transaction unless the lock is ours.
    pub(super) fn assertion(&self) -> Option<Operation> {
        Some(Operation::Assert { lock: self.name.clone()? })
    }
}
