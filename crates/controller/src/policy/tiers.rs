//! Makes the tiers that always exist.

use std::time::Duration;

use antrea_runtime::CancellationToken;
use apis::policy::SYSTEM_TIERS;
use kube_io::{Client, policy_status};

/// First wait after a failure; each further one waits longer, up to the last.
const WAITS: &[u64] = &[1, 2, 4, 8];

/// Makes them, trying until it is done.
pub(crate) async fn make(client: Client, stop: CancellationToken) {
    let mut failures = 0;
    let mut missing: Vec<(&str, i32)> = SYSTEM_TIERS.to_vec();
    while !missing.is_empty() {
        let mut left = Vec::new();
        for (name, priority) in missing {
            if let Err(error) = policy_status::make_tier(&client, name, priority).await {
                tracing::debug!(name, error = %error.chain(), "make tier");
                left.push((name, priority));
            }
        }
        missing = left;
        if missing.is_empty() {
            break;
        }
        let wait = WAITS[failures.min(WAITS.len() - 1)];
        failures += 1;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(Duration::from_secs(wait)) => {}
        }
    }
    // The leader's tasks last as long as its term.
    stop.cancelled().await;
}
