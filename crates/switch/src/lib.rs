//! Drivers of Open vSwitch: OVSDB session, OpenFlow channels, control socket, and the bridge
//! reconciler.
//!
//! Features hand [`bridge::Bridge`] what should be on the switch; it alone writes there. Ports and
//! bridges are made through [`ovsdb_session::OvsdbSession`]. Both outlive restarts of the daemons.
//!
//! Not here: what the flows are (`pipeline`), links and addresses (`host`).

pub mod bench;
pub mod bridge;
mod channel;
pub mod fake;
pub mod ovsdb_session;
pub mod reconcile;
pub mod unixctl;

/// An error and its sources in one line, for logs.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
