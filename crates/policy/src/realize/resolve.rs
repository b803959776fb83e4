//! Turns a rule, with groups and Pods as they are now, into what is to be in the tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::controlplane::{
    Direction as RuleDirection, GroupMember, NetworkPolicy, NetworkPolicyRule, ObjectName,
    RuleAction,
};
use ipnet::IpNet;
use pipeline::Families;
use pipeline::policy::{ClauseKey, Direction, Place, ServiceSpec, Verdict};

use super::groups::{Addresses, AppliedTo, PodKey};
use super::here::Here;
use super::ids::RuleOwner;
use super::names::Names;
use super::nets::difference;
use super::priority::{PolicyPriority, Rank, say};
use super::service::Services;
use super::service_groups::ServiceGroups;
use super::{LocalPod, Serves};

/// Tiers from this priority on only count where no Kubernetes policy isolates a Pod.
const FIRST_BASELINE_TIER: i32 = 253;

/// What rules refer to.
pub(super) struct Context<'a> {
    pub(super) families: Families,
    pub(super) applied_to: &'a BTreeMap<String, AppliedTo>,
    pub(super) addresses: &'a BTreeMap<String, Addresses>,
    pub(super) pods: &'a BTreeMap<PodKey, LocalPod>,
    pub(super) here: &'a Here,
    pub(super) names: &'a Names,
    pub(super) serves: Serves,
    pub(super) services: &'a ServiceGroups,
}

/// A rule, or the part of it that has its own number: Pods for which a port's name means the same.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) owner: RuleOwner,
    pub(super) direction: Direction,
    pub(super) place: Place,
    pub(super) verdict: Verdict,
    pub(super) log: bool,
    /// Its rank; Kubernetes policies have none.
    pub(super) rank: Option<Rank>,
    /// What the flows of each clause match, each sorted.
    pub(super) clauses: Vec<Keys>,
}

/// Alternatives of a clause, which policies may share.
pub(super) type Keys = Arc<Vec<ClauseKey>>;

impl Part {
    /// The alternatives of all clauses.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ClauseKey> {
        self.clauses.iter().flat_map(|keys| keys.iter())
    }

    /// Which clause is about Pods of the node, or Services that it serves.
    pub(super) fn own_side(&self) -> usize {
        match self.direction {
            Direction::Egress => 0,
            Direction::Ingress => 1,
        }
    }
}

/// All that a rule asks for.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) parts: Vec<Part>,
    /// Pods that the rule isolates.
    pub(super) isolated: Vec<(Direction, PodKey)>,
    /// Pods whose DNS answers are looked at.
    pub(super) dns_pods: Vec<PodKey>,
    /// What of the rule cannot be realized.
    pub(super) problems: Vec<String>,
    /// Whether it waits for its peers.
    pub(super) pending: bool,
}

pub(super) fn direction_of(rule: &NetworkPolicyRule) -> Direction {
    match rule.direction {
        RuleDirection::In => Direction::Ingress,
        RuleDirection::Out => Direction::Egress,
    }
}

/// The AppliedToGroups of a rule.
pub(super) fn targets_of<'a>(
    policy: &'a NetworkPolicy,
    rule: &'a NetworkPolicyRule,
) -> &'a [String] {
    if rule.applied_to_groups.is_empty() {
        &policy.applied_to_groups
    } else {
        &rule.applied_to_groups
    }
}

/// Which tables a policy's rules are in.
pub(super) fn place_of(policy: &NetworkPolicy) -> Place {
    match (policy.tier_priority, policy.priority) {
        (None, None) => Place::Kubernetes,
        (Some(tier), _) if tier >= FIRST_BASELINE_TIER => Place::Baseline,
        _ => Place::Tiered,
    }
}

/// Hashes what a rule says, its place and its logging left out: a rule that is only moved keeps its
/// number. `ordinal` tells rules that say the same apart.
pub(super) fn identity(
    policy: &NetworkPolicy,
    rule: &NetworkPolicyRule,
    ordinal: u32,
) -> RuleOwner {
    let said = NetworkPolicyRule { priority: 0, enable_logging: false, ..rule.clone() };
    // Writing plain data to memory does not fail; if it did, the ordinal still tells rules apart.
    let said = serde_json::to_vec(&said).unwrap_or_default();
    RuleOwner::of(&[uid_of(policy).as_bytes(), &said, &ordinal.to_be_bytes()])
}

/// The UID of the user's object.
pub(super) fn uid_of(policy: &NetworkPolicy) -> &str {
    policy.metadata.name.as_deref().unwrap_or_default()
}

/// Resolves one rule.
pub(super) fn resolve(
    context: &Context<'_>,
    policy: &NetworkPolicy,
    rule: &NetworkPolicyRule,
    identity: RuleOwner,
) -> Resolved {
    let mut resolved = Resolved::default();
    let direction = direction_of(rule);
    let place = place_of(policy);
    let targets = local_targets(context, targets_of(policy, rule));
    let at_services = target_services(context, targets_of(policy, rule));
    if targets.is_empty() && at_services.is_empty() {
        return resolved;
    }
    if place == Place::Kubernetes {
        resolved.isolated = targets.iter().map(|t| (direction, t.key.clone())).collect();
    }
    if direction == Direction::Egress && !rule.to.fqdns.is_empty() {
        resolved.dns_pods = targets.iter().map(|target| target.key.clone()).collect();
    }
    let verdict = match &rule.action {
        _ if place == Place::Kubernetes => Verdict::Allow,
        None | Some(RuleAction::Allow) => Verdict::Allow,
        Some(RuleAction::Drop) => Verdict::Drop,
        Some(RuleAction::Reject) => Verdict::Reject,
        Some(RuleAction::Pass) => Verdict::Pass,
        Some(RuleAction::Unknown(word)) => {
            resolved.problems.push(format!("action {word:?} is not known"));
            return resolved;
        }
    };
    let peer = rule.peer();
    for (unsupported, what) in [
        (!rule.l7_protocols.is_empty(), "layer 7 protocols are not supported yet"),
        (
            !peer.to_services.is_empty() && context.serves == Serves::Nothing,
            "toServices needs antreaProxy.enable on this Node",
        ),
        (
            !peer.to_services.is_empty() && direction == Direction::Ingress,
            "toServices is for egress rules",
        ),
        (
            !at_services.is_empty() && context.serves != Serves::Everybody,
            "appliedTo.service needs antreaProxy.proxyAll on this Node",
        ),
        (
            !at_services.is_empty() && direction == Direction::Egress,
            "Services have no egress rules",
        ),
        (
            !at_services.is_empty() && place == Place::Kubernetes,
            "Kubernetes policies are not applied to Services",
        ),
        (!peer.label_identities.is_empty(), "label identities are not supported"),
    ] {
        if unsupported {
            resolved.problems.push(what.into());
            return resolved;
        }
    }
    if peer.address_groups.iter().any(|name| !context.addresses.contains_key(name)) {
        resolved.pending = true;
        return resolved;
    }
    let services = Services::of(rule, &mut resolved.problems);
    let rank = match place {
        Place::Kubernetes => None,
        Place::Tiered | Place::Baseline | Place::NodePort => Some(Rank {
            tier: policy.tier_priority.unwrap_or_default(),
            policy: PolicyPriority(policy.priority.unwrap_or_default()),
            rule: rule.priority,
            say: say(verdict),
            unlogged: u8::from(!rule.enable_logging),
            spread: 0,
        }),
    };
    let template = Part {
        owner: identity,
        direction,
        place,
        verdict,
        log: rule.enable_logging,
        rank,
        clauses: Vec::new(),
    };
    let build = Build { context, template, services };
    resolved.parts = match direction {
        Direction::Ingress => build.ingress(rule, &targets),
        Direction::Egress => build.egress(rule, &targets),
    };
    resolved.parts.extend(build.at_node_ports(rule, &at_services));
    resolved
}

/// The Services that a rule is applied to.
fn target_services<'a>(context: &'a Context<'_>, groups: &[String]) -> BTreeSet<&'a ObjectName> {
    let groups = groups.iter().filter_map(|name| context.applied_to.get(name));
    groups.flat_map(|group| &group.services).collect()
}

/// A Pod of this node that a rule is applied to.
struct Target<'a> {
    key: &'a PodKey,
    pod: &'a LocalPod,
    member: &'a GroupMember,
}

fn local_targets<'a>(context: &'a Context<'_>, groups: &[String]) -> Vec<Target<'a>> {
    let mut targets = BTreeMap::new();
    for group in groups.iter().filter_map(|name| context.applied_to.get(name)) {
        for (key, member) in &group.members {
            if let Some(pod) = context.pods.get(key) {
                targets.entry(key).or_insert(Target { key, pod, member });
            }
        }
    }
    targets.into_values().collect()
}

struct Build<'a> {
    context: &'a Context<'a>,
    template: Part,
    services: Services,
}

impl Build<'_> {
    /// Pods at which ports' names mean the same form a part.
    fn ingress(&self, rule: &NetworkPolicyRule, targets: &[Target<'_>]) -> Vec<Part> {
        let from: Vec<ClauseKey> =
            self.peer_nets(rule).into_iter().map(ClauseKey::from_net).collect();
        let mut groups: BTreeMap<Option<Vec<ServiceSpec>>, Vec<ClauseKey>> = BTreeMap::new();
        for target in targets {
            let services = self.services.at(target.member);
            groups.entry(services).or_default().push(ClauseKey::ToPort(target.pod.ofport));
        }
        let part = |(services, to)| self.part(from.clone(), to, services);
        groups.into_iter().filter_map(part).collect()
    }

    /// Peers at which ports' names mean the same form a part.
    fn egress(&self, rule: &NetworkPolicyRule, targets: &[Target<'_>]) -> Vec<Part> {
        let families = self.context.families;
        let ips = targets.iter().flat_map(|target| &target.pod.ips);
        let through = self.context.services.of(&rule.to.to_services);
        let from: Vec<ClauseKey> =
            ips.filter(|ip| families.has(**ip)).map(|ip| ClauseKey::from_ip(*ip)).collect();
        if !self.services.has_names() {
            let to = self.peer_nets(rule).into_iter().map(ClauseKey::to_net);
            let to = to.chain(through.into_iter().map(ClauseKey::ToService)).collect();
            return self.part(from, to, self.services.fixed()).into_iter().collect();
        }
        let mut groups: BTreeMap<Option<Vec<ServiceSpec>>, BTreeSet<ClauseKey>> = BTreeMap::new();
        for group in rule.to.address_groups.iter().filter_map(|g| self.context.addresses.get(g)) {
            for member in &group.members {
                let services = self.services.at(member);
                let ips = self.context.here.ips_of(member);
                let ips = ips.into_iter().filter(|ip| families.has(*ip));
                groups.entry(services).or_default().extend(ips.map(ClauseKey::to_ip));
            }
        }
        // Outside the cluster nobody names a port.
        let others = self.blocks(rule).into_iter().map(ClauseKey::to_net);
        groups.entry(self.services.fixed()).or_default().extend(others);
        let part = |(services, to): (_, BTreeSet<_>)| {
            self.part(from.clone(), to.into_iter().collect(), services)
        };
        groups.into_iter().filter_map(part).collect()
    }

    /// What comes in at NodePorts of Services is one part, in a table of its own.
    fn at_node_ports(
        &self,
        rule: &NetworkPolicyRule,
        services: &BTreeSet<&ObjectName>,
    ) -> Option<Part> {
        let from = self.peer_nets(rule).into_iter().map(ClauseKey::from_net).collect();
        let groups = self.context.services.of(services.iter().copied());
        let to = groups.into_iter().map(ClauseKey::ToNodePort).collect();
        let part = self.part(from, to, self.services.fixed())?;
        let owner = RuleOwner::of(&[&part.owner.0, b"NodePort"]);
        Some(Part { owner, direction: Direction::Egress, place: Place::NodePort, ..part })
    }

    /// None when a clause can be met by nothing.
    fn part(
        &self,
        from: Vec<ClauseKey>,
        to: Vec<ClauseKey>,
        services: Option<Vec<ServiceSpec>>,
    ) -> Option<Part> {
        let mut part = self.template.clone();
        if self.services.has_names() {
            let variant = format!("{services:?}");
            part.owner = RuleOwner::of(&[&part.owner.0, variant.as_bytes()]);
        }
        let mut clauses = vec![from, to];
        if let Some(services) = services {
            let families = self.context.families;
            let matches = services.into_iter().flat_map(|service| service.matches(families));
            clauses.push(matches.map(ClauseKey::Service).collect());
        }
        for keys in &mut clauses {
            keys.sort_unstable();
            keys.dedup();
            keys.shrink_to_fit();
        }
        if clauses.iter().any(Vec::is_empty) {
            return None;
        }
        part.clauses = clauses.into_iter().map(Arc::new).collect();
        Some(part)
    }

    /// The peers, by address.
    fn peer_nets(&self, rule: &NetworkPolicyRule) -> Vec<IpNet> {
        let families = self.context.families;
        let groups = rule.peer().address_groups.iter();
        let ips = groups
            .filter_map(|name| self.context.addresses.get(name))
            .flat_map(|group| group.addresses().filter(|ip| families.has(*ip)).map(IpNet::from));
        let mut nets: Vec<IpNet> = ips.collect();
        nets.extend(self.blocks(rule));
        nets
    }

    /// The peers that are no Pods.
    fn blocks(&self, rule: &NetworkPolicyRule) -> Vec<IpNet> {
        let families = self.context.families;
        let peer = rule.peer();
        let mut nets: Vec<IpNet> = Vec::new();
        for block in peer.ip_blocks.iter().filter(|block| families.has(block.cidr.addr())) {
            nets.extend(difference(block.cidr, &block.except));
        }
        for pattern in &peer.fqdns {
            let ips = self.context.names.addresses(pattern);
            nets.extend(ips.into_iter().filter(|ip| families.has(*ip)).map(IpNet::from));
        }
        nets
    }
}
