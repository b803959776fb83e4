//! Spreads calls over time: a burst at once, then so many per second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Wait where the configured rate is too small to compute with.
const LONGEST: Duration = Duration::from_secs(3600);

/// A token bucket; callers are served in the order in which they came.
pub(crate) struct Limiter {
    qps: f64,
    burst: f64,
    state: Mutex<State>,
}

struct State {
    /// Tokens at `at`; below zero when callers wait for theirs.
    tokens: f64,
    at: Instant,
}

impl Limiter {
    /// A full bucket; a `qps` of zero or less means no limit.
    pub(crate) fn new(qps: f64, burst: u32) -> Self {
        let burst = f64::from(burst.max(1));
        Self { qps, burst, state: Mutex::new(State { tokens: burst, at: Instant::now() }) }
    }

    /// Waits for this caller's turn.
    pub(crate) async fn acquire(&self) {
        let wait = self.reserve(Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn reserve(&self, now: Instant) -> Duration {
        if self.qps <= 0.0 {
            return Duration::ZERO;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let gained = now.saturating_duration_since(state.at).as_secs_f64() * self.qps;
        state.tokens = (state.tokens + gained).min(self.burst) - 1.0;
        state.at = now;
        if state.tokens >= 0.0 {
            Duration::ZERO
        } else {
            Duration::try_from_secs_f64(-state.tokens / self.qps).unwrap_or(LONGEST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_is_spread() {
        let limiter = Limiter::new(10.0, 5);
        let start = Instant::now();
        for _ in 0..5 {
            limiter.acquire().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..10 {
            limiter.acquire().await;
        }
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_secs(1), "{elapsed:?}");
        assert!(elapsed < Duration::from_millis(1100), "{elapsed:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_is_saved_up_to_the_burst_only() {
        let limiter = Limiter::new(10.0, 2);
        tokio::time::advance(Duration::from_secs(60)).await;
        let start = Instant::now();
        for _ in 0..3 {
            limiter.acquire().await;
        }
        assert!(start.elapsed() >= Duration::from_millis(100));
    }
}
