//! A monitor that outlives its connections.
//!
//! On every new connection it asks for what happened since the last transaction it saw. A server
//! that knows that transaction answers with the changes only; any other with all rows, which then
//! replace the old ones. A server that lacks `monitor_cond_since` is asked by `monitor_cond`, and
//! one that lacks that too by `monitor`.
//!
//! Pure: says what to send and takes in what came. Not here: the connection.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use uuid::Uuid;

use crate::operation::Condition;
use crate::result::ErrorKind;
use crate::snapshot::Snapshot;
use crate::table::Table;
use crate::update::{TableUpdates, UpdateError};

/// How a server is asked, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MonitorMethod {
    /// With conditions, from a transaction on (`monitor_cond_since`).
    Since,
    /// With conditions (`monitor_cond`).
    Conditional,
    /// All rows (`monitor`).
    Plain,
}

/// Which rows of a table are monitored.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum RowFilter {
    /// All.
    #[default]
    All,
    /// None.
    None,
    /// Those that meet at least one condition.
    Any(Vec<Condition>),
}

/// What the answer to a request means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Established {
    /// The rows were brought up to date by what was missed.
    Resumed,
    /// The rows were replaced by those that are there.
    Anew,
    /// The server lacks the method: send [`Monitor::request`] again, which asks in another way.
    AskAgain,
}

/// Why a monitor cannot go on. Give the connection up; [`Monitor::request`] starts anew.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MonitorError {
    /// The server refused the request.
    #[error("monitor refused: {0}")]
    Refused(Json),
    /// The answer has another form.
    #[error("malformed monitor reply: {0}")]
    Malformed(&'static str),
    /// A change is not understood, or does not fit the rows.
    #[error("monitor update")]
    Update(#[from] UpdateError),
}

/// The monitor of every table and column that we read, and the rows as last seen.
#[derive(Clone, Debug)]
pub struct Monitor {
    id: String,
    method: MonitorMethod,
    filters: BTreeMap<Table, RowFilter>,
    /// Changes of filters that the server has not answered.
    n_unanswered: usize,
    last_transaction: Option<Uuid>,
    rows: Snapshot,
}

impl Monitor {
    /// A monitor of all rows, with a name that is its own on the connection.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            method: MonitorMethod::Since,
            filters: BTreeMap::new(),
            n_unanswered: 0,
            last_transaction: None,
            rows: Snapshot::default(),
        }
    }

    /// With these rows of `table` only, from the next connection on.
    #[must_use]
    pub fn filter(mut self, table: Table, filter: RowFilter) -> Self {
        self.filters.insert(table, filter);
        self.last_transaction = None;
        self
    }

    /// The rows as last seen.
    #[must_use]
    pub fn rows(&self) -> &Snapshot {
        &self.rows
    }

    /// How the server is asked.
    #[must_use]
    pub fn method(&self) -> MonitorMethod {
        self.method
    }

    /// The last transaction that the rows contain, if the server names them.
    #[must_use]
    pub fn last_transaction(&self) -> Option<Uuid> {
        self.last_transaction
    }

    /// Begins again with the best method, for a server that may be another one.
    pub fn forget_method(&mut self) {
        self.method = MonitorMethod::Since;
    }

    /// Method and parameters of the request on a new connection.
    #[must_use]
    pub fn request(&mut self) -> (&'static str, Json) {
        if std::mem::take(&mut self.n_unanswered) > 0 {
            // Which of the old or the new rows the last transaction was about is not known.
            self.last_transaction = None;
        }
        let mut tables = Map::new();
        for table in Table::ALL {
            let mut wanted = json!({"columns": table.columns()});
            if self.method != MonitorMethod::Plain
                && let Some(filter) = self.filters.get(&table).and_then(RowFilter::to_json)
            {
                wanted["where"] = filter;
            }
            tables.insert(table.name().to_owned(), json!([wanted]));
        }
        let mut params = vec![json!(crate::DATABASE), json!(self.id), Json::Object(tables)];
        let method = match self.method {
            MonitorMethod::Since => {
                let last = self.last_transaction.unwrap_or(Uuid::nil());
                params.push(json!(last.to_string()));
                "monitor_cond_since"
            }
            MonitorMethod::Conditional => "monitor_cond",
            MonitorMethod::Plain => "monitor",
        };
        (method, Json::Array(params))
    }

    /// Takes in the answer to [`Monitor::request`].
    pub fn reply(&mut self, result: Result<Json, Json>) -> Result<Established, MonitorError> {
        let result = match result {
            Ok(result) => result,
            Err(error) => return self.refused(error),
        };
        let outcome = self.take_reply(&result);
        if outcome.is_err() {
            self.last_transaction = None;
        }
        outcome
    }

    fn refused(&mut self, error: Json) -> Result<Established, MonitorError> {
        let name = error.get("error").unwrap_or(&error).as_str().unwrap_or_default();
        self.method = match (ErrorKind::of(name), self.method) {
            (ErrorKind::NotSupported, MonitorMethod::Since) => MonitorMethod::Conditional,
            (ErrorKind::NotSupported, MonitorMethod::Conditional) => MonitorMethod::Plain,
            _ => return Err(MonitorError::Refused(error)),
        };
        self.last_transaction = None;
        Ok(Established::AskAgain)
    }

    fn take_reply(&mut self, result: &Json) -> Result<Established, MonitorError> {
        if self.method != MonitorMethod::Since {
            self.replace(TableUpdates::from_json(result)?)?;
            return Ok(Established::Anew);
        }
        let parts = result.as_array().map(Vec::as_slice);
        let Some([Json::Bool(found), last, updates]) = parts else {
            return Err(MonitorError::Malformed("expected found, transaction and updates"));
        };
        let last = transaction(last)?;
        let updates = TableUpdates::from_json(updates)?;
        let established = if *found && self.last_transaction.is_some() {
            self.rows.apply(updates)?;
            Established::Resumed
        } else {
            self.replace(updates)?;
            Established::Anew
        };
        self.last_transaction = last;
        Ok(established)
    }

    fn replace(&mut self, updates: TableUpdates) -> Result<(), UpdateError> {
        self.rows = Snapshot::default();
        self.rows.apply(updates)
    }

    /// Takes in a notification and says whether the rows changed; another monitor's, or one about
    /// something else, changes nothing.
    pub fn notification(&mut self, method: &str, params: &Json) -> Result<bool, MonitorError> {
        if !matches!(method, "update" | "update2" | "update3") {
            return Ok(false);
        }
        let outcome = self.take_update(method, params);
        if outcome.is_err() {
            self.last_transaction = None;
        }
        outcome
    }

    fn take_update(&mut self, method: &str, params: &Json) -> Result<bool, MonitorError> {
        let Some(updates) = TableUpdates::from_notification(method, params, &self.id)? else {
            return Ok(false);
        };
        let changes = !updates.is_empty();
        self.rows.apply(updates)?;
        if let ("update3", Some(last)) = (method, params.get(1)) {
            self.last_transaction = transaction(last)?;
        }
        Ok(changes)
    }

    /// Changes which rows of `table` are monitored, and gives method and parameters of the request
    /// that tells the server. The rows that come or go are told by notifications, which may come
    /// before or after the answer; give the answer to [`Monitor::changed`]. Nothing is to be sent
    /// to a server that knows no conditions: it sends all rows.
    pub fn change(&mut self, table: Table, filter: RowFilter) -> Option<(&'static str, Json)> {
        // All rows have to be said, where there was something else before.
        let wanted = filter.to_json().unwrap_or_else(|| json!([true]));
        self.filters.insert(table, filter);
        if self.method == MonitorMethod::Plain {
            return None;
        }
        self.n_unanswered += 1;
        let mut tables = Map::new();
        tables.insert(table.name().to_owned(), json!([{"where": wanted}]));
        Some(("monitor_cond_change", json!([self.id, self.id, tables])))
    }

    /// Takes in the answer to [`Monitor::change`].
    pub fn changed(&mut self, result: Result<Json, Json>) -> Result<(), MonitorError> {
        result.map_err(MonitorError::Refused)?;
        self.n_unanswered = self.n_unanswered.saturating_sub(1);
        Ok(())
    }

    /// Method and parameters of the request that ends the monitor on this connection.
    #[must_use]
    pub fn cancel(&self) -> (&'static str, Json) {
        ("monitor_cancel", json!([self.id]))
    }
}

impl RowFilter {
    /// Its JSON form; nothing for all rows.
    fn to_json(&self) -> Option<Json> {
        match self {
            Self::All => None,
            Self::None => Some(json!([false])),
            Self::Any(conditions) if conditions.is_empty() => Some(json!([false])),
            Self::Any(conditions) => Some(conditions.iter().map(Condition::to_json).collect()),
        }
    }
}

/// The id of a transaction; zero when the server has none.
fn transaction(json: &Json) -> Result<Option<Uuid>, MonitorError> {
    let text = json.as_str().ok_or(MonitorError::Malformed("a transaction is no text"))?;
    let uuid =
        Uuid::try_parse(text).map_err(|_| MonitorError::Malformed("a transaction is no uuid"))?;
    Ok((!uuid.is_nil()).then_some(uuid))
}

#[cfg(test)]
mod tests;
