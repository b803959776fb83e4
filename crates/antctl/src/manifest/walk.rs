//! Finds files with manifests.

use std::io;
use std::path::{Path, PathBuf};

/// The files of all paths, each once, in order. A path that is a file counts whatever it is called;
/// of a folder, all files below it that end in `.yaml`, `.yml` or `.json`, hidden ones left out.
pub(super) fn files(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in paths {
        let about =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        if std::fs::metadata(path).map_err(about)?.is_dir() {
            below(path, &mut found)?;
        } else {
            found.push(path.clone());
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    let about =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    for entry in std::fs::read_dir(folder).map_err(about)? {
        let entry = entry.map_err(about)?;
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // A link to a folder is not followed: it may lead back here.
        if entry.file_type().map_err(about)?.is_dir() {
            below(&path, found)?;
        } else if path.is_file() && has_manifests(&path) {
            found.push(path);
        }
    }
    Ok(())
}

fn has_manifests(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["yaml", "yml", "json"].contains(&ending))
}
