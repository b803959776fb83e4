//! The last known policies and groups, on disk, and addresses of names beside them.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use policy::realize::{self, Event, Snapshot};
use serde::{Deserialize, Serialize};

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

    pub(super) fn save(&self, snapshot: &Snapshot) -> io::Result<()> {
        write(&self.0, |file| Ok(snapshot.write(file)?))
    }
}

/// Written beside, to the disk, and renamed: a crash, of the machine too, leaves the old or the new set.
pub(super) fn write(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    let mut file = BufWriter::new(File::create(&beside)?);
    content(&mut file)?;
    file.flush()?;
    file.get_ref().sync_all()?;
    std::fs::rename(&beside, path)
}

/// Where addresses of names are.
#[derive(Clone, Debug)]
pub(super) struct KnownNames(PathBuf);

/// An address of a name, as it is kept.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptName {
    pub(super) name: String,
    pub(super) ip: IpAddr,
    /// Seconds since 1970 until which it is good.
    pub(super) until: u64,
}

/// What time of day it is, in seconds since 1970.
pub(super) fn today() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl KnownNames {
    pub(super) fn new(state_dir: &Path) -> Self {
        Self(state_dir.join("names.json"))
    }

    /// What was known last, for as long as it is still good; what is out of date will be asked for.
    pub(super) fn load(&self) -> Vec<realize::Known> {
        let path = self.0.display();
        let read = std::fs::read(&self.0);
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Vec::new();
        }
        let kept = read.and_then(|bytes| Ok(serde_json::from_slice::<Vec<KeptName>>(&bytes)?));
        let kept = kept.unwrap_or_else(|error| {
            tracing::warn!(%error, %path, "the last known names are not read");
            Vec::new()
        });
        let now = today();
        let left = |until| Duration::from_secs(until).saturating_sub(now);
        kept.into_iter()
            .map(|kept| realize::Known { name: kept.name, ip: kept.ip, left: left(kept.until) })
            .collect()
    }

    pub(super) fn save(&self, names: &[KeptName]) -> io::Result<()> {
        write(&self.0, |file| Ok(serde_json::to_writer(file, names)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_with_the_time_of_day() {
        let dir = tempfile::tempdir().unwrap();
        let known = KnownNames::new(dir.path());
        assert!(known.load().is_empty());
        let kept = |name: &str, until| KeptName {
            name: name.into(),
            ip: "2001:db8::1".parse().unwrap(),
            until,
        };
        known.save(&[kept("a.test", 0), kept("b.test", today().as_secs() + 1000)]).unwrap();
        let loaded = known.load();
        assert_eq!(loaded.len(), 2);
        assert_eq!((loaded[0].name.as_str(), loaded[0].left), ("a.test", Duration::ZERO));
        assert!(loaded[1].left > Duration::from_secs(900));
        std::fs::write(dir.path().join("names.json"), b"[{").unwrap();
        assert!(known.load().is_empty());
    }
}
