//! All nodes' share: what each Node told last, summed for each policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use apis::controlplane::{NetworkPolicyReference, NetworkPolicyStats, NodeStatsSummary};

use super::Totals;
use super::counting::put;

/// A policy on a Node: UID and name.
pub type Key = (Arc<str>, Arc<str>);

/// What a Node told of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// When, in milliseconds since 1970.
    made: u64,
    of: NetworkPolicyReference,
    totals: Totals,
}

/// What Nodes told of policies; see the module's text.
#[derive(Debug, Default)]
pub struct Sums {
    policies: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Kept>>,
}

impl Sums {
    /// Takes what a Node says itself, `now` milliseconds after 1970: nothing that is known of it is
    /// newer, whatever clocks say. Returns the policies that it is about, and when it was made.
    pub fn report_now(&mut self, summary: &NodeStatsSummary, now: u64) -> (Vec<Key>, u64) {
        let node = summary.metadata.name.as_deref().unwrap_or_default();
        let before = all(summary).filter_map(|policy| {
            let nodes = self.policies.get(policy.network_policy.uid.as_str())?;
            nodes.get(node).map(|kept| kept.made)
        });
        let made = before.max().map_or(now, |before| now.max(before.saturating_add(1)));
        (self.report(summary, made), made)
    }

    /// Takes what a Node said once; what it said later stays. Returns the policies that changed.
    pub fn report(&mut self, summary: &NodeStatsSummary, made: u64) -> Vec<Key> {
        let node: Arc<str> = summary.metadata.name.as_deref().unwrap_or_default().into();
        let mut changed = Vec::new();
        for policy in all(summary) {
            let of = &policy.network_policy;
            let uid = match self.policies.get_key_value(of.uid.as_str()) {
                Some((uid, _)) => Arc::clone(uid),
                None => of.uid.as_str().into(),
            };
            let nodes = self.policies.entry(Arc::clone(&uid)).or_default();
            if nodes.get(&node).is_some_and(|kept| kept.made >= made) {
                continue;
            }
            let totals = Totals::of(policy.traffic_stats, &policy.rule_traffic_stats);
            nodes.insert(Arc::clone(&node), Kept { made, of: of.clone(), totals });
            changed.push((uid, Arc::clone(&node)));
        }
        changed
    }

    /// What all Nodes met of a policy.
    #[must_use]
    pub fn of_policy(&self, uid: &str) -> Totals {
        let mut sum = Totals::default();
        for kept in self.policies.get(uid).into_iter().flat_map(BTreeMap::values) {
            sum.add_all(&kept.totals);
        }
        sum
    }

    /// What was told of these, to be told on: summaries of one Node and one time each.
    pub fn told<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
    ) -> Vec<(u64, NodeStatsSummary)> {
        let mut by_report: BTreeMap<(Arc<str>, u64), NodeStatsSummary> = BTreeMap::new();
        for (uid, node) in keys {
            let nodes = self.policies.get(uid);
            let Some(kept) = nodes.and_then(|nodes| nodes.get(node)) else { continue };
            let summary = by_report.entry((Arc::clone(node), kept.made)).or_default();
            summary.metadata.name = Some((**node).to_owned());
            put(summary, kept.of.clone(), &kept.totals);
        }
        by_report.into_iter().map(|((_, made), summary)| (made, summary)).collect()
    }

    /// Forgets policies and Nodes that are gone. Returns what was forgotten.
    pub fn retain(
        &mut self,
        policy: impl Fn(&str) -> bool,
        node: impl Fn(&str) -> bool,
    ) -> Vec<Key> {
        let mut gone = Vec::new();
        self.policies.retain(|uid, nodes| {
            let stays = policy(uid);
            nodes.retain(|name, _| {
                let stays = stays && node(name);
                if !stays {
                    gone.push((Arc::clone(uid), Arc::clone(name)));
                }
                stays
            });
            !nodes.is_empty()
        });
        gone
    }
}

fn all(summary: &NodeStatsSummary) -> impl Iterator<Item = &NetworkPolicyStats> {
    let antrea =
        summary.antrea_cluster_network_policies.iter().chain(&summary.antrea_network_policies);
    let all = summary.network_policies.iter().chain(antrea);
    // Whoever names no policy says nothing.
    all.filter(|policy| !policy.network_policy.uid.is_empty())
}

#[cfg(test)]
mod tests {
    use apis::controlplane::{PolicyType, RuleTrafficStats, TrafficStats};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn mk(node: &str, uid: &str, packets: i64) -> NodeStatsSummary {
        let traffic = TrafficStats { packets, bytes: packets.saturating_mul(10), sessions: 1 };
        let policy = NetworkPolicyStats {
            network_policy: NetworkPolicyReference {
                type_: PolicyType::AntreaClusterNetworkPolicy,
                namespace: String::new(),
                name: uid.to_owned(),
                uid: uid.to_owned(),
            },
            traffic_stats: traffic,
            rule_traffic_stats: vec![RuleTrafficStats {
                name: "r".to_owned(),
                traffic_stats: traffic,
            }],
        };
        NodeStatsSummary {
            metadata: ObjectMeta { name: Some(node.to_owned()), ..ObjectMeta::default() },
            antrea_cluster_network_policies: vec![policy],
            ..NodeStatsSummary::default()
        }
    }

    #[test]
    fn the_newest_of_each_node_counts_once_in_whatever_order_it_comes() {
        let all = [(mk("n1", "p", 5), 1), (mk("n1", "p", 8), 3), (mk("n2", "p", 1), 2)];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut sums = Sums::default();
            for n in order.into_iter().chain([0, 1]) {
                sums.report(&all[n].0, all[n].1);
            }
            let sum = sums.of_policy("p");
            assert_eq!(sum.all(), TrafficStats { packets: 9, bytes: 90, sessions: 2 });
            assert_eq!(sum.rules().len(), 1);
            assert_eq!(sum.rules()[0].traffic_stats, sum.all());
        }
    }

    #[test]
    fn a_replica_that_is_told_everything_knows_the_same() {
        let mut first = Sums::default();
        let mut keys = Vec::new();
        for (summary, now) in [(mk("n1", "p", 5), 9), (mk("n1", "p", 6), 4), (mk("n2", "q", 1), 2)]
        {
            keys.extend(first.report_now(&summary, now).0);
        }
        let mut second = Sums::default();
        for (made, summary) in first.told(&keys) {
            second.report(&summary, made);
        }
        // What the Node said last counts, though a clock went back.
        assert_eq!(first.of_policy("p").all().packets, 6);
        assert_eq!(second.policies, first.policies);
        let gone = second.retain(|uid| uid == "p", |_| true);
        assert_eq!(gone, [("q".into(), "n2".into())]);
        assert_eq!(second.of_policy("q"), Totals::default());
        assert_eq!(second.retain(|_| true, |node| node != "n1").len(), 1);
        assert!(second.policies.is_empty());
    }

    #[test]
    fn numbers_that_cannot_be_counters_do_no_harm() {
        let mut sums = Sums::default();
        sums.report(&mk("n1", "p", i64::MIN / 10), 1);
        sums.report(&mk("n2", "p", i64::MAX / 10), 1);
        sums.report(&mk("n3", "p", i64::MAX / 10 * 9), 1);
        sums.report(&mk("n4", "", 1), 1);
        assert_eq!(sums.of_policy("p").all().packets, i64::MAX / 10 * 10);
        sums.report(&mk("n5", "p", i64::MAX / 10), 1);
        assert_eq!(sums.of_policy("p").all().packets, i64::MAX);
        assert_eq!(sums.policies.len(), 1);
    }
}
