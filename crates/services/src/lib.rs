//! Turns Services and EndpointSlices into what a node forwards: addresses, groups of servers, and what
//! the host and health checks need.
//!
//! Pure and level-triggered: [`Proxy::step`] takes what changed and says what follows; after any
//! sequence of events the state is that of a computation from the objects that are left. A change of
//! an object recomputes its own Service only. Which servers count is decided as kube-proxy decides it
//! (`select`).
//! Not here: flows (`pipeline::service`), reading objects (`kube_io::services`), sending, conntrack.

mod claims;
mod config;
mod ids;
mod places;
mod plan;
mod proxy;
mod select;

pub use config::{Config, Skip};
pub use ids::{Kind, Number};
pub use plan::{HealthCheck, PortPlan};
pub use proxy::{Changes, Event, HostWants, PortKey, Presence, Proxy, Stale};

#[cfg(test)]
mod churn;
#[cfg(any(test, feature = "random"))]
pub mod random;
#[cfg(any(test, feature = "random"))]
mod testing;
