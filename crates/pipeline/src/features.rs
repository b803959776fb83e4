//! The features, one file each.

pub mod network_policy;
pub mod pod_connectivity;
pub mod service;
