//! A log file that starts anew at a size and keeps a number of old ones.
//!
//! `antrea-agent.log` is the current file, `antrea-agent.log.1` the one before it, and so on.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// Writer shared by all threads that log.
#[derive(Clone)]
pub(super) struct RotatingFile {
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    path: PathBuf,
    /// Bytes at which the file is rotated; 0 for never.
    limit: u64,
    /// Files kept, the current one included; 0 for all.
    keep: usize,
    size: u64,
    file: File,
}

impl RotatingFile {
    /// Opens `path` for appending and creates its folder.
    pub(super) fn open(path: PathBuf, limit: u64, keep: usize) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let file = append(&path)?;
        let size = file.metadata()?.len();
        Ok(Self { inner: Arc::new(Mutex::new(Inner { path, limit, keep, size, file })) })
    }
}

fn append(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Inner {
    fn numbered(&self, n: usize) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{n}"));
        name.into()
    }

    fn rotate(&mut self) -> io::Result<()> {
        let mut oldest = 1;
        while self.numbered(oldest).exists() {
            oldest += 1;
        }
        for n in (1..oldest).rev() {
            if self.keep != 0 && n + 1 >= self.keep {
                std::fs::remove_file(self.numbered(n))?;
            } else {
                std::fs::rename(self.numbered(n), self.numbered(n + 1))?;
            }
        }
        if self.keep == 1 {
            std::fs::remove_file(&self.path)?;
        } else {
            std::fs::rename(&self.path, self.numbered(1))?;
        }
        self.file = append(&self.path)?;
        self.size = 0;
        Ok(())
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let length = line.len() as u64;
        if inner.limit != 0 && inner.size > 0 && inner.size + length > inner.limit {
            // A folder that cannot be changed must not cost the message.
            let _ = inner.rotate();
        }
        inner.file.write_all(line)?;
        inner.size += length;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).file.flush()
    }
}

impl<'a> MakeWriter<'a> for RotatingFile {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_files_move_up_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/agent.log");
        let mut file = RotatingFile::open(path.clone(), 10, 3).unwrap();
        for line in ["aaaaaaaa\n", "bbbbbbbb\n", "cccccccc\n", "dddddddd\n"] {
            file.write_all(line.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join("deep").join(name));
        assert_eq!(read("agent.log").unwrap(), "dddddddd\n");
        assert_eq!(read("agent.log.1").unwrap(), "cccccccc\n");
        assert_eq!(read("agent.log.2").unwrap(), "bbbbbbbb\n");
        assert!(read("agent.log.3").is_err());
    }

    #[test]
    fn a_restart_appends_and_counts_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.log");
        RotatingFile::open(path.clone(), 10, 1).unwrap().write_all(b"12345678\n").unwrap();
        let mut file = RotatingFile::open(path.clone(), 10, 1).unwrap();
        file.write_all(b"new\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new\n");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
