//! Carries batches and dumps over a connection.

use bytes::{BufMut, Bytes, BytesMut};
use openflow::message::{
    BundleControl, BundleControlType, BundleFlags, BundleId, Descriptions, FlowFilter, FlowStats,
    MultipartBody, MultipartRequest,
};
use openflow::{Cookie, DecodeError, EncodeError, Flow, Message, TableId, Xid};
use tracing::{debug, warn};

use crate::channel::{Channel, ChannelError, Exchange};
use crate::reconcile::{Batch, BatchMode, Dump, DumpScope, EncodedFlow, Outcome, Owner};

/// Bytes that are put together before they are handed to the writer.
const CHUNK: usize = 64 << 10;
/// Room left over in a chunk; the longest message has 64 KiB.
const SLACK: usize = 4 << 10;
/// Type of a message that adds to a bundle, its header with bundle id and flags (OpenFlow 1.5
/// section 7.3.9.6): the message itself follows.
const BUNDLE_ADD_MESSAGE: u8 = 34;
const BUNDLE_ADD_HEADER: usize = 16;
/// Where marker and owner are in a cookie.
const MARKER_SHIFT: u32 = 48;
const OWNER_SHIFT: u32 = 40;

/// Why an exchange gave no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum TransferError {
    #[error("connection")]
    Channel(#[from] ChannelError),
    #[error("read groups and meters")]
    Objects(#[source] ChannelError),
    #[error("encode what was read")]
    Encode(#[from] EncodeError),
    #[error("statistics of tables")]
    Decode(#[from] DecodeError),
}

/// How much is read of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupReading {
    /// All of them.
    Whole,
    /// Their numbers. A group that is too long for a message is taken by Open vSwitch all the same,
    /// and when it is to be described, what comes is no message any more.
    Numbers,
}

/// Reads from the switch.
pub(super) async fn dump(
    channel: &Channel,
    scope: DumpScope,
    reading: GroupReading,
) -> Result<Dump, TransferError> {
    let mut dump = Dump { scope, flows: Vec::new(), groups: Vec::new(), meters: Vec::new() };
    if scope != DumpScope::Objects {
        let table = match scope {
            DumpScope::Table(table) => table,
            DumpScope::All | DumpScope::Objects => TableId::ALL,
        };
        let request = MultipartRequest::Flows(FlowFilter { table, ..FlowFilter::all() });
        let mut exchange = channel.exchange(1);
        exchange.send(Message::MultipartRequest(request).encode(exchange.xid(0))?).await?;
        while let Some((_, answer)) = exchange.next().await? {
            let part = match answer {
                Message::MultipartReply(part) => part.body,
                Message::Error(error) => {
                    return Err(
                        ChannelError::Refused { what: "flow dump", code: error.code }.into()
                    );
                }
                _ => return Err(ChannelError::Unexpected("flow dump").into()),
            };
            let MultipartBody::Flows(part) = part else {
                return Err(ChannelError::Unexpected("flow dump").into());
            };
            for stats in part.flows {
                dump.flows.push(EncodedFlow::from_dumped(stats.flow)?);
            }
            for undecoded in part.undecoded {
                match EncodedFlow::from_undecoded(&undecoded) {
                    Some(flow) => dump.flows.push(flow),
                    None => warn!(?undecoded, "a flow that is not understood stays"),
                }
            }
        }
    }
    if !matches!(scope, DumpScope::Table(_)) {
        dump.groups = match reading {
            GroupReading::Whole => {
                let parts = channel.dump_groups().await.map_err(TransferError::Objects)?;
                parts.into_iter().flat_map(|part| described(part, |group| group.id)).collect()
            }
            GroupReading::Numbers => {
                channel.group_numbers().await?.into_iter().map(|id| (id, None)).collect()
            }
        };
        // Behind a description that is no message nothing else is understood.
        let parts = channel.dump_meters().await.map_err(TransferError::Objects)?;
        dump.meters =
            parts.into_iter().flat_map(|part| described(part, |meter| meter.id)).collect();
    }
    Ok(dump)
}

/// Groups or meters by their numbers; no more than the number of what is not understood.
fn described<T, K: Copy + std::fmt::Debug>(
    part: Descriptions<T, K>,
    id: fn(&T) -> K,
) -> impl Iterator<Item = (K, Option<T>)> {
    let known = part.known.into_iter().map(move |object| (id(&object), Some(object)));
    let undecoded = part.undecoded.into_iter().map(|undecoded| {
        debug!(?undecoded, "not understood");
        (undecoded.id, None)
    });
    known.chain(undecoded)
}

/// Reads the owner's flows; keeps those that are among the wanted ones, if some are given.
pub(super) async fn flows_of(
    channel: &Channel,
    owner: Owner,
    marker: u16,
    wanted: Option<&[EncodedFlow]>,
) -> Result<Vec<Flow>, TransferError> {
    let mut found = Vec::new();
    if wanted.is_some_and(<[_]>::is_empty) {
        return Ok(found);
    }
    let request = MultipartRequest::Flows(owned_by(owner, marker));
    let read = channel.multipart(request, "flow dump", |body| {
        let MultipartBody::Flows(part) = body else {
            return Err(ChannelError::Unexpected("flow dump"));
        };
        for stats in part.flows {
            let Some(wanted) = wanted else {
                found.push(stats.flow);
                continue;
            };
            let encoded = EncodedFlow::new(stats.flow.clone())?;
            if wanted.iter().any(|flow| flow.has_key_of(&encoded)) {
                found.push(stats.flow);
            }
        }
        Ok(())
    });
    read.await?;
    Ok(found)
}

fn owned_by(owner: Owner, marker: u16) -> FlowFilter {
    let cookie = Cookie(u64::from(marker) << MARKER_SHIFT | u64::from(owner.0) << OWNER_SHIFT);
    FlowFilter::by_cookie(cookie, Cookie(!0 << OWNER_SHIFT))
}

/// Reads the owner's flows in a table with their counters.
pub(super) async fn counters(
    channel: &Channel,
    owner: Owner,
    marker: u16,
    table: TableId,
    mut take: Box<dyn FnMut(FlowStats) + Send>,
) -> Result<(), TransferError> {
    let request = MultipartRequest::Flows(FlowFilter { table, ..owned_by(owner, marker) });
    let read = channel.multipart(request, "counters of flows", |body| {
        let MultipartBody::Flows(part) = body else {
            return Err(ChannelError::Unexpected("counters of flows"));
        };
        part.flows.into_iter().for_each(&mut take);
        Ok(())
    });
    Ok(read.await?)
}

/// The tables that hold flows.
pub(super) async fn tables_in_use(channel: &Channel) -> Result<Vec<TableId>, TransferError> {
    let request = Message::MultipartRequest(MultipartRequest::TableStats);
    let mut exchange = channel.exchange(1);
    exchange.send(request.encode(exchange.xid(0))?).await?;
    let mut tables = Vec::new();
    while let Some((_, answer)) = exchange.next().await? {
        let Message::MultipartReply(part) = answer else {
            return Err(ChannelError::Unexpected("table statistics").into());
        };
        let MultipartBody::TableStats(stats) = part.body else {
            return Err(ChannelError::Unexpected("table statistics").into());
        };
        tables.extend(stats.iter().filter(|stats| stats.active != 0).map(|stats| stats.table));
    }
    Ok(tables)
}

/// Sends a batch and waits until the switch has dealt with all of it.
pub(super) async fn send_batch(channel: &Channel, batch: Batch) -> Result<Outcome, TransferError> {
    let n = batch.n_messages;
    // Behind the messages: open, commit, barrier.
    let (open, commit, barrier) = (n, n + 1, n + 2);
    let mut exchange = channel.exchange(n + 3);
    let n_before = match batch.mode {
        BatchMode::Bundle => batch.n_before,
        BatchMode::Plain => n,
    };
    // The number of a bundle has to be unique on its connection, as transaction ids are.
    let bundle = BundleId(exchange.xid(0).0);
    let flags = BundleFlags::ATOMIC | BundleFlags::ORDERED;
    let control = |kind| Message::BundleControl(BundleControl { bundle, kind, flags });
    let mut chunk = BytesMut::with_capacity(CHUNK + SLACK);
    for (index, message) in batch.messages().enumerate() {
        let xid = exchange.xid(index);
        if index == n_before {
            let message = control(BundleControlType::OpenRequest);
            chunk.extend_from_slice(&message.encode(exchange.xid(open))?);
        }
        if index >= n_before {
            put_bundle_add(&mut chunk, bundle, flags, xid, message.len());
        }
        let start = chunk.len();
        chunk.extend_from_slice(message);
        chunk[start + 4..start + 8].copy_from_slice(&xid.0.to_be_bytes());
        if chunk.len() >= CHUNK {
            send_chunk(&exchange, &mut chunk).await?;
        }
    }
    if n_before < n {
        let message = control(BundleControlType::CommitRequest);
        chunk.extend_from_slice(&message.encode(exchange.xid(commit))?);
    }
    chunk.extend_from_slice(&Message::BarrierRequest.encode(exchange.xid(barrier))?);
    send_chunk(&exchange, &mut chunk).await?;
    drop(batch);

    let mut outcome = Outcome { committed: n_before == n, errors: Vec::new() };
    let mut refused = false;
    while let Some((index, answer)) = exchange.next().await? {
        match answer {
            Message::Error(error) if index < n => outcome.errors.push((index, error.code)),
            Message::Error(error) => {
                refused = true;
                debug!(code = %error.code, "bundle refused");
            }
            Message::BundleControl(BundleControl {
                kind: BundleControlType::CommitReply, ..
            }) => outcome.committed = true,
            _ => {}
        }
    }
    if !outcome.committed && outcome.errors.is_empty() && !refused {
        // Neither taken nor refused: it may be open still, and ends with its connection only.
        return Err(ChannelError::Unexpected("bundle").into());
    }
    Ok(outcome)
}

async fn send_chunk(exchange: &Exchange, chunk: &mut BytesMut) -> Result<(), ChannelError> {
    let bytes: Bytes = chunk.split().freeze();
    chunk.reserve(CHUNK + SLACK);
    exchange.send(bytes).await
}

/// The header of a bundle-add around a message of `len` bytes.
fn put_bundle_add(out: &mut BytesMut, bundle: BundleId, flags: BundleFlags, xid: Xid, len: usize) {
    let len = u16::try_from(BUNDLE_ADD_HEADER + len).unwrap_or(u16::MAX);
    out.put_u8(openflow::message::Header::VERSION);
    out.put_u8(BUNDLE_ADD_MESSAGE);
    out.put_u16(len);
    out.put_u32(xid.0);
    out.put_u32(bundle.0);
    out.put_u16(0);
    out.put_u16(flags.bits());
}
