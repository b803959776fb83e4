//! Every number of the pipeline: tables, registers, marks, zones, priorities, cookies, addresses.
//!
//! Numbers of features that are not built yet are reserved here, so that they never move.

mod address;
mod conntrack;
mod cookie;
mod meter;
mod port;
mod priority;
mod register;
mod table;

pub use address::*;
pub use conntrack::*;
pub use cookie::{COOKIE_MARKER, COOKIE_OBJECT, Category, cookie};
pub use meter::*;
pub use port::*;
pub use priority::*;
pub use register::*;
pub use table::*;
