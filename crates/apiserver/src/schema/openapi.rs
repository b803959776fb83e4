//! Shapes as OpenAPI v3 schemas.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Merge, Struct, Type};

/// A reference to a named component.
pub fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// Adds the schema of a named shape, and of what it refers to, to the components of a document.
pub fn components(shape: &Arc<Struct>, into: &mut BTreeMap<String, Value>) {
    if into.contains_key(&shape.name) {
        return;
    }
    into.insert(shape.name.clone(), Value::Null); // Holds the place while parts are written.
    let schema = in_place(shape, into);
    into.insert(shape.name.clone(), schema);
}

/// The schema of a shape, in place.
pub fn in_place(shape: &Arc<Struct>, into: &mut BTreeMap<String, Value>) -> Value {
    let properties: Map<String, Value> =
        shape.fields.iter().map(|(name, kind)| (name.clone(), field(kind, into))).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if shape.open {
        schema["x-kubernetes-preserve-unknown-fields"] = json!(true);
    }
    schema
}

fn field(kind: &Type, into: &mut BTreeMap<String, Value>) -> Value {
    match kind {
        Type::String => json!({"type": "string"}),
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Number => json!({"type": "number"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Time | Type::MicroTime => json!({"type": "string", "format": "date-time"}),
        Type::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Type::IntOrString => json!({
            "oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"
        }),
        Type::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
        Type::Struct(shape) if shape.name.is_empty() => in_place(shape, into),
        Type::Struct(shape) => {
            components(shape, into);
            json!({"allOf": [reference(&shape.name)]})
        }
        Type::List(inner, merge) => {
            let mut schema = json!({"type": "array", "items": field(inner, into)});
            match merge {
                Merge::Atomic => {}
                Merge::Set => schema["x-kubernetes-patch-strategy"] = json!("merge"),
                Merge::Key(key) => {
                    schema["x-kubernetes-patch-strategy"] = json!("merge");
                    schema["x-kubernetes-patch-merge-key"] = json!(key);
                }
            }
            schema
        }
        Type::Map(inner) => {
            json!({"type": "object", "additionalProperties": field(inner, into)})
        }
    }
}
