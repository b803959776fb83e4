//! Tells what a change of a user's objects changes in who may connect to whom, and which rules
//! decided before and decide after.
//!
//! Pure: two clusters in, changes out. The outside is cut at the networks of both, so that what is
//! compared is alike.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::connectivity::{Connectivity, Range, Workload, join};
use crate::verdict::{Action, Cluster, ConnectionSet, Decision, End, Family, PortSet, Verdict};

/// A cluster with names for its Pods.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The names.
    pub workloads: &'a [Workload],
}

/// A pair that may do something else than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where connections come from.
    pub source: String,
    /// Where they go.
    pub destination: String,
    /// Which could be made before.
    pub before: ConnectionSet,
    /// Which can be made now.
    pub after: ConnectionSet,
    /// Workloads of the pair that are only in one of the versions.
    pub workloads: Vec<(String, Presence)>,
    /// What decided and decides, where both versions have the pair.
    pub details: Vec<Detail>,
}

/// Where a workload is that is not in both versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// In the new one only.
    Added,
    /// In the old one only.
    Removed,
}

/// Traffic whose fate has changed, with the two sides that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detail {
    /// The traffic.
    pub traffic: ConnectionSet,
    /// What decided before.
    pub before: Decision,
    /// What decides now.
    pub after: Decision,
}

/// One end of a compared pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot<'a> {
    Workload(&'a str),
    Range(Range),
}

impl std::fmt::Display for Spot<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Workload(name) => f.write_str(name),
            Self::Range(range) => range.fmt(f),
        }
    }
}

/// All changes from one version to another, in order of source and destination.
pub fn changes(old: Version<'_>, new: Version<'_>) -> Vec<Change> {
    let mut networks = [old.cluster.networks(), new.cluster.networks()].concat();
    let has_v6 = |version: Version<'_>| {
        version.cluster.pods().any(|pod| version.cluster.pod_addrs(pod).iter().any(IpAddr::is_ipv6))
    };
    if has_v6(old) || has_v6(new) {
        // Both versions are to speak of the same families.
        networks.extend("::/0".parse::<ipnet::IpNet>());
    }
    networks.sort_unstable();
    networks.dedup();
    let before = Connectivity::new(old.cluster, old.workloads, &networks);
    let after = Connectivity::new(new.cluster, new.workloads, &networks);
    let comparison = Comparison::new(old, new);

    let mut found = Vec::new();
    let none = ConnectionSet::default();
    for pair in keys(&before.workloads, &after.workloads) {
        let sets = [&before, &after].map(|map| map.workloads.get(pair).unwrap_or(&none));
        let (source, destination) = (Spot::Workload(&pair.0), Spot::Workload(&pair.1));
        found.extend(comparison.change(source, destination, sets[0], sets[1]));
    }
    let ranges = &before.ranges;
    let no_sets = vec![none; ranges.len()];
    for name in keys(&before.from_outside, &after.from_outside) {
        let sets = [&before, &after].map(|map| map.from_outside.get(name).unwrap_or(&no_sets));
        let pairs: Vec<_> = sets[0].iter().zip(sets[1]).collect();
        for (range, (before, after)) in join(ranges, &pairs) {
            let (source, destination) = (Spot::Range(range), Spot::Workload(name));
            found.extend(comparison.change(source, destination, before, after));
        }
    }
    for name in keys(&before.to_outside, &after.to_outside) {
        let sets = [&before, &after].map(|map| map.to_outside.get(name).unwrap_or(&no_sets));
        let pairs: Vec<_> = sets[0].iter().zip(sets[1]).collect();
        for (range, (before, after)) in join(ranges, &pairs) {
            let (source, destination) = (Spot::Workload(name), Spot::Range(range));
            found.extend(comparison.change(source, destination, before, after));
        }
    }
    found.sort_by(|a, b| (&a.source, &a.destination).cmp(&(&b.source, &b.destination)));
    found
}

fn keys<'a, K: Ord, V>(one: &'a BTreeMap<K, V>, other: &'a BTreeMap<K, V>) -> BTreeSet<&'a K> {
    one.keys().chain(other.keys()).collect()
}

/// What is needed to explain a change.
struct Comparison<'a> {
    old: Version<'a>,
    new: Version<'a>,
    old_names: BTreeMap<&'a str, &'a Workload>,
    new_names: BTreeMap<&'a str, &'a Workload>,
}

impl<'a> Comparison<'a> {
    fn new(old: Version<'a>, new: Version<'a>) -> Self {
        let names = |version: Version<'a>| {
            version.workloads.iter().map(|workload| (workload.name.as_str(), workload)).collect()
        };
        Self { old, new, old_names: names(old), new_names: names(new) }
    }

    fn change(
        &self,
        source: Spot<'_>,
        destination: Spot<'_>,
        before: &ConnectionSet,
        after: &ConnectionSet,
    ) -> Option<Change> {
        if before == after {
            return None;
        }
        let workloads: Vec<_> = [source, destination]
            .into_iter()
            .filter_map(|spot| {
                let Spot::Workload(name) = spot else { return None };
                let presence = match (self.old_names.get(name), self.new_names.get(name)) {
                    (None, Some(_)) => Presence::Added,
                    (Some(_), None) => Presence::Removed,
                    _ => return None,
                };
                Some((name.to_owned(), presence))
            })
            .collect();
        let details = if workloads.is_empty() {
            let changed = before.subtract(after).union(&after.subtract(before));
            self.details(source, destination, &changed)
        } else {
            Vec::new()
        };
        Some(Change {
            source: source.to_string(),
            destination: destination.to_string(),
            before: before.clone(),
            after: after.clone(),
            workloads,
            details,
        })
    }

    /// Sorts traffic by what decided and decides about it.
    fn details(
        &self,
        source: Spot<'_>,
        destination: Spot<'_>,
        changed: &ConnectionSet,
    ) -> Vec<Detail> {
        let icmp = self.old.cluster.speaks_of_icmp() || self.new.cluster.speaks_of_icmp();
        let changed = if icmp { changed.clone() } else { without_icmp(changed) };
        let before = decisions(self.old.cluster, &self.old_names, source, destination);
        let after = decisions(self.new.cluster, &self.new_names, source, destination);
        let mut details: Vec<Detail> = Vec::new();
        for (traffic, before) in &before {
            for (also, after) in &after {
                let both = changed.intersect(&traffic.intersect(also));
                let (before, after) = (before.deciding().1, after.deciding().1);
                let differ = (before.action == Action::Allow) != (after.action == Action::Allow);
                if both.is_empty() || !differ {
                    continue;
                }
                match details.iter_mut().find(|d| d.before == *before && d.after == *after) {
                    Some(known) => known.traffic = known.traffic.union(&both),
                    None => details.push(Detail {
                        traffic: both,
                        before: before.clone(),
                        after: after.clone(),
                    }),
                }
            }
        }
        if !icmp {
            details.iter_mut().for_each(|detail| detail.traffic = detail.traffic.with_ports_only());
        }
        details
    }
}

fn without_icmp(set: &ConnectionSet) -> ConnectionSet {
    ConnectionSet { icmp: PortSet::default(), other: false, ..set.clone() }
}

/// Decisions about a pair, with one Pod for each workload and one address for each range.
fn decisions(
    cluster: &Cluster,
    names: &BTreeMap<&str, &Workload>,
    source: Spot<'_>,
    destination: Spot<'_>,
) -> Vec<(ConnectionSet, Verdict)> {
    let end = |spot| match spot {
        Spot::Workload(name) => {
            names.get(name).and_then(|workload| workload.pods.first()).copied().map(End::Pod)
        }
        Spot::Range(range) => Some(End::Addr(range.first)),
    };
    let (Some(source), Some(destination)) = (end(source), end(destination)) else {
        return Vec::new();
    };
    let family = cluster.families(source, destination).first().copied().unwrap_or(Family::V4);
    let (from, to) = (cluster.side(source, family), cluster.side(destination, family));
    cluster.decisions(from, to, cluster.unspoken_source_port())
}
