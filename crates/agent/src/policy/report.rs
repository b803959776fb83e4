//! Tells the controller how far policies are realized.
//!
//! A status is told once the flows behind it are on the switch; what the controller does not take is
//! told again later. When the controller was away, everything is told again.

use std::collections::BTreeMap;
use std::time::Duration;

use apis::controlplane::{NetworkPolicyNodeStatus, NetworkPolicyStatus, PolicyType};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_io::controlplane::Controlplane;
use policy::realize::PolicyStatus;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// First wait after a refusal.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// What is to be told, and when. Pure but for the clock's type.
#[derive(Debug, Default)]
struct Queue {
    /// By UID of the policy: what to say, when, and how often it failed.
    due: BTreeMap<String, (PolicyStatus, Instant, u32)>,
}

impl Queue {
    fn put(&mut self, status: PolicyStatus, now: Instant) {
        self.due.insert(status.uid.clone(), (status, now, 0));
    }

    fn next(&self) -> Option<(Instant, &PolicyStatus)> {
        let first = self.due.values().min_by_key(|(_, at, _)| *at)?;
        Some((first.1, &first.0))
    }

    /// Another status may have come in the meantime.
    fn told(&mut self, told: &PolicyStatus) {
        if self.due.get(&told.uid).is_some_and(|(status, ..)| status == told) {
            self.due.remove(&told.uid);
        }
    }

    fn failed(&mut self, told: &PolicyStatus, now: Instant) {
        if let Some((_, at, n)) = self.due.get_mut(&told.uid) {
            *at = now + FIRST_WAIT.saturating_mul(1 << (*n).min(10)).min(LONGEST_WAIT);
            *n += 1;
        }
    }
}

/// Whether the user's object shows a status.
pub(super) fn is_shown(status: &PolicyStatus) -> bool {
    let kind = status.source.as_ref().map(|source| &source.type_);
    matches!(kind, Some(PolicyType::AntreaClusterNetworkPolicy | PolicyType::AntreaNetworkPolicy))
}

/// Tells what comes until the sender is gone.
pub(super) async fn run(
    controlplane: Controlplane,
    node: String,
    mut statuses: mpsc::UnboundedReceiver<Vec<PolicyStatus>>,
) {
    let mut queue = Queue::default();
    loop {
        let next = queue.next().map(|(at, status)| (at, status.clone()));
        let due = async {
            match &next {
                Some((at, _)) => tokio::time::sleep_until(*at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            came = statuses.recv() => {
                let Some(came) = came else { return };
                let now = Instant::now();
                came.into_iter().filter(is_shown).for_each(|status| queue.put(status, now));
            }
            () = due => {
                let Some((_, status)) = next else { continue };
                match controlplane.report(&as_object(&node, &status)).await {
                    Ok(()) => queue.told(&status),
                    // The policy is gone: there is nobody to be told.
                    Err(error) if error.is_not_found() => queue.failed(&status, Instant::now()),
                    Err(error) => {
                        tracing::warn!("report a policy's status: {}", error.chain());
                        queue.failed(&status, Instant::now());
                    }
                }
            }
        }
    }
}

fn as_object(node: &str, status: &PolicyStatus) -> NetworkPolicyStatus {
    NetworkPolicyStatus {
        metadata: ObjectMeta { name: Some(status.uid.clone()), ..ObjectMeta::default() },
        nodes: vec![NetworkPolicyNodeStatus {
            node_name: node.to_owned(),
            generation: status.generation,
            realization_failure: status.failure.is_some(),
            message: status.failure.clone().unwrap_or_default(),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_fails_is_told_again_ever_later_and_only_the_newest() {
        let mk =
            |generation| PolicyStatus { uid: "u".into(), source: None, generation, failure: None };
        let mut queue = Queue::default();
        let start = Instant::now();
        queue.put(mk(1), start);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let (at, _) = queue.next().unwrap();
            queue.failed(&mk(1), at);
            waits.push((queue.next().unwrap().0 - at).as_secs());
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        queue.put(mk(2), start);
        queue.told(&mk(1));
        assert_eq!(queue.next().unwrap(), (start, &mk(2)));
        queue.told(&mk(2));
        assert!(queue.next().is_none());
    }
}
