//! As much of the schema as the fake database needs.

use ovsdb::{Atom, Table, Value};

/// How a column holds values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// One atom.
    Scalar,
    /// At most one atom.
    Optional,
    /// Any number of atoms.
    Set,
    /// Pairs.
    Map,
}

/// How a column of a table holds values; none if there is no such column.
pub(super) fn kind(table: Table, column: &str) -> Option<Kind> {
    if !table.columns().contains(&column) {
        return None;
    }
    Some(match (table, column) {
        (_, "external_ids" | "other_config" | "options" | "flow_tables") => Kind::Map,
        (
            _,
            "bridges" | "ports" | "interfaces" | "protocols" | "controller" | "trunks"
            | "datapath_types" | "iface_types",
        ) => Kind::Set,
        (Table::FlowTable, "name") => Kind::Optional,
        (_, "name" | "datapath_type" | "type" | "next_cfg" | "cur_cfg")
        | (_, "mcast_snooping_enable") => Kind::Scalar,
        _ => Kind::Optional,
    })
}

/// What a column holds that nobody set.
pub(super) fn default(table: Table, column: &str) -> Value {
    match kind(table, column) {
        Some(Kind::Map) => Value::Map(Vec::new()),
        Some(Kind::Scalar) => Value::Atom(match column {
            "next_cfg" | "cur_cfg" => Atom::Integer(0),
            "mcast_snooping_enable" => Atom::Boolean(false),
            _ => Atom::String(String::new()),
        }),
        Some(Kind::Set | Kind::Optional) | None => Value::EMPTY,
    }
}

/// The value in the shape that the column has, if it fits.
pub(super) fn shaped(table: Table, column: &str, value: &Value) -> Option<Value> {
    match kind(table, column)? {
        Kind::Map => value.pairs().map(|pairs| Value::Map(pairs.to_vec())),
        Kind::Set => value.atoms().map(|atoms| Value::Set(atoms.to_vec())),
        Kind::Optional => {
            value.atoms().filter(|atoms| atoms.len() <= 1).map(|atoms| Value::Set(atoms.to_vec()))
        }
        Kind::Scalar => match value.atoms() {
            Some([atom]) => Some(Value::Atom(atom.clone())),
            _ => None,
        },
    }
}

/// The columns that keep rows of other tables alive.
pub(super) const REFERENCES: [(Table, &str, Table); 4] = [
    (Table::OpenVSwitch, "bridges", Table::Bridge),
    (Table::Bridge, "ports", Table::Port),
    (Table::Port, "interfaces", Table::Interface),
    (Table::Bridge, "flow_tables", Table::FlowTable),
];
