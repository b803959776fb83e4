//! One OpenFlow 1.5 connection to a bridge's management socket.
//!
//! A reader and a writer task own the socket. Requests are matched to what they give by
//! transaction id: an [`Exchange`] takes a range of ids, sends any number of messages with them,
//! and gets back whatever the switch says about any of them until the last one is answered.
//! Everything else that arrives is asynchronous and goes to the receiver handed out by
//! [`Channel::connect`]. Echoes are answered and sent here.
//!
//! A channel does not reconnect: what was in flight is unknown after a loss, and its user
//! (`crate::bridge`) has to look at the switch again anyway.
//!
//! Not here: what to send (`crate::reconcile`).

mod exchange;
mod io;
mod watchdog;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use openflow::message::{
    AsyncConfig, Descriptions, ErrorCode, Features, Hello, MultipartBody, MultipartRequest,
    PacketInFormat, SwitchConfig,
};
use openflow::{DecodeError, EncodeError, Group, GroupId, Message, Meter, MeterId, Xid};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub(crate) use exchange::Exchange;
use exchange::Pending;

/// Asynchronous messages that may wait for their receiver; more are dropped.
const ASYNC_BACKLOG: usize = 4096;
/// A port was added, deleted, modified: one bit each.
const ALL_PORT_REASONS: u32 = 0b111;
/// Chunks of bytes that may wait to be written.
const WRITE_BACKLOG: usize = 32;

/// How patient a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelTiming {
    /// How long connecting and the first exchanges may take.
    pub setup_deadline: Duration,
    /// Silence after which the switch is probed, and after which an unanswered probe makes it
    /// silent. As often it is looked whether a request was left without its answer.
    pub probe_interval: Duration,
    /// Probes without any answer after which the connection is given up. A busy switch answers
    /// late: it takes ten seconds over a large bundle on a slow machine.
    pub max_probes: u32,
}

impl Default for ChannelTiming {
    fn default() -> Self {
        Self {
            setup_deadline: Duration::from_secs(10),
            probe_interval: Duration::from_millis(1500),
            max_probes: 20,
        }
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Flows, groups, meters; hears of removed flows and of ports, and never of packets.
    Programming,
    /// Packets from controller actions that name this controller id; hears of nothing else.
    PacketIn {
        /// The controller id.
        controller_id: u16,
    },
}

/// How a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    /// The switch speaks.
    Answers,
    /// The switch has not answered the last probe yet: it is busy, stopped or dead.
    Silent,
    /// The connection is no longer there.
    Closed,
}

/// Why a connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The socket failed.
    #[error("OpenFlow socket")]
    Io(#[from] std::io::Error),
    /// The switch closed the connection, or it was given up.
    #[error("OpenFlow connection closed")]
    Closed,
    /// The switch was silent for too long.
    #[error("no answer from the switch within {0:?}")]
    Timeout(Duration),
    /// The switch answered what was sent after a request, but not the request: an answer, or the
    /// request, is lost.
    #[error("the switch left a request without an answer")]
    Unanswered,
    /// The switch speaks another version.
    #[error("switch does not speak OpenFlow 1.5")]
    Version,
    /// The switch refused a request.
    #[error("switch refused {what}: {code}")]
    Refused {
        /// The request.
        what: &'static str,
        /// What is wrong with it.
        code: ErrorCode,
    },
    /// The switch answered something else than was asked.
    #[error("unexpected answer to {0}")]
    Unexpected(&'static str),
    /// A message cannot be put on the wire.
    #[error("encode message")]
    Encode(#[from] EncodeError),
    /// Bytes from the switch are not understood.
    #[error("decode message")]
    Decode(#[from] DecodeError),
}

/// A connection. Clones share it; it closes with the last one.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    write_tx: mpsc::Sender<Bytes>,
    pending: Arc<Pending>,
    next_xid: AtomicU32,
    condition_rx: watch::Receiver<Condition>,
    close: CancellationToken,
    n_dropped: Arc<AtomicU64>,
    features: Features,
}

impl Channel {
    /// Connects, agrees on the version, and sets the connection up for its purpose. The receiver
    /// gets every message that answers no request.
    pub(crate) async fn connect(
        socket: &Path,
        purpose: Purpose,
        timing: ChannelTiming,
    ) -> Result<(Self, mpsc::Receiver<Message>), ChannelError> {
        timeout(timing.setup_deadline, Self::set_up(socket, purpose, timing))
            .await
            .map_err(|_| ChannelError::Timeout(timing.setup_deadline))?
    }

    async fn set_up(
        socket: &Path,
        purpose: Purpose,
        timing: ChannelTiming,
    ) -> Result<(Self, mpsc::Receiver<Message>), ChannelError> {
        let stream = UnixStream::connect(socket).await?;
        let (write_tx, write_rx) = mpsc::channel(WRITE_BACKLOG);
        let (async_tx, mut async_rx) = mpsc::channel(ASYNC_BACKLOG);
        let (condition_tx, condition_rx) = watch::channel(Condition::Answers);
        let pending = Arc::new(Pending::default());
        let n_dropped = Arc::new(AtomicU64::new(0));
        let close = CancellationToken::new();
        write_tx
            .send(Message::Hello(Hello::openflow15()).encode(Xid(1))?)
            .await
            .map_err(|_| ChannelError::Closed)?;
        let inbound = io::Inbound {
            write_tx: write_tx.downgrade(),
            pending: Arc::clone(&pending),
            async_tx,
            condition_tx,
            n_dropped: Arc::clone(&n_dropped),
            timing,
        };
        tokio::spawn(io::run(stream, write_rx, inbound, close.clone()));
        match async_rx.recv().await {
            Some(Message::Hello(hello)) if hello.speaks_openflow15() => {}
            Some(Message::Hello(_) | Message::Error(_)) => return Err(ChannelError::Version),
            Some(_) => return Err(ChannelError::Unexpected("hello")),
            None => return Err(ChannelError::Closed),
        }
        let features = Features {
            datapath_id: 0,
            n_buffers: 0,
            n_tables: 0,
            auxiliary_id: 0,
            capabilities: 0,
        };
        let next_xid = AtomicU32::new(16);
        let mut inner =
            Inner { write_tx, pending, next_xid, condition_rx, close, n_dropped, features };
        // The features are asked through a channel that does not know them yet.
        let early = Self { inner: Arc::new(inner) };
        let features = match early.request(&Message::FeaturesRequest, "features").await? {
            Message::FeaturesReply(features) => features,
            _ => return Err(ChannelError::Unexpected("features request")),
        };
        inner = Arc::into_inner(early.inner).ok_or(ChannelError::Closed)?;
        inner.features = features;
        let channel = Self { inner: Arc::new(inner) };
        channel.configure(purpose).await?;
        Ok((channel, async_rx))
    }

    /// A service connection hears nothing asynchronous until it sets a miss length; what it then
    /// hears, the asynchronous configuration says.
    async fn configure(&self, purpose: Purpose) -> Result<(), ChannelError> {
        let config = |miss_send_len| Message::SetConfig(SwitchConfig { flags: 0, miss_send_len });
        let messages = match purpose {
            Purpose::Programming => {
                let port_status_master = Some(ALL_PORT_REASONS);
                let wanted = AsyncConfig { port_status_master, ..AsyncConfig::flow_removed_only() };
                vec![Message::SetAsync(wanted), config(128)]
            }
            Purpose::PacketIn { controller_id } => vec![
                Message::SetControllerId(controller_id),
                Message::SetPacketInFormat(PacketInFormat::Nxt2),
                Message::SetAsync(AsyncConfig::packet_ins_only()),
                config(0xffff),
            ],
        };
        let mut exchange = self.exchange(messages.len() + 1);
        for (index, message) in messages.iter().chain([&Message::BarrierRequest]).enumerate() {
            exchange.send(message.encode(exchange.xid(index))?).await?;
        }
        while let Some((_, answer)) = exchange.next().await? {
            if let Message::Error(error) = answer {
                return Err(ChannelError::Refused { what: "connection set-up", code: error.code });
            }
        }
        Ok(())
    }

    /// What the switch said it is.
    #[must_use]
    pub(crate) fn features(&self) -> Features {
        self.inner.features
    }

    /// Follows how the connection is. The sender goes away with it.
    #[must_use]
    pub(crate) fn condition(&self) -> watch::Receiver<Condition> {
        self.inner.condition_rx.clone()
    }

    /// How many asynchronous messages were dropped because they were not taken in time.
    #[must_use]
    pub(crate) fn n_dropped(&self) -> u64 {
        self.inner.n_dropped.load(Ordering::Relaxed)
    }

    /// Closes the connection for everybody.
    pub(crate) fn close(&self) {
        self.inner.close.cancel();
    }

    /// Begins an exchange of `n` messages, the last of which the switch answers.
    #[must_use]
    pub(crate) fn exchange(&self, n: usize) -> Exchange {
        let n = u32::try_from(n.max(1)).unwrap_or(u32::MAX / 2);
        let first = loop {
            let first = self.inner.next_xid.fetch_add(n, Ordering::Relaxed);
            // Ids near the wrap are left out, and 0 with them: the switch uses it by itself.
            if first >= 16 && first.checked_add(n).is_some() {
                break first;
            }
        };
        self.inner.pending.begin(first, n, self.inner.write_tx.clone())
    }

    /// Sends a message that needs no answer.
    pub(crate) async fn send(&self, message: &Message) -> Result<(), ChannelError> {
        let xid = Xid(self.inner.next_xid.fetch_add(1, Ordering::Relaxed).max(16));
        self.inner.write_tx.send(message.encode(xid)?).await.map_err(|_| ChannelError::Closed)
    }

    /// Sends a request and waits for its one answer.
    pub(crate) async fn request(
        &self,
        message: &Message,
        what: &'static str,
    ) -> Result<Message, ChannelError> {
        let mut exchange = self.exchange(1);
        exchange.send(message.encode(exchange.xid(0))?).await?;
        match exchange.next().await? {
            Some((_, Message::Error(error))) => {
                Err(ChannelError::Refused { what, code: error.code })
            }
            Some((_, answer)) => Ok(answer),
            None => Err(ChannelError::Unexpected(what)),
        }
    }

    /// Asks for a list and hands each part to `each`.
    pub(crate) async fn multipart(
        &self,
        request: MultipartRequest,
        what: &'static str,
        mut each: impl FnMut(MultipartBody) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        let mut exchange = self.exchange(1);
        exchange.send(Message::MultipartRequest(request).encode(exchange.xid(0))?).await?;
        while let Some((_, answer)) = exchange.next().await? {
            match answer {
                Message::MultipartReply(part) => each(part.body)?,
                Message::Error(error) => {
                    return Err(ChannelError::Refused { what, code: error.code });
                }
                _ => return Err(ChannelError::Unexpected(what)),
            }
        }
        Ok(())
    }

    /// All groups.
    pub(crate) async fn dump_groups(
        &self,
    ) -> Result<Vec<Descriptions<Group, GroupId>>, ChannelError> {
        let mut all = Vec::new();
        let request = MultipartRequest::Groups(GroupId::ALL);
        self.multipart(request, "group dump", |body| match body {
            MultipartBody::Groups(groups) => {
                all.push(groups);
                Ok(())
            }
            _ => Err(ChannelError::Unexpected("group dump")),
        })
        .await?;
        Ok(all)
    }

    /// The numbers of all groups: for when the switch cannot tell more of one of them.
    pub(crate) async fn group_numbers(&self) -> Result<Vec<GroupId>, ChannelError> {
        let mut all = Vec::new();
        let request = MultipartRequest::GroupStats(GroupId::ALL);
        self.multipart(request, "group statistics", |body| match body {
            MultipartBody::GroupStats(groups) => {
                all.extend(groups.iter().map(|stats| stats.group));
                Ok(())
            }
            _ => Err(ChannelError::Unexpected("group statistics")),
        })
        .await?;
        Ok(all)
    }

    /// All meters.
    pub(crate) async fn dump_meters(
        &self,
    ) -> Result<Vec<Descriptions<Meter, MeterId>>, ChannelError> {
        let mut all = Vec::new();
        let request = MultipartRequest::Meters(MeterId::ALL);
        self.multipart(request, "meter dump", |body| match body {
            MultipartBody::Meters(meters) => {
                all.push(meters);
                Ok(())
            }
            _ => Err(ChannelError::Unexpected("meter dump")),
        })
        .await?;
        Ok(all)
    }
}
