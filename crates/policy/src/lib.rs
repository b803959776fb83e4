//! Network policy, computed.
//!
//! Pure: objects in, decisions out; no socket, clock, task or lock. The modules are two ways to the
//! same answer, so that each can check the other:
//!
//! - [`verdict`] answers "may A connect to B" straight from a user's objects.
//!
//! Not here: flows (`pipeline`), watches and storage (`controller`, `agent`).

pub mod verdict;
