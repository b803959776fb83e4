//! Lets the rules of one side share all traffic out among themselves.

use std::net::IpAddr;

use apis::controlplane::Direction;

use super::cluster::{Cluster, PodId, PodInfo};
use super::rule::{Destination, Effect, Namespaces, Peer, Pods, Rule, Stage};
use super::{
    Action, ConnectionSet, Decision, End, Family, PortSet, Reason, Traffic, Verdict, selector,
};

/// Traffic that one side decides in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The traffic; parts of one side do not overlap, and make up all of it.
    pub traffic: ConnectionSet,
    /// What happens to it.
    pub decision: Decision,
}

/// An end of a connection, seen in one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// The Pod, if it is one.
    pub pod: Option<PodId>,
    /// The address, if it is known.
    pub addr: Option<IpAddr>,
}

/// How a rule names the other side of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meeting {
    /// Not at all.
    Nobody,
    /// By its address.
    Address,
    /// As a Pod, or as anybody.
    Pod,
}

/// The rules about one Pod in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    /// Rules, in order, by their place in the cluster.
    rules: Vec<usize>,
    /// The first NetworkPolicy that isolates the Pod.
    isolation: Option<usize>,
}

impl Cluster {
    /// Whether a connection is made, and what decides.
    pub fn verdict(&self, source: End, destination: End, traffic: &Traffic) -> Verdict {
        if source == destination {
            let same = Decision::allow(Reason::SamePod);
            return Verdict { egress: same.clone(), ingress: Some(same) };
        }
        let family = traffic.family.unwrap_or_else(|| self.first_family(source, destination));
        let (from, to) = (self.side(source, family), self.side(destination, family));
        let source_port = traffic.source_port.unwrap_or(self.unspoken_source_port());
        let decide = |direction| {
            let parts = self.parts(direction, from, to, source_port);
            let part = parts.into_iter().find(|part| traffic.is_in(&part.traffic));
            part.map_or(Decision::allow(Reason::Default), |part| part.decision)
        };
        let egress = decide(Direction::Out);
        let ingress = (egress.action == Action::Allow).then(|| decide(Direction::In));
        Verdict { egress, ingress }
    }

    /// All traffic that may go from one end to another, in any family that both have.
    pub fn connections(&self, source: End, destination: End) -> ConnectionSet {
        let mut all = ConnectionSet::default();
        if source == destination {
            return ConnectionSet::full();
        }
        for family in self.families(source, destination) {
            let (from, to) = (self.side(source, family), self.side(destination, family));
            for source_port in self.source_ports() {
                let egress = allowed(&self.parts(Direction::Out, from, to, *source_port));
                let ingress = allowed(&self.parts(Direction::In, from, to, *source_port));
                all = all.union(&egress.intersect(&ingress));
            }
        }
        all
    }

    /// How the rules of one side share out the traffic between two ends.
    pub fn parts(&self, direction: Direction, from: Side, to: Side, source_port: u16) -> Vec<Part> {
        let (target, peer) = match direction {
            Direction::In => (to, from),
            Direction::Out => (from, to),
        };
        if direction == Direction::In && self.comes_from_own_node(target, peer) {
            return all(Reason::OwnNode);
        }
        let subject = target.pod.map(|pod| self.subject(direction, pod)).unwrap_or_default();
        self.share_out(&subject, direction, target, peer, source_port)
    }

    /// All traffic between two ends, by what decides about it.
    pub fn decisions(
        &self,
        from: Side,
        to: Side,
        source_port: u16,
    ) -> Vec<(ConnectionSet, Verdict)> {
        let ingress = self.parts(Direction::In, from, to, source_port);
        let mut found = Vec::new();
        for Part { traffic, decision: egress } in self.parts(Direction::Out, from, to, source_port)
        {
            if egress.action != Action::Allow {
                found.push((traffic, Verdict { egress, ingress: None }));
                continue;
            }
            for part in &ingress {
                let both = traffic.intersect(&part.traffic);
                if !both.is_empty() {
                    let ingress = Some(part.decision.clone());
                    found.push((both, Verdict { egress: egress.clone(), ingress }));
                }
            }
        }
        found
    }

    /// Whether a connection comes from the Node that its Pod is on.
    pub(crate) fn comes_from_own_node(&self, target: Side, peer: Side) -> bool {
        target.pod.is_some_and(|pod| self.is_own_node(self.pod_info(pod), peer))
    }

    /// The rules about a Pod.
    pub(crate) fn subject(&self, direction: Direction, pod: PodId) -> Subject {
        let pod = self.pod_info(pod);
        if pod.host_network {
            return Subject::default();
        }
        let rules = self
            .rules_near(&pod.namespace)
            .filter(|index| {
                let rule = &self.rules[*index];
                rule.direction() == direction
                    && rule.targets.iter().any(|pods| self.selects(pods, pod, pod))
            })
            .collect();
        let isolation = self
            .isolations
            .iter()
            .position(|(at, pods, _)| *at == direction && self.selects(pods, pod, pod));
        Subject { rules, isolation }
    }

    /// As [`Cluster::parts`], for a Pod whose rules are at hand, its own Node left aside.
    pub(crate) fn share_out(
        &self,
        subject: &Subject,
        direction: Direction,
        target: Side,
        peer: Side,
        source_port: u16,
    ) -> Vec<Part> {
        let Some(target_pod) = target.pod.map(|pod| self.pod_info(pod)) else {
            return all(Reason::Default);
        };
        let listener = match direction {
            Direction::In => Some(target_pod),
            // In its Node's network, a Pod is no more than an address.
            Direction::Out => {
                peer.pod.map(|pod| self.pod_info(pod)).filter(|pod| !pod.host_network)
            }
        };
        let mut open = ConnectionSet::full();
        let mut parts = Vec::new();
        let mut take = |open: &mut ConnectionSet, traffic: ConnectionSet, decision: Decision| {
            if !traffic.is_empty() {
                *open = open.subtract(&traffic);
                parts.push(Part { traffic, decision });
            }
        };
        let mut passed = ConnectionSet::default();
        let mut isolated = false;
        let mut stage = Stage::Before;
        // One more round after the last rule closes the stages that are still open.
        for rule in subject.rules.iter().map(|index| Some(&self.rules[*index])).chain([None]) {
            let next = rule.map_or(Stage::Baseline, |rule| rule.stage);
            if stage == Stage::Before && next > Stage::Before {
                open = open.union(&std::mem::take(&mut passed));
                stage = Stage::Kubernetes;
            }
            if stage == Stage::Kubernetes && next > Stage::Kubernetes {
                if let Some(index) = subject.isolation {
                    let reason = Reason::Isolation(self.isolations[index].2.clone());
                    let rest = open.clone();
                    take(&mut open, rest, Decision { action: Action::Drop, reason });
                    isolated = true;
                }
                stage = Stage::Baseline;
            }
            let Some(rule) = rule else { break };
            if isolated || open.is_empty() {
                continue;
            }
            let listener = match (self.meets(rule, target_pod, peer), direction) {
                (Meeting::Nobody, _) => continue,
                // An address has no names for its ports, not even if a Pod has it.
                (Meeting::Address, Direction::Out) => None,
                _ => listener,
            };
            let hit = open.intersect(&traffic_of(rule, listener, source_port));
            if hit.is_empty() {
                continue;
            }
            let action = match rule.effect {
                Effect::Drop => Action::Drop,
                Effect::Reject => Action::Reject,
                Effect::Allow => Action::Allow,
                Effect::Pass if stage == Stage::Before => {
                    open = open.subtract(&hit);
                    passed = passed.union(&hit);
                    continue;
                }
                Effect::Pass => {
                    take(&mut open, hit, Decision::allow(Reason::Default));
                    continue;
                }
            };
            take(&mut open, hit, Decision { action, reason: Reason::Rule(rule.source.clone()) });
        }
        let rest = open.clone();
        take(&mut open, rest, Decision::allow(Reason::Default));
        parts
    }

    /// How the other side of a connection is one that a rule names.
    fn meets(&self, rule: &Rule, target: &PodInfo, peer: Side) -> Meeting {
        let Some(peers) = &rule.peers else { return Meeting::Pod };
        let peer_pod = peer.pod.map(|pod| self.pod_info(pod)).filter(|pod| !pod.host_network);
        let mut meeting = Meeting::Nobody;
        for named in peers {
            let by_addr = match named {
                Peer::Pods(pods) => {
                    if peer_pod.is_some_and(|pod| self.selects(pods, pod, target)) {
                        return Meeting::Pod;
                    }
                    false
                }
                Peer::Block { cidr, except } => peer.addr.is_some_and(|addr| {
                    cidr.contains(&addr) && !except.iter().any(|part| part.contains(&addr))
                }),
                Peer::Addrs(addrs) => peer.addr.is_some_and(|addr| addrs.contains(&addr)),
            };
            if by_addr {
                meeting = Meeting::Address;
            }
        }
        meeting
    }

    /// Whether Pods are meant that this one is of, seen from the target.
    fn selects(&self, pods: &Pods, pod: &PodInfo, target: &PodInfo) -> bool {
        let in_namespace = match &pods.namespaces {
            Namespaces::All => true,
            Namespaces::Named(name) => pod.namespace == *name,
            Namespaces::Own => pod.namespace == target.namespace,
            Namespaces::Labelled(wanted) => {
                selector::matches(wanted, self.namespace_labels(&pod.namespace))
            }
            Namespaces::SameLabels(keys) => {
                let (here, there) = (
                    self.namespace_labels(&pod.namespace),
                    self.namespace_labels(&target.namespace),
                );
                !keys.is_empty()
                    && keys
                        .iter()
                        .all(|key| here.contains_key(key) && here.get(key) == there.get(key))
            }
        };
        in_namespace
            && pods.labels.as_ref().is_none_or(|wanted| selector::matches(wanted, &pod.labels))
            && pods.service_account.as_ref().is_none_or(|account| {
                account.name == pod.service_account && account.namespace == pod.namespace
            })
    }

    /// The end in one family.
    pub(crate) fn side(&self, end: End, family: Family) -> Side {
        match end {
            End::Addr(addr) => Side { pod: None, addr: Some(addr) },
            End::Pod(pod) => {
                let addrs = &self.pod_info(pod).ips;
                let addr = addrs.iter().copied().find(|addr| Family::of(*addr) == family);
                Side { pod: Some(pod), addr }
            }
        }
    }

    /// Families in which two ends can meet; both, where an address is not known.
    pub(crate) fn families(&self, source: End, destination: End) -> Vec<Family> {
        let has = |end: End, family: Family| match end {
            End::Addr(addr) => Family::of(addr) == family,
            End::Pod(pod) => {
                let addrs = &self.pod_info(pod).ips;
                addrs.is_empty() || addrs.iter().any(|addr| Family::of(*addr) == family)
            }
        };
        [Family::V4, Family::V6]
            .into_iter()
            .filter(|family| has(source, *family) && has(destination, *family))
            .collect()
    }

    fn first_family(&self, source: End, destination: End) -> Family {
        self.families(source, destination).first().copied().unwrap_or(Family::V4)
    }
}

/// All traffic, allowed.
fn all(reason: Reason) -> Vec<Part> {
    vec![Part { traffic: ConnectionSet::full(), decision: Decision::allow(reason) }]
}

/// What of all traffic is allowed.
pub(crate) fn allowed(parts: &[Part]) -> ConnectionSet {
    let of = |part: &&Part| part.decision.action == Action::Allow;
    parts.iter().filter(of).fold(ConnectionSet::default(), |set, part| set.union(&part.traffic))
}

/// The traffic that a rule is about, when it goes to this Pod or to no Pod.
fn traffic_of(rule: &Rule, listener: Option<&PodInfo>, source_port: u16) -> ConnectionSet {
    let Some(matches) = &rule.traffic else { return ConnectionSet::full() };
    let mut set = ConnectionSet::default();
    for wanted in matches {
        if wanted.source.is_some_and(|(first, last)| source_port < first || source_port > last) {
            continue;
        }
        match &wanted.to {
            Destination::Fixed(fixed) => set = set.union(fixed),
            Destination::Named { name, protocol } => {
                for port in listener.iter().flat_map(|pod| &pod.ports) {
                    if port.name == *name && protocol.as_ref().is_none_or(|of| *of == port.protocol)
                    {
                        let number = PortSet::range(port.number, port.number);
                        set = set.union(&ConnectionSet::of(&port.protocol, number));
                    }
                }
            }
        }
    }
    set
}
