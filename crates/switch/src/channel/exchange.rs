//! Requests and what the switch says about them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use openflow::{Message, Xid};
use tokio::sync::mpsc;

use super::ChannelError;

/// The exchanges under way on one connection, by their first transaction id.
#[derive(Debug, Default)]
pub(super) struct Pending {
    exchanges: Mutex<BTreeMap<u32, Waiting>>,
    /// Set once: the connection is gone.
    closed: AtomicBool,
}

#[derive(Debug)]
struct Waiting {
    n: u32,
    answer_tx: mpsc::UnboundedSender<(usize, Message)>,
    /// Whether all of it was handed to the writer.
    sent: bool,
    /// Whether the last answer came.
    answered: bool,
}

impl Waiting {
    fn is_awaited(&self) -> bool {
        self.sent && !self.answered
    }
}

/// Messages sent together, and the switch's answers to any of them.
#[derive(Debug)]
pub(crate) struct Exchange {
    first: u32,
    n: u32,
    write_tx: mpsc::Sender<Bytes>,
    answer_rx: mpsc::UnboundedReceiver<(usize, Message)>,
    pending: Arc<Pending>,
    sent: bool,
    done: bool,
}

impl Pending {
    pub(super) fn begin(
        self: &Arc<Self>,
        first: u32,
        n: u32,
        write_tx: mpsc::Sender<Bytes>,
    ) -> Exchange {
        let (answer_tx, answer_rx) = mpsc::unbounded_channel();
        self.with(|exchanges| {
            exchanges.insert(first, Waiting { n, answer_tx, sent: false, answered: false })
        });
        if self.closed.load(Ordering::SeqCst) {
            self.with(|exchanges| exchanges.remove(&first));
        }
        let pending = Arc::clone(self);
        Exchange { first, n, write_tx, answer_rx, pending, sent: false, done: false }
    }

    /// Gives an answer to the exchange it belongs to, or back to the caller.
    pub(super) fn deliver(&self, xid: Xid, message: Message) -> Option<Message> {
        self.with(|exchanges| {
            let found = exchanges
                .range_mut(..=xid.0)
                .next_back()
                .filter(|(first, waiting)| xid.0 - **first < waiting.n)
                .map(|(first, waiting)| ((xid.0 - *first) as usize, waiting));
            match found {
                Some((index, waiting)) => {
                    waiting.answered |= is_last(index, waiting.n, &message);
                    // Nobody waits any more: the answer is of no use to anybody else either.
                    let _ = waiting.answer_tx.send((index, message));
                    None
                }
                None => Some(message),
            }
        })
    }

    /// The exchanges whose messages are all on their way and whose last answer is still to come.
    pub(super) fn awaited(&self) -> Vec<u32> {
        let awaited = |(first, waiting): (&u32, &Waiting)| waiting.is_awaited().then_some(*first);
        self.with(|exchanges| exchanges.iter().filter_map(awaited).collect())
    }

    /// Whether the last answer to the exchange is still to come.
    pub(super) fn is_awaited(&self, first: u32) -> bool {
        self.with(|exchanges| exchanges.get(&first).is_some_and(Waiting::is_awaited))
    }

    fn mark_sent(&self, first: u32) {
        self.with(|exchanges| {
            if let Some(waiting) = exchanges.get_mut(&first) {
                waiting.sent = true;
            }
        });
    }

    /// Ends all exchanges: nothing will be answered any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.with(BTreeMap::clear);
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<u32, Waiting>) -> T) -> T {
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut exchanges)
    }
}

impl Exchange {
    /// Transaction id of message `index`.
    #[must_use]
    pub(crate) fn xid(&self, index: usize) -> Xid {
        Xid(self.first + u32::try_from(index).unwrap_or(self.n).min(self.n.saturating_sub(1)))
    }

    /// Sends bytes: any number of whole messages with ids of this exchange.
    pub(crate) async fn send(&self, bytes: Bytes) -> Result<(), ChannelError> {
        self.write_tx.send(bytes).await.map_err(|_| ChannelError::Closed)
    }

    /// The next thing the switch says, with the index of the message it is about; none after the
    /// last message was answered.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Message)>, ChannelError> {
        if self.done {
            return Ok(None);
        }
        // Whoever listens has sent what there is to send.
        if !std::mem::replace(&mut self.sent, true) {
            self.pending.mark_sent(self.first);
        }
        let (index, message) = self.answer_rx.recv().await.ok_or(ChannelError::Closed)?;
        self.done = is_last(index, self.n, &message);
        Ok(Some((index, message)))
    }
}

/// Whether an answer is the last one of an exchange of `n` messages.
fn is_last(index: usize, n: u32, answer: &Message) -> bool {
    let more = matches!(answer, Message::MultipartReply(part) if part.more);
    index + 1 == n as usize && !more
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.pending.with(|exchanges| exchanges.remove(&self.first));
    }
}
