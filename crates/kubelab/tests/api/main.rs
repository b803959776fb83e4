//! The server over TLS, as its clients see it.

#![allow(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod aggregated;
mod crds;
mod exec;
mod extensions;
mod kube_client;
mod kubectl;
mod protobuf;
mod replay;
mod schedule;
mod tokens;
mod util;
mod watches;
mod workloads;
