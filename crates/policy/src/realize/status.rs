//! How far policies are realized.

use apis::controlplane::NetworkPolicyReference;
use openflow::ConjId;

use super::{Op, Realizer};

/// How far this node is with a version of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyStatus {
    /// UID of the user's object.
    pub uid: String,
    /// The user's object; only Antrea's own kinds show a status.
    pub source: Option<NetworkPolicyReference>,
    /// The version.
    pub generation: i64,
    /// What of it is not realized, and why.
    pub failure: Option<String>,
}

/// A flow that is wanted and not on the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFlow {
    /// The rules whose flow it is; [`rules_in`] finds them.
    pub rules: Vec<ConjId>,
    /// Why it is not there.
    pub reason: String,
}

/// The rules that a flow, given as text, belongs to.
#[must_use]
pub fn rules_in(flow: &str) -> Vec<ConjId> {
    let mut rules = Vec::new();
    for before in ["conjunction(", "conj_id="] {
        for rest in flow.split(before).skip(1) {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rules.extend(rest[..digits].parse().ok().map(ConjId));
        }
    }
    rules.sort_unstable();
    rules.dedup();
    rules
}

impl Realizer {
    pub(super) fn refused(&mut self, flows: Vec<RefusedFlow>) {
        let before = std::mem::take(&mut self.refused);
        for flow in flows {
            for id in flow.rules {
                self.refused.entry(id).or_insert_with(|| flow.reason.clone());
            }
        }
        for id in before.keys().chain(self.refused.keys()) {
            if let Some((uid, _)) = self.by_id.get(id) {
                self.stale_status.insert(uid.clone());
            }
        }
    }

    /// Reports policies whose status may have changed and has.
    pub(super) fn emit_statuses(&mut self) {
        for uid in std::mem::take(&mut self.stale_status) {
            let Some(state) = self.policies.get(&uid) else { continue };
            let Some(installed) = state.installed.clone() else { continue };
            if state.pending {
                continue;
            }
            let mut problems = state.problems.clone();
            for part in state.parts.values() {
                if let Some(reason) = self.refused.get(&part.id) {
                    problems.push(format!("{}: {reason}", name_of(&installed, part.rule)));
                }
            }
            problems.dedup();
            let failure = (!problems.is_empty()).then(|| problems.join("; "));
            let report = (installed.metadata.generation.unwrap_or_default(), failure);
            if state.reported.as_ref() == Some(&report) {
                continue;
            }
            self.ops.push(Op::Status(PolicyStatus {
                uid: uid.clone(),
                source: installed.source_ref.clone(),
                generation: report.0,
                failure: report.1.clone(),
            }));
            if let Some(state) = self.policies.get_mut(&uid) {
                state.reported = Some(report);
            }
        }
    }
}

/// What a user calls a rule.
pub(super) fn name_of(policy: &apis::controlplane::NetworkPolicy, rule: usize) -> String {
    match policy.rules.get(rule) {
        Some(said) if !said.name.is_empty() => format!("rule {}", said.name),
        Some(said) => format!("rule {} {}", said.direction.as_str(), said.priority),
        None => format!("rule {rule}"),
    }
}
