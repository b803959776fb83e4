//! Tests of the realizer: its ops go to a flow table in memory, which is asked about packets.

mod completeness;
mod content;
mod orders;
mod services;
mod size;
pub(crate) mod switch;
mod world;
