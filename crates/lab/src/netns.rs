//! Named network namespaces: made, entered, removed.
//!
//! A namespace is kept alive by a bind mount under `/run/netns`, as `ip netns` does, so that
//! `ip netns exec` works on it. The calling thread never changes its own namespace: whatever must
//! happen inside happens in a thread that ends with it.

use std::fs::{self, File};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::{Doing, LabError, Result};
use crate::layout::NETNS_DIR;

/// Makes an empty namespace with its loopback up.
///
/// # Errors
/// When the name is taken, or the kernel refuses.
pub fn create(path: &Path) -> Result<()> {
    let shown = path.display();
    fs::create_dir_all(NETNS_DIR).doing(|| format!("create {NETNS_DIR}"))?;
    File::create_new(path).doing(|| format!("create the name {shown}"))?;
    let made = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).doing(|| "unshare the network".into())?;
                mount(
                    Some("/proc/thread-self/ns/net"),
                    path,
                    None::<&str>,
                    MsFlags::MS_BIND,
                    None::<&str>,
                )
                .doing(|| format!("bind the namespace to {shown}"))?;
                crate::ip::batch_here(&["link set lo up".to_owned()])
            })
            .join()
            .unwrap_or_else(|_| Err(LabError::new("the namespace's thread panicked")))
    });
    if made.is_err() {
        remove(path)?;
    }
    made
}

/// Removes a namespace; one that is already gone is no error.
///
/// # Errors
/// When the mount or its name cannot be removed.
pub fn remove(path: &Path) -> Result<()> {
    use nix::errno::Errno;
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
        Err(error) => return Err(error).doing(|| format!("unmount {}", path.display())),
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).doing(|| format!("remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Runs `f` inside the namespace, in a thread that ends with it.
///
/// # Errors
/// When the namespace cannot be entered. A panic of `f` goes on in the caller.
pub fn enter<T: Send>(path: &Path, f: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            join_this_thread(path)?;
            Ok(f())
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// As [`enter`], for a program that a user asked for: its `/sys` shows the namespace's links, as
/// `ip netns exec` has it. Mounts are the program's alone and end with it.
///
/// # Errors
/// When the namespace cannot be entered, or `/sys` not be mounted.
pub fn enter_with_sys<T: Send>(path: &Path, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    enter(path, || {
        let nothing = None::<&str>;
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        // The thread is in a mount namespace of its own from here on, and so is its child.
        unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| {
                mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_SLAVE, nothing)
            })
            .and_then(|()| mount(Some("sysfs"), "/sys", Some("sysfs"), flags, nothing))
            .doing(|| "give the command a /sys of its namespace".into())?;
        f()
    })?
}

/// Moves the calling thread into the namespace for good: only for a thread that was made for it.
///
/// # Errors
/// When the namespace does not exist or cannot be entered.
pub fn join_this_thread(path: &Path) -> Result<()> {
    let file = File::open(path)
        .doing(|| format!("open the network namespace {}", path.display()))
        .map_err(|e| e.hint("is the lab up? see antrea-lab status"))?;
    setns(&file, CloneFlags::CLONE_NEWNET).doing(|| format!("enter {}", path.display()))
}

/// What identifies a namespace, whatever its name: the inode of its `nsfs` file.
#[must_use]
pub fn identity(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|m| m.st_ino())
}

/// Whether a namespace is mounted at this name.
#[must_use]
pub fn exists(path: &Path) -> bool {
    // A name whose mount is gone is a plain empty file on another file system.
    match (fs::metadata(path), fs::metadata("/proc/self/ns/net")) {
        (Ok(name), Ok(ours)) => name.st_dev() == ours.st_dev(),
        _ => false,
    }
}

/// Names under `/run/netns` that begin with `prefix`.
#[must_use]
pub fn with_prefix(prefix: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(NETNS_DIR) else { return Vec::new() };
    entries
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with(prefix))
        .map(|e| e.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root: make test"]
    fn a_namespace_is_made_entered_and_removed() {
        let name = format!("antrea-lab-test-{}", std::process::id());
        let path = Path::new(NETNS_DIR).join(&name);
        create(&path).unwrap();
        let here = identity(Path::new("/proc/self/ns/net"));
        assert!(exists(&path));
        assert_eq!(with_prefix(&name), std::slice::from_ref(&path));
        let inside = enter(&path, || identity(Path::new("/proc/thread-self/ns/net"))).unwrap();
        assert_eq!(inside, identity(&path));
        assert_ne!(inside, here);
        assert_eq!(identity(Path::new("/proc/thread-self/ns/net")), here);
        let links = |dir: &str| fs::read_dir(dir).unwrap().flatten().count();
        let own = enter_with_sys(&path, || Ok(links("/sys/class/net"))).unwrap();
        assert_eq!(own, 1, "loopback alone");
        assert_eq!(links("/sys/class/net"), links("/proc/self/root/sys/class/net"));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert_eq!(mounts.lines().filter(|l| l.contains(" /sys sysfs")).count(), 1, "{mounts}");
        assert!(create(&path).is_err(), "the name is taken");
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists());
    }
}
