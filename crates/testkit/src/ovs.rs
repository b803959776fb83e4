//! A real Open vSwitch of its own for one test: private directory, private sockets, userspace
//! datapath.
//!
//! Both daemons are child processes (no `--detach`), so they are ended by handle and never by name.
//! The switch runs in the namespace given, or in the caller's; a caller in the machine's own
//! namespace would create taps there, so call it from [`crate::netns::in_netns`].

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::netns::NamedNetns;
use crate::wait::wait_until;

/// Schema that Debian's openvswitch-common installs.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
const START_DEADLINE: Duration = Duration::from_secs(20);
const STOP_DEADLINE: Duration = Duration::from_secs(3);

/// A running ovsdb-server and ovs-vswitchd; both end when this is dropped.
#[derive(Debug)]
pub struct Ovs {
    dir: tempfile::TempDir,
    netns: Option<PathBuf>,
    ovsdb: Option<Child>,
    vswitchd: Option<Child>,
}

impl Ovs {
    /// Starts an empty switch in `netns` (the caller's namespace when none); panics when it cannot.
    #[track_caller]
    pub fn start(netns: Option<&NamedNetns>) -> Self {
        match Self::try_start(netns) {
            Ok(ovs) => ovs,
            Err(error) => panic!("start Open vSwitch: {error:#}"),
        }
    }

    /// Starts an empty switch in `netns` (the caller's namespace when none).
    pub fn try_start(netns: Option<&NamedNetns>) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ovs-").tempdir().context("make directory")?;
        let mut ovs =
            Self { dir, netns: netns.map(|n| n.path().to_owned()), ovsdb: None, vswitchd: None };
        let conf = ovs.dir().join("conf.db");
        succeed(Command::new("ovsdb-tool").arg("create").arg(&conf).arg(SCHEMA))?;
        ovs.start_ovsdb()?;
        ovs.vsctl_result(&["--no-wait", "init"])?;
        ovs.vsctl_result(&[
            "--no-wait",
            "set",
            "Open_vSwitch",
            ".",
            "other_config:n-handler-threads=1",
            "other_config:n-revalidator-threads=1",
            "external_ids:system-id=testkit",
        ])?;
        ovs.start_vswitchd()?;
        Ok(ovs)
    }

    /// The private directory: `conf.db`, sockets, pid files, logs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Socket of ovsdb-server.
    pub fn db_sock(&self) -> PathBuf {
        self.dir().join("db.sock")
    }

    /// OpenFlow management socket of `bridge`.
    pub fn mgmt(&self, bridge: &str) -> PathBuf {
        self.dir().join(format!("{bridge}.mgmt"))
    }

    /// Control socket of ovs-vswitchd.
    pub fn ctl(&self) -> PathBuf {
        self.dir().join("ovs-vswitchd.ctl")
    }

    /// Process id of ovs-vswitchd, when it runs.
    pub fn vswitchd_pid(&self) -> Option<u32> {
        self.vswitchd.as_ref().map(Child::id)
    }

    /// Runs `ovs-vsctl` against this database and returns what it printed; panics when it fails.
    #[track_caller]
    pub fn vsctl(&self, args: &[&str]) -> String {
        expect_output(self.vsctl_result(args), "ovs-vsctl", args)
    }

    /// Runs `ovs-ofctl -O OpenFlow15` and returns what it printed; panics when it fails. An
    /// argument that is a bridge name here is not turned into its socket: pass [`Ovs::mgmt`].
    #[track_caller]
    pub fn ofctl(&self, args: &[&str]) -> String {
        expect_output(self.ofctl_result(args), "ovs-ofctl", args)
    }

    /// Runs `ovs-appctl` against ovs-vswitchd and returns what it printed; panics when it fails.
    #[track_caller]
    pub fn appctl(&self, args: &[&str]) -> String {
        expect_output(self.appctl_result(args), "ovs-appctl", args)
    }

    /// [`Ovs::vsctl`] that hands the failure back.
    pub fn vsctl_result(&self, args: &[&str]) -> Result<String> {
        let db = format!("--db=unix:{}", self.db_sock().display());
        succeed(self.tool("ovs-vsctl").args(["--timeout=20", &db]).args(args))
    }

    /// [`Ovs::ofctl`] that hands the failure back.
    pub fn ofctl_result(&self, args: &[&str]) -> Result<String> {
        succeed(self.tool("ovs-ofctl").args(["-O", "OpenFlow15"]).args(args))
    }

    /// [`Ovs::appctl`] that hands the failure back.
    pub fn appctl_result(&self, args: &[&str]) -> Result<String> {
        succeed(self.tool("ovs-appctl").arg("-t").arg(self.ctl()).args(args))
    }

    /// The flows of `bridge` as ovs-ofctl prints them without statistics, sorted.
    #[track_caller]
    pub fn flows(&self, bridge: &str) -> Vec<String> {
        let mgmt = self.mgmt(bridge).display().to_string();
        let text = self.ofctl(&["--no-stats", "--no-names", "dump-flows", &mgmt]);
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.trim().to_owned())
            .filter(|line| line.contains("actions="))
            .collect();
        lines.sort();
        lines
    }

    /// Ends ovs-vswitchd at once, as a crash would.
    pub fn kill_vswitchd(&mut self) {
        end(self.vswitchd.take());
    }

    /// Kills ovs-vswitchd when it runs and starts it again; returns when it answers.
    #[track_caller]
    pub fn restart_vswitchd(&mut self) {
        self.kill_vswitchd();
        self.start_vswitchd().expect("ovs-vswitchd starts again");
    }

    /// Ends ovsdb-server at once, as a crash would.
    pub fn kill_ovsdb(&mut self) {
        end(self.ovsdb.take());
    }

    /// Kills ovsdb-server when it runs and starts it again; returns when it answers.
    #[track_caller]
    pub fn restart_ovsdb(&mut self) {
        self.kill_ovsdb();
        self.start_ovsdb().expect("ovsdb-server starts again");
    }

    fn start_ovsdb(&mut self) -> Result<()> {
        let sock = self.db_sock();
        let mut command = self.daemon("ovsdb-server");
        command.arg(self.dir().join("conf.db")).arg(format!("--remote=punix:{}", sock.display()));
        let mut child = command.spawn().context("start ovsdb-server")?;
        let ready = wait_ready(&mut child, "ovsdb-server", || UnixStream::connect(&sock).is_ok());
        self.ovsdb = Some(child);
        ready
    }

    fn start_vswitchd(&mut self) -> Result<()> {
        let ctl = self.ctl();
        let mut command = self.daemon("ovs-vswitchd");
        command.arg(format!("unix:{}", self.db_sock().display())).arg("--disable-system");
        let mut child = command.spawn().context("start ovs-vswitchd")?;
        let pid = child.id();
        let pid_file = self.dir().join("ovs-vswitchd.pid");
        let ready = wait_ready(&mut child, "ovs-vswitchd", || {
            fs::read_to_string(&pid_file).is_ok_and(|text| text.trim() == pid.to_string())
                && UnixStream::connect(&ctl).is_ok()
        });
        self.vswitchd = Some(child);
        ready
    }

    /// A daemon's command with its pid file, control socket and log in the private directory.
    fn daemon(&self, name: &str) -> Command {
        let dir = self.dir();
        let mut command = match &self.netns {
            Some(path) => {
                // nsenter executes the program in its own place, so the child's pid is the daemon's.
                let mut command = self.tool("nsenter");
                command.arg(format!("--net={}", path.display())).args(["--", name]);
                command
            }
            None => self.tool(name),
        };
        command
            .arg(format!("--pidfile={}", dir.join(format!("{name}.pid")).display()))
            .arg(format!("--unixctl={}", dir.join(format!("{name}.ctl")).display()))
            .arg(format!("--log-file={}", dir.join(format!("{name}.log")).display()))
            .args(["-vconsole:off", "--no-chdir"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        match File::create(dir.join(format!("{name}.stderr"))) {
            Ok(file) => command.stderr(file),
            Err(_) => command.stderr(Stdio::null()),
        };
        command
    }

    fn tool(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        for name in ["OVS_RUNDIR", "OVS_DBDIR", "OVS_LOGDIR", "OVS_SYSCONFDIR"] {
            command.env(name, self.dir());
        }
        command
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        // A clean exit also removes the taps, for a caller outside a namespace of its own.
        if let Some(child) = &mut self.vswitchd
            && self.ovsdb.is_some()
        {
            let ctl = self.dir.path().join("ovs-vswitchd.ctl");
            let asked = Command::new("ovs-appctl")
                .args(["--timeout=2", "-t"])
                .arg(ctl)
                .args(["exit", "--cleanup"])
                .output();
            if asked.is_ok_and(|output| output.status.success()) {
                let deadline = Instant::now() + STOP_DEADLINE;
                while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        self.kill_vswitchd();
        self.kill_ovsdb();
    }
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        // Both fail only when the process is already gone, which is what is wanted.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn wait_ready(child: &mut Child, name: &str, mut ready: impl FnMut() -> bool) -> Result<()> {
    let mut exited = None;
    wait_until(START_DEADLINE, name, || {
        exited = child.try_wait().ok().flatten();
        exited.is_some() || ready()
    });
    match exited {
        Some(status) => bail!("{name} ended at once with {status}"),
        None => Ok(()),
    }
}

fn succeed(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } =
        command.output().with_context(|| format!("start {}", command.get_program().display()))?;
    let stderr = String::from_utf8_lossy(&stderr);
    ensure!(
        status.success(),
        "{} ended with {status}: {}",
        command.get_program().display(),
        stderr.trim()
    );
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

#[track_caller]
fn expect_output(result: Result<String>, program: &str, args: &[&str]) -> String {
    match result {
        Ok(text) => text,
        Err(error) => panic!("{program} {args:?}: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::in_netns;

    #[test]
    #[ignore = "needs root: make test"]
    fn a_switch_of_its_own_survives_a_restart_and_ends_with_the_test() {
        in_netns(|| {
            let mut ovs = Ovs::start(None);
            let kind = ["datapath_type=netdev", "fail_mode=secure"];
            ovs.vsctl(
                &[&["add-br", "br-int", "--", "set", "bridge", "br-int"], &kind[..]].concat(),
            );
            let mgmt = ovs.mgmt("br-int").display().to_string();
            ovs.ofctl(&["add-flow", &mgmt, "table=3,priority=7,arp actions=NORMAL"]);
            assert_eq!(ovs.flows("br-int"), ["table=3, priority=7,arp actions=NORMAL"]);
            ovs.restart_vswitchd();
            wait_until(Duration::from_secs(5), "bridge is back", || {
                ovs.ofctl_result(&["dump-flows", &mgmt]).is_ok()
            });
            assert!(ovs.flows("br-int").is_empty());
            ovs.restart_ovsdb();
            assert_eq!(ovs.vsctl(&["list-br"]).trim(), "br-int");
            let pid = ovs.vswitchd_pid().expect("it runs");
            let dir = ovs.dir().to_owned();
            drop(ovs);
            assert!(!Path::new(&format!("/proc/{pid}")).exists());
            assert!(!dir.exists());
        });
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn runs_inside_a_named_namespace() {
        let netns = NamedNetns::new("ovst").expect("namespace");
        let ovs = Ovs::start(Some(&netns));
        ovs.vsctl(&["add-br", "br-x", "--", "set", "bridge", "br-x", "datapath_type=netdev"]);
        assert!(netns.sh("ip -o link show").contains("br-x"), "the tap is in the namespace");
    }
}
