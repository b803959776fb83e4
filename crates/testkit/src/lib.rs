//! Builders and fixtures for tests: private namespaces, a real Open vSwitch, damaged input for
//! decoders.

pub mod fuzz;
pub mod netns;
pub mod ovs;
pub mod ovsdb;
pub mod wait;

pub use wait::wait_until;
