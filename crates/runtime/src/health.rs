//! Health endpoints: named checks, and the HTTPS server that answers for them.

pub mod checks;
pub mod server;
