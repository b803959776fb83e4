//! Turns SIGTERM and SIGINT into one cancellation token.
//!
//! The first signal asks every task to finish its work; a second one ends the process at once, for
//! the operator who does not want to wait.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit status of a process that a second signal ended.
const INTERRUPTED: i32 = 130;

/// Starts listening for SIGTERM and SIGINT and returns the token that the first one cancels.
///
/// Must be called inside a tokio runtime.
///
/// # Errors
/// When the operating system refuses the signal handlers.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cancelled = token.clone();
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "shutting down");
        cancelled.cancel();
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("second signal, leaving without clean-up");
        std::process::exit(INTERRUPTED);
    });
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_signal_leaves_the_token_alone() {
        let token = on_signals().unwrap();
        assert!(!token.is_cancelled());
    }
}
