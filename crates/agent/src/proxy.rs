//! Services on this node: what the API says of them becomes flows.
//!
//! One loop (`run`) feeds `services::Proxy` with what the watches (`feed`) and the list of nodes say,
//! and carries out what follows. When the switch has it, connections to what is gone are forgotten
//! (`stale`) and metrics are told (`counts`). Whoever dials a Service without endpoints is answered
//! (`packets`).
//!
//! Not here: decisions (`services`), flows (`pipeline::service`), answers (`pipeline::reject`).

mod counts;
mod feed;
mod packets;
mod run;
mod stale;

use pipeline::Category;
use switch::bridge::Owner;

pub use counts::{Counts, FamilyCounts};
pub(crate) use run::ProxyLoop;
pub(crate) use stale::Forget;

/// Owner of Services' flows on the bridge.
pub const OWNER: Owner = Owner(Category::Service.number());
