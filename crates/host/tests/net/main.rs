//! Real network namespaces, judged by `ip`, `nft`, `ethtool`, `conntrack` and the real `host-local`.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod addresses;
mod conntrack;
mod firewall;
mod ipam;
mod links;
mod namespaces;
mod parameters;
mod services;
mod uplink;

use std::future::Future;
use std::time::Duration;

/// A deadline for conditions that come true within milliseconds on an idle machine.
const SOON: Duration = Duration::from_secs(10);

/// Runs async code on the calling thread, so that it (and programs it starts) stays in the
/// thread's namespace.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Waits for a condition with a deadline; panics with what was seen last.
#[track_caller]
fn eventually(what: &str, mut look: impl FnMut() -> Result<(), String>) {
    let deadline = std::time::Instant::now() + SOON;
    loop {
        match look() {
            Ok(()) => return,
            Err(seen) if std::time::Instant::now() > deadline => panic!("{what}: {seen}"),
            Err(_) => std::thread::yield_now(),
        }
    }
}
