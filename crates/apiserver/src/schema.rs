//! Shapes of objects: which fields a kind has and of which types.
//!
//! From one compact text ([`parse`]) or a CRD's OpenAPI schema come type checks, the search for
//! unknown fields, normal forms of times and quantities, the merge keys of strategic patches and
//! the published OpenAPI. Not here: rules about values (`resource::Strategy`).

mod decode;
mod openapi;
mod scalar;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use decode::{Decoded, Unknown, decode};
pub use openapi::{components, in_place, reference};
pub use scalar::{canonical_quantity, quantity_millis};

/// Type of a field.
#[derive(Clone, Debug)]
pub enum Type {
    /// Text.
    String,
    /// Truth value.
    Bool,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int64,
    /// Any JSON number.
    Number,
    /// Base64 text.
    Bytes,
    /// Time with whole seconds.
    Time,
    /// Time with microseconds.
    MicroTime,
    /// Amount with a unit, as `100m` or `64Mi`.
    Quantity,
    /// Integer or text.
    IntOrString,
    /// Anything.
    Any,
    /// An object with known fields.
    Struct(Arc<Struct>),
    /// A list.
    List(Box<Type>, Merge),
    /// An object with free keys.
    Map(Box<Type>),
}

/// How a strategic merge patch treats a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// It is replaced.
    Atomic,
    /// Members are found by this field.
    Key(String),
    /// Members are plain values and added to the set.
    Set,
}

/// An object type.
#[derive(Debug, Default)]
pub struct Struct {
    /// Name of the type; empty for one written in place.
    pub name: String,
    /// Its fields.
    pub fields: BTreeMap<String, Type>,
    /// Whether fields that are not listed are kept.
    pub open: bool,
}

/// Why a text of types cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("type {name}: {why}")]
pub struct SchemaError {
    name: String,
    why: String,
}

/// The types of a compact text: a line per type, `Name field:type field:type ...`.
pub fn parse(text: &str) -> Result<BTreeMap<String, Arc<Struct>>, SchemaError> {
    let lines: BTreeMap<&str, &str> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let mut parser = Parser { lines, done: BTreeMap::new(), open: Vec::new() };
    let names: Vec<&str> = parser.lines.keys().copied().collect();
    for name in names {
        parser.resolve(name)?;
    }
    Ok(parser.done)
}

struct Parser<'a> {
    lines: BTreeMap<&'a str, &'a str>,
    done: BTreeMap<String, Arc<Struct>>,
    open: Vec<&'a str>,
}

impl<'a> Parser<'a> {
    fn resolve(&mut self, name: &'a str) -> Result<Arc<Struct>, SchemaError> {
        let error = |why: &str| SchemaError { name: name.to_owned(), why: why.to_owned() };
        if let Some(done) = self.done.get(name) {
            return Ok(Arc::clone(done));
        }
        if self.open.contains(&name) {
            return Err(error("contains itself"));
        }
        let line = *self.lines.get(name).ok_or_else(|| error("unknown"))?;
        self.open.push(name);
        let mut fields = BTreeMap::new();
        for field in line.split_whitespace() {
            let (field, kind) = field.split_once(':').ok_or_else(|| error("field without type"))?;
            fields.insert(field.to_owned(), self.parse_type(kind)?);
        }
        self.open.pop();
        let done = Arc::new(Struct { name: name.to_owned(), fields, open: false });
        self.done.insert(name.to_owned(), Arc::clone(&done));
        Ok(done)
    }

    fn parse_type(&mut self, text: &'a str) -> Result<Type, SchemaError> {
        if let Some(rest) = text.strip_prefix('[') {
            let (item, merge) = rest.rsplit_once(']').unwrap_or((rest, ""));
            let merge = match merge.strip_prefix('@') {
                None => Merge::Atomic,
                Some("") => Merge::Set,
                Some(key) => Merge::Key(key.to_owned()),
            };
            return Ok(Type::List(Box::new(self.parse_type(item)?), merge));
        }
        if let Some(rest) = text.strip_prefix('{') {
            let item = rest.strip_suffix('}').unwrap_or(rest);
            return Ok(Type::Map(Box::new(self.parse_type(item)?)));
        }
        Ok(match text {
            "string" => Type::String,
            "bool" => Type::Bool,
            "int32" => Type::Int32,
            "int64" => Type::Int64,
            "number" => Type::Number,
            "bytes" => Type::Bytes,
            "time" => Type::Time,
            "microtime" => Type::MicroTime,
            "quantity" => Type::Quantity,
            "intstr" => Type::IntOrString,
            "any" => Type::Any,
            name => Type::Struct(self.resolve(name)?),
        })
    }
}

/// The type that a CRD's `openAPIV3Schema` describes; what it leaves open stays open.
pub fn from_openapi(schema: &Value) -> Type {
    if schema["x-kubernetes-int-or-string"] == true {
        return Type::IntOrString;
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match schema["type"].as_str() {
        Some("object") => {
            if let Some(properties) = schema["properties"].as_object() {
                let fields =
                    properties.iter().map(|(name, s)| (name.clone(), from_openapi(s))).collect();
                return Type::Struct(Arc::new(Struct { name: String::new(), fields, open }));
            }
            match &schema["additionalProperties"] {
                inner @ Value::Object(_) => Type::Map(Box::new(from_openapi(inner))),
                _ => Type::Any,
            }
        }
        Some("array") => Type::List(Box::new(from_openapi(&schema["items"])), Merge::Atomic),
        Some("string") => Type::String,
        Some("boolean") => Type::Bool,
        Some("integer") if schema["format"] == "int32" => Type::Int32,
        Some("integer") => Type::Int64,
        Some("number") => Type::Number,
        _ => Type::Any,
    }
}

/// The shape of a custom resource's root: its schema plus the fields that every object has.
pub fn custom_root(schema: &Value, object_meta: &Arc<Struct>) -> Arc<Struct> {
    let mut root = match from_openapi(schema) {
        Type::Struct(found) => {
            Struct { name: String::new(), fields: found.fields.clone(), open: found.open }
        }
        _ => Struct { open: true, ..Struct::default() },
    };
    root.fields.insert("apiVersion".to_owned(), Type::String);
    root.fields.insert("kind".to_owned(), Type::String);
    root.fields.insert("metadata".to_owned(), Type::Struct(Arc::clone(object_meta)));
    Arc::new(root)
}
