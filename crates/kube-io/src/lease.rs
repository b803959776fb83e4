//! Leases: one of several replicas leads, and Nodes show that they live.
//!
//! [`decide`] holds the rules of leadership and no I/O, [`elector`] carries them out.

pub mod decide;
pub mod elector;
mod node;
mod object;
mod store;

pub use decide::Terms;
pub use elector::{Contact, Elector, Leadership};
pub use node::renew_node;
pub use object::Lease;
pub use store::{ApiStore, LeaseStore, StoreError};
