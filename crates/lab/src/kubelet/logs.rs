//! Container logs as `kubectl logs` asks for them: a tail, since a time, followed, with times.

use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::container::ContainerDir;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogQuery {
    /// Go on until the container ends.
    pub(super) follow: bool,
    /// Of the attempt before the present one.
    pub(super) previous: bool,
    /// With the time of each line.
    pub(super) timestamps: bool,
    /// Only the last lines.
    pub(super) tail: Option<usize>,
    /// Only lines from this time on.
    pub(super) since: Option<Timestamp>,
    /// No more than this many bytes.
    pub(super) limit: Option<usize>,
}

impl LogQuery {
    /// Reads the query of a request.
    pub(super) fn parse(pairs: &[(String, String)], now: Timestamp) -> Self {
        let mut query = Self::default();
        for (key, value) in pairs {
            let yes = matches!(value.as_str(), "true" | "1");
            match key.as_str() {
                "follow" => query.follow = yes,
                "previous" => query.previous = yes,
                "timestamps" => query.timestamps = yes,
                "tailLines" => query.tail = value.parse().ok(),
                "limitBytes" => query.limit = value.parse().ok(),
                "sinceTime" => query.since = value.parse().ok(),
                "sinceSeconds" => {
                    let seconds = value.parse::<i64>().ok();
                    let span = seconds.map(jiff::SignedDuration::from_secs);
                    query.since = span.and_then(|s| now.checked_sub(s).ok());
                }
                _ => {}
            }
        }
        query
    }

    /// One line of the log as it is shown; none when it is too old.
    fn show(&self, line: &[u8]) -> Option<Vec<u8>> {
        let mut parts = line.splitn(4, |b| *b == b' ');
        let (time, _stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
        let text = parts.next()?;
        let at = std::str::from_utf8(time).ok()?;
        if self.since.is_some_and(|since| at.parse::<Timestamp>().is_ok_and(|t| t < since)) {
            return None;
        }
        // A piece of a longer line carries no line end of its own.
        let text = if tag == b"P" { text.strip_suffix(b"\n").unwrap_or(text) } else { text };
        let mut shown = Vec::with_capacity(text.len() + 32);
        if self.timestamps {
            shown.extend_from_slice(time);
            shown.push(b' ');
        }
        shown.extend_from_slice(text);
        Some(shown)
    }
}

/// Sends the log in pieces; ends when all is sent, or nobody listens any more.
pub(super) fn stream(dir: ContainerDir, query: LogQuery) -> mpsc::Receiver<Vec<u8>> {
    let (tx, rx) = mpsc::channel(16);
    tokio::task::spawn_blocking(move || send(&dir, &query, &tx));
    rx
}

fn send(dir: &ContainerDir, query: &LogQuery, tx: &mpsc::Sender<Vec<u8>>) {
    let path = dir.log();
    let mut left = query.limit.unwrap_or(usize::MAX);
    let mut offset = start_of_tail(&path, query.tail);
    loop {
        // Asked before the read: what is written before the end is read after it.
        let ended = dir.exit().is_some();
        if let Some((pieces, read_to)) = read_from(&path, offset, query) {
            offset = read_to;
            for mut piece in pieces {
                piece.truncate(left);
                left -= piece.len();
                if !piece.is_empty() && tx.blocking_send(piece).is_err() {
                    return;
                }
            }
        }
        if !query.follow || ended || left == 0 || tx.is_closed() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Whole lines from an offset on, and where the next read begins.
fn read_from(path: &Path, offset: u64, query: &LogQuery) -> Option<(Vec<Vec<u8>>, u64)> {
    let mut file = std::fs::File::open(path).ok()?;
    file.seek(SeekFrom::Start(offset)).ok()?;
    let mut reader = BufReader::new(file);
    let mut pieces = Vec::new();
    let mut at = offset;
    let mut line = Vec::new();
    loop {
        line.clear();
        let n = reader.read_until(b'\n', &mut line).ok()?;
        // A line that is being written is read when it is whole.
        if n == 0 || line.last() != Some(&b'\n') {
            return Some((pieces, at));
        }
        at += u64::try_from(n).ok()?;
        pieces.extend(query.show(&line));
    }
}

fn start_of_tail(path: &PathBuf, tail: Option<usize>) -> u64 {
    let Some(tail) = tail else { return 0 };
    let Ok(text) = std::fs::read(path) else { return 0 };
    let ends = text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1);
    let ends: Vec<usize> = ends.collect();
    let start = match ends.len().checked_sub(tail + 1) {
        Some(i) => ends[i],
        None => 0,
    };
    u64::try_from(start).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(query: &LogQuery) -> String {
        let dir = tempfile::tempdir().unwrap();
        let text = "2026-01-01T00:00:00Z stdout F one\n\
                    2026-01-01T00:00:01Z stderr F two\n\
                    2026-01-01T00:00:02Z stdout P thr\n\
                    2026-01-01T00:00:02Z stdout F ee\n\
                    2026-01-01T00:00:03Z stdout F half";
        let path = dir.path().join("log");
        std::fs::write(&path, text).unwrap();
        let start = start_of_tail(&path, query.tail);
        let (pieces, _) = read_from(&path, start, query).unwrap();
        String::from_utf8(pieces.concat()).unwrap()
    }

    #[test]
    fn lines_are_chosen_and_joined() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        for (query, want) in [
            ("", "one\ntwo\nthree\n"),
            ("tailLines=1", "ee\n"),
            ("tailLines=0", ""),
            ("tailLines=100", "one\ntwo\nthree\n"),
            ("sinceSeconds=9", "two\nthree\n"),
            (
                "sinceTime=2026-01-01T00:00:02Z&timestamps=true",
                "2026-01-01T00:00:02Z thr2026-01-01T00:00:02Z ee\n",
            ),
        ] {
            let pairs: Vec<_> = query
                .split('&')
                .filter_map(|p| p.split_once('='))
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect();
            assert_eq!(shown(&LogQuery::parse(&pairs, now)), want, "{query}");
        }
    }
}
