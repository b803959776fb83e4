//! Gives memory back to the kernel once a burst of requests is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// So long after the last request a burst is over.
const QUIET: Duration = Duration::from_secs(5);

/// Notices when requests have ended for a while.
#[derive(Clone, Debug, Default)]
pub(super) struct AfterBurst {
    n_requests: Arc<AtomicU64>,
    is_watched: Arc<AtomicBool>,
}

impl AfterBurst {
    /// A request has ended: `then` is called once no other has for a while. Of many calls at once
    /// one does it.
    pub(super) fn request_ended(&self, then: impl FnOnce() + Send + 'static) {
        self.n_requests.fetch_add(1, Ordering::SeqCst);
        if self.is_watched.swap(true, Ordering::SeqCst) {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                let before = this.n_requests.load(Ordering::SeqCst);
                tokio::time::sleep(QUIET).await;
                if this.n_requests.load(Ordering::SeqCst) == before {
                    break;
                }
            }
            this.is_watched.store(false, Ordering::SeqCst);
            // A request that ends just now finds all this done right after it.
            tokio::task::spawn_blocking(then);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_has_one_end() {
        let (quiet, n_ends) = (AfterBurst::default(), Arc::new(AtomicU64::new(0)));
        let request_ended = || {
            let n_ends = Arc::clone(&n_ends);
            quiet.request_ended(move || _ = n_ends.fetch_add(1, Ordering::SeqCst));
        };
        for burst in 1..=2 {
            for _ in 0..100 {
                request_ended();
                tokio::time::sleep(QUIET / 2).await;
                assert_eq!(n_ends.load(Ordering::SeqCst), burst - 1);
            }
            while n_ends.load(Ordering::SeqCst) < burst {
                tokio::time::sleep(QUIET / 2).await;
            }
            tokio::time::sleep(QUIET * 10).await;
            assert_eq!(n_ends.load(Ordering::SeqCst), burst);
        }
    }
}
