//! Writes Kubernetes protobuf: the envelope, lists, watch frames, statuses.
//!
//! The objects' own messages come encoded from their [`crate::source::Object`]; here is only what
//! surrounds them.
//!
//! ```text
//! object:  "k8s\0" Unknown{ 1: TypeMeta{ 1: apiVersion, 2: kind }, 2: message }
//! list:    the same, its message { 1: ListMeta{ 2: resourceVersion, 3: continue, 4: remaining },
//!                                  2: item, 2: item, ... }
//! watch:   u32 big endian length, WatchEvent{ 1: type, 2: RawExtension{ 1: object } }
//! ```

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::Value;

use super::MAGIC;
use crate::status::ApiError;

/// A message under construction.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, value: u64) {
        put_varint(&mut self.0, value);
    }

    /// Adds a text or message field.
    pub fn bytes(mut self, field: u32, content: &[u8]) -> Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(content.len() as u64);
        self.0.extend_from_slice(content);
        self
    }

    /// Adds a text field, unless it is empty.
    pub fn text(self, field: u32, text: &str) -> Self {
        if text.is_empty() { self } else { self.bytes(field, text.as_bytes()) }
    }

    /// Adds a number.
    pub fn number(mut self, field: u32, number: u64) -> Self {
        self.varint(u64::from(field) << 3);
        self.varint(number);
        self
    }

    /// Adds a number with a fraction.
    pub fn double(mut self, field: u32, number: f64) -> Self {
        self.varint(u64::from(field) << 3 | 1);
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// The encoded message.
    pub fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Length of a varint.
fn varint_len(value: usize) -> usize {
    (value.checked_ilog2().unwrap_or(0) / 7 + 1) as usize
}

fn put_varint(into: &mut impl BufMut, mut value: u64) {
    while value >= 0x80 {
        into.put_u8(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    into.put_u8(value.to_le_bytes()[0]);
}

fn put_length(into: &mut impl BufMut, length: usize) {
    put_varint(into, length as u64);
}

fn type_meta(api_version: &str, kind: &str) -> Vec<u8> {
    Message::default().text(1, api_version).text(2, kind).done()
}

/// Puts a message into its envelope.
pub fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Bytes {
    let type_meta = type_meta(api_version, kind);
    let mut out = BytesMut::with_capacity(MAGIC.len() + type_meta.len() + message.len() + 16);
    write_envelope(&mut out, &type_meta, message);
    out.freeze()
}

fn write_envelope(out: &mut BytesMut, type_meta: &[u8], message: &[u8]) {
    out.put_slice(MAGIC);
    out.put_u8(1 << 3 | 2);
    put_length(out, type_meta.len());
    out.put_slice(type_meta);
    out.put_u8(2 << 3 | 2);
    put_length(out, message.len());
    out.put_slice(message);
}

/// One frame of a watch: an event around an object in its envelope.
pub fn frame(event: &str, api_version: &str, kind: &str, message: &[u8]) -> Bytes {
    // All lengths are known before, so that a large message is copied once.
    let type_meta = type_meta(api_version, kind);
    let field = |length: usize| 1 + varint_len(length) + length;
    let object = MAGIC.len() + field(type_meta.len()) + field(message.len());
    let extension = field(object);
    let total = field(event.len()) + field(extension);
    let mut out = BytesMut::with_capacity(4 + total);
    out.put_u32(u32::try_from(total).unwrap_or(u32::MAX));
    out.put_u8(1 << 3 | 2);
    put_length(&mut out, event.len());
    out.put_slice(event.as_bytes());
    out.put_u8(2 << 3 | 2);
    put_length(&mut out, extension);
    out.put_u8(1 << 3 | 2);
    put_length(&mut out, object);
    write_envelope(&mut out, &type_meta, message);
    out.freeze()
}

/// The message of a list.
pub fn list(metadata: &Value, items: &[Bytes]) -> Vec<u8> {
    let text = |name: &str| metadata[name].as_str().unwrap_or("");
    let mut meta = Message::default().text(2, text("resourceVersion")).text(3, text("continue"));
    if let Some(rest) = metadata["remainingItemCount"].as_u64() {
        meta = meta.number(4, rest);
    }
    let mut list = Message::default().bytes(1, &meta.done());
    for item in items {
        list = list.bytes(2, item);
    }
    list.done()
}

/// The message of an object that has nothing but a version and annotations, as bookmarks have.
pub fn bookmark(metadata: &Value) -> Vec<u8> {
    let version = metadata["resourceVersion"].as_str().unwrap_or("");
    let mut meta = Message::default().text(6, version);
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        let entry = Message::default()
            .bytes(1, key.as_bytes())
            .bytes(2, value.as_str().unwrap_or("").as_bytes());
        meta = meta.bytes(12, &entry.done());
    }
    Message::default().bytes(1, &meta.done()).done()
}

/// The message of a `Status` that tells an error.
pub fn status(error: &ApiError) -> Vec<u8> {
    Message::default()
        .bytes(1, &[])
        .text(2, "Failure")
        .text(3, &error.message)
        .text(4, error.reason)
        .number(6, u64::from(error.code))
        .done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_lengths_they_claim() {
        for size in [0, 1, 127, 128, 20_000] {
            let message = vec![7; size];
            let frame = frame("ADDED", "g/v1", "Kind", &message);
            let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
            assert_eq!(frame.len(), 4 + length as usize);
            let object = envelope("g/v1", "Kind", &message);
            let extension = Message::default().bytes(1, &object).done();
            let event = Message::default().text(1, "ADDED").bytes(2, &extension).done();
            assert_eq!(frame[4..], event);
        }
    }
}
