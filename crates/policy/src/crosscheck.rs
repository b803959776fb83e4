//! Holds `translate` against `verdict`: what agents are told, followed by the letter, must let through
//! exactly what the user's objects say.

use std::collections::BTreeMap;
use std::net::IpAddr;

use apis::common::Protocol;
use apis::controlplane::{
    Direction, GroupMember, NetworkPolicy, NetworkPolicyRule, ObjectName, RuleAction, Service,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::index::{NamedPort, NamespaceInput, NodeInput, PodInput, PortProtocol};
use crate::random::{Coverage, objects};
use crate::translate::{Engine, Event, ObjectId, ObjectKind};
use crate::verdict::{Action, Cluster, End, Family, Objects, Reason, Side, Traffic, Verdict};

/// Everything that agents are told, for all Nodes together.
struct Told {
    policies: Vec<NetworkPolicy>,
    targets: BTreeMap<String, Vec<GroupMember>>,
    peers: BTreeMap<String, Vec<GroupMember>>,
    names: Vec<(String, IpAddr)>,
}

fn name(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

fn labels(metadata: &ObjectMeta) -> Vec<(String, String)> {
    metadata.labels.clone().unwrap_or_default().into_iter().collect()
}

fn pod_input(pod: &Pod) -> PodInput {
    let (spec, status) = (pod.spec.clone().unwrap(), pod.status.clone().unwrap());
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    PodInput {
        namespace: pod.metadata.namespace.clone().unwrap(),
        name: name(&pod.metadata),
        labels: labels(&pod.metadata),
        service_account: spec.service_account_name.clone().unwrap(),
        node: spec.node_name.clone().unwrap(),
        host_network: spec.host_network == Some(true),
        finished: status.phase.as_deref() == Some("Succeeded"),
        ips: status.pod_ips.unwrap().iter().map(|ip| ip.ip.parse().unwrap()).collect(),
        ports: ports
            .map(|port| NamedPort {
                name: port.name.clone().unwrap().into(),
                port: u16::try_from(port.container_port).unwrap(),
                protocol: match port.protocol.as_deref() {
                    Some("UDP") => PortProtocol::Udp,
                    _ => PortProtocol::Tcp,
                },
            })
            .collect(),
    }
}

fn events(objects: &Objects) -> Vec<Event> {
    let mut events = Vec::new();
    events.extend(objects.nodes.iter().map(|node| {
        let spec = node.spec.clone().unwrap();
        // What the controller reads of a Node: its addresses and its gateway's.
        let mut ips: Vec<IpAddr> = node
            .status
            .clone()
            .unwrap()
            .addresses
            .unwrap()
            .iter()
            .map(|addr| addr.address.parse().unwrap())
            .collect();
        for cidr in spec.pod_cidrs.unwrap() {
            ips.push(cidr.replace(".0/24", ".1").replace("::/64", "::1").parse().unwrap());
        }
        Event::Node(NodeInput { name: name(&node.metadata), labels: labels(&node.metadata), ips })
    }));
    events.extend(objects.namespaces.iter().map(|namespace| {
        Event::Namespace(NamespaceInput {
            name: name(&namespace.metadata),
            labels: labels(&namespace.metadata),
            log_policies: false,
        })
    }));
    let system =
        apis::policy::SYSTEM_TIERS.iter().map(|(name, priority)| ((*name).to_owned(), *priority));
    let own = objects.tiers.iter().map(|tier| (name(&tier.metadata), tier.spec.priority));
    events.extend(
        system.chain(own).map(|(name, priority)| Event::Tier { name, priority: Some(priority) }),
    );
    events.extend(objects.cluster_groups.iter().map(|group| Event::Group {
        namespace: String::new(),
        name: name(&group.metadata),
        spec: Some(Box::new(group.spec.clone())),
    }));
    events.extend(objects.groups.iter().map(|group| Event::Group {
        namespace: group.metadata.namespace.clone().unwrap(),
        name: name(&group.metadata),
        spec: Some(Box::new(group.spec.clone())),
    }));
    let boxed = objects.network_policies.iter().cloned().map(Box::new);
    events.extend(boxed.map(Event::K8sPolicy));
    let boxed = objects.antrea_cluster_policies.iter().cloned().map(Box::new);
    events.extend(boxed.map(Event::ClusterPolicy));
    let boxed = objects.antrea_policies.iter().cloned().map(Box::new);
    events.extend(boxed.map(Event::NamespacedPolicy));
    let boxed = objects.cluster_policies.iter().cloned().map(Box::new);
    events.extend(boxed.map(Event::UpstreamPolicy));
    events.extend(objects.pods.iter().map(|pod| Event::Pod(pod_input(pod))));
    events
}

impl Told {
    fn new(objects: &Objects) -> Self {
        let mut engine = Engine::default();
        for event in events(objects) {
            engine.step(event);
        }
        let mut told = Self {
            policies: Vec::new(),
            targets: BTreeMap::new(),
            peers: BTreeMap::new(),
            names: objects.names.clone(),
        };
        for kind in
            [ObjectKind::NetworkPolicy, ObjectKind::AppliedToGroup, ObjectKind::AddressGroup]
        {
            for id in engine.list(kind, None) {
                match (kind, id) {
                    (_, ObjectId::Policy(id)) => told.policies.push(engine.policy(id).unwrap()),
                    (ObjectKind::AppliedToGroup, ObjectId::Group(id)) => {
                        let group = engine.applied_to_group(id, None).unwrap();
                        told.targets.insert(name(&group.metadata), group.group_members);
                    }
                    (_, ObjectId::Group(id)) => {
                        let group = engine.address_group(id).unwrap();
                        told.peers.insert(name(&group.metadata), group.group_members);
                    }
                }
            }
        }
        told
    }

    /// What one side decides; `pod` is its own Pod, `addrs` are source and destination.
    fn decide(
        &self,
        direction: Direction,
        pod: Option<&ObjectName>,
        addrs: [IpAddr; 2],
        traffic: &Traffic,
    ) -> Action {
        let Some(pod) = pod else { return Action::Allow };
        let mut rules = Vec::new();
        let mut is_isolated = false;
        for policy in &self.policies {
            for rule in policy.rules.iter().filter(|rule| rule.direction == direction) {
                let groups = match rule.applied_to_groups.as_slice() {
                    [] => &policy.applied_to_groups,
                    own => own,
                };
                let members =
                    groups.iter().flat_map(|name| self.targets.get(name).into_iter().flatten());
                let Some(member) =
                    members.into_iter().find(|member| member.pod.as_ref() == Some(pod))
                else {
                    continue;
                };
                let stage = match policy.tier_priority {
                    None => {
                        is_isolated = true;
                        1
                    }
                    Some(..253) => 0,
                    Some(_) => 2,
                };
                if self.matches(rule, member, addrs, traffic) {
                    let rank = match rule.action.as_ref().unwrap_or(&RuleAction::Allow) {
                        RuleAction::Drop => 0,
                        RuleAction::Reject => 1,
                        RuleAction::Pass => 2,
                        RuleAction::Allow => 3,
                        RuleAction::Unknown(word) => panic!("agents are told {word:?}"),
                    };
                    let priority = policy.priority.unwrap_or_default();
                    rules.push((stage, policy.tier_priority, priority, rule.priority, rank));
                }
            }
        }
        rules.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let of_stage = |stage| rules.iter().find(|rule| rule.0 == stage).map(|rule| rule.4);
        let action = |rank| [Action::Drop, Action::Reject, Action::Allow, Action::Allow][rank];
        match of_stage(0) {
            Some(2) | None => {}
            Some(rank) => return action(rank),
        }
        if is_isolated {
            return of_stage(1).map_or(Action::Drop, action);
        }
        of_stage(2).map_or(Action::Allow, action)
    }

    fn matches(
        &self,
        rule: &NetworkPolicyRule,
        target: &GroupMember,
        [source, destination]: [IpAddr; 2],
        traffic: &Traffic,
    ) -> bool {
        let other = if rule.direction == Direction::In { source } else { destination };
        let peer = rule.peer();
        let members: Vec<_> = peer
            .address_groups
            .iter()
            .flat_map(|name| &self.peers[name])
            .filter(|member| member.ips.contains(&other))
            .collect();
        let in_block = peer.ip_blocks.iter().any(|block| {
            block.cidr.contains(&other) && !block.except.iter().any(|part| part.contains(&other))
        });
        let has_name = |pattern: &String| {
            let suffix = pattern.strip_prefix('*');
            self.names.iter().any(|(name, addr)| {
                *addr == other && suffix.map_or(name == pattern, |suffix| name.ends_with(suffix))
            })
        };
        if members.is_empty() && !in_block && !peer.fqdns.iter().any(has_name) {
            return false;
        }
        let listeners = match rule.direction {
            Direction::In => vec![target],
            Direction::Out => members,
        };
        rule.services.is_empty()
            || rule.services.iter().any(|service| serves(service, &listeners, traffic))
    }
}

fn serves(service: &Service, listeners: &[&GroupMember], traffic: &Traffic) -> bool {
    let port = i32::from(traffic.port);
    let is_protocol = service.protocol.as_ref().is_none_or(|wanted| *wanted == traffic.protocol);
    if traffic.protocol == Protocol::Icmp {
        let [type_, code] = traffic.port.to_be_bytes().map(i32::from);
        return service.protocol.is_some()
            && is_protocol
            && service.icmp_type.is_none_or(|wanted| wanted == type_)
            && service.icmp_code.is_none_or(|wanted| wanted == code);
    }
    let source = i32::from(traffic.source_port.unwrap_or(40_000));
    let from_source = service
        .src_port
        .is_none_or(|first| (first..=service.src_end_port.unwrap_or(first)).contains(&source));
    let to_port = match &service.port {
        None => service.protocol.is_some(),
        Some(IntOrString::Int(first)) => {
            (*first..=service.end_port.unwrap_or(*first)).contains(&port)
        }
        Some(IntOrString::String(name)) => listeners.iter().any(|member| {
            member.ports.iter().any(|named| {
                named.name == *name && named.port == port && named.protocol == traffic.protocol
            })
        }),
    };
    is_protocol && from_source && to_port
}

/// A source port that some rules speak of.
const SOURCE_PORT: u16 = 1500;

fn traffics() -> Vec<Traffic> {
    let mut all = vec![
        Traffic::icmp(8, 0),
        Traffic::icmp(3, 1),
        Traffic::new(Protocol::from("GRE"), 0),
        Traffic::tcp(80).from_port(SOURCE_PORT),
        Traffic::sctp(80),
    ];
    for port in [53, 80, 81, 443, 8080] {
        all.extend([Traffic::tcp(port), Traffic::udp(port)]);
    }
    all
}

/// Compares everything about one cluster, and returns how many connections were asked about.
fn compare(seed: u64, coverage: &mut Coverage) -> u64 {
    let objects = objects(seed, coverage);
    let (cluster, told) = (Cluster::new(&objects), Told::new(&objects));
    let mut ends: Vec<_> = cluster.pods().map(End::Pod).collect();
    for addr in ["192.0.2.80", "192.0.2.81", "2001:db8::80", "172.30.0.2", "10.10.1.1"] {
        ends.push(End::Addr(addr.parse().unwrap()));
    }
    let pod_of = |side: Side| {
        let (namespace, name) = cluster.pod_name(side.pod?);
        Some(ObjectName { namespace: namespace.into(), name: name.into() })
    };
    let mut asked = 0;
    for source in &ends {
        for destination in ends.iter().filter(|end| *end != source) {
            for family in [Family::V4, Family::V6] {
                let (from, to) =
                    (cluster.side(*source, family), cluster.side(*destination, family));
                let (Some(a), Some(b)) = (from.addr, to.addr) else { continue };
                // Two Pods in the network of one Node have one address.
                if Family::of(a) != family || Family::of(b) != family || a == b {
                    continue;
                }
                let (from_pod, to_pod) = (pod_of(from), pod_of(to));
                let ports = [cluster.unspoken_source_port(), SOURCE_PORT];
                let decisions = ports.map(|port| cluster.decisions(from, to, port));
                for traffic in traffics() {
                    let of = usize::from(traffic.source_port.is_some());
                    let mut known = decisions[of].iter();
                    let (_, verdict) = known.find(|(set, _)| traffic.is_in(set)).unwrap();
                    let Verdict { egress, ingress } = verdict;
                    if ingress.as_ref().is_some_and(|ingress| ingress.reason == Reason::OwnNode) {
                        continue;
                    }
                    let want =
                        [Some(egress), ingress.as_ref()].map(|side| side.map(|side| side.action));
                    let out = told.decide(Direction::Out, from_pod.as_ref(), [a, b], &traffic);
                    let passes = out == Action::Allow;
                    let into = passes
                        .then(|| told.decide(Direction::In, to_pod.as_ref(), [a, b], &traffic));
                    assert_eq!(
                        [Some(out), into],
                        want,
                        "seed {seed}: {from_pod:?} {a} -> {to_pod:?} {b} {traffic:?}: {verdict:?}"
                    );
                    asked += 1;
                }
            }
        }
    }
    asked
}

#[test]
fn what_agents_are_told_is_what_users_say() {
    let mut coverage = Coverage::default();
    let asked: u64 = (0..60).map(|seed| compare(seed, &mut coverage)).sum();
    assert!(asked > 100_000, "{asked}");
    let rare: Vec<_> = coverage.0.iter().filter(|(_, times)| **times < 15).collect();
    assert!(rare.is_empty(), "hardly tried: {rare:?}");
    for what in [
        "policy NetworkPolicy",
        "policy Antrea ClusterNetworkPolicy",
        "policy Antrea NetworkPolicy",
        "policy ClusterNetworkPolicy",
        "peer pods",
        "peer namespaces",
        "peer pods of namespaces",
        "peer block v4",
        "peer block v6",
        "peer block with except",
        "peer group",
        "peer name",
        "peer nodes",
        "peer own namespace",
        "peer same labels",
        "peer service account",
        "peer networks",
        "port named",
        "port range",
        "port number",
        "port any",
        "port icmp",
        "port source",
        "action Pass",
        "action Reject",
        "action Permit",
        "tier baseline",
        "tier Admin",
        "tier Baseline",
        "target of rule",
        "target group",
        "pod host",
        "pod finished",
    ] {
        assert!(coverage.0.contains_key(what), "{what} is not tried");
    }
}
