//! Builders and fixtures for tests: private namespaces, a real Open vSwitch, a proxy that spoils one
//! message, damaged input for decoders.

pub mod fault_proxy;
pub mod fuzz;
pub mod netns;
pub mod ovs;
pub mod ovsdb;
pub mod wait;

pub use wait::wait_until;
