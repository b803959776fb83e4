//! Services as Pods use them: an address that stays, some Pods behind it that come and go.
//!
//! Two clients, one on each node, so that every endpoint is near to one and far from the other. What
//! answers says whom it saw, and that is asserted: the client's own address, except where a Pod
//! meets itself.

mod affinity;
mod calls;
pub(super) mod direct;
pub(super) mod faults;
mod host;
mod kube_proxy;
mod near;
pub(super) mod node;
mod own;
mod ports;
pub(super) mod rules;
mod sctp;
pub(super) mod start;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::nothing_forbidden;
use super::{Context, Lab, Outcome};
use crate::cli::NodeComponent;
use crate::echo::Answer;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::ui::Progress;
use crate::up;
use crate::{addressing, agent, component, probe};
use calls::{Transport, ask, refused};
use world::{Client, World};

/// A change is in force everywhere after this time at the latest.
const IN_FORCE: Duration = Duration::from_secs(30);
/// One exchange takes no longer, even on a busy machine.
const ANSWERED: Duration = Duration::from_secs(5);
/// Connections over which the share of each endpoint is looked at.
const N_SPREAD: usize = 1600;
/// Connections that have to stick to one endpoint.
const N_STUCK: usize = 30;
/// Slots of three equal buckets: a select group has sixteen for them.
const SLOTS: [usize; 3] = [5, 5, 6];

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "services")?;
    let lab = Lab(up::run(&layout, &context.cluster(2), &Progress::start())?);
    let store = &lab.0;
    let world = World::make(store)?;
    let step = |what: &str| context.progress.step(what);

    step("every client reaches every endpoint, which sees it");
    world.await_service("web")?;
    let spread = spread(&world)?;
    step("a Pod reaches itself by its own Service");
    hairpin(&world)?;
    step("a Service without endpoints refuses at once, until it has one");
    nobody(&world)?;
    step("a client of UDP follows the endpoint that took the former one's place");
    moved(&world)?;
    step("and that of one which went while no agent was there");
    moved_meanwhile(&world, context)?;
    step("one source port to a Service and to its endpoint");
    let n_shared = ports::shared(&world)?;
    step("endpoints on the nodes and outside of the cluster");
    outside_of_pods(&world, context)?;
    step("session affinity, also while the agent restarts");
    let stuck = affinity(&world)?;
    step("another timeout of session affinity, and none, under traffic");
    let n_while_changed = affinity::changes(&world)?;
    step("SCTP");
    let n_associations = sctp::run(&world)?;
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({
        "shares": spread,
        "connectionsKeptByAffinity": stuck,
        "sharedSourcePorts": n_shared,
        "connectionsWhileTimeoutsChange": n_while_changed,
        "associations": n_associations,
    })))
}

/// An answer of the right one that saw the right one.
fn check(answer: &Answer, from: &Client, who: &[String], seen: &[IpAddr]) -> Result<()> {
    let (name, pod, peer) = (&from.name, &answer.pod, answer.peer);
    if !who.contains(pod) {
        return Err(LabError::new(format!("{name}: {pod} answered and not one of {who:?}")));
    }
    if !seen.contains(&peer) {
        return Err(LabError::new(format!("{name}: {pod} saw {peer} and not one of {seen:?}")));
    }
    Ok(())
}

/// Connections go to every endpoint, in the shares that the slots of a select group give.
fn spread(world: &World<'_>) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for client in world.clients() {
        for target in world.targets("web")? {
            let own = client.address(target.ip())?;
            let mut shares: BTreeMap<String, usize> = BTreeMap::new();
            for _ in 0..N_SPREAD {
                let answer = ask(client, target, Transport::Tcp, ANSWERED)?;
                check(&answer, client, &world::WEB.map(Into::into), &[own])?;
                *shares.entry(answer.pod).or_default() += 1;
            }
            judge(&shares).doing(|| format!("{} to {target}", client.name))?;
            for _ in 0..N_STUCK {
                let answer = ask(client, target, Transport::Udp, ANSWERED)?;
                check(&answer, client, &world::WEB.map(Into::into), &[own])?;
            }
            all.push(json!({ "client": client.name, "target": target, "shares": shares }));
        }
    }
    Ok(all)
}

/// Each share is within five standard deviations of what its slots predict.
fn judge(shares: &BTreeMap<String, usize>) -> Result<()> {
    let mut counts: Vec<usize> = shares.values().copied().collect();
    counts.sort_unstable();
    let n: usize = counts.iter().sum();
    let slots: usize = SLOTS.iter().sum();
    let fits = counts.len() == SLOTS.len()
        && counts.iter().zip(SLOTS).all(|(count, own)| {
            let wanted = n * own / slots;
            let variance = n * own * (slots - own) / (slots * slots);
            count.abs_diff(wanted).pow(2) <= 25 * variance
        });
    if fits {
        return Ok(());
    }
    Err(LabError::new(format!("{shares:?} are not the shares of {SLOTS:?} slots of {slots}")))
}

/// A Pod that asks its own Service is answered by itself, and sees its gateway.
fn hairpin(world: &World<'_>) -> Result<()> {
    let alone = world.client("alone")?;
    world.await_service("alone")?;
    for target in world.targets("alone")? {
        let gateway = alone.gateway(target.ip())?;
        for transport in Transport::ALL {
            let answer = ask(&alone, target, transport, ANSWERED)
                .doing(|| format!("by {transport:?} to {target}"))?;
            check(&answer, &alone, &["services/alone".into()], &[gateway])?;
        }
    }
    Ok(())
}

/// A Service that nobody serves refuses TCP and UDP at once; one Pod is enough, and without it all
/// is as before.
fn nobody(world: &World<'_>) -> Result<()> {
    let refuses = || {
        let targets = world.targets("late")?;
        for client in world.clients() {
            for target in &targets {
                for transport in Transport::ALL {
                    refused(client, *target, transport)?;
                }
            }
        }
        Ok(())
    };
    world::eventually(IN_FORCE, "a Service without endpoints refuses", refuses)?;
    for _ in 0..5 {
        refuses()?;
    }
    world.add_pod("late", "node-2", "late")?;
    world.await_service("late")?;
    world.delete_pod("late")?;
    world::eventually(IN_FORCE, "a Service refuses without its last endpoint", refuses)
}

/// The same socket is answered by the new endpoint once the former one is gone.
fn moved(world: &World<'_>) -> Result<()> {
    world.add_pod("udp-1", "node-1", "udp")?;
    world.await_service("udp")?;
    let mut sockets = Vec::new();
    for client in world.clients() {
        for target in world.targets("udp")? {
            sockets.push((client, target, probe::udp_socket(&client.netns, target)?));
        }
    }
    let answered_by = |name: &str| {
        for (client, target, socket) in &sockets {
            let answer = calls::ask_by(socket, Duration::from_millis(500))
                .doing(|| format!("{} to {target} over UDP", client.name))?;
            check(&answer, client, &[name.to_owned()], &[client.address(target.ip())?])?;
        }
        Ok(())
    };
    world::eventually(IN_FORCE, "the first endpoint answers", || answered_by("services/udp-1"))?;
    while_sending(&sockets, || {
        world.add_pod("udp-2", "node-2", "udp")?;
        world.delete_pod("udp-1")?;
        let what = "the endpoint that is left answers";
        world::eventually(IN_FORCE, what, || answered_by("services/udp-2"))
    })
}

/// The same, where the agents are away while one endpoint takes the other one's place.
fn moved_meanwhile(world: &World<'_>, context: &Context<'_>) -> Result<()> {
    let addresses = addressing::outside(context.variant.family);
    let netns = world.store.layout().outside_netns();
    let [former, later] = ["former", "later"].map(|name| probe::serve(&netns, name, &addresses));
    let (former, later) = (former?, later?);
    world.add_service_by_hand("moved", &addresses, former, "")?;
    let mut sockets = Vec::new();
    for client in world.clients() {
        for target in world.targets("moved")? {
            sockets.push((client, target, probe::udp_socket(&client.netns, target)?));
        }
    }
    let answered_by = |name: &str| {
        for (client, target, socket) in &sockets {
            let answer = calls::ask_by(socket, Duration::from_millis(500))
                .doing(|| format!("{} to {target} over UDP", client.name))?;
            if answer.pod != name {
                let (client, pod) = (&client.name, answer.pod);
                return Err(LabError::new(format!("{client}: {pod} answers at {target}")));
            }
        }
        Ok(())
    };
    world::eventually(IN_FORCE, "the former endpoint answers", || answered_by("former"))?;
    let nodes: BTreeSet<&str> = world.clients().map(|client| client.node.as_str()).collect();
    while_sending(&sockets, || {
        for node in &nodes {
            component::stop(world.store, node, NodeComponent::Agent)?;
        }
        world.add_service_by_hand("moved", &addresses, later, "")?;
        answered_by("former").doing(|| "without an agent".into())?;
        for node in &nodes {
            component::start(world.store, node, NodeComponent::Agent)?;
        }
        for node in &nodes {
            agent::await_ready(world.store, node)?;
        }
        let what = "the endpoint that came meanwhile answers";
        world::eventually(IN_FORCE, what, || answered_by("later"))
    })
}

/// Does something while clients send and never pause: an idle connection would be forgotten by itself.
fn while_sending(
    sockets: &[(&Client, SocketAddr, UdpSocket)],
    something: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                for (_, _, socket) in sockets {
                    let _ = socket.send(b"who");
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let done = something();
        over.store(true, Ordering::SeqCst);
        sending.join().map_err(|_| LabError::new("a thread panicked"))?;
        done
    })
}

/// Endpoints that are no Pods: on the client's node, on another one, outside; the slices are written
/// by hand.
fn outside_of_pods(world: &World<'_>, context: &Context<'_>) -> Result<()> {
    let family = context.variant.family;
    let layout = world.store.layout();
    let mut servers = Vec::new();
    for node in world.store.get().nodes {
        let netns = layout.node(&node.name).netns().to_owned();
        servers.push((node.name.clone(), netns, addressing::node(family, node.n)));
    }
    servers.push(("outside".into(), layout.outside_netns(), addressing::outside(family)));
    for (name, netns, addresses) in &servers {
        let port = probe::serve(netns, name, addresses)?;
        world.add_service_by_hand(&format!("at-{name}"), addresses, port, "")?;
    }
    for (name, _, _) in &servers {
        let service = format!("at-{name}");
        world.await_service(&service).doing(|| format!("an endpoint on {name}"))?;
        for client in world.clients() {
            for target in world.targets(&service)? {
                let own = client.address(target.ip())?;
                let node = world.node_address(&client.node, target.ip())?;
                let seen = match name {
                    _ if *name == client.node => vec![own],
                    _ if name == "outside" => vec![node],
                    _ => vec![own, node],
                };
                for transport in Transport::ALL {
                    let answer = ask(client, target, transport, ANSWERED)?;
                    check(&answer, client, std::slice::from_ref(name), &seen)?;
                }
            }
        }
    }
    Ok(())
}

/// A client stays with its endpoint; what the switch has learnt outlives the agent.
fn affinity(world: &World<'_>) -> Result<usize> {
    world.await_service("sticky")?;
    let mut kept: Vec<(&Client, SocketAddr, Transport, String)> = Vec::new();
    for client in world.clients() {
        for target in world.targets("sticky")? {
            for transport in Transport::ALL {
                let first = ask(client, target, transport, ANSWERED)?.pod;
                kept.push((client, target, transport, first));
            }
        }
    }
    let mut n = 0;
    let mut stays = || {
        for (client, target, transport, pod) in &kept {
            let answer = ask(client, *target, *transport, ANSWERED)?;
            let own = client.address(target.ip())?;
            check(&answer, client, std::slice::from_ref(pod), &[own])
                .doing(|| format!("{target} by {transport:?}"))?;
            n += 1;
        }
        Ok::<_, LabError>(())
    };
    for _ in 0..N_STUCK {
        stays().doing(|| "before anything happens".into())?;
    }
    let nodes: BTreeSet<&str> = world.clients().map(|client| client.node.as_str()).collect();
    for node in &nodes {
        component::kill(world.store, node, NodeComponent::Agent)?;
    }
    stays().doing(|| "without an agent".into())?;
    for node in &nodes {
        component::start(world.store, node, NodeComponent::Agent)?;
    }
    // A Service that is made now is served once the agents have brought the switches to what they
    // want.
    world.add_service("after", "web")?;
    wait_for(IN_FORCE, "a Service is served after the agents' start", || {
        if let Err(error) = stays().doing(|| "while the agents start".into()) {
            return Some(Err(error));
        }
        world.is_reached("after").is_ok().then_some(Ok(()))
    })??;
    for node in &nodes {
        agent::await_ready(world.store, node)?;
    }
    for _ in 0..N_STUCK {
        stays().doing(|| "after the agents' start".into())?;
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_the_slots() {
        let mk = |counts: &[usize]| -> BTreeMap<String, usize> {
            counts.iter().enumerate().map(|(n, count)| (n.to_string(), *count)).collect()
        };
        for (counts, fits) in [
            (vec![600, 500, 500], true),
            (vec![533, 533, 534], true),
            (vec![510, 580, 510], true),
            (vec![800, 400, 400], false),
            (vec![1600], false),
            (vec![800, 800], false),
            (vec![400, 400, 400, 400], false),
        ] {
            assert_eq!(judge(&mk(&counts)).is_ok(), fits, "{counts:?}");
        }
    }
}
