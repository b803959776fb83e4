//! Stand-ins for the daemons.
