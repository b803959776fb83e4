//! The task that owns the connection to ovsdb-server.
//!
//! What the server tells is believed, but not for ever: an answer that does not come ends the
//! connection, a transaction whose effects do not show among the rows has them read anew, and so
//! has the passing of time.

mod effects;
mod lock;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ovsdb::{
    DATABASE, Id, Incoming, LockEvent, OpResult, Operation, RpcError, Snapshot, SplitError,
    Splitter, TableUpdates, UpdateError, echo_reply, monitor_request, parse_results, request,
};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::{OvsdbConfig, OvsdbError, Transaction};
use lock::Lock;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("socket")]
    Io(#[from] io::Error),
    #[error("server closed the connection")]
    Closed,
    #[error("server silent for {0:?}")]
    Silent(Duration),
    #[error("no answer to a request within {0:?}")]
    Unanswered(Duration),
    #[error("stream")]
    Split(#[from] SplitError),
    #[error("message")]
    Rpc(#[from] RpcError),
    #[error("monitor update")]
    Update(#[from] UpdateError),
    #[error("monitor refused: {0}")]
    Monitor(Json),
    #[error("message about a lock")]
    LockMessage(#[from] ovsdb::LockError),
    #[error("lock refused: {0}")]
    Lock(Json),
    #[error("another client took the lock")]
    Stolen,
}

/// What the connection's task publishes.
pub(super) struct Outputs {
    pub(super) rows_tx: watch::Sender<Arc<Snapshot>>,
    pub(super) connected_tx: watch::Sender<bool>,
    pub(super) waiting_tx: watch::Sender<bool>,
}

/// Connects, serves, and connects again until nobody can send transactions any more.
pub(super) async fn run(
    config: OvsdbConfig,
    mut transaction_rx: mpsc::Receiver<Transaction>,
    outputs: Outputs,
) {
    let mut backoff = config.backoff_min;
    let mut last_error = String::new();
    loop {
        let mut connection = Connection::default();
        connection.lock = Lock::new(config.lock.clone());
        let outcome = serve(&config, &mut transaction_rx, &outputs, &mut connection).await;
        let was_connected = outputs.connected_tx.send_replace(false);
        outputs.waiting_tx.send_replace(false);
        // Only now do those who wait for a reply hear of it: whoever asks again waits for fresh rows.
        drop(connection);
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
    connection: &mut Connection,
) -> Result<(), ConnectionError> {
    let stream = timeout(config.probe_interval, UnixStream::connect(&config.socket))
        .await
        .map_err(|_| ConnectionError::Silent(config.probe_interval))??;
    let (mut reader, mut writer) = stream.into_split();
    let mut first = connection.begin_monitor();
    first.extend(connection.ask_for_lock());
    writer.write_all(&first).await?;

    let mut buffer = vec![0; 64 << 10];
    let mut heard = Instant::now();
    let mut probed = false;
    let mut refresh_at = heard + config.refresh_interval;
    loop {
        let silence_ends = heard + config.probe_interval * if probed { 2 } else { 1 };
        let answer_due = connection.oldest_request().map(|sent| sent + config.reply_deadline);
        let others = answer_due.into_iter().chain(connection.lock.patience_ends());
        let wake_at = others.fold(silence_ends.min(refresh_at), Instant::min);
        let mut out = Vec::new();
        tokio::select! {
            n = reader.read(&mut buffer) => {
                let n = n?;
                if n == 0 {
                    return Err(ConnectionError::Closed);
                }
                heard = Instant::now();
                probed = false;
                connection.splitter.push(&buffer[..n]);
                out = connection.take_in(outputs)?;
            }
            transaction = transaction_rx.recv(), if connection.is_open => {
                let Some(transaction) = transaction else { return Ok(()) };
                out = connection.send(transaction);
                while let Ok(transaction) = transaction_rx.try_recv() {
                    out.extend(connection.send(transaction));
                }
            }
            () = sleep_until(wake_at) => {}
        }
        let now = Instant::now();
        if connection.lock.begins_to_wait(now) {
            let lock = config.lock.as_deref().unwrap_or_default();
            warn!(lock, socket = %config.socket.display(), "another client has the lock: waiting");
            outputs.waiting_tx.send_replace(true);
        }
        if connection.has_overdue(config, now) {
            return Err(ConnectionError::Unanswered(config.reply_deadline));
        }
        if now >= heard + config.probe_interval * if probed { 2 } else { 1 } {
            if probed {
                return Err(ConnectionError::Silent(config.probe_interval * 2));
            }
            probed = true;
            let id = connection.next_id();
            out.extend(request(id, "echo", &json!([])).to_string().into_bytes());
        }
        if now >= refresh_at {
            refresh_at = now + config.refresh_interval;
            out.extend(connection.refresh());
        }
        if !out.is_empty() {
            writer.write_all(&out).await?;
        }
    }
}

/// A transaction on its way.
struct Sent {
    at: Instant,
    operations: Vec<Operation>,
    transaction: Transaction,
}

/// A monitor request on its way.
struct MonitorRequest {
    at: Instant,
    id: Id,
    name: String,
}

type Reply = (Transaction, Result<Vec<OpResult>, OvsdbError>);

/// State of one connection.
#[derive(Default)]
struct Connection {
    splitter: Splitter,
    last_id: u64,
    /// Whether the first monitor was answered.
    is_ready: bool,
    /// Whether that is so and there is the lock.
    is_open: bool,
    lock: Lock,
    /// Name of the monitor whose updates make the snapshot.
    monitor: String,
    /// The monitor that is to follow it.
    next_monitor: Option<MonitorRequest>,
    snapshot: Snapshot,
    /// By id, and thereby by age.
    pending: BTreeMap<Id, Sent>,
    /// Replies whose effects the rows do not show, until these are read anew.
    held: Vec<Reply>,
}

impl Connection {
    fn next_id(&mut self) -> Id {
        self.last_id += 1;
        Id(self.last_id)
    }

    /// When the oldest request was sent that is not answered.
    fn oldest_request(&self) -> Option<Instant> {
        let transaction = self.pending.values().next().map(|sent| sent.at);
        let monitor = self.next_monitor.as_ref().map(|request| request.at);
        transaction.into_iter().chain(monitor).chain(self.lock.asked_at()).min()
    }

    fn has_overdue(&self, config: &OvsdbConfig, now: Instant) -> bool {
        self.oldest_request().is_some_and(|sent| now >= sent + config.reply_deadline)
    }

    /// The bytes of a request for the lock, if one is needed.
    fn ask_for_lock(&mut self) -> Vec<u8> {
        let id = self.next_id();
        self.lock.ask(id, Instant::now()).unwrap_or_default()
    }

    /// The bytes of a request for all rows, and for their changes from then on.
    fn begin_monitor(&mut self) -> Vec<u8> {
        let id = self.next_id();
        let name = format!("antrea-{}", id.0);
        let bytes = request(id, "monitor_cond", &monitor_request(&name)).to_string().into_bytes();
        self.next_monitor = Some(MonitorRequest { at: Instant::now(), id, name });
        bytes
    }

    /// The bytes that have all rows read anew, unless that is being done. Changes before come by
    /// the former monitor, changes after by the new one.
    fn refresh(&mut self) -> Vec<u8> {
        if self.next_monitor.is_some() {
            return Vec::new();
        }
        let id = self.next_id();
        let cancel = request(id, "monitor_cancel", &json!([self.monitor]));
        let mut bytes = cancel.to_string().into_bytes();
        bytes.extend(self.begin_monitor());
        bytes
    }

    /// The bytes of a transaction, which is remembered until its reply.
    fn send(&mut self, mut transaction: Transaction) -> Vec<u8> {
        let id = self.next_id();
        let operations = std::mem::take(&mut transaction.operations);
        let mut params = vec![Json::from(DATABASE)];
        params.extend(operations.iter().map(Operation::to_json));
        params.extend(self.lock.assertion().map(|assertion| assertion.to_json()));
        self.pending.insert(id, Sent { at: Instant::now(), operations, transaction });
        request(id, "transact", &Json::from(params)).to_string().into_bytes()
    }

    /// Takes in every whole message, publishes the rows, then hands replies out. Returns what is
    /// to be sent.
    fn take_in(&mut self, outputs: &Outputs) -> Result<Vec<u8>, ConnectionError> {
        let mut out = Vec::new();
        let mut replies = Vec::new();
        let mut changed = false;
        while let Some(json) = self.splitter.next_message()? {
            match Incoming::from_json(json)? {
                Incoming::Request { id, method, params } if method == "echo" => {
                    out.extend(echo_reply(&id, params).to_string().into_bytes());
                }
                Incoming::Request { method, .. } => debug!(method, "request not understood"),
                Incoming::Notification { method, params } => {
                    match LockEvent::from_notification(&method, &params)? {
                        Some(LockEvent::Locked(_)) => self.lock.granted(),
                        Some(LockEvent::Stolen(_)) => return Err(ConnectionError::Stolen),
                        None => {}
                    }
                    if matches!(method.as_str(), "update2" | "update3")
                        && let Some(updates) =
                            TableUpdates::from_notification(&method, &params, &self.monitor)?
                    {
                        self.snapshot.apply(updates)?;
                        changed = true;
                    }
                }
                Incoming::Response { id, result } => {
                    if let Some(monitor) = self.next_monitor.take_if(|next| next.id == id) {
                        changed |= self.monitored(monitor, result)?;
                        self.is_ready = true;
                        replies.append(&mut self.held);
                    } else if let Some(sent) = self.pending.remove(&id) {
                        out.extend(self.replied(sent, result, &mut replies));
                    } else if self.lock.was_asked_by(id) {
                        let answer = result.map_err(ConnectionError::Lock)?;
                        self.lock.answered(ovsdb::lock_reply(&answer)?, Instant::now());
                    }
                    // Anything else answers an echo or the end of a monitor.
                }
            }
        }
        if changed && self.is_ready {
            outputs.rows_tx.send_replace(Arc::new(self.snapshot.clone()));
        }
        if !self.is_open && self.is_ready && self.lock.is_there() {
            self.is_open = true;
            info!("connected to ovsdb-server");
            outputs.waiting_tx.send_replace(false);
            outputs.connected_tx.send_replace(true);
        }
        for (transaction, result) in replies {
            // A caller that gave up does not want to know.
            let _ = transaction.reply_tx.send(result);
        }
        Ok(out)
    }

    /// A monitor begins: with all rows. Returns whether they are not as they were believed to be.
    fn monitored(
        &mut self,
        monitor: MonitorRequest,
        result: Result<Json, Json>,
    ) -> Result<bool, ConnectionError> {
        let rows = result.map_err(ConnectionError::Monitor)?;
        let mut snapshot = Snapshot::default();
        snapshot.apply(TableUpdates::from_json(&rows)?)?;
        self.monitor = monitor.name;
        let changed = snapshot != self.snapshot;
        if changed && self.is_ready {
            info!("rows read anew are not as they were believed to be");
        }
        self.snapshot = snapshot;
        Ok(changed || !self.is_ready)
    }

    /// A transaction is answered: its reply is handed out once the rows show its effects. Returns
    /// what is to be sent.
    fn replied(
        &mut self,
        sent: Sent,
        result: Result<Json, Json>,
        replies: &mut Vec<Reply>,
    ) -> Vec<u8> {
        let Sent { operations, transaction, .. } = sent;
        // A reply with an error of its own is one failure of the whole.
        let result = result.unwrap_or_else(|error| json!([{"error": error.to_string()}]));
        // Behind them may be that of the assertion of the lock, which says nothing.
        let result = parse_results(operations.len(), &result);
        let are_shown = result
            .as_ref()
            .is_ok_and(|results| effects::are_shown(&operations, results, &self.snapshot));
        let is_refused = result.is_err();
        let reply = (transaction, result.map_err(OvsdbError::from));
        if are_shown || is_refused {
            replies.push(reply);
            return Vec::new();
        }
        self.held.push(reply);
        self.refresh()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let pending = std::mem::take(&mut self.pending).into_values();
        for transaction in pending.map(|sent| sent.transaction) {
            let _ = transaction.reply_tx.send(Err(OvsdbError::Disconnected));
        }
        for (transaction, _) in self.held.drain(..) {
            let _ = transaction.reply_tx.send(Err(OvsdbError::Disconnected));
        }
    }
}
