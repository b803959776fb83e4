//! Lists as text and as JSON.

use std::io::{self, Write};

use ::policy::connectivity::Line;
use ::policy::diff::{Change, Presence};
use serde::Serialize;

use super::Output;

#[derive(Serialize)]
struct JsonLine<'a> {
    src: &'a str,
    dst: &'a str,
    conn: String,
}

/// `SRC => DST : CONNS`
pub(super) fn lines(lines: &[Line], form: Output, out: &mut dyn Write) -> io::Result<()> {
    match form {
        Output::Text => lines.iter().try_for_each(|line| {
            writeln!(out, "{} => {} : {}", line.source, line.destination, line.connections)
        }),
        Output::Json => {
            let lines = lines.iter().map(|line| JsonLine {
                src: &line.source,
                dst: &line.destination,
                conn: line.connections.to_string(),
            });
            json(&lines.collect::<Vec<_>>(), out)
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JsonChange<'a> {
    diff_type: &'static str,
    source: &'a str,
    destination: &'a str,
    dir1: String,
    dir2: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    workloads_diff_info: Option<String>,
    details: Vec<JsonDetail>,
}

#[derive(Serialize)]
struct JsonDetail {
    conn: String,
    dir1: String,
    dir2: String,
}

/// One line a change, and one below it for each pair of rules that decided and decide.
pub(super) fn changes(changes: &[Change], form: Output, out: &mut dyn Write) -> io::Result<()> {
    if form == Output::Json {
        let changes = changes.iter().map(|change| JsonChange {
            diff_type: diff_type(change),
            source: &change.source,
            destination: &change.destination,
            dir1: change.before.to_string(),
            dir2: change.after.to_string(),
            workloads_diff_info: workloads(change),
            details: change
                .details
                .iter()
                .map(|detail| JsonDetail {
                    conn: detail.traffic.to_string(),
                    dir1: detail.before.to_string(),
                    dir2: detail.after.to_string(),
                })
                .collect(),
        });
        return json(&changes.collect::<Vec<_>>(), out);
    }
    if !changes.is_empty() {
        writeln!(out, "Connectivity diff:")?;
    }
    for change in changes {
        write!(
            out,
            "diff-type: {}, source: {}, destination: {}, dir1: {}, dir2: {}",
            diff_type(change),
            change.source,
            change.destination,
            change.before,
            change.after
        )?;
        match workloads(change) {
            Some(info) => writeln!(out, ", workloads-diff-info: {info}")?,
            None => writeln!(out)?,
        }
        for detail in &change.details {
            writeln!(out, "  {}", detail.traffic)?;
            writeln!(out, "    dir1: {}", detail.before)?;
            writeln!(out, "    dir2: {}", detail.after)?;
        }
    }
    Ok(())
}

fn diff_type(change: &Change) -> &'static str {
    match (change.before.is_empty(), change.after.is_empty()) {
        (true, _) => "added",
        (_, true) => "removed",
        _ => "changed",
    }
}

fn workloads(change: &Change) -> Option<String> {
    let words = change.workloads.iter().map(|(name, presence)| match presence {
        Presence::Added => format!("workload {name} added"),
        Presence::Removed => format!("workload {name} removed"),
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Pretty, and ended by a newline.
pub(super) fn json<T: Serialize + ?Sized>(value: &T, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}
