//! What antrea-cni and the agent say to each other, and what both say to a container runtime.
//!
//! [`rpc`] is the gRPC service on the agent's socket. The rest are the JSON types of the CNI
//! specification: [`NetConf`] on standard input, [`CniResult`] and [`CniError`] on standard output,
//! [`PodArgs`] in `CNI_ARGS`. Every decoder takes bytes from outside and never panics.
//! Not here: running a request (`antrea_agent::cni`), talking to the socket (`antrea-cni`).

mod args;
mod attachment;
mod error;
mod keys;
mod netconf;
mod result;
pub mod rpc;
mod version;

pub use args::{ArgsError, PodArgs};
pub use attachment::{Attachment, ContainerId, IdentError, IfName};
pub use error::{CniError, Code};
pub use netconf::{ConfError, IpamConf, NetConf};
pub use result::{CniResult, Dns, Interface, IpConfig, ResultError, Route};
pub use version::{SpecVersion, UnknownVersion, VersionReply};
