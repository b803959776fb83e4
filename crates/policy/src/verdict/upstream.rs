//! ClusterNetworkPolicies of policy.networking.k8s.io.

use std::sync::Arc;

use apis::common;
use apis::controlplane::{Direction, PolicyType};
use apis::upstream::{
    Action, ClusterNetworkPolicy, NamespacedPod, Peer as Words, Port, Protocol, Tier,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::compile::{Compiler, Meant, Place, meant};
use super::rule::{
    Destination, Effect, Namespaces, Order, Peer, Pods, Rule, Stage, TrafficMatch, reference,
};
use super::{ConnectionSet, PortSet, RuleRef, Severity};

/// Priority of the Admin tier among Antrea's.
const ADMIN_TIER: i32 = 220;
/// Priority of the Baseline tier among Antrea's.
const BASELINE_TIER: i32 = 254;

impl Compiler<'_> {
    pub(super) fn upstream(&mut self, policy: &ClusterNetworkPolicy) {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let at = Place {
            kind: "ClusterNetworkPolicy",
            group: "policy.networking.k8s.io",
            namespace: "",
            name,
        };
        let spec = &policy.spec;
        let (stage, tier) = match &spec.tier {
            Tier::Admin => (Stage::Before, ADMIN_TIER),
            Tier::Baseline => (Stage::Baseline, BASELINE_TIER),
            Tier::Unknown(word) => {
                let _ = self.fault::<()>(at, "tier", format!("unknown tier {word:?}"));
                return;
            }
        };
        if !(0..=1000).contains(&spec.priority) {
            let reason = format!("{} is not from 0 to 1000", spec.priority);
            let _ = self.fault::<()>(at, "priority", reason);
            return;
        }
        let (namespaces, pods) = (spec.subject.namespaces.as_ref(), spec.subject.pods.as_ref());
        let Ok(target) = self.upstream_pods(at, "subject", namespaces, pods) else { return };
        let source = reference(PolicyType::K8sClusterNetworkPolicy, "", name);
        let ingress = spec.ingress.iter().enumerate().map(|(index, rule)| {
            (Direction::In, index, &rule.name, &rule.action, &rule.from, &rule.protocols)
        });
        let egress = spec.egress.iter().enumerate().map(|(index, rule)| {
            (Direction::Out, index, &rule.name, &rule.action, &rule.to, &rule.protocols)
        });
        for (direction, index, name, action, peers, protocols) in ingress.chain(egress) {
            let (list, side) = match direction {
                Direction::In => ("ingress", "from"),
                Direction::Out => ("egress", "to"),
            };
            let field = |part: &str, i: usize| format!("{list}[{index}].{part}[{i}]");
            let effect = match action {
                Action::Accept => Effect::Allow,
                Action::Deny => Effect::Drop,
                Action::Pass => Effect::Pass,
                Action::Unknown(word) => {
                    let field = format!("{list}[{index}].action");
                    let _ = self.fault::<()>(at, &field, format!("unknown action {word:?}"));
                    continue;
                }
            };
            let peers: Vec<_> = peers
                .iter()
                .enumerate()
                .flat_map(|(i, peer)| {
                    let found = self.upstream_peer(at, &field(side, i), direction, effect, peer);
                    found.unwrap_or_default()
                })
                .collect();
            let traffic = (!protocols.is_empty()).then(|| {
                let words = protocols.iter().enumerate();
                meant(
                    words.map(|(i, word)| self.upstream_protocol(at, &field("protocols", i), word)),
                )
            });
            let source = RuleRef { policy: source.clone(), direction, index, name: name.clone() };
            self.rules.push(Rule {
                source: Arc::new(source),
                stage,
                order: Order::new(tier, f64::from(spec.priority), index),
                effect,
                targets: vec![target.clone()],
                peers: Some(peers),
                traffic,
            });
        }
    }

    fn upstream_pods(
        &mut self,
        at: Place<'_>,
        field: &str,
        namespaces: Option<&LabelSelector>,
        pods: Option<&NamespacedPod>,
    ) -> Meant<Pods> {
        match (namespaces, pods) {
            (Some(namespaces), None) => {
                let namespaces = self.selector(at, field, namespaces)?;
                Ok(Pods::new(Namespaces::Labelled(namespaces), None))
            }
            (None, Some(both)) => {
                let namespaces = self.selector(at, field, &both.namespace_selector)?;
                let pods = self.selector(at, field, &both.pod_selector)?;
                Ok(Pods::new(Namespaces::Labelled(namespaces), Some(pods)))
            }
            _ => self.fault(at, field, "neither or both of namespaces and pods"),
        }
    }

    fn upstream_peer(
        &mut self,
        at: Place<'_>,
        field: &str,
        direction: Direction,
        effect: Effect,
        peer: &Words,
    ) -> Meant<Vec<Peer>> {
        let outside =
            [peer.nodes.is_some(), !peer.networks.is_empty(), !peer.domain_names.is_empty()];
        let n_outside = outside.iter().filter(|is_set| **is_set).count();
        let n_pods = usize::from(peer.namespaces.is_some()) + usize::from(peer.pods.is_some());
        if n_outside + n_pods != 1 {
            return self.fault(at, field, "a peer has exactly one field");
        }
        if n_pods == 1 {
            let pods =
                self.upstream_pods(at, field, peer.namespaces.as_ref(), peer.pods.as_ref())?;
            return Ok(vec![Peer::Pods(pods)]);
        }
        if direction == Direction::In {
            return self.fault(at, field, "a source is given by its labels");
        }
        if let Some(nodes) = &peer.nodes {
            let nodes = self.selector(at, field, nodes)?;
            return Ok(vec![Peer::Addrs(self.node_addrs(&nodes))]);
        }
        if !peer.domain_names.is_empty() {
            if effect != Effect::Allow {
                return self.fault(at, field, "domainNames are for rules that accept");
            }
            let reason = "domain names are resolved by Pods, at run time".to_owned();
            self.note(at, field, reason, Severity::Unknowable);
            let addrs = peer.domain_names.iter().flat_map(|name| self.name_addrs(name)).collect();
            return Ok(vec![Peer::Addrs(addrs)]);
        }
        let none: [String; 0] = [];
        Ok(meant(peer.networks.iter().map(|network| self.block(at, field, network, &none))))
    }

    fn upstream_protocol(
        &mut self,
        at: Place<'_>,
        field: &str,
        words: &Protocol,
    ) -> Meant<TrafficMatch> {
        let of = |protocol: common::Protocol, ports| TrafficMatch {
            to: Destination::Fixed(ConnectionSet::of(&protocol, ports)),
            source: None,
        };
        let mut found = Vec::new();
        let transports = [
            (common::Protocol::Tcp, &words.tcp),
            (common::Protocol::Udp, &words.udp),
            (common::Protocol::Sctp, &words.sctp),
        ];
        for (protocol, transport) in transports {
            let Some(transport) = transport else { continue };
            let ports = match &transport.destination_port {
                None => PortSet::full(),
                Some(port) => self.upstream_port(at, field, port)?,
            };
            found.push(of(protocol, ports));
        }
        if let Some(name) = &words.destination_named_port {
            let to = Destination::Named { name: name.clone(), protocol: None };
            found.push(TrafficMatch { to, source: None });
        }
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            _ => self.fault(at, field, "a protocol has exactly one field"),
        }
    }

    fn upstream_port(&mut self, at: Place<'_>, field: &str, port: &Port) -> Meant<PortSet> {
        let (first, last) = match (port.number, port.range) {
            (Some(number), None) => self.ports(at, field, number, number)?,
            (None, Some(range)) => self.ports(at, field, range.start, range.end)?,
            _ => return self.fault(at, field, "neither or both of number and range"),
        };
        Ok(PortSet::range(first, last))
    }
}
