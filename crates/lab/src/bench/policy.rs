//! From a policy that is created to one that is enforced.
//!
//! While new connections are opened every half millisecond, a policy that denies them is created;
//! the first one that is not answered tells when it was enforced.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kube_io::Client;
use kube_io::objects::{self, ObjectPath};
use serde_json::{Value, json};

use super::{Figure, tenths};
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::measure::summarise;
use crate::pods;
use crate::sandbox::Sandbox;
use crate::state::{self, Mode, Store};
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use crate::variant::Variant;
use crate::{cluster, down, interrupt};

/// Policies that are created.
const N_SAMPLES: usize = 200;
/// Pause between two connections.
const PAUSE: Duration = Duration::from_micros(500);
/// So many connections without an answer in a row mean that the policy is enforced.
const UNANSWERED: usize = 20;
/// A connection without an answer for so long was denied.
const ANSWER: Duration = Duration::from_millis(100);
/// Longest time for one policy.
const LONGEST: Duration = Duration::from_secs(10);

/// Measures on a lab of three nodes, which is ended afterwards.
///
/// # Errors
/// When the lab does not come up, or a policy is not enforced.
pub fn run(dir: &Path, bin_dir: PathBuf, progress: &Progress) -> Result<Vec<Figure>> {
    let layout = Layout::beside(dir, "benchp")?;
    let _lock = state::lock(&layout)?;
    let options = UpOptions::new(3, Variant::default(), Mode::Cluster, bin_dir);
    let store = up::run(&layout, &options, &Progress::start())?;
    let measured = measure(&store, progress);
    let ended = down::run(&store, progress);
    let figures = measured?;
    ended?;
    Ok(figures)
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

fn prober(
    target: SocketAddr,
    wanted: Wanted,
    stop: &AtomicBool,
    began_tx: tokio::sync::oneshot::Sender<()>,
) -> Result<Instant> {
    let deadline = Instant::now() + LONGEST;
    let mut began_tx = Some(began_tx);
    let mut waiting: std::collections::VecDeque<(Instant, UdpSocket)> =
        std::collections::VecDeque::new();
    let mut first: Option<Instant> = None;
    let mut in_a_row = 0;
    let mut n = 0;
    loop {
        let socket = open(target).doing(|| "open a socket".into())?;
        let opened = Instant::now();
        let _ = socket.send(b"who");
        waiting.push_back((opened, socket));
        n += 1;
        if n == 20 {
            began_tx.take().map(|tx| tx.send(()));
        }
        while let Some((opened, socket)) = waiting.front() {
            let answered = socket.recv(&mut [0; 64]).is_ok();
            if !answered && opened.elapsed() < ANSWER {
                break;
            }
            let as_wanted = answered == (wanted == Wanted::Answered);
            if as_wanted {
                first.get_or_insert(*opened);
                in_a_row += 1;
            } else {
                (first, in_a_row) = (None, 0);
            }
            waiting.pop_front();
            if in_a_row >= UNANSWERED
                && began_tx.is_none()
                && let Some(first) = first
            {
                return Ok(first);
            }
        }
        if stop.load(Ordering::SeqCst) || Instant::now() > deadline {
            return Err(LabError::new("the policy does not come into force"));
        }
        std::thread::sleep(PAUSE);
    }
}

fn open(target: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = if target.is_ipv4() {
        (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(target)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
