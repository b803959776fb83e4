//! Logs of a lab that did not come up: kept beside its directory, which is gone.
//!
//! One flat directory, `DIR.logs`: `apiserver.log`, `node-1-agent.log` and so on. The next `up` in
//! the same directory removes them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LabError;
use crate::layout::Layout;
use crate::quote;

/// Moves every log out of the lab's directory; gives what went where. A log that cannot be moved
/// goes with the lab.
#[must_use]
pub fn keep(layout: &Layout, nodes: &[String]) -> Vec<(PathBuf, PathBuf)> {
    let kept = layout.kept_logs();
    let mut found = logs_in(layout.log("any").parent(), "");
    for node in nodes {
        found.extend(logs_in(layout.node(node).log("any").parent(), &format!("{node}-")));
    }
    if found.is_empty() || fs::create_dir_all(&kept).is_err() || is_link(&kept) {
        return Vec::new();
    }
    found
        .into_iter()
        .map(|(from, name)| (from, kept.join(name)))
        // Another file system than the lab's own takes a copy.
        .filter(|(from, to)| fs::rename(from, to).is_ok() || fs::copy(from, to).is_ok())
        .collect()
}

/// Removes what [`keep`] left earlier.
pub fn forget(layout: &Layout) {
    let kept = layout.kept_logs();
    if is_link(&kept) {
        return;
    }
    for (path, _) in logs_in(Some(&kept), "") {
        let _ = fs::remove_file(path);
    }
    // What somebody else put there stays.
    let _ = fs::remove_dir(&kept);
}

/// Makes an error name the logs where they are now.
#[must_use]
pub fn renamed(error: LabError, kept: &[(PathBuf, PathBuf)]) -> LabError {
    let Some(dir) = kept.first().and_then(|(_, to)| to.parent()) else { return error };
    let hint = match error.next_step() {
        Some(hint) => kept.iter().fold(hint.to_owned(), |hint, (from, to)| {
            hint.replace(&from.display().to_string(), &to.display().to_string())
        }),
        None => format!("the logs are in {}", quote::path(dir)),
    };
    error.hint(hint)
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// The logs of a directory, with the names they get.
fn logs_in(dir: Option<&Path>, prefix: &str) -> Vec<(PathBuf, String)> {
    let Some(Ok(entries)) = dir.map(fs::read_dir) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "log") && path.is_file())
        .filter_map(|path| {
            let name = format!("{prefix}{}", path.file_name()?.to_str()?);
            Some((path, name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_log_where_it_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("lab")).unwrap();
        let log = layout.node("node-1").log("agent");
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        fs::write(&log, "bad key\n").unwrap();
        let kept = keep(&layout, &["node-1".into()]);
        let hint = format!("its whole log is {}", log.display());
        fs::remove_dir_all(layout.dir()).unwrap();
        let error = renamed(LabError::new("the agent ended").hint(hint), &kept);
        let path = error.next_step().unwrap().strip_prefix("its whole log is ").unwrap().to_owned();
        assert_eq!(fs::read_to_string(&path).unwrap(), "bad key\n");
        let error = renamed(LabError::new("not ready: node-1"), &kept);
        assert!(error.next_step().unwrap().contains("lab.logs"), "{error:?}");
        forget(&layout);
        assert!(!layout.kept_logs().exists());
    }
}
