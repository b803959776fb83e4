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
}
