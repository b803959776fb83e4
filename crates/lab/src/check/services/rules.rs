//! Policies that meet Services: rules about connections that dial one (`toServices`), and rules at
//! NodePorts (`appliedTo.service`).
//!
//! A Service answers at port 80 and its Pods at another one, so that what acts on the wrong one of
//! both shows. Where something must not pass, a client asks all the time, before the Service is there
//! too, and no answer at all may come.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kube_io::objects::{self, ObjectPath};
use serde_json::{Value, json};

use super::calls::{Transport, ask};
use super::node::Scene;
use super::world::{self, Client, NAMESPACE, World, eventually};
use super::{ANSWERED, Context, IN_FORCE, Lab, Outcome, nothing_forbidden};
use crate::cli::NodeComponent;
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::state::{Mode, Proxy};
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use crate::{addressing, agent, cluster, component, interrupt, netns, probe};

/// What is dropped is not answered in this time.
const DROPPED: Duration = Duration::from_millis(600);
/// What is rejected is told so in this time: long before a lost packet would be sent again.
const AT_ONCE: Duration = Duration::from_millis(900);
/// How often a Service is made and deleted under traffic.
const N_MADE: u8 = 8;
/// Pause between two datagrams of a client that asks all the time.
const PAUSE: Duration = Duration::from_millis(2);

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "servicesp")?;
    let options = UpOptions {
        proxy: Proxy::All,
        ..UpOptions::new(2, context.variant, Mode::Cluster, context.bin_dir.to_owned())
    };
    let lab = Lab(up::run(&layout, &options, &Progress::start())?);
    let world = World::make(&lab.0)?;
    world.add_service("other", "web")?;
    world.add_service_of("np", "web", "  type: NodePort\n")?;
    for service in ["web", "other", "sticky"] {
        world.await_service(service)?;
    }
    let scene = Scene::new(&world, context.variant.family)?;
    let rules = Rules { world: &world, near: world.client("near")?, far: world.client("far")? };
    let mut shown = Vec::new();
    let steps: [(&str, Step<'_>); 8] = [
        ("Drop, Reject, Allow and Pass by the Service that is dialled", Rules::actions),
        ("a Pod and its own Service", Rules::hairpin),
        ("clients that have their endpoint", Rules::affinity),
        ("a Service that is made and deleted under traffic", Rules::made_anew),
        ("a Service that gets its first endpoint under traffic", Rules::first_endpoint),
        ("an agent that restarts under traffic", Rules::restart),
        ("rules at NodePorts", Rules::node_ports),
        ("a Pod at a NodePort", Rules::pod_at_node_port),
    ];
    for (what, step) in steps {
        context.progress.step(what);
        let n = step(&rules, &scene).doing(|| what.to_owned())?;
        shown.push(json!({ "step": what, "exchanges": n }));
    }
    nothing_forbidden(&lab.0)?;
    Ok(Outcome::Passed(Value::Array(shown)))
}

/// Gives the number of its exchanges.
type Step<'a> = fn(&Rules<'a>, &Scene<'a>) -> Result<usize>;

/// The world, and two clients of which policies are about the first.
struct Rules<'a> {
    world: &'a World<'a>,
    near: Client,
    far: Client,
}

/// Rules for the Pod `near`.
fn egress(rules: &str) -> String {
    format!(
        "  appliedTo:\n  - namespaceSelector: {{matchLabels: \
         {{kubernetes.io/metadata.name: {NAMESPACE}}}}}\n    \
         podSelector: {{matchExpressions: [{{key: app, operator: In, values: [client, alone]}}]}}\n  \
         egress:\n{rules}"
    )
}

fn to_service(action: &str, service: &str) -> String {
    format!(
        "  - action: {action}\n    \
         toServices: [{{name: {service}, namespace: {NAMESPACE}}}]\n"
    )
}

/// Rules at the NodePorts of `np`.
fn at_node_port(rules: &[(&str, &[IpAddr])]) -> String {
    let mut text =
        format!("  appliedTo:\n  - service: {{name: np, namespace: {NAMESPACE}}}\n  ingress:\n");
    for (action, from) in rules {
        let block = |ip: &IpAddr| {
            let bits = if ip.is_ipv4() { 32 } else { 128 };
            format!("{{ipBlock: {{cidr: \"{ip}/{bits}\"}}}}")
        };
        let blocks: Vec<String> = from.iter().map(block).collect();
        text.push_str(&format!("  - action: {action}\n    from: [{}]\n", blocks.join(", ")));
    }
    text
}

fn path(name: &str) -> ObjectPath<'_> {
    let (group, version) = ("crd.antrea.io", "v1beta1");
    ObjectPath { group, version, plural: "clusternetworkpolicies", namespace: None, name }
}

/// A policy that is taken back at the end, also of a step that failed.
struct Policy<'a> {
    world: &'a World<'a>,
    name: &'static str,
}

impl<'a> Policy<'a> {
    /// Applies it and waits until every node that needs it has it.
    fn apply(world: &'a World<'a>, name: &'static str, spec: &str) -> Result<Self> {
        cluster::apply(
            world.store,
            &format!(
                "apiVersion: crd.antrea.io/v1beta1\nkind: ClusterNetworkPolicy\n\
                 metadata: {{name: {name}}}\nspec:\n  tier: application\n  priority: 5\n{spec}"
            ),
        )?;
        let policy = Self { world, name };
        eventually(IN_FORCE, &format!("policy {name} is realized"), || {
            let object = cluster::run_async(async {
                let client = cluster::admin(world.store).await?;
                let got = objects::get(&client, path(name)).await;
                got.map_err(|error| LabError::new(error.chain()))
            })?;
            let status = &object["status"];
            let current = status["observedGeneration"] == object["metadata"]["generation"];
            match status["phase"] == "Realized" && current {
                true => Ok(()),
                false => Err(LabError::new(format!("its status: {status}"))),
            }
        })?;
        Ok(policy)
    }

    /// How many nodes have it.
    fn n_nodes(&self) -> Result<u64> {
        let object = cluster::run_async(async {
            let client = cluster::admin(self.world.store).await?;
            let got = objects::get(&client, path(self.name)).await;
            got.map_err(|error| LabError::new(error.chain()))
        })?;
        Ok(object["status"]["currentNodesRealized"].as_u64().unwrap_or_default())
    }
}

impl Drop for Policy<'_> {
    fn drop(&mut self) {
        // A step that fails leaves nothing behind; one that does not sees that it is gone.
        let _ = cluster::run_async(async {
            let client = cluster::admin(self.world.store).await?;
            let gone = objects::delete(&client, path(self.name)).await;
            gone.map_err(|error| LabError::new(error.chain()))
        });
    }
}

/// The client is answered, by every transport.
fn open(from: &Client, targets: &[SocketAddr]) -> Result<usize> {
    for target in targets {
        for transport in Transport::ALL {
            ask(from, *target, transport, ANSWERED)?;
        }
    }
    Ok(targets.len() * Transport::ALL.len())
}

/// The client is not answered, by any transport.
fn closed(from: &Client, targets: &[SocketAddr]) -> Result<usize> {
    for target in targets {
        for transport in Transport::ALL {
            if let Ok(answer) = ask(from, *target, transport, DROPPED) {
                let (name, pod) = (&from.name, answer.pod);
                return Err(LabError::new(format!(
                    "{pod} answers {name} at {target} by {transport:?}"
                )));
            }
        }
    }
    Ok(targets.len() * Transport::ALL.len())
}

/// The client is told at once that it may not, in the name of the address that it dialled: its
/// kernel takes no such word for this connection from anybody else.
fn rejected(from: &Client, targets: &[SocketAddr]) -> Result<usize> {
    let within = AT_ONCE * interrupt::patience();
    for target in targets {
        let began = Instant::now();
        let tcp =
            netns::enter(&from.netns, || TcpStream::connect_timeout(target, within))?.map(drop);
        if !matches!(&tcp, Err(error) if error.kind() == ErrorKind::ConnectionRefused) {
            let (name, after) = (&from.name, began.elapsed());
            return Err(LabError::new(format!("{name} to {target}: {tcp:?} after {after:?}")));
        }
        let socket = probe::udp_socket(&from.netns, *target)?;
        socket.set_read_timeout(Some(within)).doing(|| "set up the socket".into())?;
        let udp = socket.send(b"who").and_then(|_| socket.recv(&mut [0; 256])).map(drop);
        let silent = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
        if !matches!(&udp, Err(error) if !silent(error.kind())) {
            return Err(LabError::new(format!("{} to {target} by UDP: {udp:?}", from.name)));
        }
    }
    Ok(targets.len() * Transport::ALL.len())
}

/// The same, once changes are in force.
fn soon(
    what: fn(&Client, &[SocketAddr]) -> Result<usize>,
    from: &Client,
    targets: &[SocketAddr],
) -> Result<usize> {
    let mut n = 0;
    eventually(IN_FORCE, "the rules are in force", || {
        n = what(from, targets)?;
        Ok(())
    })?;
    Ok(n)
}

/// Datagrams all the time, each with a port of its own as often as with one that stays.
struct Asking {
    over: Arc<AtomicBool>,
    n_sent: Arc<AtomicUsize>,
    n_answered: Arc<AtomicUsize>,
    worker: JoinHandle<()>,
}

impl Asking {
    fn start(from: &Client, targets: &[SocketAddr]) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let [n_sent, n_answered] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (netns, targets) = (from.netns.clone(), targets.to_vec());
        let (stop, sent, answered) = (over.clone(), n_sent.clone(), n_answered.clone());
        let worker = std::thread::spawn(move || {
            let open = |target: &SocketAddr| -> Option<UdpSocket> {
                let socket = probe::udp_socket(&netns, *target).ok()?;
                socket.set_nonblocking(true).ok()?;
                Some(socket)
            };
            let kept: Vec<UdpSocket> = targets.iter().filter_map(open).collect();
            let mut fresh: Vec<UdpSocket> = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                // Enough that an answer to an earlier one is still seen.
                if fresh.len() > 100 {
                    fresh.drain(..targets.len());
                }
                fresh.extend(targets.iter().filter_map(open));
                let newest = fresh.len().saturating_sub(targets.len());
                for socket in kept.iter().chain(&fresh[newest..]) {
                    if socket.send(b"who").is_ok() {
                        sent.fetch_add(1, Ordering::SeqCst);
                    }
                }
                std::thread::sleep(PAUSE);
                for socket in kept.iter().chain(&fresh) {
                    while let Ok(n) = socket.recv(&mut [0; 512]) {
                        answered.fetch_add(usize::from(n > 0), Ordering::SeqCst);
                    }
                }
            }
        });
        Self { over, n_sent, n_answered, worker }
    }

    /// Waits until some more were sent.
    fn flow(&self, n: usize) -> Result<()> {
        let wanted = self.n_sent.load(Ordering::SeqCst) + n;
        eventually(Duration::from_secs(60), "datagrams are sent", || {
            match self.n_sent.load(Ordering::SeqCst) >= wanted {
                true => Ok(()),
                false => Err(LabError::new("they are not")),
            }
        })
    }

    /// Stops; gives how many were sent when none was answered.
    fn unanswered(self) -> Result<usize> {
        self.flow(100)?;
        self.over.store(true, Ordering::SeqCst);
        self.worker.join().map_err(|_| LabError::new("a thread panicked"))?;
        let n = self.n_sent.load(Ordering::SeqCst);
        match self.n_answered.load(Ordering::SeqCst) {
            0 => Ok(n),
            wrong => Err(LabError::new(format!("{wrong} of {n} datagrams were answered"))),
        }
    }
}

impl Rules<'_> {
    /// The Pods of `web` at their own port, by all their addresses.
    fn endpoints(&self) -> Result<Vec<SocketAddr>> {
        let mut all = Vec::new();
        for name in world::WEB {
            let pod = self.world.client(name.trim_start_matches("services/"))?;
            all.extend(pod.addresses().iter().map(|ip| SocketAddr::new(*ip, crate::echo::PORT)));
        }
        Ok(all)
    }

    fn actions(&self, _: &Scene<'_>) -> Result<usize> {
        let (web, other) = (self.world.targets("web")?, self.world.targets("other")?);
        let endpoints = self.endpoints()?;
        let mut n = 0;
        for (action, refused) in
            [("Drop", closed as fn(&Client, &[SocketAddr]) -> Result<usize>), ("Reject", rejected)]
        {
            let spec = egress(&to_service(action, "web"));
            let policy = Policy::apply(self.world, "to-services", &spec)?;
            for client in [&self.near, &self.far] {
                n += soon(refused, client, &web).doing(|| action.into())?;
                n += open(client, &other).doing(|| "another Service of the same Pods".into())?;
                n += open(client, &endpoints).doing(|| "the Pods themselves".into())?;
            }
            drop(policy);
            n += soon(open, &self.near, &web).doing(|| format!("after {action}"))?;
        }
        // What a Service may be used for, and nothing else; Pass leaves it to what comes after tiers.
        for action in ["Allow", "Pass"] {
            let rest = "  - action: Drop\n";
            let spec = egress(&(to_service(action, "web") + rest));
            let policy = Policy::apply(self.world, "to-services", &spec)?;
            for client in [&self.near, &self.far] {
                n += soon(closed, client, &endpoints).doing(|| action.into())?;
                n += closed(client, &other).doing(|| "another Service".into())?;
                n += open(client, &web).doing(|| action.into())?;
            }
            drop(policy);
            n += soon(open, &self.near, &other).doing(|| format!("after {action}"))?;
        }
        Ok(n)
    }

    fn hairpin(&self, _: &Scene<'_>) -> Result<usize> {
        let alone = self.world.client("alone")?;
        let targets = self.world.targets("alone")?;
        let mut n = soon(open, &alone, &targets)?;
        let spec = egress(&to_service("Reject", "alone"));
        let policy = Policy::apply(self.world, "hairpin", &spec)?;
        n += soon(rejected, &alone, &targets)?;
        drop(policy);
        Ok(n + soon(open, &alone, &targets)?)
    }

    fn affinity(&self, _: &Scene<'_>) -> Result<usize> {
        let targets = self.world.targets("sticky")?;
        let mut n = open(&self.near, &targets)?;
        let spec = egress(&to_service("Drop", "sticky"));
        let policy = Policy::apply(self.world, "sticky", &spec)?;
        n += soon(closed, &self.near, &targets)?;
        drop(policy);
        Ok(n + soon(open, &self.near, &targets)?)
    }

    /// Addresses that Services do not get by themselves.
    fn address(&self, n: u8) -> Vec<IpAddr> {
        let nets = addressing::service_cidrs(self.world.store.get().variant.family);
        let ip = |net: ipnet::IpNet| match net.network() {
            IpAddr::V4(ip) => IpAddr::from((u32::from(ip) + 0xff00 + u32::from(n)).to_be_bytes()),
            IpAddr::V6(ip) => IpAddr::from((u128::from(ip) + 0xff00 + u128::from(n)).to_be_bytes()),
        };
        nets.into_iter().map(ip).collect()
    }

    /// The policy is there before the Service is, each time anew.
    fn made_anew(&self, _: &Scene<'_>) -> Result<usize> {
        let spec = egress(&to_service("Drop", "coming"));
        let policy = Policy::apply(self.world, "coming", &spec)?;
        let mut n = 0;
        for round in 0..N_MADE {
            let ips = self.address(round);
            let targets: Vec<SocketAddr> =
                ips.iter().map(|ip| SocketAddr::new(*ip, world::PORT)).collect();
            let text: Vec<String> = ips.iter().map(|ip| format!("\"{ip}\"")).collect();
            let asking = Asking::start(&self.near, &targets);
            asking.flow(20)?;
            let own = format!("  clusterIPs: [{}]\n", text.join(", "));
            self.world.add_service_of("coming", "web", &own)?;
            // It is served: whom the policy is not about is answered.
            soon(open, &self.world.client("web-1")?, &targets)?;
            self.world.delete_service("coming")?;
            n += asking.unanswered().doing(|| format!("round {round}"))?;
        }
        drop(policy);
        Ok(n)
    }

    fn first_endpoint(&self, _: &Scene<'_>) -> Result<usize> {
        let targets = self.world.targets("late")?;
        let spec = egress(&to_service("Drop", "late"));
        let policy = Policy::apply(self.world, "late", &spec)?;
        let mut n = 0;
        for round in 0..2 {
            let asking = Asking::start(&self.near, &targets);
            self.world.add_pod("late", "node-1", "late")?;
            soon(open, &self.world.client("web-2")?, &targets)?;
            self.world.delete_pod("late")?;
            self.world.await_gone("late")?;
            n += asking.unanswered().doing(|| format!("round {round}"))?;
        }
        drop(policy);
        Ok(n)
    }

    fn restart(&self, _: &Scene<'_>) -> Result<usize> {
        let targets = self.world.targets("web")?;
        let spec = egress(&to_service("Drop", "web"));
        let policy = Policy::apply(self.world, "restart", &spec)?;
        soon(closed, &self.near, &targets)?;
        let asking = Asking::start(&self.near, &targets);
        component::kill(self.world.store, "node-1", NodeComponent::Agent)?;
        asking.flow(100)?;
        component::start(self.world.store, "node-1", NodeComponent::Agent)?;
        agent::await_ready(self.world.store, "node-1")?;
        // Served after the start, so that all was told that there is to be told.
        self.world.add_service("after", "web")?;
        let after = self.world.targets("after")?;
        soon(open, &self.near, &after)?;
        let n = asking.unanswered()?;
        drop(policy);
        Ok(n + soon(open, &self.near, &targets)?)
    }

    /// NodePorts of the nodes; each has endpoints of its own and others.
    fn at_nodes(&self, scene: &Scene<'_>) -> Result<Vec<(String, Vec<SocketAddr>)>> {
        let port = self.world.node_port("np")?;
        let at = |node: &Client| {
            let targets = node.addresses().iter().map(|ip| SocketAddr::new(*ip, port)).collect();
            (node.name.clone(), targets)
        };
        Ok(scene.nodes().iter().map(at).collect())
    }

    fn node_ports(&self, scene: &Scene<'_>) -> Result<usize> {
        let outside = scene.outside();
        let [first, second] = scene.nodes() else {
            return Err(LabError::new("the lab has not two nodes"));
        };
        let nodes = self.at_nodes(scene)?;
        let mut n = 0;
        for (_, targets) in &nodes {
            n += soon(open, outside, targets)?;
        }
        for (action, refused) in
            [("Drop", closed as fn(&Client, &[SocketAddr]) -> Result<usize>), ("Reject", rejected)]
        {
            let both = [outside.addresses(), second.addresses()].concat();
            let spec = at_node_port(&[(action, both.as_slice())]);
            let policy = Policy::apply(self.world, "node-port", &spec)?;
            if policy.n_nodes()? != 2 {
                return Err(LabError::new("not every node has the rules of a NodePort"));
            }
            for (name, targets) in &nodes {
                let at = || format!("{action} at {name}");
                for _ in 0..4 {
                    n += soon(refused, outside, targets).doing(at)?;
                }
                // Another node comes in like anybody; what a node sends itself passes.
                n += match *name == second.name {
                    true => open(second, targets).doing(at)?,
                    false => soon(refused, second, targets).doing(at)?,
                };
                n += open(first, targets).doing(at)?;
            }
            // By the Service's own address the rules say nothing.
            n += open(second, &self.world.targets("np")?)?;
            drop(policy);
            for (_, targets) in &nodes {
                n += soon(open, outside, targets).doing(|| format!("after {action}"))?;
            }
        }
        // The first rule decides.
        let all: Vec<IpAddr> = outside.addresses().to_vec();
        let spec = at_node_port(&[("Allow", all.as_slice()), ("Drop", all.as_slice())]);
        let policy = Policy::apply(self.world, "node-port", &spec)?;
        for (_, targets) in &nodes {
            n += open(outside, targets)?;
        }
        drop(policy);
        Ok(n)
    }

    /// A Pod is let out by its own rules, and not in by those of the NodePort; and the reverse.
    fn pod_at_node_port(&self, scene: &Scene<'_>) -> Result<usize> {
        let nodes = self.at_nodes(scene)?;
        let own = nodes.iter().find(|(name, _)| *name == self.near.node);
        let (_, targets) = own.ok_or_else(|| LabError::new("no such node"))?;
        let mut n = soon(open, &self.near, targets)?;
        let out = Policy::apply(self.world, "out", &egress("  - action: Allow\n"))?;
        let spec = at_node_port(&[("Drop", self.near.addresses())]);
        let into = Policy::apply(self.world, "node-port", &spec)?;
        n += soon(closed, &self.near, targets)?;
        n += open(&self.near, &self.world.targets("np")?)?;
        drop((out, into));
        n += soon(open, &self.near, targets)?;
        let out = Policy::apply(self.world, "out", &egress(&to_service("Reject", "np")))?;
        let spec = at_node_port(&[("Allow", self.near.addresses())]);
        let into = Policy::apply(self.world, "node-port", &spec)?;
        n += soon(rejected, &self.near, targets)?;
        drop((out, into));
        Ok(n)
    }
}
