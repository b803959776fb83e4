//! Operations of a transaction (RFC 7047 section 5.2).

use serde_json::{Value as Json, json};
use uuid::Uuid;

use crate::row::Row;
use crate::table::Table;
use crate::value::{Atom, Value};

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    /// Makes a row.
    Insert {
        /// Where.
        table: Table,
        /// Its columns.
        row: Row,
        /// What other operations of the transaction call it.
        uuid_name: Option<String>,
    },
    /// Lists rows.
    Select {
        /// Where.
        table: Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns.
        columns: Vec<String>,
    },
    /// Sets columns of rows.
    Update {
        /// Where.
        table: Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// The new columns.
        row: Row,
    },
    /// Changes columns of rows.
    Mutate {
        /// Where.
        table: Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// The changes.
        mutations: Vec<Mutation>,
    },
    /// Deletes rows.
    Delete {
        /// Where.
        table: Table,
        /// Which rows.
        conditions: Vec<Condition>,
    },
    /// Fails the transaction unless rows are as given.
    Wait {
        /// Where.
        table: Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns are compared.
        columns: Vec<String>,
        /// Whether they have to be equal or different.
        until: Until,
        /// What they are compared with.
        rows: Vec<Row>,
    },
    /// Leaves a line in the server's log.
    Comment(String),
    /// Fails the transaction.
    Abort,
}

/// What a wait operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The rows are as given.
    Equal,
    /// The rows are not as given.
    NotEqual,
}

/// A condition on a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The column.
    pub column: String,
    /// How it is compared.
    pub function: Function,
    /// With what.
    pub value: Value,
}

/// How a condition compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Equal.
    Equal,
    /// Different.
    NotEqual,
    /// A set or map has at least these elements.
    Includes,
    /// A set or map has none of these elements.
    Excludes,
}

/// A change of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct Mutation {
    /// The column.
    pub column: String,
    /// How it changes.
    pub mutator: Mutator,
    /// By what.
    pub value: Value,
}

/// How a mutation changes a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutator {
    /// Puts elements into a set or map; keys that are there keep their value.
    Insert,
    /// Takes elements out of a set or map; a set of keys takes pairs out of a map.
    Delete,
    /// Adds a number.
    Add,
}

impl Condition {
    /// `column` has this value.
    #[must_use]
    pub fn equal(column: &str, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), function: Function::Equal, value: value.into() }
    }

    /// `column` has at least these elements.
    #[must_use]
    pub fn includes(column: &str, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), function: Function::Includes, value: value.into() }
    }

    /// The row with this uuid.
    #[must_use]
    pub fn uuid(uuid: Uuid) -> Self {
        Self::equal("_uuid", uuid)
    }

    fn to_json(&self) -> Json {
        let function = match self.function {
            Function::Equal => "==",
            Function::NotEqual => "!=",
            Function::Includes => "includes",
            Function::Excludes => "excludes",
        };
        json!([self.column, function, self.value.to_json()])
    }
}

impl Mutation {
    /// Puts elements into `column`.
    #[must_use]
    pub fn insert(column: &str, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), mutator: Mutator::Insert, value: value.into() }
    }

    /// Takes elements out of `column`.
    #[must_use]
    pub fn delete(column: &str, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), mutator: Mutator::Delete, value: value.into() }
    }

    fn to_json(&self) -> Json {
        let mutator = match self.mutator {
            Mutator::Insert => "insert",
            Mutator::Delete => "delete",
            Mutator::Add => "+=",
        };
        json!([self.column, mutator, self.value.to_json()])
    }
}

impl Operation {
    /// Makes a row that other operations of the transaction call `uuid_name`.
    #[must_use]
    pub fn insert(table: Table, uuid_name: &str, row: Row) -> Self {
        Self::Insert { table, row, uuid_name: Some(uuid_name.to_owned()) }
    }

    /// Fails the transaction unless exactly one row of `table` has this name.
    #[must_use]
    pub fn require_named(table: Table, name: &str) -> Self {
        Self::Wait {
            table,
            conditions: vec![Condition::equal("name", name)],
            columns: vec!["name".to_owned()],
            until: Until::Equal,
            rows: vec![Row::new().with("name", name)],
        }
    }

    /// Sets pairs of a map column of the rows, whatever values the keys had, leaving other keys.
    #[must_use]
    pub fn set_pairs<'a>(
        table: Table,
        conditions: Vec<Condition>,
        column: &str,
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let pairs: Vec<(Atom, Atom)> =
            pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        let keys = pairs.iter().map(|(key, _)| key.clone()).collect();
        Self::Mutate {
            table,
            conditions,
            mutations: vec![
                Mutation::delete(column, Value::Set(keys)),
                Mutation::insert(column, Value::Map(pairs)),
            ],
        }
    }

    /// Its JSON form.
    #[must_use]
    pub fn to_json(&self) -> Json {
        let all = |conditions: &[Condition]| -> Vec<Json> {
            conditions.iter().map(Condition::to_json).collect()
        };
        match self {
            Self::Insert { table, row, uuid_name } => {
                let mut json = json!({"op": "insert", "table": table.name(), "row": row.to_json()});
                if let Some(name) = uuid_name {
                    json["uuid-name"] = json!(name);
                }
                json
            }
            Self::Select { table, conditions, columns } => json!({
                "op": "select", "table": table.name(), "where": all(conditions), "columns": columns,
            }),
            Self::Update { table, conditions, row } => json!({
                "op": "update", "table": table.name(), "where": all(conditions),
                "row": row.to_json(),
            }),
            Self::Mutate { table, conditions, mutations } => json!({
                "op": "mutate", "table": table.name(), "where": all(conditions),
                "mutations": mutations.iter().map(Mutation::to_json).collect::<Vec<_>>(),
            }),
            Self::Delete { table, conditions } => json!({
                "op": "delete", "table": table.name(), "where": all(conditions),
            }),
            Self::Wait { table, conditions, columns, until, rows } => json!({
                "op": "wait", "table": table.name(), "timeout": 0, "where": all(conditions),
                "columns": columns,
                "until": match until { Until::Equal => "==", Until::NotEqual => "!=" },
                "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            }),
            Self::Comment(text) => json!({"op": "comment", "comment": text}),
            Self::Abort => json!({"op": "abort"}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operation: &Operation, want: &str) {
        let want: Json = serde_json::from_str(want).unwrap();
        assert_eq!(operation.to_json(), want);
    }

    #[test]
    fn operations_have_the_form_of_the_rfc() {
        check(
            &Operation::insert(Table::Port, "p", Row::new().with("name", "eth0")),
            r#"{"op":"insert","table":"Port","row":{"name":"eth0"},"uuid-name":"p"}"#,
        );
        check(
            &Operation::require_named(Table::Bridge, "br0"),
            r#"{"op":"wait","table":"Bridge","timeout":0,"where":[["name","==","br0"]],
                "columns":["name"],"until":"==","rows":[{"name":"br0"}]}"#,
        );
        check(
            &Operation::set_pairs(Table::Bridge, vec![], "external_ids", [("k", "v")]),
            r#"{"op":"mutate","table":"Bridge","where":[],"mutations":[
                ["external_ids","delete",["set",["k"]]],
                ["external_ids","insert",["map",[["k","v"]]]]]}"#,
        );
        check(
            &Operation::Delete {
                table: Table::Interface,
                conditions: vec![Condition::uuid(Uuid::nil())],
            },
            r#"{"op":"delete","table":"Interface",
                "where":[["_uuid","==",["uuid","00000000-0000-0000-0000-000000000000"]]]}"#,
        );
        check(&Operation::Abort, r#"{"op":"abort"}"#);
    }
}
