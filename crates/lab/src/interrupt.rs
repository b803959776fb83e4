//! Ctrl-C, SIGTERM and a closed terminal set a flag; whoever waits looks at it and stops in good order.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use crate::error::{Doing, LabError, Result};

static WISH: Wish = Wish::new();
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
                WISH.asked.store(true, Ordering::SeqCst);
            }
        });
    });
    Ok(())
}

/// Whether the user asked us to stop.
#[must_use]
pub fn requested() -> bool {
    WISH.holds()
}

/// What the user asked for, and who may not be stopped by it.
#[derive(Debug)]
struct Wish {
    asked: AtomicBool,
    shields: AtomicU32,
}

impl Wish {
    const fn new() -> Self {
        Self { asked: AtomicBool::new(false), shields: AtomicU32::new(0) }
    }

    fn holds(&self) -> bool {
        self.asked.load(Ordering::SeqCst) && self.shields.load(Ordering::SeqCst) == 0
    }

    fn shield(&self) -> Shield<'_> {
        self.shields.fetch_add(1, Ordering::SeqCst);
        Shield(self)
    }
}

/// While it lives, nothing stops early: cleaning up waits for things itself. What was asked before
/// and meanwhile holds again afterwards.
#[derive(Debug)]
#[must_use]
pub struct Shield<'a>(&'a Wish);

/// Begins to clean up.
pub fn shield() -> Shield<'static> {
    WISH.shield()
}

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        self.0.shields.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An error that follows from the user's wish to stop says so.
#[must_use]
pub fn explain(error: LabError) -> LabError {
    if requested() { as_interruption(error) } else { error }
}

fn as_interruption(error: LabError) -> LabError {
    let text = error.chain();
    if text.starts_with(WORD) {
        return error;
    }
    let explained = LabError::new(format!("{WORD}: {text}"));
    match error.next_step() {
        Some(hint) => explained.hint(hint),
        None => explained,
    }
}

/// How a message about an interruption begins.
const WORD: &str = "interrupted";

/// Fails when the user asked us to stop.
///
/// # Errors
/// When one of the signals has arrived.
pub fn check() -> Result<()> {
    if requested() { Err(LabError::new(WORD)) } else { Ok(()) }
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
    use super::*;

    #[test]
    fn the_factor_is_a_number_within_bounds() {
        for (text, want) in
            [(None, 1), (Some("8"), 8), (Some("0"), 1), (Some("9000"), 100), (Some("slow"), 1)]
        {
            assert_eq!(factor(text), want, "{text:?}");
        }
    }

    #[test]
    fn cleaning_up_is_not_interrupted_and_the_wish_is_remembered() {
        let wish = Wish::new();
        assert!(!wish.holds());
        wish.asked.store(true, Ordering::SeqCst);
        {
            let _outer = wish.shield();
            drop(wish.shield());
            assert!(!wish.holds());
        }
        assert!(wish.holds());
    }

    #[test]
    fn what_an_interruption_breaks_is_called_one() {
        let error = as_interruption(LabError::new("ip refused").hint("try again"));
        assert_eq!(error.chain(), "interrupted: ip refused");
        assert_eq!(error.next_step(), Some("try again"));
        assert_eq!(as_interruption(LabError::new(WORD)).chain(), "interrupted");
    }
}
