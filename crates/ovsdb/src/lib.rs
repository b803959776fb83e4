//! OVSDB (RFC 7047) as Open vSwitch speaks it: values, typed rows of the `Open_vSwitch` database,
//! transactions, monitor updates, JSON-RPC framing.
//!
//! Pure data: JSON in, types out, and back. Opens no socket and keeps no state but the stream
//! [`Splitter`] and the monitored [`Snapshot`]; a [`Monitor`] can go on with it where a connection
//! broke off. What a server sends is untrusted: every decoder returns an error that names the table
//! and column, and none panics.
//!
//! Not here: the connection, reconnects, ports and bridges as operations (`switch::ovsdb_session`).

mod column;
mod lock;
mod monitor;
mod operation;
mod result;
mod row;
mod rpc;
mod snapshot;
mod splitter;
mod table;
mod update;
mod value;

pub use column::{Column, ColumnError};
pub use lock::{LockError, LockEvent, LockMethod, lock_reply};
pub use monitor::{Established, Monitor, MonitorError, MonitorMethod, RowFilter};
pub use operation::{Condition, Function, Mutation, Mutator, Operation, Until};
pub use result::{ErrorKind, OpFailure, OpResult, TransactError, parse_results};
pub use row::Row;
pub use rpc::{Id, Incoming, RpcError, echo_reply, notification, request, response};
pub use snapshot::{PortView, Rows, Snapshot};
pub use splitter::{SplitError, Splitter};
pub use table::{Bridge, FailMode, FlowTable, Interface, OpenVSwitch, Port, Table};
pub use update::{TableUpdates, UpdateError, monitor_request};
pub use uuid::Uuid;
pub use value::{Atom, Value, ValueError};

/// Name of the database of Open vSwitch.
pub const DATABASE: &str = "Open_vSwitch";
