//! Tiers.

use apis::policy::{SYSTEM_TIERS, TierSpec};

use super::{Cluster, Refusal, Refusals};

/// How many tiers there may be, those of the system included.
const MOST: usize = 20;
/// Priorities that stand for Kubernetes' own policies and what is around them.
const RESERVED: &[i32] = &[251, 252, 254, 255];
/// Priority of the Admin tier of Kubernetes' ClusterNetworkPolicy.
const UPSTREAM_ADMIN: i32 = 220;

/// Judges a new tier.
pub fn create_tier(cluster: &impl Cluster, name: &str, spec: &TierSpec) -> Vec<Refusal> {
    let mut refusals = Refusals::default();
    let others: Vec<(String, i32)> =
        cluster.tiers().into_iter().filter(|(other, _)| other != name).collect();
    if others.len() >= MOST {
        refusals.add("metadata.name", format!("there are {MOST} tiers already"));
    }
    let priority = spec.priority;
    if RESERVED.contains(&priority) || priority == UPSTREAM_ADMIN {
        refusals.add("spec.priority", format!("{priority} is reserved"));
    }
    // Those of the system are taken even before their objects are there.
    let system = SYSTEM_TIERS.iter().map(|(own, priority)| (*own, *priority));
    let mut taken = others.iter().map(|(own, priority)| (own.as_str(), *priority)).chain(system);
    if let Some((other, _)) = taken.find(|(own, taken)| *own != name && *taken == priority) {
        refusals.add("spec.priority", format!("{priority} is the priority of tier {other:?}"));
    }
    refusals.0
}

/// Judges a changed tier.
pub fn update_tier(old: &TierSpec, new: &TierSpec) -> Vec<Refusal> {
    let mut refusals = Refusals::default();
    if old.priority != new.priority {
        refusals.add("spec.priority", "it cannot be changed");
    }
    refusals.0
}

/// Judges the deletion of a tier.
pub fn delete_tier(cluster: &impl Cluster, name: &str) -> Vec<Refusal> {
    let mut refusals = Refusals::default();
    if SYSTEM_TIERS.iter().any(|(own, _)| *own == name) {
        refusals.add("metadata.name", format!("tier {name:?} belongs to the system"));
    } else if cluster.tier_is_used(name) {
        refusals.add("metadata.name", format!("policies are of tier {name:?}"));
    }
    refusals.0
}

/// Judges a new ClusterNetworkPolicy of Kubernetes.
pub fn create_upstream(cluster: &impl Cluster) -> Vec<Refusal> {
    let mut refusals = Refusals::default();
    let tiers = cluster.tiers();
    if let Some((name, _)) = tiers.iter().find(|(_, priority)| *priority == UPSTREAM_ADMIN) {
        let reason = format!("tier {name:?} has the priority of its Admin tier, {UPSTREAM_ADMIN}");
        refusals.add("spec.tier", reason);
    }
    refusals.0
}
