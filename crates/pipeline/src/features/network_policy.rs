//! Turns policy rules into the flows that enforce them.
//!
//! A rule is a conjunction: a packet has to meet one alternative of each of its clauses (from, to,
//! and the service if the rule has one). Each alternative is a flow, shared by all rules that have
//! it; the conjunction's number is the rule's. A packet on its way out meets, in this order, rules
//! of Antrea's tiers, those of Kubernetes policies, and those of baseline tiers, then is counted;
//! on its way in, the same again.
//!
//! A connection is committed once, after all of that, with the numbers of the rules that let it
//! pass as its label. So a packet of a connection that was committed with its source noted was
//! allowed before, and passes; its rules are read from the label.
//!
//! Pure: the caller says which rules there are, their numbers and priorities. Not here: which Pods
//! a rule selects (`policy`), and which flows share a match (`policy::realize`).

mod clause;
mod closed;
mod counter;
mod gates;
mod isolation;
mod packet_in;
mod ports;
mod rule;

use std::collections::BTreeSet;

use openflow::TableId;

pub use clause::{
    Clause, ClauseKey, Family, L4, ServiceMatch, ServiceSpec, Transport, clause_flow,
};
pub use closed::closed_flows;
pub use counter::{Counter, Counts, read_counter};
pub use gates::{HostMark, PolicyConfig, node_flows};
pub use isolation::{Isolation, dns_flows};
pub use packet_in::{PolicyPacket, is_dns_answer, read_packet_in};
pub use ports::{PortMask, PortRange};
pub use rule::{RuleSpec, rule_flows};

use crate::fields;

/// Which way a rule looks, seen from the Pod it is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// What the Pod sends.
    Egress,
    /// What the Pod gets.
    Ingress,
}

/// Which of the three tables of a direction a rule is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Rules of tiers that come before Kubernetes policies.
    Tiered,
    /// Rules of Kubernetes policies.
    Kubernetes,
    /// Rules of tiers that only count where no Kubernetes policy isolates a Pod.
    Baseline,
    /// Rules, of any tier, that are applied to NodePorts of Services. They have one table, where
    /// connections come in, whichever way they look.
    NodePort,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The packet passes this direction's policies.
    Allow,
    /// The packet vanishes.
    Drop,
    /// The packet vanishes and its sender is told.
    Reject,
    /// The packet goes on with Kubernetes policies.
    Pass,
}

impl Verdict {
    /// The number in [`fields::POLICY_DISPOSITION`].
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::Drop => 1,
            Self::Reject => 2,
            Self::Pass => 3,
        }
    }
}

/// The table of rules in this place.
#[must_use]
pub const fn rule_table(direction: Direction, place: Place) -> TableId {
    match (direction, place) {
        (_, Place::NodePort) => fields::NODE_PORT_RULE,
        (Direction::Egress, Place::Tiered) => fields::ANTREA_POLICY_EGRESS_RULE,
        (Direction::Egress, Place::Kubernetes) => fields::EGRESS_RULE,
        (Direction::Egress, Place::Baseline) => fields::EGRESS_DEFAULT_RULE,
        (Direction::Ingress, Place::Tiered) => fields::ANTREA_POLICY_INGRESS_RULE,
        (Direction::Ingress, Place::Kubernetes) => fields::INGRESS_RULE,
        (Direction::Ingress, Place::Baseline) => fields::INGRESS_DEFAULT_RULE,
    }
}

/// The table that counts a direction's packets and drops those that were denied.
#[must_use]
pub const fn metric_table(direction: Direction) -> TableId {
    match direction {
        Direction::Egress => fields::EGRESS_METRIC,
        Direction::Ingress => fields::INGRESS_METRIC,
    }
}

/// The direction and place that a table's rules have; none for tables without rules.
#[must_use]
pub fn rules_of(table: TableId) -> Option<(Direction, Place)> {
    let directions = [Direction::Egress, Direction::Ingress];
    let places = [Place::Tiered, Place::Kubernetes, Place::Baseline, Place::NodePort];
    directions
        .into_iter()
        .flat_map(|direction| places.map(|place| (direction, place)))
        .find(|(direction, place)| rule_table(*direction, *place) == table)
}

/// The tables this feature uses.
pub(crate) fn needed_tables() -> BTreeSet<TableId> {
    BTreeSet::from([
        fields::ANTREA_POLICY_EGRESS_RULE,
        fields::EGRESS_RULE,
        fields::EGRESS_DEFAULT_RULE,
        fields::EGRESS_METRIC,
        fields::ANTREA_POLICY_INGRESS_RULE,
        fields::INGRESS_RULE,
        fields::INGRESS_DEFAULT_RULE,
        fields::INGRESS_METRIC,
    ])
}
