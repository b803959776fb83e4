//! Custom resources: the rules that a CRD gives.

use apiserver::json_path;
use apiserver::meta;
use apiserver::names::api_version;
use apiserver::resource::{Part, Strategy};
use apiserver::status::FieldError;
use apiserver::structural::{self, Schema};
use apiserver::table::{Column, age, since};
use kube_cel::{CompiledSchema, RootContext, Validator};
use serde_json::{Value, json};

use super::util::{each, text};

/// A printer column.
struct Printed {
    path: String,
    kind: String,
}

/// Rules of one version of a custom resource.
pub(super) struct Rules {
    printed: Vec<Printed>,
    schema: Option<Schema>,
    cel: CompiledSchema,
    context: RootContext,
}

/// Said when CEL rules were not looked at since the object is wrong anyway.
const NOT_CHECKED: &str = "some validation rules were not checked because the object was \
                           invalid; correct the existing errors to complete validation";

/// A schema's nodes.
fn nodes(schema: &CompiledSchema) -> Vec<&CompiledSchema> {
    let inner = schema.properties.values();
    let inner = inner.chain(schema.items.as_deref()).chain(schema.additional_properties.as_deref());
    std::iter::once(schema).chain(inner.flat_map(nodes)).collect()
}

/// What is wrong with the CEL rules of a schema.
pub(super) fn bad_rules(schema: &Value) -> Vec<String> {
    let compiled = kube_cel::compile_schema(schema);
    let all = nodes(&compiled);
    all.iter().flat_map(|node| node.compilation_errors()).map(ToString::to_string).collect()
}

/// The value at a path such as `spec.rules[0].name`, if it is small enough to be shown.
fn shown<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let pointer = path.replace(['.', '['], "/").replace(']', "");
    object.pointer(&format!("/{pointer}")).filter(|value| !value.is_object() && !value.is_array())
}

impl Rules {
    /// The rules of a CRD's version, and its columns.
    pub(super) fn of_version((group, kind): (&str, &str), version: &Value) -> (Self, Vec<Column>) {
        let mut columns = Column::parse("Name");
        let mut printed = Vec::new();
        for column in each(version, "additionalPrinterColumns") {
            columns.push(Column {
                name: text(column, "name").to_owned(),
                kind: text(column, "type").to_owned(),
                format: text(column, "format").to_owned(),
                description: text(column, "description").to_owned(),
                priority: column["priority"].as_i64().unwrap_or(0),
            });
            printed.push(Printed {
                path: text(column, "jsonPath").to_owned(),
                kind: text(column, "type").to_owned(),
            });
        }
        if printed.is_empty() {
            columns.extend(Column::parse("Age"));
        }
        let schema = &version["schema"]["openAPIV3Schema"];
        let context = RootContext {
            api_version: api_version(group, text(version, "name")),
            api_group: group.to_owned(),
            kind: kind.to_owned(),
        };
        let (cel, schema) =
            (kube_cel::compile_schema(schema), structural::compile(schema, "").ok());
        (Self { printed, schema, cel, context }, columns)
    }

    /// What the CEL rules say; transition rules alone where there is an old object.
    fn judge(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let validator = Validator::new();
        let context = Some(&self.context);
        let judged = validator.validate_compiled_with_context(&self.cel, object, old, context);
        let errors = judged.err().map(kube_cel::ValidationErrors::into_vec).unwrap_or_default();
        errors
            .into_iter()
            .filter(|error| old.is_none() || error.rule.contains("oldSelf"))
            .map(|error| match shown(object, &error.field_path) {
                Some(value) => FieldError::invalid(&error.field_path, value, &error.message),
                None => FieldError::refused(&error.field_path, &error.message),
            })
            .collect()
    }
}

impl Strategy for Rules {
    fn default(&self, object: &mut Value) {
        if let Some(schema) = &self.schema {
            schema.prune_and_default(object);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors =
            self.schema.as_ref().map(|schema| schema.validate(object)).unwrap_or_default();
        if errors.is_empty() {
            return self.judge(object, None);
        }
        if nodes(&self.cel).iter().any(|node| !node.validations.is_empty()) {
            errors.push(FieldError::invalid("<nil>", Value::Null, NOT_CHECKED));
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value, _part: Part) -> Vec<FieldError> {
        let valid = self.schema.as_ref().is_none_or(|schema| schema.validate(object).is_empty());
        if valid { self.judge(object, Some(old)) } else { Vec::new() }
    }

    fn cells(&self, object: &Value) -> Vec<Value> {
        let mut cells = vec![json!(meta::name(object))];
        if self.printed.is_empty() {
            cells.push(age(object));
        }
        for Printed { path, kind } in &self.printed {
            cells.push(match (json_path::first(object, path), kind.as_str()) {
                (None, _) => Value::Null,
                (Some(Value::String(moment)), "date") => json!(since(moment)),
                (Some(Value::Object(_) | Value::Array(_)), _) => {
                    json!(json_path::first(object, path).map(Value::to_string))
                }
                (Some(found), "string") if !found.is_string() => json!(found.to_string()),
                (Some(found), _) => found.clone(),
            });
        }
        cells
    }
}
