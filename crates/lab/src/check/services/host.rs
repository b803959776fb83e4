//! What a node's own state does to Services: addresses that come and go, tables of the firewall that
//! somebody removes or holds, and Services that are not to be served.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use serde_json::{Value, json};

use super::IN_FORCE;
use super::node::Scene;
use super::world::{self, Client};
use crate::cli::NodeComponent;
use crate::error::{Doing, LabError, Result};
use crate::preflight::program;
use crate::variant::IpFamily;
use crate::{agent, component, ip, netns};

/// What the kernel tells of is put right within this time, long before the next look by itself.
const SOON: Duration = Duration::from_secs(10);
/// Where a node gets them: a link that is always there and up.
const LINK: &str = "lo";
/// The chain by which the kernel drops its copy of what the uplink receives.
const UPLINK_CHAIN: &str = "drop-eth0";
/// Somebody else's chain.
const FOREIGN: &str = "somebodys";

/// Addresses that a node gets later, outside of all ranges.
fn later(family: IpFamily) -> Vec<IpAddr> {
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, 0x73, 0, 0, 0, 0, 1);
    let all = [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)), IpAddr::V6(v6)];
    all.into_iter().filter(|ip| family.has(*ip)).collect()
}

fn run(on: &Client, command: &str, args: &[&str]) -> Result<String> {
    let output = netns::enter(&on.netns, || program(command).args(args).output())?
        .doing(|| format!("run {command}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::new(format!("{command} {}: {said}", args.join(" "))))
}

impl Scene<'_> {
    /// An address that a node gets serves its node ports, and one that goes does not, both without a
    /// start of the agent.
    pub(super) fn followed_addresses(&self) -> Result<usize> {
        let (node, outside) = (&self.nodes()[0], self.outside());
        let port = self.world.node_port("np")?;
        let addresses = later(self.family());
        let targets: Vec<SocketAddr> =
            addresses.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        let ways: Result<Vec<String>> = addresses
            .iter()
            .map(|ip| Ok(format!("route add {ip} via {}", node.address(*ip)?)))
            .collect();
        ip::batch(&outside.netns, &ways?)?;
        for target in &targets {
            self.is_closed(outside, *target).doing(|| "before there is such an address".into())?;
        }
        let put = |verb: &str| -> Result<()> {
            let lines: Vec<String> = addresses
                .iter()
                .map(|ip| match ip {
                    IpAddr::V4(ip) => format!("addr {verb} {ip}/32 dev {LINK}"),
                    IpAddr::V6(ip) => format!("addr {verb} {ip}/128 dev {LINK}"),
                })
                .collect();
            ip::batch(&node.netns, &lines)
        };
        put("add")?;
        let mut n = 0;
        for from in [outside, node] {
            self.await_answer(from, &targets)
                .doing(|| format!("{} at a new address", from.name))?;
            for target in &targets {
                let seen = [outside.address(target.ip())?, node.gateway(target.ip())?, target.ip()];
                n += self.reaches(from, *target, &world::WEB.map(Into::into), &seen)?;
            }
        }
        put("del")?;
        world::eventually(SOON, "an address that went serves nothing", || {
            targets.iter().try_for_each(|target| self.is_closed(outside, *target))
        })?;
        Ok(n)
    }

    /// Tables that somebody removes are there again soon, one by one or all.
    pub(super) fn removed_tables(&self) -> Result<usize> {
        let node = &self.nodes()[0];
        let before = tables(node)?;
        let ways: [&[&str]; 3] = [
            &["delete", "table", "inet", "antrea"],
            &["delete", "table", "netdev", "antrea-host"],
            &["flush", "ruleset"],
        ];
        for way in ways {
            run(node, "nft", way)?;
            await_tables(node, &before, &format!("nft {} is made good", way.join(" ")))?;
        }
        let port = self.world.node_port("np")?;
        self.await_answer(self.outside(), &self.at(node, port))?;
        Ok(ways.len())
    }

    /// An agent that starts while nftables refuses its rules comes up, and puts them there once it may.
    pub(super) fn held_tables(&self) -> Result<usize> {
        let node = &self.nodes()[0];
        let store = self.world.store;
        let before = tables(node)?;
        component::stop(store, &node.name, NodeComponent::Agent)?;
        // A chain of ours with another hook cannot be changed, and while a rule leads to it not removed.
        let ours = "inet antrea service-output";
        let script = format!(
            "flush chain {ours}; delete chain {ours}; add chain {ours}; add chain inet antrea {FOREIGN}; \
             add rule inet antrea {FOREIGN} jump service-output"
        );
        run(node, "nft", &[&script])?;
        let log = store.layout().node(&node.name).log(agent::ROLE);
        let is_told = |refused: &str| {
            world::eventually(IN_FORCE, "the log tells of the refusal", || {
                let text = fs::read_to_string(&log).doing(|| format!("read {}", log.display()))?;
                if !component::runs(store, &node.name, NodeComponent::Agent) {
                    return Err(LabError::new("the agent ended for a refusal of nftables"));
                }
                match text.contains(refused) {
                    true => Ok(()),
                    false => Err(LabError::new(format!("{} has no {refused:?}", log.display()))),
                }
            })
        };
        // On the userspace datapath the uplink needs a chain before the node has a bridge.
        let drops = run(node, "nft", &["list", "table", "netdev", "antrea"]);
        if drops.is_ok_and(|table| table.contains(UPLINK_CHAIN)) {
            let uplink = format!("netdev antrea {UPLINK_CHAIN}");
            let script = format!(
                "flush chain {uplink}; delete chain {uplink}; add chain {uplink}; add chain netdev antrea {FOREIGN}; \
                 add rule netdev antrea {FOREIGN} jump {UPLINK_CHAIN}"
            );
            run(node, "nft", &[&script])?;
            agent::start(store, &node.name)?;
            is_told("drop the kernel's copy of the uplink's frames")?;
            run(node, "nft", &["delete", "chain", "netdev", "antrea", FOREIGN])?;
            agent::await_ready(store, &node.name)?;
        } else {
            component::start(store, &node.name, NodeComponent::Agent)?;
        }
        is_told("replace table inet antrea")?;
        run(node, "nft", &["delete", "chain", "inet", "antrea", FOREIGN])?;
        await_tables(node, &before, "the rules are there once nothing holds them")?;
        let port = self.world.node_port("np")?;
        self.await_answer(self.outside(), &self.at(node, port))?;
        Ok(1)
    }

    /// A Service that another proxy has is not answered, and is once the label is gone; the same of one
    /// that the configuration names.
    pub(super) fn skipped(&self) -> Result<usize> {
        let mut n = 0;
        let label = |name: Value| json!({ "service.kubernetes.io/service-proxy-name": name });
        self.world.add_service("elsewhere", "web")?;
        self.world.await_service("elsewhere")?;
        let near = self.world.clients().find(|client| client.node == "node-1");
        let near = near.ok_or_else(|| LabError::new("no Pod on node-1"))?;
        let node = &self.nodes()[0];
        let closed = |service: &str| {
            let targets = self.world.targets(service)?;
            world::eventually(IN_FORCE, &format!("{service} is not answered"), || {
                for target in &targets {
                    [near, node].iter().try_for_each(|from| self.is_closed(from, *target))?;
                }
                Ok(())
            })
        };
        self.world.label_service("elsewhere", &label(json!("another")))?;
        closed("elsewhere")?;
        self.world.label_service("elsewhere", &label(Value::Null))?;
        self.world.await_service("elsewhere").doing(|| "without the label".into())?;
        n += 2;

        self.world.add_service("skipped", "web")?;
        self.world.await_service("skipped")?;
        self.skip(&["services/skipped"])?;
        closed("skipped")?;
        // The others are.
        self.await_answer(near, &self.world.targets("web")?)?;
        self.skip(&[])?;
        self.world.await_service("skipped").doing(|| "without skipServices".into())?;
        Ok(n + 2)
    }

    /// Starts the first node's agent with these `skipServices`.
    fn skip(&self, services: &[&str]) -> Result<()> {
        let (store, name) = (self.world.store, &self.nodes()[0].name);
        component::stop(store, name, NodeComponent::Agent)?;
        let path = store.layout().node(name).agent_conf();
        let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        let mut conf: Value =
            serde_saphyr::from_str(&text).doing(|| format!("decode {}", path.display()))?;
        conf["antreaProxy"]["skipServices"] = json!(services);
        let text = serde_saphyr::to_string(&conf).doing(|| "encode the configuration".into())?;
        fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        component::start(store, name, NodeComponent::Agent)
    }
}

/// What the node has of ours, line by line: chains that were made anew stand elsewhere.
fn tables(node: &Client) -> Result<String> {
    let inet = run(node, "nft", &["list", "table", "inet", "antrea"])?;
    let frames = run(node, "nft", &["list", "table", "netdev", "antrea-host"])?;
    let all = inet + &frames;
    let mut lines: Vec<&str> = all.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

fn await_tables(node: &Client, before: &str, what: &str) -> Result<()> {
    world::eventually(SOON, what, || {
        let now = tables(node)?;
        if now == before {
            return Ok(());
        }
        Err(LabError::new(format!("there is\n{now}\nand was\n{before}")))
    })
}
