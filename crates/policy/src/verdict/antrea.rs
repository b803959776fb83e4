//! Antrea's own policies, cluster-wide and namespaced.

use std::sync::Arc;

use apis::common::Protocol;
use apis::controlplane::{Direction, PolicyType};
use apis::policy::{
    self, AppliedTo, BASELINE_TIER_PRIORITY, DEFAULT_TIER, NamespaceMatch, NetworkPolicyPeer,
    NetworkPolicyProtocol, NetworkPolicySpec, PeerNamespaces, RuleAction, SYSTEM_TIERS, Scope,
};

use super::compile::{Compiler, Meant, Place, PortWords, meant};
use super::rule::{
    Destination, Effect, Namespaces, Order, Peer, Pods, Rule, Stage, TrafficMatch, reference,
};
use super::{ConnectionSet, PortSet, RuleRef, Severity};

const THROUGH_SERVICES: &str = "it is about connections that dial Services, not Pods themselves";

impl Compiler<'_> {
    pub(super) fn antrea_cluster(&mut self, policy: &policy::ClusterNetworkPolicy) {
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let at =
            Place { kind: "ClusterNetworkPolicy", group: "crd.antrea.io", namespace: "", name };
        self.antrea(at, PolicyType::AntreaClusterNetworkPolicy, &policy.spec);
    }

    pub(super) fn antrea_namespaced(&mut self, policy: &policy::NetworkPolicy) {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or("default");
        let name = policy.metadata.name.as_deref().unwrap_or_default();
        let at = Place { kind: "NetworkPolicy", group: "crd.antrea.io", namespace, name };
        self.antrea(at, PolicyType::AntreaNetworkPolicy, &policy.spec);
    }

    fn antrea(&mut self, at: Place<'_>, type_: PolicyType, spec: &NetworkPolicySpec) {
        let Ok(tier) = self.tier(at, spec.tier.as_deref()) else { return };
        if !(1.0..=10_000.0).contains(&spec.priority) {
            let reason = format!("{} is not from 1 to 10000", spec.priority);
            let _ = self.fault::<()>(at, "priority", reason);
            return;
        }
        let stage = if tier >= BASELINE_TIER_PRIORITY { Stage::Baseline } else { Stage::Before };
        let shared = self.targets(at, "appliedTo", &spec.applied_to);
        let source = reference(type_, at.namespace, at.name);
        let ingress = spec.ingress.iter().enumerate().map(|(i, rule)| (Direction::In, i, rule));
        let egress = spec.egress.iter().enumerate().map(|(i, rule)| (Direction::Out, i, rule));
        for (direction, index, rule) in ingress.chain(egress) {
            let list = if direction == Direction::In { "ingress" } else { "egress" };
            let field = format!("{list}[{index}]");
            let targets = match (spec.applied_to.is_empty(), rule.applied_to.is_empty()) {
                (false, true) => shared.clone(),
                (true, false) => self.targets(at, &format!("{field}.appliedTo"), &rule.applied_to),
                (true, true) => {
                    let _ = self.fault::<()>(at, &field, "appliedTo is missing");
                    continue;
                }
                (false, false) => {
                    let _ = self.fault::<()>(at, &field, "appliedTo of the policy and of a rule");
                    continue;
                }
            };
            let own = [&spec.applied_to, &rule.applied_to].into_iter().find(|own| !own.is_empty());
            let own = own.map(|own| self.on_services(at, &field, direction, rule, own));
            if matches!(own, Some(Err(_) | Ok(true))) {
                continue;
            }
            let Ok((effect, peers, traffic)) = self.antrea_rule(at, &field, stage, direction, rule)
            else {
                continue;
            };
            let name = rule.name.clone();
            let source = RuleRef { policy: source.clone(), direction, index, name };
            self.rules.push(Rule {
                source: Arc::new(source),
                stage,
                order: Order::new(tier, spec.priority, index),
                effect,
                targets,
                peers,
                traffic,
            });
        }
    }

    #[expect(clippy::type_complexity, reason = "three parts of a rule, named where they go")]
    fn antrea_rule(
        &mut self,
        at: Place<'_>,
        field: &str,
        stage: Stage,
        direction: Direction,
        rule: &policy::Rule,
    ) -> Meant<(Effect, Option<Vec<Peer>>, Option<Vec<TrafficMatch>>)> {
        let effect = match &rule.action {
            RuleAction::Allow => Effect::Allow,
            RuleAction::Drop => Effect::Drop,
            RuleAction::Reject => Effect::Reject,
            RuleAction::Pass if stage == Stage::Before => Effect::Pass,
            RuleAction::Pass => {
                return self.fault(at, field, "Pass has nowhere to go from the baseline tier");
            }
            RuleAction::Unknown(word) => {
                return self.fault(at, field, format!("unknown action {word:?}"));
            }
        };
        if !rule.l7_protocols.is_empty() {
            return self.fault(at, field, "l7Protocols is not supported yet");
        }
        let (peers, side, others) = match direction {
            Direction::In => (&rule.from, "from", &rule.to),
            Direction::Out => (&rule.to, "to", &rule.from),
        };
        if !others.is_empty() {
            return self.fault(at, field, "peers of the other direction");
        }
        if !rule.to_services.is_empty() {
            self.peer_services(at, field, direction, rule)?;
            return Ok((effect, Some(Vec::new()), None));
        }
        let peers = (!peers.is_empty()).then(|| {
            let peers = peers.iter().enumerate();
            let members = peers.map(|(i, peer)| {
                self.antrea_peer(at, &format!("{field}.{side}[{i}]"), direction, effect, peer)
            });
            meant(members).concat()
        });
        let any = rule.ports.is_empty() && rule.protocols.is_empty();
        let traffic = (!any).then(|| {
            let ports = rule.ports.iter().enumerate().map(|(i, port)| {
                let words = PortWords {
                    protocol: port.protocol.as_ref(),
                    port: port.port.as_ref(),
                    end_port: port.end_port,
                    source_port: port.source_port,
                    source_end_port: port.source_end_port,
                };
                self.port(at, &format!("{field}.ports[{i}]"), &words)
            });
            let mut traffic = meant(ports);
            let protocols = rule.protocols.iter().enumerate();
            traffic.extend(meant(protocols.map(|(i, protocol)| {
                self.antrea_protocol(at, &format!("{field}.protocols[{i}]"), protocol)
            })));
            traffic
        });
        Ok((effect, peers, traffic))
    }

    /// Connections that dial a Service are those that such a rule is about: between two ends there is
    /// none of them.
    fn peer_services(
        &mut self,
        at: Place<'_>,
        field: &str,
        direction: Direction,
        rule: &policy::Rule,
    ) -> Meant<()> {
        if direction == Direction::In {
            return self.fault(at, field, "toServices in an ingress rule");
        }
        if !rule.to.is_empty() || !rule.ports.is_empty() || !rule.protocols.is_empty() {
            return self.fault(at, field, "toServices beside to, ports or protocols");
        }
        for (i, service) in rule.to_services.iter().enumerate() {
            let field = format!("{field}.toServices[{i}]");
            if !matches!(service.scope, None | Some(Scope::Cluster)) {
                return self.fault(at, &field, "only scope Cluster is supported");
            }
            let named = service.namespace.as_deref().unwrap_or(at.namespace);
            if named.is_empty() {
                return self.fault(at, &field, "a Service without namespace");
            }
        }
        self.note(at, field, THROUGH_SERVICES.into(), Severity::Unknowable);
        Ok(())
    }

    /// Whether these targets are Services.
    fn on_services(
        &mut self,
        at: Place<'_>,
        field: &str,
        direction: Direction,
        rule: &policy::Rule,
        targets: &[AppliedTo],
    ) -> Meant<bool> {
        let services = targets.iter().filter(|target| target.service.is_some()).count();
        if services == 0 {
            return Ok(false);
        }
        if services < targets.len() {
            return self.fault(at, field, "Services beside other targets");
        }
        if !at.namespace.is_empty() {
            return self.fault(at, field, "Services as targets of a namespaced policy");
        }
        if direction == Direction::Out {
            return self.fault(at, field, "Services as targets of an egress rule");
        }
        if rule.from.iter().any(|peer| peer.ip_block.is_none()) {
            return self.fault(at, field, "a rule for Services with a peer that is no ipBlock");
        }
        self.note(at, field, THROUGH_SERVICES.into(), Severity::Unknowable);
        Ok(true)
    }

    fn tier(&mut self, at: Place<'_>, name: Option<&str>) -> Meant<i32> {
        let name = name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_TIER);
        if let Some(priority) = self.tiers.get(name) {
            return Ok(*priority);
        }
        // The six that always exist were once written with capitals.
        let known = SYSTEM_TIERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        match known {
            Some((_, priority)) => Ok(*priority),
            None => self.fault(at, "tier", format!("there is no tier {name:?}")),
        }
    }

    fn targets(&mut self, at: Place<'_>, field: &str, applied_to: &[AppliedTo]) -> Vec<Pods> {
        let targets = applied_to.iter().enumerate();
        meant(targets.map(|(i, target)| self.target(at, &format!("{field}[{i}]"), target))).concat()
    }

    fn target(&mut self, at: Place<'_>, field: &str, target: &AppliedTo) -> Meant<Vec<Pods>> {
        let AppliedTo {
            pod_selector,
            namespace_selector,
            external_entity_selector,
            group,
            service_account,
            service,
            node_selector,
        } = target;
        let by_labels = pod_selector.is_some() || namespace_selector.is_some();
        let ways = [
            by_labels,
            external_entity_selector.is_some(),
            group.is_some(),
            service_account.is_some(),
            service.is_some(),
            node_selector.is_some(),
        ];
        if ways.iter().filter(|is_set| **is_set).count() != 1 {
            return self.fault(at, field, "a target is told in exactly one way");
        }
        if service.is_some() {
            // Its rules say what of that is meant.
            return Ok(Vec::new());
        }
        for (is_set, what) in [
            (external_entity_selector.is_some(), "externalEntitySelector"),
            (node_selector.is_some(), "nodeSelector as target"),
        ] {
            if is_set {
                return self.fault(at, field, format!("{what} is not supported yet"));
            }
        }
        if let Some(name) = group {
            return self.target_group(at, field, name);
        }
        if let Some(account) = service_account {
            return match at.namespace {
                "" => Ok(vec![Pods::of_account(account)]),
                _ => self.fault(at, field, "serviceAccount in a namespaced policy"),
            };
        }
        if namespace_selector.is_some() && !at.namespace.is_empty() {
            return self.fault(at, field, "namespaceSelector in a namespaced policy");
        }
        let pods = self.labelled(at, field, pod_selector.as_ref(), namespace_selector.as_ref())?;
        Ok(vec![pods])
    }

    /// Pods of a group, which must all be where the policy may reach them.
    fn target_group(&mut self, at: Place<'_>, field: &str, name: &str) -> Meant<Vec<Pods>> {
        let mut targets = Vec::new();
        for member in self.group(at, field, name)? {
            let Peer::Pods(pods) = member else {
                return self.fault(at, field, format!("{name:?} has addresses, not only Pods"));
            };
            let own = matches!(&pods.namespaces, Namespaces::Named(name) if name == at.namespace);
            if !at.namespace.is_empty() && !own {
                return self.fault(at, field, format!("{name:?} reaches other Namespaces"));
            }
            targets.push(pods);
        }
        Ok(targets)
    }

    fn labelled(
        &mut self,
        at: Place<'_>,
        field: &str,
        pods: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
        namespaces: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector>,
    ) -> Meant<Pods> {
        let pods = self.optional_selector(at, field, pods)?;
        let namespaces = match self.optional_selector(at, field, namespaces)? {
            Some(selector) => Namespaces::Labelled(selector),
            None if at.namespace.is_empty() => Namespaces::All,
            None => Namespaces::Named(at.namespace.to_owned()),
        };
        Ok(Pods::new(namespaces, pods))
    }

    fn antrea_peer(
        &mut self,
        at: Place<'_>,
        field: &str,
        direction: Direction,
        effect: Effect,
        peer: &NetworkPolicyPeer,
    ) -> Meant<Vec<Peer>> {
        let by_labels = peer.pod_selector.is_some()
            || peer.namespace_selector.is_some()
            || peer.namespaces.is_some();
        let ways = [
            by_labels,
            peer.external_entity_selector.is_some(),
            peer.ip_block.is_some(),
            peer.group.is_some(),
            peer.fqdn.is_some(),
            peer.service_account.is_some(),
            peer.node_selector.is_some(),
        ];
        if ways.iter().filter(|is_set| **is_set).count() != 1 {
            return self.fault(at, field, "a peer is told in exactly one way");
        }
        if !matches!(peer.scope, None | Some(Scope::Cluster)) {
            return self.fault(at, field, "only scope Cluster is supported");
        }
        if peer.external_entity_selector.is_some() {
            return self.fault(at, field, "externalEntitySelector is not supported yet");
        }
        if let Some(block) = &peer.ip_block {
            return Ok(vec![self.ip_block(at, field, block)?]);
        }
        if let Some(name) = &peer.group {
            return self.group(at, field, name);
        }
        if let Some(name) = &peer.fqdn {
            if direction == Direction::In {
                return self.fault(at, field, "fqdn tells a destination, not a source");
            }
            if effect == Effect::Pass {
                return self.fault(at, field, "fqdn is not for rules that pass");
            }
            let reason = format!("{name:?} is resolved by Pods, at run time");
            self.note(at, field, reason, Severity::Unknowable);
            return Ok(vec![Peer::Addrs(self.name_addrs(name))]);
        }
        if let Some(account) = &peer.service_account {
            return match at.namespace {
                "" => Ok(vec![Peer::Pods(Pods::of_account(account))]),
                _ => self.fault(at, field, "serviceAccount in a namespaced policy"),
            };
        }
        if let Some(nodes) = &peer.node_selector {
            let nodes = self.selector(at, field, nodes)?;
            return Ok(vec![Peer::Addrs(self.node_addrs(&nodes))]);
        }
        let (pods, namespaces) = (peer.pod_selector.as_ref(), peer.namespace_selector.as_ref());
        let mut found = self.labelled(at, field, pods, namespaces)?;
        if let Some(relative) = &peer.namespaces {
            if namespaces.is_some() {
                return self.fault(at, field, "namespaces beside namespaceSelector");
            }
            found.namespaces = self.relative(at, field, relative)?;
        }
        Ok(vec![Peer::Pods(found)])
    }

    fn relative(
        &mut self,
        at: Place<'_>,
        field: &str,
        namespaces: &PeerNamespaces,
    ) -> Meant<Namespaces> {
        if !at.namespace.is_empty() {
            return self.fault(at, field, "namespaces in a namespaced policy");
        }
        match (&namespaces.match_, namespaces.same_labels.as_slice()) {
            (Some(NamespaceMatch::SelfNamespace), []) => Ok(Namespaces::Own),
            (None, keys @ [_, ..]) => Ok(Namespaces::SameLabels(keys.to_vec())),
            (Some(NamespaceMatch::Unknown(word)), []) => {
                self.fault(at, field, format!("unknown match {word:?}"))
            }
            _ => self.fault(at, field, "neither or both of match and sameLabels"),
        }
    }

    fn antrea_protocol(
        &mut self,
        at: Place<'_>,
        field: &str,
        protocol: &NetworkPolicyProtocol,
    ) -> Meant<TrafficMatch> {
        let icmp = match (&protocol.icmp, &protocol.igmp) {
            (Some(icmp), None) => icmp,
            (None, Some(_)) => return self.fault(at, field, "igmp is not supported yet"),
            _ => return self.fault(at, field, "neither or both of icmp and igmp"),
        };
        let mut bytes = [None; 2];
        for (byte, number) in bytes.iter_mut().zip([icmp.icmp_type, icmp.icmp_code]) {
            if let Some(number) = number {
                match u8::try_from(number) {
                    Ok(number) => *byte = Some(number),
                    Err(_) => return self.fault(at, field, format!("{number} is no byte")),
                }
            }
        }
        let at_code = |type_: u8, from: u8, to: u8| {
            (u16::from_be_bytes([type_, from]), u16::from_be_bytes([type_, to]))
        };
        let messages: PortSet = match bytes {
            [None, None] => PortSet::full(),
            [Some(type_), Some(code)] => [at_code(type_, code, code)].into_iter().collect(),
            [Some(type_), None] => [at_code(type_, 0, u8::MAX)].into_iter().collect(),
            [None, Some(code)] => (0..=u8::MAX).map(|type_| at_code(type_, code, code)).collect(),
        };
        let to = Destination::Fixed(ConnectionSet::of(&Protocol::Icmp, messages));
        Ok(TrafficMatch { to, source: None })
    }
}
