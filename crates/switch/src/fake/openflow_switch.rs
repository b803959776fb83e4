//! The fake switch behind a management socket.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use openflow::message::{
    BundleControl, BundleControlType, BundleId, ErrorCode, ErrorMessage, Features, FlowCounters,
    FlowDump, FlowFilter, FlowStats, GroupStats, Hello, MultipartBody, MultipartReply,
    MultipartRequest, PacketCount, PacketIn, PacketOut, TableStats,
};
use openflow::{Framer, GroupId, Message, MeterId, TableId, Xid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::faults::Cut;
use super::pipeline::Pipeline;

const BAD_REQUEST: ErrorCode = ErrorCode::new(1, 1);
const BAD_STATISTICS: ErrorCode = ErrorCode::new(1, 2);
const BUNDLE_BAD_ID: ErrorCode = ErrorCode::new(17, 2);
const BUNDLE_EXISTS: ErrorCode = ErrorCode::new(17, 3);
const BUNDLE_UNSUPPORTED: ErrorCode = ErrorCode::new(17, 8);
const BUNDLE_MESSAGE_FAILED: ErrorCode = ErrorCode::new(17, 13);
/// Flows in one part of a dump.
const PART: usize = 100;

/// A fake switch on a socket. Ends when dropped.
#[derive(Debug)]
pub struct FakeSwitch {
    socket: PathBuf,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    cut: Cut,
    generation: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    pipeline: Pipeline,
    packet_outs: Vec<PacketOut>,
    /// Connections that want packet-ins.
    listeners: Vec<mpsc::UnboundedSender<Bytes>>,
    n_changes: usize,
    refuse_priority: Option<u16>,
}

impl FakeSwitch {
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

    /// What it holds now.
    #[must_use]
    pub fn pipeline(&self) -> Pipeline {
        self.shared.lock().pipeline.clone()
    }

    /// Changes what it holds, as somebody beside us would.
    pub fn change(&self, act: impl FnOnce(&mut Pipeline)) {
        act(&mut self.shared.lock().pipeline);
    }

    /// Flow-mods, group-mods and meter-mods it was sent so far.
    #[must_use]
    pub fn n_changes(&self) -> usize {
        self.shared.lock().n_changes
    }

    /// Refuses flows of this priority from now on.
    pub fn refuse_priority(&self, priority: Option<u16>) {
        self.shared.lock().refuse_priority = priority;
    }

    /// Packets it was told to send.
    #[must_use]
    pub fn packet_outs(&self) -> Vec<PacketOut> {
        self.shared.lock().packet_outs.clone()
    }

    /// Sends a packet to every connection that wants some. Returns how many there are.
    pub fn send_packet_in(&self, packet: &PacketIn) -> usize {
        let Ok(bytes) = Message::PacketIn(packet.clone()).encode(Xid(0)) else { return 0 };
        let mut inner = self.shared.lock();
        inner.listeners.retain(|out_tx| out_tx.send(bytes.clone()).is_ok());
        inner.listeners.len()
    }

    /// Where to cut the connection.
    #[must_use]
    pub fn cut(&self) -> &Cut {
        &self.shared.cut
    }

    /// As when the daemon restarts: it holds nothing any more, and every connection is cut.
    pub fn restart(&self) {
        self.shared.lock().pipeline = Pipeline::default();
        self.disconnect();
    }

    /// Cuts every connection now.
    pub fn disconnect(&self) {
        self.shared.generation.send_modify(|generation| *generation += 1);
    }
}

impl Drop for FakeSwitch {
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

/// One connection.
struct Connection<'a> {
    shared: &'a Shared,
    out_tx: mpsc::UnboundedSender<Bytes>,
    bundles: BTreeMap<BundleId, Vec<(Xid, Message, Bytes)>>,
}

async fn serve(stream: UnixStream, shared: &Shared) -> io::Result<()> {
    let (mut reader, mut writer) = stream.into_split();
    let (out_tx, mut out_rx) = mpsc::unbounded_channel();
    let mut connection = Connection { shared, out_tx, bundles: BTreeMap::new() };
    connection.send(Xid(1), &Message::Hello(Hello::openflow15()))?;
    let mut framer = Framer::new();
    loop {
        tokio::select! {
            n = reader.read_buf(framer.buffer_mut()) => {
                if n? == 0 {
                    return Ok(());
                }
                while let Some(bytes) = framer.next_message().map_err(io::Error::other)? {
                    if shared.cut.is_now() {
                        return Ok(());
                    }
                    let (xid, message) = Message::decode(&bytes).map_err(io::Error::other)?;
                    if let Err(code) = connection.take(xid, message, &bytes)? {
                        connection.refuse(xid, code, &bytes)?;
                    }
                }
            }
            Some(bytes) = out_rx.recv() => writer.write_all(&bytes).await?,
        }
    }
}

impl Connection<'_> {
    fn send(&self, xid: Xid, message: &Message) -> io::Result<()> {
        let bytes = message.encode(xid).map_err(io::Error::other)?;
        self.out_tx.send(bytes).map_err(io::Error::other)
    }

    fn refuse(&self, xid: Xid, code: ErrorCode, request: &Bytes) -> io::Result<()> {
        let data = request.slice(..request.len().min(64));
        self.send(xid, &Message::Error(ErrorMessage { code, data }))
    }

    fn take(
        &mut self,
        xid: Xid,
        message: Message,
        bytes: &Bytes,
    ) -> io::Result<Result<(), ErrorCode>> {
        match message {
            Message::EchoRequest(data) => self.send(xid, &Message::EchoReply(data))?,
            Message::FeaturesRequest => {
                let features = Features {
                    datapath_id: 0xfa,
                    n_buffers: 0,
                    n_tables: 254,
                    auxiliary_id: 0,
                    capabilities: 0,
                };
                self.send(xid, &Message::FeaturesReply(features))?;
            }
            Message::BarrierRequest => self.send(xid, &Message::BarrierReply)?,
            Message::SetAsync(config) => {
                if config.packet_in_master.is_some_and(|mask| mask != 0) {
                    self.shared.lock().listeners.push(self.out_tx.clone());
                }
            }
            Message::PacketOut(packet) => self.shared.lock().packet_outs.push(packet),
            Message::BundleControl(control) => return self.control(xid, control),
            Message::BundleAdd(add) => {
                let supported = matches!(
                    &*add.message,
                    Message::FlowMod(_) | Message::GroupMod(_) | Message::PacketOut(_)
                );
                let Some(bundle) = self.bundles.get_mut(&add.bundle) else {
                    return Ok(Err(BUNDLE_BAD_ID));
                };
                if !supported {
                    return Ok(Err(BUNDLE_UNSUPPORTED));
                }
                bundle.push((xid, *add.message, bytes.clone()));
            }
            Message::MultipartRequest(request) => self.list(xid, &request)?,
            // The list of tables, which the codec does not know.
            message @ (Message::FlowMod(_) | Message::GroupMod(_) | Message::MeterMod(_)) => {
                let mut inner = self.shared.lock();
                let refused = inner.take_change(message);
                return Ok(refused);
            }
            Message::Hello(_)
            | Message::EchoReply(_)
            | Message::SetConfig(_)
            | Message::SetControllerId(_)
            | Message::SetPacketInFormat(_) => {}
            _ => return Ok(Err(BAD_REQUEST)),
        }
        Ok(Ok(()))
    }

    fn control(&mut self, xid: Xid, control: BundleControl) -> io::Result<Result<(), ErrorCode>> {
        let kind = match control.kind {
            BundleControlType::OpenRequest => {
                if self.bundles.insert(control.bundle, Vec::new()).is_some() {
                    return Ok(Err(BUNDLE_EXISTS));
                }
                BundleControlType::OpenReply
            }
            BundleControlType::CloseRequest => BundleControlType::CloseReply,
            BundleControlType::DiscardRequest => {
                self.bundles.remove(&control.bundle);
                BundleControlType::DiscardReply
            }
            BundleControlType::CommitRequest => {
                let Some(messages) = self.bundles.remove(&control.bundle) else {
                    return Ok(Err(BUNDLE_BAD_ID));
                };
                let mut inner = self.shared.lock();
                let before = inner.pipeline.clone();
                for (xid, message, bytes) in messages {
                    if let Err(code) = inner.take_change(message) {
                        inner.pipeline = before;
                        drop(inner);
                        self.refuse(xid, code, &bytes)?;
                        return Ok(Err(BUNDLE_MESSAGE_FAILED));
                    }
                }
                BundleControlType::CommitReply
            }
            _ => return Ok(Err(BAD_REQUEST)),
        };
        self.send(xid, &Message::BundleControl(BundleControl { kind, ..control }))?;
        Ok(Ok(()))
    }

    fn list(&self, xid: Xid, request: &MultipartRequest) -> io::Result<()> {
        let inner = self.shared.lock();
        let pipeline = &inner.pipeline;
        match request {
            MultipartRequest::Flows(filter) => {
                let all: Vec<FlowStats> = pipeline
                    .flows
                    .values()
                    .filter(|flow| is_listed(filter, flow))
                    .map(|flow| FlowStats { flow: flow.clone(), counters: FlowCounters::default() })
                    .collect();
                for part in all.chunks(PART) {
                    let flows = FlowDump { flows: part.to_vec(), undecoded: Vec::new() };
                    self.part(xid, true, MultipartBody::Flows(flows))?;
                }
                self.part(xid, false, MultipartBody::Flows(FlowDump::default()))
            }
            MultipartRequest::Groups(id) => {
                let wanted = |group: &&openflow::Group| *id == GroupId::ALL || group.id == *id;
                let groups: Vec<_> = pipeline.groups.values().filter(wanted).cloned().collect();
                self.part(xid, false, MultipartBody::Groups(groups.into()))
            }
            MultipartRequest::GroupStats(id) => {
                let wanted = |group: &&openflow::Group| *id == GroupId::ALL || group.id == *id;
                let stats = pipeline.groups.values().filter(wanted).map(|group| GroupStats {
                    group: group.id,
                    ref_count: 0,
                    total: PacketCount::default(),
                    duration: Duration::ZERO,
                    buckets: vec![PacketCount::default(); group.buckets.len()],
                });
                self.part(xid, false, MultipartBody::GroupStats(stats.collect()))
            }
            MultipartRequest::Meters(id) => {
                let wanted = |meter: &&openflow::Meter| *id == MeterId::ALL || meter.id == *id;
                let meters: Vec<_> = pipeline.meters.values().filter(wanted).cloned().collect();
                self.part(xid, false, MultipartBody::Meters(meters.into()))
            }
            MultipartRequest::Ports(_) => self.part(xid, false, MultipartBody::Ports(Vec::new())),
            MultipartRequest::Aggregate(filter) => {
                let n = pipeline.flows.values().filter(|flow| is_listed(filter, flow)).count();
                let flows = u32::try_from(n).unwrap_or(u32::MAX);
                let sum = openflow::message::Aggregate { packets: 0, bytes: 0, flows };
                self.part(xid, false, MultipartBody::Aggregate(sum))
            }
            MultipartRequest::TableStats => {
                drop(inner);
                self.list_tables(xid)
            }
            _ => {
                let error = ErrorMessage { code: BAD_STATISTICS, data: Bytes::new() };
                self.send(xid, &Message::Error(error))
            }
        }
    }

    fn list_tables(&self, xid: Xid) -> io::Result<()> {
        let inner = self.shared.lock();
        let mut counts: BTreeMap<TableId, u32> = BTreeMap::new();
        for key in inner.pipeline.flows.keys() {
            *counts.entry(key.table).or_default() += 1;
        }
        let stats = (0..254).map(TableId).map(|table| TableStats {
            table,
            active: counts.get(&table).copied().unwrap_or_default(),
            lookups: 0,
            matched: 0,
        });
        self.part(xid, false, MultipartBody::TableStats(stats.collect()))
    }

    fn part(&self, xid: Xid, more: bool, body: MultipartBody) -> io::Result<()> {
        self.send(xid, &Message::MultipartReply(MultipartReply { more, body }))
    }
}

fn is_listed(filter: &FlowFilter, flow: &openflow::Flow) -> bool {
    let mask = filter.cookie_mask.0;
    (filter.table == TableId::ALL || filter.table == flow.table)
        && flow.cookie.0 & mask == filter.cookie.0 & mask
}

impl Inner {
    fn take_change(&mut self, message: Message) -> Result<(), ErrorCode> {
        self.n_changes += 1;
        match message {
            Message::PacketOut(packet) => self.packet_outs.push(packet),
            Message::FlowMod(flow_mod)
                if self.refuse_priority == Some(flow_mod.flow.priority)
                    && flow_mod.command == openflow::message::FlowModCommand::Add =>
            {
                return Err(ErrorCode::new(5, 0));
            }
            message => self.pipeline.take(message)?,
        }
        Ok(())
    }
}
