//! The protobuf wire format: tags, numbers and lengths, and how Rust types map to fields.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::DecodeError;
use crate::controlplane::bytes::{of_addr, to_addr};

/// A type that is a protobuf message.
pub(crate) trait Message: Sized {
    /// Writes all fields that are not empty.
    fn write(&self, out: &mut Writer);
    /// Reads all fields.
    fn read(from: Reader<'_>) -> Result<Self, DecodeError>;
}

/// A type that is a field of a message.
pub(crate) trait Field {
    /// Writes the field if it is not empty.
    fn write(&self, field: u32, out: &mut Writer);
    /// Takes one occurrence of the field.
    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError>;
}

/// Implements [`Message`] by field numbers.
///
/// `from` gives the value to begin with, where the type has no default; `required` lists the fields
/// without which that value would mean something else.
macro_rules! message {
    ($type:ident { $($name:ident = $number:literal),* $(,)? }) => {
        message!($type from $type::default(), required [] { $($name = $number),* });
    };
    (
        $type:ident from $start:expr, required [$($required:literal),*]
        { $($name:ident = $number:literal),* $(,)? }
    ) => {
        impl $crate::controlplane::wire::codec::Message for $type {
            fn write(&self, out: &mut $crate::controlplane::wire::codec::Writer) {
                $($crate::controlplane::wire::codec::Field::write(&self.$name, $number, out);)*
            }

            fn read(
                mut from: $crate::controlplane::wire::codec::Reader<'_>,
            ) -> Result<Self, $crate::controlplane::wire::DecodeError> {
                let mut message = $start;
                let mut seen = 0_u64;
                while let Some((field, value)) = from.next()? {
                    match field {
                        $($number => {
                            seen |= 1 << $number;
                            $crate::controlplane::wire::codec::Field::merge(
                                &mut message.$name, field, value,
                            )?;
                        })*
                        _ => {}
                    }
                }
                let required: &[u32] = &[$($required),*];
                for field in required.iter().copied() {
                    if seen & (1 << field) == 0 {
                        let message = stringify!($type);
                        return Err(
                            $crate::controlplane::wire::DecodeError::Missing { message, field },
                        );
                    }
                }
                Ok(message)
            }
        }
    };
}
pub(super) use message;

/// Writes fields one after the other.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Bytes that are no field.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn varint(&mut self, field: u32, value: u64) {
        self.number(u64::from(field) << 3);
        self.number(value);
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.number(u64::from(field) << 3 | 1);
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.number(u64::from(field) << 3 | 2);
        self.number(bytes.len() as u64);
        self.raw(bytes);
    }

    /// A message that is left out if it is empty.
    pub(super) fn message(&mut self, field: u32, message: &impl Message) {
        let before = self.0.len();
        if self.nested(field, |out| message.write(out)) == 0 {
            self.0.truncate(before);
        }
    }

    /// A message that is written even if it is empty.
    pub(super) fn present(&mut self, field: u32, message: &impl Message) {
        self.nested(field, |out| message.write(out));
    }

    /// A field with a length, which is known only after its content was written.
    pub(super) fn nested(&mut self, field: u32, content: impl FnOnce(&mut Self)) -> usize {
        self.number(u64::from(field) << 3 | 2);
        let at = self.0.len();
        content(self);
        let length = self.0.len() - at;
        // Written behind the content and rotated before it: most lengths are one byte.
        self.number(length as u64);
        let n_prefix = self.0.len() - at - length;
        self.0[at..].rotate_right(n_prefix);
        length
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }
}

/// One field as it is on the wire.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A number.
    Varint(u64),
    /// Eight bytes.
    Fixed64(u64),
    /// Four bytes.
    Fixed32,
    /// Bytes behind a length: text, bytes, a message or packed numbers.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// Bytes behind a length, which a field of that number must be.
    pub fn bytes(self, field: u32) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(DecodeError::Field { field, what: "bytes" }),
        }
    }

    /// Text, which a field of that number must be.
    pub fn text(self, field: u32) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(field)?)
            .map_err(|_| DecodeError::Field { field, what: "text" })
    }

    /// A number, which a field of that number must be.
    pub fn varint(self, field: u32) -> Result<u64, DecodeError> {
        match self {
            Self::Varint(value) => Ok(value),
            _ => Err(DecodeError::Field { field, what: "number" }),
        }
    }
}

/// Reads fields one after the other.
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads a message.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Number and value of the next field; nothing at the end.
    ///
    /// # Errors
    /// When the bytes end inside the field, or begin none.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Result<Option<(u32, Value<'a>)>, DecodeError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.number()?;
        let field = u32::try_from(tag >> 3).map_err(|_| DecodeError::Number)?;
        let value = match tag & 7 {
            0 => Value::Varint(self.number()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.number()?).map_err(|_| DecodeError::Truncated)?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.array::<4>()?;
                Value::Fixed32
            }
            _ => return Err(DecodeError::Field { field, what: "wire type" }),
        };
        Ok(Some((field, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for shift in (0..70).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Number);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Number)
    }
}

/// Numbers, which are left out when zero; an `Option` of one is left out when it is `None`.
macro_rules! number_field {
    ($($type:ty, $to:expr, $from:expr;)+) => {
        $(
            impl Field for $type {
                fn write(&self, field: u32, out: &mut Writer) {
                    if *self != <$type>::default() {
                        out.varint(field, $to(*self));
                    }
                }

                fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
                    let wrong = DecodeError::Field { field, what: stringify!($type) };
                    *self = $from(value.varint(field)?).ok_or(wrong)?;
                    Ok(())
                }
            }

            impl Field for Option<$type> {
                fn write(&self, field: u32, out: &mut Writer) {
                    if let Some(value) = self {
                        out.varint(field, $to(*value));
                    }
                }

                fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
                    self.get_or_insert_default().merge(field, value)
                }
            }
        )+
    };
}

number_field! {
    bool, u64::from, |value| Some(value != 0);
    i64, i64::cast_unsigned, |value: u64| Some(value.cast_signed());
    // A negative 32-bit number is sent as its 64-bit one.
    i32, |value: i32| i64::from(value).cast_unsigned(),
        |value: u64| i32::try_from(value.cast_signed()).ok();
}

impl Field for Option<f64> {
    fn write(&self, field: u32, out: &mut Writer) {
        if let Some(value) = self {
            out.double(field, *value);
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        let Value::Fixed64(bits) = value else {
            return Err(DecodeError::Field { field, what: "double" });
        };
        *self = Some(f64::from_bits(bits));
        Ok(())
    }
}

impl Field for String {
    fn write(&self, field: u32, out: &mut Writer) {
        if !self.is_empty() {
            out.bytes(field, self.as_bytes());
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        value.text(field)?.clone_into(self);
        Ok(())
    }
}

impl Field for Option<String> {
    fn write(&self, field: u32, out: &mut Writer) {
        if let Some(text) = self {
            out.bytes(field, text.as_bytes());
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        *self = Some(value.text(field)?.to_owned());
        Ok(())
    }
}

impl Field for Vec<String> {
    fn write(&self, field: u32, out: &mut Writer) {
        for text in self {
            out.bytes(field, text.as_bytes());
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        self.push(value.text(field)?.to_owned());
        Ok(())
    }
}

impl Field for Vec<u32> {
    fn write(&self, field: u32, out: &mut Writer) {
        for number in self {
            out.varint(field, u64::from(*number));
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        let wrong = |_| DecodeError::Field { field, what: "uint32" };
        match value {
            Value::Bytes(packed) => {
                let mut numbers = Reader::new(packed);
                while !numbers.0.is_empty() {
                    self.push(u32::try_from(numbers.number()?).map_err(wrong)?);
                }
            }
            single => self.push(u32::try_from(single.varint(field)?).map_err(wrong)?),
        }
        Ok(())
    }
}

impl Field for Vec<IpAddr> {
    fn write(&self, field: u32, out: &mut Writer) {
        for addr in self {
            out.bytes(field, &of_addr(*addr));
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        let wrong = DecodeError::Field { field, what: "address" };
        self.push(to_addr(value.bytes(field)?).ok_or(wrong)?);
        Ok(())
    }
}

impl Field for Option<BTreeMap<String, String>> {
    fn write(&self, field: u32, out: &mut Writer) {
        for (key, value) in self.iter().flatten() {
            out.nested(field, |out| {
                out.bytes(1, key.as_bytes());
                out.bytes(2, value.as_bytes());
            });
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        let (mut key, mut text) = (String::new(), String::new());
        let mut entry = Reader::new(value.bytes(field)?);
        while let Some((field, value)) = entry.next()? {
            match field {
                1 => key.merge(field, value)?,
                2 => text.merge(field, value)?,
                _ => {}
            }
        }
        self.get_or_insert_default().insert(key, text);
        Ok(())
    }
}

impl<M: Message> Field for M {
    fn write(&self, field: u32, out: &mut Writer) {
        out.message(field, self);
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        *self = M::read(Reader::new(value.bytes(field)?))?;
        Ok(())
    }
}

impl<M: Message> Field for Option<M> {
    fn write(&self, field: u32, out: &mut Writer) {
        if let Some(message) = self {
            out.present(field, message);
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        *self = Some(M::read(Reader::new(value.bytes(field)?))?);
        Ok(())
    }
}

impl<M: Message> Field for Vec<M> {
    fn write(&self, field: u32, out: &mut Writer) {
        for message in self {
            out.present(field, message);
        }
    }

    fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
        self.push(M::read(Reader::new(value.bytes(field)?))?);
        Ok(())
    }
}

/// Words of an enum, sent as text.
macro_rules! word_field {
    ($($type:ty,)+) => {
        $(
            impl Field for $type {
                fn write(&self, field: u32, out: &mut Writer) {
                    out.bytes(field, self.as_str().as_bytes());
                }

                fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
                    *self = value.text(field)?.into();
                    Ok(())
                }
            }

            impl Field for Option<$type> {
                fn write(&self, field: u32, out: &mut Writer) {
                    if let Some(word) = self {
                        out.bytes(field, word.as_str().as_bytes());
                    }
                }

                fn merge(&mut self, field: u32, value: Value<'_>) -> Result<(), DecodeError> {
                    *self = Some(value.text(field)?.into());
                    Ok(())
                }
            }
        )+
    };
}
pub(super) use word_field;
