//! Turns a Rust type into the structural schema that a CustomResourceDefinition may carry.
//!
//! The derived JSON Schema says more than Kubernetes accepts (references, titles, null as a type,
//! one sub-schema per variant of an enum); what is left here is types, ranges, enums and descriptions.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// The schema of a whole object, kind and metadata included, narrowed by `refine`.
pub(crate) fn of<T: JsonSchema>(refine: fn(&mut Refine<'_>)) -> JSONSchemaProps {
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
    refine(&mut Refine(&mut tree));
    serde_json::from_value(tree).expect("a simplified schema has only Kubernetes' own keywords")
}

/// Schema of bytes, which are base64 in JSON.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte"})
}

/// Schema of plain text, for a type whose known words are no constraint.
pub(crate) fn text(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string"})
}

/// Schema of a number or a word.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// Schema of a list of networks.
pub(crate) fn cidrs(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "items": {"type": "string", "format": "cidr"}})
}

/// Schema of a protocol that has ports.
pub(crate) fn transport_protocol(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "enum": ["TCP", "UDP", "SCTP"]})
}

/// Schema of a method of HTTP.
pub(crate) fn http_method(_: &mut SchemaGenerator) -> Schema {
    let methods = ["GET", "POST", "PUT", "HEAD", "DELETE", "TRACE", "OPTIONS", "CONNECT", "PATCH"];
    json_schema!({"type": "string", "enum": methods})
}

/// Schema of a label selector, with the constraints that Kubernetes puts on its own.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
            "matchExpressions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string"},
                        "operator": {
                            "type": "string",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"],
                        },
                        "values": {
                            "type": "array",
                            "items": {
                                "type": "string",
                                "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
                            },
                        },
                    },
                },
            },
        },
    })
}

/// Narrows a derived schema to what one kind has of a type that several kinds share.
///
/// Paths are field names with dots between; a list is passed through to its items.
pub(crate) struct Refine<'a>(pub(crate) &'a mut Value);

impl Refine<'_> {
    /// Takes these fields out.
    pub(crate) fn without(&mut self, paths: &[&str]) {
        for path in paths {
            let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
            if let Some(parent) = self.field(parent) {
                if let Some(Value::Object(fields)) = parent.get_mut("properties") {
                    fields.remove(name);
                }
                if let Some(Value::Array(required)) = parent.get_mut("required") {
                    required.retain(|field| field != name);
                }
            }
        }
    }

    /// Allows only these numbers.
    pub(crate) fn numbers(&mut self, path: &str, numbers: &[i32]) {
        if let Some(field) = self.field(path) {
            field["enum"] = json!(numbers);
        }
    }

    /// Makes a field of an object required.
    pub(crate) fn require(&mut self, path: &str, name: &str) {
        if let Some(object) = self.field(path) {
            match object.get_mut("required") {
                Some(Value::Array(required)) => required.push(json!(name)),
                _ => object["required"] = json!([name]),
            }
        }
    }

    fn field(&mut self, path: &str) -> Option<&mut Value> {
        let mut here = &mut *self.0;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            here = here.get_mut("properties")?.get_mut(name)?;
            if here.get("items").is_some() {
                here = here.get_mut("items")?;
            }
        }
        Some(here)
    }
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
    if let Some(Value::Array(words)) = schema.get_mut("enum") {
        words.retain(|word| !word.is_null());
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
