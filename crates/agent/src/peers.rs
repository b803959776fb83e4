//! Turns the list of nodes into what this node must know about each other node.
//!
//! Pure: whole lists in, differences out. Not here: flows (`pipeline::connectivity`), routes and
//! neighbours (`forwarding`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::nodes::{ClusterNode, overlap};

/// Another node whose Pods are reached through the tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Node name.
    pub name: String,
    /// Its Pod CIDRs, at most one per family, in family order.
    pub pod_cidrs: Vec<IpNet>,
    /// Where tunnels to it end: of the same family as our own transport address.
    pub transport: IpAddr,
    /// Its other addresses.
    pub other_ips: Vec<IpAddr>,
}

impl Peer {
    /// Gateway addresses of the node: the first host address of each Pod CIDR.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.pod_cidrs.iter().map(first_host)
    }
}

/// First host address of a Pod CIDR, which the node's gateway has.
pub fn first_host(cidr: &IpNet) -> IpAddr {
    match cidr {
        IpNet::V4(net) => IpAddr::V4((u32::from(net.network()).wrapping_add(1)).into()),
        IpNet::V6(net) => IpAddr::V6((u128::from(net.network()).wrapping_add(1)).into()),
    }
}

/// A change to make on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Install or replace everything for this peer.
    Set(Peer),
    /// Remove everything of this peer.
    Remove(Peer),
    /// A node cannot be used; said once per change.
    Skip {
        /// Node name.
        name: String,
        /// Why.
        reason: String,
    },
}

/// Peers in force.
#[derive(Debug)]
pub struct Peers {
    own_name: String,
    own_transport: IpAddr,
    installed: BTreeMap<String, Peer>,
    skipped: BTreeMap<String, String>,
}

impl Peers {
    /// No peer yet. `own_transport` decides the family of the tunnels.
    pub fn new(own_name: &str, own_transport: IpAddr) -> Self {
        Self {
            own_name: own_name.to_owned(),
            own_transport,
            installed: BTreeMap::new(),
            skipped: BTreeMap::new(),
        }
    }

    /// Name of this node.
    pub fn own_name(&self) -> &str {
        &self.own_name
    }

    /// Peers in force, by name.
    pub fn installed(&self) -> impl Iterator<Item = &Peer> {
        self.installed.values()
    }

    /// Takes the whole list. Removals come first, so that a Pod CIDR can move between nodes.
    pub fn step(&mut self, nodes: &[ClusterNode]) -> Vec<Op> {
        let (wanted, skipped) = self.wanted(nodes);
        let mut ops = Vec::new();
        for (name, peer) in &self.installed {
            let keeps_routes = wanted.get(name).is_some_and(|new| new.pod_cidrs == peer.pod_cidrs);
            if !keeps_routes {
                ops.push(Op::Remove(peer.clone()));
            }
        }
        for (name, peer) in &wanted {
            if self.installed.get(name) != Some(peer) {
                ops.push(Op::Set(peer.clone()));
            }
        }
        for (name, reason) in &skipped {
            if self.skipped.get(name) != Some(reason) {
                ops.push(Op::Skip { name: name.clone(), reason: reason.clone() });
            }
        }
        self.installed = wanted;
        self.skipped = skipped;
        ops
    }

    fn wanted(&self, nodes: &[ClusterNode]) -> (BTreeMap<String, Peer>, BTreeMap<String, String>) {
        let mut wanted: BTreeMap<String, Peer> = BTreeMap::new();
        let mut skipped = BTreeMap::new();
        let own_cidrs = nodes
            .iter()
            .find(|node| node.name == self.own_name)
            .map_or(&[][..], |node| &node.pod_cidrs);
        let mut ordered: Vec<_> = nodes.iter().filter(|node| node.name != self.own_name).collect();
        // A node that already holds a CIDR keeps it against a newcomer that claims the same.
        ordered.sort_by_key(|node| {
            let holds = self
                .installed
                .get(&node.name)
                .is_some_and(|peer| overlap(&peer.pod_cidrs, &node.pod_cidrs).is_some());
            (!holds, &node.name)
        });
        for node in ordered {
            if node.pod_cidrs.is_empty() {
                skipped.insert(node.name.clone(), "it has no Pod CIDR yet".to_owned());
                continue;
            }
            let same_family = |ip: &&IpAddr| ip.is_ipv4() == self.own_transport.is_ipv4();
            let Some(transport) = node.addresses.iter().find(same_family).copied() else {
                let family = if self.own_transport.is_ipv4() { "IPv4" } else { "IPv6" };
                skipped.insert(node.name.clone(), format!("it has no {family} address"));
                continue;
            };
            let holder = wanted
                .values()
                .map(|peer| (peer.name.as_str(), &peer.pod_cidrs[..]))
                .chain([(self.own_name.as_str(), own_cidrs)])
                .find_map(|(name, cidrs)| {
                    overlap(&node.pod_cidrs, cidrs).map(|(ours, theirs)| (name, ours, theirs))
                });
            if let Some((name, ours, theirs)) = holder {
                let reason = format!("its Pod CIDR {ours} overlaps {theirs} of node {name}");
                skipped.insert(node.name.clone(), reason);
                continue;
            }
            let mut pod_cidrs = node.pod_cidrs.clone();
            pod_cidrs.sort_by_key(|cidr| matches!(cidr, IpNet::V6(_)));
            let others = node.addresses.iter().copied().filter(|ip| *ip != transport);
            let (name, other_ips) = (node.name.clone(), others.collect());
            let peer = Peer { name, pod_cidrs, transport, other_ips };
            wanted.insert(node.name.clone(), peer);
        }
        (wanted, skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_node(name: &str, cidrs: &[&str], addresses: &[&str]) -> ClusterNode {
        ClusterNode {
            name: name.to_owned(),
            pod_cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            zone: None,
        }
    }

    fn mk_peers() -> Peers {
        Peers::new("own", "172.30.0.1".parse().unwrap())
    }

    fn shown(ops: &[Op]) -> Vec<String> {
        ops.iter()
            .map(|op| match op {
                Op::Set(peer) if peer.other_ips.is_empty() => {
                    format!("set {} via {}", peer.name, peer.transport)
                }
                Op::Set(peer) => {
                    format!("set {} via {} not {:?}", peer.name, peer.transport, peer.other_ips)
                }
                Op::Remove(peer) => format!("remove {}", peer.name),
                Op::Skip { name, reason } => format!("skip {name}: {reason}"),
            })
            .collect()
    }

    #[test]
    fn only_differences_come_out() {
        let mut peers = mk_peers();
        let own = mk_node("own", &["10.1.1.0/24"], &["172.30.0.1"]);
        let two = mk_node("two", &["10.1.2.0/24"], &["fd00::2", "172.30.0.2"]);
        let list = [own.clone(), two.clone()];
        assert_eq!(shown(&peers.step(&list)), ["set two via 172.30.0.2 not [fd00::2]"]);
        assert_eq!(peers.step(&list), []);
        let moved = mk_node("two", &["10.1.2.0/24"], &["172.30.0.9"]);
        assert_eq!(shown(&peers.step(&[own.clone(), moved])), ["set two via 172.30.0.9"]);
        let renumbered = mk_node("two", &["10.1.7.0/24"], &["172.30.0.9"]);
        assert_eq!(
            shown(&peers.step(&[own.clone(), renumbered])),
            ["remove two", "set two via 172.30.0.9"]
        );
        assert_eq!(shown(&peers.step(&[own])), ["remove two"]);
    }

    #[test]
    fn unusable_nodes_are_named_once() {
        let mut peers = mk_peers();
        let own = mk_node("own", &["10.1.1.0/24"], &["172.30.0.1"]);
        let list = [
            own,
            mk_node("bare", &[], &["172.30.0.5"]),
            mk_node("six", &["10.1.6.0/24"], &["fd00::6"]),
            mk_node("thief", &["10.1.1.128/25"], &["172.30.0.7"]),
        ];
        assert_eq!(
            shown(&peers.step(&list)),
            [
                "skip bare: it has no Pod CIDR yet",
                "skip six: it has no IPv4 address",
                "skip thief: its Pod CIDR 10.1.1.128/25 overlaps 10.1.1.0/24 of node own",
            ]
        );
        assert_eq!(peers.step(&list), []);
    }

    #[test]
    fn who_holds_a_cidr_keeps_it() {
        let mut peers = mk_peers();
        let late = mk_node("zeta", &["10.1.2.0/24"], &["172.30.0.3"]);
        peers.step(std::slice::from_ref(&late));
        let claim = mk_node("alpha", &["10.1.2.0/24"], &["172.30.0.4"]);
        let ops = shown(&peers.step(&[claim.clone(), late]));
        assert_eq!(ops, ["skip alpha: its Pod CIDR 10.1.2.0/24 overlaps 10.1.2.0/24 of node zeta"]);
        let ops = shown(&peers.step(&[claim]));
        assert_eq!(ops, ["remove zeta", "set alpha via 172.30.0.4"]);
    }

    #[test]
    fn gateways_are_the_first_hosts() {
        let peer = Peer {
            name: "two".to_owned(),
            pod_cidrs: vec!["10.1.2.0/24".parse().unwrap(), "fd00:1:2::/64".parse().unwrap()],
            transport: "172.30.0.2".parse().unwrap(),
            other_ips: Vec::new(),
        };
        let gateways: Vec<_> = peer.gateways().map(|ip| ip.to_string()).collect();
        assert_eq!(gateways, ["10.1.2.1", "fd00:1:2::1"]);
    }
}
