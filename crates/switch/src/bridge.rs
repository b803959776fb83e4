//! The one writer of a bridge: features say what they want, it sees to it.
//!
//! A thin shell around `crate::reconcile`: one task feeds the pure state with what callers, the
//! connection and timers say, and carries out what it decides. A second task has the connection for
//! packet-ins, so that a storm of those never delays a flow.
//!
//! Not here: the rules (`crate::reconcile`), the protocol (`crate::channel`).

mod forget;
mod packets;
mod run;
mod transfer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use openflow::message::{FlowStats, PacketIn, PacketOut};
use openflow::{Flow, Intent, OfPort, TableId};
use tokio::sync::{mpsc, oneshot, watch};

pub use crate::channel::{ChannelError, ChannelTiming};
use crate::reconcile::{EncodedIntents, Event};
pub use crate::reconcile::{Owner, Refusal, RefusalReason, StateSummary, SyncMode};
use packets::Packets;
pub use packets::{PacketCounts, PacketOutError};
use run::{Command, TakeCounters};

/// State of a bridge as it can be seen from outside.
pub type BridgeState = StateSummary;

/// How a bridge is kept.
#[derive(Clone, Debug)]
pub struct BridgeConfig {
    /// Its management socket.
    pub mgmt_socket: PathBuf,
    /// Bits 63..48 of our flows' cookies. Tells leftovers of ours from foreign flows in the log.
    pub cookie_marker: u16,
    /// Owners that will call [`Bridge::synced`]; nothing unclaimed is deleted before.
    pub owners: Vec<Owner>,
    /// Owners, among those, without whose flows a switch that has none of ours gets none.
    pub first_owners: Vec<Owner>,
    /// How long they are waited for.
    pub sync_deadline: Duration,
    /// How often the whole switch is looked over.
    pub repair_interval: Duration,
    /// How often refused flows are looked at.
    pub retry_interval: Duration,
    /// Whether something is sent before all owners are synced.
    pub sync_mode: SyncMode,
    /// How patient its connections are.
    pub timing: ChannelTiming,
    /// Controller id of the packet-in connection; none opens no such connection.
    pub controller_id: Option<u16>,
    /// For a bridge on the userspace datapath: the directory in which its vswitchd runs, which is
    /// told to forget cached decisions after each change. It may keep wrong ones otherwise.
    pub userspace_run_dir: Option<PathBuf>,
}

impl BridgeConfig {
    /// The usual timing for the bridge with this management socket.
    #[must_use]
    pub fn new(mgmt_socket: impl Into<PathBuf>, cookie_marker: u16) -> Self {
        Self {
            mgmt_socket: mgmt_socket.into(),
            cookie_marker,
            owners: Vec::new(),
            first_owners: Vec::new(),
            sync_deadline: Duration::from_secs(30),
            repair_interval: Duration::from_secs(8),
            retry_interval: Duration::from_secs(1),
            sync_mode: SyncMode::Incremental,
            timing: ChannelTiming::default(),
            controller_id: Some(1),
            userspace_run_dir: None,
        }
    }
}

/// Why a barrier was not reached as hoped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BarrierError {
    /// Everything else is on the switch, but this was refused.
    #[error("refused by the switch: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused(Vec<Refusal>),
    /// The bridge was given up.
    #[error("the bridge is not kept any more")]
    Closed,
}

/// Why the switch's flows could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no connection.
    #[error("no connection to the switch")]
    NotConnected,
    /// The exchange failed.
    #[error("read flows")]
    Exchange(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The bridge was given up.
    #[error("the bridge is not kept any more")]
    Closed,
}

/// Keys of one owner whose flows have to change together. They are kept as they go to the switch,
/// which takes a fraction of the room of what they are made from.
#[derive(Debug)]
pub struct Changes {
    owner: Owner,
    events: Vec<Event>,
}

impl Changes {
    /// No changes yet.
    #[must_use]
    pub fn of(owner: Owner) -> Self {
        Self { owner, events: Vec::new() }
    }

    /// This, and only this, is wanted under the key; nothing at all if there is none.
    pub fn set(&mut self, key: &str, intents: Vec<Intent>) {
        let (owner, key) = (self.owner, Arc::<str>::from(key));
        self.events.push(if intents.is_empty() {
            Event::Remove { owner, key }
        } else {
            let intents = EncodedIntents::new(owner, &key, intents);
            Event::Set { owner, key, intents }
        });
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

/// Numbers of the ports that this connection heard of, by name.
type Ports = BTreeMap<String, OfPort>;

/// A bridge. Clones share it; it is kept until the last one is dropped.
#[derive(Clone, Debug)]
pub struct Bridge {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    command_tx: mpsc::UnboundedSender<Command>,
    state_rx: watch::Receiver<Arc<BridgeState>>,
    ports_rx: watch::Receiver<Ports>,
    packets: Packets,
    next_barrier: AtomicU64,
}

impl Bridge {
    /// Begins to keep a bridge. Returns at once; connects, and connects again, in the background.
    ///
    /// Must be called on a tokio runtime.
    #[must_use]
    pub fn start(config: BridgeConfig) -> Self {
        let (command_tx, command_rx) = mpsc::unbounded_channel();
        let (state_tx, state_rx) = watch::channel(Arc::new(BridgeState::default()));
        let (ports_tx, ports_rx) = watch::channel(Ports::new());
        let packets = Packets::start(&config);
        tokio::spawn(run::run(config, command_rx, state_tx, ports_tx));
        let next_barrier = AtomicU64::new(0);
        Self { inner: Arc::new(Inner { command_tx, state_rx, ports_rx, packets, next_barrier }) }
    }

    /// This, and only this, is wanted under the key from now on. Only the difference is sent.
    pub fn set(&self, owner: Owner, key: &str, intents: Vec<Intent>) {
        let key: Arc<str> = key.into();
        let intents = EncodedIntents::new(owner, &key, intents);
        self.command(Event::Set { owner, key, intents });
    }

    /// Nothing is wanted under the key any more.
    pub fn remove(&self, owner: Owner, key: &str) {
        self.command(Event::Remove { owner, key: key.into() });
    }

    /// Like [`Bridge::set`] for several keys whose flows have to change together: they are never
    /// sent apart from each other. A key without intents is removed.
    pub fn set_all(&self, owner: Owner, changes: impl IntoIterator<Item = (String, Vec<Intent>)>) {
        let mut all = Changes::of(owner);
        changes.into_iter().for_each(|(key, intents)| all.set(&key, intents));
        self.change(all);
    }

    /// Like [`Bridge::set_all`], with what was collected before.
    pub fn change(&self, changes: Changes) {
        if !changes.events.is_empty() {
            // Fails only when the task ended, which it does not before the last clone is gone.
            let _ = self.inner.command_tx.send(Command::Events(changes.events));
        }
    }

    /// An owner that was not in the configuration takes part in the first sync.
    pub fn register(&self, owner: Owner) {
        self.command(Event::Register(owner));
    }

    /// The owner has set all that it wants of what there was before it started.
    pub fn synced(&self, owner: Owner) {
        self.command(Event::Synced(owner));
    }

    /// Waits until all that was set or removed before is on the switch. Waits for a connection
    /// as long as it takes.
    pub async fn barrier(&self) -> Result<(), BarrierError> {
        self.wait(None).await
    }

    /// Like [`Bridge::barrier`], but fails only for what this key wants.
    pub async fn barrier_for(&self, owner: Owner, key: &str) -> Result<(), BarrierError> {
        self.wait(Some((owner, key.into()))).await
    }

    async fn wait(&self, scope: Option<(Owner, Arc<str>)>) -> Result<(), BarrierError> {
        let id = self.inner.next_barrier.fetch_add(1, Ordering::Relaxed);
        let (reply_tx, reply_rx) = oneshot::channel();
        let command = Command::Barrier { id, scope, reply_tx };
        self.inner.command_tx.send(command).map_err(|_| BarrierError::Closed)?;
        match reply_rx.await {
            Ok(refusals) if refusals.is_empty() => Ok(()),
            Ok(refusals) => Err(BarrierError::Refused(refusals)),
            Err(_) => Err(BarrierError::Closed),
        }
    }

    /// Reads from the switch which of the flows that are wanted under a key it holds now, by table,
    /// priority and match.
    ///
    /// # Errors
    /// At once when there is no connection.
    pub async fn flows_of(&self, owner: Owner, key: &str) -> Result<Vec<Flow>, ReadError> {
        let (reply_tx, reply_rx) = oneshot::channel();
        let command = Command::FlowsOf { owner, key: key.into(), reply_tx };
        self.inner.command_tx.send(command).map_err(|_| ReadError::Closed)?;
        reply_rx.await.map_err(|_| ReadError::Closed)?
    }

    /// Reads from the switch all flows of ours with the owner's cookie, wanted or not: what an
    /// earlier process left.
    ///
    /// # Errors
    /// At once when there is no connection.
    pub async fn flows_on_switch(&self, owner: Owner) -> Result<Vec<Flow>, ReadError> {
        let (reply_tx, reply_rx) = oneshot::channel();
        let command = Command::FlowsOnSwitch { owner, reply_tx };
        self.inner.command_tx.send(command).map_err(|_| ReadError::Closed)?;
        reply_rx.await.map_err(|_| ReadError::Closed)?
    }

    /// Reads from the switch all flows of ours in a table with the owner's cookie, with their
    /// counters, and hands each on as it comes.
    ///
    /// # Errors
    /// At once when there is no connection.
    pub async fn read_counters(
        &self,
        owner: Owner,
        table: TableId,
        take: impl FnMut(FlowStats) + Send + 'static,
    ) -> Result<(), ReadError> {
        let (reply_tx, reply_rx) = oneshot::channel();
        let command =
            Command::ReadCounters { owner, table, take: TakeCounters(Box::new(take)), reply_tx };
        self.inner.command_tx.send(command).map_err(|_| ReadError::Closed)?;
        reply_rx.await.map_err(|_| ReadError::Closed)?
    }

    /// Follows the state.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Arc<BridgeState>> {
        self.inner.state_rx.clone()
    }

    /// Waits until the switch says that it has a port of this name and number, as long as it
    /// takes. It says so when the port is added or changed, in a third of the time in which the
    /// number comes to be in the database; of ports that are older than the connection it says
    /// nothing.
    pub async fn port_added(&self, name: &str, port: OfPort) {
        let mut ports_rx = self.inner.ports_rx.clone();
        let added = ports_rx.wait_for(|ports| ports.get(name) == Some(&port)).await.is_ok();
        if !added {
            // The bridge is not kept any more.
            std::future::pending::<()>().await;
        }
    }

    /// Packets that controller actions send from now on. Each call gets its own copy of all; a
    /// receiver that does not keep up loses packets.
    #[must_use]
    pub fn packet_ins(&self) -> mpsc::Receiver<PacketIn> {
        self.inner.packets.subscribe(None)
    }

    /// Like [`Bridge::packet_ins`], but only packets whose user data begin with this byte: a storm
    /// of others fills no queue of theirs.
    #[must_use]
    pub fn packet_ins_of(&self, kind: u8) -> mpsc::Receiver<PacketIn> {
        self.inner.packets.subscribe(Some(kind))
    }

    /// Lets a packet that a flow paused go on where it was.
    ///
    /// # Errors
    /// At once when there is no connection.
    pub async fn resume(&self, packet: PacketIn) -> Result<(), PacketOutError> {
        self.inner.packets.resume(packet).await
    }

    /// How many packets came, and how many of them were lost because nobody took them in time.
    #[must_use]
    pub fn packet_counts(&self) -> PacketCounts {
        self.inner.packets.counts()
    }

    /// Sends a packet.
    pub async fn packet_out(&self, packet: PacketOut) -> Result<(), PacketOutError> {
        self.inner.packets.send(packet).await
    }

    fn command(&self, event: Event) {
        // Fails only when the task ended, which it does not before the last clone is gone.
        let _ = self.inner.command_tx.send(Command::Event(event));
    }
}
