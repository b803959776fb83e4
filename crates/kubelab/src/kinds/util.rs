//! Small steps that many rules take.

use std::net::IpAddr;

use apiserver::status::FieldError;
use serde_json::Value;

/// Sets a field that is not there.
pub(crate) fn set_default(object: &mut Value, field: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        let slot = map.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value;
        }
    }
}

/// The members of a list field, to be changed.
pub(crate) fn each_mut<'a>(
    object: &'a mut Value,
    field: &str,
) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The members of a list field.
pub(crate) fn each<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}

/// A text field; empty when it is not there.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or("")
}

/// A text for a table cell.
pub(crate) fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

/// Refuses a text that is not in a list; empty is left to others.
pub(crate) fn one_of(errors: &mut Vec<FieldError>, field: &str, value: &str, supported: &[&str]) {
    if !value.is_empty() && !supported.contains(&value) {
        errors.push(FieldError::unsupported(field, value, supported));
    }
}

/// Refuses a port number outside of 1 to 65535.
pub(crate) fn port_in_range(errors: &mut Vec<FieldError>, field: &str, value: &Value) {
    if let Some(number) = value.as_i64()
        && !(1..=65535).contains(&number)
    {
        let why = "must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(field, number, why));
    }
}

/// Whether a text is an address.
pub(crate) fn is_ip(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok()
}
