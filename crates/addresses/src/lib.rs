//! Pools and allocation of Node Pod CIDRs.
//!
//! Pure state machines: events in, operations out; no client, lock or clock. Not here: addresses of
//! Pods (`host`'s host-local), writing to the API (`controller`).

mod cidr_set;
pub mod node_ipam;

pub use cidr_set::{CidrSet, PoolError};
pub use node_ipam::{Event, NodeCidrs, NodeIpam, Op, Problem};
