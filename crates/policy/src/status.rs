//! How far policies are realized: what the agents report, put together for the user's object.
//!
//! Pure: facts from the computation and reports from Nodes in, statuses out. A report counts for the
//! generation and the span that a policy has now. Not here: writing statuses (`controller`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::common::Time;
use apis::controlplane::NetworkPolicyNodeStatus;
use apis::policy::{Condition, NetworkPolicyPhase, NetworkPolicyStatus};

use crate::translate::{Issue, PolicyFacts, PolicyKind, Severity};

/// Longest message of a condition.
const LONGEST_MESSAGE: usize = 1024;

const REALIZABLE: &str = "Realizable";
const FAILURE: &str = "RealizationFailure";

/// Identifies a user's policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolicyRef {
    /// Kind.
    pub kind: PolicyKind,
    /// Namespace; empty for a cluster-wide one.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID.
    pub uid: Arc<str>,
}

#[derive(Debug)]
struct Tracked {
    policy: PolicyRef,
    generation: i64,
    nodes: BTreeSet<Arc<str>>,
    issues: Vec<Issue>,
    conditions: Vec<Condition>,
    told: Option<NetworkPolicyStatus>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    generation: i64,
    /// When it was made, in milliseconds since 1970.
    made: u64,
    failure: Option<String>,
}

/// Statuses of all policies that have one; see the module's text.
#[derive(Debug, Default)]
pub struct Statuses {
    policies: BTreeMap<Arc<str>, Tracked>,
    /// By policy and Node; kept while a policy is not known yet, as reports may come first.
    reports: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Report>>,
    dirty: BTreeSet<Arc<str>>,
}

impl Statuses {
    /// Takes what the computation says of a policy; `nodes` are the names of its span.
    pub fn facts(&mut self, facts: &PolicyFacts, nodes: BTreeSet<Arc<str>>) {
        let uid = &facts.uid;
        if facts.span.is_none() {
            self.policies.remove(uid);
            self.reports.remove(uid);
            self.dirty.remove(uid);
            return;
        }
        let policy = PolicyRef {
            kind: facts.kind,
            namespace: Arc::clone(&facts.namespace),
            name: Arc::clone(&facts.name),
            uid: Arc::clone(uid),
        };
        let before = self.policies.remove(uid);
        let (conditions, told) = before.map_or((Vec::new(), None), |b| (b.conditions, b.told));
        let (generation, issues) = (facts.generation, facts.issues.clone());
        let tracked = Tracked { policy, generation, nodes, issues, conditions, told };
        self.policies.insert(Arc::clone(uid), tracked);
        self.dirty.insert(Arc::clone(uid));
    }

    /// Takes what a Node reports itself, `now` milliseconds after 1970: nothing that is known is
    /// newer, whatever clocks say. Returns when it was made, as others are to be told.
    pub fn report_now(&mut self, uid: &str, status: &NetworkPolicyNodeStatus, now: u64) -> u64 {
        let reports = self.reports.get_mut(uid);
        let known = reports.and_then(|reports| reports.remove(status.node_name.as_str()));
        let made = known.map_or(now, |known| now.max(known.made.saturating_add(1)));
        self.report(uid, status, made);
        made
    }

    /// Takes what a Node reported of a policy, `made` milliseconds after 1970. What comes in a
    /// roundabout way may be older than what is known: it changes nothing. Of two reports the later
    /// generation counts, and the later time for one generation.
    pub fn report(&mut self, uid: &str, status: &NetworkPolicyNodeStatus, made: u64) {
        let failure = status.realization_failure.then(|| status.message.clone());
        let report = Report { generation: status.generation, made, failure };
        let uid: Arc<str> = uid.into();
        let reports = self.reports.entry(Arc::clone(&uid)).or_default();
        let known = reports.get(status.node_name.as_str());
        if known.is_some_and(|known| (known.generation, known.made) > (report.generation, made)) {
            return;
        }
        reports.insert(status.node_name.as_str().into(), report);
        self.dirty.insert(uid);
    }

    /// Forgets the reports of a Node that is gone.
    pub fn node_gone(&mut self, node: &str) {
        for (uid, reports) in &mut self.reports {
            if reports.remove(node).is_some() {
                self.dirty.insert(Arc::clone(uid));
            }
        }
    }

    /// Says that everything must be written again, as by a new leader.
    pub fn forget_written(&mut self) {
        for (uid, tracked) in &mut self.policies {
            tracked.told = None;
            self.dirty.insert(Arc::clone(uid));
        }
    }

    /// Says that a status could not be written.
    pub fn not_written(&mut self, policy: &PolicyRef) {
        if let Some(tracked) = self.policies.get_mut(&policy.uid) {
            tracked.told = None;
            self.dirty.insert(Arc::clone(&policy.uid));
        }
    }

    /// The statuses that differ from what was given before.
    pub fn take(&mut self, now: &Time) -> Vec<(PolicyRef, NetworkPolicyStatus)> {
        let nobody = BTreeMap::new();
        let mut changed = Vec::new();
        for uid in std::mem::take(&mut self.dirty) {
            let Some(tracked) = self.policies.get_mut(&uid) else { continue };
            let reports = self.reports.get(&uid).unwrap_or(&nobody);
            let status = tracked.status(reports, now);
            tracked.conditions.clone_from(&status.conditions);
            if tracked.told.as_ref() != Some(&status) {
                tracked.told = Some(status.clone());
                changed.push((tracked.policy.clone(), status));
            }
        }
        changed
    }
}

impl Tracked {
    fn status(&self, reports: &BTreeMap<Arc<str>, Report>, now: &Time) -> NetworkPolicyStatus {
        let current = |node: &&Arc<str>| {
            let report = reports.get(*node)?;
            (report.generation == self.generation).then_some(report)
        };
        let answers: Vec<(&Arc<str>, &Report)> =
            self.nodes.iter().filter_map(|node| Some((node, current(&node)?))).collect();
        let failures: Vec<(&Arc<str>, &str)> = answers
            .iter()
            .filter_map(|(node, report)| Some((*node, report.failure.as_deref()?)))
            .collect();
        let (desired, realized) = (self.nodes.len(), answers.len() - failures.len());
        let refused = self.issues.iter().any(|issue| issue.severity == Severity::Whole);
        let phase = if refused {
            NetworkPolicyPhase::Pending
        } else if realized == desired {
            NetworkPolicyPhase::Realized
        } else if answers.len() == desired {
            NetworkPolicyPhase::Failed
        } else {
            NetworkPolicyPhase::Realizing
        };
        let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        NetworkPolicyStatus {
            phase: Some(phase),
            observed_generation: self.generation,
            current_nodes_realized: count(if refused { 0 } else { realized }),
            desired_nodes_realized: count(if refused { 0 } else { desired }),
            conditions: self.conditions(&failures, now),
        }
    }

    fn conditions(&self, failures: &[(&Arc<str>, &str)], now: &Time) -> Vec<Condition> {
        let mut conditions = Vec::new();
        let mut add = |type_: &str, status: &str, reason: &str, message: String| {
            let known = self.conditions.iter().find(|own| own.type_ == type_);
            let since = known.filter(|own| own.status == status);
            let since = since.and_then(|own| own.last_transition_time.clone());
            let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
            conditions.push(Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
                reason: text(reason),
                message: text(&cut(message)),
            });
        };
        if self.issues.is_empty() {
            add(REALIZABLE, "True", "", String::new());
        } else {
            let group = |issue: &Issue| issue.field.contains("appliedTo");
            let reason = if self.issues.iter().any(group) {
                "NetworkPolicyAppliedToUnsupportedGroup"
            } else {
                "NetworkPolicyPartNotRealizable"
            };
            let all = self.issues.iter();
            let all: Vec<String> =
                all.map(|issue| format!("{}: {}", issue.field, issue.message)).collect();
            add(REALIZABLE, "False", reason, all.join("; "));
        }
        if failures.is_empty() {
            add(FAILURE, "False", "", String::new());
        } else {
            let all = failures.iter();
            let all: Vec<String> = all
                .map(|(node, message)| match *message {
                    "" => (**node).to_string(),
                    message => format!("{node}: {message}"),
                })
                .collect();
            let reason = "NetworkPolicyRealizationFailedOnNode";
            add(FAILURE, "True", reason, format!("Failed Nodes: {}", all.join("; ")));
        }
        conditions
    }
}

fn cut(mut text: String) -> String {
    if text.len() > LONGEST_MESSAGE {
        let mut end = LONGEST_MESSAGE - 3;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use apis::common::Timestamp;

    use super::*;
    use crate::translate::Span;

    fn mk_facts(generation: i64, issues: &[(&str, Severity)]) -> PolicyFacts {
        PolicyFacts {
            kind: PolicyKind::Cluster,
            uid: "u".into(),
            namespace: "".into(),
            name: "p".into(),
            generation,
            span: Some(Span::default()),
            issues: issues
                .iter()
                .map(|(field, severity)| Issue {
                    field: (*field).to_owned(),
                    message: "no".to_owned(),
                    severity: *severity,
                })
                .collect(),
        }
    }

    fn nodes(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    fn mk_report(node: &str, generation: i64, failure: Option<&str>) -> NetworkPolicyNodeStatus {
        NetworkPolicyNodeStatus {
            node_name: node.into(),
            generation,
            realization_failure: failure.is_some(),
            message: failure.unwrap_or_default().into(),
        }
    }

    fn at(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[track_caller]
    fn check(statuses: &mut Statuses, second: i64, want: &str) {
        let taken = statuses.take(&at(second));
        let texts: Vec<String> = taken
            .iter()
            .map(|(_, status)| {
                let conditions: Vec<String> = status
                    .conditions
                    .iter()
                    .map(|own| {
                        let since = own.last_transition_time.as_ref().unwrap().0.as_second();
                        format!("{}={}@{since}", own.type_, own.status)
                    })
                    .collect();
                format!(
                    "{} {}/{} g{} {}",
                    status.phase.as_ref().unwrap(),
                    status.current_nodes_realized,
                    status.desired_nodes_realized,
                    status.observed_generation,
                    conditions.join(" ")
                )
            })
            .collect();
        assert_eq!(texts.join("\n"), want);
    }

    #[test]
    fn reports_add_up() {
        let mut statuses = Statuses::default();
        // A report may come before the policy is known.
        statuses.report("u", &mk_report("n1", 1, None), 1);
        check(&mut statuses, 1, "");
        statuses.facts(&mk_facts(1, &[]), nodes(&["n1", "n2"]));
        check(&mut statuses, 2, "Realizing 1/2 g1 Realizable=True@2 RealizationFailure=False@2");
        statuses.report("u", &mk_report("n3", 1, None), 2);
        check(&mut statuses, 3, "");
        statuses.report("u", &mk_report("n2", 1, None), 3);
        check(&mut statuses, 4, "Realized 2/2 g1 Realizable=True@2 RealizationFailure=False@2");
        // Another generation is not realized before the Nodes say so; a change back neither.
        statuses.facts(&mk_facts(2, &[]), nodes(&["n1", "n2"]));
        check(&mut statuses, 5, "Realizing 0/2 g2 Realizable=True@2 RealizationFailure=False@2");
        statuses.report("u", &mk_report("n1", 2, Some("no room")), 4);
        statuses.report("u", &mk_report("n2", 2, None), 5);
        check(&mut statuses, 6, "Failed 1/2 g2 Realizable=True@2 RealizationFailure=True@6");
        // The Node that failed is not needed any more.
        statuses.facts(&mk_facts(2, &[]), nodes(&["n2"]));
        check(&mut statuses, 7, "Realized 1/1 g2 Realizable=True@2 RealizationFailure=False@7");
        statuses.facts(&mk_facts(2, &[]), nodes(&["n2"]));
        check(&mut statuses, 8, "");
        // What another replica was told before, and tells now.
        statuses.report("u", &mk_report("n2", 1, None), 9);
        statuses.report("u", &mk_report("n2", 2, Some("no room")), 4);
        check(&mut statuses, 8, "");
        // What the Node says itself counts, though another replica's clock is ahead.
        statuses.report("u", &mk_report("n2", 2, None), 900);
        assert_eq!(statuses.report_now("u", &mk_report("n2", 2, Some("no room")), 10), 901);
        check(&mut statuses, 9, "Failed 0/1 g2 Realizable=True@2 RealizationFailure=True@9");
        statuses.facts(&PolicyFacts { span: None, ..mk_facts(2, &[]) }, nodes(&[]));
        check(&mut statuses, 10, "");
    }

    #[test]
    fn what_cannot_be_realized_is_told() {
        let mut statuses = Statuses::default();
        statuses.facts(&mk_facts(1, &[("spec.tier", Severity::Whole)]), nodes(&[]));
        check(&mut statuses, 1, "Pending 0/0 g1 Realizable=False@1 RealizationFailure=False@1");
        statuses.facts(&mk_facts(2, &[("spec.ingress[0]", Severity::Part)]), nodes(&[]));
        check(&mut statuses, 2, "Realized 0/0 g2 Realizable=False@1 RealizationFailure=False@1");
        statuses.forget_written();
        check(&mut statuses, 3, "Realized 0/0 g2 Realizable=False@1 RealizationFailure=False@1");
        assert!(cut("ä".repeat(1000)).len() <= LONGEST_MESSAGE);
    }
}
