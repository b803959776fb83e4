//! One container process: its specification, its keeper, its end, all on disk.
//!
//! The keeper (`antrea-lab container-run DIR`) starts the command, copies its output into a log
//! in the form that CRI prescribes, and writes how it ended. It outlives the kubelet that started
//! it, so that a restarted kubelet finds everything in the directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use jiff::Timestamp;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{Doing, Result};
use crate::process::{ProcessId, Start};
use crate::state;

/// When a container is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestartPolicy {
    /// However it ended.
    Always,
    /// When it failed.
    OnFailure,
    /// Never.
    #[default]
    Never,
}

impl RestartPolicy {
    /// Whether a container that ended so is started again.
    #[must_use]
    pub fn restarts(self, exit: &Exit) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => exit.code != 0,
            Self::Never => false,
        }
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Its environment, in place of the keeper's.
    pub env: BTreeMap<String, String>,
    /// Where it starts.
    pub cwd: Option<PathBuf>,
    /// Whether whoever started it starts it again.
    #[serde(default)]
    pub restart: RestartPolicy,
}

/// A container whose command was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The command's process; leads a process group of its own.
    pub child: ProcessId,
    /// When it was started.
    pub started: Timestamp,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Exit code; 128 + signal when a signal ended it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// When.
    pub finished: Timestamp,
    /// Why it could not even start.
    pub message: Option<String>,
}

impl Exit {
    /// One word for how it ended, as the status of a Pod names it.
    #[must_use]
    pub fn reason(&self, running: Option<&Running>) -> &'static str {
        match (self.code, running) {
            (_, None) => "StartError",
            (0, _) => "Completed",
            _ => "Error",
        }
    }
}

/// Longest piece of one log line, as CRI runtimes cut it.
const MAX_LOG_PIECE: u64 = 16 * 1024;

/// The directory of one attempt to run a container.
#[derive(Clone, Debug)]
pub struct ContainerDir(pub PathBuf);

impl ContainerDir {
    /// Writes the specification and starts the keeper in the namespace.
    ///
    /// # Errors
    /// When the directory cannot be written or the keeper not be started.
    pub fn launch(&self, spec: &ContainerSpec, netns: &Path, owner: &Path) -> Result<ProcessId> {
        fs::create_dir_all(&self.0).doing(|| format!("create {}", self.0.display()))?;
        state::write(&self.0.join("spec.json"), spec)?;
        let me = std::env::current_exe().doing(|| "find our own program".into())?;
        let keeper = Start::new(me, self.0.join("keeper.log"))
            .in_netns(netns)
            .owned_by(owner)
            .path_arg("container-run", &self.0)
            .spawn()?;
        state::write(&self.0.join("keeper.json"), &keeper)?;
        Ok(keeper)
    }

    /// The keeper's process.
    #[must_use]
    pub fn keeper(&self) -> Option<ProcessId> {
        read(&self.0.join("keeper.json"))
    }

    /// What it was told to run.
    #[must_use]
    pub fn spec(&self) -> Option<ContainerSpec> {
        read(&self.0.join("spec.json"))
    }

    /// The running command, as far as the keeper got.
    #[must_use]
    pub fn running(&self) -> Option<Running> {
        read(&self.0.join("running.json"))
    }

    /// How it ended: as the keeper wrote it, or unknown when the keeper is gone without a word.
    #[must_use]
    pub fn exit(&self) -> Option<Exit> {
        let path = self.0.join("exit.json");
        if let Some(exit) = read(&path) {
            return Some(exit);
        }
        let keeper_lives = self.keeper().is_some_and(ProcessId::is_alive);
        let child_lives = self.running().is_some_and(|r| r.child.is_alive());
        if keeper_lives || child_lives {
            return None;
        }
        // The keeper may have written its last word between the two looks.
        read(&path).or_else(|| {
            self.keeper().map(|_| Exit {
                code: 137,
                signal: None,
                finished: Timestamp::now(),
                message: Some("the container's keeper was killed".into()),
            })
        })
    }

    /// How it is, in the words of `kubectl get pods`, and more where there is more to say.
    #[must_use]
    pub fn words(&self) -> (String, Option<String>) {
        let running = self.running();
        let Some(exit) = self.exit() else {
            let word = if running.is_some() { "Running" } else { "ContainerCreating" };
            return (word.into(), None);
        };
        let reason = exit.reason(running.as_ref());
        let why = exit.message.clone();
        let why = why.unwrap_or_else(|| format!("exit code {}", exit.code));
        let again = self.spec().is_some_and(|s| s.restart.restarts(&exit));
        match (again, exit.code) {
            (true, _) => ("CrashLoopBackOff".into(), Some(format!("{reason}, {why}"))),
            (false, 0) => (reason.into(), None),
            (false, _) => (reason.into(), Some(why)),
        }
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Asks the command to end, and everything it started.
    pub fn signal(&self, signal: Signal) {
        if let Some(running) = self.running() {
            running.child.signal_group(signal);
        }
    }

    /// Ends command and keeper for certain.
    pub fn kill(&self) {
        self.signal(Signal::SIGKILL);
        // The keeper ends by itself once it has written how the command ended.
        if let Some(keeper) = self.keeper() {
            let gone = crate::interrupt::wait_for(Duration::from_secs(2), "keeper ends", || {
                (!keeper.is_alive()).then_some(())
            });
            if gone.is_err() {
                keeper.signal(Signal::SIGKILL);
                self.signal(Signal::SIGKILL);
            }
        }
    }
}

/// The keeper: runs the command of a directory to its end.
///
/// # Errors
/// When the directory cannot be read or written.
pub fn keep(dir: &Path) -> Result<()> {
    let spec_path = dir.join("spec.json");
    let text = fs::read(&spec_path).doing(|| format!("read {}", spec_path.display()))?;
    let spec: ContainerSpec =
        serde_json::from_slice(&text).doing(|| format!("decode {}", spec_path.display()))?;
    let log = File::create(dir.join("log")).doing(|| "create the log".into())?;
    // Orphans of the command become ours, so that the sweep at the end reaches them.
    let _ = nix::sys::prctl::set_child_subreaper(true);
    let exit = run_command(&spec, dir, log);
    state::write(&dir.join("exit.json"), &exit)
}

fn run_command(spec: &ContainerSpec, dir: &Path, log: File) -> Exit {
    let failed = |message: String| Exit {
        code: 128,
        signal: None,
        finished: Timestamp::now(),
        message: Some(message),
    };
    let Some(program) = spec.argv.first() else { return failed("no command".into()) };
    let mut command = Command::new(program);
    command
        .args(&spec.argv[1..])
        .env_clear()
        .envs(&spec.env)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(cwd) = &spec.cwd {
        command.current_dir(cwd);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failed(format!("start {program}: {error}")),
    };
    let pid = i32::try_from(child.id()).unwrap_or_default();
    if let Some(id) = ProcessId::of(pid) {
        let running = Running { child: id, started: Timestamp::now() };
        if let Err(error) = state::write(&dir.join("running.json"), &running) {
            let _ = child.kill();
            return failed(error.chain());
        }
    }
    let log = Arc::new(Mutex::new(log));
    let (done_tx, done_rx) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        copy_log(out, "stdout", Arc::clone(&log), done_tx.clone());
    }
    if let Some(err) = child.stderr.take() {
        copy_log(err, "stderr", log, done_tx);
    }
    let status = child.wait();
    // Whatever the command left behind in its group ends with it.
    let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    for _ in 0..2 {
        let _ = done_rx.recv_timeout(Duration::from_millis(500));
    }
    match status {
        Ok(status) => Exit {
            code: status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(-1),
            signal: status.signal(),
            finished: Timestamp::now(),
            message: None,
        },
        Err(error) => failed(format!("wait for {program}: {error}")),
    }
}

fn copy_log(
    from: impl Read + Send + 'static,
    stream: &'static str,
    log: Arc<Mutex<File>>,
    done: mpsc::Sender<()>,
) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut piece = Vec::new();
        loop {
            piece.clear();
            match (&mut reader).take(MAX_LOG_PIECE).read_until(b'\n', &mut piece) {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let tag = if piece.last() == Some(&b'\n') { 'F' } else { 'P' };
            let mut line = format!("{} {stream} {tag} ", Timestamp::now()).into_bytes();
            line.extend_from_slice(&piece);
            if tag == 'P' {
                line.push(b'\n');
            }
            let mut log = log.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if log.write_all(&line).is_err() {
                break;
            }
        }
        let _ = done.send(());
    });
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep_shell(script: &str) -> (tempfile::TempDir, Exit, String) {
        let dir = tempfile::tempdir().unwrap();
        let spec = ContainerSpec {
            argv: vec!["/bin/sh".into(), "-c".into(), script.into()],
            env: BTreeMap::from([("WHO".into(), "lab".into())]),
            cwd: None,
            restart: RestartPolicy::Never,
        };
        state::write(&dir.path().join("spec.json"), &spec).unwrap();
        keep(dir.path()).unwrap();
        let exit = ContainerDir(dir.path().to_owned()).exit().unwrap();
        let log = fs::read_to_string(dir.path().join("log")).unwrap();
        (dir, exit, log)
    }

    #[test]
    fn output_and_exit_code_are_kept() {
        let (_dir, exit, log) = keep_shell("echo out $WHO; echo err >&2; exit 3");
        assert_eq!(exit.code, 3);
        assert!(log.contains(" stdout F out lab\n"), "{log}");
        assert!(log.contains(" stderr F err\n"), "{log}");
    }

    #[test]
    fn a_signal_is_told_apart_from_an_exit() {
        let (_dir, exit, _) = keep_shell("kill -TERM $$");
        assert_eq!((exit.code, exit.signal), (143, Some(15)));
    }

    #[test]
    fn children_left_behind_end_with_the_command() {
        let (dir, exit, log) = keep_shell("sleep 1000 & echo $!; exit 0");
        assert_eq!(exit.code, 0);
        let pid: i32 = log.split_whitespace().last().unwrap().parse().unwrap();
        crate::interrupt::wait_for(Duration::from_secs(5), "the child is gone", || {
            (!ProcessId::of(pid).is_some_and(ProcessId::is_alive)).then_some(())
        })
        .unwrap();
        drop(dir);
    }
}
