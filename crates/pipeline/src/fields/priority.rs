//! Flow priorities.

/// Exceptions to what [`NORMAL`] flows do.
pub const HIGH: u16 = 210;
/// Most flows.
pub const NORMAL: u16 = 200;
/// What is done when no [`NORMAL`] flow took the packet.
pub const LOW: u16 = 190;
/// The table miss.
pub const MISS: u16 = 0;
/// Rules of Antrea policies take priorities below this one.
pub const ESTABLISHED_BYPASS: u16 = 64990;
/// Interception of DNS answers.
pub const DNS_INTERCEPT: u16 = 64991;
