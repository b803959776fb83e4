//! Monitor updates: in the form of `monitor_cond` and `monitor_cond_since` (`update2`, `update3`,
//! ovsdb-server(7)) and in that of the older `monitor` (`update`, RFC 7047 section 4.1.6).

use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use crate::column::ColumnError;
use crate::table::Table;

/// Changes of rows, table by table, as the server sent them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableUpdates(pub(crate) Vec<(Table, Uuid, RowUpdate)>);

/// What happened to one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowUpdate {
    /// It is there, with these columns.
    Is(Map<String, Json>),
    /// These columns changed; sets and maps by difference.
    Modify(Map<String, Json>),
    /// It is gone.
    Delete,
}

/// Why an update is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError {
    /// It has another form than `update2`.
    #[error("malformed monitor update: {0}")]
    Malformed(&'static str),
    /// It changes a row that is not there.
    #[error("update of unknown row {uuid} of {}", table.name())]
    UnknownRow {
        /// Its table.
        table: Table,
        /// Its uuid.
        uuid: Uuid,
    },
    /// A column has a value of another type.
    #[error("{}.{column} of {uuid}", table.name())]
    Column {
        /// Its table.
        table: Table,
        /// Its row.
        uuid: Uuid,
        /// Its name.
        column: String,
        /// What is wrong with it.
        source: ColumnError,
    },
}

/// Parameters of a `monitor_cond` request for every column that we read.
#[must_use]
pub fn monitor_request(monitor_id: &str) -> Json {
    let tables: Map<String, Json> = Table::ALL
        .into_iter()
        .map(|table| (table.name().to_owned(), json!([{"columns": table.columns()}])))
        .collect();
    json!([crate::DATABASE, monitor_id, tables])
}

impl TableUpdates {
    /// Reads the reply to `monitor_cond`, or the updates of an `update2` or `update3`
    /// notification. Tables that we do not use are left out.
    pub fn from_json(json: &Json) -> Result<Self, UpdateError> {
        let tables = json.as_object().ok_or(UpdateError::Malformed("not an object"))?;
        let mut updates = Vec::new();
        for (name, rows) in tables {
            let Some(table) = Table::from_name(name) else { continue };
            let rows = rows.as_object().ok_or(UpdateError::Malformed("rows are not an object"))?;
            for (uuid, row) in rows {
                let uuid =
                    Uuid::try_parse(uuid).map_err(|_| UpdateError::Malformed("not a uuid"))?;
                updates.push((table, uuid, RowUpdate::from_json(row)?));
            }
        }
        Ok(Self(updates))
    }

    /// Reads the parameters of an `update2` or `update3` notification for this monitor; none when
    /// it is for another.
    pub fn from_notification(
        method: &str,
        params: &Json,
        monitor_id: &str,
    ) -> Result<Option<Self>, UpdateError> {
        let params = params.as_array().map(Vec::as_slice);
        let (id, updates) = match (method, params) {
            ("update" | "update2", Some([id, updates])) | ("update3", Some([id, _, updates])) => {
                (id, updates)
            }
            _ => return Err(UpdateError::Malformed("wrong number of parameters")),
        };
        if id.as_str() != Some(monitor_id) {
            return Ok(None);
        }
        Self::from_json(updates).map(Some)
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl RowUpdate {
    fn from_json(json: &Json) -> Result<Self, UpdateError> {
        let object = json.as_object().ok_or(UpdateError::Malformed("a row is not an object"))?;
        let columns = |json: &Json| {
            json.as_object().cloned().ok_or(UpdateError::Malformed("columns are not an object"))
        };
        if let Some(row) = object.get("initial").or_else(|| object.get("insert")) {
            return columns(row).map(Self::Is);
        }
        if let Some(row) = object.get("modify") {
            return columns(row).map(Self::Modify);
        }
        if object.contains_key("delete") {
            return Ok(Self::Delete);
        }
        // The older form has the whole new row, and none when the row is gone.
        if let Some(row) = object.get("new").filter(|row| !row.is_null()) {
            return columns(row).map(Self::Is);
        }
        if object.contains_key("old") {
            return Ok(Self::Delete);
        }
        Err(UpdateError::Malformed("a row is neither initial, insert, modify nor delete"))
    }
}
