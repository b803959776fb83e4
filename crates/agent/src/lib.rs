//! The agent on every node: connects Pods and programs the bridge.
//!
//! Decisions (`mtu`, `datapath`, `peers`) are pure; the rest wires them to the drivers in `switch`
//! and `host`. Nothing here writes a flow by itself: everything goes through `switch::bridge`.

pub mod datapath;
pub mod mtu;
pub mod nodes;
pub mod peers;
