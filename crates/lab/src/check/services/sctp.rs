//! Services over SCTP, by associations that are agreed to: the port is the endpoints' own, since the
//! userspace datapath of Open vSwitch 3.1 leaves it as it is. Each is a first one to that switch, which
//! would give others the endpoint of the one that it knows.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::world::{self, Client, World, eventually};
use super::{ANSWERED, IN_FORCE, N_STUCK};
use crate::error::{LabError, Result};
use crate::sctp::{self, Answer, Outcome, Server};

/// How often each client asks.
const N_ASKED: usize = 40;
/// What refuses does so in this time.
const AT_ONCE: Duration = Duration::from_millis(900);

/// Pods answer over SCTP at the address of a Service; gives the number of exchanges.
pub(super) fn run(world: &World<'_>) -> Result<usize> {
    let servers = world::WEB.map(|name| server(world, name));
    let _servers = servers.into_iter().collect::<Result<Vec<_>>>()?;
    world.add_sctp_service("sctp", "web", "")?;
    world.add_sctp_service("sctp-sticky", "web", "  sessionAffinity: ClientIP\n")?;
    world.add_sctp_service("sctp-nobody", "nobody", "")?;
    let mut n = 0;
    for client in world.clients() {
        for target in world.targets("sctp")? {
            eventually(IN_FORCE, "SCTP is served", || ask(world, client, target).map(drop))?;
            let mut met = BTreeSet::new();
            for _ in 0..N_ASKED {
                met.insert(ask(world, client, target)?.name);
                n += 1;
            }
            if met.len() != world::WEB.len() {
                return Err(LabError::new(format!("{} met only {met:?}", client.name)));
            }
        }
        for target in world.targets("sctp-sticky")? {
            eventually(IN_FORCE, "SCTP is served", || ask(world, client, target).map(drop))?;
            let first = ask(world, client, target)?.name;
            for _ in 0..N_STUCK {
                let then = ask(world, client, target)?.name;
                if then != first {
                    return Err(LabError::new(format!("{}: {first}, then {then}", client.name)));
                }
                n += 1;
            }
        }
        for target in world.targets("sctp-nobody")? {
            eventually(IN_FORCE, "SCTP is refused", || refused(client, target))?;
            refused(client, target)?;
            n += 1;
        }
    }
    Ok(n)
}

fn server(world: &World<'_>, name: &str) -> Result<Server> {
    let short = name.rsplit('/').next().unwrap_or(name);
    let pod = world.client(short)?;
    Server::start(&pod.netns, name, pod.addresses(), &[world::PORT])
}

/// An endpoint agrees, and sees the client as it is.
fn ask(world: &World<'_>, from: &Client, target: SocketAddr) -> Result<Answer> {
    sctp::forget(&world.store.layout().node(&from.node))?;
    let outcome = sctp::ask(&from.netns, None, target, ANSWERED)?;
    let Outcome::Answered(answer) = outcome else {
        return Err(LabError::new(format!("{} to {target} over SCTP: {outcome:?}", from.name)));
    };
    let names = world::WEB.iter().find(|name| **name == answer.name);
    let pod = names.and_then(|name| name.rsplit('/').next());
    let pod = world.client(pod.ok_or_else(|| LabError::new(format!("{answer:?}")))?)?;
    let own = SocketAddr::new(pod.address(target.ip())?, world::PORT);
    let right = answer.own == own && answer.peer.ip() == from.address(target.ip())?;
    if right { Ok(answer) } else { Err(LabError::new(format!("{}: {answer:?}", from.name))) }
}

fn refused(from: &Client, target: SocketAddr) -> Result<()> {
    match sctp::ask(&from.netns, None, target, AT_ONCE)? {
        Outcome::Refused(_) => Ok(()),
        other => Err(LabError::new(format!("{} to {target}: {other:?}", from.name))),
    }
}
