//! Refusals.

use bytes::Bytes;

use super::{Header, Xid};

/// A request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorMessage {
    /// What is wrong with it.
    pub code: ErrorCode,
    /// The beginning of the request.
    pub data: Bytes,
}

impl ErrorMessage {
    /// The header of the refused request, if enough of it came back.
    #[must_use]
    pub fn request(&self) -> Option<Header> {
        Header::peek(&self.data)
    }

    /// The transaction id of the refused request, if it came back.
    #[must_use]
    pub fn request_xid(&self) -> Option<Xid> {
        self.request().map(|header| header.xid)
    }
}

/// What is wrong, by the protocol's numbers. Displays as the protocol's name for it
/// (`OFPBAC_BAD_OUT_PORT`), or the numbers when it has none here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode {
    /// The kind of request or part of it.
    pub error_type: u16,
    /// What about it.
    pub code: u16,
    /// Whose number it is, when not the standard's.
    pub experimenter: Option<u32>,
}

impl ErrorCode {
    /// A number of the standard.
    #[must_use]
    pub const fn new(error_type: u16, code: u16) -> Self {
        Self { error_type, code, experimenter: None }
    }

    /// The peer speaks no version that we do.
    pub const INCOMPATIBLE: Self = Self::new(0, 0);
    /// An action sends to a group that does not exist.
    pub const BAD_OUT_GROUP: Self = Self::new(2, 9);
    /// An action names a meter that does not exist.
    pub const BAD_METER: Self = Self::new(2, 17);
    /// A flow table is full.
    pub const TABLE_FULL: Self = Self::new(5, 1);
    /// A group to be added exists.
    pub const GROUP_EXISTS: Self = Self::new(6, 0);
    /// A group to be modified does not exist.
    pub const UNKNOWN_GROUP: Self = Self::new(6, 8);
    /// A meter to be added exists.
    pub const METER_EXISTS: Self = Self::new(12, 1);
    /// A meter to be modified does not exist.
    pub const UNKNOWN_METER: Self = Self::new(12, 3);
    /// A message in a bundle was refused; its own error was sent before.
    pub const BUNDLE_MSG_FAILED: Self = Self::new(17, 13);
    /// The bundle was not completed in time.
    pub const BUNDLE_TIMEOUT: Self = Self::new(17, 14);
}
