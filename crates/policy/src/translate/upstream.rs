//! Kubernetes' ClusterNetworkPolicy (`policy.networking.k8s.io`).

use apis::controlplane::{
    Direction, NetworkPolicyPeer, NetworkPolicyRule, PolicyType, RuleAction, Service,
};
use apis::upstream::{Action, ClusterNetworkPolicy, NamespacedPod, Peer, Port, Protocol, Tier};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::draft::{Draft, GroupKind, GroupSource, PodsSpec};
use super::k8s::source;
use super::name::GroupName;
use super::natives::{compile, pods_spec};
use super::traffic::{PortSpec, Services, ip_block};

/// Where the Admin tier stands among Antrea's.
const ADMIN: i32 = 220;
/// Where the Baseline tier stands among Antrea's.
const BASELINE: i32 = 254;

/// Translates a policy.
pub(super) fn translate(policy: &ClusterNetworkPolicy) -> Draft {
    let source = source(PolicyType::K8sClusterNetworkPolicy, &policy.metadata);
    let mut draft = Draft::new(source, &policy.metadata);
    let spec = &policy.spec;
    draft.tier_priority = Some(match &spec.tier {
        Tier::Admin => ADMIN,
        Tier::Baseline => BASELINE,
        Tier::Unknown(word) => {
            draft.refuse("spec.tier", format!("unknown tier {word:?}"));
            return draft;
        }
    });
    draft.priority = Some(f64::from(spec.priority));
    if !(0..=1000).contains(&spec.priority) {
        draft.refuse("spec.priority", format!("{} is not from 0 to 1000", spec.priority));
        return draft;
    }
    match pods(spec.subject.namespaces.as_ref(), spec.subject.pods.as_ref()) {
        Ok(pods) => {
            let name = draft.refer_pods(GroupKind::AppliedTo, pods);
            draft.applied_to.push(name);
        }
        Err(error) => {
            draft.refuse("spec.subject", error);
            return draft;
        }
    }
    for (n, rule) in spec.ingress.iter().enumerate() {
        let parts = (&rule.name, &rule.action, &rule.from, &rule.protocols);
        add(&mut draft, Direction::In, n, parts);
    }
    for (n, rule) in spec.egress.iter().enumerate() {
        let parts = (&rule.name, &rule.action, &rule.to, &rule.protocols);
        add(&mut draft, Direction::Out, n, parts);
    }
    draft
}

/// Pods by one of the two forms.
fn pods(
    namespaces: Option<&LabelSelector>,
    pods: Option<&NamespacedPod>,
) -> Result<PodsSpec, String> {
    match (namespaces, pods) {
        (Some(namespaces), None) => pods_spec("", None, Some(namespaces)),
        (None, Some(pods)) => {
            pods_spec("", Some(&pods.pod_selector), Some(&pods.namespace_selector))
        }
        _ => Err("one of namespaces and pods is needed".into()),
    }
}

type Parts<'a> = (&'a Option<String>, &'a Action, &'a Vec<Peer>, &'a Vec<Protocol>);

fn add(draft: &mut Draft, direction: Direction, n: usize, parts: Parts<'_>) {
    let (name, action, peers, protocols) = parts;
    let (word, side) = match direction {
        Direction::In => ("ingress", "from"),
        Direction::Out => ("egress", "to"),
    };
    let field = format!("spec.{word}[{n}]");
    let action = match action {
        Action::Accept => RuleAction::Allow,
        Action::Deny => RuleAction::Drop,
        Action::Pass => RuleAction::Pass,
        Action::Unknown(other) => {
            draft.report(format!("{field}.action"), format!("unknown action {other:?}"));
            return;
        }
    };
    let services = match services(draft, &field, protocols) {
        Services::Any => Vec::new(),
        Services::Of(services) if services.is_empty() => return,
        Services::Of(services) => services,
    };
    let mut all = NetworkPolicyPeer::default();
    for (n, peer) in peers.iter().enumerate() {
        if let Err(error) = add_peer(draft, direction, &action, peer, &mut all) {
            draft.report(format!("{field}.{side}[{n}]"), error);
        }
    }
    if all.is_empty() {
        return;
    }
    let mut rule = NetworkPolicyRule {
        services,
        priority: i32::try_from(n).unwrap_or(i32::MAX),
        action: Some(action),
        name: name.clone().unwrap_or_default(),
        ..NetworkPolicyRule::new(direction)
    };
    match direction {
        Direction::In => rule.from = all,
        Direction::Out => rule.to = all,
    }
    draft.rules.push(rule);
}

fn add_peer(
    draft: &mut Draft,
    direction: Direction,
    action: &RuleAction,
    peer: &Peer,
    all: &mut NetworkPolicyPeer,
) -> Result<(), String> {
    let kinds = [
        peer.namespaces.is_some() || peer.pods.is_some(),
        peer.nodes.is_some(),
        !peer.networks.is_empty(),
        !peer.domain_names.is_empty(),
    ];
    if kinds.iter().filter(|set| **set).count() != 1 {
        return Err("exactly one kind of peer is needed".into());
    }
    if direction == Direction::In && !kinds[0] {
        return Err("sources are namespaces or pods".into());
    }
    if kinds[0] {
        let pods = pods(peer.namespaces.as_ref(), peer.pods.as_ref())?;
        let name = draft.refer_pods(GroupKind::Address, pods);
        if !all.address_groups.contains(&name) {
            all.address_groups.push(name);
        }
    } else if let Some(nodes) = &peer.nodes {
        let nodes = compile(nodes)?;
        let name = GroupName::of_nodes(&nodes);
        let source = GroupSource { nodes: vec![nodes], ..GroupSource::default() };
        let name = draft.refer(GroupKind::Address, name, source);
        if !all.address_groups.contains(&name) {
            all.address_groups.push(name);
        }
    } else if !peer.networks.is_empty() {
        for network in &peer.networks {
            all.ip_blocks.push(ip_block(network, [])?);
        }
    } else {
        if *action != RuleAction::Allow {
            return Err("domainNames go with Accept alone".into());
        }
        all.fqdns.extend(peer.domain_names.iter().map(|name| name.to_ascii_lowercase()));
    }
    Ok(())
}

fn services(draft: &mut Draft, field: &str, protocols: &[Protocol]) -> Services {
    if protocols.is_empty() {
        return Services::Any;
    }
    let mut services = Vec::new();
    for (n, protocol) in protocols.iter().enumerate() {
        match service(protocol) {
            Ok(service) => services.push(service),
            Err(error) => draft.report(format!("{field}.protocols[{n}]"), error),
        }
    }
    Services::Of(services)
}

fn service(protocol: &Protocol) -> Result<Service, String> {
    let transports = [("TCP", &protocol.tcp), ("UDP", &protocol.udp), ("SCTP", &protocol.sctp)];
    let mut set = transports.iter().filter_map(|(word, part)| Some((*word, part.as_ref()?)));
    match (set.next(), set.next(), &protocol.destination_named_port) {
        (Some((word, transport)), None, None) => {
            let (port, end) = match &transport.destination_port {
                None => (None, None),
                Some(Port { number: Some(number), range: None }) => {
                    (Some(IntOrString::Int(*number)), None)
                }
                Some(Port { number: None, range: Some(range) }) => {
                    (Some(IntOrString::Int(range.start)), Some(range.end))
                }
                Some(_) => return Err("one of number and range is needed".into()),
            };
            let spec = PortSpec {
                protocol: Some(word),
                port: port.as_ref(),
                end_port: end,
                source_port: None,
                source_end_port: None,
            };
            spec.service()
        }
        (None, None, Some(name)) if !name.is_empty() => {
            Ok(Service { port: Some(IntOrString::String(name.clone())), ..Service::default() })
        }
        _ => Err("exactly one protocol is needed".into()),
    }
}
