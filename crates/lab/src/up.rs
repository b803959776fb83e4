//! Starts a lab: wires, switches, control plane, agents; undoes all of it when something fails.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Doing, LabError, Result};
use crate::layout::{self, Layout};
use crate::state::{LabState, Mode, NodeIpam, NodeState, Phase, Proxy, SchedulerChoice, Store};
use crate::sysctl::{RMEM_DEFAULT, SharedSysctls};
use crate::ui::Progress;
use crate::variant::{Datapath, Variant};
use crate::{agent, down, interrupt, kept, ovs, preflight, topology};

/// What a lab shall be.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// Number of nodes.
    pub n_nodes: u8,
    /// Families, tunnel and datapath.
    pub variant: Variant,
    /// Who plays the control plane.
    pub mode: Mode,
    /// Where our programs are.
    pub bin_dir: PathBuf,
    /// Kubeconfig of an API server that is not ours.
    pub kubeconfig: Option<PathBuf>,
    /// Who puts Pods on Nodes.
    pub scheduler: SchedulerChoice,
    /// What happens to what was made when something fails.
    pub on_failure: OnFailure,
    /// MTU of the links between nodes.
    pub underlay_mtu: u16,
    /// How long a kubelet may be silent before its Node is taken for lost.
    pub node_grace: Duration,
    /// Number of the controller's replicas.
    pub n_controllers: u8,
    /// Whose traffic to Services the agents serve.
    pub proxy: Proxy,
    /// Who gives Nodes their Pod CIDRs.
    pub node_ipam: NodeIpam,
    /// Where the API server's way into the lab listens, where that is not in the lab's directory.
    pub egress_socket: Option<PathBuf>,
}

impl UpOptions {
    /// A lab without anything unusual.
    #[must_use]
    pub fn new(n_nodes: u8, variant: Variant, mode: Mode, bin_dir: PathBuf) -> Self {
        Self {
            n_nodes,
            variant,
            mode,
            bin_dir,
            kubeconfig: None,
            scheduler: SchedulerChoice::Ours,
            on_failure: OnFailure::Undo,
            underlay_mtu: UNDERLAY_MTU,
            node_grace: kubelab::NODE_GRACE,
            n_controllers: 1,
            proxy: Proxy::Pods,
            node_ipam: NodeIpam::Ours,
            egress_socket: None,
        }
    }
}

/// MTU of the links between nodes where nothing else is said.
pub const UNDERLAY_MTU: u16 = 1500;

/// What happens to what was made when `up` fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is removed.
    Undo,
    /// It stays, for a look at it.
    Leave,
}

/// Starts a lab and waits until every node is ready.
///
/// The lab ends with the calling command: one that leaves it running says so with
/// [`Store::let_go`]. What a killed command left in the same directory is ended first.
///
/// # Errors
/// When something is missing or does not come up.
pub fn run(layout: &Layout, options: &UpOptions, progress: &Progress) -> Result<Store> {
    if let Some(leftover) = Store::abandoned(layout) {
        progress.step(&format!("ending what a killed command left in {}", layout.dir().display()));
        down::run(&leftover, progress)?;
    }
    let mut ours = vec!["antrea-agent", "antrea-cni"];
    if options.mode != Mode::Standalone {
        ours.push("antrea-controller");
    }
    preflight::machine(layout, options.n_nodes, &options.bin_dir, &ours)?;
    preflight::directory(layout)?;
    let mut state = LabState::new(options.mode, options.bin_dir.clone());
    state.kubeconfig.clone_from(&options.kubeconfig);
    state.scheduler = options.scheduler;
    state.variant = options.variant;
    state.underlay_mtu = options.underlay_mtu;
    state.node_grace = options.node_grace;
    state.n_controllers = options.n_controllers;
    state.proxy = options.proxy;
    state.node_ipam = options.node_ipam;
    state.egress_socket.clone_from(&options.egress_socket);
    state.nodes =
        (1..=options.n_nodes).map(|n| NodeState { n, name: layout::node_name(n) }).collect();
    let names: Vec<String> = state.nodes.iter().map(|n| n.name.clone()).collect();
    let store = Store::create(layout, state)?;
    kept::forget(layout);
    match start(&store, progress) {
        Ok(()) => Ok(store),
        Err(error) if options.on_failure == OnFailure::Leave => {
            store.let_go()?;
            let (dir, down) = (layout.dir().display(), layout.command("down"));
            Err(error.hint(format!("left as it is in {dir}; {down} ends it")))
        }
        Err(error) => {
            let word = if interrupt::requested() { "interrupted" } else { "failed" };
            progress.step(&format!("{word}; undoing"));
            let kept = if interrupt::requested() { Vec::new() } else { kept::keep(layout, &names) };
            let error = kept::renamed(error, &kept);
            match down::run(&store, progress) {
                Ok(()) => Err(error),
                Err(second) => Err(error.hint(format!(
                    "undoing it failed too ({}); run {}",
                    second.chain(),
                    layout.command("down")
                ))),
            }
        }
    }
}

fn start(store: &Store, progress: &Progress) -> Result<()> {
    let state = store.get();
    if state.variant.datapath == Datapath::Netdev {
        raise_sysctls(store)?;
    }
    if state.mode == Mode::External {
        crate::cluster::foreign::refuse_what_is_not_ours(store)?;
    }
    progress.step("underlay bridge and outside host");
    topology::make_underlay(store)?;
    interrupt::check()?;
    for node in &state.nodes {
        topology::make_node(store, node.n, &node.name)?;
    }
    interrupt::check()?;
    progress.step(&format!("Open vSwitch on {} nodes", state.nodes.len()));
    for_each_node(store, ovs::start)?;
    if state.mode == Mode::Standalone {
        agent::write_cluster_file(store)?;
    }
    for_each_node(store, agent::prepare)?;
    interrupt::check()?;
    if state.mode != Mode::Standalone {
        crate::cluster::start(store, progress)?;
    }
    progress.step("agents");
    for_each_node(store, agent::start)?;
    for_each_node(store, agent::await_ready)?;
    if state.mode != Mode::Standalone {
        crate::cluster::await_nodes(store, progress)?;
    }
    if state.mode == Mode::External {
        crate::cluster::foreign::await_controller(store, progress)?;
    }
    let seconds = progress.seconds();
    store.update(|state| {
        state.phase = Phase::Up;
        state.up_seconds = Some(seconds);
    })?;
    progress.step("ready");
    Ok(())
}

fn raise_sysctls(store: &Store) -> Result<()> {
    let dir = store.layout().dir();
    if let Some(former) = SharedSysctls::default().raise(dir, RMEM_DEFAULT)? {
        store.update(|s| s.sysctls.insert(RMEM_DEFAULT.0.into(), former.to_string()))?;
    }
    Ok(())
}

/// Does the same on all nodes at once; the first failure is given back after all have ended.
///
/// # Errors
/// When it fails on a node.
pub fn for_each_node(
    store: &Store,
    job: impl Fn(&Store, &str) -> Result<()> + Send + Sync,
) -> Result<()> {
    let names: Vec<String> = store.get().nodes.into_iter().map(|n| n.name).collect();
    std::thread::scope(|scope| {
        let jobs: Vec<_> = names.iter().map(|name| scope.spawn(|| job(store, name))).collect();
        let mut outcome = Ok(());
        for job in jobs {
            let result = job.join().unwrap_or_else(|_| Err(LabError::new("a node's job panicked")));
            if outcome.is_ok() {
                outcome = result;
            }
        }
        outcome
    })
}

/// The directory of the running program: a build puts all programs into one.
///
/// # Errors
/// When it cannot be found.
pub fn default_bin_dir() -> Result<PathBuf> {
    let me = std::env::current_exe().doing(|| "find our own program".into())?;
    me.parent().map(PathBuf::from).ok_or_else(|| LabError::new("our program has no directory"))
}

/// How long Pods of the demo and of scenarios have to become ready.
pub const POD_PATIENCE: Duration = Duration::from_secs(30);
