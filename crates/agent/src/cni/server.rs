//! The socket, the requests that run, and when they may.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cni_api::Attachment;
use cni_api::rpc::CniServer;
use openflow::MacAddr;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::collect::{LeaseDir, Leftovers};
use super::drive::Job;
use super::failure::{CniFailure, chain};
use super::journal::Journal;
use super::lock::AttachmentLocks;
use super::model::PodRecord;
use super::network::NodeNetwork;
use super::quiet::AfterBurst;
use super::reaper::Reaper;
use super::service::Service;
use super::store::InterfaceStore;
use super::traits::{Conntrack, Flows, Ipam, IpamRequest, PodNet, Ports};
use super::undo::Debts;

/// Pause between attempts to read the ports when the agent starts.
const RESTORE_RETRY: Duration = Duration::from_secs(1);

/// How long requests that run may take when the agent ends.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(20);

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// How long one step of a request may take.
    pub step_deadline: Duration,
    /// Name of the network whose leases are collected at start.
    pub network: String,
    /// Folder of leases, when it is not the usual one.
    pub data_dir: Option<PathBuf>,
    /// Folder of notes about Pods, for when the database is lost; none keeps no notes.
    pub journal_dir: Option<PathBuf>,
}

impl ServerConfig {
    /// The usual settings for a socket.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            step_deadline: Duration::from_secs(10),
            network: "antrea".to_owned(),
            data_dir: None,
            journal_dir: None,
        }
    }
}

/// What requests are carried out with.
pub struct Node {
    /// The node's Pod network.
    pub network: NodeNetwork,
    /// Addresses.
    pub ipam: Arc<dyn Ipam>,
    /// Links.
    pub net: Arc<dyn PodNet>,
    /// Ports.
    pub ports: Arc<dyn Ports>,
    /// Flows.
    pub flows: Arc<dyn Flows>,
    /// Connections.
    pub conntrack: Arc<dyn Conntrack>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("network", &self.network).finish_non_exhaustive()
    }
}

/// Whether requests can be served. Until then they are answered with "try again later".
#[derive(Clone, Debug)]
pub enum Readiness {
    /// Not yet.
    WaitingFor(&'static str),
    /// With this.
    Ready(Arc<Node>),
}

/// Why the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The socket.
    #[error("listen at {path}")]
    Listen {
        /// Its path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The server on it.
    #[error("serve")]
    Serve(#[from] tonic::transport::Error),
}

/// What the tasks of the server share.
pub(super) struct Shared {
    config: ServerConfig,
    ready_rx: watch::Receiver<Readiness>,
    store: Mutex<InterfaceStore>,
    interfaces_tx: watch::Sender<Arc<Vec<PodRecord>>>,
    restored_tx: watch::Sender<bool>,
    pub(super) locks: AttachmentLocks,
    pub(super) reaper: Reaper,
    pub(super) collected: tokio::sync::Mutex<BTreeSet<LeaseDir>>,
    pub(super) requests: TaskTracker,
    pub(super) journal: Journal,
    pub(super) debts: Debts,
    pub(super) after_burst: AfterBurst,
    /// How many steps outlived their deadline and still run.
    overdue: Arc<AtomicUsize>,
}

/// Counts one overdue step until it is dropped.
pub(super) struct Overdue(Arc<AtomicUsize>);

impl Drop for Overdue {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// What requests are carried out with, once all that was there before is taken over.
    pub(super) fn node(&self) -> Result<Arc<Node>, CniFailure> {
        match &*self.ready_rx.borrow() {
            Readiness::WaitingFor(waiting_for) => Err(CniFailure::NotReady { waiting_for }),
            Readiness::Ready(_) if !*self.restored_tx.borrow() => {
                Err(CniFailure::NotReady { waiting_for: "Pods that were there before" })
            }
            Readiness::Ready(node) => Ok(Arc::clone(node)),
        }
    }

    /// As [`Shared::node`], for what cannot be begun while the switch does not answer.
    pub(super) async fn reachable_node(&self, patience: Duration) -> Result<Arc<Node>, CniFailure> {
        let node = self.node()?;
        node.flows.wait_reachable(patience).await?;
        Ok(node)
    }

    pub(super) fn store(&self) -> MutexGuard<'_, InterfaceStore> {
        // No step of the store can leave it half changed.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long one step of a request may take.
    pub(super) fn step_deadline(&self) -> Duration {
        self.config.step_deadline
    }

    /// Counts a request whose step is overdue, until what is returned is dropped.
    pub(super) fn count_overdue(&self) -> Overdue {
        self.overdue.fetch_add(1, Ordering::Relaxed);
        Overdue(Arc::clone(&self.overdue))
    }

    /// Tells others which interfaces there are.
    pub(super) fn publish(&self) {
        let records = self.store().records().cloned().collect();
        self.interfaces_tx.send_replace(Arc::new(records));
    }

    pub(super) fn mk_job(&self, node: &Arc<Node>, ipam: IpamRequest, record: PodRecord) -> Job {
        Job {
            node: Arc::clone(node),
            ipam,
            record,
            addresses: Vec::new(),
            host_mac: MacAddr([0; 6]),
            mtu: node.network.mtu,
            deadline: self.config.step_deadline,
            operations: TaskTracker::new(),
        }
    }

    pub(super) fn default_ipam(&self, attachment: &Attachment) -> IpamRequest {
        let (network, data_dir) = self.default_ipam_dir();
        IpamRequest {
            attachment: attachment.clone(),
            network,
            data_dir,
            wish: None,
            netns: String::new(),
            cni_path: String::new(),
        }
    }

    pub(super) fn default_ipam_dir(&self) -> LeaseDir {
        (self.config.network.clone(), self.config.data_dir.clone())
    }

    /// Waits until the node is known and takes over what is there. Returns what of it could not be
    /// removed.
    async fn start_up(self: &Arc<Self>) -> Leftovers {
        let mut ready_rx = self.ready_rx.clone();
        let leftovers = loop {
            let node =
                match ready_rx.wait_for(|r| matches!(r, Readiness::Ready(_))).await.as_deref() {
                    Ok(Readiness::Ready(node)) => Arc::clone(node),
                    Ok(Readiness::WaitingFor(_)) => continue,
                    Err(_) => return Leftovers::default(),
                };
            match self.restore(&node).await {
                Ok(leftovers) => break leftovers,
                Err(failure) => warn!(error = chain(&failure), "Pod interfaces not read"),
            }
            tokio::time::sleep(RESTORE_RETRY).await;
        };
        self.restored_tx.send_replace(true);
        leftovers
    }
}

/// The CNI server.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

impl Server {
    /// A server that serves as soon as `ready_rx` says so. It does nothing before [`Server::run`].
    pub fn new(config: ServerConfig, ready_rx: watch::Receiver<Readiness>) -> Self {
        let journal = Journal::new(config.journal_dir.clone());
        let shared = Shared {
            config,
            ready_rx,
            store: Mutex::default(),
            interfaces_tx: watch::Sender::default(),
            restored_tx: watch::Sender::new(false),
            locks: AttachmentLocks::default(),
            reaper: Reaper::default(),
            collected: tokio::sync::Mutex::default(),
            requests: TaskTracker::new(),
            journal,
            debts: Debts::default(),
            after_burst: AfterBurst::default(),
            overdue: Arc::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Follows which Pod interfaces there are.
    pub fn interfaces(&self) -> watch::Receiver<Arc<Vec<PodRecord>>> {
        self.shared.interfaces_tx.subscribe()
    }

    /// Follows whether the interfaces that were there before are taken over: their flows are
    /// stated, and what nobody owns is removed.
    pub fn restored(&self) -> watch::Receiver<bool> {
        self.shared.restored_tx.subscribe()
    }

    /// How many requests have a step that outlived its deadline and still runs.
    pub fn overdue(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.shared.overdue)
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Serves until cancelled. Requests that run then are carried to their end.
    pub async fn run(self, cancel: CancellationToken) -> Result<(), ServerError> {
        let socket = self.shared.config.socket.clone();
        let listener = listen(&socket)
            .map_err(|source| ServerError::Listen { path: socket.clone(), source })?;
        info!(socket = %socket.display(), "CNI server listens");
        let start_up = {
            let shared = Arc::clone(&self.shared);
            tokio::spawn(async move {
                let leftovers = shared.start_up().await;
                shared.finish_restore(leftovers).await;
            })
        };
        let incoming = futures::stream::unfold(listener, async |listener| {
            let stream = listener.accept().await.map(|(stream, _)| stream);
            Some((stream, listener))
        });
        let served = tonic::transport::Server::builder()
            .add_service(CniServer::new(Service::new(Arc::clone(&self.shared))))
            .serve_with_incoming_shutdown(incoming, cancel.cancelled_owned())
            .await;
        start_up.abort();
        self.shared.requests.close();
        let finish = async {
            self.shared.requests.wait().await;
            self.shared.reaper.wait_all().await;
        };
        if tokio::time::timeout(SHUTDOWN_PATIENCE, finish).await.is_err() {
            warn!("requests did not end in time");
        }
        // The socket stays: a runtime that finds it refused knows that the agent is away, as it
        // does when it is not there; and a successor's socket is not removed by mistake.
        Ok(served?)
    }

    #[cfg(test)]
    pub(super) fn service(&self) -> Service {
        Service::new(Arc::clone(&self.shared))
    }

    #[cfg(test)]
    pub(super) async fn start_up(&self) -> Leftovers {
        self.shared.start_up().await
    }

    #[cfg(test)]
    pub(super) async fn finish_restore(&self, leftovers: Leftovers) {
        self.shared.finish_restore(leftovers).await;
    }

    /// Waits until no request runs, nor the undoing of one.
    #[cfg(test)]
    pub(super) async fn wait_undone(&self) {
        self.shared.requests.close();
        self.shared.requests.wait().await;
        self.shared.requests.reopen();
    }

    #[cfg(test)]
    pub(super) async fn wait_links_deleted(&self) {
        self.shared.reaper.wait_all().await;
    }
}

/// Listens at a path that only root may use; a socket that a predecessor left is replaced.
fn listen(path: &Path) -> io::Result<UnixListener> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    // Made under another name and renamed: at no moment is there a socket that others may use, nor
    // none where there was one.
    let fresh = path.with_extension("new");
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    Ok(listener)
}
