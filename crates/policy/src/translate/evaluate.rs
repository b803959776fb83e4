//! Which rule decides about traffic between two Pods, whatever the port.
//!
//! Asked of what agents are told, so that the answer is about what is enforced. The order of rules is
//! that of `verdict`, which gives the answer from the user's objects, port by port.

use std::collections::BTreeSet;

use apis::controlplane::{
    DEFAULT_ISOLATION, Direction, NetworkPolicy, NetworkPolicyEvaluationResponse,
    NetworkPolicyPeer, NetworkPolicyReference, NetworkPolicyRule, RuleRef,
};
use apis::policy::RuleAction;

use super::draft::GroupKind;
use super::members::fits;
use super::name::GroupName;
use super::{Engine, GroupId, PolicyId};
use crate::index::slab::Id;
use crate::index::{Placed, PodRecord};

/// Rank of the tiers that come after Kubernetes' own policies.
const BASELINE: i32 = 253;

/// A rule that is about the traffic.
#[derive(Debug)]
struct Match {
    /// Priorities of tier and policy; none of a Kubernetes NetworkPolicy.
    rank: Option<(i32, f64)>,
    priority: i32,
    index: i32,
    action: RuleAction,
    name: String,
    source: NetworkPolicyReference,
}

/// What one side of the traffic says.
#[derive(Debug)]
struct Decided {
    refuses: bool,
    response: NetworkPolicyEvaluationResponse,
}

/// A Pod of the question does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownPod {
    /// Where the traffic comes from.
    Source,
    /// Where it goes.
    Destination,
}

impl Engine {
    /// The rule that decides about traffic from one Pod to another, named by namespace and name;
    /// `None` if there is none, and the traffic passes.
    ///
    /// The side that refuses decides, else the one that has a rule to name, the destination's first.
    ///
    /// # Errors
    /// When there is no such Pod.
    pub fn evaluate(
        &self,
        source: (&str, &str),
        destination: (&str, &str),
    ) -> Result<Option<NetworkPolicyEvaluationResponse>, UnknownPod> {
        let find = |(namespace, name): (&str, &str)| self.index.find_pod(namespace, name);
        let from = find(source).ok_or(UnknownPod::Source)?;
        let to = find(destination).ok_or(UnknownPod::Destination)?;
        if from == to {
            return Ok(None);
        }
        let egress = self.side(from, to, Direction::Out);
        if egress.as_ref().is_some_and(|decided| decided.refuses) {
            return Ok(egress.map(|decided| decided.response));
        }
        let ingress = self.side(to, from, Direction::In);
        Ok(ingress.or(egress).map(|decided| decided.response))
    }

    /// What policies that are applied to a Pod say of its traffic with another one.
    fn side(&self, own: Placed, other: Placed, direction: Direction) -> Option<Decided> {
        let targets = self.targets_of(own);
        let names: BTreeSet<String> =
            targets.iter().map(|id| self.groups[*id].name.to_string()).collect();
        let mut policies: Vec<PolicyId> =
            targets.iter().flat_map(|id| self.groups[*id].policies.iter().copied()).collect();
        policies.sort_unstable();
        policies.dedup();
        let mut matches = Vec::new();
        let mut isolates: Option<NetworkPolicyReference> = None;
        for policy in policies.into_iter().filter_map(|id| self.policy(id)) {
            let applies = |rule: &&NetworkPolicyRule| {
                let groups = match rule.applied_to_groups.is_empty() {
                    true => &policy.applied_to_groups,
                    false => &rule.applied_to_groups,
                };
                rule.direction == direction && groups.iter().any(|group| names.contains(group))
            };
            if policy.tier_priority.is_none() && policy.rules.iter().any(|rule| applies(&rule)) {
                let source = policy.source_ref.clone();
                isolates = match (isolates, source) {
                    (Some(known), Some(source)) => Some(known.min(source)),
                    (known, source) => known.or(source),
                };
            }
            let of_side = policy.rules.iter().filter(|rule| rule.direction == direction);
            for (place, rule) in of_side.enumerate().filter(|(_, rule)| applies(rule)) {
                if self.is_about(rule.peer(), other) {
                    matches.extend(mk_match(&policy, rule, place));
                }
            }
        }
        matches
            .sort_by(|a, b| order(a).partial_cmp(&order(b)).unwrap_or(std::cmp::Ordering::Equal));
        decide(matches, isolates, direction)
    }

    /// The groups of targets that a Pod is in.
    fn targets_of(&self, pod: Placed) -> Vec<GroupId> {
        let Some((cohort, record)) = self.index.pod(pod.pod) else { return Vec::new() };
        if !fits(GroupKind::AppliedTo, record) {
            return Vec::new();
        }
        let selectors = self.index.cohort_of(cohort).selectors().iter();
        let groups = selectors.filter_map(|id| self.groups_by_selector.get(id.index())).flatten();
        let mut groups: Vec<GroupId> = groups.copied().collect();
        groups.retain(|id| self.groups[*id].kind == GroupKind::AppliedTo);
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Whether a rule's peer is a Pod, among others.
    fn is_about(&self, peer: &NetworkPolicyPeer, pod: Placed) -> bool {
        let Some((_, record)) = self.index.pod(pod.pod) else { return false };
        let in_group = |name: &String| {
            let key = (GroupKind::Address, GroupName::parse(name));
            let Some(group) = self.group_by_name.get(&key).map(|id| &self.groups[*id]) else {
                return false;
            };
            let nodes = self.index.seen_nodes().filter(|node| self.has_node(group, *node));
            let mut nodes = nodes.filter_map(|node| self.index.node(node));
            (fits(GroupKind::Address, record) && self.has_cohort(group, pod.cohort))
                || (!group.node_selectors.is_empty()
                    && nodes.any(|node| record.ips().any(|ip| node.ips().contains(&ip))))
        };
        peer.address_groups.iter().any(in_group) || in_block(peer, record)
    }
}

fn in_block(peer: &NetworkPolicyPeer, record: &PodRecord) -> bool {
    peer.ip_blocks.iter().any(|block| {
        record.ips().any(|ip| {
            block.cidr.contains(&ip) && !block.except.iter().any(|except| except.contains(&ip))
        })
    })
}

fn mk_match(policy: &NetworkPolicy, rule: &NetworkPolicyRule, place: usize) -> Option<Match> {
    let place = i32::try_from(place).unwrap_or(i32::MAX);
    Some(Match {
        rank: policy.tier_priority.map(|tier| (tier, policy.priority.unwrap_or_default())),
        priority: rule.priority,
        // A rule may have been told once for each namespace; its priority is its place.
        index: if rule.priority < 0 { place } else { rule.priority },
        action: rule.action.clone().unwrap_or(RuleAction::Allow),
        name: rule.name.clone(),
        source: policy.source_ref.clone()?,
    })
}

fn order(own: &Match) -> (Option<(i32, f64)>, i32, u8, &NetworkPolicyReference) {
    let action = match own.action {
        RuleAction::Drop => 0,
        RuleAction::Reject => 1,
        RuleAction::Pass => 2,
        RuleAction::Allow => 3,
        RuleAction::Unknown(_) => 4,
    };
    (own.rank, own.priority, action, &own.source)
}

/// The first rule that decides, of rules in their order.
fn decide(
    matches: Vec<Match>,
    isolates: Option<NetworkPolicyReference>,
    direction: Direction,
) -> Option<Decided> {
    let tier = |own: &Match| own.rank.map(|(tier, _)| tier);
    let first = |fits: &dyn Fn(Option<i32>) -> bool| matches.iter().find(|own| fits(tier(own)));
    let decided = |own: &Match| Decided {
        refuses: matches!(own.action, RuleAction::Drop | RuleAction::Reject),
        response: NetworkPolicyEvaluationResponse {
            network_policy: own.source.clone(),
            rule_index: own.index,
            rule: RuleRef { direction, name: own.name.clone(), action: Some(own.action.clone()) },
        },
    };
    let is_verdict =
        |own: &&Match| !matches!(own.action, RuleAction::Pass | RuleAction::Unknown(_));
    if let Some(own) = first(&|tier| tier.is_some_and(|tier| tier < BASELINE)).filter(is_verdict) {
        return Some(decided(own));
    }
    if let Some(own) = first(&|tier| tier.is_none()) {
        return Some(decided(own));
    }
    if let Some(network_policy) = isolates {
        let rule = RuleRef { direction, name: String::new(), action: Some(RuleAction::Drop) };
        let rule_index = DEFAULT_ISOLATION;
        let response = NetworkPolicyEvaluationResponse { network_policy, rule_index, rule };
        return Some(Decided { refuses: true, response });
    }
    first(&|tier| tier.is_some_and(|tier| tier >= BASELINE)).filter(is_verdict).map(decided)
}
