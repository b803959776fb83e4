//! What the flows that count a rule's packets count, read back from the switch.

use openflow::{ConjId, CtState, Field, Flow};
use serde::{Deserialize, Serialize};

use super::{Direction, metric_table};
use crate::fields::{COOKIE_OBJECT, POLICY_DENY};

/// Which of a rule's packets a flow counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Counts {
    /// Those that open a connection which the rule allows.
    Opening,
    /// The later ones of such connections, either way.
    Known,
    /// Those that the rule denies.
    Denied,
}

/// A flow that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Counter {
    /// Number of the rule.
    pub rule: u32,
    /// What it counts.
    pub counts: Counts,
}

/// What a flow counts; `None` for one that is there for no rule, or counts nothing.
#[must_use]
pub fn read_counter(flow: &Flow) -> Option<Counter> {
    let counting = [Direction::Egress, Direction::Ingress].map(metric_table);
    let rule = u32::try_from(flow.cookie.0 & COOKIE_OBJECT).ok().filter(|rule| *rule != 0)?;
    if !counting.contains(&flow.table) {
        return None;
    }
    let has = |field: Field, bit: u128| {
        flow.matching.get(field).is_some_and(|masked| masked.value & bit == bit)
    };
    let new = CtState::NEW.bits().into();
    let denied = POLICY_DENY.place;
    let counts = if has(denied.field, 1 << denied.offset) {
        Counts::Denied
    } else if has(Field::CtState, new) {
        Counts::Opening
    } else {
        Counts::Known
    };
    Some(Counter { rule, counts })
}

impl Counter {
    /// The number of the rule, as flows have it.
    #[must_use]
    pub const fn id(&self) -> ConjId {
        ConjId(self.rule)
    }
}
