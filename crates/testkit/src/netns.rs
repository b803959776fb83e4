//! Private network namespaces for tests.
//!
//! [`in_netns`] runs a closure on a thread that has its own namespace and ends with it: nothing to
//! remove, parallel-safe. [`NamedNetns`] is bind-mounted under `/run/netns` as `ip netns` lays it
//! out, so that other programs can be started in it; it is removed on drop, also on panic.
//! Not here: an Open vSwitch in such a namespace ([`crate::ovs`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result, bail};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

const RUN_NETNS: &str = "/run/netns";

/// Runs `body` on a thread of its own inside a fresh network namespace whose loopback is up.
///
/// The namespace ends with the thread (and with whatever file descriptors `body` leaked). Programs
/// started by `body` from the same thread run inside the namespace too. A panic of `body` is
/// passed on.
#[track_caller]
pub fn in_netns<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    let outcome = thread::scope(|scope| {
        scope
            .spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).expect("unshare the network namespace (root?)");
                loopback_up().expect("bring loopback up in the new namespace");
                body()
            })
            .join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A network namespace with a name under `/run/netns`, removed on drop.
#[derive(Debug)]
pub struct NamedNetns {
    name: String,
    path: PathBuf,
    handle: File,
}

impl NamedNetns {
    /// Creates a namespace named `<prefix>-<pid>-<n>` with its loopback up.
    pub fn new(prefix: &str) -> Result<Self> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}", std::process::id());
        let path = Path::new(RUN_NETNS).join(&name);
        prepare_run_netns()?;
        File::create_new(&path).with_context(|| format!("create {}", path.display()))?;

        let target = path.clone();
        let made = thread::spawn(move || -> Result<()> {
            unshare(CloneFlags::CLONE_NEWNET).context("unshare the network namespace (root?)")?;
            loopback_up().context("bring loopback up")?;
            mount(
                Some("/proc/thread-self/ns/net"),
                &target,
                None::<&str>,
                MsFlags::MS_BIND,
                None::<&str>,
            )
            .with_context(|| format!("bind-mount {}", target.display()))
        })
        .join()
        .expect("the thread that makes a namespace does not panic");

        let handle = made
            .and_then(|()| File::open(&path).with_context(|| format!("open {}", path.display())));
        match handle {
            Ok(handle) => Ok(Self { name, path, handle }),
            Err(error) => {
                remove(&path);
                Err(error)
            }
        }
    }

    /// The name that `ip netns` shows.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The bind mount, as passed to CNI plugins in `CNI_NETNS`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `body` on a thread of its own inside this namespace; a panic is passed on.
    #[track_caller]
    pub fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        let outcome = thread::scope(|scope| {
            scope
                .spawn(|| {
                    setns(&self.handle, CloneFlags::CLONE_NEWNET)
                        .expect("enter the test's namespace");
                    body()
                })
                .join()
        });
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A command that will run inside this namespace; the caller adds arguments and spawns it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        enter_before_exec(&mut command, self.handle.as_fd());
        command
    }

    /// Runs a shell line inside this namespace; panics with its output unless it succeeds.
    #[track_caller]
    pub fn sh(&self, line: &str) -> String {
        let mut command = self.command("sh");
        command.args(["-c", line]);
        checked_output(command, line)
    }
}

impl AsFd for NamedNetns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl Drop for NamedNetns {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Runs a shell line in the calling thread's namespace; panics with its output unless it succeeds.
#[track_caller]
pub fn sh(line: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    checked_output(command, line)
}

/// Runs a shell line in the calling thread's namespace; gives its status, stdout and stderr.
pub fn try_sh(line: &str) -> Result<(ExitStatus, String, String)> {
    let output = Command::new("sh").args(["-c", line]).output().context("start sh")?;
    Ok((
        output.status,
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    ))
}

#[track_caller]
fn checked_output(mut command: Command, line: &str) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("start `{line}`: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "`{line}` ended with {}: {}{stdout}",
        output.status,
        String::from_utf8_lossy(&output.stderr),
    );
    stdout
}

#[allow(unsafe_code, reason = "a child enters a namespace between fork and exec")]
fn enter_before_exec(command: &mut Command, netns: BorrowedFd<'_>) {
    let netns = netns.as_raw_fd();
    // SAFETY: the closure calls one async-signal-safe system call and allocates nothing. The
    // descriptor belongs to the `NamedNetns` whose method made the command; were it closed before
    // the spawn, setns would fail with EBADF and so would the spawn.
    unsafe {
        command.pre_exec(move || {
            if libc::setns(netns, libc::CLONE_NEWNET) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        });
    }
}

/// Makes `/run/netns` a shared mount point, as `ip netns add` does, so that the namespaces are seen
/// (and let go) by every mount namespace.
fn prepare_run_netns() -> Result<()> {
    std::fs::create_dir_all(RUN_NETNS).with_context(|| format!("create {RUN_NETNS}"))?;
    let shared = |flags| mount(None::<&str>, RUN_NETNS, None::<&str>, flags, None::<&str>);
    if shared(MsFlags::MS_SHARED | MsFlags::MS_REC).is_ok() {
        return Ok(());
    }
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(RUN_NETNS), RUN_NETNS, None::<&str>, bind, None::<&str>)
        .with_context(|| format!("make {RUN_NETNS} a mount point (root?)"))?;
    shared(MsFlags::MS_SHARED | MsFlags::MS_REC).with_context(|| format!("share {RUN_NETNS}"))
}

fn remove(path: &Path) {
    // Either may fail when creation stopped half way; a leftover is only a file.
    let _ = umount2(path, MntFlags::MNT_DETACH);
    let _ = std::fs::remove_file(path);
}

#[allow(unsafe_code, reason = "interface flags are set by ioctl")]
fn loopback_up() -> Result<()> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0")
        .or_else(|_| std::net::UdpSocket::bind("0.0.0.0:0"))
        .context("open a socket")?;
    // SAFETY: `ifreq` is plain old data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(*b"lo\0") {
        *to = from.cast_signed();
    }
    let flags = libc::c_short::try_from(libc::IFF_UP | libc::IFF_RUNNING)?;
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq`, which lives until the call returns.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    if outcome != 0 {
        bail!(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root: make test"]
    fn in_netns_sees_only_loopback_and_it_is_up() {
        let links = in_netns(|| sh("ip -o link"));
        assert_eq!(links.lines().count(), 1, "{links}");
        assert!(links.contains("LOOPBACK,UP"), "{links}");
    }

    #[test]
    #[ignore = "needs root: make test"]
    fn named_netns_is_what_ip_netns_lists_and_is_gone_after_a_panic() {
        let netns = NamedNetns::new("testkit").unwrap();
        let (name, path) = (netns.name().to_owned(), netns.path().to_owned());
        assert!(sh("ip netns list").contains(&name));
        netns.run(|| sh("ip link add probe0 type bridge"));
        assert!(sh(&format!("ip netns exec {name} ip -o link")).contains("probe0"));
        let output = netns.command("ip").args(["-o", "link"]).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("probe0"));
        assert!(netns.sh("ip -o link").contains("probe0"));
        let outcome = thread::spawn(move || {
            let _netns = netns;
            panic!("a test fails");
        })
        .join();
        assert!(outcome.is_err());
        assert!(!path.exists());
        assert!(!sh("ip netns list").contains(&name));
    }
}
