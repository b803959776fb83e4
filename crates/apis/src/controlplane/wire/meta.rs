//! Field numbers of the messages that come from Kubernetes itself.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    ListMeta, ObjectMeta, OwnerReference, Status, StatusDetails, Time,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::jiff::Timestamp;

use super::DecodeError;
use super::codec::{Field, Message, Reader, Writer, message};

message! {
    ObjectMeta {
        name = 1,
        generate_name = 2,
        namespace = 3,
        self_link = 4,
        uid = 5,
        resource_version = 6,
        generation = 7,
        creation_timestamp = 8,
        deletion_timestamp = 9,
        deletion_grace_period_seconds = 10,
        labels = 11,
        annotations = 12,
        owner_references = 13,
        finalizers = 14,
    }
}

message! {
    OwnerReference {
        kind = 1,
        name = 3,
        uid = 4,
        api_version = 5,
        controller = 6,
        block_owner_deletion = 7,
    }
}

message! {
    ListMeta { self_link = 1, resource_version = 2, continue_ = 3, remaining_item_count = 4 }
}

message! {
    Status { metadata = 1, status = 2, message = 3, reason = 4, details = 5, code = 6 }
}

message! {
    StatusDetails { name = 1, group = 2, kind = 3, retry_after_seconds = 5, uid = 6 }
}

impl Field for Option<Vec<String>> {
    fn write(&self, field: u32, out: &mut Writer) {
        for text in self.iter().flatten() {
            out.bytes(field, text.as_bytes());
        }
    }

    fn merge(&mut self, field: u32, value: super::Value<'_>) -> Result<(), DecodeError> {
        self.get_or_insert_default().merge(field, value)
    }
}

impl Field for Option<Vec<OwnerReference>> {
    fn write(&self, field: u32, out: &mut Writer) {
        for owner in self.iter().flatten() {
            out.present(field, owner);
        }
    }

    fn merge(&mut self, field: u32, value: super::Value<'_>) -> Result<(), DecodeError> {
        self.get_or_insert_default().merge(field, value)
    }
}

/// `{ 1: seconds, 2: nanoseconds }`
impl Message for Time {
    fn write(&self, out: &mut Writer) {
        self.0.as_second().write(1, out);
        self.0.subsec_nanosecond().write(2, out);
    }

    fn read(mut from: Reader<'_>) -> Result<Self, DecodeError> {
        let (mut seconds, mut nanoseconds) = (0_i64, 0_i32);
        while let Some((field, value)) = from.next()? {
            match field {
                1 => seconds.merge(field, value)?,
                2 => nanoseconds.merge(field, value)?,
                _ => {}
            }
        }
        let time = Timestamp::new(seconds, nanoseconds);
        time.map(Time).map_err(|_| DecodeError::Field { field: 1, what: "time" })
    }
}

/// `{ 1: 0 for a number and 1 for a word, 2: number, 3: word }`
impl Message for IntOrString {
    fn write(&self, out: &mut Writer) {
        match self {
            Self::Int(number) => number.write(2, out),
            Self::String(word) => {
                out.varint(1, 1);
                word.write(3, out);
            }
        }
    }

    fn read(mut from: Reader<'_>) -> Result<Self, DecodeError> {
        let (mut form, mut number, mut word) = (0_i64, 0_i32, String::new());
        while let Some((field, value)) = from.next()? {
            match field {
                1 => form.merge(field, value)?,
                2 => number.merge(field, value)?,
                3 => word.merge(field, value)?,
                _ => {}
            }
        }
        match form {
            0 => Ok(Self::Int(number)),
            1 => Ok(Self::String(word)),
            _ => Err(DecodeError::Field { field: 1, what: "number or word" }),
        }
    }
}
