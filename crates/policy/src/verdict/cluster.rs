//! The objects of a cluster, as far as they matter to who may connect to whom.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use apis::common::Protocol;
use apis::controlplane::{Direction, NetworkPolicyReference};
use apis::{policy, upstream};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Container, Namespace, Node, Pod, Service};
use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::compile::Compiler;
use super::rule::{Namespaces, Peer, Pods, Rule};
use super::selector::Labels;
use super::{Problem, Side};

/// Key of the label that every Namespace has, with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// A user's objects, in no particular order.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Pods.
    pub pods: Vec<Pod>,
    /// Namespaces; one that is missing has only the label with its name.
    pub namespaces: Vec<Namespace>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Services, for groups that refer to one.
    pub services: Vec<Service>,
    /// Kubernetes' NetworkPolicies.
    pub network_policies: Vec<NetworkPolicy>,
    /// Antrea's ClusterNetworkPolicies.
    pub antrea_cluster_policies: Vec<policy::ClusterNetworkPolicy>,
    /// Antrea's NetworkPolicies.
    pub antrea_policies: Vec<policy::NetworkPolicy>,
    /// Tiers beside those that always exist.
    pub tiers: Vec<policy::Tier>,
    /// ClusterGroups.
    pub cluster_groups: Vec<policy::ClusterGroup>,
    /// Groups.
    pub groups: Vec<policy::Group>,
    /// ClusterNetworkPolicies of policy.networking.k8s.io.
    pub cluster_policies: Vec<upstream::ClusterNetworkPolicy>,
    /// Addresses that domain names are known to have, in lower case and without a final dot.
    pub names: Vec<(String, IpAddr)>,
}

/// One Pod of a [`Cluster`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(usize);

/// A cluster at one moment.
#[derive(Debug)]
pub struct Cluster {
    namespaces: BTreeMap<String, Labels>,
    nodes: BTreeMap<String, Vec<IpAddr>>,
    pods: Vec<PodInfo>,
    by_name: BTreeMap<(String, String), PodId>,
    /// All rules, in the order in which they are asked.
    pub(super) rules: Vec<Rule>,
    /// Rules whose targets are all in one Namespace, and the others.
    rules_of: BTreeMap<String, Vec<usize>>,
    rules_anywhere: Vec<usize>,
    /// What NetworkPolicies isolate, by name of the policy.
    pub(super) isolations: Vec<(Direction, Pods, Arc<NetworkPolicyReference>)>,
    source_ports: Vec<u16>,
    unspoken_source_port: u16,
    problems: Vec<Problem>,
    speaks_of_icmp: bool,
}

/// What matters about a Pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodInfo {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) service_account: String,
    pub(crate) host_network: bool,
    pub(crate) node: Option<String>,
    pub(crate) ips: Vec<IpAddr>,
    pub(crate) ports: Vec<PodPort>,
}

/// A port of a Pod that has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PodPort {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) number: u16,
}

impl Cluster {
    /// Reads all objects.
    pub fn new(objects: &Objects) -> Self {
        let mut compiler = Compiler::new(objects);
        compiler.compile_all();
        let Compiler { mut rules, mut isolations, mut problems, .. } = compiler;
        rules.sort_by(|a, b| a.key().cmp(&b.key()));
        isolations.sort_by(|a, b| a.2.cmp(&b.2));
        problems.sort();
        problems.dedup();
        let mut rules_of: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        let mut rules_anywhere = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            match rule.targets.as_slice() {
                [Pods { namespaces: Namespaces::Named(name), .. }] => {
                    rules_of.entry(name.clone()).or_default().push(index);
                }
                _ => rules_anywhere.push(index),
            }
        }
        let (source_ports, unspoken_source_port) = source_ports(&rules);
        let pods: Vec<_> = objects.pods.iter().filter_map(PodInfo::read).collect();
        let by_name = pods
            .iter()
            .enumerate()
            .map(|(index, pod)| ((pod.namespace.clone(), pod.name.clone()), PodId(index)))
            .collect();
        let mut namespaces: BTreeMap<String, Labels> =
            pods.iter().map(|pod| (pod.namespace.clone(), Labels::new())).collect();
        for namespace in &objects.namespaces {
            let name = namespace.metadata.name.clone().unwrap_or_default();
            namespaces.insert(name, namespace.metadata.labels.clone().unwrap_or_default());
        }
        for (name, labels) in &mut namespaces {
            labels.insert(NAMESPACE_NAME.into(), name.clone());
        }
        let nodes = objects
            .nodes
            .iter()
            .map(|node| (node.metadata.name.clone().unwrap_or_default(), node_addrs(node)))
            .collect();
        let speaks_of_icmp = rules.iter().any(Rule::speaks_of_icmp);
        Self {
            namespaces,
            nodes,
            pods,
            by_name,
            rules,
            rules_of,
            rules_anywhere,
            isolations,
            source_ports,
            unspoken_source_port,
            problems,
            speaks_of_icmp,
        }
    }

    /// A Pod by Namespace and name.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<PodId> {
        self.by_name.get(&(namespace.to_owned(), name.to_owned())).copied()
    }

    /// All Pods that can be an end of a connection.
    pub fn pods(&self) -> impl Iterator<Item = PodId> + use<> {
        (0..self.pods.len()).map(PodId)
    }

    /// Namespace and name of a Pod.
    pub fn pod_name(&self, pod: PodId) -> (&str, &str) {
        let pod = self.pod_info(pod);
        (&pod.namespace, &pod.name)
    }

    /// Addresses of a Pod.
    pub fn pod_addrs(&self, pod: PodId) -> &[IpAddr] {
        &self.pod_info(pod).ips
    }

    /// What in the objects matches nothing.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Whether a rule tells ICMP from other traffic.
    pub fn speaks_of_icmp(&self) -> bool {
        self.speaks_of_icmp
    }

    /// All networks and single addresses that rules tell apart.
    pub fn networks(&self) -> Vec<IpNet> {
        let mut networks = Vec::new();
        for peer in self.rules.iter().flat_map(|rule| rule.peers.iter().flatten()) {
            match peer {
                Peer::Pods(_) => {}
                Peer::Block { cidr, except } => {
                    networks.push(cidr.trunc());
                    networks.extend(except.iter().map(IpNet::trunc));
                }
                Peer::Addrs(addrs) => networks.extend(addrs.iter().copied().map(IpNet::from)),
            }
        }
        networks.sort_unstable();
        networks.dedup();
        networks
    }

    /// Source ports of which at least one stands for any other that rules treat alike.
    pub fn source_ports(&self) -> &[u16] {
        &self.source_ports
    }

    /// A source port that no rule speaks of, as far as there is one.
    pub fn unspoken_source_port(&self) -> u16 {
        self.unspoken_source_port
    }

    pub(crate) fn pod_info(&self, pod: PodId) -> &PodInfo {
        &self.pods[pod.0]
    }

    pub(super) fn namespace_labels(&self, name: &str) -> &Labels {
        &self.namespaces[name]
    }

    /// Rules that may be about Pods of a Namespace, in order.
    pub(super) fn rules_near(&self, namespace: &str) -> impl Iterator<Item = usize> + use<> {
        let mut near = self.rules_of.get(namespace).cloned().unwrap_or_default();
        near.extend(&self.rules_anywhere);
        near.sort_unstable();
        near.into_iter()
    }

    /// Whether a connection comes from the Node that a Pod is on.
    pub(super) fn is_own_node(&self, target: &PodInfo, peer: Side) -> bool {
        let Some(node) = &target.node else { return false };
        let is_there = |pod: PodId| {
            let pod = self.pod_info(pod);
            pod.host_network && pod.node.as_ref() == Some(node)
        };
        let addrs = self.nodes.get(node);
        peer.pod.is_some_and(is_there)
            || peer.pod.is_none()
                && peer.addr.is_some_and(|addr| addrs.is_some_and(|addrs| addrs.contains(&addr)))
    }
}

impl PodInfo {
    /// Reads a Pod, unless it has finished.
    fn read(pod: &Pod) -> Option<Self> {
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let phase = status.and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            return None;
        }
        let lists = status.into_iter().flat_map(|status| status.pod_ips.iter().flatten());
        let mut ips: Vec<IpAddr> = lists.filter_map(|ip| ip.ip.parse().ok()).collect();
        let single = status.and_then(|status| status.pod_ip.as_deref());
        ips.extend(single.and_then(|ip| ip.parse::<IpAddr>().ok()));
        ips.sort_unstable();
        ips.dedup();
        let text = |text: Option<&String>| text.cloned().filter(|text| !text.is_empty());
        Some(Self {
            namespace: text(pod.metadata.namespace.as_ref()).unwrap_or_else(|| "default".into()),
            name: pod.metadata.name.clone().unwrap_or_default(),
            labels: pod.metadata.labels.clone().unwrap_or_default(),
            service_account: text(spec.and_then(|spec| spec.service_account_name.as_ref()))
                .unwrap_or_else(|| "default".into()),
            host_network: spec.and_then(|spec| spec.host_network).unwrap_or(false),
            node: text(spec.and_then(|spec| spec.node_name.as_ref())),
            ips,
            ports: spec.map(|spec| named_ports(&spec.containers)).unwrap_or_default(),
        })
    }
}

fn named_ports(containers: &[Container]) -> Vec<PodPort> {
    let mut ports: Vec<_> = containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten())
        .filter_map(|port| {
            let protocol = port.protocol.as_deref().map_or(Protocol::Tcp, Protocol::from);
            let name = port.name.clone().filter(|name| !name.is_empty())?;
            let number = u16::try_from(port.container_port).ok()?;
            Some(PodPort { name, protocol, number })
        })
        .collect();
    ports.sort();
    ports.dedup();
    ports
}

/// Addresses under which a Node's own traffic appears: those it lists, and its gateway's in each of
/// its Pod networks.
pub(super) fn node_addrs(node: &Node) -> Vec<IpAddr> {
    let listed = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let mut addrs: Vec<IpAddr> = listed.filter_map(|addr| addr.address.parse().ok()).collect();
    if let Some(spec) = &node.spec {
        let cidrs = spec.pod_cidrs.iter().flatten().chain(&spec.pod_cidr);
        addrs.extend(cidrs.filter_map(|cidr| cidr.parse().ok()).filter_map(gateway));
    }
    addrs.sort_unstable();
    addrs.dedup();
    addrs
}

/// The first address of a network after that of the network itself.
fn gateway(net: IpNet) -> Option<IpAddr> {
    match net.trunc() {
        IpNet::V4(net) => net.hosts().next().map(IpAddr::V4),
        IpNet::V6(net) => net.hosts().nth(usize::from(net.prefix_len() < 127)).map(IpAddr::V6),
    }
}

/// One source port of each set that rules treat alike, and one that none speaks of.
fn source_ports(rules: &[Rule]) -> (Vec<u16>, u16) {
    /// Where clients' ports begin, by habit.
    const EPHEMERAL: u16 = 32_768;
    let traffic = rules.iter().flat_map(|rule| rule.traffic.iter().flatten());
    let ranges: Vec<_> = traffic.filter_map(|wanted| wanted.source).collect();
    let mut ports = vec![EPHEMERAL];
    for (first, last) in &ranges {
        ports.push(*first);
        ports.extend(last.checked_add(1));
    }
    if !ranges.is_empty() {
        ports.push(0);
    }
    ports.sort_unstable();
    ports.dedup();
    let spoken_of = |port: u16| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port));
    let unspoken = [EPHEMERAL].into_iter().chain(ports.iter().copied()).find(|p| !spoken_of(*p));
    (ports, unspoken.unwrap_or(EPHEMERAL))
}
