//! Rules as kube-proxy's iptables mode makes them: while they are there they are obeyed, and once
//! they go the agent's own serve.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::calls::{Transport, ask};
use super::node::Scene;
use super::world::{self, Client};
use super::{ANSWERED, check};
use crate::error::{Doing, LabError, Result};
use crate::preflight::{find_program, program};
use crate::{echo, netns};

/// With one chance in three for each of three endpoints, two answers of all are not from one alone.
const N_ASKED: usize = 40;

/// The rules of one Service on one node.
struct Rules<'a> {
    node: &'a Client,
    made: Vec<(&'static str, Vec<String>)>,
}

impl<'a> Rules<'a> {
    fn new(node: &'a Client) -> Self {
        Self { node, made: Vec::new() }
    }

    /// Leads what is for an address and port to one endpoint.
    fn lead(&mut self, chain: &str, from: SocketAddr, to: SocketAddr) -> Result<()> {
        let command = if from.is_ipv4() { "iptables" } else { "ip6tables" };
        let (ip, port) = (from.ip(), from.port());
        let rule =
            format!("{chain} -d {ip} -p tcp -m tcp --dport {port} -j DNAT --to-destination {to}");
        let rule: Vec<String> = rule.split(' ').map(str::to_owned).collect();
        run(self.node, command, "-A", &rule)?;
        self.made.push((command, rule));
        Ok(())
    }

    fn remove(&mut self) -> Result<()> {
        while let Some((command, rule)) = self.made.pop() {
            run(self.node, command, "-D", &rule)?;
        }
        Ok(())
    }
}

fn run(node: &Client, command: &str, action: &str, rule: &[String]) -> Result<()> {
    let output = netns::enter(&node.netns, || {
        program(command).args(["-w", "-t", "nat", action]).args(rule).output()
    })?
    .doing(|| format!("run {command}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::new(format!("{command} {action} {}: {said}", rule.join(" "))))
}

impl Scene<'_> {
    /// Somebody else's rules come first, and nobody notices when they go.
    pub(super) fn beside_kube_proxy(&self) -> Result<usize> {
        if find_program("iptables").is_none() {
            return Ok(0);
        }
        let node = &self.nodes()[0];
        let chosen = self.world.client("web-1")?;
        let endpoint = |like: IpAddr| -> Result<SocketAddr> {
            Ok(SocketAddr::new(chosen.address(like)?, echo::PORT))
        };
        let port = self.world.node_port("np")?;
        let node_ports: Vec<SocketAddr> =
            node.addresses().iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        let cluster_ips = self.world.targets("np")?;
        let mut rules = Rules::new(node);
        for target in &node_ports {
            rules.lead("PREROUTING", *target, endpoint(target.ip())?)?;
        }
        for target in &cluster_ips {
            rules.lead("OUTPUT", *target, endpoint(target.ip())?)?;
        }
        let ways = [(self.outside(), &node_ports), (node, &cluster_ips)];
        let mut n = 0;
        let mut tried = |who: &[String]| -> Result<BTreeSet<String>> {
            let mut seen = BTreeSet::new();
            for (from, targets) in ways {
                for target in targets {
                    for _ in 0..N_ASKED {
                        let answer = ask(from, *target, Transport::Tcp, ANSWERED)?;
                        let peer = answer.peer;
                        check(&answer, from, who, &[peer])?;
                        seen.insert(answer.pod);
                        n += 1;
                    }
                }
            }
            Ok(seen)
        };
        tried(&[world::WEB[0].to_owned()]).doing(|| "while kube-proxy's rules are there".into())?;
        rules.remove()?;
        let seen = tried(&world::WEB.map(Into::into)).doing(|| "once they are gone".into())?;
        if seen.len() < 2 {
            return Err(LabError::new(format!("without kube-proxy's rules only {seen:?} answer")));
        }
        Ok(n)
    }
}
