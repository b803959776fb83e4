//! Background traffic under which faults are injected: numbered datagrams and a TCP stream.
//!
//! Every datagram comes back from the echo server, so a loss in either direction is counted.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Doing, LabError, Result};
use crate::{echo, interrupt, probe};

/// Datagrams per second and pair, on a machine that is not slow throughout.
pub const RATE: u64 = 1000;
/// As long as answers come, no more datagrams than these are on their way: on a machine that is busy
/// with other things they would fill queues, and be lost for that alone.
const WINDOW: u64 = 300;
/// Without an answer for so long none is waited for: something is broken, and that is measured.
const SILENCE: Duration = Duration::from_millis(100);

/// What became of a stream of numbered datagrams.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatagramReport {
    /// From whom to whom.
    pub pair: String,
    /// Number sent.
    pub sent: u64,
    /// Number that came back.
    pub received: u64,
    /// Longest time between two answers.
    pub longest_gap_ms: f64,
    /// Seconds from the start at which the first of each run of lost ones was sent, and the
    /// number of the run.
    pub losses: Vec<(f64, usize)>,
}

impl DatagramReport {
    /// Number that did not come back.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent - self.received
    }
}

/// A stream of numbered datagrams that is being sent.
#[derive(Debug)]
pub struct Datagrams {
    pair: String,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    last_answer: Arc<AtomicU64>,
    started: Instant,
    /// Gives when each datagram was sent, in seconds from the start.
    sender: JoinHandle<Vec<f32>>,
    receiver: JoinHandle<(f64, Vec<bool>)>,
}

impl Datagrams {
    /// Begins to send from a namespace to an echo server, once the way to it is known.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(pair: &str, netns: &Path, target: SocketAddr) -> Result<Self> {
        probe::udp_who(netns, target, Duration::from_secs(5))?;
        let socket = probe::udp_socket(netns, target)?;
        socket
            .set_read_timeout(Some(Duration::from_millis(100)))
            .doing(|| "set up the socket".into())?;
        // A burst after a stall must not be lost in our own socket.
        echo::make_room(&socket);
        let reading = socket.try_clone().doing(|| "duplicate the socket".into())?;
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let received = Arc::new(AtomicU64::new(0));
        let last_answer = Arc::new(AtomicU64::new(0));
        let progress = Progress {
            started: Instant::now(),
            stop: Arc::clone(&stop),
            sent: Arc::clone(&sent),
            received: Arc::clone(&received),
            last_answer: Arc::clone(&last_answer),
            answered: Arc::default(),
        };
        let started = progress.started;
        let sender = {
            let progress = progress.clone();
            std::thread::spawn(move || send(&socket, &progress))
        };
        let receiver = std::thread::spawn(move || receive(&reading, &progress));
        Ok(Self { pair: pair.into(), stop, sent, received, last_answer, started, sender, receiver })
    }

    /// Number of answers so far.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::SeqCst)
    }

    /// Time since the last answer.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        let last = Duration::from_micros(self.last_answer.load(Ordering::SeqCst));
        self.started.elapsed().saturating_sub(last)
    }

    /// Stops, waits for what is still on its way, and counts.
    #[must_use]
    pub fn finish(self) -> DatagramReport {
        self.stop.store(true, Ordering::SeqCst);
        let times = self.sender.join().unwrap_or_default();
        let (longest_gap_ms, mut seen) = self.receiver.join().unwrap_or((f64::NAN, Vec::new()));
        let sent = self.sent.load(Ordering::SeqCst);
        seen.resize(usize::try_from(sent).unwrap_or(0), false);
        DatagramReport {
            pair: self.pair,
            sent,
            received: self.received.load(Ordering::SeqCst),
            longest_gap_ms,
            losses: runs_of_losses(&seen, &times),
        }
    }
}

/// When the first of each run of lost ones was sent, and how long the runs are.
fn runs_of_losses(seen: &[bool], times: &[f32]) -> Vec<(f64, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (i, _) in seen.iter().enumerate().filter(|(_, seen)| !**seen) {
        match runs.last_mut() {
            Some((start, n)) if *start + *n == i => *n += 1,
            _ => runs.push((i, 1)),
        }
    }
    let at = |i: usize| times.get(i).copied().map_or(f64::NAN, f64::from);
    runs.into_iter().take(20).map(|(start, n)| (at(start), n)).collect()
}

/// Datagrams per second and pair here.
fn rate() -> u64 {
    RATE / u64::from(interrupt::patience())
}

/// What sender and receiver know of each other.
#[derive(Clone, Debug)]
struct Progress {
    started: Instant,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    received: Arc<AtomicU64>,
    /// When the last answer came, in microseconds from the start.
    last_answer: Arc<AtomicU64>,
    /// All answers are to datagrams before this one.
    answered: Arc<AtomicU64>,
}

impl Progress {
    /// Whether there is no use in sending datagram `n` now, because answers come, and late.
    fn is_behind(&self, n: u64) -> bool {
        let last = Duration::from_micros(self.last_answer.load(Ordering::SeqCst));
        n > self.answered.load(Ordering::SeqCst) + WINDOW
            && self.started.elapsed().saturating_sub(last) < SILENCE * interrupt::patience()
    }
}

fn send(socket: &UdpSocket, progress: &Progress) -> Vec<f32> {
    let pause = Duration::from_micros(1_000_000 / rate());
    let mut due = progress.started;
    let mut times = Vec::new();
    let mut n: u64 = 0;
    while !progress.stop.load(Ordering::SeqCst) {
        if let Some(wait) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(wait);
        }
        if progress.is_behind(n) {
            std::thread::sleep(pause);
            // What could not be sent in time is not sent all at once.
            due = Instant::now();
            continue;
        }
        times.push(progress.started.elapsed().as_secs_f32());
        // An answer "port unreachable" of a moment ago is reported here, and counts as a loss.
        let _ = socket.send(format!("seq {n:016}").as_bytes());
        n += 1;
        due += pause;
        progress.sent.store(n, Ordering::SeqCst);
    }
    times
}

fn receive(socket: &UdpSocket, progress: &Progress) -> (f64, Vec<bool>) {
    let Progress { started, stop, sent, received, last_answer, answered } = progress;
    let mut buffer = [0; 64];
    let mut seen = Vec::new();
    let mut last = Instant::now();
    let mut longest = Duration::ZERO;
    let mut stopped_at = None;
    loop {
        if let Ok(n) = socket.recv(&mut buffer) {
            let number = std::str::from_utf8(&buffer[..n])
                .ok()
                .and_then(|t| t.strip_prefix("seq ")?.parse::<usize>().ok());
            if let Some(number) = number {
                if seen.len() <= number {
                    seen.resize(number + 1, false);
                    answered.store(u64::try_from(seen.len()).unwrap_or(u64::MAX), Ordering::SeqCst);
                }
                // One that comes twice is not one more.
                if !std::mem::replace(&mut seen[number], true) {
                    received.fetch_add(1, Ordering::SeqCst);
                }
                longest = longest.max(last.elapsed());
                last = Instant::now();
                let at = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
                last_answer.store(at, Ordering::SeqCst);
            }
        }
        if stop.load(Ordering::SeqCst) {
            let since = *stopped_at.get_or_insert_with(Instant::now);
            let all = received.load(Ordering::SeqCst) >= sent.load(Ordering::SeqCst);
            if since.elapsed() > Duration::from_secs(2) * interrupt::patience()
                || (all && since.elapsed() > Duration::from_millis(20))
            {
                return (longest.as_secs_f64() * 1000.0, seen);
            }
        }
    }
}

/// What became of a TCP stream.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamReport {
    /// From whom to whom.
    pub pair: String,
    /// Exchanges made.
    pub exchanges: u64,
    /// Longest exchange.
    pub longest_ms: f64,
    /// Why it broke.
    pub error: Option<String>,
}

/// One TCP connection that exchanges lines all the time.
#[derive(Debug)]
pub struct Stream {
    stop: Arc<AtomicBool>,
    worker: JoinHandle<StreamReport>,
}

impl Stream {
    /// Connects and begins.
    ///
    /// # Errors
    /// When the connection is not accepted.
    pub fn start(pair: &str, netns: &Path, target: SocketAddr) -> Result<Self> {
        let stream = probe::tcp_connect(netns, target, Duration::from_secs(20))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let pair = pair.to_owned();
        let worker = std::thread::spawn(move || {
            let mut report = StreamReport { pair, exchanges: 0, longest_ms: 0.0, error: None };
            let mut reader = BufReader::new(&stream);
            let mut line = String::new();
            // Lines of half a kilobyte, a few in flight at a time, keep the stream busy.
            let padding = "x".repeat(512);
            while !stopping.load(Ordering::SeqCst) {
                let started = Instant::now();
                let request = format!("ping {} {padding}\n", report.exchanges);
                line.clear();
                let done = (&stream)
                    .write_all(request.as_bytes())
                    .and_then(|()| reader.read_line(&mut line));
                match done {
                    Ok(_) if line == request => report.exchanges += 1,
                    Ok(_) => report.error = Some(format!("answered {line:?}")),
                    Err(error) => report.error = Some(error.to_string()),
                }
                report.longest_ms = report.longest_ms.max(started.elapsed().as_secs_f64() * 1000.0);
                if report.error.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2) * interrupt::patience());
            }
            report
        });
        Ok(Self { stop, worker })
    }

    /// Stops and counts.
    ///
    /// # Errors
    /// When the worker panicked.
    pub fn finish(self) -> Result<StreamReport> {
        self.stop.store(true, Ordering::SeqCst);
        self.worker.join().map_err(|_| LabError::new("the stream's thread panicked"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_told_in_runs() {
        let seen = [true, false, false, true, false];
        let times = [0.0, 0.5, 1.0, 1.5, 2.0];
        assert_eq!(runs_of_losses(&seen, &times), [(0.5, 2), (2.0, 1)]);
    }

    #[test]
    fn nothing_is_lost_on_loopback() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = socket.local_addr().unwrap();
        std::thread::spawn(move || echo::serve_udp(&socket, "x"));
        let here = Path::new("/proc/self/ns/net");
        // Entering one's own namespace needs root as well; without it there is nothing to test.
        let Ok(datagrams) = Datagrams::start("a -> b", here, target) else { return };
        crate::interrupt::wait_for(Duration::from_secs(10), "answers", || {
            (datagrams.received() > 100).then_some(())
        })
        .unwrap();
        let report = datagrams.finish();
        assert_eq!(report.lost(), 0, "{report:?}");
    }
}
