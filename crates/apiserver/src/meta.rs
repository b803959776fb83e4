//! The metadata of JSON objects.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Name of an object; empty when it has none.
pub fn name(object: &Value) -> &str {
    text(object, "name")
}

/// Namespace of an object; empty when it has none.
pub fn namespace(object: &Value) -> &str {
    text(object, "namespace")
}

/// UID of an object; empty when it has none.
pub fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// A text of an object's metadata; empty when it is not there.
pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or("")
}

/// Version of an object; 0 when it has none.
pub fn version(object: &Value) -> u64 {
    text(object, "resourceVersion").parse().unwrap_or(0)
}

/// Whether the object is on its way out.
pub fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Finalizers that hold the object.
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.map(|items| items.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Sets a metadata field, or removes it with `null`.
pub fn set(object: &mut Value, field: &str, value: Value) {
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if value.is_null() {
            metadata.remove(field);
        } else {
            metadata.insert(field.to_owned(), value);
        }
    }
}

/// Sets a top-level field, or removes it with `null`.
pub fn set_part(object: &mut Value, field: &str, value: Value) {
    if let Some(map) = object.as_object_mut() {
        if value.is_null() {
            map.remove(field);
        } else {
            map.insert(field.to_owned(), value);
        }
    }
}

/// Time as Kubernetes writes it.
pub fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The current time as Kubernetes writes it.
pub fn now() -> String {
    time(Timestamp::now())
}
