//! Custom resources: the rules that a CRD gives.

use apiserver::meta;
use apiserver::resource::Strategy;
use apiserver::table::{Column, age, since};
use serde_json::{Value, json};

use super::json_path;
use super::util::{each, text};

/// A printer column.
struct Printed {
    path: String,
    kind: String,
}

/// Rules of one version of a custom resource.
pub(super) struct Rules {
    printed: Vec<Printed>,
}

impl Rules {
    /// The rules of a CRD's version, and its columns.
    pub(super) fn of_version(version: &Value) -> (Self, Vec<Column>) {
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
        (Self { printed }, columns)
    }
}

impl Strategy for Rules {
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
