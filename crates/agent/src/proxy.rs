//! Services on this node: what the API says of them becomes flows.
//!
//! One loop (`run`) feeds `services::Proxy` with what the watches (`feed`) and the list of nodes say,
//! and carries out what follows. When the switch has it, connections to what is gone are forgotten
//! (`stale`) and metrics are told (`counts`). Whoever dials a Service without endpoints is answered
//! (`packets`). With `proxyAll` the host is told what to send to the switch (`host`, carried out by
//! `node_loop`), and load balancers are answered (`health`).
//!
//! What was known last is kept on disk (`known`), for a start while no API server answers.
//!
//! Not here: decisions (`services`), flows (`pipeline::service`), answers (`pipeline::reject`).

mod counts;
mod feed;
mod health;
pub(crate) mod host;
mod known;
mod packets;
mod run;
pub(crate) mod setup;
mod stale;

use pipeline::Category;
use switch::bridge::Owner;

pub use counts::{Counts, FamilyCounts};

/// Owner of Services' flows on the bridge.
pub const OWNER: Owner = Owner(Category::Service.number());
