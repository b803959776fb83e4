//! Where everything of one lab lies: directories, sockets, names, addresses.
//!
//! Pure: turns a directory and a node number into paths and numbers. Creates nothing.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use sha1::{Digest, Sha1};

use crate::error::{LabError, Result};
use crate::quote;

/// The directory of a lab when the user names none.
pub const DEFAULT_DIR: &str = "/run/antrea-lab";

/// Largest number of nodes: node `n` has underlay address `172.30.0.n`, .100 is the outside host.
pub const MAX_NODES: u8 = 90;

/// Address of the host outside of the cluster, the nodes' default gateway.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(172, 30, 0, 100);
/// Port of the API server, on the underlay and on loopback.
pub const API_PORT: u16 = 6443;
/// Where named network namespaces are.
pub const NETNS_DIR: &str = "/run/netns";

/// Paths and names of one lab.
#[derive(Clone, Debug)]
pub struct Layout {
    dir: PathBuf,
    prefix: String,
}

impl Layout {
    /// The layout of the lab in `dir`, which must be absolute.
    ///
    /// # Errors
    /// When the path is relative, or too long for the unix sockets below it.
    pub fn new(dir: &Path) -> Result<Self> {
        if !dir.is_absolute() {
            let whole = std::path::absolute(dir).unwrap_or_else(|_| DEFAULT_DIR.into());
            return Err(LabError::new(format!("--dir {}: not an absolute path", dir.display()))
                .hint(format!("name all of it: --dir {}", quote::path(&whole))));
        }
        if dir.file_name().is_none() {
            return Err(LabError::new(format!("--dir {}: not a lab's own", dir.display()))
                .hint("name a directory that is made for the lab, such as /run/antrea-lab-2"));
        }
        // The longest socket below is nodes/node-NN/ovs/ovsdb-server.NNNNNNN.ctl; the kernel
        // takes 107 bytes.
        if dir.as_os_str().len() > 60 {
            return Err(LabError::new(format!("--dir {}: too long", dir.display()))
                .hint("unix sockets below it would pass 107 bytes; choose a path of at most 60"));
        }
        let prefix = if dir == Path::new(DEFAULT_DIR) {
            "antrea-lab-".to_owned()
        } else {
            format!("antrea-lab-{:06x}-", fnv1a(dir.as_os_str().as_encoded_bytes()) & 0xff_ffff)
        };
        Ok(Self { dir: dir.to_owned(), prefix })
    }

    /// The lab's own directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What the names of all the lab's network namespaces begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Who the lab is among the labs of all machines, as the value of a label.
    #[must_use]
    pub fn identity(&self) -> String {
        let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let named = format!("{}:{}", machine.trim(), self.dir.display());
        Sha1::digest(named).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }

    /// What to type to run a command on this lab.
    #[must_use]
    pub fn command(&self, command: &str) -> String {
        if self.dir == Path::new(DEFAULT_DIR) {
            format!("antrea-lab {command}")
        } else {
            format!("antrea-lab --dir {} {command}", quote::path(&self.dir))
        }
    }

    /// The layout of a lab that a command makes for itself beside the one that `dir` names.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn beside(dir: &Path, suffix: &str) -> Result<Self> {
        let mut name = dir.file_name().unwrap_or_default().to_owned();
        name.push("-");
        name.push(suffix);
        Self::new(&dir.with_file_name(name))
    }

    /// The file whose lock keeps commands apart, beside the directory.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.beside_dir(".lock")
    }

    /// Where the logs of a lab are that did not come up.
    #[must_use]
    pub fn kept_logs(&self) -> PathBuf {
        self.beside_dir(".logs")
    }

    fn beside_dir(&self, ending: &str) -> PathBuf {
        let mut name = self.dir.file_name().unwrap_or_default().to_owned();
        name.push(ending);
        self.dir.with_file_name(name)
    }

    /// The state file.
    #[must_use]
    pub fn state_file(&self) -> PathBuf {
        self.dir.join("lab.json")
    }

    /// Kubeconfig of the cluster administrator.
    #[must_use]
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// Logs of what belongs to no node.
    #[must_use]
    pub fn log(&self, component: &str) -> PathBuf {
        self.dir.join("log").join(format!("{component}.log"))
    }

    /// A named namespace of this lab.
    #[must_use]
    pub fn netns(&self, name: &str) -> PathBuf {
        Path::new(NETNS_DIR).join(format!("{}{name}", self.prefix))
    }

    /// Whether this lab gives such a name; another lab's prefix may begin with ours.
    #[must_use]
    pub fn owns_netns(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let Some(rest) = name.strip_prefix(&self.prefix) else { return false };
        let numbered = rest.strip_prefix("node-").is_some_and(|n| n.parse::<u8>().is_ok());
        let pod = rest
            .strip_prefix("pod-")
            .is_some_and(|id| id.len() == 12 && id.bytes().all(|b| b.is_ascii_hexdigit()));
        numbered || pod || rest == "underlay" || rest == "outside"
    }

    /// The namespace of the underlay bridge.
    #[must_use]
    pub fn underlay_netns(&self) -> PathBuf {
        self.netns("underlay")
    }

    /// The namespace of the outside host.
    #[must_use]
    pub fn outside_netns(&self) -> PathBuf {
        self.netns("outside")
    }

    /// Paths of one node.
    #[must_use]
    pub fn node(&self, name: &str) -> NodeLayout {
        NodeLayout { dir: self.dir.join("nodes").join(name), netns: self.netns(name) }
    }
}

/// Name of node number `n`.
#[must_use]
pub fn node_name(n: u8) -> String {
    format!("node-{n}")
}

/// Underlay address of node number `n`.
#[must_use]
pub fn node_address(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(172, 30, 0, n)
}

/// Paths of one node.
#[derive(Clone, Debug)]
pub struct NodeLayout {
    dir: PathBuf,
    netns: PathBuf,
}

impl NodeLayout {
    /// The node's private directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The node's network namespace.
    #[must_use]
    pub fn netns(&self) -> &Path {
        &self.netns
    }

    /// Run directory of Open vSwitch: database, sockets, logs.
    #[must_use]
    pub fn ovs(&self) -> PathBuf {
        self.dir.join("ovs")
    }

    /// The OVSDB socket.
    #[must_use]
    pub fn db_sock(&self) -> PathBuf {
        self.ovs().join("db.sock")
    }

    /// The control socket of `ovs-vswitchd`.
    #[must_use]
    pub fn vswitchd_ctl(&self) -> PathBuf {
        self.ovs().join("ovs-vswitchd.ctl")
    }

    /// The OpenFlow socket of a bridge.
    #[must_use]
    pub fn mgmt(&self, bridge: &str) -> PathBuf {
        self.ovs().join(format!("{bridge}.mgmt"))
    }

    /// The agent's run directory.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// Where the agent answers `antrea-cni`.
    #[must_use]
    pub fn cni_sock(&self) -> PathBuf {
        self.run().join("cni.sock")
    }

    /// The agent's state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// The network configuration list that a kubelet reads.
    #[must_use]
    pub fn cni_conf(&self) -> PathBuf {
        self.dir.join("cni/conf/10-antrea.conflist")
    }

    /// Lease files of `host-local`.
    #[must_use]
    pub fn cni_lib(&self) -> PathBuf {
        self.dir.join("cni/lib")
    }

    /// The plugin directory with our own plugin under the name that configurations use.
    #[must_use]
    pub fn cni_bin(&self) -> PathBuf {
        self.dir.join("cni/bin")
    }

    /// The agent's configuration file.
    #[must_use]
    pub fn agent_conf(&self) -> PathBuf {
        self.dir.join("agent.conf")
    }

    /// Log of one component.
    #[must_use]
    pub fn log(&self, component: &str) -> PathBuf {
        self.dir.join("log").join(format!("{component}.log"))
    }

    /// One directory per Pod sandbox.
    #[must_use]
    pub fn pods(&self) -> PathBuf {
        self.dir.join("pods")
    }

    /// Where the lab's kubelet answers exec and log requests.
    #[must_use]
    pub fn kubelet_sock(&self) -> PathBuf {
        self.dir.join("kubelet.sock")
    }

    /// Kubeconfig of one component on this node.
    #[must_use]
    pub fn kubeconfig(&self, component: &str) -> PathBuf {
        self.dir.join(format!("{component}.kubeconfig"))
    }
}

/// A small, stable hash: the same directory gives the same prefix in every version.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labs_in_different_directories_have_different_prefixes() {
        let prefix = |dir: &str| Layout::new(Path::new(dir)).unwrap().prefix().to_owned();
        assert_eq!(prefix(DEFAULT_DIR), "antrea-lab-");
        assert_ne!(prefix("/run/a"), prefix("/run/b"));
        assert!(prefix("/run/a").starts_with("antrea-lab-"));
    }

    #[test]
    fn commands_name_the_directory_where_it_is_not_the_default() {
        let command = |dir: &str| Layout::new(Path::new(dir)).unwrap().command("down");
        assert_eq!(command(DEFAULT_DIR), "antrea-lab down");
        assert_eq!(command("/run/a"), "antrea-lab --dir /run/a down");
        assert_eq!(command("/run/my lab"), "antrea-lab --dir '/run/my lab' down");
        let beside = Layout::beside(Path::new("/run/a"), "check").unwrap();
        assert_eq!(beside.dir(), Path::new("/run/a-check"));
    }

    #[test]
    fn names_of_other_labs_are_not_ours() {
        let default = Layout::new(Path::new(DEFAULT_DIR)).unwrap();
        let other = Layout::new(Path::new("/run/a")).unwrap();
        for name in ["node-1", "underlay", "outside", "pod-0123456789ab"] {
            assert!(default.owns_netns(&default.netns(name)), "{name}");
            assert!(!default.owns_netns(&other.netns(name)), "{name}");
            assert!(!other.owns_netns(&default.netns(name)), "{name}");
        }
        assert!(!default.owns_netns(&default.netns("pod-mine")));
    }

    #[test]
    fn a_directory_that_cannot_be_a_labs_is_refused_with_a_next_step() {
        let long = "/a/very/long/path/that/goes/on/and/on/until/no/socket/fits/below/it";
        for dir in ["relative", "/", "/run/..", long] {
            let error = Layout::new(Path::new(dir)).unwrap_err();
            assert!(error.next_step().is_some(), "{dir}");
        }
    }
}
