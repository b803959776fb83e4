//! The connection for packet-ins and packet-outs.

use std::path::PathBuf;
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

type Subscribers = Arc<Mutex<Vec<mpsc::Sender<PacketIn>>>>;

/// The connection, its receivers and its way in.
#[derive(Debug)]
pub(super) struct Packets {
    subscribers: Subscribers,
    channel_rx: watch::Receiver<Option<Channel>>,
}

impl Packets {
    pub(super) fn start(config: &BridgeConfig) -> Self {
        let subscribers = Subscribers::default();
        let (channel_tx, channel_rx) = watch::channel(None);
        if let Some(controller_id) = config.controller_id {
            tokio::spawn(run(
                config.mgmt_socket.clone(),
                Purpose::PacketIn { controller_id },
                config.timing,
                Arc::clone(&subscribers),
                channel_tx,
            ));
        }
        Self { subscribers, channel_rx }
    }

    pub(super) fn subscribe(&self) -> mpsc::Receiver<PacketIn> {
        let (packet_tx, packet_rx) = mpsc::channel(BACKLOG);
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner).push(packet_tx);
        packet_rx
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
}

/// Connects and hands packets out until the bridge is not kept any more.
async fn run(
    socket: PathBuf,
    purpose: Purpose,
    timing: ChannelTiming,
    subscribers: Subscribers,
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
                channel_tx.send_replace(Some(channel));
                let mut n_lost: u64 = 0;
                loop {
                    let message = tokio::select! {
                        message = async_rx.recv() => message,
                        () = channel_tx.closed() => return,
                    };
                    match message {
                        Some(Message::PacketIn(packet)) => {
                            let before = n_lost;
                            n_lost += hand_out(&subscribers, &packet);
                            if n_lost > before && n_lost.is_power_of_two() {
                                warn!(n_lost, "packet-ins come faster than they are taken");
                            }
                        }
                        Some(Message::Error(error)) => {
                            debug!(code = %error.code, "packet-out refused");
                        }
                        Some(_) => {}
                        None => break,
                    }
                }
                channel_tx.send_replace(None);
            }
            Err(error) => log_once(&mut last_error, &error, "connect to the switch for packets"),
        }
        tokio::select! {
            () = sleep(RECONNECT_PAUSE) => {}
            () = channel_tx.closed() => return,
        }
    }
}

/// Gives the packet to every receiver. Returns how many had no room.
fn hand_out(subscribers: &Subscribers, packet: &PacketIn) -> u64 {
    let mut n_lost = 0;
    let mut subscribers = subscribers.lock().unwrap_or_else(PoisonError::into_inner);
    subscribers.retain(|packet_tx| match packet_tx.try_send(packet.clone()) {
        Ok(()) => true,
        Err(mpsc::error::TrySendError::Full(_)) => {
            n_lost += 1;
            true
        }
        Err(mpsc::error::TrySendError::Closed(_)) => false,
    });
    n_lost
}
