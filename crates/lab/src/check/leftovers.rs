//! What a node holds because of Pods: taken before and after, and compared.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

use crate::agent;
use crate::error::{Doing, LabError, Result};
use crate::layout::NodeLayout;
use crate::netns;
use crate::ovs::{self, BRIDGE};
use crate::preflight::program;
use crate::state::Store;

/// Everything of a node that a Pod may leave behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holdings {
    /// Ports of the bridge.
    pub(super) ports: BTreeSet<String>,
    /// Links of the node's namespace.
    pub(super) links: BTreeSet<String>,
    /// Flows without their counters.
    pub(super) flows: BTreeSet<String>,
    /// Addresses that are leased.
    pub(super) leases: BTreeSet<String>,
    /// Chains that drop the kernel's copy of frames.
    pub(super) chains: BTreeSet<String>,
}

impl Holdings {
    /// Looks at a node.
    pub(super) fn of(node: &NodeLayout) -> Result<Self> {
        let ports = ovs::vsctl(node, &["list-ports", BRIDGE])?;
        Ok(Self {
            ports: lines(&ports),
            links: links(node)?,
            flows: flows(node)?,
            leases: leases(node),
            chains: chains(node)?,
        })
    }

    /// Whether a Pod's link, or the chain of one, had lost its port already: both are deleted behind
    /// the answer to DEL, one after the other.
    fn was_going(&self, name: &str) -> bool {
        let link = name.trim_end_matches(" {");
        let link = link.strip_prefix("drop-").unwrap_or(link);
        let is_of_pod = link.rsplit_once('-').is_some_and(|(_, hash)| {
            hash.len() == 6 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        is_of_pod && !self.ports.contains(link)
    }

    /// Says what is there now that was not before, or the other way round.
    pub(super) fn compare(&self, after: &Self) -> Result<()> {
        let mut found = Vec::new();
        for (what, before, after) in [
            ("port", &self.ports, &after.ports),
            ("link", &self.links, &after.links),
            ("flow", &self.flows, &after.flows),
            ("lease", &self.leases, &after.leases),
            ("nft chain", &self.chains, &after.chains),
        ] {
            let new: Vec<_> = after.difference(before).take(3).collect();
            let gone: Vec<_> =
                before.difference(after).filter(|name| !self.was_going(name)).take(3).collect();
            if !new.is_empty() {
                found.push(format!("{what} left: {new:?}"));
            }
            if !gone.is_empty() {
                found.push(format!("{what} gone: {gone:?}"));
            }
        }
        if found.is_empty() { Ok(()) } else { Err(LabError::new(found.join("; "))) }
    }
}

/// All flows of the bridge, without what changes by itself.
pub(super) fn flows(node: &NodeLayout) -> Result<BTreeSet<String>> {
    let text = ovs::ofctl(node, "dump-flows", &["--no-stats", "--no-names"])?;
    Ok(text.lines().map(str::trim).filter(|l| l.contains("actions=")).map(str::to_owned).collect())
}

/// Conntrack entries of the switch and of the node's kernel that hold one of the addresses.
pub(super) fn conntrack_of(node: &NodeLayout, addresses: &BTreeSet<IpAddr>) -> Result<Vec<String>> {
    // An entry names addresses as `src=10.0.0.1,` (the switch) or `src=10.0.0.1 ` (the kernel).
    let address = |word: &str| word.rsplit('=').next()?.trim_end_matches(')').parse().ok();
    let holds = |line: &&str| {
        let mut words = line.split([',', ' ']).filter_map(address);
        words.any(|held| addresses.contains(&held))
    };
    let text = ovs::appctl(node, &["dpctl/dump-conntrack"])?;
    let mut found: Vec<String> = text.lines().filter(holds).map(str::to_owned).collect();
    let kernel = netns::enter(node.netns(), || program("conntrack").arg("-L").output())?;
    // The tool is not needed by the lab; without it only the switch is looked at.
    if let Ok(output) = kernel {
        let text = String::from_utf8_lossy(&output.stdout);
        found.extend(text.lines().filter(holds).map(str::to_owned));
    }
    Ok(found)
}

/// Open descriptors of the node's agent.
pub(super) fn agent_descriptors(store: &Store, node: &str) -> Option<usize> {
    store.get().process(agent::ROLE, Some(node))?.n_descriptors()
}

fn links(node: &NodeLayout) -> Result<BTreeSet<String>> {
    let output = netns::enter(node.netns(), || program("ip").args(["-o", "link"]).output())?
        .doing(|| "run ip".into())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let name = |line: &str| Some(line.split(": ").nth(1)?.split('@').next()?.to_owned());
    Ok(text.lines().filter_map(name).collect())
}

fn chains(node: &NodeLayout) -> Result<BTreeSet<String>> {
    let output = netns::enter(node.netns(), || program("nft").args(["list", "chains"]).output())?
        .doing(|| "run nft".into())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let chain = |line: &str| line.trim().strip_prefix("chain ").map(str::to_owned);
    Ok(text.lines().filter_map(chain).collect())
}

/// Names of lease files are the addresses.
pub(super) fn leases(node: &NodeLayout) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let Ok(networks) = fs::read_dir(node.cni_lib()) else { return found };
    let dirs = networks.flatten().map(|e| e.path()).flat_map(|dir| {
        // The directory of the network, or one level of `networks` above it.
        let below = fs::read_dir(&dir).into_iter().flatten().flatten().map(|e| e.path());
        std::iter::once(dir.clone()).chain(below).collect::<Vec<_>>()
    });
    for dir in dirs {
        let Ok(files) = fs::read_dir(dir) else { continue };
        for file in files.flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.parse::<std::net::IpAddr>().is_ok() {
                found.insert(name);
            }
        }
    }
    found
}

fn lines(text: &str) -> BTreeSet<String> {
    text.lines().map(|l| l.trim().to_owned()).filter(|l| !l.is_empty()).collect()
}
