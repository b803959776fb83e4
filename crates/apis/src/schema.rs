//! Turns a Rust type into the structural schema that a CustomResourceDefinition may carry.
//!
//! The derived JSON Schema says more than Kubernetes accepts (references, titles, null as a type,
//! one sub-schema per variant of an enum); what is left here is types, ranges, enums and descriptions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// The schema of a whole object, kind and metadata included.
pub(crate) fn of<T: JsonSchema>() -> JSONSchemaProps {
    let settings = SchemaSettings::draft07().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let derived: Schema = settings.into_generator().into_root_schema_for::<T>();
    let mut tree = derived.to_value();
    simplify(&mut tree);
    if let Some(properties) = tree.get_mut("properties").and_then(Value::as_object_mut) {
        properties.insert("apiVersion".into(), json!({"type": "string"}));
        properties.insert("kind".into(), json!({"type": "string"}));
        properties.insert("metadata".into(), json!({"type": "object"}));
    }
    serde_json::from_value(tree).expect("a simplified schema has only Kubernetes' own keywords")
}

/// Schema of bytes, which are base64 in JSON.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte"})
}

/// Rewrites a schema and all below it.
fn simplify(tree: &mut Value) {
    let Some(schema) = tree.as_object_mut() else { return };
    for keyword in ["title", "$schema", "default"] {
        schema.remove(keyword);
    }
    drop_null(schema);
    merge_variants(schema);
    if schema.get("format").and_then(Value::as_str).is_some_and(|f| f.starts_with("uint")) {
        schema.remove("format");
    }
    for keyword in ["properties", "additionalProperties", "items"] {
        match schema.get_mut(keyword) {
            Some(Value::Object(members)) if keyword == "properties" => {
                members.values_mut().for_each(simplify);
            }
            Some(Value::Bool(_)) if keyword == "additionalProperties" => {
                schema.remove(keyword);
            }
            Some(member) => simplify(member),
            None => {}
        }
    }
}

/// An optional field may be left out, which Kubernetes takes for granted; it need not be null.
fn drop_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|of| of != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice != &json!({"type": "null"}));
        if let [Value::Object(only)] = choices.as_slice() {
            let only = only.clone();
            schema.remove("anyOf");
            for (keyword, value) in only {
                // The field's own description says more than that of its type.
                schema.entry(keyword).or_insert(value);
            }
        }
    }
}

/// Variants that are described one by one become one list of words.
fn merge_variants(schema: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = schema.get("oneOf") else { return };
    let words: Option<Vec<Value>> = variants
        .iter()
        .map(|variant| match (variant.get("const"), variant.get("enum")) {
            (Some(word), _) => Some(vec![word.clone()]),
            (None, Some(Value::Array(words))) => Some(words.clone()),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()
        .map(|lists| lists.concat());
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".into(), "string".into());
        schema.insert("enum".into(), Value::Array(words));
    }
}
