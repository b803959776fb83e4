//! Stand-ins for ovsdb-server with ovs-vswitchd, and for a bridge's OpenFlow side, for tests
//! without root.
//!
//! They speak the real protocols on sockets of their own, keep state, and refuse what Open vSwitch
//! refuses. Faults are put in by hand: a refused transaction, an interface that gets no number, a
//! connection that is cut at some message.

mod database;
mod faults;
mod openflow_switch;
mod ovsdb_server;
mod pipeline;
mod schema;

pub use database::{Database, FakeRow};
pub use faults::{Cut, OfportFault};
pub use openflow_switch::FakeSwitch;
pub use ovsdb_server::FakeOvsdb;
pub use pipeline::Pipeline;
