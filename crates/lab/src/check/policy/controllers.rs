//! Several controllers: one follower, the leader and the last one are killed under traffic, while a
//! policy is changed again and again.
//!
//! Nothing may fare otherwise than policies say: neither what no change concerns, nor, outside of
//! the time that a change takes, what it does concern. A change is rejected connections or accepted
//! ones, so that every attempt has a certain outcome and none is waited for in vain.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kube_io::lease::{ApiStore, LeaseStore};
use kube_io::objects::{self, ObjectPath};
use serde_json::json;

use super::faults::{allowed, await_policies, denied, policies};
use super::table::World;
use super::traffic::Traffic;
use super::{Context, IN_FORCE, Outcome, carry_out, nothing_forbidden, start_with};
use crate::cli::ClusterComponent;
use crate::cluster::{self, controllers};
use crate::component;
use crate::error::{LabError, Result};
use crate::interrupt::{self, wait_for};
use crate::netns;
use crate::state::Store;

/// Number of controllers.
const N: u8 = 3;
/// Changes in each phase.
const N_CHANGES: usize = 6;
/// A controller that was started serves after this time at the latest.
const UP: Duration = Duration::from_secs(30);
/// A new leader has taken over after this time at the latest: the Lease of a killed one runs out
/// first.
const LED: Duration = Duration::from_secs(60);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(2);
/// An attempt has its outcome after this time, even on a busy machine.
const OUTCOME: Duration = Duration::from_secs(10);
/// What is changed.
const POLICY: &str = "flip";

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let (lab, world) = start_with(context, "controllers", 2, N)?;
    let store = &lab.0;
    for n in controllers::all(store) {
        await_ready(store, n)?;
    }
    for policy in &policies() {
        carry_out(store, policy)?;
    }
    await_policies(&world)?;
    let traffic = Traffic::start(&allowed(&world), &denied(&world))?;
    let mut flips = Flips::start(store, &world)?;

    context.progress.step("three controllers");
    flips.change(N_CHANGES)?;
    flips.await_status(LED)?;
    let leader = leader(store)?;
    let mut followers = controllers::all(store).filter(|n| *n != leader);
    let (follower, last) = (followers.next().unwrap_or(1), followers.next().unwrap_or(1));
    context.progress.step("a follower is killed");
    kill(store, follower)?;
    flips.change(N_CHANGES)?;
    flips.await_status(LED)?;
    context.progress.step("the leader is killed");
    kill(store, leader)?;
    flips.change(N_CHANGES)?;
    context.progress.step("the last one is killed");
    kill(store, last)?;
    traffic.flows(1000)?;
    context.progress.step("all are started");
    for n in controllers::all(store) {
        component::start_cluster(store, component_of(n))?;
    }
    for n in controllers::all(store) {
        await_ready(store, n)?;
    }
    flips.change(N_CHANGES)?;
    flips.await_status(LED)?;
    let worst = flips.finish()?;
    let report = traffic.finish();
    report.check_changed("controllers come and go", context.variant.datapath, 4 * N_CHANGES)?;
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({
        "changes": 4 * N_CHANGES,
        "worstChangeMs": worst.change.as_millis(),
        "attempts": worst.n_attempts,
        "packetsAndConnections": report.n_tried(),
        "misjudged": report.n_wrong,
    })))
}

fn component_of(n: u8) -> ClusterComponent {
    match n {
        2 => ClusterComponent::Controller2,
        3 => ClusterComponent::Controller3,
        _ => ClusterComponent::Controller,
    }
}

fn kill(store: &Store, n: u8) -> Result<()> {
    component::kill_cluster(store, component_of(n))
}

fn await_ready(store: &Store, n: u8) -> Result<()> {
    wait_for(UP, &format!("{} is ready", controllers::role(n)), || {
        controllers::lacks(store.layout(), n).is_ok_and(|lacks| lacks.is_empty()).then_some(())
    })
}

/// Who leads.
fn leader(store: &Store) -> Result<u8> {
    cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let lease = ApiStore::new(&client, "kube-system", "antrea-controller").read().await;
        let lease = lease.map_err(|error| LabError::new(error.to_string()))?;
        let holder = lease.as_ref().and_then(|lease| lease.holder()).unwrap_or_default();
        let pod = holder.rsplit_once('_').map_or(holder, |(pod, _)| pod);
        let found = controllers::all(store).find(|n| controllers::pod_name(*n) == pod);
        found.ok_or_else(|| LabError::new(format!("the Lease is held by {holder:?}")))
    })
}

/// What becomes of connections that the changed policy decides about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Accepted,
    Rejected,
    /// Neither, or something else.
    Lost,
}

/// One attempt.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    began: Instant,
    ended: Instant,
    fate: Fate,
}

/// Attempts of one pair, one after the other.
struct Prober {
    name: String,
    attempts: Arc<Mutex<Vec<Attempt>>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

fn lock(attempts: &Mutex<Vec<Attempt>>) -> MutexGuard<'_, Vec<Attempt>> {
    attempts.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Prober {
    fn start(name: String, from: PathBuf, target: SocketAddr) -> Self {
        let attempts: Arc<Mutex<Vec<Attempt>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (found, stopping) = (Arc::clone(&attempts), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            while !stopping.load(Ordering::SeqCst) {
                let began = Instant::now();
                let within = OUTCOME * interrupt::patience();
                let made = netns::enter(&from, || TcpStream::connect_timeout(&target, within));
                let fate = match made {
                    Ok(Ok(_)) => Fate::Accepted,
                    Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => {
                        Fate::Rejected
                    }
                    _ => Fate::Lost,
                };
                lock(&found).push(Attempt { began, ended: Instant::now(), fate });
                std::thread::sleep(PAUSE);
            }
        });
        Self { name, attempts, stop, thread }
    }

    /// When an attempt that began after a moment first ended so.
    fn first(&self, fate: Fate, after: Instant) -> Option<Instant> {
        let attempts = lock(&self.attempts);
        let later = attempts.iter().rev().take_while(|attempt| attempt.began >= after);
        later.filter(|attempt| attempt.fate == fate).map(|attempt| attempt.ended).min()
    }
}

/// A change, and when it was in force everywhere.
#[derive(Clone, Copy, Debug)]
struct Change {
    began: Instant,
    enforced: Instant,
    fate: Fate,
}

/// Changes of one policy, and attempts at what it decides about.
struct Flips<'a> {
    store: &'a Store,
    probers: Vec<Prober>,
    changes: Vec<Change>,
    longest: Duration,
}

/// How it went.
struct Worst {
    change: Duration,
    n_attempts: usize,
}

impl<'a> Flips<'a> {
    /// From `y/a` to each Pod of `z`, so that the policy is enforced on every node.
    fn start(store: &'a Store, world: &World) -> Result<Self> {
        let from = world.place("y", "a");
        let to = ["a", "b", "c"].map(|pod| world.place("z", pod));
        let probers = to.map(|to| {
            let name = format!("y/a -> z/{}", to.pod);
            let target = SocketAddr::new(to.addresses[0], 80);
            Prober::start(name, from.netns.clone(), target)
        });
        let now = Instant::now();
        let begin = Change { began: now, enforced: now, fate: Fate::Accepted };
        Ok(Self { store, probers: probers.into(), changes: vec![begin], longest: Duration::ZERO })
    }

    /// Changes the policy so often, each time once the change before is in force.
    fn change(&mut self, n: usize) -> Result<()> {
        for _ in 0..n {
            let before = self.changes.last().map_or(Fate::Accepted, |change| change.fate);
            let (action, fate) = match before {
                Fate::Rejected => ("Allow", Fate::Accepted),
                _ => ("Reject", Fate::Rejected),
            };
            let began = Instant::now();
            // The API server may be asking a controller that was killed this moment.
            let mut refusal = None;
            wait_for(IN_FORCE, "the change is taken", || {
                cluster::apply(self.store, &manifest(action)).map_err(|e| refusal = Some(e)).ok()
            })
            .map_err(|error| match refusal {
                Some(refusal) => LabError::new(format!("{}: {}", error.chain(), refusal.chain())),
                None => error,
            })?;
            let taken = Instant::now();
            let mut enforced = taken;
            for prober in &self.probers {
                let what = format!("{action} is in force for {}", prober.name);
                let first = wait_for(IN_FORCE, &what, || prober.first(fate, began))?;
                enforced = enforced.max(first);
            }
            self.longest = self.longest.max(enforced - taken);
            self.changes.push(Change { began, enforced, fate });
        }
        Ok(())
    }

    /// Waits until the policy's status says that its newest generation is realized.
    fn await_status(&self, within: Duration) -> Result<()> {
        let mut seen = json!(null);
        let realized = wait_for(within, "the status says Realized", || {
            let object = cluster::run_async(async {
                let client = cluster::admin(self.store).await?;
                let (group, plural) = ("crd.antrea.io", "clusternetworkpolicies");
                let path =
                    ObjectPath { group, version: "v1beta1", plural, namespace: None, name: POLICY };
                let object = objects::get(&client, path).await;
                object.map_err(|error| LabError::new(error.chain()))
            });
            let object = object.ok()?;
            let status = &object["status"];
            let done = status["phase"] == "Realized"
                && status["observedGeneration"] == object["metadata"]["generation"]
                && status["currentNodesRealized"] == status["desiredNodesRealized"];
            seen = status.clone();
            done.then_some(())
        });
        realized.map_err(|error| LabError::new(format!("{}: {seen}", error.chain())))
    }

    /// Stops, and judges every attempt.
    fn finish(self) -> Result<Worst> {
        let mut n_attempts = 0;
        for prober in self.probers {
            prober.stop.store(true, Ordering::SeqCst);
            let _ = prober.thread.join();
            let attempts = lock(&prober.attempts);
            n_attempts += attempts.len();
            let mut wrong = attempts.iter().filter(|attempt| !is_right(&self.changes, attempt));
            if let Some(first) = wrong.next() {
                return Err(LabError::new(format!(
                    "{}: {} of {} attempts went wrong, one was {:?} {} ms after the last change",
                    prober.name,
                    wrong.count() + 1,
                    attempts.len(),
                    first.fate,
                    since_last(&self.changes, first).as_millis(),
                )));
            }
        }
        Ok(Worst { change: self.longest, n_attempts })
    }
}

fn since_last(changes: &[Change], attempt: &Attempt) -> Duration {
    let last = changes.iter().rev().find(|change| change.began <= attempt.began);
    last.map_or(Duration::ZERO, |change| attempt.began - change.began)
}

/// Whether an attempt fared as some policy said that was in force, or coming into force, at the time.
fn is_right(changes: &[Change], attempt: &Attempt) -> bool {
    let mut pairs = changes.iter().zip(changes.iter().skip(1).map(Some).chain([None]));
    pairs.any(|(change, next)| {
        let until = next.map(|next| next.enforced);
        let overlaps =
            change.began <= attempt.ended && until.is_none_or(|until| attempt.began < until);
        overlaps && change.fate == attempt.fate
    })
}

fn manifest(action: &str) -> String {
    format!(
        "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\nmetadata: {{name: {POLICY}}}\n\
         spec:\n  tier: application\n  priority: 5\n  \
         appliedTo: [{{namespaceSelector: {{matchLabels: {{ns: z}}}}}}]\n  \
         ingress:\n  - action: {action}\n    name: from-y\n    \
         from: [{{namespaceSelector: {{matchLabels: {{ns: \"y\"}}}}, \
         podSelector: {{matchLabels: {{pod: a}}}}}}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_may_fare_as_before_until_a_change_is_in_force_and_not_after() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let change =
            |began, enforced, fate| Change { began: at(began), enforced: at(enforced), fate };
        let changes = [
            change(0, 0, Fate::Accepted),
            change(100, 150, Fate::Rejected),
            change(200, 220, Fate::Accepted),
        ];
        for (began, ended, fate, want) in [
            (10, 20, Fate::Accepted, true),
            (10, 20, Fate::Rejected, false),
            (10, 20, Fate::Lost, false),
            (90, 110, Fate::Rejected, true),
            (140, 145, Fate::Accepted, true),
            (140, 145, Fate::Rejected, true),
            (155, 160, Fate::Accepted, false),
            (155, 201, Fate::Accepted, true),
            (210, 230, Fate::Rejected, true),
            (225, 230, Fate::Rejected, false),
            (225, 230, Fate::Accepted, true),
        ] {
            let attempt = Attempt { began: at(began), ended: at(ended), fate };
            assert_eq!(is_right(&changes, &attempt), want, "{attempt:?}");
        }
    }
}
