//! The lab's state file: everything that `down` has to undo, written before it is done.
//!
//! The file is replaced whole (write, sync, rename), so a crash leaves the old or the new one.
//! What can be found from the thing itself (Pods, ports, flows) is not in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, LabError, Result};
use crate::layout::Layout;
use crate::netns;
use crate::process::{self, ProcessId};
use crate::variant::Variant;

/// Who plays the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// Nobody: agents read a file, the lab makes Pods.
    Standalone,
    /// The lab's own API server.
    Cluster,
    /// An API server that is not ours, given by `--kubeconfig`.
    External,
}

/// Who puts Pods on Nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SchedulerChoice {
    /// The lab's own scheduler.
    #[default]
    Ours,
    /// The cluster's.
    Theirs,
}

/// Who gives Nodes their Pod CIDRs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeIpam {
    /// antrea-controller.
    #[default]
    Ours,
    /// The cluster's controller manager.
    Theirs,
}

/// Whose traffic to Services the agents serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Proxy {
    /// That of Pods.
    #[default]
    Pods,
    /// Everybody's: `antreaProxy.proxyAll`.
    All,
    /// The same with direct server return for load balancers.
    Direct,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its number; gives its underlay address.
    pub n: u8,
    /// Its name.
    pub name: String,
}

/// One process the lab started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessState {
    /// What it is: `agent`, `ovs-vswitchd`, `ovsdb-server`, `kubelet`, `apiserver` ...
    pub role: String,
    /// The node it belongs to.
    pub node: Option<String>,
    /// Pid and start time.
    pub id: ProcessId,
}

/// How far `up` came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// `up` has not finished; whatever is recorded may or may not exist.
    Starting,
    /// The lab was ready once.
    Up,
}

/// Contents of the state file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabState {
    /// Version of this file's form.
    pub version: u32,
    /// Who plays the control plane.
    pub mode: Mode,
    /// How far `up` came.
    pub phase: Phase,
    /// Where the node binaries are.
    pub bin_dir: PathBuf,
    /// All nodes.
    pub nodes: Vec<NodeState>,
    /// Network namespaces, by path.
    pub namespaces: Vec<PathBuf>,
    /// Processes, in the order of their start.
    pub processes: Vec<ProcessState>,
    /// Host-wide sysctls that were changed, with their former value.
    pub sysctls: BTreeMap<String, String>,
    /// Kubeconfig of an API server that is not ours.
    pub kubeconfig: Option<PathBuf>,
    /// Families, tunnel and datapath.
    #[serde(default)]
    pub variant: Variant,
    /// Who puts Pods on Nodes.
    #[serde(default)]
    pub scheduler: SchedulerChoice,
    /// MTU of the links between nodes.
    #[serde(default = "usual_mtu")]
    pub underlay_mtu: u16,
    /// How long a kubelet may be silent before its Node is taken for lost.
    #[serde(default = "usual_grace")]
    pub node_grace: Duration,
    /// Number of the controller's replicas.
    #[serde(default = "one")]
    pub n_controllers: u8,
    /// Whose traffic to Services the agents serve.
    #[serde(default)]
    pub proxy: Proxy,
    /// Who gives Nodes their Pod CIDRs.
    #[serde(default)]
    pub node_ipam: NodeIpam,
    /// Where an API server that is not ours finds its way into the lab, where that is not in the
    /// lab's directory.
    #[serde(default)]
    pub egress_socket: Option<PathBuf>,
    /// What an API server that is not ours had before the lab, as far as scenarios make such.
    #[serde(default)]
    pub found: BTreeSet<String>,
    /// Port of our API server on loopback.
    pub api_port: Option<u16>,
    /// Seconds that `up` took.
    pub up_seconds: Option<f64>,
    /// The command that ends this lab by itself; once it is dead, the lab is a leftover.
    #[serde(default)]
    pub keeper: Option<ProcessId>,
}

fn usual_mtu() -> u16 {
    crate::up::UNDERLAY_MTU
}

fn usual_grace() -> Duration {
    kubelab::NODE_GRACE
}

fn one() -> u8 {
    1
}

impl LabState {
    /// The state before anything was made.
    #[must_use]
    pub fn new(mode: Mode, bin_dir: PathBuf) -> Self {
        Self {
            version: 1,
            mode,
            phase: Phase::Starting,
            bin_dir,
            nodes: Vec::new(),
            namespaces: Vec::new(),
            processes: Vec::new(),
            sysctls: BTreeMap::new(),
            kubeconfig: None,
            variant: Variant::default(),
            scheduler: SchedulerChoice::Ours,
            underlay_mtu: usual_mtu(),
            node_grace: usual_grace(),
            n_controllers: 1,
            proxy: Proxy::Pods,
            node_ipam: NodeIpam::Ours,
            egress_socket: None,
            found: BTreeSet::new(),
            api_port: None,
            up_seconds: None,
            keeper: ProcessId::me(),
        }
    }

    /// The node of this name.
    ///
    /// # Errors
    /// When there is none; the message lists those there are.
    pub fn node(&self, name: &str) -> Result<&NodeState> {
        self.nodes.iter().find(|n| n.name == name).ok_or_else(|| {
            let names: Vec<_> = self.nodes.iter().map(|n| n.name.as_str()).collect();
            LabError::new(format!("no node {name}")).hint(format!("nodes: {}", names.join(", ")))
        })
    }

    /// The newest process with this role.
    #[must_use]
    pub fn process(&self, role: &str, node: Option<&str>) -> Option<ProcessId> {
        let mut newest_first = self.processes.iter().rev();
        newest_first.find(|p| p.role == role && p.node.as_deref() == node).map(|p| p.id)
    }
}

/// The state file of a lab that exists, shared by the threads of a command.
#[derive(Debug)]
pub struct Store {
    layout: Layout,
    state: Mutex<LabState>,
}

impl Store {
    /// Makes the directory and the first state file.
    ///
    /// # Errors
    /// When a lab is there already, or the directory cannot be made.
    pub fn create(layout: &Layout, state: LabState) -> Result<Self> {
        if layout.state_file().exists() {
            return Err(exists(layout));
        }
        fs::create_dir_all(layout.dir())
            .doing(|| format!("create {}", layout.dir().display()))
            .map_err(|e| e.hint("--dir names another place for the lab"))?;
        write(&layout.state_file(), &state)
            .map_err(|e| e.hint("--dir names another place for the lab"))?;
        Ok(Self { layout: layout.clone(), state: Mutex::new(state) })
    }

    /// Reads the state of a lab.
    ///
    /// # Errors
    /// When there is no lab, or its file cannot be read.
    pub fn open(layout: &Layout) -> Result<Self> {
        let path = layout.state_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(LabError::new(format!("no lab in {}", layout.dir().display()))
                    .hint(format!("{} starts one", layout.command("up"))));
            }
            Err(error) => return Err(error).doing(|| format!("read {}", path.display())),
        };
        let state =
            serde_json::from_str(&text).doing(|| format!("decode {}", path.display())).map_err(
                |e| e.hint(format!("{} ends what is left of the lab", layout.command("down"))),
            )?;
        Ok(Self { layout: layout.clone(), state: Mutex::new(state) })
    }

    /// The lab whose own command was killed before it could end it, if there is one here.
    #[must_use]
    pub fn abandoned(layout: &Layout) -> Option<Self> {
        let store = Self::open(layout).ok()?;
        let keeper = store.get().keeper?;
        (!keeper.is_alive()).then_some(store)
    }

    /// Lets the lab live on when this command ends.
    ///
    /// # Errors
    /// When the state file cannot be written.
    pub fn let_go(&self) -> Result<()> {
        self.update(|state| state.keeper = None)
    }

    /// Makes a state file for what is left of a lab whose own file is lost or unreadable; none
    /// when nothing is left.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn recover(layout: &Layout) -> Result<Option<Self>> {
        let mut state = LabState::new(Mode::Standalone, PathBuf::new());
        state.namespaces = netns::with_prefix(layout.prefix())
            .into_iter()
            .filter(|path| layout.owns_netns(path))
            .collect();
        if state.namespaces.is_empty()
            && process::marked(layout.dir()).is_empty()
            && !layout.state_file().exists()
        {
            return Ok(None);
        }
        fs::create_dir_all(layout.dir()).doing(|| format!("create {}", layout.dir().display()))?;
        write(&layout.state_file(), &state)?;
        Ok(Some(Self { layout: layout.clone(), state: Mutex::new(state) }))
    }

    /// Where everything is.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A copy of the state.
    #[must_use]
    pub fn get(&self) -> LabState {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Changes the state and writes the file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn update<T>(&self, change: impl FnOnce(&mut LabState) -> T) -> Result<T> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let value = change(&mut state);
        write(&self.layout.state_file(), &*state)?;
        Ok(value)
    }

    /// Records a process, replacing an ended one of the same role and node.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn record_process(&self, role: &str, node: Option<&str>, id: ProcessId) -> Result<()> {
        self.update(|state| {
            let same = |p: &ProcessState| p.role == role && p.node.as_deref() == node;
            state.processes.retain(|p| !same(p) || p.id.is_alive());
            state.processes.push(ProcessState {
                role: role.into(),
                node: node.map(Into::into),
                id,
            });
        })
    }
}

/// That a lab is there, and how to end it.
#[must_use]
pub fn exists(layout: &Layout) -> LabError {
    LabError::new(format!("a lab is already in {}", layout.dir().display())).hint(format!(
        "{} ends it; --dir OTHER makes a second one beside it",
        layout.command("down")
    ))
}

/// Keeps two commands that change the same lab apart, while it lives.
#[derive(Debug)]
pub struct LabLock {
    path: PathBuf,
    state_file: PathBuf,
    _lock: Flock<File>,
}

/// Takes the lock of a lab.
///
/// # Errors
/// When another command holds the lock.
pub fn lock(layout: &Layout) -> Result<LabLock> {
    let path = layout.lock_file();
    let file = File::create(&path).doing(|| format!("open {}", path.display())).map_err(|e| {
        let above = layout.dir().parent().unwrap_or(Path::new("/")).display().to_string();
        e.hint(format!("{above} must be there and writable; --dir names another place"))
    })?;
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        LabError::new("another antrea-lab command is changing this lab")
            .hint(format!("wait for it to end; {} shows the lab", layout.command("status")))
    })?;
    Ok(LabLock { path, state_file: layout.state_file(), _lock: lock })
}

impl Drop for LabLock {
    fn drop(&mut self) {
        // A lab that is gone leaves no file behind, this one included.
        if !self.state_file.exists() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Replaces a JSON file whole.
///
/// # Errors
/// When it cannot be written.
pub fn write<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let text = serde_json::to_vec_pretty(value).doing(|| format!("encode {}", path.display()))?;
    let part = path.with_extension("part");
    let mut file = File::create(&part).doing(|| format!("create {}", part.display()))?;
    file.write_all(&text).doing(|| format!("write {}", part.display()))?;
    fs::rename(&part, path).doing(|| format!("replace {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_a_round_trip_and_a_second_lab_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("lab")).unwrap();
        let store = Store::create(&layout, LabState::new(Mode::Standalone, "/bin".into())).unwrap();
        let me = ProcessId::me().unwrap();
        store.record_process("agent", Some("node-1"), me).unwrap();
        let again = Store::open(&layout).unwrap();
        assert_eq!(again.get(), store.get());
        assert_eq!(again.get().process("agent", Some("node-1")), Some(me));
        let error = Store::create(&layout, store.get()).unwrap_err();
        assert!(error.next_step().unwrap().contains("down"));
    }

    #[test]
    fn a_lab_is_abandoned_once_its_command_is_dead() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("lab")).unwrap();
        let store = Store::create(&layout, LabState::new(Mode::Standalone, "/bin".into())).unwrap();
        assert!(Store::abandoned(&layout).is_none(), "we live");
        let me = ProcessId::me().unwrap();
        store.update(|s| s.keeper = Some(ProcessId { start: me.start + 1, ..me })).unwrap();
        assert!(Store::abandoned(&layout).is_some());
        store.let_go().unwrap();
        assert!(Store::abandoned(&layout).is_none(), "it was left running on purpose");
    }

    #[test]
    fn a_lab_that_is_not_there_says_how_to_start_one() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(&dir.path().join("lab")).unwrap();
        assert!(Store::open(&layout).unwrap_err().next_step().unwrap().contains("up"));
        fs::create_dir(layout.dir()).unwrap();
        fs::write(layout.state_file(), "{").unwrap();
        let broken = Store::open(&layout).unwrap_err();
        assert!(broken.next_step().unwrap().contains("down"), "{broken:?}");
        let nowhere = Layout::new(&dir.path().join("a/b")).unwrap();
        assert!(lock(&nowhere).unwrap_err().next_step().unwrap().contains("--dir"));
    }
}
