//! Ctrl-C, SIGTERM and a closed terminal set a flag; whoever waits looks at it and stops in good order.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Doing, LabError, Result};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static PATIENCE: OnceLock<u32> = OnceLock::new();

/// Environment variable with the factor by which waits are longer, for machines that are slow
/// throughout, such as an emulated one.
pub const PATIENCE_VARIABLE: &str = "ANTREA_LAB_PATIENCE";

/// Begins to listen for SIGINT, SIGTERM and SIGHUP in a thread of its own.
///
/// # Errors
/// When the signal handlers cannot be installed.
pub fn listen() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .doing(|| "prepare signal handling".into())?;
    let (mut int, mut term, mut hup) = {
        let _guard = runtime.enter();
        (
            signal(SignalKind::interrupt()).doing(|| "listen for SIGINT".into())?,
            signal(SignalKind::terminate()).doing(|| "listen for SIGTERM".into())?,
            signal(SignalKind::hangup()).doing(|| "listen for SIGHUP".into())?,
        )
    };
    std::thread::spawn(move || {
        runtime.block_on(async move {
            loop {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                    _ = hup.recv() => {}
                }
                INTERRUPTED.store(true, Ordering::SeqCst);
            }
        });
    });
    Ok(())
}

/// Whether the user asked us to stop.
#[must_use]
pub fn requested() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Forgets an earlier request, so that cleaning up can wait for things itself.
pub fn clear() {
    INTERRUPTED.store(false, Ordering::SeqCst);
}

/// Fails when the user asked us to stop.
///
/// # Errors
/// When one of the signals has arrived.
pub fn check() -> Result<()> {
    if requested() { Err(LabError::new("interrupted")) } else { Ok(()) }
}

/// How many times slower than usual everything may be here; 1 when nothing says so.
#[must_use]
pub fn patience() -> u32 {
    *PATIENCE.get_or_init(|| factor(std::env::var(PATIENCE_VARIABLE).ok().as_deref()))
}

fn factor(text: Option<&str>) -> u32 {
    text.and_then(|text| text.parse().ok()).unwrap_or(1).clamp(1, 100)
}

/// Waits until `condition` gives a value; it is asked every few milliseconds, for `within` times
/// [`patience`].
///
/// # Errors
/// When the time is over, or the user interrupts.
pub fn wait_for<T>(
    within: Duration,
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
) -> Result<T> {
    let within = within * patience();
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_millis(2);
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        check()?;
        if Instant::now() >= deadline {
            return Err(LabError::new(format!("{what}: not within {:.1} s", within.as_secs_f64())));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50) * patience());
    }
}

#[cfg(test)]
mod tests {
    use super::factor;

    #[test]
    fn the_factor_is_a_number_within_bounds() {
        for (text, want) in
            [(None, 1), (Some("8"), 8), (Some("0"), 1), (Some("9000"), 100), (Some("slow"), 1)]
        {
            assert_eq!(factor(text), want, "{text:?}");
        }
    }
}
