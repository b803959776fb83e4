//! Checks an object against its shape and brings it into normal form.

use serde_json::{Map, Value};

use super::scalar::{canonical_micro_time, canonical_quantity, canonical_time};
use super::{Struct, Type};

/// What to do with fields that a shape does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Remove them, as Kubernetes does for its own kinds.
    Drop,
    /// Keep them.
    Keep,
}

/// Result of a check that found no wrong type.
#[derive(Debug, Default)]
pub struct Decoded {
    /// Paths of fields that the shape does not know.
    pub unknown: Vec<String>,
}

/// Lists that are written even when they are empty.
const KEPT_EMPTY: [&str; 6] = ["endpoints", "rules", "ports", "addresses", "verbs", "versions"];

/// Checks `object`, whose kind is `kind`; the error is the text of the first wrong type.
pub fn decode(
    kind: &str,
    shape: &Struct,
    object: &mut Value,
    unknown: Unknown,
) -> Result<Decoded, String> {
    let mut walk =
        Walk { kind, unknown, names: Vec::new(), path: String::new(), found: Vec::new() };
    match object {
        Value::Object(map) => walk.fields(shape, map)?,
        other => return Err(walk.mismatch(other, &Type::Any)),
    }
    Ok(Decoded { unknown: walk.found })
}

struct Walk<'a> {
    kind: &'a str,
    unknown: Unknown,
    names: Vec<String>,
    path: String,
    found: Vec<String>,
}

impl Walk<'_> {
    fn fields(&mut self, shape: &Struct, map: &mut Map<String, Value>) -> Result<(), String> {
        let typed = self.unknown == Unknown::Drop;
        let names: Vec<String> = map.keys().cloned().collect();
        for name in names {
            let Some(kind) = shape.fields.get(&name) else {
                if !shape.open {
                    self.found.push(join(&self.path, &name));
                    if typed {
                        map.remove(&name);
                    }
                }
                continue;
            };
            let depth = self.path.len();
            self.path = join(&self.path, &name);
            self.names.push(name.clone());
            let Some(value) = map.get_mut(&name) else { continue };
            let drop = match value {
                Value::Null => typed && !matches!(kind, Type::Any),
                value => {
                    self.value(kind, value)?;
                    typed && is_empty(kind, value) && !KEPT_EMPTY.contains(&name.as_str())
                }
            };
            if drop {
                map.remove(&name);
            }
            self.names.pop();
            self.path.truncate(depth);
        }
        Ok(())
    }

    fn value(&mut self, kind: &Type, value: &mut Value) -> Result<(), String> {
        let fits = match (kind, &mut *value) {
            (Type::Any, _) => true,
            (Type::Struct(shape), Value::Object(map)) => return self.fields(shape, map),
            (Type::Map(inner), Value::Object(map)) => {
                for (key, entry) in map.iter_mut().filter(|(_, entry)| !entry.is_null()) {
                    let depth = self.path.len();
                    self.path = join(&self.path, key);
                    self.value(inner, entry)?;
                    self.path.truncate(depth);
                }
                return Ok(());
            }
            (Type::List(inner, _), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let depth = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    self.value(inner, item)?;
                    self.path.truncate(depth);
                }
                return Ok(());
            }
            (Type::String, Value::String(_)) | (Type::Bool, Value::Bool(_)) => true,
            (Type::Number, Value::Number(_)) => true,
            (Type::Int32, Value::Number(number)) => {
                number.as_i64().is_some_and(|n| i32::try_from(n).is_ok())
            }
            (Type::Int64, Value::Number(number)) => number.as_i64().is_some(),
            (Type::IntOrString, Value::Number(number)) => number.as_i64().is_some(),
            (Type::IntOrString, Value::String(_)) => true,
            (Type::Bytes, Value::String(text)) => {
                use base64::Engine;
                base64::engine::general_purpose::STANDARD
                    .decode(text.as_bytes())
                    .map_err(|_| "illegal base64 data at input byte 0".to_owned())?;
                true
            }
            (Type::Time, Value::String(text)) => {
                *text = canonical_time(text)?;
                true
            }
            (Type::MicroTime, Value::String(text)) => {
                *text = canonical_micro_time(text)?;
                true
            }
            (Type::Quantity, Value::String(_) | Value::Number(_)) => {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let canonical = canonical_quantity(&text).ok_or(
                    "quantities must match the regular expression \
                     '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
                )?;
                *value = Value::String(canonical);
                true
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.mismatch(value, kind)) }
    }

    fn mismatch(&self, value: &Value, kind: &Type) -> String {
        let seen = match value {
            Value::Null => "null".to_owned(),
            Value::Bool(_) => "bool".to_owned(),
            Value::Number(n) if matches!(kind, Type::Int32 | Type::Int64) => format!("number {n}"),
            Value::Number(_) => "number".to_owned(),
            Value::String(_) => "string".to_owned(),
            Value::Array(_) => "array".to_owned(),
            Value::Object(_) => "object".to_owned(),
        };
        let mut names = vec![self.kind.to_owned()];
        names.extend(self.names.iter().cloned());
        let field = names.join(".");
        format!("json: cannot unmarshal {seen} into Go struct field {field} of type {}", go(kind))
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn is_empty(kind: &Type, value: &Value) -> bool {
    match (kind, value) {
        (Type::List(..), Value::Array(items)) => items.is_empty(),
        (Type::Map(_), Value::Object(map)) => map.is_empty(),
        (Type::String, Value::String(text)) => text.is_empty(),
        _ => false,
    }
}

fn go(kind: &Type) -> String {
    match kind {
        Type::String | Type::Bytes => "string".to_owned(),
        Type::Bool => "bool".to_owned(),
        Type::Int32 => "int32".to_owned(),
        Type::Int64 => "int64".to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Time => "v1.Time".to_owned(),
        Type::MicroTime => "v1.MicroTime".to_owned(),
        Type::Quantity => "resource.Quantity".to_owned(),
        Type::IntOrString => "intstr.IntOrString".to_owned(),
        Type::Any => "map[string]interface {}".to_owned(),
        Type::Struct(shape) => format!("v1.{}", shape.name),
        Type::List(inner, _) => format!("[]{}", go(inner)),
        Type::Map(inner) => format!("map[string]{}", go(inner)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value, want: Result<Value, &str>) {
        let text =
            "M data:{string} list:[Item]@name at:time amount:quantity\nItem name:string n:int32";
        let types = super::super::parse(text).unwrap();
        let mut object = object;
        let got = decode("M", &types["M"], &mut object, Unknown::Drop);
        match want {
            Ok(want) => {
                got.unwrap();
                assert_eq!(object, want);
            }
            Err(want) => assert_eq!(got.unwrap_err(), want),
        }
    }

    #[test]
    fn objects_are_checked_and_normalized() {
        check(json!({"data": {"a": "b"}, "x": 1}), Ok(json!({"data": {"a": "b"}})));
        check(json!({"data": {}, "list": [], "at": null}), Ok(json!({})));
        check(json!({"amount": 0.1}), Ok(json!({"amount": "100m"})));
        check(
            json!({"data": {"a": 1}}),
            Err("json: cannot unmarshal number into Go struct field M.data of type string"),
        );
        check(
            json!({"list": [{"n": "x"}]}),
            Err("json: cannot unmarshal string into Go struct field M.list.n of type int32"),
        );
        check(
            json!({"list": {}}),
            Err("json: cannot unmarshal object into Go struct field M.list of type []v1.Item"),
        );
    }

    #[test]
    fn unknown_fields_are_named_by_path() {
        let types = super::super::parse("M list:[Item]\nItem name:string").unwrap();
        let mut object = json!({"list": [{"nam": "x"}], "y": 1});
        let decoded = decode("M", &types["M"], &mut object, Unknown::Keep).unwrap();
        assert_eq!(decoded.unknown, ["list[0].nam", "y"]);
        assert_eq!(object, json!({"list": [{"nam": "x"}], "y": 1}));
    }
}
