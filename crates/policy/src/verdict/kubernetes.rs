//! Kubernetes' NetworkPolicies.

use std::sync::Arc;

use apis::common::Protocol;
use apis::controlplane::{Direction, PolicyType};
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};

use super::RuleRef;
use super::compile::{Compiler, Meant, Place, PortWords, meant};
use super::rule::{Effect, Namespaces, Order, Peer, Pods, Rule, Stage, reference};

impl Compiler<'_> {
    pub(super) fn kubernetes(&mut self, policy: &NetworkPolicy) {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or("default");
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let at = Place { kind: "NetworkPolicy", group: "networking.k8s.io", namespace, name };
        let Some(spec) = &policy.spec else { return };
        let selector = spec.pod_selector.clone().unwrap_or_default();
        let Ok(selector) = self.selector(at, "podSelector", &selector) else { return };
        let target = Pods::new(Namespaces::Named(namespace.to_owned()), Some(selector));
        let source = reference(PolicyType::K8sNetworkPolicy, namespace, name);

        let types = spec.policy_types.as_deref().unwrap_or_default();
        let named = |word: &str| types.iter().any(|type_| type_ == word);
        let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
        let directions = [
            (Direction::In, named("Ingress") || types.is_empty()),
            (Direction::Out, named("Egress") || types.is_empty() && has_egress),
        ];
        for type_ in types.iter().filter(|type_| !["Ingress", "Egress"].contains(&type_.as_str())) {
            let _ = self.fault::<()>(at, "policyTypes", format!("unknown type {type_:?}"));
        }
        for (direction, _) in directions.into_iter().filter(|(_, holds)| *holds) {
            self.isolations.push((direction, target.clone(), Arc::new(source.clone())));
            let rules: Vec<(_, _)> = match direction {
                Direction::In => spec
                    .ingress
                    .iter()
                    .flatten()
                    .map(|rule| (rule.from.as_deref(), rule.ports.as_deref()))
                    .collect(),
                Direction::Out => spec
                    .egress
                    .iter()
                    .flatten()
                    .map(|rule| (rule.to.as_deref(), rule.ports.as_deref()))
                    .collect(),
            };
            for (index, (peers, ports)) in rules.into_iter().enumerate() {
                let (list, side) = match direction {
                    Direction::In => ("ingress", "from"),
                    Direction::Out => ("egress", "to"),
                };
                let field = |part: &str, i: usize| format!("{list}[{index}].{part}[{i}]");
                let peers = peers.filter(|peers| !peers.is_empty()).map(|peers| {
                    let peers = peers.iter().enumerate();
                    meant(peers.map(|(i, peer)| self.kubernetes_peer(at, &field(side, i), peer)))
                });
                let traffic = ports.filter(|ports| !ports.is_empty()).map(|ports| {
                    let ports = ports.iter().enumerate();
                    meant(ports.map(|(i, port)| {
                        let protocol = port.protocol.as_deref().map(Protocol::from);
                        let words = words(port, protocol.as_ref());
                        self.port(at, &field("ports", i), &words)
                    }))
                });
                let name = None;
                let source = RuleRef { policy: source.clone(), direction, index, name };
                self.rules.push(Rule {
                    source: Arc::new(source),
                    stage: Stage::Kubernetes,
                    order: Order::new(0, 0.0, 0),
                    effect: Effect::Allow,
                    targets: vec![target.clone()],
                    peers,
                    traffic,
                });
            }
        }
    }

    fn kubernetes_peer(
        &mut self,
        at: Place<'_>,
        field: &str,
        peer: &NetworkPolicyPeer,
    ) -> Meant<Peer> {
        let (pods, namespaces) = (peer.pod_selector.as_ref(), peer.namespace_selector.as_ref());
        match (&peer.ip_block, pods.is_some() || namespaces.is_some()) {
            (Some(block), false) => {
                self.block(at, field, &block.cidr, block.except.iter().flatten())
            }
            (None, true) => {
                let pods = self.optional_selector(at, field, pods)?;
                let namespaces = match self.optional_selector(at, field, namespaces)? {
                    Some(selector) => Namespaces::Labelled(selector),
                    None => Namespaces::Named(at.namespace.to_owned()),
                };
                Ok(Peer::Pods(Pods::new(namespaces, pods)))
            }
            (None, false) => self.fault(at, field, "a peer that names nobody"),
            (Some(_), true) => self.fault(at, field, "ipBlock beside a selector"),
        }
    }
}

fn words<'a>(port: &'a NetworkPolicyPort, protocol: Option<&'a Protocol>) -> PortWords<'a> {
    PortWords {
        protocol,
        port: port.port.as_ref(),
        end_port: port.end_port,
        ..PortWords::default()
    }
}
