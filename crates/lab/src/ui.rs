//! Everything the lab prints: progress to standard error, results to standard output.
//!
//! Progress is plain lines with the time since the start, so that a log of it reads well too.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

use serde::Serialize;

use crate::error::{Doing, LabError, Result};

/// Shows how far a command has come, on standard error.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    colour: bool,
}

impl Progress {
    /// Starts the clock.
    #[must_use]
    pub fn start() -> Self {
        Self { started: Instant::now(), colour: io::stderr().is_terminal() }
    }

    /// One step done or begun.
    pub fn step(&self, text: &str) {
        let at = self.started.elapsed().as_secs_f64();
        let line = if self.colour {
            format!("\u{1b}[2m[{at:6.2}s]\u{1b}[0m {text}\n")
        } else {
            format!("[{at:6.2}s] {text}\n")
        };
        write_to(&mut io::stderr().lock(), &line);
    }

    /// Seconds since the start.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }
}

/// Prints one line of a result.
pub fn line(text: impl AsRef<str>) {
    let mut out = io::stdout().lock();
    write_to(&mut out, text.as_ref());
    write_to(&mut out, "\n");
}

/// Prints a message about something that went wrong but does not stop the command.
pub fn warn(text: impl AsRef<str>) {
    write_to(&mut io::stderr().lock(), &format!("warning: {}\n", text.as_ref()));
}

/// Prints why a command failed, and what to do next.
pub fn fail(error: &LabError) {
    let mut text = format!("error: {}\n", error.chain());
    if let Some(hint) = error.next_step() {
        text.push_str(&format!("  what to do: {hint}\n"));
    }
    write_to(&mut io::stderr().lock(), &text);
}

/// Prints a result as JSON.
///
/// # Errors
/// When the value cannot be encoded.
pub fn json<T: Serialize>(value: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(value).doing(|| "encode the result".into())?;
    line(text);
    Ok(())
}

/// Prints rows with aligned columns.
pub fn table(rows: &[Vec<String>]) {
    for row in render_table(rows) {
        line(row);
    }
}

/// Aligns columns by their widest cell, two blanks apart.
#[must_use]
pub fn render_table(rows: &[Vec<String>]) -> Vec<String> {
    let n_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut text = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                text.push_str(&format!("{cell:<width$}  "));
            }
            text.trim_end().to_owned()
        })
        .collect()
}

/// Programs of the lab that run in the background log to standard error, which is their log file.
pub fn log_to_stderr() {
    let level = tracing_subscriber::filter::LevelFilter::INFO;
    // A second logger is a test's own.
    let _ = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(false)
        .with_max_level(level)
        .try_init();
}

/// A closed pipe on the other side is no reason to fail.
fn write_to(out: &mut impl Write, text: &str) {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = vec![vec!["NAME".into(), "AGE".into()], vec!["a-long-name".into(), "1".into()]];
        assert_eq!(render_table(&rows), ["NAME         AGE", "a-long-name  1"]);
    }
}
