//! Network policy, computed.
//!
//! Pure: objects in, decisions out; no socket, clock, task or lock. The modules are two ways to the
//! same answer, so that each can check the other:
//!
//! - [`verdict`] answers "may A connect to B" straight from a user's objects; [`connectivity`] asks it
//!   about everybody, and [`diff`] about what a change of the objects changes.
//! - [`index`] and [`translate`] compute what agents are told, and [`realize`] turns what a node gets
//!   of it into flows.
//!
//! [`store`] keeps what is computed to be served to each node, [`status`] tells how far policies are
//! realized, [`stats`] what traffic they met, and [`admit`] refuses what cannot be meant.
//!
//! Not here: flows (`pipeline`), watches and storage (`controller`, `agent`).

pub mod admit;
#[cfg(test)]
mod agreement;
pub mod audit;
pub mod connectivity;
#[cfg(test)]
mod crosscheck;
pub mod diff;
pub mod dns;
pub mod index;
#[cfg(any(test, feature = "random"))]
pub mod random;
pub mod realize;
pub mod stats;
pub mod status;
pub mod store;
pub mod translate;
pub mod verdict;
