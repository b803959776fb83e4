//! Traffic that goes on while something is broken: numbered datagrams and TCP exchanges.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::traffic::{DatagramReport, Datagrams, Stream, StreamReport};

/// Several streams of datagrams and one TCP connection.
pub(super) struct Load {
    datagrams: Vec<Datagrams>,
    stream: Stream,
    began: Instant,
    faults: Vec<(&'static str, f64)>,
}

/// From whom to whom: a name, the sender's namespace, the receiver.
pub(super) type Pair<'a> = (&'a str, &'a Path, SocketAddr);

/// What became of it.
pub(super) struct LoadReport {
    pub(super) datagrams: Vec<DatagramReport>,
    pub(super) stream: StreamReport,
    faults: Vec<(&'static str, f64)>,
}

impl Load {
    /// Begins, and waits until all of it flows.
    pub(super) fn start(pairs: &[Pair<'_>], tcp: Pair<'_>) -> Result<Self> {
        let began = Instant::now();
        let started = pairs.iter().map(|(pair, netns, to)| Datagrams::start(pair, netns, *to));
        let datagrams = started.collect::<Result<Vec<_>>>()?;
        let stream = Stream::start(tcp.0, tcp.1, tcp.2)?;
        let load = Self { datagrams, stream, began, faults: Vec::new() };
        load.flows(200)?;
        Ok(load)
    }

    /// Notes what happens now, for the report.
    pub(super) fn note(&mut self, what: &'static str) {
        self.faults.push((what, self.began.elapsed().as_secs_f64()));
    }

    /// Waits until each stream of datagrams has so many more answers.
    pub(super) fn flows(&self, n: u64) -> Result<()> {
        let counts = self.counts();
        wait_for(Duration::from_secs(20), "datagrams flow", || {
            let all =
                self.datagrams.iter().zip(&counts).all(|(d, before)| d.received() > before + n);
            all.then_some(())
        })
    }

    /// Answers so far of each stream of datagrams.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.datagrams.iter().map(Datagrams::received).collect()
    }

    /// How long after `since` each stream of datagrams flowed again, having had `counts` answers.
    pub(super) fn recovered(&self, since: Instant, counts: &[u64]) -> Result<Vec<Duration>> {
        let mut times = vec![None; self.datagrams.len()];
        wait_for(Duration::from_secs(30), "traffic flows again", || {
            for (at, datagrams) in self.datagrams.iter().enumerate() {
                // A few more answers than were on their way.
                if times[at].is_none() && datagrams.received() > counts[at] + 50 {
                    times[at] = Some(since.elapsed());
                }
            }
            times.iter().copied().collect::<Option<Vec<_>>>()
        })
    }

    /// Stops and counts.
    pub(super) fn finish(self) -> Result<LoadReport> {
        Ok(LoadReport {
            stream: self.stream.finish()?,
            datagrams: self.datagrams.into_iter().map(Datagrams::finish).collect(),
            faults: self.faults,
        })
    }
}

impl LoadReport {
    /// Fails when a datagram was lost or the connection broke.
    pub(super) fn nothing_lost(&self) -> Result<()> {
        self.stream_survived()?;
        let Some(report) = self.datagrams.iter().find(|report| report.lost() > 0) else {
            return Ok(());
        };
        Err(LabError::new(format!(
            "{} of {} datagrams lost {}, longest gap {:.0} ms, at {:?} ({:?})",
            report.lost(),
            report.sent,
            report.pair,
            report.longest_gap_ms,
            report.losses,
            self.faults,
        )))
    }

    /// Fails when the connection broke.
    pub(super) fn stream_survived(&self) -> Result<()> {
        match &self.stream.error {
            Some(error) => Err(LabError::new(format!("the TCP stream broke: {error}"))),
            None => Ok(()),
        }
    }

    /// A figure of each stream of datagrams.
    pub(super) fn per_pair(&self, times: &[Duration]) -> Value {
        let named = self.datagrams.iter().zip(times);
        named.map(|(report, time)| (report.pair.clone(), json!(time.as_millis()))).collect()
    }

    /// What each stream of datagrams lost.
    pub(super) fn lost(&self) -> Value {
        self.datagrams.iter().map(|one| (one.pair.clone(), json!(one.lost()))).collect()
    }

    /// Datagrams sent.
    pub(super) fn sent(&self) -> u64 {
        self.datagrams.iter().map(|report| report.sent).sum()
    }

    /// Longest time without an answer.
    pub(super) fn longest_gap_ms(&self) -> f64 {
        self.datagrams.iter().map(|report| report.longest_gap_ms.round()).fold(0.0, f64::max)
    }
}
