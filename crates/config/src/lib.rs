//! Configuration keys of agent and controller, and the registry of feature gates.
//!
//! One table of keys per program drives everything: reading a file, its defaults, what is refused
//! because it is not built, and the documentation. All mistakes of a file are reported at once.
//!
//! Pure: text in, values or errors out. Not here: reading the file, command-line flags, acting on
//! a value.

mod agent;
mod agent_keys;
mod client_limit;
mod controller;
mod controller_keys;
mod environment;
mod error;
pub mod gates;
mod key;
mod kind;
mod nearest;
mod reader;
#[cfg(test)]
mod tests;
mod values;
mod yaml;

pub use agent::{AgentConfig, DatapathType, EncapMode, ProxyConfig, TunnelType};
pub use client_limit::ClientLimit;
pub use controller::{ControllerConfig, NodeIpamConfig};
pub use environment::Environment;
pub use error::{ConfigError, ConfigErrors};
pub use gates::{FeatureGates, Gate};
pub use key::{Built, Component, Key};
pub use kind::{Kind, Value};
pub use values::Values;
pub use yaml::{Entry, Node};

/// The keys of a component's file, in the order of the documentation.
pub fn keys(component: Component) -> &'static [Key] {
    component.keys()
}
