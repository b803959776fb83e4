//! Requests and what the switch says about them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use openflow::{Message, Xid};
use tokio::sync::{Semaphore, mpsc};

use super::ChannelError;

/// Parts of a long answer that are decoded before they are taken. Decoded, a part is several times
/// its 64 KiB; and a switch with many flows is read from faster than its flows are compared.
const PARTS_AHEAD: usize = 4;

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
    /// Parts of answers that may come before earlier ones are taken; closed when nobody waits.
    room: Arc<Semaphore>,
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
    room: Arc<Semaphore>,
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
        let room = Arc::new(Semaphore::new(PARTS_AHEAD));
        let waiting =
            Waiting { n, answer_tx, room: Arc::clone(&room), sent: false, answered: false };
        self.with(|exchanges| exchanges.insert(first, waiting));
        if self.closed.load(Ordering::SeqCst) {
            self.with(|exchanges| exchanges.remove(&first));
        }
        let pending = Arc::clone(self);
        Exchange { first, n, write_tx, answer_rx, room, pending, sent: false, done: false }
    }

    /// Waits until whoever asked has taken enough of the parts of an answer that came before. What
    /// is no such part is never waited for: its sender may still be sending, and not listen yet.
    pub(super) async fn has_room(&self, xid: Xid, message: &Message) {
        if !matches!(message, Message::MultipartReply(_)) {
            return;
        }
        let room = self.with(|exchanges| {
            exchange_of(exchanges, xid).map(|(_, waiting)| Arc::clone(&waiting.room))
        });
        if let Some(room) = room
            && let Ok(permit) = room.acquire().await
        {
            // Given back when the part is taken.
            permit.forget();
        }
    }

    /// Gives an answer to the exchange it belongs to, or back to the caller.
    pub(super) fn deliver(&self, xid: Xid, message: Message) -> Option<Message> {
        self.with(|exchanges| {
            match exchange_of(exchanges, xid) {
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

/// The exchange that a transaction id is of, and which of its messages.
fn exchange_of(exchanges: &mut BTreeMap<u32, Waiting>, xid: Xid) -> Option<(usize, &mut Waiting)> {
    let (first, waiting) = exchanges.range_mut(..=xid.0).next_back()?;
    let index = xid.0 - *first;
    (index < waiting.n).then_some((index as usize, waiting))
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
        if matches!(message, Message::MultipartReply(_)) {
            self.room.add_permits(1);
        }
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
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use openflow::message::{FlowDump, MultipartBody, MultipartReply};
    use tokio::task::yield_now;

    use super::*;

    fn part(more: bool) -> Message {
        let body = MultipartBody::Flows(FlowDump::default());
        Message::MultipartReply(MultipartReply { body, more })
    }

    #[tokio::test]
    async fn parts_come_no_faster_than_they_are_taken() {
        let pending = Arc::new(Pending::default());
        let (write_tx, _write_rx) = mpsc::channel(1);
        let mut exchange = pending.begin(7, 1, write_tx);
        let reader = tokio::spawn({
            let pending = Arc::clone(&pending);
            async move {
                for n in 0..3 * PARTS_AHEAD {
                    let part = part(n + 1 < 3 * PARTS_AHEAD);
                    pending.has_room(Xid(7), &part).await;
                    assert!(pending.deliver(Xid(7), part).is_none());
                }
            }
        });
        for _ in 0..100 {
            yield_now().await;
        }
        assert_eq!(exchange.answer_rx.len(), PARTS_AHEAD);
        let mut n_taken = 0;
        while exchange.next().await.unwrap().is_some() {
            n_taken += 1;
            assert!(exchange.answer_rx.len() <= PARTS_AHEAD);
        }
        assert_eq!(n_taken, 3 * PARTS_AHEAD);
        reader.await.unwrap();
    }

    #[tokio::test]
    async fn nothing_waits_for_who_does_not_listen_any_more() {
        let pending = Arc::new(Pending::default());
        let (write_tx, _write_rx) = mpsc::channel(1);
        let exchange = pending.begin(7, 1, write_tx);
        for _ in 0..PARTS_AHEAD {
            pending.has_room(Xid(7), &part(true)).await;
            pending.deliver(Xid(7), part(true));
        }
        let late = tokio::spawn({
            let pending = Arc::clone(&pending);
            async move { pending.has_room(Xid(7), &part(true)).await }
        });
        yield_now().await;
        assert!(!late.is_finished());
        drop(exchange);
        late.await.unwrap();
        pending.has_room(Xid(7), &part(true)).await;
    }
}
