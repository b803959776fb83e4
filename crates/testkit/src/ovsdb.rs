//! A real ovsdb-server of its own for one test, without ovs-vswitchd.
//!
//! The server is a child process (no `--detach`), so it is ended by handle and never by name.

use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::wait::wait_until;

/// Schema that Debian's openvswitch-common installs.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const START_DEADLINE: Duration = Duration::from_secs(20);

/// How the server keeps its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storage {
    /// In a file of its own; it forgets which transactions there were.
    Standalone,
    /// As the only member of a cluster; it knows its latest transactions.
    Clustered,
}

/// A running ovsdb-server with an empty `Open_vSwitch` database; it ends when this is dropped.
#[derive(Debug)]
pub struct OvsdbServer {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl OvsdbServer {
    /// Starts a server; panics when it cannot.
    #[must_use]
    #[track_caller]
    pub fn start(storage: Storage) -> Self {
        match Self::try_start(storage) {
            Ok(server) => server,
            Err(error) => panic!("start ovsdb-server: {error:#}"),
        }
    }

    fn try_start(storage: Storage) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ovsdb-").tempdir().context("make directory")?;
        let mut tool = Command::new("ovsdb-tool");
        let file = dir.path().join("conf.db");
        match storage {
            Storage::Standalone => tool.arg("create").arg(&file).arg(SCHEMA),
            Storage::Clustered => tool
                .arg("create-cluster")
                .arg(&file)
                .arg(SCHEMA)
                .arg(format!("unix:{}", dir.path().join("raft.sock").display())),
        };
        let output = tool.output().context("start ovsdb-tool")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        let mut server = Self { dir, child: None };
        server.launch()?;
        Ok(server)
    }

    /// The server's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir().join("db.sock")
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both fail only when the process is already gone, which is what is wanted.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills the server when it runs and starts it again; returns when it answers.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        if let Err(error) = self.launch() {
            panic!("start ovsdb-server again: {error:#}");
        }
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn launch(&mut self) -> Result<()> {
        let (dir, socket) = (self.dir(), self.socket());
        let log = File::create(dir.join("stderr")).context("make log")?;
        let child = Command::new("ovsdb-server")
            .arg(dir.join("conf.db"))
            .arg(format!("--remote=punix:{}", socket.display()))
            .arg(format!("--unixctl={}", dir.join("ctl").display()))
            .args(["-vconsole:warn", "--no-chdir"])
            .env("OVS_RUNDIR", dir)
            .env("OVS_DBDIR", dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("start ovsdb-server")?;
        self.child = Some(child);
        wait_until(START_DEADLINE, "ovsdb-server", || UnixStream::connect(&socket).is_ok());
        Ok(())
    }
}

impl Drop for OvsdbServer {
    fn drop(&mut self) {
        self.kill();
    }
}
