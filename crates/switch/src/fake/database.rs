//! The fake database: rows, transactions, and what changed.

use std::collections::{BTreeMap, BTreeSet};

use ovsdb::{Atom, Table, Uuid, Value};
use serde_json::{Map, Value as Json, json};

use super::schema::{self, Kind};

/// A row: columns by name, every one that the table has.
pub type FakeRow = BTreeMap<String, Value>;

/// The rows of the fake database.
#[derive(Clone, Debug)]
pub struct Database {
    pub(super) rows: BTreeMap<(Table, Uuid), FakeRow>,
    last_uuid: u128,
}

/// Why an operation failed: `error` and `details`.
type Failure = (&'static str, String);

impl Default for Database {
    fn default() -> Self {
        let mut database = Self { rows: BTreeMap::new(), last_uuid: 0 };
        let uuid = database.new_uuid();
        let mut root = blank(Table::OpenVSwitch);
        root.insert("ovs_version".into(), Value::Set(vec!["3.1.0".into()]));
        let types = Value::Set(vec!["netdev".into(), "system".into()]);
        root.insert("datapath_types".into(), types);
        database.rows.insert((Table::OpenVSwitch, uuid), root);
        database
    }
}

fn blank(table: Table) -> FakeRow {
    let column = |c: &&str| ((*c).to_owned(), schema::default(table, c));
    table.columns().iter().map(column).collect()
}

impl Database {
    /// Not even the root row: what a monitor knows before its first answer.
    pub(super) fn without_rows() -> Self {
        Self { rows: BTreeMap::new(), last_uuid: 0 }
    }

    fn new_uuid(&mut self) -> Uuid {
        self.last_uuid += 1;
        Uuid::from_u128(0xfa4e_0000_0000_0000_0000_0000_0000_0000 | self.last_uuid)
    }

    /// The row of this name.
    #[must_use]
    pub fn named(&self, table: Table, name: &str) -> Option<(Uuid, &FakeRow)> {
        self.table(table)
            .find(|(_, row)| row.get("name").is_some_and(|n| n.atoms() == Some(&[name.into()])))
    }

    /// The rows of a table.
    pub fn table(&self, table: Table) -> impl Iterator<Item = (Uuid, &FakeRow)> {
        self.rows
            .range((table, Uuid::nil())..=(table, Uuid::max()))
            .map(|((_, uuid), row)| (*uuid, row))
    }

    /// Carries out a transaction, all or nothing. Returns the results, the failed one last.
    pub(super) fn transact(&mut self, operations: &[Json]) -> Json {
        let mut next = self.clone();
        let mut names = BTreeMap::new();
        for operation in operations {
            if let Some(name) = operation["uuid-name"].as_str() {
                names.insert(name.to_owned(), next.new_uuid());
            }
        }
        let mut results = Vec::new();
        for operation in operations {
            match next.operate(operation, &names) {
                Ok(result) => results.push(result),
                Err((error, details)) => {
                    results.push(json!({"error": error, "details": details}));
                    return results.into();
                }
            }
        }
        next.collect_garbage();
        match next.check_names() {
            Ok(()) => *self = next,
            Err((error, details)) => results.push(json!({"error": error, "details": details})),
        }
        results.into()
    }

    fn operate(&mut self, op: &Json, names: &BTreeMap<String, Uuid>) -> Result<Json, Failure> {
        let bad = |what: &str| ("syntax error", format!("{what}: {op}"));
        match op["op"].as_str() {
            Some("comment") => return Ok(json!({})),
            Some("abort") => return Err(("aborted", "aborted by request".into())),
            _ => {}
        }
        let table = op["table"]
            .as_str()
            .and_then(Table::from_name)
            .ok_or_else(|| ("unknown table", format!("{}", op["table"])))?;
        let selected = match op.get("where") {
            Some(conditions) => self.select(table, conditions, names)?,
            None => Vec::new(),
        };
        match op["op"].as_str() {
            Some("insert") => {
                let uuid = match op["uuid-name"].as_str() {
                    Some(name) => *names.get(name).ok_or_else(|| bad("uuid-name"))?,
                    None => self.new_uuid(),
                };
                let mut row = blank(table);
                self.assign(table, &mut row, &op["row"], names)?;
                self.rows.insert((table, uuid), row);
                Ok(json!({"uuid": ["uuid", uuid.to_string()]}))
            }
            Some("update") => {
                for uuid in &selected {
                    let mut row = self.rows.get(&(table, *uuid)).cloned().unwrap_or_default();
                    self.assign(table, &mut row, &op["row"], names)?;
                    self.rows.insert((table, *uuid), row);
                }
                Ok(json!({"count": selected.len()}))
            }
            Some("mutate") => {
                let mutations = op["mutations"].as_array().ok_or_else(|| bad("mutations"))?;
                for uuid in &selected {
                    let mut row = self.rows.get(&(table, *uuid)).cloned().unwrap_or_default();
                    for mutation in mutations {
                        mutate(table, &mut row, mutation, names)?;
                    }
                    self.rows.insert((table, *uuid), row);
                }
                Ok(json!({"count": selected.len()}))
            }
            Some("delete") => {
                for uuid in &selected {
                    self.rows.remove(&(table, *uuid));
                }
                Ok(json!({"count": selected.len()}))
            }
            Some("wait") => {
                let columns = op["columns"].as_array().ok_or_else(|| bad("columns"))?;
                let shown = |row: &FakeRow| -> Json {
                    columns.iter().filter_map(Json::as_str).map(|c| row[c].to_json()).collect()
                };
                let have: BTreeSet<String> = selected
                    .iter()
                    .map(|uuid| shown(&self.rows[&(table, *uuid)]).to_string())
                    .collect();
                let mut want = BTreeSet::new();
                for given in op["rows"].as_array().ok_or_else(|| bad("rows"))? {
                    let mut row = blank(table);
                    self.assign(table, &mut row, given, names)?;
                    want.insert(shown(&row).to_string());
                }
                let until_equal = op["until"] == "==";
                if (have == want) == until_equal {
                    Ok(json!({}))
                } else {
                    Err(("timed out", "\"wait\" timed out".into()))
                }
            }
            Some("select") => {
                let rows: Vec<Json> =
                    selected.iter().map(|uuid| to_json(&self.rows[&(table, *uuid)])).collect();
                Ok(json!({"rows": rows}))
            }
            _ => Err(bad("unknown operation")),
        }
    }

    fn select(
        &self,
        table: Table,
        conditions: &Json,
        names: &BTreeMap<String, Uuid>,
    ) -> Result<Vec<Uuid>, Failure> {
        let mut selected: Vec<Uuid> = self.table(table).map(|(uuid, _)| uuid).collect();
        for condition in conditions.as_array().into_iter().flatten() {
            let (column, function) = (condition[0].as_str(), condition[1].as_str());
            let (Some(column), Some(function)) = (column, function) else {
                return Err(("syntax error", format!("condition {condition}")));
            };
            let value = read(&condition[2], names)?;
            let value = if column == "_uuid" {
                value
            } else {
                schema::shaped(table, column, &value)
                    .ok_or_else(|| ("unknown column", format!("{} {column}", table.name())))?
            };
            selected.retain(|uuid| {
                let have = match column {
                    "_uuid" => Value::Atom(Atom::Uuid(*uuid)),
                    column => self.rows[&(table, *uuid)][column].clone(),
                };
                match function {
                    "==" => have == value,
                    "!=" => have != value,
                    "includes" => includes(&have, &value),
                    _ => !includes(&have, &value),
                }
            });
        }
        Ok(selected)
    }

    fn assign(
        &self,
        table: Table,
        row: &mut FakeRow,
        columns: &Json,
        names: &BTreeMap<String, Uuid>,
    ) -> Result<(), Failure> {
        for (column, value) in columns.as_object().into_iter().flatten() {
            let value = schema::shaped(table, column, &read(value, names)?).ok_or_else(|| {
                ("constraint violation", format!("{}.{column}: {value}", table.name()))
            })?;
            if (column == "datapath_type" || column == "fail_mode")
                && let Some([Atom::String(word)]) = value.atoms()
                && !["", "netdev", "system", "secure", "standalone"].contains(&word.as_str())
            {
                return Err(("constraint violation", format!("{column} {word}")));
            }
            row.insert(column.clone(), value);
        }
        Ok(())
    }

    /// Rows that nothing refers to go, as in the real database.
    fn collect_garbage(&mut self) {
        loop {
            let mut alive: BTreeSet<(Table, Uuid)> = BTreeSet::new();
            for ((table, _), row) in &self.rows {
                for (from, column, to) in schema::REFERENCES {
                    if from == *table {
                        alive.extend(references(&row[column]).map(|uuid| (to, uuid)));
                    }
                }
            }
            let before = self.rows.len();
            self.rows.retain(|id, _| id.0 == Table::OpenVSwitch || alive.contains(id));
            if self.rows.len() == before {
                return;
            }
        }
    }

    fn check_names(&self) -> Result<(), Failure> {
        for table in [Table::Bridge, Table::Port, Table::Interface] {
            let mut names = BTreeSet::new();
            for (_, row) in self.table(table) {
                if !names.insert(row["name"].to_string()) {
                    return Err((
                        "constraint violation",
                        format!(
                            "Transaction causes multiple rows in \"{}\" table to have identical \
                             values ({}) for index on column \"name\".",
                            table.name(),
                            row["name"]
                        ),
                    ));
                }
            }
        }
        Ok(())
    }
}

fn read(json: &Json, names: &BTreeMap<String, Uuid>) -> Result<Value, Failure> {
    let value = Value::from_json(json).map_err(|error| ("syntax error", error.to_string()))?;
    let resolve = |atom: Atom| match atom {
        Atom::NamedUuid(name) => names
            .get(&name)
            .map(|uuid| Atom::Uuid(*uuid))
            .ok_or(("syntax error", format!("no row is called {name}"))),
        atom => Ok(atom),
    };
    Ok(match value {
        Value::Atom(atom) => Value::Atom(resolve(atom)?),
        Value::Set(atoms) => Value::Set(atoms.into_iter().map(resolve).collect::<Result<_, _>>()?),
        Value::Map(pairs) => Value::Map(
            pairs
                .into_iter()
                .map(|(key, value)| Ok((resolve(key)?, resolve(value)?)))
                .collect::<Result<_, Failure>>()?,
        ),
    })
}

fn references(value: &Value) -> impl Iterator<Item = Uuid> + '_ {
    let atoms = value.atoms().unwrap_or_default().iter();
    let values = value.pairs().unwrap_or_default().iter().map(|(_, value)| value);
    atoms.chain(values).filter_map(|atom| match atom {
        Atom::Uuid(uuid) => Some(*uuid),
        _ => None,
    })
}

fn includes(have: &Value, want: &Value) -> bool {
    match (have, want) {
        (Value::Map(have), Value::Map(want)) => want.iter().all(|pair| have.contains(pair)),
        _ => match (have.atoms(), want.atoms()) {
            (Some(have), Some(want)) => want.iter().all(|atom| have.contains(atom)),
            _ => false,
        },
    }
}

fn mutate(
    table: Table,
    row: &mut FakeRow,
    mutation: &Json,
    names: &BTreeMap<String, Uuid>,
) -> Result<(), Failure> {
    let bad = || ("syntax error", format!("mutation {mutation}"));
    let (column, mutator) = mutation[0].as_str().zip(mutation[1].as_str()).ok_or_else(bad)?;
    let kind = schema::kind(table, column)
        .ok_or_else(|| ("unknown column", format!("{} {column}", table.name())))?;
    let value = read(&mutation[2], names)?;
    match (kind, mutator, row.get_mut(column).ok_or_else(bad)?) {
        (Kind::Map, "insert", Value::Map(have)) => {
            for (key, value) in value.pairs().ok_or_else(bad)? {
                if !have.iter().any(|(k, _)| k == key) {
                    have.push((key.clone(), value.clone()));
                }
            }
        }
        (Kind::Map, "delete", Value::Map(have)) => match &value {
            Value::Map(pairs) => have.retain(|pair| !pairs.contains(pair)),
            value => {
                let keys = value.atoms().ok_or_else(bad)?;
                have.retain(|(key, _)| !keys.contains(key));
            }
        },
        (Kind::Set | Kind::Optional, "insert", Value::Set(have)) => {
            for atom in value.atoms().ok_or_else(bad)? {
                if !have.contains(atom) {
                    have.push(atom.clone());
                }
            }
        }
        (Kind::Set | Kind::Optional, "delete", Value::Set(have)) => {
            let atoms = value.atoms().ok_or_else(bad)?;
            have.retain(|atom| !atoms.contains(atom));
        }
        (Kind::Scalar, "+=", Value::Atom(Atom::Integer(have))) => {
            let Some([Atom::Integer(by)]) = value.atoms() else { return Err(bad()) };
            *have += by;
        }
        _ => return Err(bad()),
    }
    Ok(())
}

fn to_json(row: &FakeRow) -> Json {
    Json::Object(row.iter().map(|(column, value)| (column.clone(), value.to_json())).collect())
}

/// What a monitor is told of the way from `before` to `after`, in the form of `update2`.
pub(super) fn difference(before: &Database, after: &Database) -> Json {
    let mut tables: Map<String, Json> = Map::new();
    let mut tell = |table: Table, uuid: Uuid, update: Json| {
        let rows = tables.entry(table.name()).or_insert_with(|| json!({}));
        rows[uuid.to_string()] = update;
    };
    for ((table, uuid), row) in &after.rows {
        match before.rows.get(&(*table, *uuid)) {
            None => tell(*table, *uuid, json!({"insert": to_json(row)})),
            Some(old) if old != row => {
                let changed: Map<String, Json> = row
                    .iter()
                    .filter(|(column, value)| old[*column] != **value)
                    .map(|(column, value)| {
                        (column.clone(), change(&old[column], value, schema::kind(*table, column)))
                    })
                    .collect();
                tell(*table, *uuid, json!({"modify": changed}));
            }
            Some(_) => {}
        }
    }
    for (table, uuid) in before.rows.keys().filter(|id| !after.rows.contains_key(*id)) {
        tell(*table, *uuid, json!({"delete": null}));
    }
    tables.into()
}

fn change(old: &Value, new: &Value, kind: Option<Kind>) -> Json {
    match (kind, old, new) {
        (Some(Kind::Set), Value::Set(old), Value::Set(new)) => {
            let gone = old.iter().filter(|atom| !new.contains(atom));
            let came = new.iter().filter(|atom| !old.contains(atom));
            Value::Set(gone.chain(came).cloned().collect()).to_json()
        }
        (Some(Kind::Map), Value::Map(old), Value::Map(new)) => {
            let gone = old.iter().filter(|(key, _)| !new.iter().any(|(k, _)| k == key));
            let came = new.iter().filter(|pair| !old.contains(pair));
            Value::Map(gone.chain(came).cloned().collect()).to_json()
        }
        _ => new.to_json(),
    }
}
