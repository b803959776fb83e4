//! The tasks that own a connection's socket.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openflow::{Framer, Message, Xid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::exchange::Pending;
use super::{ChannelError, Condition};

/// Silence after which the switch is probed, and after which an unanswered probe makes it silent.
const PROBE_INTERVAL: Duration = Duration::from_millis(1500);
/// Probes without any answer after which the connection is given up. A busy switch answers late:
/// it takes ten seconds over a large bundle on a slow machine.
const MAX_PROBES: u32 = 20;
/// Most bytes read at once.
const READ_SIZE: usize = 256 << 10;

/// Reads and writes until either side ends, then says so to everybody who waits.
pub(super) async fn run(
    stream: UnixStream,
    write_rx: mpsc::Receiver<Bytes>,
    write_tx: mpsc::WeakSender<Bytes>,
    pending: Arc<Pending>,
    async_tx: mpsc::Sender<Message>,
    condition_tx: watch::Sender<Condition>,
    close: CancellationToken,
) {
    let (reader, writer) = stream.into_split();
    let outcome = tokio::select! {
        outcome = read(reader, &write_tx, &pending, &async_tx, &condition_tx) => outcome,
        outcome = write(writer, write_rx) => outcome,
        () = close.cancelled() => Ok(()),
    };
    if let Err(error) = outcome {
        debug!(error = crate::error_chain(&error), "OpenFlow connection ended");
    }
    pending.close();
    condition_tx.send_replace(Condition::Closed);
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
async fn read(
    mut reader: OwnedReadHalf,
    write_tx: &mpsc::WeakSender<Bytes>,
    pending: &Pending,
    async_tx: &mpsc::Sender<Message>,
    condition_tx: &watch::Sender<Condition>,
) -> Result<(), ChannelError> {
    let mut framer = Framer::new();
    let mut n_probes = 0;
    let mut n_dropped: u64 = 0;
    loop {
        framer.buffer_mut().reserve(READ_SIZE);
        let n = match timeout(PROBE_INTERVAL, reader.read_buf(framer.buffer_mut())).await {
            Ok(n) => n?,
            Err(_) if n_probes == MAX_PROBES => {
                return Err(ChannelError::Timeout(PROBE_INTERVAL * MAX_PROBES));
            }
            Err(_) => {
                if n_probes > 0 {
                    tell(condition_tx, Condition::Silent);
                }
                n_probes += 1;
                reply(write_tx, &Message::EchoRequest(Bytes::new()), Xid(2))?;
                continue;
            }
        };
        if n == 0 {
            return Err(ChannelError::Closed);
        }
        n_probes = 0;
        tell(condition_tx, Condition::Answers);
        while let Some(bytes) = framer.next_message()? {
            let (xid, message) = Message::decode(&bytes)?;
            match message {
                Message::EchoRequest(data) => reply(write_tx, &Message::EchoReply(data), xid)?,
                Message::EchoReply(_) if xid == Xid(2) => {}
                message => {
                    let Some(message) = pending.deliver(xid, message) else { continue };
                    match async_tx.try_send(message) {
                        Ok(()) => {}
                        Err(mpsc::error::TrySendError::Full(_)) => {
                            n_dropped += 1;
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
