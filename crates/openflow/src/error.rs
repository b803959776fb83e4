//! What can go wrong: one enum per operation.

use crate::field::Field;

/// Why a value cannot be put on the wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A 16-bit length field cannot hold it.
    #[error("{what} is {len} bytes long, the protocol allows {max}")]
    TooLong {
        /// The part that is too long.
        what: &'static str,
        /// How long it is.
        len: usize,
        /// How long it may be.
        max: usize,
    },
    /// The protocol has no form for it.
    #[error("{what} cannot be expressed: {reason}")]
    Inexpressible {
        /// The part in question.
        what: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// The match asks for what it does not establish first.
    #[error("inconsistent match")]
    Match(#[from] CheckError),
}

/// Why bytes are not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Another protocol version than 1.5.
    #[error("OpenFlow version {0:#04x}, expected 0x06")]
    Version(u8),
    /// Fewer bytes than the part needs.
    #[error("{what} is cut off: {needed} bytes needed, {have} there")]
    Truncated {
        /// The part that is cut off.
        what: &'static str,
        /// Bytes needed.
        needed: usize,
        /// Bytes there.
        have: usize,
    },
    /// A length that contradicts its surroundings.
    #[error("bad length {len} of {what}")]
    BadLength {
        /// The part with the length.
        what: &'static str,
        /// The length it gives.
        len: usize,
    },
    /// A type, code or field number that is not known.
    #[error("unknown {what} {number:#x}")]
    Unknown {
        /// What kind of number.
        what: &'static str,
        /// The number.
        number: u64,
    },
    /// A known thing with a value that is not allowed.
    #[error("bad value {value:#x} of {what}")]
    BadValue {
        /// The part in question.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The same match field twice, with contradicting values.
    #[error("match field {0} given twice")]
    Duplicate(&'static str),
    /// Actions nested deeper than any switch does.
    #[error("{0} nested too deep")]
    TooDeep(&'static str),
}

/// Why a match or flow is inconsistent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// A field without the field it depends on.
    #[error("match field {} needs {needs}", field.info().name)]
    Prerequisite {
        /// The dependent field.
        field: Field,
        /// What has to be matched too.
        needs: &'static str,
    },
    /// A mask on a field that takes none.
    #[error("match field {} takes no mask", .0.info().name)]
    Unmaskable(Field),
    /// A part of a field that does not exist.
    #[error("bits {first}..{last} are outside {}, which has {bits}", field.info().name)]
    OutOfField {
        /// The field.
        field: Field,
        /// First bit asked for.
        first: u16,
        /// Last bit asked for.
        last: u32,
        /// The bits it has.
        bits: u16,
    },
    /// Actions in an order or place that cannot be.
    #[error("{0}")]
    Action(&'static str),
}

/// Why a text is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at {near:?}")]
pub struct ParseError {
    /// What is wrong.
    pub reason: String,
    /// The piece of text in question.
    pub near: String,
}

impl ParseError {
    pub(crate) fn new(reason: impl Into<String>, near: impl Into<String>) -> Self {
        Self { reason: reason.into(), near: near.into() }
    }
}
