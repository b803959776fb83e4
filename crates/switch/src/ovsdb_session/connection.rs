//! The task that owns the connection to ovsdb-server.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use ovsdb::{
    DATABASE, Id, Incoming, Operation, RpcError, Snapshot, SplitError, Splitter, TableUpdates,
    UpdateError, echo_reply, monitor_request, parse_results, request,
};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::{OvsdbConfig, OvsdbError, Transaction};

/// How we call our one monitor.
const MONITOR: &str = "antrea";

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("socket")]
    Io(#[from] io::Error),
    #[error("server closed the connection")]
    Closed,
    #[error("server silent for {0:?}")]
    Silent(std::time::Duration),
    #[error("stream")]
    Split(#[from] SplitError),
    #[error("message")]
    Rpc(#[from] RpcError),
    #[error("monitor update")]
    Update(#[from] UpdateError),
    #[error("monitor refused: {0}")]
    Monitor(Json),
}

/// What the connection's task publishes.
struct Outputs {
    rows_tx: watch::Sender<Arc<Snapshot>>,
    connected_tx: watch::Sender<bool>,
}

/// Connects, serves, and connects again until nobody can send transactions any more.
pub(super) async fn run(
    config: OvsdbConfig,
    mut transaction_rx: mpsc::Receiver<Transaction>,
    rows_tx: watch::Sender<Arc<Snapshot>>,
    connected_tx: watch::Sender<bool>,
) {
    let outputs = Outputs { rows_tx, connected_tx };
    let mut backoff = config.backoff_min;
    let mut last_error = String::new();
    loop {
        let outcome = serve(&config, &mut transaction_rx, &outputs).await;
        let was_connected = outputs.connected_tx.send_replace(false);
        // Whoever sent a transaction just before the end learns it now, not after a reconnect.
        while let Ok(transaction) = transaction_rx.try_recv() {
            let _ = transaction.reply_tx.send(Err(OvsdbError::Disconnected));
        }
        let Err(error) = outcome else { return };
        let text = crate::error_chain(&error);
        if was_connected {
            backoff = config.backoff_min;
            warn!(error = text, "lost connection to ovsdb-server");
        } else if text != last_error {
            warn!(error = text, socket = %config.socket.display(), "connect to ovsdb-server");
        }
        last_error = text;
        // The session may end while there is no connection.
        if timeout(backoff, closed(&mut transaction_rx)).await.is_ok() {
            return;
        }
        backoff = (backoff * 2).min(config.backoff_max);
    }
}

/// Returns when nobody can send transactions any more; fails those that come before.
async fn closed(transaction_rx: &mut mpsc::Receiver<Transaction>) {
    while let Some(transaction) = transaction_rx.recv().await {
        let _ = transaction.reply_tx.send(Err(OvsdbError::NotConnected));
    }
}

/// One connection, from connecting to its end. `Ok` means that the session is over.
async fn serve(
    config: &OvsdbConfig,
    transaction_rx: &mut mpsc::Receiver<Transaction>,
    outputs: &Outputs,
) -> Result<(), ConnectionError> {
    let stream = timeout(config.probe_interval, UnixStream::connect(&config.socket))
        .await
        .map_err(|_| ConnectionError::Silent(config.probe_interval))??;
    let (mut reader, mut writer) = stream.into_split();
    let mut connection = Connection::default();
    let first = connection.next_id();
    connection.monitor_id = Some(first);
    writer
        .write_all(request(first, "monitor_cond", &monitor_request(MONITOR)).to_string().as_bytes())
        .await?;

    let mut buffer = vec![0; 64 << 10];
    let mut heard = Instant::now();
    let mut probed = false;
    loop {
        let silence_ends = heard + config.probe_interval * if probed { 2 } else { 1 };
        tokio::select! {
            n = reader.read(&mut buffer) => {
                let n = n?;
                if n == 0 {
                    return Err(ConnectionError::Closed);
                }
                heard = Instant::now();
                probed = false;
                connection.splitter.push(&buffer[..n]);
                let out = connection.take_in(outputs)?;
                if !out.is_empty() {
                    writer.write_all(&out).await?;
                }
            }
            transaction = transaction_rx.recv(), if connection.is_ready() => {
                let Some(transaction) = transaction else { return Ok(()) };
                let mut out = connection.send(transaction);
                while let Ok(transaction) = transaction_rx.try_recv() {
                    out.extend(connection.send(transaction));
                }
                writer.write_all(&out).await?;
            }
            () = sleep_until(silence_ends) => {
                if probed {
                    return Err(ConnectionError::Silent(config.probe_interval * 2));
                }
                probed = true;
                let id = connection.next_id();
                connection.echo_id = Some(id);
                writer.write_all(request(id, "echo", &json!([])).to_string().as_bytes()).await?;
            }
        }
    }
}

/// State of one connection.
#[derive(Default)]
struct Connection {
    splitter: Splitter,
    last_id: u64,
    /// The monitor request, until it is answered.
    monitor_id: Option<Id>,
    /// The last probe.
    echo_id: Option<Id>,
    snapshot: Snapshot,
    pending: HashMap<Id, (usize, Transaction)>,
}

impl Connection {
    fn next_id(&mut self) -> Id {
        self.last_id += 1;
        Id(self.last_id)
    }

    fn is_ready(&self) -> bool {
        self.monitor_id.is_none()
    }

    /// The bytes of a transaction, which is remembered until its reply.
    fn send(&mut self, mut transaction: Transaction) -> Vec<u8> {
        let id = self.next_id();
        let operations = std::mem::take(&mut transaction.operations);
        let mut params = vec![Json::from(DATABASE)];
        params.extend(operations.iter().map(Operation::to_json));
        self.pending.insert(id, (operations.len(), transaction));
        request(id, "transact", &Json::from(params)).to_string().into_bytes()
    }

    /// Takes in every whole message, publishes the rows, then hands replies out. Returns what is
    /// to be sent.
    fn take_in(&mut self, outputs: &Outputs) -> Result<Vec<u8>, ConnectionError> {
        let mut out = Vec::new();
        let mut replies = Vec::new();
        let mut changed = false;
        let mut established = false;
        while let Some(json) = self.splitter.next_message()? {
            match Incoming::from_json(json)? {
                Incoming::Request { id, method, params } if method == "echo" => {
                    out.extend(echo_reply(&id, params).to_string().into_bytes());
                }
                Incoming::Request { method, .. } => debug!(method, "request not understood"),
                Incoming::Notification { method, params } => {
                    if matches!(method.as_str(), "update2" | "update3")
                        && let Some(updates) =
                            TableUpdates::from_notification(&method, &params, MONITOR)?
                    {
                        self.snapshot.apply(updates)?;
                        changed = true;
                    }
                }
                Incoming::Response { id, result } if Some(id) == self.monitor_id => {
                    let rows = result.map_err(ConnectionError::Monitor)?;
                    self.monitor_id = None;
                    self.snapshot.apply(TableUpdates::from_json(&rows)?)?;
                    changed = true;
                    established = true;
                }
                Incoming::Response { id, .. } if Some(id) == self.echo_id => self.echo_id = None,
                Incoming::Response { id, result } => {
                    if let Some((n_operations, transaction)) = self.pending.remove(&id) {
                        // A reply with an error of its own is one failure of the whole.
                        let result =
                            result.unwrap_or_else(|error| json!([{"error": error.to_string()}]));
                        replies.push((transaction, parse_results(n_operations, &result)));
                    }
                }
            }
        }
        if changed && self.is_ready() {
            outputs.rows_tx.send_replace(Arc::new(self.snapshot.clone()));
        }
        if established {
            info!("connected to ovsdb-server");
            outputs.connected_tx.send_replace(true);
        }
        for (transaction, result) in replies {
            // A caller that gave up does not want to know.
            let _ = transaction.reply_tx.send(result.map_err(OvsdbError::from));
        }
        Ok(out)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for (_, (_, transaction)) in self.pending.drain() {
            let _ = transaction.reply_tx.send(Err(OvsdbError::Disconnected));
        }
    }
}
