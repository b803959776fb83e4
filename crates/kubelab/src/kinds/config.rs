//! ConfigMaps, Secrets, ServiceAccounts and Events.

use apiserver::meta;
use apiserver::resource::{Part, Strategy, WriteContext};
use apiserver::status::{ApiError, FieldError};
use apiserver::table::{age, since};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::util::{set_default, text};

/// Most bytes that the data of a ConfigMap or Secret may have.
const MAX_DATA: usize = 1_048_576;

fn data_size(object: &Value) -> usize {
    ["data", "binaryData"]
        .iter()
        .filter_map(|field| object[*field].as_object())
        .flatten()
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum()
}

fn check_data(object: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (key, _) in object["data"].as_object().into_iter().flatten() {
        let fits = !key.is_empty()
            && key.len() <= 253
            && !matches!(key.as_str(), "." | "..")
            && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if !fits {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' \
                       (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation \
                       is '[-._a-zA-Z0-9]+')";
            errors.push(FieldError::invalid(&format!("data[{key}]"), key, why));
        }
    }
    if data_size(object) > MAX_DATA {
        errors.push(FieldError::too_long(field, MAX_DATA));
    }
    errors
}

fn check_immutable(object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if old["immutable"] != true {
        return errors;
    }
    let why = "field is immutable when `immutable` is set";
    for field in ["immutable", "data", "binaryData"] {
        if object[field] != old[field] {
            errors.push(FieldError::forbidden(field, why));
        }
    }
    errors
}

pub(super) struct ConfigMapRules;

impl Strategy for ConfigMapRules {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        check_data(object, "[]")
    }

    fn validate_update(&self, object: &Value, old: &Value, _part: Part) -> Vec<FieldError> {
        check_immutable(object, old)
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let count = |field: &str| object[field].as_object().map_or(0, serde_json::Map::len);
        vec![json!(meta::name(object)), json!(count("data") + count("binaryData")), age(object)]
    }
}

pub(super) struct SecretRules;

impl Strategy for SecretRules {
    fn default(&self, object: &mut Value) {
        if let Value::Object(plain) = object["stringData"].take() {
            set_default(object, "data", json!({}));
            for (key, value) in plain {
                object["data"][key] = json!(BASE64.encode(value.as_str().unwrap_or("")));
            }
        }
        meta::set_part(object, "stringData", Value::Null);
        set_default(object, "type", json!("Opaque"));
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        check_data(object, "data")
    }

    fn validate_update(&self, object: &Value, old: &Value, _part: Part) -> Vec<FieldError> {
        let mut errors = check_immutable(object, old);
        if object["type"] != old["type"] {
            errors.push(FieldError::invalid("type", &object["type"], "field is immutable"));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let count = object["data"].as_object().map_or(0, serde_json::Map::len);
        vec![json!(meta::name(object)), object["type"].clone(), json!(count), age(object)]
    }
}

pub(super) struct ServiceAccountRules;

impl Strategy for ServiceAccountRules {
    fn cells(&self, object: &Value) -> Vec<Value> {
        let count = object["secrets"].as_array().map_or(0, Vec::len);
        vec![json!(meta::name(object)), json!(count), age(object)]
    }
}

pub(super) struct EventRules;

impl Strategy for EventRules {
    fn prepare_create(
        &self,
        _context: &mut WriteContext<'_, '_>,
        object: &mut Value,
    ) -> Result<(), ApiError> {
        for field in ["source", "reportingComponent", "reportingInstance"] {
            let empty = if field == "source" { json!({}) } else { json!("") };
            set_default(object, field, empty);
        }
        for field in ["firstTimestamp", "lastTimestamp", "eventTime"] {
            set_default(object, field, Value::Null);
        }
        Ok(())
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let involved = text(&object["involvedObject"], "namespace");
        let own = meta::namespace(object);
        let cluster_wide = involved.is_empty() && own == "default";
        if involved != own && !cluster_wide {
            let field = "involvedObject.namespace";
            errors.push(FieldError::invalid(field, involved, "does not match event.namespace"));
        }
        errors
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let last = ["lastTimestamp", "firstTimestamp", "eventTime"]
            .iter()
            .find_map(|field| object[*field].as_str())
            .map_or_else(|| "<unknown>".to_owned(), since);
        let involved = &object["involvedObject"];
        let subject =
            format!("{}/{}", text(involved, "kind").to_lowercase(), text(involved, "name"));
        vec![
            json!(last),
            object["type"].clone(),
            object["reason"].clone(),
            json!(subject),
            json!(text(object, "message").trim()),
            json!(meta::name(object)),
        ]
    }
}
