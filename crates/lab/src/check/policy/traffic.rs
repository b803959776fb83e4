//! Traffic that policies decide about, while something happens: every packet that fares otherwise
//! than they say is counted.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::table::Place;
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::probe;
use crate::traffic::{DatagramReport, Datagrams};
use crate::variant::Datapath;

/// Pause between two tries to get through where nothing may.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a TCP connection is waited for where none may be.
const CONNECT: Duration = Duration::from_millis(50);
/// Pause between two new TCP connections where they are allowed.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);
/// A connection that is allowed is there after this time, even on a busy machine.
const CONNECTED: Duration = Duration::from_secs(5);

/// A pair of places with the port that is tried.
pub(in super::super) type Way<'a> = (&'a Place, &'a Place, u16);

/// All that runs.
pub(in super::super) struct Traffic {
    stop: Arc<AtomicBool>,
    allowed: Vec<Datagrams>,
    connections: Vec<Counter>,
    denied: Vec<Counter>,
}

/// What a thread counts.
struct Counter {
    name: String,
    tried: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
    first_wrong_ms: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// What became of it.
#[derive(Debug)]
pub(in super::super) struct Report {
    pub(in super::super) datagrams: Vec<DatagramReport>,
    pub(in super::super) n_connections: u64,
    pub(in super::super) n_denied: u64,
    /// What fared otherwise than policies say.
    pub(in super::super) wrong: Vec<String>,
    /// How many packets and connections that were.
    pub(in super::super) n_wrong: u64,
}

impl Report {
    /// Packets and connections that were tried.
    pub(in super::super) fn n_tried(&self) -> u64 {
        let n_datagrams: u64 = self.datagrams.iter().map(|report| report.sent).sum();
        self.n_denied + self.n_connections + n_datagrams
    }

    /// As [`Self::check`], where policies were changed so often meanwhile. After a change, Open vSwitch
    /// 3.1's own datapath may judge a packet by what it cached for others, though its flows are right
    /// (ARCHITECTURE.md): no more than one for each change. The kernel's may not.
    pub(in super::super) fn check_changed(
        &self,
        what: &str,
        datapath: Datapath,
        n_changes: usize,
    ) -> Result<()> {
        match datapath {
            Datapath::Netdev if usize::try_from(self.n_wrong).is_ok_and(|n| n <= n_changes) => {
                Ok(())
            }
            Datapath::Netdev | Datapath::System => self.check(what),
        }
    }

    /// Fails when something fared otherwise than policies say.
    pub(in super::super) fn check(&self, what: &str) -> Result<()> {
        if self.wrong.is_empty() {
            return Ok(());
        }
        Err(LabError::new(format!("{what}: {}", self.wrong.join("; "))))
    }
}

impl Traffic {
    /// Begins; what is allowed flows when this returns.
    pub(in super::super) fn start(allowed: &[Way<'_>], denied: &[Way<'_>]) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let began = Instant::now();
        let mut traffic = Self {
            stop: Arc::clone(&stop),
            allowed: Vec::new(),
            connections: Vec::new(),
            denied: Vec::new(),
        };
        for (from, to, port) in allowed {
            let (name, target) = (name(from, to), target(to, *port));
            traffic.allowed.push(Datagrams::start(&name, &from.netns, target)?);
            let counter = count(name, &stop, began, from.netns.clone(), move |netns| {
                let through = probe::tcp_who(netns, target, CONNECTED).is_ok();
                std::thread::sleep(CONNECT_PAUSE);
                through
            });
            traffic.connections.push(counter);
        }
        for (from, to, port) in denied {
            let (name, target) = (name(from, to), target(to, *port));
            let udp =
                count(format!("{name} UDP"), &stop, began, from.netns.clone(), move |netns| {
                    // One datagram each from a socket of its own: each is a connection of its own.
                    let answered = probe::udp_socket(netns, target).is_ok_and(|socket| {
                        let _ = socket.set_read_timeout(Some(CONNECT));
                        let _ = socket.send(b"who");
                        socket.recv(&mut [0; 64]).is_ok()
                    });
                    std::thread::sleep(PAUSE);
                    !answered
                });
            let tcp =
                count(format!("{name} TCP"), &stop, began, from.netns.clone(), move |netns| {
                    let connected = probe::tcp_connect(netns, target, CONNECT).is_ok();
                    std::thread::sleep(PAUSE);
                    !connected
                });
            traffic.denied.extend([udp, tcp]);
        }
        traffic.flows(200)?;
        Ok(traffic)
    }

    /// Waits until each stream has so many more answers.
    pub(in super::super) fn flows(&self, n: u64) -> Result<()> {
        let before: Vec<u64> = self.allowed.iter().map(Datagrams::received).collect();
        wait_for(Duration::from_secs(20), "allowed datagrams flow", || {
            let mut pairs = self.allowed.iter().zip(&before);
            pairs.all(|(stream, before)| stream.received() > before + n).then_some(())
        })
    }

    /// Stops and counts.
    pub(in super::super) fn finish(self) -> Report {
        self.stop.store(true, Ordering::SeqCst);
        let (mut wrong, mut n_wrong_tries) = (Vec::new(), 0);
        let mut sum = |counters: Vec<Counter>, word: &str| {
            let mut n_tried = 0;
            for counter in counters {
                let _ = counter.thread.join();
                let n = counter.tried.load(Ordering::SeqCst);
                n_tried += n;
                let n_wrong = counter.wrong.load(Ordering::SeqCst);
                n_wrong_tries += n_wrong;
                if n_wrong > 0 {
                    wrong.push(format!(
                        "{n_wrong} of {n} {word} {}, the first after {} ms",
                        counter.name,
                        counter.first_wrong_ms.load(Ordering::SeqCst)
                    ));
                }
            }
            n_tried
        };
        let n_connections = sum(self.connections, "connections did not pass");
        let n_denied = sum(self.denied, "passed though denied");
        let datagrams: Vec<_> = self.allowed.into_iter().map(Datagrams::finish).collect();
        for report in datagrams.iter().filter(|report| report.lost() > 0) {
            wrong.push(format!(
                "{} of {} datagrams lost {}, at {:?}",
                report.lost(),
                report.sent,
                report.pair,
                report.losses
            ));
        }
        let n_lost: u64 = datagrams.iter().map(DatagramReport::lost).sum();
        Report { datagrams, n_connections, n_denied, wrong, n_wrong: n_wrong_tries + n_lost }
    }
}

fn name(from: &Place, to: &Place) -> String {
    format!("{}/{} -> {}/{}", from.namespace, from.pod, to.namespace, to.pod)
}

fn target(to: &Place, port: u16) -> SocketAddr {
    SocketAddr::new(to.addresses[0], port)
}

/// Tries again and again; each try that is not right counts.
fn count(
    name: String,
    stop: &Arc<AtomicBool>,
    began: Instant,
    netns: PathBuf,
    is_right: impl Fn(&Path) -> bool + Send + 'static,
) -> Counter {
    let (tried, wrong, first) = (Arc::default(), Arc::default(), Arc::default());
    let thread = {
        let stop = Arc::clone(stop);
        let (tried, wrong, first): (Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicU64>) =
            (Arc::clone(&tried), Arc::clone(&wrong), Arc::clone(&first));
        std::thread::spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let right = is_right(&netns);
                tried.fetch_add(1, Ordering::SeqCst);
                if !right && wrong.fetch_add(1, Ordering::SeqCst) == 0 {
                    let at = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                    first.store(at, Ordering::SeqCst);
                }
            }
        })
    };
    Counter { name, tried, wrong, first_wrong_ms: first, thread }
}
