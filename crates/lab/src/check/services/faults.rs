//! Services under traffic: all endpoints are replaced one by one, and agents restart with many
//! Services.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;

use super::world::{self, Client, World};
use super::{ANSWERED, Context, IN_FORCE, Lab, Outcome, nothing_forbidden};
use crate::cli::NodeComponent;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::traffic::Datagrams;
use crate::ui::Progress;
use crate::up;
use crate::{agent, component, interrupt, probe};

/// Who makes requests.
const N_CLIENTS: u64 = 2;
/// Requests per second of each client.
const RATE: u64 = 100;
/// What part of them a busy machine has to bring about for the scenario to say anything.
const ENOUGH_PERCENT: u64 = 60;
/// Services that are there when agents restart.
const N_SERVICES: usize = 300;
/// How long each old endpoint serves on after its end was asked for.
const GRACE: u32 = 6;

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "servicesf")?;
    let options = context.cluster(2);
    let lab = Lab(up::run(&layout, &options, &Progress::start())?);
    let world = World::make(&lab.0)?;
    context.progress.step("all endpoints are replaced, one by one");
    let (replaced, per_second) = rolling(&world)?;
    context.progress.step(&format!("agents restart with {N_SERVICES} Services"));
    let (n_datagrams, restarted) = restart(&world)?;
    nothing_forbidden(&lab.0)?;
    Ok(Outcome::Passed(json!({
        "requestsWhileReplaced": replaced,
        "requestsPerSecond": per_second,
        "requestsWhileRestarted": restarted,
        "datagramsWhileRestarted": n_datagrams,
    })))
}

/// Requests that are made all the time, each by a connection of its own.
pub(super) struct Requests {
    over: Arc<AtomicBool>,
    n_made: Arc<AtomicUsize>,
    workers: Vec<JoinHandle<Vec<String>>>,
}

impl Requests {
    /// One client each; the targets take turns.
    pub(super) fn start<'a>(
        clients: impl Iterator<Item = &'a Client>,
        targets: &[SocketAddr],
    ) -> Self {
        let (over, n_made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let start = |client: &Client| {
            let (netns, targets) = (client.netns.clone(), targets.to_vec());
            let (over, n_made) = (Arc::clone(&over), Arc::clone(&n_made));
            std::thread::spawn(move || request(&netns, &targets, &over, &n_made))
        };
        let workers = clients.map(start).collect();
        Self { over, n_made, workers }
    }

    /// Waits until some more were made.
    pub(super) fn flow(&self, n: usize) -> Result<()> {
        let wanted = self.n_made.load(Ordering::SeqCst) + n;
        wait_for(Duration::from_secs(60), "requests are made", || {
            (self.n_made.load(Ordering::SeqCst) >= wanted).then_some(())
        })
    }

    /// Stops; gives their number when none failed.
    pub(super) fn finish(self) -> Result<usize> {
        self.over.store(true, Ordering::SeqCst);
        let mut failed = Vec::new();
        for worker in self.workers {
            failed.extend(worker.join().map_err(|_| LabError::new("a thread panicked"))?);
        }
        let n = self.n_made.load(Ordering::SeqCst);
        match failed.first() {
            None => Ok(n),
            Some(first) => {
                let n_failed = failed.len();
                Err(LabError::new(format!("{n_failed} of {n} requests failed, the first: {first}")))
            }
        }
    }
}

fn request(
    netns: &Path,
    targets: &[SocketAddr],
    over: &AtomicBool,
    n_made: &AtomicUsize,
) -> Vec<String> {
    let (mut failed, began) = (Vec::new(), Instant::now());
    let pause = Duration::from_micros(1_000_000 / RATE) * interrupt::patience();
    let mut due = Instant::now();
    for target in targets.iter().cycle() {
        if over.load(Ordering::SeqCst) {
            break;
        }
        if let Err(error) = probe::tcp_who(netns, *target, ANSWERED) {
            let seconds = began.elapsed().as_secs_f64();
            failed.push(format!("{target} after {seconds:.2} s: {}", error.chain()));
        }
        n_made.fetch_add(1, Ordering::SeqCst);
        due += pause;
        match due.checked_duration_since(Instant::now()) {
            Some(wait) => std::thread::sleep(wait),
            // What could not be asked in time is not asked all at once.
            None => due = Instant::now(),
        }
    }
    failed
}

/// New endpoints come in when they serve, old ones serve until their time is over: no request fails.
/// Gives how many were made, and how many in a second.
fn rolling(world: &World<'_>) -> Result<(usize, u64)> {
    world.add_service("rolling", "old")?;
    for n in 1..=3 {
        world.add_lasting_pod(&format!("old-{n}"), &format!("node-{}", n % 2 + 1), "old", GRACE)?;
    }
    world.await_service("rolling")?;
    let targets = world.targets("rolling")?;
    let began = Instant::now();
    let requests = Requests::start(world.clients(), &targets);
    let replaced = replace(world, &requests);
    let took = began.elapsed();
    let made = requests.finish();
    replaced?;
    let made = made?;
    let per_second = u64::try_from(made as u128 * 1000 / took.as_millis().max(1)).unwrap_or(0);
    let wanted = N_CLIENTS * RATE * ENOUGH_PERCENT / 100 / u64::from(interrupt::patience());
    if per_second < wanted {
        return Err(LabError::new(format!("only {per_second} requests per second, not {wanted}")));
    }
    Ok((made, per_second))
}

fn replace(world: &World<'_>, requests: &Requests) -> Result<()> {
    requests.flow(200)?;
    for n in 1..=3 {
        let (new, old) = (format!("new-{n}"), format!("old-{n}"));
        // Not selected before it serves, which is what a probe of readiness gives others.
        world.add_lasting_pod(&new, &format!("node-{}", n % 2 + 1), "waits", GRACE)?;
        world.set_app(&new, "old")?;
        world.await_endpoints("rolling", 4)?;
        world.delete_pod(&old)?;
        world.await_endpoints("rolling", 3)?;
        requests.flow(100)?;
    }
    for n in 1..=3 {
        world.await_gone(&format!("old-{n}"))?;
    }
    requests.flow(200)
}

/// Nothing is lost, neither of what is open nor of what is new.
fn restart(world: &World<'_>) -> Result<(u64, usize)> {
    let names: Vec<String> = (0..N_SERVICES).map(|n| format!("many-{n}")).collect();
    world.add_services(&names, "web")?;
    let mut targets = Vec::new();
    for name in names.iter().step_by(30).chain(names.last()) {
        targets.extend(world.targets(name)?);
        world.await_service(name)?;
    }
    let mut streams = Vec::new();
    for client in world.clients() {
        for target in world.targets("web")? {
            streams.push(Datagrams::start(&client.name, &client.netns, target)?);
        }
    }
    let requests = Requests::start(world.clients(), &targets);
    let restarted = restart_agents(world, &requests);
    let made = requests.finish();
    let mut n = 0;
    for stream in streams {
        let report = stream.finish();
        if report.lost() > 0 {
            return Err(LabError::new(format!("datagrams were lost: {report:?}")));
        }
        n += report.sent;
    }
    restarted?;
    Ok((n, made?))
}

fn restart_agents(world: &World<'_>, requests: &Requests) -> Result<()> {
    requests.flow(200)?;
    for client in world.clients() {
        component::kill(world.store, &client.node, NodeComponent::Agent)?;
    }
    requests.flow(100).doing(|| "without agents".into())?;
    for client in world.clients() {
        component::start(world.store, &client.node, NodeComponent::Agent)?;
    }
    for client in world.clients() {
        agent::await_ready(world.store, &client.node)?;
    }
    world.add_service("after-restart", "web")?;
    world::eventually(IN_FORCE, "a new Service is served", || world.is_reached("after-restart"))?;
    requests.flow(200)
}
