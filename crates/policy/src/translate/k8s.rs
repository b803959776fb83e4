//! Kubernetes' NetworkPolicy.

use apis::controlplane::{
    Direction, NetworkPolicyPeer, NetworkPolicyReference, NetworkPolicyRule, PolicyType, RuleAction,
};
use k8s_openapi::api::networking::v1 as k8s;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use super::draft::{Draft, GroupKind, PodsSpec, ScopeSpec};
use super::traffic::{PortSpec, Services, anywhere, has_named_port, ip_block};
use crate::index::Selector;

/// Rules of these policies have no rank.
const NO_RANK: i32 = -1;

/// Whether what the policies of a namespace decide is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logging {
    Off,
    On,
}

/// Refers to an object as the source of a policy.
pub(super) fn source(type_: PolicyType, metadata: &ObjectMeta) -> NetworkPolicyReference {
    NetworkPolicyReference {
        type_,
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
    }
}

/// Translates a policy.
pub(super) fn translate(policy: &k8s::NetworkPolicy, logging: Logging) -> Draft {
    let source = source(PolicyType::K8sNetworkPolicy, &policy.metadata);
    let namespace = source.namespace.clone();
    let mut draft = Draft::new(source, &policy.metadata);
    let Some(spec) = &policy.spec else { return draft };
    let pods = match selector(spec.pod_selector.as_ref()) {
        Ok(pods) => pods,
        Err(error) => {
            draft.refuse("spec.podSelector", error);
            return draft;
        }
    };
    let scope = ScopeSpec::Namespace(namespace.as_str().into());
    let target = draft.refer_pods(GroupKind::AppliedTo, PodsSpec { scope, pods });
    draft.applied_to.push(target);

    let ingress = spec.ingress.as_deref().unwrap_or_default();
    let egress = spec.egress.as_deref().unwrap_or_default();
    let (mut is_ingress, mut is_egress) = (false, false);
    match spec.policy_types.as_deref().unwrap_or_default() {
        [] => (is_ingress, is_egress) = (true, !egress.is_empty()),
        types => {
            for type_ in types {
                match type_.as_str() {
                    "Ingress" => is_ingress = true,
                    "Egress" => is_egress = true,
                    other => draft.report("spec.policyTypes", format!("unknown type {other:?}")),
                }
            }
        }
    }
    let mut rules = Rules { draft, namespace: &namespace, logging };
    if is_ingress {
        for (n, rule) in ingress.iter().enumerate() {
            let (peers, ports) = (rule.from.as_deref(), rule.ports.as_deref());
            rules.add(Direction::In, n, peers.unwrap_or_default(), ports.unwrap_or_default());
        }
        rules.isolate(Direction::In);
    }
    if is_egress {
        for (n, rule) in egress.iter().enumerate() {
            let (peers, ports) = (rule.to.as_deref(), rule.ports.as_deref());
            rules.add(Direction::Out, n, peers.unwrap_or_default(), ports.unwrap_or_default());
        }
        rules.isolate(Direction::Out);
    }
    rules.draft
}

fn selector(selector: Option<&LabelSelector>) -> Result<Selector, String> {
    match selector {
        None => Ok(Selector::everything()),
        Some(selector) => Selector::compile(selector).map_err(|error| error.to_string()),
    }
}

struct Rules<'a> {
    draft: Draft,
    namespace: &'a str,
    logging: Logging,
}

impl Rules<'_> {
    fn rule(&self, direction: Direction) -> NetworkPolicyRule {
        NetworkPolicyRule {
            priority: NO_RANK,
            enable_logging: self.logging == Logging::On,
            ..NetworkPolicyRule::new(direction)
        }
    }

    /// A policy without a rule of its direction lets nothing through: a rule without peers says so.
    fn isolate(&mut self, direction: Direction) {
        if !self.draft.rules.iter().any(|rule| rule.direction == direction) {
            let rule = self.rule(direction);
            self.draft.rules.push(rule);
        }
    }

    fn add(
        &mut self,
        direction: Direction,
        n: usize,
        peers: &[k8s::NetworkPolicyPeer],
        ports: &[k8s::NetworkPolicyPort],
    ) {
        let field = match direction {
            Direction::In => format!("spec.ingress[{n}]"),
            Direction::Out => format!("spec.egress[{n}]"),
        };
        let services = self.services(&field, ports);
        let peer = self.peer(&field, peers, direction == Direction::Out, &services);
        let services = match services {
            Services::Any => Vec::new(),
            Services::Of(services) if services.is_empty() => return,
            Services::Of(services) => services,
        };
        if peer.is_empty() {
            return;
        }
        let mut rule = self.rule(direction);
        match direction {
            Direction::In => rule.from = peer,
            Direction::Out => rule.to = peer,
        }
        rule.services = services;
        rule.action = Some(RuleAction::Allow);
        self.draft.rules.push(rule);
    }

    fn services(&mut self, field: &str, ports: &[k8s::NetworkPolicyPort]) -> Services {
        if ports.is_empty() {
            return Services::Any;
        }
        let mut services = Vec::new();
        for (n, port) in ports.iter().enumerate() {
            let spec = PortSpec {
                protocol: port.protocol.as_deref(),
                port: port.port.as_ref(),
                end_port: port.end_port,
                source_port: None,
                source_end_port: None,
            };
            match spec.service() {
                Ok(service) => services.push(service),
                Err(error) => self.draft.report(format!("{field}.ports[{n}]"), error),
            }
        }
        Services::Of(services)
    }

    fn peer(
        &mut self,
        field: &str,
        peers: &[k8s::NetworkPolicyPeer],
        egress: bool,
        services: &Services,
    ) -> NetworkPolicyPeer {
        let mut all = NetworkPolicyPeer::default();
        if peers.is_empty() {
            all.ip_blocks = anywhere();
            if egress && has_named_port(services) {
                all.address_groups.push(all_pods(&mut self.draft));
            }
            return all;
        }
        for (n, peer) in peers.iter().enumerate() {
            if let Err(error) = self.add_peer(&mut all, peer) {
                self.draft
                    .report(format!("{field}.{}[{n}]", if egress { "to" } else { "from" }), error);
            }
        }
        all
    }

    fn add_peer(
        &mut self,
        all: &mut NetworkPolicyPeer,
        peer: &k8s::NetworkPolicyPeer,
    ) -> Result<(), String> {
        let selects = peer.pod_selector.is_some() || peer.namespace_selector.is_some();
        match (&peer.ip_block, selects) {
            (Some(_), true) => Err("ipBlock goes with no selector".into()),
            (None, false) => Err("the peer is empty".into()),
            (Some(block), false) => {
                let except = block.except.iter().flatten().map(String::as_str);
                all.ip_blocks.push(ip_block(&block.cidr, except)?);
                Ok(())
            }
            (None, true) => {
                let pods = selector(peer.pod_selector.as_ref())?;
                let scope = match &peer.namespace_selector {
                    None => ScopeSpec::Namespace(self.namespace.into()),
                    Some(namespaces) => ScopeSpec::Namespaces(selector(Some(namespaces))?),
                };
                let name = self.draft.refer_pods(GroupKind::Address, PodsSpec { scope, pods });
                if !all.address_groups.contains(&name) {
                    all.address_groups.push(name);
                }
                Ok(())
            }
        }
    }
}

/// The group of all Pods, for ports by name of a rule without peers.
pub(super) fn all_pods(draft: &mut Draft) -> String {
    let scope = ScopeSpec::Namespaces(Selector::everything());
    draft.refer_pods(GroupKind::Address, PodsSpec { scope, pods: Selector::everything() })
}
