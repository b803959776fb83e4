//! Operations of a transaction (RFC 7047 section 5.2).

use std::time::Duration;

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
    /// Fails the transaction unless rows are as given, at once or within a time.
    Wait {
        /// Where.
        table: Table,
        /// Which rows.
        conditions: Vec<Condition>,
        /// Which columns are compared.
        columns: Vec<String>,
        /// How long the server may wait for it; zero fails at once, none waits for ever.
        timeout: Option<Duration>,
        /// Whether they have to be equal or different.
        until: Until,
        /// What they are compared with.
        rows: Vec<Row>,
    },
    /// Leaves a line in the server's log.
    Comment(String),
    /// Fails the transaction.
    Abort,
    /// Fails the transaction unless this connection has the lock.
    Assert {
        /// Name of the lock.
        lock: String,
    },
    /// Has the transaction's changes on disk before its reply.
    CommitDurable,
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
    /// A number is less.
    Less,
    /// A number is less or equal.
    LessOrEqual,
    /// A number is greater.
    Greater,
    /// A number is greater or equal.
    GreaterOrEqual,
}

impl Function {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Equal,
        Self::NotEqual,
        Self::Includes,
        Self::Excludes,
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
    ];

    /// Its word in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Includes => "includes",
            Self::Excludes => "excludes",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
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
    /// Adds a number; to each element of a set.
    Add,
    /// Subtracts a number; from each element of a set.
    Subtract,
    /// Multiplies by a number; each element of a set.
    Multiply,
    /// Divides by a number; each element of a set.
    Divide,
    /// Leaves the remainder of a division of integers; of each element of a set.
    Remainder,
}

impl Mutator {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Insert,
        Self::Delete,
        Self::Add,
        Self::Subtract,
        Self::Multiply,
        Self::Divide,
        Self::Remainder,
    ];

    /// Its word in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Delete => "delete",
            Self::Add => "+=",
            Self::Subtract => "-=",
            Self::Multiply => "*=",
            Self::Divide => "/=",
            Self::Remainder => "%=",
        }
    }
}

impl Condition {
    /// `column` compared by `function` with this value.
    #[must_use]
    pub fn new(column: &str, function: Function, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), function, value: value.into() }
    }

    /// `column` has this value.
    #[must_use]
    pub fn equal(column: &str, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Equal, value)
    }

    /// `column` has at least these elements.
    #[must_use]
    pub fn includes(column: &str, value: impl Into<Value>) -> Self {
        Self::new(column, Function::Includes, value)
    }

    /// The row with this uuid.
    #[must_use]
    pub fn uuid(uuid: Uuid) -> Self {
        Self::equal("_uuid", uuid)
    }

    pub(crate) fn to_json(&self) -> Json {
        json!([self.column, self.function.as_str(), self.value.to_json()])
    }
}

impl Mutation {
    /// Changes `column` by `mutator` with this value.
    #[must_use]
    pub fn new(column: &str, mutator: Mutator, value: impl Into<Value>) -> Self {
        Self { column: column.to_owned(), mutator, value: value.into() }
    }

    /// Puts elements into `column`.
    #[must_use]
    pub fn insert(column: &str, value: impl Into<Value>) -> Self {
        Self::new(column, Mutator::Insert, value)
    }

    /// Takes elements out of `column`.
    #[must_use]
    pub fn delete(column: &str, value: impl Into<Value>) -> Self {
        Self::new(column, Mutator::Delete, value)
    }

    fn to_json(&self) -> Json {
        json!([self.column, self.mutator.as_str(), self.value.to_json()])
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
            timeout: Some(Duration::ZERO),
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
            Self::Wait { table, conditions, columns, timeout, until, rows } => {
                let mut json = json!({
                    "op": "wait", "table": table.name(), "where": all(conditions),
                    "columns": columns,
                    "until": match until { Until::Equal => "==", Until::NotEqual => "!=" },
                    "rows": rows.iter().map(Row::to_json).collect::<Vec<_>>(),
                });
                if let Some(timeout) = timeout {
                    // The server counts in milliseconds and takes numbers that fit an i64.
                    json["timeout"] = json!(i64::try_from(timeout.as_millis()).unwrap_or(i64::MAX));
                }
                json
            }
            Self::Comment(text) => json!({"op": "comment", "comment": text}),
            Self::Abort => json!({"op": "abort"}),
            Self::Assert { lock } => json!({"op": "assert", "lock": lock}),
            Self::CommitDurable => json!({"op": "commit", "durable": true}),
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
        let lock = "antrea".to_owned();
        check(&Operation::Assert { lock }, r#"{"op":"assert","lock":"antrea"}"#);
        check(&Operation::CommitDurable, r#"{"op":"commit","durable":true}"#);
    }
}
