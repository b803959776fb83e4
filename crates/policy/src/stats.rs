//! How much traffic policies' rules met: counted on each node, summed over all nodes.
//!
//! Pure. An agent reads counters of flows, which begin anew whenever a flow does, and [`Counting`]
//! makes of them totals that only grow. The controller is told totals, never differences, so that
//! nothing depends on how often a report comes, on its order, or on whether its answer was lost: of
//! each policy, [`Sums`] keeps what each Node told last.
//!
//! Not here: reading flows (`switch`), what flows count (`pipeline::policy`), the API (`controller`).

mod counting;
mod sums;

use std::collections::BTreeMap;

use apis::controlplane::{RuleTrafficStats, TrafficStats};
use serde::{Deserialize, Serialize};

pub use counting::{Boot, Counting, Reading};
pub use sums::{Kept, Key, Sums};

/// What a policy met: its rules by name, or by no name where its kind names none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals(BTreeMap<String, Traffic>);

/// Counters of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Connections; packets, where they are denied.
    pub sessions: u64,
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, other: Self) {
        self.sessions = self.sessions.saturating_add(other.sessions);
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    fn api(self) -> TrafficStats {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        TrafficStats {
            packets: number(self.packets),
            bytes: number(self.bytes),
            sessions: number(self.sessions),
        }
    }

    /// Counters are never below zero; what says so counts as zero.
    fn of(api: TrafficStats) -> Self {
        let number = |n: i64| u64::try_from(n).unwrap_or(0);
        Self {
            sessions: number(api.sessions),
            packets: number(api.packets),
            bytes: number(api.bytes),
        }
    }
}

impl Totals {
    fn add(&mut self, rule: &str, traffic: Traffic) {
        if let Some(known) = self.0.get_mut(rule) {
            known.add(traffic);
        } else {
            self.0.insert(rule.to_owned(), traffic);
        }
    }

    fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(rule, traffic)| self.add(rule, *traffic));
    }

    /// Everything together.
    #[must_use]
    pub fn all(&self) -> TrafficStats {
        let mut all = Traffic::default();
        self.0.values().for_each(|traffic| all.add(*traffic));
        all.api()
    }

    /// By rule, in the order of names; rules without a name have no counters of their own.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleTrafficStats> {
        let named = self.0.iter().filter(|(name, _)| !name.is_empty());
        named
            .map(|(name, traffic)| RuleTrafficStats {
                name: name.clone(),
                traffic_stats: traffic.api(),
            })
            .collect()
    }

    /// From the form of the API.
    fn of(all: TrafficStats, rules: &[RuleTrafficStats]) -> Self {
        if rules.is_empty() {
            return Self([(String::new(), Traffic::of(all))].into());
        }
        let each = rules.iter().map(|rule| (rule.name.clone(), Traffic::of(rule.traffic_stats)));
        Self(each.collect())
    }
}
