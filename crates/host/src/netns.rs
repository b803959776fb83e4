//! Network namespaces: open, compare, run code inside, create and delete named ones.
//!
//! A [`Netns`] holds the namespace alive. A thread that entered another namespace is never given
//! back: [`Netns::run`] uses a thread of its own and lets it end.
//! Not here: private namespaces of tests (`testkit::netns`), what is inside one ([`crate::link`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, fstatfs};

/// Where iproute2 and container runtimes keep named namespaces.
pub const RUN_NETNS: &str = "/run/netns";

const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// Why a namespace could not be used.
#[derive(Debug, thiserror::Error)]
pub enum NetnsError {
    /// There is nothing at that path (any more).
    #[error("network namespace {0} does not exist")]
    NotFound(PathBuf),
    /// The path leads to something else: often the empty file left of an unmounted namespace.
    #[error("{0} is not a network namespace")]
    NotNetns(PathBuf),
    /// A namespace of that name is there already.
    #[error("network namespace {0} exists already")]
    Exists(PathBuf),
    /// The name would leave the directory of named namespaces.
    #[error("{0:?} is not a valid namespace name")]
    BadName(String),
    /// The kernel refused.
    #[error("{action} network namespace {path}")]
    Refused {
        /// What was tried.
        action: &'static str,
        /// On which namespace.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl NetnsError {
    /// Whether the namespace is gone: what a DEL takes as success.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::NotFound(_) | Self::NotNetns(_))
    }
}

/// An open network namespace; it lives at least as long as this handle.
#[derive(Debug)]
pub struct Netns {
    file: File,
    path: PathBuf,
    id: (u64, u64),
}

impl Netns {
    /// Opens the namespace at a path such as `/var/run/netns/cni-1` or `/proc/7/ns/net`.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NetnsError> {
        let path = path.as_ref().to_owned();
        let refused = |action, source| NetnsError::Refused { action, path: path.clone(), source };
        let file = match File::open(&path) {
            Ok(file) => file,
            // ENOENT, and ESRCH for the entry of a process that ended.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || error.raw_os_error() == Some(libc::ESRCH)
                    || error.kind() == io::ErrorKind::NotADirectory =>
            {
                return Err(NetnsError::NotFound(path));
            }
            Err(error) => return Err(refused("open", error)),
        };
        let fs = fstatfs(&file).map_err(|errno| refused("inspect", errno.into()))?;
        if fs.filesystem_type() != NSFS_MAGIC || !is_network(&file) {
            return Err(NetnsError::NotNetns(path));
        }
        let metadata = file.metadata().map_err(|error| refused("inspect", error))?;
        Ok(Self { id: (metadata.dev(), metadata.ino()), file, path })
    }

    /// The calling thread's namespace.
    pub fn current() -> Result<Self, NetnsError> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The namespace that `ip netns` knows by this name.
    pub fn named(name: &str) -> Result<Self, NetnsError> {
        Self::open(named_path(name)?)
    }

    /// Whether a path leads to a network namespace now.
    pub fn exists(path: impl AsRef<Path>) -> bool {
        Self::open(path).is_ok()
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The inode number that `ls -L -i` and `lsns` show: the kernel's identity of a namespace.
    pub fn inode(&self) -> u64 {
        self.id.1
    }

    /// Whether two handles lead to one namespace.
    pub fn same_as(&self, other: &Netns) -> bool {
        self.id == other.id
    }

    /// A second handle on the same namespace.
    pub fn try_clone(&self) -> Result<Self, NetnsError> {
        let file = self.file.try_clone().map_err(|source| NetnsError::Refused {
            action: "clone the handle of",
            path: self.path.clone(),
            source,
        })?;
        Ok(Self { file, path: self.path.clone(), id: self.id })
    }

    /// Runs `work` inside this namespace, on a thread of its own (about 0.1 ms), and waits for it.
    /// A panic of `work` is passed on.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NetnsError> {
        let joined = thread::scope(|scope| {
            let spawned = thread::Builder::new().name("netns".into()).spawn_scoped(scope, || {
                self.enter()?;
                Ok(work())
            });
            match spawned {
                Ok(handle) => handle.join(),
                Err(source) => Ok(Err(NetnsError::Refused {
                    action: "start a thread in",
                    path: self.path.clone(),
                    source,
                })),
            }
        });
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// As [`Netns::run`], for async callers.
    pub async fn run_async<T, F>(&self, work: F) -> Result<T, NetnsError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let netns = self.try_clone()?;
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || netns.run(work)).await {
            Ok(outcome) => outcome,
            Err(error) => Err(NetnsError::Refused {
                action: "run in",
                path,
                source: io::Error::other(error.to_string()),
            }),
        }
    }

    fn enter(&self) -> Result<(), NetnsError> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| NetnsError::Refused {
            action: "enter",
            path: self.path.clone(),
            source: errno.into(),
        })
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for Netns {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

#[allow(unsafe_code, reason = "nix has no NS_GET_NSTYPE")]
fn is_network(file: &File) -> bool {
    // _IO(0xb7, 3), linux/nsfs.h
    const NS_GET_NSTYPE: libc::Ioctl = 0xb703;
    // SAFETY: this ioctl takes no argument and returns a number.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE) };
    kind == libc::CLONE_NEWNET
}

/// Creates a namespace as `ip netns add` does, with its loopback still down.
pub fn create_named(name: &str) -> Result<Netns, NetnsError> {
    let path = named_path(name)?;
    let refused = |action| {
        move |source: io::Error, path: PathBuf| NetnsError::Refused { action, path, source }
    };
    prepare_run_netns()?;
    match File::create_new(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(NetnsError::Exists(path));
        }
        Err(error) => return Err(refused("create")(error, path)),
    }
    let target = &path;
    let made = thread::scope(|scope| {
        scope
            .spawn(move || {
                unshare(CloneFlags::CLONE_NEWNET)?;
                let source = Some("/proc/thread-self/ns/net");
                mount(source, target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
            })
            .join()
    });
    let made = made.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    match made.map_err(|errno| refused("create")(errno.into(), path.clone())) {
        Ok(()) => Netns::open(&path),
        Err(error) => {
            let _ = std::fs::remove_file(&path);
            Err(error)
        }
    }
}

/// Removes a named namespace's mount and file; success when it is not there. What is inside ends
/// when the last process in it does.
pub fn delete_named(name: &str) -> Result<(), NetnsError> {
    let path = named_path(name)?;
    let refused =
        |source: io::Error| NetnsError::Refused { action: "delete", path: path.clone(), source };
    match umount2(&path, MntFlags::MNT_DETACH) {
        // EINVAL: a leftover file that is not mounted.
        Ok(()) | Err(Errno::ENOENT | Errno::EINVAL) => {}
        Err(errno) => return Err(refused(errno.into())),
    }
    match std::fs::remove_file(&path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(error)),
    }
}

/// The names under `/run/netns`, in order.
pub fn list_named() -> Result<Vec<String>, NetnsError> {
    let refused = |source| NetnsError::Refused { action: "list", path: RUN_NETNS.into(), source };
    let entries = match std::fs::read_dir(RUN_NETNS) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(refused)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn named_path(name: &str) -> Result<PathBuf, NetnsError> {
    if name.is_empty() || name.contains('/') || name.contains('\0') || name == "." || name == ".." {
        return Err(NetnsError::BadName(name.to_owned()));
    }
    Ok(Path::new(RUN_NETNS).join(name))
}

/// `/run/netns` has to be a shared mount point, or other mount namespaces would keep a namespace
/// that was deleted here.
fn prepare_run_netns() -> Result<(), NetnsError> {
    let refused = |source: io::Error| NetnsError::Refused {
        action: "prepare",
        path: RUN_NETNS.into(),
        source,
    };
    std::fs::create_dir_all(RUN_NETNS).map_err(refused)?;
    let share = || {
        let flags = MsFlags::MS_SHARED | MsFlags::MS_REC;
        mount(None::<&str>, RUN_NETNS, None::<&str>, flags, None::<&str>)
    };
    match share() {
        Ok(()) => return Ok(()),
        Err(Errno::EINVAL) => {} // Not a mount point yet.
        Err(errno) => return Err(refused(errno.into())),
    }
    let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount(Some(RUN_NETNS), RUN_NETNS, None::<&str>, bind, None::<&str>)
        .map_err(|errno| refused(errno.into()))?;
    share().map_err(|errno| refused(errno.into()))
}
