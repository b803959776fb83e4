//! The connection for packet-ins and packet-outs.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openflow::Message;
use openflow::message::{PacketIn, PacketOut};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::BridgeConfig;
use super::run::log_once;
use crate::channel::{Channel, ChannelError, ChannelTiming, Purpose};

/// Packets that may wait for one receiver.
const BACKLOG: usize = 1024;
/// Pause between two tries to connect.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// How long a packet waits for a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a packet was not sent.
#[derive(Debug, thiserror::Error)]
pub enum PacketOutError {
    /// There is no connection for packets.
    #[error("no connection to the switch")]
    NotConnected,
    /// It could not be sent.
    #[error("send packet")]
    Channel(#[from] ChannelError),
}

/// Packets that controller actions sent, since the bridge is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PacketCounts {
    /// Packets that arrived from the switch.
    pub n_received: u64,
    /// Those of them that a receiver lost because it did not take them in time; one that two
    /// receivers lost counts twice.
    pub n_dropped: u64,
}

/// Counts of connections that are gone, and of what was handed out.
#[derive(Debug, Default)]
struct Counters {
    n_received: AtomicU64,
    n_dropped: AtomicU64,
}

/// Who gets packets.
#[derive(Debug)]
struct Subscriber {
    /// The first byte of user data that is of interest; without one all are.
    kind: Option<u8>,
    packet_tx: mpsc::Sender<PacketIn>,
}

type Subscribers = Arc<Mutex<Vec<Subscriber>>>;

/// The connection, its receivers and its way in.
#[derive(Debug)]
pub(super) struct Packets {
    subscribers: Subscribers,
    counters: Arc<Counters>,
    channel_rx: watch::Receiver<Option<Channel>>,
}

impl Packets {
    pub(super) fn start(config: &BridgeConfig) -> Self {
        let subscribers = Subscribers::default();
        let counters = Arc::new(Counters::default());
        let (channel_tx, channel_rx) = watch::channel(None);
        if let Some(controller_id) = config.controller_id {
            tokio::spawn(run(
                config.mgmt_socket.clone(),
                Purpose::PacketIn { controller_id },
                config.timing,
                Arc::clone(&subscribers),
                Arc::clone(&counters),
                channel_tx,
            ));
        }
        Self { subscribers, counters, channel_rx }
    }

    pub(super) fn subscribe(&self, kind: Option<u8>) -> mpsc::Receiver<PacketIn> {
        let (packet_tx, packet_rx) = mpsc::channel(BACKLOG);
        let subscriber = Subscriber { kind, packet_tx };
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(subscriber);
        packet_rx
    }

    pub(super) fn counts(&self) -> PacketCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Held while the counters are read: a connection that ends moves its count to them.
        let channel = self.channel_rx.borrow();
        let of_channel = channel.as_ref().map_or(0, Channel::n_dropped);
        PacketCounts {
            n_received: read(&self.counters.n_received) + of_channel,
            n_dropped: read(&self.counters.n_dropped) + of_channel,
        }
    }

    pub(super) async fn send(&self, packet: PacketOut) -> Result<(), PacketOutError> {
        let mut channel_rx = self.channel_rx.clone();
        let channel = match timeout(PATIENCE, channel_rx.wait_for(Option::is_some)).await {
            Ok(Ok(channel)) => channel.clone(),
            Ok(Err(_)) | Err(_) => None,
        };
        let channel = channel.ok_or(PacketOutError::NotConnected)?;
        Ok(channel.send(&Message::PacketOut(packet)).await?)
    }

    /// The switch that paused a packet before the connection went may be gone as well.
    pub(super) async fn resume(&self, packet: PacketIn) -> Result<(), PacketOutError> {
        let channel = self.channel_rx.borrow().clone();
        let channel = channel.ok_or(PacketOutError::NotConnected)?;
        Ok(channel.send(&Message::Resume(packet)).await?)
    }
}

/// Connects and hands packets out until the bridge is not kept any more.
async fn run(
    socket: PathBuf,
    purpose: Purpose,
    timing: ChannelTiming,
    subscribers: Subscribers,
    counters: Arc<Counters>,
    channel_tx: watch::Sender<Option<Channel>>,
) {
    let mut last_error = String::new();
    loop {
        let connected = tokio::select! {
            connected = Channel::connect(&socket, purpose, timing) => connected,
            () = channel_tx.closed() => return,
        };
        match connected {
            Ok((channel, mut async_rx)) => {
                last_error.clear();
                channel_tx.send_replace(Some(channel.clone()));
                loop {
                    let message = tokio::select! {
                        message = async_rx.recv() => message,
                        () = channel_tx.closed() => return,
                    };
                    match message {
                        Some(Message::PacketIn(packet)) => {
                            counters.n_received.fetch_add(1, Ordering::Relaxed);
                            hand_out(&subscribers, &packet, &counters.n_dropped);
                        }
                        Some(Message::Error(error)) => {
                            debug!(code = %error.code, "packet-out refused");
                        }
                        Some(_) => {}
                        None => break,
                    }
                }
                channel_tx.send_modify(|published| {
                    *published = None;
                    let n_dropped = channel.n_dropped();
                    counters.n_received.fetch_add(n_dropped, Ordering::Relaxed);
                    counters.n_dropped.fetch_add(n_dropped, Ordering::Relaxed);
                });
            }
            Err(error) => log_once(&mut last_error, &error, "connect to the switch for packets"),
        }
        tokio::select! {
            () = sleep(RECONNECT_PAUSE) => {}
            () = channel_tx.closed() => return,
        }
    }
}

/// Gives the packet to every receiver that has room for it.
fn hand_out(subscribers: &Subscribers, packet: &PacketIn, n_dropped: &AtomicU64) {
    let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
    let first = packet.userdata.first();
    subscribers.retain(|subscriber| {
        if subscriber.kind.is_some() && subscriber.kind.as_ref() != first {
            return !subscriber.packet_tx.is_closed();
        }
        match subscriber.packet_tx.try_send(packet.clone()) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                let n_dropped = n_dropped.fetch_add(1, Ordering::Relaxed) + 1;
                if n_dropped.is_power_of_two() {
                    warn!(n_dropped, "packet-ins come faster than they are taken");
                }
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    });
}
