//! Knocks where nothing may get through: a new connection every few milliseconds, so that a moment
//! in which policies do not hold is seen.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::traffic::Way;
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::probe;
use crate::variant::Datapath;

/// Pause between two knocks on one way.
const PAUSE: Duration = Duration::from_millis(5);
/// Within a second after flows change, Open vSwitch 3.1's own datapath may judge one in so many
/// packets by what it cached for others (ARCHITECTURE.md). While policies are not there yet, many
/// times as many are answered.
const MISJUDGED: u64 = 100;
/// Answers to this many knocks of before are still looked for.
const WAITING: usize = 400;

/// Knocks on several ways.
pub(super) struct Knocks {
    stop: Arc<AtomicBool>,
    ways: Vec<Knocking>,
}

struct Knocking {
    name: String,
    count: Arc<Count>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Count {
    tried: AtomicU64,
    answered: AtomicU64,
    first_answer_ms: AtomicU64,
}

impl Knocks {
    /// Begins. A Pod is knocked at on all its addresses.
    pub(super) fn start(ways: &[Way<'_>]) -> Self {
        let (stop, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let mut all = Vec::new();
        for (from, to, port) in ways {
            for address in &to.addresses {
                let target = SocketAddr::new(*address, *port);
                let name = format!(
                    "{}/{} -> {}/{} {target}",
                    from.namespace, from.pod, to.namespace, to.pod
                );
                let count = Arc::<Count>::default();
                let (netns, counting) = (from.netns.clone(), Arc::clone(&count));
                let stop = Arc::clone(&stop);
                let thread = std::thread::spawn(move || {
                    knock(&netns, target, began, &counting, &stop);
                });
                all.push(Knocking { name, count, thread });
            }
        }
        Self { stop, ways: all }
    }

    /// Waits until there were so many more knocks on each way.
    pub(super) fn more(&self, n: u64) -> Result<()> {
        let tried = |way: &Knocking| way.count.tried.load(Ordering::SeqCst);
        let before: Vec<u64> = self.ways.iter().map(tried).collect();
        wait_for(Duration::from_secs(60), "more knocks", || {
            let mut pairs = self.ways.iter().zip(&before);
            pairs.all(|(way, before)| tried(way) >= before + n).then_some(())
        })
    }

    /// Stops, and says how many knocks there were, and how many were answered.
    ///
    /// # Errors
    /// When one was answered; on a datapath that mistakes what it cached, when more were than such
    /// mistakes explain.
    pub(super) fn none_answered(self, what: &str, datapath: Datapath) -> Result<(u64, u64)> {
        let (n_tried, answered) = self.finish();
        let n_answered: u64 = answered.iter().map(|(_, n, _)| n).sum();
        let is_explained = match datapath {
            Datapath::Netdev => n_answered * MISJUDGED <= n_tried,
            Datapath::System => n_answered == 0,
        };
        if is_explained {
            return Ok((n_tried, n_answered));
        }
        let words = answered.iter().filter(|(_, n, _)| *n > 0);
        let words = words.map(|(way, n, ms)| format!("{n} on {way}, the first after {ms} ms"));
        Err(LabError::new(format!(
            "{what}: {n_answered} of {n_tried} answered though denied: {}",
            words.collect::<Vec<_>>().join("; ")
        )))
    }

    /// Stops. Fails unless there were answers on every way: else that there are none tells nothing.
    pub(super) fn all_answered(self) -> Result<()> {
        let (_, answered) = self.finish();
        match answered.iter().find(|(_, n, _)| *n == 0) {
            None => Ok(()),
            Some((way, ..)) => Err(LabError::new(format!("no knock is answered on {way}"))),
        }
    }

    fn finish(self) -> (u64, Vec<(String, u64, u64)>) {
        self.stop.store(true, Ordering::SeqCst);
        let mut n_tried = 0;
        let mut answered = Vec::new();
        for Knocking { name, count, thread } in self.ways {
            let _ = thread.join();
            n_tried += count.tried.load(Ordering::SeqCst);
            let n = count.answered.load(Ordering::SeqCst);
            answered.push((name, n, count.first_answer_ms.load(Ordering::SeqCst)));
        }
        (n_tried, answered)
    }
}

/// Each datagram comes from a socket of its own, and is a connection of its own.
fn knock(netns: &Path, target: SocketAddr, began: Instant, count: &Count, stop: &AtomicBool) {
    let mut waiting: VecDeque<UdpSocket> = VecDeque::new();
    let look = |waiting: &mut VecDeque<UdpSocket>| {
        let before = waiting.len();
        waiting.retain(|socket| socket.recv(&mut [0; 64]).is_err());
        let n = u64::try_from(before - waiting.len()).unwrap_or(u64::MAX);
        if n > 0 && count.answered.fetch_add(n, Ordering::SeqCst) == 0 {
            let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
            count.first_answer_ms.store(ms, Ordering::SeqCst);
        }
    };
    while !stop.load(Ordering::SeqCst) {
        if let Ok(socket) = probe::udp_socket(netns, target)
            && socket.set_nonblocking(true).is_ok()
        {
            let _ = socket.send(b"who");
            waiting.push_back(socket);
        }
        if waiting.len() > WAITING {
            waiting.pop_front();
        }
        count.tried.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(PAUSE);
        look(&mut waiting);
    }
    // What was sent last may be answered yet.
    let last = Instant::now();
    while last.elapsed() < Duration::from_millis(200) && !waiting.is_empty() {
        std::thread::sleep(PAUSE);
        look(&mut waiting);
    }
}
