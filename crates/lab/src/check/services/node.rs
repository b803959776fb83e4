//! Services as nodes and the outside use them (`proxyAll`): ClusterIPs from nodes, node ports,
//! addresses of load balancers and external ones, traffic policies, ranges of sources.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use super::calls::{Transport, ask};
use super::ports::Connection;
use super::world::{self, Client, World};
use super::{ANSWERED, Context, IN_FORCE, Lab, Outcome, check, nothing_forbidden};
use crate::cli::NodeComponent;
use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::preflight::program;
use crate::state::Proxy;
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use crate::variant::IpFamily;
use crate::{addressing, component, ip, netns};

/// What is dropped is not answered in this time.
const DROPPED: Duration = Duration::from_millis(600);
/// How often each way is tried: endpoints are chosen anew.
pub(super) const N_TRIED: usize = 8;
const ALONE: &str = "services/alone";

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "servicesn")?;
    let options = UpOptions { proxy: Proxy::All, ..context.cluster(2) };
    let lab = Lab(up::run(&layout, &options, &Progress::start())?);
    let world = World::make(&lab.0)?;
    let scene = Scene::new(&world, context.variant.family)?;
    let mut n = 0;
    let steps: [(&str, Step<'_>); 15] = [
        ("nodes reach ClusterIPs", Scene::cluster_ips),
        ("node ports of every node, for everybody", Scene::node_ports),
        (
            "addresses that nodes get and lose serve node ports, and do not",
            Scene::followed_addresses,
        ),
        ("tables of the firewall that somebody removes come back", Scene::removed_tables),
        ("an agent starts while nftables refuses its rules", Scene::held_tables),
        ("rules of kube-proxy come first, and go", Scene::beside_kube_proxy),
        ("node ports with endpoints on this node only keep the client", Scene::local_node_ports),
        ("addresses of load balancers, and who may use them", Scene::balancers),
        ("external addresses", Scene::external),
        ("endpoints on the nodes themselves", Scene::host_endpoints),
        ("endpoints that are a node's own, and policies Local", Scene::own_programs),
        ("endpoints on the client's node, or in its zone", Scene::nearness),
        ("the last endpoint serves while it ends", Scene::ending),
        ("Services of another proxy, and those that are skipped", Scene::skipped),
        ("health ports tell which nodes have endpoints", Scene::health),
    ];
    for (what, step) in steps {
        context.progress.step(what);
        n += step(&scene).doing(|| what.to_owned())?;
    }
    nothing_forbidden(&lab.0)?;
    context.progress.step("the agents' cleanup leaves no way to Services");
    for node in &scene.nodes {
        clean_up(&world, node).doing(|| format!("on {}", node.name))?;
    }
    Ok(Outcome::Passed(json!({ "exchanges": n })))
}

/// Gives the number of its exchanges.
type Step<'a> = fn(&Scene<'a>) -> Result<usize>;

/// The world and those who are no Pods.
pub(super) struct Scene<'a> {
    pub(super) world: &'a World<'a>,
    family: IpFamily,
    nodes: Vec<Client>,
    outside: Client,
}

/// Addresses outside of all ranges that lead to a node by a route of the outside host.
fn balanced(family: IpFamily, n: u8) -> Vec<IpAddr> {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0x71, 0, 0, 0, 0, n.into());
    let all = [IpAddr::V4(Ipv4Addr::new(203, 0, 113, n)), IpAddr::V6(v6)];
    all.into_iter().filter(|ip| family.has(*ip)).collect()
}

/// Ends a node's agent for good: what led to Services is gone from its kernel.
pub(super) fn clean_up(world: &World<'_>, node: &Client) -> Result<()> {
    let run = |command: &str, args: &[&str]| -> Result<String> {
        let output = netns::enter(&node.netns, || program(command).args(args).output())?
            .doing(|| format!("run {command}"))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if !output.status.success() {
            return Err(LabError::new(format!("{command} {}: {said}", args.join(" "))));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let looks: [&[&str]; 2] =
        [&["route", "show", "proto", "166"], &["-6", "route", "show", "proto", "166"]];
    let left = || -> Result<String> {
        let routes: Result<Vec<String>> = looks.iter().map(|look| run("ip", look)).collect();
        let tables = run("nft", &["list", "tables"])?;
        let ours = tables.lines().filter(|table| table.contains("antrea"));
        Ok(routes?.concat() + &ours.collect::<String>())
    };
    if !left()?.contains("169.254.0.253") && !left()?.contains("fc01::") {
        return Err(LabError::new("there are no routes to Services to begin with"));
    }
    component::stop(world.store, &node.name, NodeComponent::Agent)?;
    let layout = world.store.layout().node(&node.name);
    let agent = world.store.get().bin_dir.join("antrea-agent").display().to_string();
    let paths =
        [layout.agent_conf(), layout.state(), layout.run()].map(|p| p.display().to_string());
    let [config, state, run_dir] = &paths;
    run(&agent, &["cleanup", "--config", config, "--state-dir", state, "--run-dir", run_dir])?;
    let left = left()?;
    if left.is_empty() { Ok(()) } else { Err(LabError::new(format!("it left {left}"))) }
}

impl<'a> Scene<'a> {
    /// With the routes that the outside host needs.
    pub(super) fn new(world: &'a World<'a>, family: IpFamily) -> Result<Self> {
        let layout = world.store.layout();
        let mut nodes = Vec::new();
        for node in world.store.get().nodes {
            let pod = world.clients().find(|client| client.node == node.name);
            let gateways = pod.map(Client::gateways).unwrap_or_default();
            let netns = layout.node(&node.name).netns().to_owned();
            let addresses = addressing::node(family, node.n);
            nodes.push(Client::host(&node.name, netns, addresses, gateways));
        }
        let addresses = addressing::outside(family);
        let outside = Client::host("outside", layout.outside_netns(), addresses, Vec::new());
        // As a router would that was told of the addresses: each goes to the first node.
        let hops = addressing::node(family, 1);
        let routes: Vec<String> = (10..30)
            .flat_map(|n| balanced(family, n))
            .filter_map(|to| {
                let hop = hops.iter().find(|hop| hop.is_ipv4() == to.is_ipv4())?;
                Some(format!("route add {to} via {hop}"))
            })
            .collect();
        ip::batch(&outside.netns, &routes).doing(|| "give the outside host routes".into())?;
        Ok(Self { world, family, nodes, outside })
    }

    /// Asks several times by every transport; who is seen is one of `seen`.
    pub(super) fn reaches(
        &self,
        from: &Client,
        target: SocketAddr,
        who: &[String],
        seen: &[IpAddr],
    ) -> Result<usize> {
        for transport in Transport::ALL {
            for _ in 0..N_TRIED {
                ask(from, target, transport, ANSWERED)
                    .and_then(|answer| check(&answer, from, who, seen))
                    .doing(|| format!("to {target} by {transport:?}"))?;
            }
        }
        Ok(N_TRIED * Transport::ALL.len())
    }

    /// Addresses that the outside host sends to the first node: 10 to 29 of a family.
    pub(super) fn balanced(&self, n: u8) -> Vec<IpAddr> {
        balanced(self.family, n)
    }

    /// The nodes themselves.
    pub(super) fn nodes(&self) -> &[Client] {
        &self.nodes
    }

    /// The families of the lab.
    pub(super) fn family(&self) -> IpFamily {
        self.family
    }

    /// The host outside.
    pub(super) fn outside(&self) -> &Client {
        &self.outside
    }

    /// Nobody answers.
    pub(super) fn is_closed(&self, from: &Client, target: SocketAddr) -> Result<()> {
        for transport in Transport::ALL {
            if let Ok(answer) = ask(from, target, transport, DROPPED) {
                let (name, pod) = (&from.name, answer.pod);
                return Err(LabError::new(format!("{pod} answers {name} at {target}")));
            }
        }
        Ok(())
    }

    /// Waits until somebody is answered.
    pub(super) fn await_answer(&self, from: &Client, targets: &[SocketAddr]) -> Result<()> {
        world::eventually(IN_FORCE, "it is served", || {
            for target in targets {
                ask(from, *target, Transport::Tcp, Duration::from_secs(1))?;
            }
            Ok(())
        })
    }

    /// The address of a node's gateway, of another one's family.
    pub(super) fn gateway_of(&self, node: &str, like: IpAddr) -> Result<IpAddr> {
        let found = self.nodes.iter().find(|own| own.name == node);
        found.ok_or_else(|| LabError::new(format!("no node {node}")))?.gateway(like)
    }

    fn cluster_ips(&self) -> Result<usize> {
        let targets = self.world.targets("web")?;
        let mut n = 0;
        for node in &self.nodes {
            self.await_answer(node, &targets)?;
            for target in &targets {
                let seen = [node.gateway(target.ip())?];
                n += self.reaches(node, *target, &world::WEB.map(Into::into), &seen)?;
            }
        }
        Ok(n)
    }

    /// A node's addresses at a node port.
    pub(super) fn at(&self, node: &Client, port: u16) -> Vec<SocketAddr> {
        node.addresses().iter().map(|ip| SocketAddr::new(*ip, port)).collect()
    }

    fn node_ports(&self) -> Result<usize> {
        self.world.add_service_of("np", "web", "  type: NodePort\n")?;
        let port = self.world.node_port("np")?;
        let web = world::WEB.map(Into::into);
        let mut n = 0;
        for node in &self.nodes {
            let targets = self.at(node, port);
            let askers = self.nodes.iter().chain(self.world.clients()).chain([&self.outside]);
            for from in askers {
                self.await_answer(from, &targets).doing(|| from.name.clone())?;
                for target in &targets {
                    // By an endpoint on the node it is seen as it is, elsewhere as the gateway.
                    let mut seen = vec![from.address(target.ip())?, node.gateway(target.ip())?];
                    if from.node != node.name && self.world.is_client(from) {
                        seen.push(self.world.node_address(&from.node, target.ip())?);
                    }
                    n += self.reaches(from, *target, &web, &seen)?;
                }
            }
            if self.family.has(Ipv4Addr::LOCALHOST.into()) {
                let target = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
                let seen = [node.gateway(target.ip())?];
                n += self.reaches(node, target, &web, &seen).doing(|| "by loopback".into())?;
            }
        }
        Ok(n)
    }

    fn local_node_ports(&self) -> Result<usize> {
        let local = "  type: NodePort\n  externalTrafficPolicy: Local\n";
        self.world.add_service_of("np-local", "alone", local)?;
        let port = self.world.node_port("np-local")?;
        let alone = [ALONE.to_owned()];
        let [first, second] = self.nodes.as_slice() else {
            return Err(LabError::new("the lab has not two nodes"));
        };
        let near = self.at(first, port);
        let mut n = 0;
        self.await_answer(&self.outside, &near)?;
        let on_node = self.world.clients().filter(|client| client.node == first.name);
        for from in [&self.outside, second].into_iter().chain(on_node) {
            for target in &near {
                n += self.reaches(from, *target, &alone, &[from.address(target.ip())?])?;
            }
        }
        for target in self.at(second, port) {
            // No endpoint there: nothing for the outside, all of the cluster for its own.
            self.is_closed(&self.outside, target)?;
            let seen = [second.address(target.ip())?, second.gateway(target.ip())?];
            n += self.reaches(second, target, &alone, &seen)?;
        }
        Ok(n)
    }

    /// Gives a Service addresses of a load balancer, as a controller of a cloud does.
    pub(super) fn balance(&self, name: &str, n: u8) -> Result<Vec<SocketAddr>> {
        let addresses = balanced(self.family, n);
        let ingress: Vec<Value> = addresses.iter().map(|ip| json!({ "ip": ip })).collect();
        let status = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        self.world.set_status(name, &status)?;
        Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, world::PORT)).collect())
    }

    fn balancers(&self) -> Result<usize> {
        let web = world::WEB.map(Into::into);
        let alone = [ALONE.to_owned()];
        let mut n = 0;

        self.world.add_service_of("lb", "web", "  type: LoadBalancer\n")?;
        let targets = self.balance("lb", 10)?;
        self.await_answer(&self.outside, &targets)?;
        for target in &targets {
            let gateway = self.gateway_of("node-1", target.ip())?;
            let seen = [self.outside.address(target.ip())?, gateway];
            n += self.reaches(&self.outside, *target, &web, &seen)?;
            for node in &self.nodes {
                n += self.reaches(node, *target, &web, &[node.gateway(target.ip())?])?;
            }
            for pod in self.world.clients() {
                n += self.reaches(pod, *target, &web, &[pod.address(target.ip())?])?;
            }
        }

        let local = "  type: LoadBalancer\n  externalTrafficPolicy: Local\n";
        self.world.add_service_of("lb-local", "alone", local)?;
        let targets = self.balance("lb-local", 11)?;
        self.await_answer(&self.outside, &targets)?;
        for target in &targets {
            let seen = [self.outside.address(target.ip())?];
            n += self.reaches(&self.outside, *target, &alone, &seen)?;
            // Pods of the cluster reach all of its endpoints, wherever they are.
            for pod in self.world.clients() {
                n += self.reaches(pod, *target, &alone, &[pod.address(target.ip())?])?;
            }
        }

        let ranges = |addresses: Vec<IpAddr>| {
            let words = addresses.iter().map(|ip| {
                let len = if ip.is_ipv4() { 32 } else { 128 };
                format!("\"{ip}/{len}\"")
            });
            let words = words.collect::<Vec<_>>().join(", ");
            format!("  type: LoadBalancer\n  loadBalancerSourceRanges: [{words}]\n")
        };
        let allowed = ranges(addressing::outside(self.family));
        self.world.add_service_of("lb-open", "alone", &allowed)?;
        let open = self.balance("lb-open", 12)?;
        let refused = ranges(addressing::behind_outside(self.family));
        self.world.add_service_of("lb-shut", "alone", &refused)?;
        let shut = self.balance("lb-shut", 13)?;
        self.await_answer(&self.outside, &open)?;
        for target in open {
            let gateway = self.gateway_of("node-1", target.ip())?;
            let seen = [self.outside.address(target.ip())?, gateway];
            n += self.reaches(&self.outside, target, &alone, &seen)?;
        }
        // The same host by its other address is one of those who may.
        let others = addressing::behind_outside(self.family);
        let other = Client::host("behind", self.outside.netns.clone(), others, Vec::new());
        for target in shut {
            world::eventually(IN_FORCE, "who may use it is served", || {
                Connection::open(&other, 0, target, Transport::Tcp)?.ask().map(drop)
            })?;
            self.is_closed(&self.outside, target)?;
        }
        Ok(n)
    }

    fn external(&self) -> Result<usize> {
        let addresses = balanced(self.family, 20);
        let words: Vec<String> = addresses.iter().map(|ip| format!("\"{ip}\"")).collect();
        let spec = format!("  externalIPs: [{}]\n", words.join(", "));
        self.world.add_service_of("ext", "web", &spec)?;
        let web = world::WEB.map(Into::into);
        let mut n = 0;
        for ip in addresses {
            let target = SocketAddr::new(ip, world::PORT);
            self.await_answer(&self.outside, &[target])?;
            let seen = [self.outside.address(ip)?, self.gateway_of("node-1", ip)?];
            n += self.reaches(&self.outside, target, &web, &seen)?;
            for from in self.nodes.iter().chain(self.world.clients()) {
                self.await_answer(from, &[target])?;
                let own =
                    if self.world.is_client(from) { from.address(ip)? } else { from.gateway(ip)? };
                n += self.reaches(from, target, &web, &[own])?;
            }
        }
        Ok(n)
    }

    /// Node ports and ClusterIPs whose endpoints are programs on the nodes.
    fn host_endpoints(&self) -> Result<usize> {
        let mut n = 0;
        for server in &self.nodes {
            let service = format!("host-{}", server.name);
            let port = crate::probe::serve(&server.netns, &server.name, server.addresses())?;
            self.world.add_service_by_hand(
                &service,
                server.addresses(),
                port,
                "  type: NodePort\n",
            )?;
            let who = std::slice::from_ref(&server.name);
            let port = self.world.node_port(&service)?;
            let mut targets = self.world.targets(&service)?;
            for node in &self.nodes {
                targets.extend(self.at(node, port));
            }
            for from in self.nodes.iter().chain([&self.outside]) {
                for target in &targets {
                    let in_cluster = addressing::service_cidrs(self.family);
                    let is_cluster_ip = in_cluster.iter().any(|net| net.contains(&target.ip()));
                    if from.name == "outside" && is_cluster_ip {
                        continue;
                    }
                    self.await_answer(from, &[*target]).doing(|| from.name.clone())?;
                    for transport in Transport::ALL {
                        let answer = ask(from, *target, transport, ANSWERED)?;
                        let any = [answer.peer];
                        check(&answer, from, who, &any)?;
                        n += 1;
                    }
                }
            }
        }
        Ok(n)
    }
}
