//! Host-wide sysctls that the userspace datapath needs, shared by all labs of the machine.
//!
//! The first lab that needs another value records the former one beside the labs; the last lab to
//! go puts it back, unless someone else has changed it meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Result};
use crate::state;

/// What OVS' AF_PACKET sockets need: they take the default receive buffer of the machine.
pub const RMEM_DEFAULT: (&str, u64) = ("net/core/rmem_default", 8_388_608);

/// Where the former values and their users are recorded.
#[derive(Clone, Debug)]
pub struct SharedSysctls {
    record: PathBuf,
    proc_sys: PathBuf,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    /// Former value and the one set, by name.
    changed: BTreeMap<String, (u64, u64)>,
    /// Directories of the labs that need them.
    users: BTreeSet<PathBuf>,
}

impl Default for SharedSysctls {
    fn default() -> Self {
        Self { record: "/run/antrea-labs.sysctl".into(), proc_sys: "/proc/sys".into() }
    }
}

impl SharedSysctls {
    /// Raises a value for a lab; gives back the former value when it was changed.
    ///
    /// # Errors
    /// When the value cannot be read or written.
    pub fn raise(&self, lab: &Path, (name, wanted): (&str, u64)) -> Result<Option<u64>> {
        let _lock = self.lock()?;
        let mut record = self.read();
        record.users.insert(lab.to_owned());
        let now = self.value(name)?;
        if now < wanted {
            record.changed.entry(name.into()).or_insert((now, wanted));
        }
        // Recorded before it is done: a crash in between restores what never changed.
        state::write(&self.record, &record)?;
        if now >= wanted {
            return Ok(None);
        }
        self.set(name, wanted)?;
        Ok(Some(now))
    }

    /// A lab goes; the last one puts everything back.
    ///
    /// # Errors
    /// When a value cannot be written.
    pub fn release(&self, lab: &Path) -> Result<()> {
        let lock = self.lock()?;
        let mut record = self.read();
        record.users.remove(lab);
        record.users.retain(|user| user.join("lab.json").exists());
        if !record.users.is_empty() {
            return state::write(&self.record, &record);
        }
        for (name, (former, set)) in &record.changed {
            if self.value(name)? == *set {
                self.set(name, *former)?;
            }
        }
        let _ = fs::remove_file(&self.record);
        let _ = fs::remove_file(self.lock_path());
        drop(lock);
        Ok(())
    }

    fn read(&self) -> Record {
        let text = fs::read(&self.record).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn value(&self, name: &str) -> Result<u64> {
        let path = self.proc_sys.join(name);
        let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
        text.trim().parse().doing(|| format!("read {}", path.display()))
    }

    fn set(&self, name: &str, value: u64) -> Result<()> {
        let path = self.proc_sys.join(name);
        fs::write(&path, value.to_string()).doing(|| format!("write {}", path.display()))
    }

    fn lock_path(&self) -> PathBuf {
        self.record.with_extension("sysctl-lock")
    }

    fn lock(&self) -> Result<Flock<File>> {
        let path = self.lock_path();
        let file = File::create(&path).doing(|| format!("open {}", path.display()))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, error)| error)
            .doing(|| format!("lock {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lab_puts_the_value_back() {
        let dir = tempfile::tempdir().unwrap();
        let value = dir.path().join("x");
        fs::write(&value, "100\n").unwrap();
        let shared =
            SharedSysctls { record: dir.path().join("record"), proc_sys: dir.path().to_owned() };
        let labs = ["a", "b"].map(|n| dir.path().join(n));
        for lab in &labs {
            fs::create_dir(lab).unwrap();
            fs::write(lab.join("lab.json"), "{}").unwrap();
        }
        let read = || fs::read_to_string(&value).unwrap().trim().to_owned();
        assert_eq!(shared.raise(&labs[0], ("x", 500)).unwrap(), Some(100));
        assert_eq!(shared.raise(&labs[1], ("x", 500)).unwrap(), None);
        shared.release(&labs[0]).unwrap();
        assert_eq!(read(), "500");
        shared.release(&labs[1]).unwrap();
        assert_eq!(read(), "100");
        assert!(!dir.path().join("record").exists());
    }

    #[test]
    fn a_value_someone_else_changed_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let value = dir.path().join("x");
        fs::write(&value, "100").unwrap();
        let shared =
            SharedSysctls { record: dir.path().join("record"), proc_sys: dir.path().to_owned() };
        shared.raise(dir.path(), ("x", 500)).unwrap();
        fs::write(&value, "700").unwrap();
        shared.release(dir.path()).unwrap();
        assert_eq!(fs::read_to_string(&value).unwrap(), "700");
    }
}
