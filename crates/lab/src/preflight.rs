//! Looks at the machine before anything is made, and names all that is missing at once.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::ovs::SCHEMA;
use crate::{layout, topology};

/// Programs from Debian's packages that a lab runs.
const PROGRAMS: [(&str, &str); 9] = [
    ("ovsdb-tool", "openvswitch-switch"),
    ("ovsdb-server", "openvswitch-switch"),
    ("ovs-vswitchd", "openvswitch-switch"),
    ("ovs-vsctl", "openvswitch-switch"),
    ("ovs-ofctl", "openvswitch-switch"),
    ("ovs-appctl", "openvswitch-switch"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("ethtool", "ethtool"),
];

/// What scenarios hold open at once, of sockets most of all, with much to spare.
const DESCRIPTORS: u64 = 16_384;

/// Lets this process, and those it starts, have as many descriptors as scenarios need: the usual
/// 1,024 are too few.
pub fn raise_descriptor_limit() {
    let limit = Resource::RLIMIT_NOFILE;
    let Ok((soft, hard)) = getrlimit(limit) else { return };
    if soft >= DESCRIPTORS {
        return;
    }
    // Root may go above the hard limit.
    let raised = setrlimit(limit, DESCRIPTORS, hard.max(DESCRIPTORS))
        .or_else(|_| setrlimit(limit, hard, hard));
    if let Err(error) = raised {
        crate::ui::warn(format!("no more than {soft} descriptors can be had: {error}"));
    }
}

/// Fails unless we are root.
///
/// # Errors
/// When we are not.
pub fn root() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    Err(LabError::new("the lab makes network namespaces and needs root")
        .hint("run it again with sudo, or as root"))
}

/// Fails when the machine lacks something, or the lab's names are taken.
///
/// # Errors
/// With everything that is missing and the packages that bring it.
pub fn machine(layout: &Layout, n_nodes: u8, bin_dir: &Path, ours: &[&str]) -> Result<()> {
    root()?;
    if layout.state_file().exists() {
        return Err(crate::state::exists(layout));
    }
    let mut missing = Vec::new();
    let mut packages = Vec::new();
    for (program, package) in PROGRAMS {
        if find_program(program).is_none() {
            missing.push(program);
            if !packages.contains(&package) {
                packages.push(package);
            }
        }
    }
    if missing.is_empty() && !Path::new(SCHEMA).exists() {
        missing.push(SCHEMA);
        packages.push("openvswitch-common");
    }
    if !missing.is_empty() {
        return Err(LabError::new(format!("not installed: {}", missing.join(", ")))
            .hint(format!("apt-get install --no-install-recommends {}", packages.join(" "))));
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(LabError::new("no /dev/net/tun: the userspace switch cannot make its ports")
            .hint("modprobe tun, or give the container --device /dev/net/tun"));
    }
    let absent: Vec<_> = ours.iter().filter(|b| !bin_dir.join(b).exists()).copied().collect();
    if !absent.is_empty() {
        return Err(LabError::new(format!("not in {}: {}", bin_dir.display(), absent.join(", ")))
            .hint("build them with make build, or name their directory with --bin-dir"));
    }
    let names: Vec<_> = (1..=n_nodes).map(layout::node_name).collect();
    let taken = topology::clashes(layout, &names);
    if !taken.is_empty() {
        return Err(LabError::new(format!("these namespaces exist: {}", taken.join(", "))).hint(
            format!(
                "{} removes what is left of a lab; --dir OTHER makes one with other names",
                layout.command("down")
            ),
        ));
    }
    Ok(())
}

/// A program on the search path.
#[must_use]
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = search_path();
    let runs = |file: &std::fs::Metadata| file.is_file() && file.permissions().mode() & 0o111 != 0;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|p| p.metadata().is_ok_and(|file| runs(&file)))
}

/// A program of the machine, found also where root's search path lacks the system directories.
///
/// A Ctrl-C at the terminal is for us alone, who may need the program's work to clean up.
#[must_use]
pub fn program(name: &str) -> std::process::Command {
    let mut command = std::process::Command::new(name);
    command.env("PATH", search_path()).process_group(0);
    command
}

/// Our search path, with the system directories added that root's may lack.
#[must_use]
pub fn search_path() -> String {
    let mut path = std::env::var("PATH").unwrap_or_default();
    for dir in ["/usr/sbin", "/usr/bin", "/sbin", "/bin"] {
        if !path.split(':').any(|d| d == dir) {
            path = if path.is_empty() { dir.into() } else { format!("{path}:{dir}") };
        }
    }
    path
}

/// Fails when the lab's directory holds something that is not a lab: `down` removes all of it.
///
/// # Errors
/// When it does, or is no directory.
pub fn directory(layout: &Layout) -> Result<()> {
    let dir = layout.dir();
    let foreign = |what: &str| {
        Err(LabError::new(format!("{} {what}", dir.display()))
            .hint("name another directory with --dir; it is made, and removed by `down`"))
    };
    match std::fs::symlink_metadata(dir) {
        Ok(found) if !found.is_dir() => foreign("is not a directory"),
        Ok(_) if layout.state_file().exists() => Ok(()),
        Ok(_) => {
            let entries =
                std::fs::read_dir(dir).doing(|| format!("look into {}", dir.display()))?;
            // A state file whose writer was killed before it had its name is no obstacle.
            let part = layout.state_file().with_extension("part");
            if entries.flatten().any(|e| e.path() != part) {
                foreign("holds files that are not a lab's")
            } else {
                Ok(())
            }
        }
        Err(_) => Ok(()),
    }
}
