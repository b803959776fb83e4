//! Checks values against a compiled schema.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Kind, Schema, duplicates};
use crate::status::FieldError;

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn inner_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Whether a text is of a format; formats that nobody checks are all right.
fn has_format(text: &str, format: &str) -> bool {
    match format {
        "date-time" => text.parse::<Timestamp>().is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "ip" => text.parse::<IpAddr>().is_ok(),
        "cidr" => text.split_once('/').is_some_and(|(address, length)| {
            let longest = match address.parse::<IpAddr>() {
                Ok(IpAddr::V4(_)) => 32,
                Ok(IpAddr::V6(_)) => 128,
                Err(_) => return false,
            };
            length.parse::<u8>().is_ok_and(|length| length <= longest)
        }),
        "uuid" => uuid::Uuid::parse_str(text).is_ok(),
        _ => true,
    }
}

impl Schema {
    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::IntOrString => "integer,string",
            Kind::Any => "",
        }
    }

    fn fits(&self, value: &Value) -> bool {
        match (self.kind, value) {
            (Kind::Any, _)
            | (Kind::Object, Value::Object(_))
            | (Kind::Array, Value::Array(_))
            | (Kind::String | Kind::IntOrString, Value::String(_))
            | (Kind::Number, Value::Number(_))
            | (Kind::Boolean, Value::Bool(_)) => true,
            (Kind::Integer | Kind::IntOrString, Value::Number(number)) => {
                number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            (_, Value::Null) => self.nullable,
            _ => false,
        }
    }

    pub(super) fn check(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        if !self.fits(value) {
            let seen = type_name(value);
            let why = format!("{path} in body must be of type {}: {:?}", self.kind_name(), seen);
            errors.push(FieldError::wrong_type(path, seen, &why));
            return;
        }
        if value.is_null() {
            return;
        }
        if !self.options.is_empty() && !self.options.contains(value) {
            let known: Vec<&str> = self.options.iter().filter_map(Value::as_str).collect();
            errors.push(FieldError::unsupported(path, value, &known));
        }
        match value {
            Value::String(text) => self.check_text(text, path, errors),
            Value::Number(number) => {
                self.check_number(number.as_f64().unwrap_or(f64::NAN), value, path, errors);
            }
            Value::Array(items) => self.check_items(items, path, errors),
            Value::Object(map) => self.check_fields(map, path, errors),
            Value::Bool(_) | Value::Null => {}
        }
        self.check_conditions(value, path, errors);
    }

    fn check_text(&self, text: &str, path: &str, errors: &mut Vec<FieldError>) {
        // The first thing that is wrong with a text is told, as Kubernetes does.
        let length = text.chars().count();
        if let Some(limit) = self.limits.max_length.filter(|limit| length > *limit) {
            errors.push(FieldError::too_long(path, limit));
        } else if let Some(limit) = self.limits.min_length.filter(|limit| length < *limit) {
            let why = format!("{path} in body should be at least {limit} chars long");
            errors.push(FieldError::invalid(path, text, &why));
        } else if let Some(pattern) =
            self.pattern.as_ref().filter(|pattern| !pattern.is_match(text))
        {
            let why = format!("{path} in body should match '{}'", pattern.as_str());
            errors.push(FieldError::invalid(path, text, &why));
        } else if !has_format(text, &self.format) {
            let why = format!("{path} in body must be of type {}: {text:?}", self.format);
            errors.push(FieldError::invalid(path, text, &why));
        }
    }

    fn check_number(&self, number: f64, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let limits = &self.limits;
        let mut refuse = |why: String| {
            errors.push(FieldError::invalid(path, value, &format!("{path} in body {why}")));
        };
        if let Some(limit) = limits.minimum {
            if limits.exclusive_minimum && number <= limit {
                refuse(format!("should be greater than {limit}"));
            } else if number < limit {
                refuse(format!("should be greater than or equal to {limit}"));
            }
        }
        if let Some(limit) = limits.maximum {
            if limits.exclusive_maximum && number >= limit {
                refuse(format!("should be less than {limit}"));
            } else if number > limit {
                refuse(format!("should be less than or equal to {limit}"));
            }
        }
        if let Some(step) = limits.multiple_of.filter(|step| (number / step).fract() != 0.0) {
            refuse(format!("should be a multiple of {step}"));
        }
        let range = match self.format.as_str() {
            "int32" => Some((f64::from(i32::MIN), f64::from(i32::MAX))),
            _ => None,
        };
        if range.is_some_and(|(low, high)| number < low || number > high) {
            refuse(format!("must be of type {}: {value}", self.format));
        }
    }

    fn check_items(&self, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
        let limits = &self.limits;
        if let Some(limit) = limits.max_items.filter(|limit| items.len() > *limit) {
            let why = format!("{path} in body should have at most {limit} items");
            errors.push(FieldError::invalid(path, items.len(), &why));
        }
        if let Some(limit) = limits.min_items.filter(|limit| items.len() < *limit) {
            let why = format!("{path} in body should have at least {limit} items");
            errors.push(FieldError::invalid(path, items.len(), &why));
        }
        if let Some(inner) = &self.items {
            for (n, item) in items.iter().enumerate() {
                inner.check(item, &format!("{path}[{n}]"), errors);
            }
        }
        for n in duplicates(items, &self.unique) {
            errors.push(FieldError::duplicate(&format!("{path}[{n}]"), &items[n]));
        }
    }

    fn check_fields(&self, map: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
        let limits = &self.limits;
        if let Some(limit) = limits.max_properties.filter(|limit| map.len() > *limit) {
            let why = format!("{path} in body should have at most {limit} properties");
            errors.push(FieldError::invalid(path, map.len(), &why));
        }
        if let Some(limit) = limits.min_properties.filter(|limit| map.len() < *limit) {
            let why = format!("{path} in body should have at least {limit} properties");
            errors.push(FieldError::invalid(path, map.len(), &why));
        }
        for (name, value) in map {
            if let Some(inner) = self.properties.get(name) {
                if path.is_empty() && name == "metadata" {
                    continue; // All kinds share its rules.
                }
                inner.check(value, &inner_path(path, name), errors);
            } else if let Some(inner) = &self.additional {
                inner.check(value, &inner_path(path, name), errors);
            }
        }
        for name in self.required.iter().filter(|name| !map.contains_key(*name)) {
            errors.push(FieldError::required(&inner_path(path, name), ""));
        }
    }

    fn check_conditions(&self, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
        let holds = |schema: &Self| {
            let mut inner = Vec::new();
            schema.check(value, path, &mut inner);
            inner.is_empty()
        };
        for schema in &self.all_of {
            schema.check(value, path, errors);
        }
        let shown = if path.is_empty() { "\"\"".to_owned() } else { path.to_owned() };
        let mut refuse = |what: &str| {
            let why = format!("{shown:?} must validate {what}");
            errors.push(FieldError::invalid(path, json!(value), &why));
        };
        if !self.any_of.is_empty() && !self.any_of.iter().any(holds) {
            refuse("at least one schema (anyOf)");
        }
        if !self.one_of.is_empty() {
            let n = self.one_of.iter().filter(|schema| holds(schema)).count();
            if n != 1 {
                refuse("one and only one schema (oneOf)");
            }
        }
        if self.not.as_deref().is_some_and(holds) {
            let why = format!("{shown:?} must not validate the schema (not)");
            errors.push(FieldError::invalid(path, json!(value), &why));
        }
    }
}
