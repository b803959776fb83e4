//! A node's share: from counters of flows to totals of policies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use apis::controlplane::{
    NetworkPolicyReference, NetworkPolicyStats, NodeStatsSummary, PolicyType,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pipeline::policy::{Counter, Counts};
use serde::{Deserialize, Serialize};

use super::{Totals, Traffic};
use crate::realize::RuleInfo;

/// Totals of so many policies are kept that this node does not have any more: they may come back.
const GONE_KEPT: usize = 1000;
/// A flow's age may be told this much too short.
const GRAIN: Duration = Duration::from_secs(1);

/// Counters of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// What it counts.
    pub counter: Counter,
    /// Packets that met it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// For how long it has been there.
    pub age: Duration,
}

/// When counters were read: ages of flows mean nothing across a start of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// Names this start of the machine.
    pub id: String,
    /// Time since then.
    pub since: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    counter: Counter,
    packets: u64,
    bytes: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Policy {
    of: NetworkPolicyReference,
    totals: Totals,
    /// Number of the reading that changed it last.
    changed: u64,
}

/// Totals of a node's policies; see the module's text. Kept on disk as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Counting {
    read_at: Option<Boot>,
    last: Vec<Last>,
    n_readings: u64,
    policies: BTreeMap<String, Policy>,
}

impl Counting {
    /// Takes in the counters of all rules' flows. `rule` tells whose a rule is; what nobody has any
    /// more is not counted. Policies that are not among `known` (by UID) are forgotten in time.
    pub fn take(
        &mut self,
        at: Boot,
        readings: &[Reading],
        rule: impl Fn(&Counter) -> Option<RuleInfo>,
        known: &BTreeSet<String>,
    ) {
        self.n_readings += 1;
        // As if flows of before were not these: then all that they count is new.
        let same_boot = self.read_at.as_ref().filter(|before| before.id == at.id);
        let between = same_boot.map(|before| at.since.saturating_sub(before.since));
        let last: BTreeMap<Counter, Last> = match between {
            Some(_) => self.last.drain(..).map(|last| (last.counter, last)).collect(),
            None => BTreeMap::new(),
        };
        self.last.clear();
        for reading in readings {
            let Reading { counter, packets, bytes, age } = *reading;
            self.last.push(Last { counter, packets, bytes });
            let stayed = between.is_some_and(|between| age + GRAIN >= between);
            let before = last.get(&counter).filter(|last| stayed && last.packets <= packets);
            let (packets, bytes) = match before {
                Some(last) => (packets - last.packets, bytes.saturating_sub(last.bytes)),
                None => (packets, bytes),
            };
            let sessions = if counter.counts == Counts::Known { 0 } else { packets };
            if packets > 0
                && let Some(info) = rule(&counter)
            {
                self.count(&info, Traffic { sessions, packets, bytes });
            }
        }
        self.read_at = Some(at);
        self.forget(known);
    }

    fn count(&mut self, info: &RuleInfo, traffic: Traffic) {
        let (Some(of), Some(rule)) = (info.source(), info.policy.rules.get(info.rule)) else {
            return;
        };
        let policy = self.policies.entry(of.uid.clone()).or_insert_with(|| Policy {
            of: of.clone(),
            totals: Totals::default(),
            changed: 0,
        });
        // A policy of Kubernetes has no named rules.
        policy.totals.add(&rule.name, traffic);
        policy.changed = self.n_readings;
    }

    fn forget(&mut self, known: &BTreeSet<String>) {
        let gone = self.policies.iter().filter(|(uid, _)| !known.contains(*uid));
        let mut gone: Vec<(u64, String)> =
            gone.map(|(uid, policy)| (policy.changed, uid.clone())).collect();
        gone.sort_unstable();
        for (_, uid) in gone.iter().take(gone.len().saturating_sub(GONE_KEPT)) {
            self.policies.remove(uid);
        }
    }

    /// Number of the newest reading.
    #[must_use]
    pub fn n_readings(&self) -> u64 {
        self.n_readings
    }

    /// What the controller is told: policies whose totals changed after a reading of this number,
    /// with at most `most` policies in a summary.
    #[must_use]
    pub fn summaries(&self, node: &str, after: u64, most: usize) -> Vec<NodeStatsSummary> {
        let changed: Vec<&Policy> =
            self.policies.values().filter(|policy| policy.changed > after).collect();
        let summary = |policies: &[&Policy]| {
            let name = Some(node.to_owned());
            let metadata = ObjectMeta { name, ..ObjectMeta::default() };
            let mut summary = NodeStatsSummary { metadata, ..NodeStatsSummary::default() };
            for policy in policies {
                put(&mut summary, policy.of.clone(), &policy.totals);
            }
            summary
        };
        changed.chunks(most.max(1)).map(summary).collect()
    }
}

/// Puts a policy where its kind is; there are no statistics of other kinds.
pub(super) fn put(summary: &mut NodeStatsSummary, of: NetworkPolicyReference, totals: &Totals) {
    let policies = match of.type_ {
        PolicyType::K8sNetworkPolicy => &mut summary.network_policies,
        PolicyType::AntreaClusterNetworkPolicy => &mut summary.antrea_cluster_network_policies,
        PolicyType::AntreaNetworkPolicy => &mut summary.antrea_network_policies,
        _ => return,
    };
    policies.push(NetworkPolicyStats {
        network_policy: of,
        traffic_stats: totals.all(),
        rule_traffic_stats: totals.rules(),
    });
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use apis::controlplane::{Direction, NetworkPolicy, NetworkPolicyRule};

    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    fn at(id: &str, seconds: u64) -> Boot {
        Boot { id: id.to_owned(), since: S(seconds) }
    }

    fn read(rule: u32, counts: Counts, packets: u64, age: u64) -> Reading {
        let counter = Counter { rule, counts };
        Reading { counter, packets, bytes: packets * 100, age: S(age) }
    }

    /// Rules 1 and 2 are of policy `a`, rule 3 is Kubernetes', rule 9 is nobody's.
    fn owner(counter: &Counter) -> Option<RuleInfo> {
        let (type_, uid, names): (_, _, &[&str]) = match counter.rule {
            1 | 2 => (PolicyType::AntreaNetworkPolicy, "a", &["web", "rest"]),
            3 => (PolicyType::K8sNetworkPolicy, "k", &[""]),
            n if n >= 100 => {
                return Some(RuleInfo {
                    policy: mk_policy(PolicyType::K8sNetworkPolicy, &n.to_string(), &[""]),
                    rule: 0,
                    priority: None,
                });
            }
            _ => return None,
        };
        let rule = if counter.rule == 2 { 1 } else { 0 };
        Some(RuleInfo { policy: mk_policy(type_, uid, names), rule, priority: None })
    }

    fn mk_policy(type_: PolicyType, uid: &str, names: &[&str]) -> Arc<NetworkPolicy> {
        let (namespace, name) = ("x".to_owned(), uid.to_owned());
        let of = NetworkPolicyReference { type_, namespace, name, uid: uid.to_owned() };
        let rule = |name: &&str| NetworkPolicyRule {
            name: (*name).to_owned(),
            ..NetworkPolicyRule::new(Direction::In)
        };
        let rules = names.iter().map(rule).collect();
        Arc::new(NetworkPolicy { source_ref: Some(of), rules, ..NetworkPolicy::default() })
    }

    fn known() -> BTreeSet<String> {
        ["a".to_owned(), "k".to_owned()].into()
    }

    /// `sessions/packets` of each policy and of its rules.
    fn shown(counting: &Counting, after: u64) -> String {
        let two = |t: apis::controlplane::TrafficStats| {
            assert_eq!(t.bytes, t.packets * 100);
            format!("{}/{}", t.sessions, t.packets)
        };
        let mut text = Vec::new();
        for summary in counting.summaries("n", after, 1) {
            assert_eq!(summary.metadata.name.as_deref(), Some("n"));
            for policy in summary.network_policies.iter().chain(&summary.antrea_network_policies) {
                text.push(format!("{} {}", policy.network_policy.uid, two(policy.traffic_stats)));
                let rules = policy.rule_traffic_stats.iter();
                text.extend(rules.map(|r| format!("{} {}", r.name, two(r.traffic_stats))));
            }
        }
        text.join(", ")
    }

    #[test]
    fn totals_only_grow_whatever_becomes_of_flows() {
        use Counts::{Denied, Known, Opening};
        let mut counting = Counting::default();
        let mut read = |at: Boot, readings: &[Reading]| {
            counting.take(at, readings, owner, &known());
            let bytes = serde_json::to_vec(&counting).unwrap();
            // The next reading may be another process'.
            counting = serde_json::from_slice(&bytes).unwrap();
            (shown(&counting, 0), shown(&counting, counting.n_readings() - 1))
        };
        let r = self::read;
        let all = [r(1, Opening, 2, 9), r(1, Known, 10, 9), r(2, Denied, 3, 9), r(9, Known, 7, 9)];
        let first = "a 5/15, rest 3/3, web 2/12";
        assert_eq!(read(at("b1", 10), &all), (first.to_owned(), first.to_owned()));
        // Nothing happened.
        let later = all.map(|reading| Reading { age: S(69), ..reading });
        assert_eq!(read(at("b1", 70), &later), (first.to_owned(), String::new()));
        // A flow was made anew and counted more than before; another goes on.
        let anew = [r(1, Opening, 5, 30), r(1, Known, 11, 129), r(3, Opening, 1, 5)];
        let all = "a 10/21, rest 3/3, web 7/18, k 1/1";
        assert_eq!(read(at("b1", 130), &anew).0, all);
        // The switch began anew: counters are lower.
        assert_eq!(
            read(at("b1", 190), &[r(1, Known, 4, 190)]).0,
            "a 10/25, rest 3/3, web 7/22, k 1/1"
        );
        // The machine began anew: ages say nothing.
        let booted = [r(1, Known, 5, 500), r(3, Opening, 1, 500)];
        assert_eq!(read(at("b2", 500), &booted).0, "a 10/30, rest 3/3, web 7/27, k 2/2");
    }

    #[test]
    fn policies_that_are_gone_are_kept_for_a_while_the_newest_longest() {
        let mut counting = Counting::default();
        for n in 0..1500 {
            let all = [read(100 + n, Counts::Denied, 1, 1), read(3, Counts::Denied, 1, 1)];
            counting.take(
                at("b", u64::from(n) * 60),
                &all[..if n == 0 { 2 } else { 1 }],
                owner,
                &known(),
            );
        }
        assert_eq!(counting.policies.len(), GONE_KEPT + 1, "and one that is known");
        assert!(counting.policies.contains_key("k") && counting.policies.contains_key("1599"));
        assert!(!counting.policies.contains_key("100"));
        assert_eq!(counting.summaries("n", 0, 400).len(), 3);
    }
}
