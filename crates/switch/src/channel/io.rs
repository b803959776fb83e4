//! The tasks that own a connection's socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use openflow::{Framer, Message, Xid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout_at;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::exchange::Pending;
use super::watchdog::{Look, PROBE_XID, Watchdog};
use super::{ChannelError, ChannelTiming, Condition};

/// Most bytes read at once.
const READ_SIZE: usize = 256 << 10;

/// Where what arrives goes, and how the connection is watched.
pub(super) struct Inbound {
    /// For echoes.
    pub(super) write_tx: mpsc::WeakSender<Bytes>,
    /// For answers.
    pub(super) pending: Arc<Pending>,
    /// For everything else.
    pub(super) async_tx: mpsc::Sender<Message>,
    /// How the connection is.
    pub(super) condition_tx: watch::Sender<Condition>,
    /// Counts what nobody took in time.
    pub(super) n_dropped: Arc<AtomicU64>,
    pub(super) timing: ChannelTiming,
}

/// Reads and writes until either side ends, then says so to everybody who waits.
pub(super) async fn run(
    stream: UnixStream,
    write_rx: mpsc::Receiver<Bytes>,
    inbound: Inbound,
    close: CancellationToken,
) {
    let (reader, writer) = stream.into_split();
    let outcome = tokio::select! {
        outcome = read(reader, &inbound) => outcome,
        outcome = write(writer, write_rx) => outcome,
        () = close.cancelled() => Ok(()),
    };
    if let Err(error) = outcome {
        debug!(error = crate::error_chain(&error), "OpenFlow connection ended");
    }
    inbound.pending.close();
    inbound.condition_tx.send_replace(Condition::Closed);
}

/// Writes until nobody can send any more.
async fn write(
    mut writer: OwnedWriteHalf,
    mut write_rx: mpsc::Receiver<Bytes>,
) -> Result<(), ChannelError> {
    while let Some(bytes) = write_rx.recv().await {
        writer.write_all(&bytes).await?;
    }
    Ok(())
}

/// Reads and hands out messages until the connection ends.
async fn read(mut reader: OwnedReadHalf, inbound: &Inbound) -> Result<(), ChannelError> {
    let Inbound { write_tx, pending, async_tx, condition_tx, n_dropped, timing } = inbound;
    let mut framer = Framer::new();
    let mut watchdog = Watchdog::new(*timing);
    loop {
        framer.buffer_mut().reserve(READ_SIZE);
        match timeout_at(watchdog.due(), reader.read_buf(framer.buffer_mut())).await {
            Ok(Ok(0)) => return Err(ChannelError::Closed),
            Ok(n) => {
                n?;
                watchdog.heard();
                tell(condition_tx, Condition::Answers);
            }
            Err(_) => {}
        }
        while let Some(bytes) = framer.next_message()? {
            let (xid, message) = Message::decode(&bytes).inspect_err(|error| {
                let error = crate::error_chain(error);
                warn!(error, "a message of the switch is not understood: connection given up");
            })?;
            match message {
                Message::EchoRequest(data) => reply(write_tx, &Message::EchoReply(data), xid)?,
                Message::EchoReply(data) if xid == PROBE_XID => {
                    watchdog.answered(&data, pending)?;
                }
                message => {
                    pending.has_room(xid, &message).await;
                    let Some(message) = pending.deliver(xid, message) else { continue };
                    match async_tx.try_send(message) {
                        Ok(()) => {}
                        Err(mpsc::error::TrySendError::Full(_)) => {
                            let n_dropped = n_dropped.fetch_add(1, Ordering::Relaxed) + 1;
                            if n_dropped.is_power_of_two() {
                                warn!(n_dropped, "asynchronous messages come faster than taken");
                            }
                        }
                        // Nobody listens; requests go on.
                        Err(mpsc::error::TrySendError::Closed(_)) => {}
                    }
                }
            }
        }
        match watchdog.look(pending)? {
            Look::Nothing => {}
            Look::Probe(probe) => reply(write_tx, &probe, PROBE_XID)?,
            Look::ProbeAgain(probe) => {
                tell(condition_tx, Condition::Silent);
                reply(write_tx, &probe, PROBE_XID)?;
            }
        }
    }
}

fn tell(condition_tx: &watch::Sender<Condition>, condition: Condition) {
    condition_tx.send_if_modified(|now| std::mem::replace(now, condition) != condition);
}

/// Sends a small message unless the writer is far behind: bytes flow then, and say enough.
fn reply(
    write_tx: &mpsc::WeakSender<Bytes>,
    message: &Message,
    xid: Xid,
) -> Result<(), ChannelError> {
    let write_tx = write_tx.upgrade().ok_or(ChannelError::Closed)?;
    let bytes = message.encode(xid)?;
    match write_tx.try_send(bytes) {
        Ok(()) | Err(mpsc::error::TrySendError::Full(_)) => Ok(()),
        Err(mpsc::error::TrySendError::Closed(_)) => Err(ChannelError::Closed),
    }
}
