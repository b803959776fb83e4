//! A session with ovsdb-server that outlives its connections.
//!
//! One task owns the connection: it monitors the tables we use, answers and sends echoes, matches
//! replies to transactions, and connects again by itself. Readers see the last snapshot, also
//! while the connection is down. A transaction's effects are in the snapshot before its reply is
//! handed out.
//!
//! A session may need a lock: then two of them on one database take turns, and do not fight.
//!
//! Not here: what the rows mean (the modules below hold the operations on
//! them), OpenFlow (`crate::channel`).

mod bridges;
mod coalesce;
mod connection;
mod ports;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ovsdb::{OpFailure, OpResult, Operation, Snapshot, TransactError};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

pub use bridges::BridgeSpec;
pub use ports::{PortError, PortSelector, PortSpec, Unmarked};

/// How to reach the database, and how patient to be.
#[derive(Clone, Debug)]
pub struct OvsdbConfig {
    /// Socket of ovsdb-server.
    pub socket: PathBuf,
    /// Silence after which the server is probed; after twice that the connection is given up.
    pub probe_interval: Duration,
    /// First pause before connecting again; doubles up to `backoff_max`.
    pub backoff_min: Duration,
    /// Longest pause before connecting again.
    pub backoff_max: Duration,
    /// How long a transaction waits for a connection before it fails.
    pub patience: Duration,
    /// How long the server may take over an answer; after that the connection is given up. A
    /// transaction must not make the server wait for longer.
    pub reply_deadline: Duration,
    /// How often all rows are read anew, in case an update was lost.
    pub refresh_interval: Duration,
    /// A lock without which the session counts as not connected: of all that name the same one,
    /// one has it, until its connection ends.
    pub lock: Option<String>,
}

impl OvsdbConfig {
    /// The usual timing for the server at `socket`.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self {
            socket: socket.into(),
            probe_interval: Duration::from_secs(5),
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(1),
            patience: Duration::from_secs(5),
            reply_deadline: Duration::from_secs(10),
            refresh_interval: Duration::from_secs(60),
            lock: None,
        }
    }
}

/// Why a transaction gave no results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OvsdbError {
    /// There was no connection, and none came up in time; nothing was sent.
    #[error("not connected to ovsdb-server")]
    NotConnected,
    /// The connection was lost before the reply: it may or may not have been carried out.
    #[error("connection to ovsdb-server lost before its reply")]
    Disconnected,
    /// The database refused it; nothing was changed.
    #[error("transaction refused: {0}")]
    Refused(OpFailure),
    /// The reply made no sense.
    #[error("transaction reply not understood")]
    Reply(#[source] TransactError),
}

impl From<TransactError> for OvsdbError {
    fn from(error: TransactError) -> Self {
        match error {
            TransactError::Refused(failure) => Self::Refused(failure),
            other => Self::Reply(other),
        }
    }
}

/// A transaction on its way to the connection's task.
#[derive(Debug)]
struct Transaction {
    operations: Vec<Operation>,
    reply_tx: oneshot::Sender<Result<Vec<OpResult>, OvsdbError>>,
}

/// A session with ovsdb-server. Clones share it; it ends with the last one.
#[derive(Clone, Debug)]
pub struct OvsdbSession {
    core: Core,
    add_tx: mpsc::Sender<coalesce::Add>,
}

/// What the session's own tasks need of it.
#[derive(Clone, Debug)]
struct Core {
    transaction_tx: mpsc::Sender<Transaction>,
    rows_rx: watch::Receiver<Arc<Snapshot>>,
    connected_rx: watch::Receiver<bool>,
    waiting_rx: watch::Receiver<bool>,
    patience: Duration,
}

impl OvsdbSession {
    /// Starts a session. Returns at once; connects, and connects again, in the background.
    ///
    /// Must be called on a tokio runtime.
    #[must_use]
    pub fn connect(config: OvsdbConfig) -> Self {
        let (transaction_tx, transaction_rx) = mpsc::channel(256);
        let (rows_tx, rows_rx) = watch::channel(Arc::new(Snapshot::default()));
        let (connected_tx, connected_rx) = watch::channel(false);
        let (waiting_tx, waiting_rx) = watch::channel(false);
        let patience = config.patience;
        let outputs = connection::Outputs { rows_tx, connected_tx, waiting_tx };
        tokio::spawn(connection::run(config, transaction_rx, outputs));
        let core = Core { transaction_tx, rows_rx, connected_rx, waiting_rx, patience };
        let (add_tx, add_rx) = mpsc::channel(256);
        tokio::spawn(coalesce::run(core.clone(), add_rx));
        Self { core, add_tx }
    }

    /// The rows as last seen; empty before the first connection.
    #[must_use]
    pub fn rows(&self) -> Arc<Snapshot> {
        self.core.rows()
    }

    /// Follows the rows.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Snapshot>> {
        self.core.rows_rx.clone()
    }

    /// Follows whether the session is connected and its rows are current.
    #[must_use]
    pub fn connected(&self) -> watch::Receiver<bool> {
        self.core.connected_rx.clone()
    }

    /// Follows whether the session waits for its lock, because another one has it.
    #[must_use]
    pub fn waits_for_lock(&self) -> watch::Receiver<bool> {
        self.core.waiting_rx.clone()
    }

    /// Waits until the session is connected and its rows are current.
    pub async fn wait_connected(&self, deadline: Duration) -> Result<(), OvsdbError> {
        self.core.wait_connected(deadline).await
    }

    /// Carries out operations, all or none.
    pub async fn transact(&self, operations: Vec<Operation>) -> Result<Vec<OpResult>, OvsdbError> {
        self.core.transact(operations).await
    }
}

impl Core {
    fn rows(&self) -> Arc<Snapshot> {
        Arc::clone(&self.rows_rx.borrow())
    }

    async fn wait_connected(&self, deadline: Duration) -> Result<(), OvsdbError> {
        let mut connected_rx = self.connected_rx.clone();
        match timeout(deadline, connected_rx.wait_for(|connected| *connected)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(OvsdbError::NotConnected),
        }
    }

    async fn transact(&self, operations: Vec<Operation>) -> Result<Vec<OpResult>, OvsdbError> {
        self.wait_connected(self.patience).await?;
        let (reply_tx, reply_rx) = oneshot::channel();
        let transaction = Transaction { operations, reply_tx };
        self.transaction_tx.send(transaction).await.map_err(|_| OvsdbError::NotConnected)?;
        reply_rx.await.map_err(|_| OvsdbError::Disconnected)?
    }
}
