//! The fake ovsdb-server, with an ovs-vswitchd that gives interfaces their numbers.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ovsdb::{Atom, DATABASE, Incoming, Splitter, Table, Value, echo_reply, notification, response};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::database::{Database, difference};
use super::faults::{Cut, OfportFault};

/// Number of a bridge's own port in OpenFlow 1.0, as the database shows it.
const LOCAL: i64 = 65534;

/// A fake ovsdb-server on a socket. Ends when dropped.
#[derive(Debug)]
pub struct FakeOvsdb {
    socket: PathBuf,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    cut: Cut,
    /// Raised to end every connection.
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    database: Database,
    monitors: Vec<(Json, mpsc::UnboundedSender<Json>)>,
    refuse_next: u32,
    n_transactions: usize,
    ofport_faults: BTreeMap<String, OfportFault>,
    last_ofport: i64,
}

impl FakeOvsdb {
    /// Listens on `socket`. Must be called on a tokio runtime.
    pub fn start(socket: &Path) -> io::Result<Self> {
        let listener = UnixListener::bind(socket)?;
        let shared = Arc::new(Shared::default());
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { socket: socket.to_owned(), shared, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The rows now.
    #[must_use]
    pub fn database(&self) -> Database {
        self.shared.lock().database.clone()
    }

    /// Transactions that came in so far, refused ones too.
    #[must_use]
    pub fn n_transactions(&self) -> usize {
        self.shared.lock().n_transactions
    }

    /// Refuses the next transactions.
    pub fn refuse_next(&self, n: u32) {
        self.shared.lock().refuse_next = n;
    }

    /// What becomes of the number of the interface of this name.
    pub fn set_ofport_fault(&self, name: &str, fault: OfportFault) {
        self.shared.lock().ofport_faults.insert(name.to_owned(), fault);
    }

    /// Where to cut the connection.
    #[must_use]
    pub fn cut(&self) -> &Cut {
        &self.shared.cut
    }

    /// Cuts every connection now.
    pub fn disconnect(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }
}

impl Drop for FakeOvsdb {
    fn drop(&mut self) {
        self.task.abort();
        self.disconnect();
        // Gone already when the test's directory is.
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut generation_rx = shared.generation.subscribe();
            generation_rx.mark_unchanged();
            tokio::select! {
                // However a connection ends is the client's business.
                _ = serve(stream, &shared) => {}
                _ = generation_rx.changed() => {}
            }
        });
    }
}

async fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let (out_tx, mut out_rx) = mpsc::unbounded_channel::<Json>();
    let mut splitter = Splitter::new();
    let mut buffer = vec![0; 16 << 10];
    loop {
        tokio::select! {
            n = reader.read(&mut buffer) => {
                let n = n?;
                if n == 0 {
                    return Ok(());
                }
                splitter.push(&buffer[..n]);
                while let Some(json) = splitter.next_message().map_err(io::Error::other)? {
                    if shared.cut.is_now() {
                        return Ok(());
                    }
                    let message = Incoming::from_json(json).map_err(io::Error::other)?;
                    shared.lock().take(message, &out_tx);
                }
            }
            Some(json) = out_rx.recv() => writer.write_all(json.to_string().as_bytes()).await?,
        }
    }
}

impl Inner {
    fn take(&mut self, message: Incoming, out_tx: &mpsc::UnboundedSender<Json>) {
        let Incoming::Request { id, method, params } = message else { return };
        let answer = match method.as_str() {
            "echo" => echo_reply(&id, params),
            "monitor_cond" if params[0] == DATABASE => {
                self.monitors.push((params[1].clone(), out_tx.clone()));
                let nothing = Database::without_rows();
                response(&id, Ok(difference(&nothing, &self.database)))
            }
            "monitor_cancel" => {
                self.monitors.retain(|(id, tx)| *id != params[0] || !tx.same_channel(out_tx));
                response(&id, Ok(json!({})))
            }
            "transact" if params[0] == DATABASE => {
                let operations = params.as_array().map_or(&[][..], |params| &params[1..]);
                response(&id, Ok(self.transact(operations)))
            }
            method => response(&id, Err(json!({"error": "unknown method", "details": method}))),
        };
        // Fails only when the connection is gone.
        let _ = out_tx.send(answer);
        self.run_vswitchd();
    }

    fn transact(&mut self, operations: &[Json]) -> Json {
        self.n_transactions += 1;
        if self.refuse_next > 0 {
            self.refuse_next -= 1;
            return json!([{"error": "resources exhausted", "details": "as the test wants it"}]);
        }
        let before = self.database.clone();
        let results = self.database.transact(operations);
        self.tell(&before);
        results
    }

    /// Tells every monitor what changed.
    fn tell(&mut self, before: &Database) {
        let update = difference(before, &self.database);
        if update.as_object().is_none_or(serde_json::Map::is_empty) {
            return;
        }
        self.monitors.retain(|(id, out_tx)| {
            out_tx.send(notification("update2", &json!([id, update]))).is_ok()
        });
    }

    /// Gives numbers to interfaces without one, and an identity to bridges.
    fn run_vswitchd(&mut self) {
        let before = self.database.clone();
        let mut taken: Vec<i64> = Vec::new();
        for (_, row) in before.table(Table::Interface) {
            if let Some([Atom::Integer(ofport)]) = row["ofport"].atoms() {
                taken.push(*ofport);
            }
        }
        for ((table, _), row) in &mut self.database.rows {
            let Some([Atom::String(name)]) = row.get("name").and_then(Value::atoms) else {
                continue;
            };
            let name = name.clone();
            let one = |atom: Atom| Value::Set(vec![atom]);
            if *table == Table::Bridge && row["datapath_id"] == Value::EMPTY {
                row.insert("datapath_id".into(), one("00000000000000fa".into()));
            }
            if *table != Table::Interface || row["ofport"] != Value::EMPTY {
                continue;
            }
            let ofport = match self.ofport_faults.get(&name) {
                Some(OfportFault::Never) => continue,
                Some(OfportFault::Failed) => {
                    let error = format!("could not open network device {name}");
                    row.insert("error".into(), one(error.into()));
                    -1
                }
                None if before.named(Table::Bridge, &name).is_some() => LOCAL,
                None => match row["ofport_request"].atoms() {
                    Some([Atom::Integer(wanted)]) if !taken.contains(wanted) => *wanted,
                    _ => loop {
                        self.last_ofport += 1;
                        if !taken.contains(&self.last_ofport) {
                            break self.last_ofport;
                        }
                    },
                },
            };
            taken.push(ofport);
            row.insert("ofport".into(), one(ofport.into()));
        }
        self.tell(&before);
    }
}
