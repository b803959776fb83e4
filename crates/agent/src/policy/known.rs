//! The last known policies and groups, on disk.

use std::io;
use std::path::{Path, PathBuf};

use policy::realize::{Event, Snapshot};

/// Where the last known set is.
#[derive(Clone, Debug)]
pub(super) struct Known(PathBuf);

impl Known {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join("policies.json"))
    }

    /// What was known last; none without a file, or with one that cannot be read.
    pub(super) fn load(&self) -> Option<[Event; 3]> {
        let path = self.0.display();
        let bytes = match std::fs::read(&self.0) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(%error, %path, "the last known policies are not read");
                return None;
            }
        };
        match Snapshot::parse(&bytes) {
            Ok(snapshot) => Some(snapshot.into_events()),
            Err(error) => {
                tracing::warn!("{path}: {}", crate::nodes::chain(&error));
                None
            }
        }
    }

    /// Written beside and renamed, so that a crash leaves the old or the new set.
    pub(super) fn save(&self, snapshot: &Snapshot) -> io::Result<()> {
        let bytes = snapshot.to_bytes().map_err(io::Error::other)?;
        let beside = self.0.with_extension("json.new");
        std::fs::write(&beside, bytes)?;
        std::fs::rename(&beside, &self.0)
    }
}
