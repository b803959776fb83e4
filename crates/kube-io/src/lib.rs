//! Everything of ours that talks to a Kubernetes API server, behind plain functions.
//!
//! Turns API objects into small views that hold only what we use, and watches into streams that
//! reconnect by themselves. It is the one crate that instantiates a Kubernetes client, so that a
//! change elsewhere does not compile one anew.
//! Never decides anything: what to do with an object is the caller's. Not here: the types of our own
//! kinds (`apis`), serving an API (`apiserver`).

pub mod agent_info;
pub mod aggregation;
pub mod apply;
mod call;
pub mod client;
pub mod controller_info;
pub mod controlplane;
pub mod error;
pub mod events;
pub mod lease;
mod lists;
pub mod nodes;
pub mod objects;
pub mod pods;
pub mod policy_inputs;
pub mod policy_status;
pub mod replicas;
pub mod service_accounts;
pub mod services;
mod time;
pub mod watch;

pub use apis;
pub use client::{Client, ClientOptions, ConnectError};
pub use error::{ApiError, CallError, Verb};
pub use watch::{Keyed, Versioned, WatchEvent};
