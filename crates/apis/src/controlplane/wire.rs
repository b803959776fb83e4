//! Objects of this group <-> Kubernetes' protobuf encoding.
//!
//! ```text
//! "k8s\0" | runtime.Unknown { 1: TypeMeta { 1: apiVersion, 2: kind }, 2: raw message }
//! ```
//!
//! Field numbers are the published ones (`messages`, `meta`). An empty field is left out, which
//! proto2 readers take as its zero value; fields are written in the order of their numbers, so equal
//! objects give equal bytes. Unknown fields are skipped, as protobuf asks; a known field of the wrong
//! form is an error that names it. `managedFields` is neither written nor read.
//!
//! On a watch, each event is a bare `meta/v1.WatchEvent` behind its length in four bytes, and the
//! object inside it has the envelope again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;

use self::codec::{Message, Writer};
use super::{API_VERSION, List, Object};

pub use self::codec::{Reader, Value};

pub mod builtin;
mod codec;
mod messages;
mod meta;

/// Content type of the encoding.
pub const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What every encoded object begins with.
const MAGIC: &[u8; 4] = b"k8s\0";

/// Why bytes are not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end inside a field.
    #[error("truncated")]
    Truncated,
    /// A number is longer than its type.
    #[error("malformed number")]
    Number,
    /// A field has a form that its type cannot have.
    #[error("field {field}: malformed {what}")]
    Field {
        /// Its number.
        field: u32,
        /// What it should be.
        what: &'static str,
    },
    /// A field that cannot be done without is not there.
    #[error("{message}: field {field} is missing")]
    Missing {
        /// Message that should have it.
        message: &'static str,
        /// Its number.
        field: u32,
    },
    /// The four bytes of Kubernetes' encoding are not there.
    #[error("not Kubernetes protobuf")]
    Magic,
    /// The object is of another kind.
    #[error("expected {expected}, got {found}")]
    Kind {
        /// The kind that was asked for, with its version.
        expected: String,
        /// The kind that is there, with its version.
        found: String,
    },
}

/// An object that has a protobuf form.
#[expect(private_bounds, reason = "the codec is nobody else's business")]
pub trait WireObject: Object + Message {}

impl<T: Object + Message> WireObject for T {}

/// The parts of an encoded object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// The message.
    pub raw: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Takes an encoded object apart.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let body = bytes.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
        let mut envelope = Self::default();
        let mut fields = Reader::new(body);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => {
                    let mut types = Reader::new(value.bytes(field)?);
                    while let Some((field, value)) = types.next()? {
                        match field {
                            1 => envelope.api_version = value.text(field)?,
                            2 => envelope.kind = value.text(field)?,
                            _ => {}
                        }
                    }
                }
                2 => envelope.raw = value.bytes(field)?,
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// Makes sure of what the object is.
    ///
    /// # Errors
    /// When it is of another kind or version.
    pub fn expect(&self, api_version: &str, kind: &str) -> Result<(), DecodeError> {
        if (self.api_version, self.kind) == (api_version, kind) {
            return Ok(());
        }
        Err(DecodeError::Kind {
            expected: format!("{api_version} {kind}"),
            found: format!("{} {}", self.api_version, self.kind),
        })
    }
}

/// Encodes an object.
pub fn encode<T: WireObject>(object: &T) -> Vec<u8> {
    enveloped(API_VERSION, T::KIND, |out| object.write(out))
}

/// Decodes an object, which must be of the kind asked for.
pub fn decode<T: WireObject>(bytes: &[u8]) -> Result<T, DecodeError> {
    let envelope = Envelope::parse(bytes)?;
    envelope.expect(API_VERSION, T::KIND)?;
    T::read(Reader::new(envelope.raw))
}

/// Encodes an object without the envelope.
pub fn encode_message<T: WireObject>(object: &T) -> Vec<u8> {
    let mut out = Writer::with_capacity(128);
    object.write(&mut out);
    out.into_bytes()
}

/// Decodes an object that has no envelope.
pub fn decode_message<T: WireObject>(bytes: &[u8]) -> Result<T, DecodeError> {
    T::read(Reader::new(bytes))
}

/// Encodes a list of objects.
pub fn encode_list<T: WireObject>(list: &List<T>) -> Vec<u8> {
    enveloped(API_VERSION, &format!("{}List", T::KIND), |out| {
        out.message(1, &list.metadata);
        for item in &list.items {
            out.present(2, item);
        }
    })
}

/// Decodes a list of objects, which must be of the kind asked for.
pub fn decode_list<T: WireObject>(bytes: &[u8]) -> Result<List<T>, DecodeError> {
    let envelope = Envelope::parse(bytes)?;
    envelope.expect(API_VERSION, &format!("{}List", T::KIND))?;
    let mut list = List { metadata: Default::default(), items: Vec::new() };
    let mut fields = Reader::new(envelope.raw);
    while let Some((field, value)) = fields.next()? {
        match field {
            1 => list.metadata = Message::read(Reader::new(value.bytes(field)?))?,
            2 => list.items.push(T::read(Reader::new(value.bytes(field)?))?),
            _ => {}
        }
    }
    Ok(list)
}

/// Encodes the answer to a request that failed, or the object of an `ERROR` event.
pub fn encode_status(status: &Status) -> Vec<u8> {
    enveloped("v1", "Status", |out| status.write(out))
}

/// Decodes the answer to a request that failed.
pub fn decode_status(bytes: &[u8]) -> Result<Status, DecodeError> {
    let envelope = Envelope::parse(bytes)?;
    envelope.expect("v1", "Status")?;
    Status::read(Reader::new(envelope.raw))
}

/// One event of a watch, its object still encoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchEvent<'a> {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    pub type_: &'a str,
    /// The object with its envelope.
    pub object: &'a [u8],
}

impl<'a> WatchEvent<'a> {
    /// Encodes the event; its length in four bytes goes before it on a stream.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(self.object.len() + self.type_.len() + 16);
        out.bytes(1, self.type_.as_bytes());
        out.nested(2, |out| out.bytes(1, self.object));
        out.into_bytes()
    }

    /// Decodes an event.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut event = Self::default();
        let mut fields = Reader::new(bytes);
        while let Some((field, value)) = fields.next()? {
            match field {
                1 => event.type_ = value.text(field)?,
                2 => {
                    let mut extension = Reader::new(value.bytes(field)?);
                    while let Some((field, value)) = extension.next()? {
                        if field == 1 {
                            event.object = value.bytes(field)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(event)
    }
}

fn enveloped(api_version: &str, kind: &str, message: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer::with_capacity(256);
    out.raw(MAGIC);
    out.nested(1, |out| {
        out.bytes(1, api_version.as_bytes());
        out.bytes(2, kind.as_bytes());
    });
    out.nested(2, message);
    // The Go types have these two as plain strings, and write them empty.
    out.bytes(3, b"");
    out.bytes(4, b"");
    out.into_bytes()
}

#[cfg(test)]
mod tests;
