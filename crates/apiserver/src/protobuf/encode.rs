//! Writes an object as protobuf: the way back of reading one.
//!
//! Fields that are absent or null are left out, and fields come in the order of their numbers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::write::Message;
use super::{Numbered, Protobuf, ProtobufError};
use crate::schema::{Struct, Type};

impl Protobuf {
    /// Writes an object of a kind, without the envelope, which has its `apiVersion` and `kind`.
    ///
    /// # Errors
    /// When the kind or a field of the object has no number, or a value is not of its type.
    pub fn encode(&self, kind: &str, object: &Value) -> Result<Vec<u8>, ProtobufError> {
        let shape = self.shapes.get(kind).ok_or_else(|| ProtobufError::Kind(kind.to_owned()))?;
        let unwritable = || unwritable(shape, "");
        let map = object.as_object().ok_or_else(unwritable)?;
        let of_envelope = ["apiVersion", "kind"].iter().filter(|name| map.contains_key(**name));
        self.write_message(shape, map, of_envelope.count()).map(Message::done)
    }

    /// Writes all fields of a message but `n_others`, which are not in it.
    fn write_message(
        &self,
        shape: &Struct,
        map: &Map<String, Value>,
        n_others: usize,
    ) -> Result<Message, ProtobufError> {
        let numbers = self.numbers(shape)?;
        let (mut message, mut n_written) = (Message::default(), 0);
        for (number, numbered) in numbers {
            match numbered {
                Numbered::Field(name) => {
                    let Some(value) = map.get(name) else { continue };
                    n_written += 1;
                    message = self.write_field(shape, name, message, *number, value)?;
                }
                Numbered::Inlined(fields) => {
                    let (mut inner, before) = (Message::default(), n_written);
                    for (number, name) in fields {
                        let Some(value) = map.get(name) else { continue };
                        n_written += 1;
                        inner = self.write_field(shape, name, inner, *number, value)?;
                    }
                    if n_written > before {
                        message = message.bytes(field_number(*number), &inner.done());
                    }
                }
            }
        }
        if n_written + n_others == map.len() {
            return Ok(message);
        }
        let has_number = |name: &String| {
            numbers.values().any(|numbered| match numbered {
                Numbered::Field(field) => field == name,
                Numbered::Inlined(fields) => fields.values().any(|field| field == name),
            })
        };
        let others = if n_others > 0 { ["apiVersion", "kind"].as_slice() } else { &[] };
        let without = map.keys().find(|name| !has_number(name) && !others.contains(&name.as_str()));
        Err(unwritable(shape, without.map_or("", String::as_str)))
    }

    fn write_field(
        &self,
        shape: &Struct,
        name: &str,
        message: Message,
        number: u64,
        value: &Value,
    ) -> Result<Message, ProtobufError> {
        let wrong = || unwritable(shape, name);
        if value.is_null() {
            return Ok(message);
        }
        let number = field_number(number);
        match shape.fields.get(name).ok_or_else(wrong)? {
            Type::List(inner, _) => {
                let items = value.as_array().ok_or_else(wrong)?;
                items.iter().try_fold(message, |message, item| {
                    self.write_value(inner, message, number, item, &wrong)
                })
            }
            Type::Map(inner) => {
                let entries = value.as_object().ok_or_else(wrong)?;
                entries.iter().try_fold(message, |message, (key, item)| {
                    let entry = Message::default().bytes(1, key.as_bytes());
                    let entry = self.write_value(inner, entry, 2, item, &wrong)?;
                    Ok(message.bytes(number, &entry.done()))
                })
            }
            single => self.write_value(single, message, number, value, &wrong),
        }
    }

    fn write_value(
        &self,
        kind: &Type,
        message: Message,
        number: u32,
        value: &Value,
        wrong: &dyn Fn() -> ProtobufError,
    ) -> Result<Message, ProtobufError> {
        let text = || value.as_str().ok_or_else(wrong);
        Ok(match kind {
            Type::String => message.bytes(number, text()?.as_bytes()),
            Type::Bytes => message.bytes(number, &BASE64.decode(text()?).map_err(|_| wrong())?),
            Type::Bool => message.number(number, value.as_bool().ok_or_else(wrong)?.into()),
            Type::Int32 | Type::Int64 => {
                message.number(number, value.as_i64().ok_or_else(wrong)?.cast_unsigned())
            }
            Type::Number => message.double(number, value.as_f64().ok_or_else(wrong)?),
            Type::Struct(shape) => {
                let map = value.as_object().ok_or_else(wrong)?;
                message.bytes(number, &self.write_message(shape, map, 0)?.done())
            }
            Type::Time | Type::MicroTime => {
                message.bytes(number, &time(text()?).ok_or_else(wrong)?)
            }
            Type::Quantity => {
                let amount = Message::default().bytes(1, text()?.as_bytes());
                message.bytes(number, &amount.done())
            }
            Type::IntOrString => message.bytes(number, &int_or_string(value).ok_or_else(wrong)?),
            // JSON inside protobuf.
            Type::Any => {
                let json = Message::default().bytes(1, value.to_string().as_bytes());
                message.bytes(number, &json.done())
            }
            Type::List(..) | Type::Map(_) => return Err(wrong()),
        })
    }
}

fn unwritable(shape: &Struct, field: &str) -> ProtobufError {
    ProtobufError::Unwritable { kind: shape.name.clone(), field: field.to_owned() }
}

/// A number of a table, which has none that protobuf could not have.
fn field_number(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX >> 3)
}

fn time(text: &str) -> Option<Vec<u8>> {
    let time: Timestamp = text.parse().ok()?;
    let mut message = Message::default().number(1, time.as_second().cast_unsigned());
    if time.subsec_nanosecond() != 0 {
        message = message.number(2, u64::try_from(time.subsec_nanosecond()).ok()?);
    }
    Some(message.done())
}

fn int_or_string(value: &Value) -> Option<Vec<u8>> {
    let message = match value {
        Value::String(word) => Message::default().number(1, 1).bytes(3, word.as_bytes()),
        _ => Message::default().number(1, 0).number(2, value.as_i64()?.cast_unsigned()),
    };
    Some(message.done())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::write::envelope;
    use super::*;

    fn mk_protobuf() -> Protobuf {
        let text = "M apiVersion:string kind:string meta:Meta data:{bytes} flag:bool list:[Meta] \
                    port:intstr at:time n:int64 amount:{quantity} words:[string] free:any \
                    share:number unnumbered:string\n\
                    Meta name:string web:Meta2 file:Meta2\nMeta2 path:string";
        let table = "M meta=1 data=2 flag=3 list=4 port=5 at=6 n=7 amount=8 words=9 free=10 \
                     share=11\nMeta name=1 web=2.1 file=2.2\nMeta2 path=1\n";
        Protobuf::new(crate::schema::parse(text).unwrap(), table)
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let protobuf = mk_protobuf();
        assert!(protobuf.strays().is_empty());
        for object in [
            json!({}),
            json!({"meta": {"name": "a", "web": {"path": "/"}}, "flag": false, "n": 0}),
            json!({"meta": {"file": {}, "web": {}}, "data": {"k": "AAE=", "l": ""}, "port": 80,
                "at": "2026-01-01T00:00:00Z", "n": -5, "amount": {"cpu": "100m"},
                "words": ["", "x"], "free": {"f:a": [1, {}]}, "share": 0.5}),
            json!({"port": "http", "list": [{"name": "x"}, {}]}),
        ] {
            let message = protobuf.encode("M", &object).unwrap();
            let mut read = protobuf.decode(&envelope("v1", "M", &message)).unwrap();
            let map = read.as_object_mut().unwrap();
            map.retain(|name, _| name != "apiVersion" && name != "kind");
            assert_eq!(read, object);
        }
    }

    #[test]
    fn what_cannot_be_written_is_named() {
        let protobuf = mk_protobuf();
        for (object, want) in [
            (json!({"unnumbered": "x", "kind": "M"}), "M.unnumbered"),
            (json!({"unknown": 1}), "M.unknown"),
            (json!({"flag": "yes"}), "M.flag"),
            (json!({"list": [{"name": 5}]}), "Meta.name"),
            (json!({"at": "yesterday"}), "M.at"),
            (json!({"data": {"k": "%"}}), "M.data"),
        ] {
            let error = protobuf.encode("M", &object).unwrap_err().to_string();
            assert_eq!(error, format!("{want} cannot be written as protobuf here, accept JSON"));
        }
        assert_eq!(protobuf.encode("N", &json!({})), Err(ProtobufError::Kind("N".to_owned())));
    }
}
