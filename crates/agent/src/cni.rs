//! The CNI server: connects containers on request of antrea-cni.
//!
//! A request is validated (`request`), waits for earlier ones about the same attachment, and is
//! carried out as a `plan` over the `traits`: addresses, links, ports, flows, conntrack. What is
//! connected is known from OVSDB (`store`), and from files only where OVSDB lost it (`journal`). A request that has begun is carried
//! to its end even when its caller has gone away.
//!
//! Not here: the plugin that kubelet runs (`antrea-cni`), what the flows are (`pipeline`).

mod attach;
mod check;
mod collect;
mod detach;
mod drive;
mod failure;
pub mod fake;
mod journal;
mod lock;
mod model;
mod network;
pub mod plan;
mod quiet;
pub mod real;
mod reaper;
mod renumber;
mod request;
mod server;
mod service;
mod store;
pub mod traits;
mod undo;

pub use failure::CniFailure;
#[cfg(test)]
pub(crate) use model::fixture::mk_record;
pub use model::{
    CONTAINER, HostIfName, PodAddress, PodName, PodRecord, RecordError, external_id, mac_for,
};
pub use network::NodeNetwork;
pub use real::is_ours;
pub use request::{CmdRequest, RequestError, Verb};
pub use server::{Node, Readiness, Server, ServerConfig, ServerError};
pub use store::InterfaceStore;

#[cfg(test)]
mod tests;
