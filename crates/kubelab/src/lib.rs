//! A small Kubernetes API server, and the control loops a lab needs.
//!
//! Serves what a CNI and its tests meet of Kubernetes: namespaces, Nodes, Pods, Services,
//! ServiceAccounts with tokens, RBAC, Leases, CRDs, `exec` and `logs`. What it does not know it
//! refuses. It is a lab's server: objects live in memory, with a file from which the next process
//! has them again; the certificate authority and the keys are kept too, so that kubeconfigs stay
//! valid.
//!
//! Not here: how requests are read and answered (`apiserver`), running Pods (`lab`).

mod accounts;
mod aggregation;
mod bootstrap;
mod cluster;
mod endpoints;
mod kinds;
mod kubelet;
mod loops;
mod pod_parts;
mod reviews;
mod server;
mod webhooks;

pub use apiserver::client;
pub use apiserver::upstream::Dial;
pub use kinds::protobuf;
pub mod scheduler;

pub mod testing;

pub use server::{NODE_GRACE, Options, RunningServer, Server, ServerError};
