//! The rules of leadership: what a replica does next, given what it last saw of the Lease.
//!
//! Pure: times come in as arguments. A replica never trusts another one's clock: a foreign Lease has
//! run out when it did not change for its duration *as seen here*. A leader stops leading
//! `renew_deadline` after it *sent* its last successful renewal, which is before anybody else can
//! have seen the Lease run out.

use std::time::Duration;

use jiff::Timestamp;

use super::object::Lease;

/// Durations of a leadership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A Lease that was not renewed for this long may be taken.
    pub lease_duration: Duration,
    /// A leader that could not renew for this long stops leading; less than `lease_duration`.
    pub renew_deadline: Duration,
    /// Time between two attempts to take or renew; less than `renew_deadline`.
    pub retry_period: Duration,
}

impl Default for Terms {
    /// The customary 15, 10 and 2 seconds.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// A moment by both clocks: the steady one for decisions, the other one for display.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Time since some fixed moment.
    pub steady: Duration,
    /// Time of day.
    pub wall: Timestamp,
}

/// Everything that can happen to a candidate.
#[derive(Clone, Debug)]
pub enum Event {
    /// The last wait is over.
    Tick,
    /// The Lease was read; it may not exist.
    Read(Option<Lease>),
    /// The Lease was written as asked.
    Written(Lease),
    /// Somebody else wrote the Lease first.
    Conflict,
    /// The Lease could not be reached, or not in time.
    Failed,
}

/// What a candidate does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Read the Lease.
    Read,
    /// Make the Lease.
    Create(Lease),
    /// Write the Lease over the version it carries.
    Replace(Lease),
    /// Wait for so long, then tick.
    Wait(Duration),
}

/// A replica that leads or would like to.
#[derive(Debug)]
pub struct Candidate {
    identity: String,
    terms: Terms,
    /// A Lease that nobody holds, to start from.
    blank: Lease,
    seen: Option<Seen>,
    /// Set while leading.
    leading: Option<Leading>,
    /// Number of the next leadership at least: a Lease taken back from nobody has kept its own.
    next_term: u32,
    /// When the write that is under way was started.
    sent: Duration,
    /// The write under way was made without reading first.
    unread: bool,
}

#[derive(Debug)]
struct Seen {
    lease: Lease,
    /// When it was first seen like this.
    at: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Leading {
    term: u32,
    /// When the last successful renewal was sent.
    renewed: Duration,
}

impl Candidate {
    /// A replica that knows nothing yet; `identity` must differ between replicas and restarts.
    pub fn new(identity: &str, terms: Terms, blank: Lease) -> Self {
        Self {
            identity: identity.into(),
            terms,
            blank,
            seen: None,
            leading: None,
            next_term: 0,
            sent: Duration::ZERO,
            unread: false,
        }
    }

    /// Number of the leadership that is held as of `now`, if one is.
    pub fn term(&self, now: Duration) -> Option<u32> {
        let leading = self.leading?;
        (now < leading.renewed + self.terms.renew_deadline).then_some(leading.term)
    }

    /// Who holds the Lease, as last seen.
    pub fn holder(&self) -> Option<&str> {
        self.seen.as_ref().and_then(|seen| seen.lease.holder())
    }

    /// How long a call that starts now may take.
    pub fn call_deadline(&self, now: Duration) -> Duration {
        match self.leading {
            Some(leading) => (leading.renewed + self.terms.renew_deadline).saturating_sub(now),
            None => self.terms.renew_deadline,
        }
    }

    /// The Lease to write when leadership is given up as of `now`.
    pub fn release(&mut self, now: Now) -> Option<Lease> {
        self.term(now.steady)?;
        self.leading = None;
        Some(self.seen.as_ref()?.lease.released(now.wall))
    }

    /// One step. The same history gives the same answers.
    pub fn step(&mut self, event: Event, now: Now) -> Op {
        if self.leading.is_some() && self.term(now.steady).is_none() {
            self.leading = None;
        }
        match event {
            Event::Tick => match (&self.leading, &self.seen) {
                (Some(_), Some(seen)) => {
                    let lease = self.mine(&seen.lease, now.wall);
                    self.write(Op::Replace(lease), now.steady, Unread::Yes)
                }
                _ => Op::Read,
            },
            Event::Read(None) => {
                self.seen = None;
                let lease = self.mine(&self.blank, now.wall);
                self.write(Op::Create(lease), now.steady, Unread::No)
            }
            Event::Read(Some(lease)) => {
                self.observe(lease, now.steady);
                match self.foreign_until() {
                    Some(end) if now.steady < end => {
                        self.leading = None;
                        Op::Wait(self.terms.retry_period.min(end - now.steady))
                    }
                    _ => {
                        let seen = self.seen.as_ref().map_or(&self.blank, |seen| &seen.lease);
                        let lease = self.mine(seen, now.wall);
                        self.write(Op::Replace(lease), now.steady, Unread::No)
                    }
                }
            }
            Event::Written(lease) => {
                let fresh = lease.transitions().max(self.next_term);
                let term = self.leading.map_or(fresh, |leading| leading.term);
                self.next_term = term.saturating_add(1);
                // Counted from the sending, so that a slow answer makes us stop early, not late.
                self.leading = Some(Leading { term, renewed: self.sent });
                self.observe(lease, self.sent);
                Op::Wait(self.terms.retry_period)
            }
            Event::Conflict if self.unread => Op::Read,
            Event::Conflict | Event::Failed => Op::Wait(self.terms.retry_period),
        }
    }

    fn mine(&self, lease: &Lease, now: Timestamp) -> Lease {
        let seconds = u32::try_from(self.terms.lease_duration.as_secs()).unwrap_or(u32::MAX);
        lease.held_by(&self.identity, seconds.max(1), now)
    }

    fn write(&mut self, op: Op, now: Duration, unread: Unread) -> Op {
        self.sent = now;
        self.unread = matches!(unread, Unread::Yes);
        op
    }

    fn observe(&mut self, lease: Lease, at: Duration) {
        let same = self.seen.as_ref().is_some_and(|seen| {
            seen.lease.resource_version() == lease.resource_version()
                && seen.lease.spec == lease.spec
        });
        if !same {
            self.seen = Some(Seen { lease, at });
        }
    }

    /// When the Lease as seen runs out, if somebody else holds it.
    fn foreign_until(&self) -> Option<Duration> {
        let seen = self.seen.as_ref()?;
        let holder = seen.lease.holder()?;
        let seconds = seen.lease.spec.lease_duration_seconds;
        let duration = seconds.map_or(self.terms.lease_duration, |n| Duration::from_secs(n.into()));
        (holder != self.identity).then(|| seen.at + duration)
    }
}

/// Whether a write relies on what was seen before rather than on a fresh read.
enum Unread {
    Yes,
    No,
}

#[cfg(test)]
mod tests;
