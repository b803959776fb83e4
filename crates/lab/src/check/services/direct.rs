//! Direct server return: a client outside is answered by the node of the endpoint that it was given,
//! and not by way of the node that it dialled, so that every endpoint sees it as it is.
//!
//! The outside host sends what is for load balancers to the first node. What each node sends and gets
//! is looked at where its wire is plugged in.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::json;

use super::super::frames::Sniffer;
use super::calls::{Transport, ask};
use super::node::Scene;
use super::ports::Connection;
use super::world::{self, Client, World, eventually};
use super::{ANSWERED, Context, IN_FORCE, Lab, N_STUCK, Outcome, check, nothing_forbidden};
use crate::cli::NodeComponent;
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::state::Proxy;
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use crate::{agent, component, probe};

/// The Pod that the first node is far from.
const BEYOND: &str = "services/beyond";
/// Questions until every endpoint was met.
const N_ASKED: usize = 60;
/// Bytes of an upload: more than a node has packets on their way.
const N_UPLOADED: usize = 1 << 20;
const BALANCED: &str = "  type: LoadBalancer\n";

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "servicesd")?;
    let options = UpOptions { proxy: Proxy::Direct, ..context.cluster(2) };
    let lab = Lab(up::run(&layout, &options, &Progress::start())?);
    let world = World::make(&lab.0)?;
    world.add_pod("beyond", "node-2", "beyond")?;
    let scene = Scene::new(&world, context.variant.family)?;
    let direct = Direct { world: &world, scene: &scene };
    let mut shown = Vec::new();
    let steps: [(&str, Step<'_>); 6] = [
        ("answers do not pass the node that was dialled", Direct::ways),
        ("every endpoint sees the client, those of the dialled node too", Direct::endpoints),
        ("connections stay while endpoints come and agents restart", Direct::later_packets),
        ("clients that have their endpoint", Direct::affinity),
        ("Pods and nodes are served as ever", Direct::inside),
        ("an endpoint on the other node itself", Direct::host_endpoint),
    ];
    for (what, step) in steps {
        context.progress.step(what);
        let n = step(&direct).doing(|| what.to_owned())?;
        shown.push(json!({ "step": what, "exchanges": n }));
    }
    nothing_forbidden(&lab.0)?;
    Ok(Outcome::Passed(json!(shown)))
}

/// Gives the number of its exchanges.
type Step<'a> = fn(&Direct<'a>) -> Result<usize>;

struct Direct<'a> {
    world: &'a World<'a>,
    scene: &'a Scene<'a>,
}

/// Which way answers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// From the endpoint's node to the client.
    Direct,
    /// Through the node that was dialled.
    Back,
}

/// Addresses are beside each other in every header of IP, in a tunnel packet too.
fn carries(frame: &[u8], from: IpAddr, to: IpAddr) -> bool {
    let pair = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
        _ => return false,
    };
    frame.windows(pair.len()).any(|bytes| bytes == pair)
}

impl Direct<'_> {
    fn outside(&self) -> &Client {
        self.scene.outside()
    }

    /// By IPv4 answers are direct, by IPv6 they are as ever.
    fn way_of(target: SocketAddr) -> Way {
        if target.is_ipv4() { Way::Direct } else { Way::Back }
    }

    /// Whom an endpoint may see; the second node's see the first node where answers go back by it.
    fn seen(&self, target: SocketAddr, way: Way) -> Result<Vec<IpAddr>> {
        let own = self.outside().address(target.ip())?;
        match way {
            Way::Direct => Ok(vec![own]),
            Way::Back => Ok(vec![own, self.scene.gateway_of("node-1", target.ip())?]),
        }
    }

    fn served(&self, name: &str, app: &str, spec: &str, n: u8) -> Result<Vec<SocketAddr>> {
        self.world.add_service_of(name, app, &(BALANCED.to_owned() + spec))?;
        let targets = self.scene.balance(name, n)?;
        self.scene.await_answer(self.outside(), &targets).doing(|| name.to_owned())?;
        Ok(targets)
    }

    fn ways(&self) -> Result<usize> {
        let mut n = 0;
        for target in self.served("direct", "beyond", "", 10)? {
            n += self.way(target, Self::way_of(target))?;
        }
        // The same asked to go the usual way, which shows that the other one can be told from it.
        self.world.add_service_of("back", "beyond", BALANCED)?;
        let mode = json!({ "service.antrea.io/load-balancer-mode": "nat" });
        self.world.annotate_service("back", &mode)?;
        let targets = self.scene.balance("back", 11)?;
        for target in targets {
            eventually(IN_FORCE, "answers go back", || {
                let answer = ask(self.outside(), target, Transport::Tcp, ANSWERED)?;
                let gateway = self.scene.gateway_of("node-1", target.ip())?;
                check(&answer, self.outside(), &[BEYOND.into()], &[gateway])
            })?;
            n += self.way(target, Way::Back)?;
        }
        Ok(n)
    }

    /// Asks, sends much, and looks at what both nodes' wires carry.
    fn way(&self, target: SocketAddr, way: Way) -> Result<usize> {
        let underlay = self.world.store.layout().underlay_netns();
        let wires = [Sniffer::start(&underlay, "n1")?, Sniffer::start(&underlay, "n2")?];
        let client = self.outside();
        let n = self.scene.reaches(client, target, &[BEYOND.into()], &self.seen(target, way)?)?;
        upload(client, target)?;
        let (own, to) = (client.address(target.ip())?, target.ip());
        let pod = self.world.client("beyond")?.address(to)?;
        let [near, far] = wires.map(|wire| {
            let saw = |from, to| wire.saw(|frame| carries(frame, from, to));
            Wire { asked: saw(own, to), answered: saw(to, own), untranslated: saw(pod, own) }
        });
        let answered = way == Way::Back;
        let wanted = [
            Wire { asked: true, answered, untranslated: false },
            Wire { asked: !answered, answered: !answered, untranslated: false },
        ];
        if [near, far] == wanted {
            return Ok(n + 1);
        }
        let found = [near, far];
        Err(LabError::new(format!("{target}: the nodes' wires carried {found:?}, not {wanted:?}")))
    }

    fn endpoints(&self) -> Result<usize> {
        let mut n = 0;
        for target in self.served("direct-web", "web", "", 12)? {
            let seen = self.seen(target, Self::way_of(target))?;
            for transport in Transport::ALL {
                let mut met = BTreeSet::new();
                for _ in 0..N_ASKED {
                    let answer = ask(self.outside(), target, transport, ANSWERED)?;
                    check(&answer, self.outside(), &world::WEB.map(Into::into), &seen)?;
                    met.insert(answer.pod);
                    n += 1;
                }
                if met.len() != world::WEB.len() {
                    return Err(LabError::new(format!("{target} by {transport:?}: only {met:?}")));
                }
            }
        }
        Ok(n)
    }

    /// One connection has one endpoint, whatever becomes of the Service's others.
    fn later_packets(&self) -> Result<usize> {
        let mut kept = Vec::new();
        self.world.add_pod("later-1", "node-2", "later")?;
        for target in self.served("direct-later", "later", "", 13)? {
            for transport in Transport::ALL {
                let connection = Connection::open(self.outside(), 0, target, transport)?;
                let seen = self.seen(target, Self::way_of(target))?;
                kept.push((target, transport, connection, seen));
            }
        }
        let mut n = 0;
        let mut go_on = |when: &str| {
            for (target, transport, connection, seen) in &kept {
                for _ in 0..10 {
                    let answer = connection.ask()?;
                    check(&answer, self.outside(), &["services/later-1".into()], seen)
                        .doing(|| format!("{when}: {target} by {transport:?}"))?;
                    n += 1;
                }
            }
            Ok::<_, LabError>(())
        };
        go_on("at first")?;
        for (n, node) in [(2, "node-2"), (3, "node-1"), (4, "node-2")] {
            self.world.add_pod(&format!("later-{n}"), node, "later")?;
            self.world.await_endpoints("direct-later", n)?;
            go_on("while an endpoint comes")?;
        }
        for node in self.scene.nodes() {
            component::kill(self.world.store, &node.name, NodeComponent::Agent)?;
        }
        go_on("without agents")?;
        for node in self.scene.nodes() {
            component::start(self.world.store, &node.name, NodeComponent::Agent)?;
        }
        for node in self.scene.nodes() {
            agent::await_ready(self.world.store, &node.name)?;
            go_on("while agents start")?;
        }
        Ok(n)
    }

    fn affinity(&self) -> Result<usize> {
        let mut n = 0;
        for target in self.served("direct-sticky", "web", "  sessionAffinity: ClientIP\n", 14)? {
            let seen = self.seen(target, Self::way_of(target))?;
            for transport in Transport::ALL {
                let first = ask(self.outside(), target, transport, ANSWERED)?.pod;
                for _ in 0..N_STUCK {
                    let answer = ask(self.outside(), target, transport, ANSWERED)?;
                    check(&answer, self.outside(), std::slice::from_ref(&first), &seen)
                        .doing(|| format!("{target} by {transport:?}"))?;
                    n += 1;
                }
            }
        }
        Ok(n)
    }

    fn inside(&self) -> Result<usize> {
        let web = world::WEB.map(Into::into);
        let mut n = 0;
        for ip in self.scene.balanced(12) {
            let target = SocketAddr::new(ip, world::PORT);
            for pod in self.world.clients() {
                n += self.scene.reaches(pod, target, &web, &[pod.address(ip)?])?;
            }
            for node in self.scene.nodes() {
                n += self.scene.reaches(node, target, &web, &[node.gateway(ip)?])?;
            }
        }
        Ok(n)
    }

    /// Answers of a node's own programs go by the node that was dialled: nothing else knows the way.
    fn host_endpoint(&self) -> Result<usize> {
        let [_, far] = self.scene.nodes() else {
            return Err(LabError::new("the lab has not two nodes"));
        };
        let port = probe::serve(&far.netns, &far.name, far.addresses())?;
        self.world.add_service_by_hand("direct-host", far.addresses(), port, BALANCED)?;
        let targets = self.scene.balance("direct-host", 15)?;
        self.scene.await_answer(self.outside(), &targets)?;
        let mut n = 0;
        for target in targets {
            let near = self.world.node_address("node-1", target.ip())?;
            n += self.scene.reaches(
                self.outside(),
                target,
                std::slice::from_ref(&far.name),
                &[near],
            )?;
        }
        Ok(n)
    }
}

/// What was seen on a node's wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wire {
    /// The client's address to the Service's, in a tunnel or not.
    asked: bool,
    /// The Service's address to the client's.
    answered: bool,
    /// The endpoint's address to the client's.
    untranslated: bool,
}

/// Sends many full packets; all of it arrives.
fn upload(from: &Client, target: SocketAddr) -> Result<()> {
    let mut stream = probe::tcp_connect(&from.netns, target, Duration::from_secs(30))?;
    stream
        .write_all(b"sink\n")
        .and_then(|()| stream.write_all(&vec![b'x'; N_UPLOADED]))
        .and_then(|()| stream.shutdown(std::net::Shutdown::Write))
        .doing(|| format!("send much to {target}"))?;
    let mut text = String::new();
    stream.read_to_string(&mut text).doing(|| "wait for the end of an upload".into())?;
    if text.trim() == N_UPLOADED.to_string() {
        return Ok(());
    }
    Err(LabError::new(format!("{target} got {text:?} of {N_UPLOADED} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_known_by_both_addresses_in_order() {
        let [a, b]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let header = [&[0x45, 0, 0, 20][..], &[0; 8], &[10, 0, 0, 1, 10, 0, 0, 2]].concat();
        let wrapped = [&[7; 50][..], &header, b"more"].concat();
        for frame in [&header, &wrapped] {
            assert!(carries(frame, a, b));
            assert!(!carries(frame, b, a));
        }
        let six: IpAddr = "fd00::1".parse().unwrap();
        assert!(!carries(&wrapped, a, six));
        assert!(!carries(&[], a, b));
    }
}
