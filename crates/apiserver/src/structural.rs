//! Structural schemas of CRDs: pruning, defaults, validation of values.
//!
//! Pure: a schema is compiled once and then applied to objects. Texts of errors are Kubernetes' own
//! where a client meets them often. Not here: CEL rules (the lab's), which fields there are for
//! patches and strict decoding (`schema`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use regex::Regex;
use serde_json::{Map, Value};

use crate::status::FieldError;

mod validate;

/// What a field may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// A number or a text (`x-kubernetes-int-or-string`).
    IntOrString,
    /// Anything.
    Any,
}

/// A list whose members are told apart.
#[derive(Clone, Debug)]
enum Unique {
    No,
    Set,
    Map(Vec<String>),
}

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema {
    kind: Kind,
    nullable: bool,
    properties: BTreeMap<String, Schema>,
    additional: Option<Box<Schema>>,
    items: Option<Box<Schema>>,
    preserve: bool,
    embedded: bool,
    default: Option<Value>,
    required: Vec<String>,
    options: Vec<Value>,
    pattern: Option<Arc<Regex>>,
    format: String,
    limits: Limits,
    unique: Unique,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
}

#[derive(Clone, Debug, Default)]
struct Limits {
    minimum: Option<f64>,
    maximum: Option<f64>,
    exclusive_minimum: bool,
    exclusive_maximum: bool,
    multiple_of: Option<f64>,
    min_length: Option<usize>,
    max_length: Option<usize>,
    min_items: Option<usize>,
    max_items: Option<usize>,
    min_properties: Option<usize>,
    max_properties: Option<usize>,
}

/// Compiles the `openAPIV3Schema` of a CRD's version.
///
/// # Errors
/// One error for each thing that makes the schema unusable, with `path` before it.
pub fn compile(schema: &Value, path: &str) -> Result<Schema, Vec<FieldError>> {
    let mut errors = Vec::new();
    let compiled = node(schema, path, Within::Structure, &mut errors);
    if errors.is_empty() { Ok(compiled) } else { Err(errors) }
}

/// Whether a schema node says what there is, or only adds conditions on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    Structure,
    Condition,
}

fn node(schema: &Value, path: &str, within: Within, errors: &mut Vec<FieldError>) -> Schema {
    let flag = |name: &str| schema[name] == true;
    let text = |name: &str| schema[name].as_str().unwrap_or("");
    let int_or_string = flag("x-kubernetes-int-or-string");
    let preserve = flag("x-kubernetes-preserve-unknown-fields");
    let kind = match text("type") {
        _ if int_or_string => Kind::IntOrString,
        "object" => Kind::Object,
        "array" => Kind::Array,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        "" if within == Within::Condition || preserve => Kind::Any,
        "" => {
            let detail = "must not be empty for specified object fields";
            errors.push(FieldError::required(&format!("{path}.type"), detail));
            Kind::Any
        }
        other => {
            let known = ["array", "boolean", "integer", "number", "object", "string"];
            errors.push(FieldError::unsupported(&format!("{path}.type"), other, &known));
            Kind::Any
        }
    };
    let pattern = match text("pattern") {
        "" => None,
        pattern => match Regex::new(pattern) {
            Ok(regex) => Some(Arc::new(regex)),
            Err(_) => {
                let detail = "must be a valid regular expression";
                errors.push(FieldError::invalid(&format!("{path}.pattern"), pattern, detail));
                None
            }
        },
    };
    let mut child = |schema: &Value, step: &str, within| {
        node(schema, &format!("{path}.{step}"), within, errors)
    };
    let properties = schema["properties"].as_object().into_iter().flatten();
    let properties = properties
        .map(|(name, schema)| (name.clone(), child(schema, &format!("properties[{name}]"), within)))
        .collect();
    let additional = schema["additionalProperties"]
        .is_object()
        .then(|| Box::new(child(&schema["additionalProperties"], "additionalProperties", within)));
    let items =
        schema["items"].is_object().then(|| Box::new(child(&schema["items"], "items", within)));
    let mut all = |name: &str| -> Vec<Schema> {
        let all = schema[name].as_array().into_iter().flatten().enumerate();
        all.map(|(n, schema)| child(schema, &format!("{name}[{n}]"), Within::Condition)).collect()
    };
    let (all_of, any_of, one_of) = (all("allOf"), all("anyOf"), all("oneOf"));
    let not = schema["not"]
        .is_object()
        .then(|| Box::new(child(&schema["not"], "not", Within::Condition)));
    let size = |name: &str| schema[name].as_u64().and_then(|n| usize::try_from(n).ok());
    let texts = |name: &str| -> Vec<String> {
        let all = schema[name].as_array().into_iter().flatten();
        all.filter_map(|item| item.as_str().map(str::to_owned)).collect()
    };
    Schema {
        kind,
        nullable: flag("nullable"),
        properties,
        additional,
        items,
        preserve: preserve || schema["additionalProperties"] == true,
        embedded: flag("x-kubernetes-embedded-resource"),
        default: schema.get("default").filter(|value| !value.is_null()).cloned(),
        required: texts("required"),
        options: schema["enum"].as_array().cloned().unwrap_or_default(),
        pattern,
        format: text("format").to_owned(),
        limits: Limits {
            minimum: schema["minimum"].as_f64(),
            maximum: schema["maximum"].as_f64(),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: schema["multipleOf"].as_f64().filter(|n| *n > 0.0),
            min_length: size("minLength"),
            max_length: size("maxLength"),
            min_items: size("minItems"),
            max_items: size("maxItems"),
            min_properties: size("minProperties"),
            max_properties: size("maxProperties"),
        },
        unique: match text("x-kubernetes-list-type") {
            "set" => Unique::Set,
            "map" => Unique::Map(texts("x-kubernetes-list-map-keys")),
            _ => Unique::No,
        },
        all_of,
        any_of,
        one_of,
        not,
    }
}

/// What every object has besides its schema.
const ROOT: [&str; 3] = ["apiVersion", "kind", "metadata"];

impl Schema {
    /// Removes fields that an object's schema does not have, and fills in defaults.
    pub fn prune_and_default(&self, object: &mut Value) {
        self.prune(object, true);
        self.fill(object);
    }

    fn prune(&self, value: &mut Value, root: bool) {
        match value {
            Value::Object(map) => {
                let kept = root || self.embedded;
                if !self.preserve && self.additional.is_none() && self.kind != Kind::Any {
                    map.retain(|name, _| {
                        self.properties.contains_key(name) || kept && ROOT.contains(&name.as_str())
                    });
                }
                for (name, value) in map.iter_mut() {
                    if kept && name == "metadata" {
                        continue;
                    }
                    if let Some(inner) = self.properties.get(name).or(self.additional.as_deref()) {
                        inner.prune(value, false);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(inner) = &self.items {
                    items.iter_mut().for_each(|item| inner.prune(item, false));
                }
            }
            _ => {}
        }
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (name, inner) in &self.properties {
                    // A null where null may not stand is as good as nothing, if there is a default.
                    let absent = map.get(name).is_none_or(|own| own.is_null() && !inner.nullable);
                    if let Some(default) = inner.default.as_ref().filter(|_| absent) {
                        map.insert(name.clone(), default.clone());
                    }
                }
                for (name, value) in map.iter_mut() {
                    if let Some(inner) = self.properties.get(name).or(self.additional.as_deref()) {
                        inner.fill(value);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(inner) = &self.items {
                    items.iter_mut().for_each(|item| inner.fill(item));
                }
            }
            _ => {}
        }
    }

    /// What is wrong with an object, field by field.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        self.check(object, "", &mut errors);
        errors
    }
}

fn duplicates(items: &[Value], unique: &Unique) -> Vec<usize> {
    let key = |item: &Value| match unique {
        Unique::Map(keys) => {
            let own: Map<String, Value> =
                keys.iter().map(|key| (key.clone(), item[key].clone())).collect();
            Value::Object(own).to_string()
        }
        _ => item.to_string(),
    };
    let mut seen = BTreeSet::new();
    if matches!(unique, Unique::No) {
        return Vec::new();
    }
    items.iter().enumerate().filter(|(_, item)| !seen.insert(key(item))).map(|(n, _)| n).collect()
}

#[cfg(test)]
mod tests;
