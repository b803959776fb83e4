//! The table form: what `kubectl get` shows.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::meta;

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// Heading.
    pub name: String,
    /// Type, as `string`.
    pub kind: String,
    /// Format, as `name`.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// 0 is always shown, more only in the wide form.
    pub priority: i64,
}

/// Whether a column is always shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// It is.
    Always,
    /// Only in the wide form.
    Wide,
}

impl Column {
    /// A text column.
    pub fn new(name: &str, shown: Shown) -> Self {
        Self {
            name: name.to_owned(),
            kind: "string".to_owned(),
            format: if name == "Name" { "name".to_owned() } else { String::new() },
            description: format!("{name} of the object."),
            priority: i64::from(shown == Shown::Wide),
        }
    }

    /// Text columns from their headings; those after `|` are for the wide form.
    pub fn parse(headings: &str) -> Vec<Self> {
        let (always, wide) = headings.split_once('|').unwrap_or((headings, ""));
        let mut columns = Vec::new();
        for (part, shown) in [(always, Shown::Always), (wide, Shown::Wide)] {
            let names = part.split(',').map(str::trim).filter(|name| !name.is_empty());
            columns.extend(names.map(|name| Self::new(name, shown)));
        }
        columns
    }

    /// The column in the wire form.
    pub fn definition(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.kind,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

/// What a row carries of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Its metadata.
    Metadata,
    /// Nothing.
    None,
    /// All of it.
    Object,
}

/// The metadata form of an object.
pub fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// A row.
pub fn row(cells: Vec<Value>, object: &Value, include: Include) -> Value {
    let object = match include {
        Include::Metadata => partial(object),
        Include::None => Value::Null,
        Include::Object => object.clone(),
    };
    json!({ "cells": cells, "object": object })
}

/// A table.
pub fn table(metadata: Value, columns: Option<&[Column]>, rows: Vec<Value>) -> Value {
    let columns = columns.map(|columns| columns.iter().map(Column::definition).collect::<Vec<_>>());
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

/// Age of an object, as `5m10s`.
pub fn age(object: &Value) -> Value {
    json!(since(meta::text(object, "creationTimestamp")))
}

/// Time since a moment, as `5m10s`; `<unknown>` when the text is none.
pub fn since(moment: &str) -> String {
    match moment.parse::<Timestamp>() {
        Ok(then) => duration(Timestamp::now().as_second() - then.as_second()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// A duration with two units at most.
pub fn duration(seconds: i64) -> String {
    let s = seconds.max(0);
    let (minutes, hours, days) = (s / 60, s / 3600, s / 86400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    if s < 120 {
        format!("{s}s")
    } else if minutes < 10 {
        two(minutes, "m", s % 60, "s")
    } else if hours < 3 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, "h", minutes % 60, "m")
    } else if hours < 48 {
        format!("{hours}h")
    } else if days < 8 {
        two(days, "d", hours % 24, "h")
    } else if days < 365 * 2 {
        format!("{days}d")
    } else if days < 365 * 8 {
        two(days / 365, "y", days % 365, "d")
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short() {
        for (seconds, want) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (310, "5m10s"),
            (3600, "60m"),
            (4 * 3600 + 120, "4h2m"),
            (30 * 3600, "30h"),
            (3 * 86400, "3d"),
            (400 * 86400, "400d"),
            (800 * 86400, "2y70d"),
        ] {
            assert_eq!(duration(seconds), want, "{seconds}");
        }
    }

    #[test]
    fn columns_after_the_bar_are_wide() {
        let columns = Column::parse("Name, Age | Node");
        let seen: Vec<_> = columns.iter().map(|c| (c.name.as_str(), c.priority)).collect();
        assert_eq!(seen, [("Name", 0), ("Age", 0), ("Node", 1)]);
        assert_eq!(columns[0].format, "name");
    }
}
