//! The controller: derives what the cluster's network needs from the cluster, and writes it down.
//!
//! Any number of replicas run; the one that holds a Lease writes: Pod CIDRs of Nodes and the
//! AntreaControllerInfo. The others follow, and one takes over when the Lease runs out.
//! Not here: how Pod CIDRs are chosen (`addresses`), talking to the API server (`kube_io`).

mod app;
mod lead;
mod leader;
mod metrics;
mod policy;
mod serve;
mod settings;

pub use app::{RunError, run};
pub use serve::{CertificateTerms, ServeError};
pub use settings::{Args, Settings};
