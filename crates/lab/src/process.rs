//! Processes of the lab: started in a namespace, known by pid and start time, ended for certain.
//!
//! A pid alone is never trusted: the kernel gives it to another process later. Pid and start time
//! together name one process for the life of the machine.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, LabError, Result};
use crate::netns;

/// Variable that marks a process as a lab's; its value is the lab's directory.
pub const OWNER_VARIABLE: &str = "ANTREA_LAB_OWNER";

/// One process for the life of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its pid.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    pub start: u64,
}

impl ProcessId {
    /// The process that has this pid now.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        stat(pid).map(|s| Self { pid, start: s.start })
    }

    /// Our own process.
    #[must_use]
    pub fn me() -> Option<Self> {
        Self::of(Pid::this().as_raw())
    }

    /// Whether it still runs; a zombie does not.
    #[must_use]
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|s| s.start == self.start && !matches!(s.state, 'Z' | 'X'))
    }

    /// Sends a signal, if it still runs.
    pub fn signal(self, signal: Signal) {
        if self.is_alive() {
            // It may end between the question and the signal: that is what we wanted anyway.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Sends a signal to the whole process group that it leads, if it still runs.
    pub fn signal_group(self, signal: Signal) {
        if self.is_alive() {
            let _ = kill(Pid::from_raw(-self.pid), signal);
        }
    }

    /// Seconds of processor time used so far.
    #[must_use]
    pub fn cpu_seconds(self) -> Option<f64> {
        let ticks = stat(self.pid).filter(|s| s.start == self.start)?.cpu_ticks;
        #[allow(clippy::cast_precision_loss)] // Ticks of a process stay far below 2^52.
        Some(ticks as f64 / 100.0)
    }

    /// Resident memory in kilobytes.
    #[must_use]
    pub fn rss_kb(self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let line = status.lines().find(|l| l.starts_with("VmRSS:"))?;
        line.split_whitespace().nth(1)?.parse().ok()
    }

    /// Number of open descriptors.
    #[must_use]
    pub fn n_descriptors(self) -> Option<usize> {
        Some(fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?.count())
    }
}

struct Stat {
    state: char,
    start: u64,
    cpu_ticks: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so fields are counted from the last one.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let user: u64 = fields.nth(10)?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let start = fields.nth(6)?.parse().ok()?;
    Some(Stat { state, start, cpu_ticks: user + system })
}

/// What to start, and where.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables added to its environment.
    pub env: BTreeMap<String, String>,
    /// The namespace it runs in; none for the machine's own.
    pub netns: Option<PathBuf>,
    /// Where its output goes, appended.
    pub log: PathBuf,
}

impl Start {
    /// A program with its log, in the machine's own namespace.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>, log: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::from([("PATH".into(), crate::preflight::search_path())]),
            netns: None,
            log: log.into(),
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds a flag and its path.
    #[must_use]
    pub fn path_arg(self, flag: &str, path: &Path) -> Self {
        self.arg(flag).arg(path.display().to_string())
    }

    /// Adds a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Marks it as belonging to the lab in this directory.
    #[must_use]
    pub fn owned_by(self, lab: &Path) -> Self {
        self.env(OWNER_VARIABLE, lab.display().to_string())
    }

    /// Runs it inside a namespace.
    #[must_use]
    pub fn in_netns(mut self, netns: &Path) -> Self {
        self.netns = Some(netns.to_owned());
        self
    }

    /// Starts it in a process group of its own, detached from the terminal.
    ///
    /// # Errors
    /// When the namespace, the log or the program cannot be opened.
    pub fn spawn(&self) -> Result<ProcessId> {
        match &self.netns {
            Some(netns) => netns::enter(netns, || self.spawn_here())?,
            None => self.spawn_here(),
        }
    }

    fn spawn_here(&self) -> Result<ProcessId> {
        let name = self.program.display();
        let log = open_log(&self.log)?;
        let errors = log.try_clone().doing(|| "duplicate the log's descriptor".into())?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .envs(&self.env)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .doing(|| format!("start {name}"))?;
        let pid = i32::try_from(child.id()).doing(|| "read the pid".into())?;
        ProcessId::of(pid).ok_or_else(|| LabError::new(format!("{name} ended at once")))
    }
}

/// Opens a log for appending, with its directory.
///
/// # Errors
/// When the directory or the file cannot be made.
pub fn open_log(path: &Path) -> Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).doing(|| format!("create {}", dir.display()))?;
    }
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .doing(|| format!("open the log {}", path.display()))
}

/// Ends processes: asks all of them, waits, then kills what is left.
///
/// Gives back those that even SIGKILL did not end in time.
#[must_use]
pub fn end_all(processes: &[ProcessId], grace: Duration) -> Vec<ProcessId> {
    for process in processes {
        process.signal(Signal::SIGTERM);
        process.signal(Signal::SIGCONT);
    }
    wait_gone(processes, grace);
    for process in processes {
        process.signal(Signal::SIGKILL);
    }
    wait_gone(processes, Duration::from_secs(5));
    processes.iter().copied().filter(|p| p.is_alive()).collect()
}

fn wait_gone(processes: &[ProcessId], within: Duration) {
    let deadline = Instant::now() + within;
    while processes.iter().any(|p| p.is_alive()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything that runs in a network namespace, found by the namespace's identity.
#[must_use]
pub fn inside_netns(identity: u64) -> Vec<ProcessId> {
    use std::os::linux::fs::MetadataExt;
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| m.st_ino() == identity)
        })
        .filter_map(ProcessId::of)
        .collect()
}

/// Everything that carries the mark of the lab in this directory, ourselves left out.
#[must_use]
pub fn marked(lab: &Path) -> Vec<ProcessId> {
    let mark = format!("{OWNER_VARIABLE}={}", lab.display());
    let me = Pid::this().as_raw();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != me)
        .filter(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environ.split(|b| *b == 0).any(|variable| variable == mark.as_bytes())
        })
        .filter_map(ProcessId::of)
        .collect()
}

/// What a process said last, for an error message; why there is nothing where it can be told.
#[must_use]
pub fn last_words(log: &Path, n_lines: usize) -> String {
    let tail = log_tail(log, n_lines);
    if !tail.trim().is_empty() {
        return format!("it last said:\n{tail}");
    }
    let dir = log.parent().unwrap_or(log);
    let left = nix::sys::statvfs::statvfs(dir).map(|seen| seen.blocks_available());
    match left {
        Ok(0) => format!("its log is empty: the file system of {} is full", dir.display()),
        _ => "its log is empty".into(),
    }
}

/// The last lines of a log.
#[must_use]
pub fn log_tail(path: &Path, n_lines: usize) -> String {
    let text = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(n_lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_pid_and_start_time() {
        let me = ProcessId::me().unwrap();
        assert!(me.is_alive());
        assert!(!ProcessId { start: me.start + 1, ..me }.is_alive());
    }

    #[test]
    fn last_words_say_when_there_are_none() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(last_words(&log, 2), "its log is empty");
        fs::write(&log, "a\nb\nc\n").unwrap();
        assert_eq!(last_words(&log, 2), "it last said:\nb\nc");
    }

    #[test]
    fn a_started_process_is_ended_even_when_it_ignores_sigterm() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let start = Start::new("/bin/sh", &log)
            .arg("-c")
            .arg("trap '' TERM; echo ready; while :; do sleep 0.05; done");
        let process = start.spawn().unwrap();
        crate::interrupt::wait_for(Duration::from_secs(10), "ready", || {
            log_tail(&log, 1).contains("ready").then_some(())
        })
        .unwrap();
        assert!(end_all(&[process], Duration::from_millis(100)).is_empty());
        assert!(!process.is_alive());
    }
}
