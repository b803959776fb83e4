//! Changes of flows, and news of removed ones.

use std::time::Duration;

use crate::flow::Flow;
use crate::ids::{Cookie, GroupId, OfPort, TableId};
use crate::matching::Match;

/// How flows are changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlowModCommand {
    /// Add the flow; it replaces one with the same table, priority and match.
    Add,
    /// Change the actions of all flows that the match covers.
    Modify,
    /// Change the actions of the one flow with this table, priority and match.
    ModifyStrict,
    /// Delete all flows that the match covers.
    Delete,
    /// Delete the one flow with this table, priority and match.
    DeleteStrict,
}

/// Changes flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowMod {
    /// How.
    pub command: FlowModCommand,
    /// The flow, or what selects flows to change or delete.
    pub flow: Flow,
    /// Modify and delete only flows whose cookie is equal in these bits.
    pub cookie_mask: Cookie,
    /// Delete only flows that send out of this port.
    pub out_port: OfPort,
    /// Delete only flows that use this group.
    pub out_group: GroupId,
}

impl FlowMod {
    /// Adds or replaces `flow`.
    #[must_use]
    pub fn add(flow: Flow) -> Self {
        Self::new(FlowModCommand::Add, flow)
    }

    /// Deletes exactly the flow with this one's table, priority and match.
    #[must_use]
    pub fn delete_strict(flow: Flow) -> Self {
        Self::new(FlowModCommand::DeleteStrict, flow)
    }

    /// Deletes all flows of `table` whose cookie is `cookie` in the bits of `mask`.
    #[must_use]
    pub fn delete_by_cookie(table: TableId, cookie: Cookie, mask: Cookie) -> Self {
        let flow = Flow::new(table, 0, Match::new()).cookie(cookie);
        Self { cookie_mask: mask, ..Self::new(FlowModCommand::Delete, flow) }
    }

    /// Any of the commands, without restriction by cookie, port or group.
    #[must_use]
    pub fn new(command: FlowModCommand, flow: Flow) -> Self {
        Self {
            command,
            flow,
            cookie_mask: Cookie(0),
            out_port: OfPort::ANY,
            out_group: GroupId::ANY,
        }
    }
}

/// Counters of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowCounters {
    /// How long it has been there.
    pub duration: Duration,
    /// How long no packet has met it, if the switch says.
    pub idle: Option<Duration>,
    /// Packets that met it, if counted.
    pub packets: Option<u64>,
    /// Their bytes, if counted.
    pub bytes: Option<u64>,
}

/// Why a flow is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowRemovedReason {
    /// No packets for its idle timeout.
    IdleTimeout,
    /// Its hard timeout.
    HardTimeout,
    /// Somebody deleted it.
    Delete,
    /// Its group was deleted.
    GroupDelete,
    /// Its meter was deleted.
    MeterDelete,
    /// Room was needed.
    Eviction,
    /// A reason this crate has no name for.
    Other(u8),
}

/// A flow is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowRemoved {
    /// Its table.
    pub table: TableId,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: Cookie,
    /// Its match.
    pub matching: Match,
    /// Why.
    pub reason: FlowRemovedReason,
    /// Its idle timeout.
    pub idle_timeout: u16,
    /// Its hard timeout.
    pub hard_timeout: u16,
    /// Its last counters.
    pub counters: FlowCounters,
}
