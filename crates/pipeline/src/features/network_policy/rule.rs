//! What happens when all clauses of a rule are met, and how it is counted.

use openflow::{Action, ConjId, CtState, Flow, Match};

use super::gates::PolicyConfig;
use super::packet_in::{Operation, to_agent};
use super::{Direction, Place, Verdict, metric_table, rule_table};
use crate::fields::{
    self, CT_EGRESS_RULE, CT_INGRESS_RULE, Category, EGRESS_RULE_ID, INGRESS_RULE_ID, NORMAL,
    POLICY_CONJ_ID, POLICY_DENY, POLICY_DISPOSITION, cookie,
};

/// One rule, or the part of one that has a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSpec {
    /// Its number.
    pub id: ConjId,
    /// Which way it looks.
    pub direction: Direction,
    /// Which table it is in.
    pub place: Place,
    /// Its priority there.
    pub priority: u16,
    /// What it says.
    pub verdict: Verdict,
    /// Whether the agent hears of each connection.
    pub log: bool,
    /// Tells whose rule it is, to an agent that starts anew.
    pub owner: [u8; 12],
}

impl RuleSpec {
    /// The priority of the flow that acts.
    const fn action_priority(&self) -> u16 {
        match self.place {
            Place::Kubernetes => fields::K8S_RULE_ACTION,
            Place::Tiered | Place::Baseline | Place::NodePort => self.priority,
        }
    }

    fn operation(&self) -> Option<Operation> {
        match (self.log, self.verdict == Verdict::Reject) {
            (true, true) => Some(Operation::LogAndReject),
            (true, false) => Some(Operation::Log),
            (false, true) => Some(Operation::Reject),
            (false, false) => None,
        }
    }
}

/// The flow that acts once all clauses are met, and the flows that count.
#[must_use]
pub fn rule_flows(config: &PolicyConfig, rule: &RuleSpec) -> Vec<Flow> {
    let mut flows = vec![action_flow(config, rule)];
    flows.extend(metric_flows(rule));
    flows
}

fn action_flow(config: &PolicyConfig, rule: &RuleSpec) -> Flow {
    let table = rule_table(rule.direction, rule.place);
    let metric = metric_table(rule.direction);
    let id = u128::from(rule.id.0);
    let met = match rule.direction {
        Direction::Egress => EGRESS_RULE_ID,
        Direction::Ingress => INGRESS_RULE_ID,
    };
    let disposition = Action::load(POLICY_DISPOSITION, rule.verdict.number().into());
    let mut actions = vec![Action::Note(rule.owner.to_vec())];
    let next = match rule.verdict {
        Verdict::Allow => {
            actions.extend([Action::load(met, id), disposition]);
            match rule.place {
                Place::NodePort => rule_table(rule.direction, Place::Tiered),
                Place::Tiered | Place::Kubernetes | Place::Baseline => metric,
            }
        }
        Verdict::Drop | Verdict::Reject => {
            actions.extend([Action::load(POLICY_CONJ_ID, id), POLICY_DENY.load(), disposition]);
            metric
        }
        Verdict::Pass => {
            actions.extend([Action::load(met, id), disposition]);
            match rule.place {
                Place::Tiered => rule_table(rule.direction, Place::Kubernetes),
                Place::NodePort => rule_table(rule.direction, Place::Tiered),
                Place::Kubernetes | Place::Baseline => metric,
            }
        }
    };
    if let Some(operation) = rule.operation() {
        actions.push(to_agent(config, operation));
    }
    Flow::new(table, rule.action_priority(), Match::new().conj_id(rule.id))
        .cookie(cookie(Category::NetworkPolicy, rule.id.0))
        .actions(actions)
        .goto_table(next)
}

/// A rule that allows is counted by the connection's label, with a flow of its own for packets that
/// open one; a rule that denies, by what it noted in the registers.
fn metric_flows(rule: &RuleSpec) -> Vec<Flow> {
    let table = metric_table(rule.direction);
    let id = u128::from(rule.id.0);
    let flow = |matching| {
        Flow::new(table, NORMAL, matching).cookie(cookie(Category::NetworkPolicy, rule.id.0))
    };
    match rule.verdict {
        Verdict::Drop | Verdict::Reject => {
            vec![flow(POLICY_DENY.of(Match::new().reg(POLICY_CONJ_ID, id)))]
        }
        Verdict::Allow | Verdict::Pass => {
            let (met, label) = match rule.direction {
                Direction::Egress => (EGRESS_RULE_ID, CT_EGRESS_RULE),
                Direction::Ingress => (INGRESS_RULE_ID, CT_INGRESS_RULE),
            };
            let next = match rule.direction {
                Direction::Egress => fields::L3_FORWARDING,
                Direction::Ingress => fields::CONNTRACK_COMMIT,
            };
            let new = Match::new().ct_state(CtState::TRK | CtState::NEW, CtState::empty());
            let known = Match::new().ct_state(CtState::TRK, CtState::NEW | CtState::INV);
            vec![
                flow(new.reg(met, id)).goto_table(next),
                flow(known.reg(label, id)).goto_table(next),
            ]
        }
    }
}
