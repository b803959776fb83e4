//! Tables, registers, marks, cookies, and the flows of every feature.
//!
//! A feature is a pure function from the node's configuration and its own objects to flows,
//! groups and meters ([`openflow::Intent`]). Table numbers are constants, independent of
//! configuration; which tables are in use follows from the node ([`Layout`]).
//!
//! Opens no socket and knows no switch. Not here: sending and repairing flows (`switch`), what the
//! features' objects should be (`policy`, `services`, `addresses`).

pub mod features;
pub mod fields;
mod layout;
mod node;
pub mod packet;
pub mod reject;

pub use features::network_policy as policy;
pub use features::pod_connectivity as connectivity;
pub use features::service;
pub use fields::{Category, LAYOUT_VERSION, tables};
pub use layout::{Layout, miss_flows};
pub use node::{Families, Gateway, NodeConfig, PeerNode, PodInterface, Tunnel, TunnelKind};

#[cfg(test)]
mod tests;
