//! What the node lacks, as the last look left it.
//!
//! Whoever brings something of the node to what it should be notes the outcome here by name; the
//! ready check `node` and the condition AgentHealthy read it.

use std::collections::BTreeMap;

use tokio::sync::watch;

/// What could not be brought to what it should be, by name.
#[derive(Clone, Debug)]
pub struct NodeHealth {
    problems_tx: watch::Sender<BTreeMap<&'static str, String>>,
}

impl NodeHealth {
    /// Nothing is known to be wrong.
    pub fn new() -> Self {
        Self { problems_tx: watch::Sender::default() }
    }

    /// Notes the outcome of the last attempt at something, and logs a failure.
    pub fn note<T>(&self, what: &'static str, outcome: anyhow::Result<T>) {
        let problem = outcome.err().map(|error| format!("{error:#}"));
        if let Some(problem) = &problem {
            tracing::error!("{what}: {problem}");
        }
        self.problems_tx.send_if_modified(|problems| match problem {
            Some(problem) => problems.insert(what, problem.clone()).as_ref() != Some(&problem),
            None => problems.remove(what).is_some(),
        });
    }

    /// Follows the problems.
    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<&'static str, String>> {
        self.problems_tx.subscribe()
    }
}

impl Default for NodeHealth {
    fn default() -> Self {
        Self::new()
    }
}

/// All problems on one line; none when there are none.
pub fn summary(problems: &BTreeMap<&'static str, String>) -> Option<String> {
    let lines: Vec<String> =
        problems.iter().map(|(what, problem)| format!("{what}: {problem}")).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_outcome_of_each_thing_counts() {
        let health = NodeHealth::new();
        let mut problems_rx = health.subscribe();
        let shown = |rx: &watch::Receiver<_>| summary(&rx.borrow());
        assert_eq!(shown(&problems_rx), None);
        health.note("firewall", Err::<(), _>(anyhow::anyhow!("no nft").context("apply")));
        health.note::<()>("routes", Err(anyhow::anyhow!("refused")));
        assert_eq!(shown(&problems_rx).unwrap(), "firewall: apply: no nft; routes: refused");
        problems_rx.mark_unchanged();
        health.note::<()>("routes", Err(anyhow::anyhow!("refused")));
        assert!(!problems_rx.has_changed().unwrap(), "the same as before is no news");
        health.note("routes", Ok(()));
        health.note("firewall", Ok(()));
        assert!(problems_rx.has_changed().unwrap());
        assert_eq!(shown(&problems_rx), None);
    }
}
