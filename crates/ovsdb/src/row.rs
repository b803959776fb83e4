//! Rows to write: columns by name.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::value::Value;

/// Columns of a row to insert or change.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Row(BTreeMap<String, Value>);

impl Row {
    /// A row without columns: the database's defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With this value in `column`.
    #[must_use]
    pub fn with(mut self, column: &str, value: impl Into<Value>) -> Self {
        self.0.insert(column.to_owned(), value.into());
        self
    }

    /// With this value in `column`, if there is one.
    #[must_use]
    pub fn with_some(self, column: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(column, value),
            None => self,
        }
    }

    /// Its columns, by name.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether no column is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its JSON form.
    #[must_use]
    pub fn to_json(&self) -> Json {
        Json::Object(self.0.iter().map(|(name, value)| (name.clone(), value.to_json())).collect())
    }
}
