//! From a policy that is created to one that is enforced.
//!
//! While new connections are opened every half millisecond, a policy that denies them is created;
//! the first one that is not answered tells when it was enforced.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::time::{Duration, Instant};

use kube_io::Client;
use kube_io::objects::{self, ObjectPath};
use serde_json::{Value, json};

use super::{Figure, on_lab, tenths};
use crate::error::{Doing, LabError, Result};
use crate::measure::summarise;
use crate::pods;
use crate::sandbox::Sandbox;
use crate::state::{Mode, Store};
use crate::ui::Progress;
use crate::up::UpOptions;
use crate::variant::Variant;
use crate::{cluster, interrupt};

/// Policies that are created.
const N_SAMPLES: usize = 1000;
/// Pause between two connections.
const PAUSE: Duration = Duration::from_micros(500);
/// So many connections in a row that fare as the policy says mean that it is enforced.
const IN_A_ROW: usize = 20;
/// A connection without an answer for so long was denied.
const ANSWER: Duration = Duration::from_millis(50);
/// The first of the source ports that connections have in turn.
const FIRST_PORT: u16 = 1024;
/// Longest time for one policy.
const LONGEST: Duration = Duration::from_secs(10);

/// Measures on a lab of three nodes, which is ended afterwards.
///
/// # Errors
/// When the lab does not come up, or a policy is not enforced.
pub fn run(dir: &Path, bin_dir: PathBuf, progress: &Progress) -> Result<Vec<Figure>> {
    let options = UpOptions::new(3, Variant::default(), Mode::Cluster, bin_dir);
    on_lab(dir, "benchp", &options, progress, measure)
}

fn measure(store: &Store, progress: &Progress) -> Result<Vec<Figure>> {
    cluster::make_pods(store, 6, progress)?;
    let made = pods::ready(store);
    let (from, to) = crate::demo::across(&made)
        .ok_or_else(|| LabError::new("the scheduler put all Pods on one node"))?;
    progress.step(&format!("{N_SAMPLES} policies, one after another"));
    let mut enforced = Vec::new();
    let mut lifted = Vec::new();
    cluster::run_async(async {
        let client = cluster::admin(store).await?;
        for _ in 0..N_SAMPLES {
            interrupt::check()?;
            let (on, off) = sample(&client, from, to).await?;
            enforced.push(on.as_secs_f64() * 1e6);
            lifted.push(off.as_secs_f64() * 1e6);
        }
        Ok(())
    })?;
    let figure = |name: &str, samples: Vec<f64>| {
        let seen = summarise(samples).ok_or_else(|| LabError::new("no samples"))?;
        Ok(Figure {
            name: name.into(),
            values: json!({
                "samples": seen.n,
                "medianMs": tenths(seen.median_us / 1000.0),
                "p99Ms": seen.p99_us.map(|us| tenths(us / 1000.0)),
                "maxMs": tenths(seen.max_us / 1000.0),
            }),
            how: "before POST (DELETE) of a NetworkPolicy until the first new UDP connection that \
                  is denied (answered), one every 0.5 ms, 3 nodes"
                .into(),
        })
    };
    Ok(vec![
        super::up_figure(store, "antrea-lab up --nodes 3"),
        figure("policy created to enforced", enforced)?,
        figure("policy deleted to lifted", lifted)?,
    ])
}

const POLICY: &str = "bench";

fn path() -> ObjectPath<'static> {
    ObjectPath {
        group: "networking.k8s.io",
        version: "v1",
        plural: "networkpolicies",
        namespace: Some("demo"),
        name: POLICY,
    }
}

fn policy() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": POLICY, "namespace": "demo"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    })
}

/// How long a policy takes to be enforced, and to be lifted.
async fn sample(client: &Client, from: &Sandbox, to: &Sandbox) -> Result<(Duration, Duration)> {
    let address = to.addresses().first().copied();
    let address = address.ok_or_else(|| LabError::new("the Pod has no address"))?;
    let target = SocketAddr::new(address, crate::echo::PORT);
    let refused = |error: kube_io::ApiError| LabError::new(error.chain());
    let netns = from.netns.clone();
    let begun = Instant::now();
    let on = change(&netns, target, Wanted::Denied, async {
        objects::create(client, path(), &policy()).await.map_err(refused)
    });
    let on = on.await?;
    let off = change(&netns, target, Wanted::Answered, async {
        objects::delete(client, path()).await.map_err(refused)
    });
    let off = off.await?;
    tracing::debug!(took = ?begun.elapsed(), "sample");
    Ok((on, off))
}

/// What connections shall become.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Denied,
    Answered,
}

/// Opens connections while something changes; gives when the first of those was opened that fare as
/// wanted from then on.
async fn change(
    netns: &Path,
    target: SocketAddr,
    wanted: Wanted,
    change: impl Future<Output = Result<()>>,
) -> Result<Duration> {
    let netns = netns.to_owned();
    let stop = std::sync::Arc::new(AtomicBool::new(false));
    let stopping = std::sync::Arc::clone(&stop);
    let (began_tx, began_rx) = tokio::sync::oneshot::channel();
    let prober = tokio::task::spawn_blocking(move || {
        crate::netns::enter(&netns, || prober(target, wanted, &stopping, began_tx))?
    });
    // Connections flow before anything changes.
    let _ = began_rx.await;
    let began = Instant::now();
    let changed = change.await;
    if changed.is_err() {
        stop.store(true, Ordering::SeqCst);
    }
    let at = prober.await.doing(|| "open connections".into())??;
    changed?;
    Ok(at.saturating_duration_since(began))
}

/// One connection.
struct Try {
    opened: Instant,
    /// Until its fate is known.
    socket: Option<UdpSocket>,
    answered: Option<bool>,
}

impl Try {
    /// Sees what became of it.
    fn look(&mut self) {
        let Some(socket) = &self.socket else { return };
        self.answered = match socket.recv(&mut [0; 64]).is_ok() {
            true => Some(true),
            false => (self.opened.elapsed() >= ANSWER).then_some(false),
        };
        if self.answered.is_some() {
            self.socket = None;
        }
    }
}

fn prober(
    target: SocketAddr,
    wanted: Wanted,
    stop: &AtomicBool,
    began_tx: tokio::sync::oneshot::Sender<()>,
) -> Result<Instant> {
    let deadline = Instant::now() + LONGEST;
    let as_wanted = Some(wanted == Wanted::Answered);
    let mut began_tx = Some(began_tx);
    let mut tries: VecDeque<Try> = VecDeque::new();
    let mut n = 0;
    loop {
        let socket = open(target).doing(|| "open a socket".into())?;
        let opened = Instant::now();
        let _ = socket.send(b"who");
        tries.push_back(Try { opened, socket: Some(socket), answered: None });
        n += 1;
        if n == IN_A_ROW {
            began_tx.take().map(|tx| tx.send(()));
        }
        tries.iter_mut().for_each(Try::look);
        let mut row = tries.iter().filter(|_| began_tx.is_none());
        while let Some(first) = row.find(|tried| tried.answered == as_wanted) {
            let others = row.by_ref().take_while(|tried| tried.answered == as_wanted);
            if 1 + others.take(IN_A_ROW - 1).count() == IN_A_ROW {
                return Ok(first.opened);
            }
        }
        let is_past = |tried: &Try| tried.answered.is_some() && tried.answered != as_wanted;
        while tries.front().is_some_and(is_past) {
            tries.pop_front();
        }
        if stop.load(Ordering::SeqCst) || Instant::now() > deadline {
            return Err(LabError::new("the policy does not come into force"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The next connection's source port. Connection tracking remembers an answered connection for half
/// a minute, and lets pass what has its addresses and ports: no two may have the same within that
/// time, or the second one is answered whatever policies say.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(FIRST_PORT);
    let next = |port: u16| Some(port.checked_add(1).unwrap_or(FIRST_PORT));
    NEXT.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).unwrap_or(FIRST_PORT)
}

fn open(target: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: IpAddr = if target.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = loop {
        match UdpSocket::bind((any, next_port())) {
            // The Pod's own server has it.
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => break bound?,
        }
    };
    socket.connect(target)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
