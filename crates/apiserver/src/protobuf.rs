//! Objects of built-in kinds: protobuf, as typed Go clients speak it, <-> JSON.
//!
//! A body is an envelope with apiVersion, kind and the object; the object is read and written
//! (`encode`) by its shape and a table of field numbers. A field that the table does not know is an
//! error that names it. What surrounds objects that are sent is put together in [`mod@write`].

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::schema::{Struct, Type};

mod encode;
pub mod write;

/// Media type of such bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// First bytes of an envelope.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// No envelope, or one that ends early.
    #[error("malformed protobuf")]
    Malformed,
    /// A kind without field numbers.
    #[error("kind {0:?} is not read from protobuf here, send JSON")]
    Kind(String),
    /// A field without a number.
    #[error("field {number} of {kind} is not read from protobuf here, send JSON")]
    Field {
        /// Type of the message.
        kind: String,
        /// Number of the field.
        number: u64,
    },
    /// A field that has no number, or a value that its type cannot have.
    #[error("{kind}.{field} cannot be written as protobuf here, accept JSON")]
    Unwritable {
        /// Type of the message.
        kind: String,
        /// The field.
        field: String,
    },
}

/// Shapes and field numbers of the kinds that have a protobuf form here.
#[derive(Default)]
pub struct Protobuf {
    shapes: BTreeMap<String, Arc<Struct>>,
    numbers: BTreeMap<String, Numbers>,
}

/// What the numbers of a message stand for.
type Numbers = BTreeMap<u64, Numbered>;

/// What a number stands for.
enum Numbered {
    /// A field.
    Field(String),
    /// A message whose fields JSON has beside those of the message around it.
    Inlined(BTreeMap<u64, String>),
}

/// A value on the wire.
enum Wire<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

impl Protobuf {
    /// Reads a table of numbers: a line per type, `Name field=number field=number ...`. A field of
    /// a message in between, which JSON does not have, is `field=its.number`.
    pub fn new(shapes: BTreeMap<String, Arc<Struct>>, table: &str) -> Self {
        let mut numbers = BTreeMap::new();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let Some(name) = words.next() else { continue };
            let mut fields = Numbers::new();
            for (field, number) in words.filter_map(|word| word.split_once('=')) {
                number_field(&mut fields, field, number);
            }
            numbers.insert(name.to_owned(), fields);
        }
        Self { shapes, numbers }
    }

    /// The numbered fields that no shape has; empty when the table is right.
    pub fn strays(&self) -> Vec<String> {
        let mut strays = Vec::new();
        for (name, fields) in &self.numbers {
            let shape = self.shapes.get(name);
            let names = fields.values().flat_map(|numbered| match numbered {
                Numbered::Field(field) => vec![field],
                Numbered::Inlined(fields) => fields.values().collect(),
            });
            for field in names {
                if !shape.is_some_and(|shape| shape.fields.contains_key(field)) {
                    strays.push(format!("{name}.{field}"));
                }
            }
        }
        strays
    }

    /// Reads a body.
    pub fn decode(&self, body: &[u8]) -> Result<Value, ProtobufError> {
        let mut rest = body.strip_prefix(MAGIC).ok_or(ProtobufError::Malformed)?;
        let (mut type_meta, mut raw): (&[u8], &[u8]) = (&[], &[]);
        while let Some((number, value)) = next(&mut rest)? {
            match (number, value) {
                (1, Wire::Bytes(bytes)) => type_meta = bytes,
                (2, Wire::Bytes(bytes)) => raw = bytes,
                _ => {}
            }
        }
        let (mut api_version, mut kind) = (String::new(), String::new());
        while let Some((number, value)) = next(&mut type_meta)? {
            match (number, value) {
                (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
                (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                _ => {}
            }
        }
        let shape = self.shapes.get(&kind);
        let shape = shape.ok_or_else(|| ProtobufError::Kind(kind.clone()))?;
        let mut object = self.message(shape, raw)?;
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        Ok(object)
    }

    fn numbers(&self, shape: &Struct) -> Result<&Numbers, ProtobufError> {
        self.numbers.get(&shape.name).ok_or_else(|| ProtobufError::Kind(shape.name.clone()))
    }

    fn message(&self, shape: &Struct, mut bytes: &[u8]) -> Result<Value, ProtobufError> {
        let numbers = self.numbers(shape)?;
        let mut map = Map::new();
        while let Some((number, wire)) = next(&mut bytes)? {
            let unknown = |number| ProtobufError::Field { kind: shape.name.clone(), number };
            match (numbers.get(&number).ok_or_else(|| unknown(number))?, wire) {
                (Numbered::Field(name), wire) => self.field(shape, name, wire, &mut map)?,
                (Numbered::Inlined(fields), Wire::Bytes(mut bytes)) => {
                    while let Some((number, wire)) = next(&mut bytes)? {
                        let name = fields.get(&number).ok_or_else(|| unknown(number))?;
                        self.field(shape, name, wire, &mut map)?;
                    }
                }
                _ => return Err(ProtobufError::Malformed),
            }
        }
        Ok(Value::Object(map))
    }

    fn field(
        &self,
        shape: &Struct,
        name: &str,
        wire: Wire<'_>,
        map: &mut Map<String, Value>,
    ) -> Result<(), ProtobufError> {
        match shape.fields.get(name).ok_or_else(|| ProtobufError::Kind(shape.name.clone()))? {
            Type::List(inner, _) => {
                let item = self.value(inner, wire)?;
                if let Value::Array(items) = map.entry(name).or_insert_with(|| json!([])) {
                    items.push(item);
                }
            }
            Type::Map(inner) => {
                let (key, item) = self.entry(inner, wire)?;
                if let Value::Object(entries) = map.entry(name).or_insert_with(|| json!({})) {
                    entries.insert(key, item);
                }
            }
            single => {
                map.insert(name.to_owned(), self.value(single, wire)?);
            }
        }
        Ok(())
    }

    fn entry(&self, inner: &Type, wire: Wire<'_>) -> Result<(String, Value), ProtobufError> {
        let Wire::Bytes(mut bytes) = wire else { return Err(ProtobufError::Malformed) };
        let (mut key, mut value) = (String::new(), Value::Null);
        while let Some((number, wire)) = next(&mut bytes)? {
            match (number, wire) {
                (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                (2, wire) => value = self.value(inner, wire)?,
                _ => return Err(ProtobufError::Malformed),
            }
        }
        Ok((key, value))
    }

    fn value(&self, kind: &Type, wire: Wire<'_>) -> Result<Value, ProtobufError> {
        Ok(match (kind, wire) {
            (Type::String, Wire::Bytes(bytes)) => json!(text(bytes)?),
            (Type::Bytes, Wire::Bytes(bytes)) => json!(BASE64.encode(bytes)),
            (Type::Bool, Wire::Varint(number)) => json!(number != 0),
            (Type::Int32 | Type::Int64, Wire::Varint(number)) => json!(number.cast_signed()),
            (Type::Number, Wire::Fixed(bits)) => json!(f64::from_bits(bits)),
            (Type::Struct(shape), Wire::Bytes(bytes)) => self.message(shape, bytes)?,
            (Type::Time | Type::MicroTime, Wire::Bytes(bytes)) => time(kind, bytes)?,
            (Type::Quantity, Wire::Bytes(mut bytes)) => match next(&mut bytes)? {
                Some((1, Wire::Bytes(amount))) => json!(text(amount)?),
                _ => Value::Null,
            },
            (Type::IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
            (Type::Any, Wire::Bytes(mut bytes)) => match next(&mut bytes)? {
                Some((1, Wire::Bytes(json))) => {
                    serde_json::from_slice(json).map_err(|_| ProtobufError::Malformed)?
                }
                _ => Value::Null,
            },
            _ => return Err(ProtobufError::Malformed),
        })
    }
}

/// Puts a field of a table's line where its number is.
fn number_field(fields: &mut Numbers, field: &str, number: &str) {
    let (number, inner) = match number.split_once('.') {
        Some((outer, inner)) => (outer, Some(inner)),
        None => (number, None),
    };
    let Ok(number) = number.parse() else { return };
    let Some(inner) = inner else {
        fields.insert(number, Numbered::Field(field.to_owned()));
        return;
    };
    let inlined = fields.entry(number).or_insert_with(|| Numbered::Inlined(BTreeMap::new()));
    if let (Numbered::Inlined(fields), Ok(inner)) = (inlined, inner.parse()) {
        fields.insert(inner, field.to_owned());
    }
}

fn time(kind: &Type, mut bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut empty = true;
    while let Some((number, wire)) = next(&mut bytes)? {
        empty = false;
        match (number, wire) {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) => nanos = i32::try_from(value).unwrap_or(0),
            _ => return Err(ProtobufError::Malformed),
        }
    }
    if empty {
        return Ok(Value::Null);
    }
    let time = Timestamp::new(seconds, nanos).map_err(|_| ProtobufError::Malformed)?;
    let format = match kind {
        Type::MicroTime => "%Y-%m-%dT%H:%M:%S%.6fZ",
        _ => "%Y-%m-%dT%H:%M:%SZ",
    };
    Ok(json!(time.strftime(format).to_string()))
}

fn int_or_string(mut bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut kind, mut number, mut string) = (0, 0, String::new());
    while let Some((field, wire)) = next(&mut bytes)? {
        match (field, wire) {
            (1, Wire::Varint(value)) => kind = value,
            (2, Wire::Varint(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => string = text(bytes)?,
            _ => return Err(ProtobufError::Malformed),
        }
    }
    Ok(if kind == 0 { json!(number) } else { json!(string) })
}

fn text(bytes: &[u8]) -> Result<String, ProtobufError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ProtobufError::Malformed)
}

/// Takes the next field off a message.
fn next<'a>(bytes: &mut &'a [u8]) -> Result<Option<(u64, Wire<'a>)>, ProtobufError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let key = varint(bytes)?;
    let take = |bytes: &mut &'a [u8], length: usize| {
        let (taken, rest) = bytes.split_at_checked(length).ok_or(ProtobufError::Malformed)?;
        *bytes = rest;
        Ok(taken)
    };
    let wire = match key & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => {
            let taken: &[u8] = take(bytes, 8)?;
            let taken = taken.try_into().map_err(|_| ProtobufError::Malformed)?;
            Wire::Fixed(u64::from_le_bytes(taken))
        }
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| ProtobufError::Malformed)?;
            Wire::Bytes(take(bytes, length)?)
        }
        _ => return Err(ProtobufError::Malformed),
    };
    Ok(Some((key >> 3, wire)))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(ProtobufError::Malformed)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One length-delimited field.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn mk_protobuf() -> Protobuf {
        let text = "M meta:Meta data:{bytes} flag:bool list:[Meta] port:intstr at:time n:int64\n\
                    Meta name:string";
        let shapes = crate::schema::parse(text).unwrap();
        Protobuf::new(shapes, "M meta=1 data=2 flag=3 list=4 port=5 at=6 n=7\nMeta name=1\n")
    }

    fn mk_body(raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, b"M")].concat();
        [b"k8s\0".to_vec(), field(1, &type_meta), field(2, raw)].concat()
    }

    #[test]
    fn bodies_are_read_by_number() {
        let raw = [
            field(1, &field(1, b"a")),
            field(2, &[field(1, b"k"), field(2, b"\x00\x01")].concat()),
            vec![3 << 3, 1],
            field(4, &field(1, b"x")),
            field(4, &field(1, b"y")),
            field(5, &[1 << 3, 1, 3 << 3 | 2, 2, b'h', b't']),
            field(6, &[1 << 3, 60]),
            vec![7 << 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ]
        .concat();
        let protobuf = mk_protobuf();
        assert_eq!(
            protobuf.decode(&mk_body(&raw)),
            Ok(json!({
                "apiVersion": "v1", "kind": "M", "meta": {"name": "a"}, "data": {"k": "AAE="},
                "flag": true, "list": [{"name": "x"}, {"name": "y"}], "port": "ht",
                "at": "1970-01-01T00:01:00Z", "n": -1,
            }))
        );
        assert!(protobuf.strays().is_empty());
        let body = mk_body(&raw);
        for cut in 0..body.len() {
            let _ = protobuf.decode(&body[..cut]);
        }
        let unknown = protobuf.decode(&mk_body(&field(9, b"")));
        assert_eq!(unknown, Err(ProtobufError::Field { kind: "M".to_owned(), number: 9 }));
        assert_eq!(protobuf.decode(b"{}"), Err(ProtobufError::Malformed));
    }
}
