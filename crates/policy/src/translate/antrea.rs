//! Antrea's ClusterNetworkPolicy and NetworkPolicy.
//!
//! A part that cannot be meant, or is not supported, matches nothing and is reported. Where a rule
//! has peers by the target's own namespace, each namespace of its targets gets a copy of the rule.

mod peers;

use apis::controlplane::{
    Direction, NetworkPolicyPeer, NetworkPolicyRule, ObjectName, PolicyType, Protocol, RuleAction,
    Service,
};
use apis::policy::{
    AppliedTo, BASELINE_TIER_PRIORITY, DEFAULT_TIER, NetworkPolicyPeer as Peer, NetworkPolicySpec,
    Rule,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::draft::{Draft, GroupKind, GroupSource, PodsSpec, ScopeSpec};
use super::event::PolicyKind;
use super::k8s::source;
use super::name::GroupName;
use super::natives::{Context, pods_spec};
use super::traffic::{PortSpec, Services, has_named_port};
use crate::index::{SERVICE_ACCOUNT_LABEL, Selector};
use peers::{add_group, relative_pods};

const NOT_YET: &str = "is not supported yet";

/// Translates a policy of one of the two kinds.
pub(super) fn translate(
    context: &Context<'_>,
    kind: PolicyKind,
    metadata: &ObjectMeta,
    spec: &NetworkPolicySpec,
) -> Draft {
    let type_ = match kind {
        PolicyKind::Namespaced => PolicyType::AntreaNetworkPolicy,
        _ => PolicyType::AntreaClusterNetworkPolicy,
    };
    let mut draft = Draft::new(source(type_, metadata), metadata);
    let tier = spec.tier.as_deref().filter(|tier| !tier.is_empty()).unwrap_or(DEFAULT_TIER);
    draft.needs.tier = Some(tier.into());
    draft.priority = Some(spec.priority);
    draft.tier_priority = context.natives.tier(tier);
    if draft.tier_priority.is_none() {
        draft.refuse("spec.tier", format!("there is no tier {tier:?}"));
        return draft;
    }
    if !(1.0..=10000.0).contains(&spec.priority) {
        draft.refuse("spec.priority", format!("{} is not from 1 to 10000", spec.priority));
        return draft;
    }
    let namespace = metadata.namespace.clone().filter(|_| kind == PolicyKind::Namespaced);
    let namespace = namespace.unwrap_or_default();
    let mut policy = Policy { context, draft, namespace: &namespace, on_services: false };
    let mut targets = policy.targets("spec.appliedTo", &spec.applied_to);
    if !spec.egress.is_empty() && targets.iter().any(|target| target.service.is_some()) {
        policy.draft.report("spec.appliedTo", "Services have no egress rules");
        targets.retain(|target| target.service.is_none());
    }
    policy.on_services = targets.iter().any(|target| target.service.is_some());
    let all = || spec.ingress.iter().chain(&spec.egress);
    let relative = all().any(|rule| peers(rule).any(|peer| peer.namespaces.is_some()));
    let own_targets = relative || all().any(|rule| !rule.applied_to.is_empty());
    if !own_targets {
        policy.draft.applied_to = policy.refer_targets(&targets);
    }
    let targets = own_targets.then_some(targets.as_slice());
    for (direction, word, rules) in
        [(Direction::In, "ingress", &spec.ingress), (Direction::Out, "egress", &spec.egress)]
    {
        for (n, rule) in rules.iter().enumerate() {
            let field = format!("spec.{word}[{n}]");
            policy.rule(direction, &field, n, rule, targets);
        }
    }
    policy.draft
}

fn peers(rule: &Rule) -> impl Iterator<Item = &Peer> {
    rule.from.iter().chain(&rule.to)
}

/// Targets of a policy or rule: Pods or a Service, under the name of the group that they will be.
#[derive(Clone, Debug)]
struct Target {
    name: GroupName,
    pods: Vec<PodsSpec>,
    service: Option<ObjectName>,
}

impl Target {
    fn of(pods: PodsSpec) -> Self {
        Self { name: pods.name(), pods: vec![pods], service: None }
    }

    fn of_service(namespace: &str, name: &str) -> Self {
        let service = ObjectName { namespace: namespace.into(), name: name.into() };
        Self {
            name: GroupName::of_service(namespace, name),
            pods: Vec::new(),
            service: Some(service),
        }
    }
}

/// The other side of a rule that is the same for all targets, and peers that are not.
struct Sides<'a> {
    fixed: NetworkPolicyPeer,
    relative: Vec<&'a Peer>,
}

struct Policy<'a> {
    context: &'a Context<'a>,
    draft: Draft,
    /// The policy's namespace; empty for a cluster-wide policy.
    namespace: &'a str,
    /// Whether rules without targets of their own are applied to Services.
    on_services: bool,
}

impl Policy<'_> {
    fn targets(&mut self, field: &str, all: &[AppliedTo]) -> Vec<Target> {
        let mut targets = Vec::new();
        for (n, applied_to) in all.iter().enumerate() {
            match self.target(applied_to) {
                Ok(target) => targets.push(target),
                Err(error) => self.draft.report(format!("{field}[{n}]"), error),
            }
        }
        if all.iter().any(|own| own.service.is_some())
            && all.iter().any(|own| own.service.is_none())
        {
            self.draft.report(field, "Services go with no other targets");
            targets.retain(|target| target.service.is_none());
        }
        targets
    }

    fn target(&mut self, target: &AppliedTo) -> Result<Target, String> {
        let selects = target.pod_selector.is_some() || target.namespace_selector.is_some();
        let kinds = [
            selects,
            target.group.is_some(),
            target.service_account.is_some(),
            target.service.is_some(),
            target.node_selector.is_some(),
            target.external_entity_selector.is_some(),
        ];
        match kinds.iter().filter(|set| **set).count() {
            1 => {}
            0 => return Err("nothing is selected".into()),
            _ => return Err("fields that exclude each other".into()),
        }
        for (set, what) in [
            (target.node_selector.is_some(), "nodeSelector"),
            (target.external_entity_selector.is_some(), "externalEntitySelector"),
        ] {
            if set {
                return Err(format!("{what} {NOT_YET}"));
            }
        }
        if let Some(account) = &target.service_account {
            if !self.namespace.is_empty() {
                return Err("serviceAccount is for cluster-wide policies".into());
            }
            return Ok(Target::of(account_pods(&account.namespace, &account.name)));
        }
        if let Some(service) = &target.service {
            if !self.namespace.is_empty() {
                return Err("service is for cluster-wide policies".into());
            }
            return Ok(Target::of_service(&service.namespace, &service.name));
        }
        if let Some(name) = &target.group {
            return self.named_target(name);
        }
        if !self.namespace.is_empty() && target.namespace_selector.is_some() {
            return Err("namespaceSelector is for cluster-wide policies".into());
        }
        let namespaces = target.namespace_selector.as_ref();
        pods_spec(self.namespace, target.pod_selector.as_ref(), namespaces).map(Target::of)
    }

    fn named_target(&mut self, name: &str) -> Result<Target, String> {
        let mut needs = std::mem::take(&mut self.draft.needs);
        let resolved = self.context.natives.resolve(self.namespace, name, &mut needs);
        self.draft.needs = needs;
        if !resolved.ip_blocks.is_empty() || !resolved.source.nodes.is_empty() {
            return Err(format!("group {name:?} has members that are no Pods"));
        }
        let elsewhere = |pods: &PodsSpec| matches!(pods.scope, ScopeSpec::Namespaces(_));
        if !self.namespace.is_empty() && resolved.source.pods.iter().any(elsewhere) {
            return Err(format!("group {name:?} has Pods of other namespaces"));
        }
        if resolved.source.pods.is_empty()
            && let Some(problem) = resolved.problems.first()
        {
            return Err(problem.clone());
        }
        for problem in resolved.problems {
            self.draft.report(format!("group {name}"), problem);
        }
        let name = GroupName::of_named(self.namespace, name);
        Ok(Target { name, pods: resolved.source.pods, service: None })
    }

    fn refer_targets(&mut self, targets: &[Target]) -> Vec<String> {
        let mut names = Vec::new();
        for target in targets {
            let source = GroupSource {
                pods: target.pods.clone(),
                nodes: Vec::new(),
                service: target.service.clone(),
            };
            let name = self.draft.refer(GroupKind::AppliedTo, target.name.clone(), source);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// Adds a rule, with targets of its own if the policy's are given for that.
    fn rule(
        &mut self,
        direction: Direction,
        field: &str,
        n: usize,
        rule: &Rule,
        targets: Option<&[Target]>,
    ) {
        if let RuleAction::Unknown(word) = &rule.action {
            self.draft.report(format!("{field}.action"), format!("unknown action {word:?}"));
            return;
        }
        let is_last = self.draft.tier_priority.is_some_and(|tier| tier >= BASELINE_TIER_PRIORITY);
        if rule.action == RuleAction::Pass && is_last {
            let reason = "Pass has nowhere to go from the baseline tier";
            self.draft.report(format!("{field}.action"), reason);
            return;
        }
        if !rule.l7_protocols.is_empty() {
            self.draft.report(format!("{field}.l7Protocols"), format!("l7Protocols {NOT_YET}"));
            return;
        }
        let mut services = match self.services(field, rule) {
            Services::Any => Vec::new(),
            Services::Of(services) if services.is_empty() => return,
            Services::Of(services) => services,
        };
        let (mut own, blocks);
        let mut on_services = self.on_services;
        let targets = match targets {
            Some(_) if !rule.applied_to.is_empty() => {
                let at = format!("{field}.appliedTo");
                own = self.targets(&at, &rule.applied_to);
                on_services = own.iter().any(|target| target.service.is_some());
                if on_services && direction == Direction::Out {
                    self.draft.report(at, "Services have no egress rules");
                    own.clear();
                }
                Some(own.as_slice())
            }
            targets => targets,
        };
        let rule = match on_services {
            false => rule,
            true => match self.only_blocks(field, rule, &mut services) {
                Some(known) => {
                    blocks = known;
                    &blocks
                }
                None => return,
            },
        };
        let sides = self.sides(direction, field, rule, &services);
        let mut made = NetworkPolicyRule {
            services,
            priority: i32::try_from(n).unwrap_or(i32::MAX),
            action: Some(rule.action.clone()),
            enable_logging: rule.enable_logging,
            name: rule.name.clone().unwrap_or_default(),
            log_label: rule.log_label.clone().unwrap_or_default(),
            ..NetworkPolicyRule::new(direction)
        };
        let Some(targets) = targets else {
            self.push(made, sides.fixed);
            return;
        };
        if sides.relative.is_empty() {
            made.applied_to_groups = self.refer_targets(targets);
            if !made.applied_to_groups.is_empty() {
                self.push(made, sides.fixed);
            }
            return;
        }
        for (peer, applied_to) in self.expand(field, &sides, targets) {
            self.push(NetworkPolicyRule { applied_to_groups: applied_to, ..made.clone() }, peer);
        }
    }

    /// A rule that is applied to Services without what means nothing there; none if nothing is left.
    fn only_blocks(
        &mut self,
        field: &str,
        rule: &Rule,
        services: &mut Vec<Service>,
    ) -> Option<Rule> {
        let any_service = services.is_empty();
        for (n, _) in rule.from.iter().enumerate().filter(|(_, peer)| peer.ip_block.is_none()) {
            let reason = "a rule that is applied to Services knows ipBlocks only";
            self.draft.report(format!("{field}.from[{n}]"), reason);
        }
        let mut known = rule.clone();
        known.from.retain(|peer| peer.ip_block.is_some());
        let named = |service: &Service| has_named_port(&Services::Of(vec![service.clone()]));
        if services.iter().any(named) {
            self.draft
                .report(format!("{field}.ports"), "Services give ports no names of containers");
            services.retain(|service| !named(service));
        }
        let any_peer = rule.from.is_empty();
        let means = (any_peer || !known.from.is_empty()) && (any_service || !services.is_empty());
        means.then_some(known)
    }

    fn push(&mut self, mut rule: NetworkPolicyRule, peer: NetworkPolicyPeer) {
        if peer.is_empty() {
            return; // Every peer was unreadable: the rule matches nothing.
        }
        match rule.direction {
            Direction::In => rule.from = peer,
            Direction::Out => rule.to = peer,
        }
        self.draft.rules.push(rule);
    }

    /// The other side for each namespace of the targets; namespaces with equal ones together.
    fn expand(
        &mut self,
        field: &str,
        sides: &Sides<'_>,
        targets: &[Target],
    ) -> Vec<(NetworkPolicyPeer, Vec<String>)> {
        self.draft.needs.namespaces = true;
        let mut expanded: Vec<(NetworkPolicyPeer, Vec<String>)> = Vec::new();
        let index = self.context.index;
        let mut namespaces: Vec<_> = index.namespaces().collect();
        namespaces.sort_by_key(|(_, name, _)| *name);
        for (_, namespace, labels) in namespaces {
            let mut applied_to = Vec::new();
            for pods in targets.iter().flat_map(|target| &target.pods) {
                let inside = match &pods.scope {
                    ScopeSpec::Namespace(own) => **own == *namespace,
                    ScopeSpec::Namespaces(selector) => selector.matches(labels),
                };
                if inside {
                    let scope = ScopeSpec::Namespace(namespace.into());
                    let pods = PodsSpec { scope, pods: pods.pods.clone() };
                    applied_to.push(Target::of(pods));
                }
            }
            if applied_to.is_empty() {
                continue;
            }
            let mut peer = sides.fixed.clone();
            for relative in &sides.relative {
                match relative_pods(relative, namespace, labels) {
                    Ok(None) => {}
                    Ok(Some(pods)) => {
                        let name = self.draft.refer_pods(GroupKind::Address, pods);
                        add_group(&mut peer, name);
                    }
                    Err(error) => self.report_once(field, error),
                }
            }
            if peer.is_empty() {
                continue;
            }
            let applied_to = self.refer_targets(&applied_to);
            match expanded.iter_mut().find(|(own, _)| *own == peer) {
                Some((_, groups)) => {
                    groups.extend(applied_to);
                    groups.sort();
                    groups.dedup();
                }
                None => expanded.push((peer, applied_to)),
            }
        }
        expanded
    }

    fn report_once(&mut self, field: &str, error: String) {
        let known = |issue: &super::Issue| issue.field == field && issue.message == error;
        if !self.draft.issues.iter().any(known) {
            self.draft.report(field, error);
        }
    }

    fn services(&mut self, field: &str, rule: &Rule) -> Services {
        if rule.ports.is_empty() && rule.protocols.is_empty() {
            return Services::Any;
        }
        let mut services = Vec::new();
        for (n, port) in rule.ports.iter().enumerate() {
            let spec = PortSpec {
                protocol: port.protocol.as_ref().map(Protocol::as_str),
                port: port.port.as_ref(),
                end_port: port.end_port,
                source_port: port.source_port,
                source_end_port: port.source_end_port,
            };
            match spec.service() {
                Ok(service) => services.push(service),
                Err(error) => self.draft.report(format!("{field}.ports[{n}]"), error),
            }
        }
        for (n, protocol) in rule.protocols.iter().enumerate() {
            let service = match (&protocol.icmp, &protocol.igmp) {
                (Some(icmp), None) => icmp_service(icmp.icmp_type, icmp.icmp_code),
                (None, Some(_)) => Err(format!("igmp {NOT_YET}")),
                _ => Err("one of icmp and igmp is needed".to_owned()),
            };
            match service {
                Ok(service) => services.push(service),
                Err(error) => self.draft.report(format!("{field}.protocols[{n}]"), error),
            }
        }
        Services::Of(services)
    }
}

fn account_pods(namespace: &str, name: &str) -> PodsSpec {
    PodsSpec {
        scope: ScopeSpec::Namespace(namespace.into()),
        pods: Selector::equal(SERVICE_ACCOUNT_LABEL, name),
    }
}

fn icmp_service(icmp_type: Option<i32>, icmp_code: Option<i32>) -> Result<Service, String> {
    for (field, value) in [("icmpType", icmp_type), ("icmpCode", icmp_code)] {
        if value.is_some_and(|value| !(0..=255).contains(&value)) {
            return Err(format!("{field} is not from 0 to 255"));
        }
    }
    if icmp_type.is_none() && icmp_code.is_some() {
        return Err("icmpCode needs an icmpType".into());
    }
    Ok(Service { protocol: Some(Protocol::Icmp), icmp_type, icmp_code, ..Service::default() })
}
