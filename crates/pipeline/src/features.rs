//! The features, one file each.

pub mod pod_connectivity;
