//! Notices a switch that is silent, and one that leaves a request without an answer.
//!
//! Both by echoes. A switch works through what comes on a connection in order, and answers in
//! order: once it answered an echo, no answer to a request that was sent before the echo will come
//! any more. So a request whose answer is lost is found out however long answers may take.

use bytes::Bytes;
use openflow::{Message, Xid};
use tokio::time::Instant;

use super::exchange::Pending;
use super::{ChannelError, ChannelTiming};

/// Transaction id of our echoes.
pub(super) const PROBE_XID: Xid = Xid(2);

/// What is to be done about a connection now.
pub(super) enum Look {
    /// Nothing.
    Nothing,
    /// Send this.
    Probe(Message),
    /// Send this; the probe before is unanswered, and there was nothing else.
    ProbeAgain(Message),
}

/// What is known of how a switch answers.
pub(super) struct Watchdog {
    timing: ChannelTiming,
    /// When something came last, or was asked for when nothing came.
    heard: Instant,
    /// Probes since something came last.
    n_probes: u32,
    /// When requests without an answer were looked for last.
    looked: Instant,
    /// Counts probes; the last one carries this number.
    last_probe: u64,
    /// Requests that were on their way before the last probe, and not answered yet.
    suspects: Vec<u32>,
}

impl Watchdog {
    pub(super) fn new(timing: ChannelTiming) -> Self {
        let now = Instant::now();
        Self { timing, heard: now, n_probes: 0, looked: now, last_probe: 0, suspects: Vec::new() }
    }

    /// When to look next if nothing comes.
    pub(super) fn due(&self) -> Instant {
        self.heard.min(self.looked) + self.timing.probe_interval
    }

    /// Something came.
    pub(super) fn heard(&mut self) {
        self.heard = Instant::now();
        self.n_probes = 0;
    }

    /// A probe came back.
    ///
    /// # Errors
    /// When a request before it was not answered.
    pub(super) fn answered(&mut self, data: &[u8], pending: &Pending) -> Result<(), ChannelError> {
        // Another probe may be under way by now; the suspects are those of the last one.
        if *data != self.last_probe.to_be_bytes() {
            return Ok(());
        }
        let unanswered = self.suspects.drain(..).any(|first| pending.is_awaited(first));
        if unanswered { Err(ChannelError::Unanswered) } else { Ok(()) }
    }

    /// Looks whether it is time for a probe.
    ///
    /// # Errors
    /// When the switch was silent for too long.
    pub(super) fn look(&mut self, pending: &Pending) -> Result<Look, ChannelError> {
        let now = Instant::now();
        let interval = self.timing.probe_interval;
        let is_silent = now >= self.heard + interval;
        if !is_silent && now < self.looked + interval {
            return Ok(Look::Nothing);
        }
        self.looked = now;
        let awaited = pending.awaited();
        if !is_silent {
            // Bytes come, but are they what somebody waits for?
            let probe = if awaited.is_empty() { Look::Nothing } else { self.probe(awaited) };
            return Ok(probe);
        }
        if self.n_probes == self.timing.max_probes {
            return Err(ChannelError::Timeout(interval * self.timing.max_probes));
        }
        self.heard = now;
        self.n_probes += 1;
        match self.probe(awaited) {
            Look::Probe(probe) if self.n_probes > 1 => Ok(Look::ProbeAgain(probe)),
            probe => Ok(probe),
        }
    }

    fn probe(&mut self, awaited: Vec<u32>) -> Look {
        self.suspects = awaited;
        self.last_probe += 1;
        let number = self.last_probe.to_be_bytes();
        Look::Probe(Message::EchoRequest(Bytes::copy_from_slice(&number)))
    }
}
