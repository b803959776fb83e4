//! What goes into a step and what comes out of it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use openflow::message::ErrorCode;
use openflow::{EncodeError, TableId};
use serde::{Deserialize, Serialize};

use super::batch::{Batch, Outcome};
use super::dump::{Dump, DumpScope};
use super::encoded::{EncodedFlow, EncodedIntents};

/// Who wants something on the switch; the category in its flows' cookies.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
#[serde(transparent)]
pub struct Owner(pub u8);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Tells barriers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarrierId(pub u64);

/// Whether something may be sent before all owners are synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SyncMode {
    /// As soon as it is wanted, to a switch that has flows of ours already. One that has none gets
    /// nothing before the owners are synced that registered so ([`Event::RegisterFirst`]), or the
    /// deadline passed; then everything in one bundle.
    #[default]
    Incremental,
    /// Not before all owners are synced (or the deadline passed); then everything, deletions
    /// included, in one atomic bundle. For the first sync after a change of the table layout.
    ReplaceLayout,
}

/// Everything that can wake the reconciler.
#[derive(Debug)]
pub enum Event {
    /// An owner takes part: what nobody claims is not deleted before it is synced.
    Register(Owner),
    /// An owner takes part, and a switch without flows of ours gets none before it is synced: what
    /// it adds takes away from what the others allow.
    RegisterFirst(Owner),
    /// This, and only this, is wanted under the key from now on.
    Set {
        /// Whose key.
        owner: Owner,
        /// The key.
        key: Arc<str>,
        /// What is wanted.
        intents: EncodedIntents,
    },
    /// Nothing is wanted under the key any more.
    Remove {
        /// Whose key.
        owner: Owner,
        /// The key.
        key: Arc<str>,
    },
    /// The owner has set all that it wants of what there was before it started.
    Synced(Owner),
    /// Owners that are not synced by now are not waited for any more.
    SyncDeadline,
    /// Somebody waits until all of before is on the switch.
    Barrier {
        /// Its number.
        id: BarrierId,
        /// Only this key's refusals concern it; all without.
        scope: Option<(Owner, Arc<str>)>,
    },
    /// There is a new connection.
    Connected,
    /// The switch left a probe on the connection unanswered.
    Silent,
    /// It speaks again.
    Answers,
    /// The connection is gone.
    Disconnected,
    /// What the switch holds.
    Dumped(Dump),
    /// Tables that hold flows, answer to [`Op::CountTables`].
    TableCounts(Vec<TableId>),
    /// What became of the batch under way.
    BatchDone(Outcome),
    /// The switch says that a flow timed out.
    FlowExpired(EncodedFlow),
    /// The switch says that a flow was deleted.
    FlowDeleted(EncodedFlow),
    /// Time to look at the whole switch again.
    RepairDue,
    /// Time to try refused flows again; comes while [`StateSummary::refused`] has any.
    RetryDue,
    /// Nothing else waits to be taken in: send what has to be sent.
    Flush,
}

/// What is to be done.
#[derive(Debug)]
pub enum Op {
    /// Read from the switch; answered by [`Event::Dumped`].
    Dump(DumpScope),
    /// Find out which tables hold flows; answered by [`Event::TableCounts`].
    CountTables,
    /// Send; answered by [`Event::BatchDone`].
    Send(Batch),
    /// Tell the owner that something of it is not on the switch.
    Report(Refusal),
    /// The barrier is reached, with what was refused on the way.
    BarrierDone(BarrierId, Vec<Refusal>),
}

/// Something that is wanted and not on the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Who wants it.
    pub owner: Owner,
    /// Under which key.
    pub key: Arc<str>,
    /// What it is, as text.
    pub intent: String,
    /// Why it is not there.
    pub reason: RefusalReason,
}

/// Why something is not on the switch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefusalReason {
    /// The switch refused it.
    #[error("refused by the switch: {0}")]
    Switch(ErrorCode),
    /// Another key has the same flow, group or meter with other content.
    #[error("held by owner {owner}, key {key}")]
    Conflict {
        /// Whose key.
        owner: Owner,
        /// The key.
        key: Arc<str>,
    },
    /// It has no form on the wire.
    #[error("cannot be encoded: {0}")]
    Encode(EncodeError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, key, intent, reason } = self;
        write!(f, "owner {owner}, key {key}: {intent}: {reason}")
    }
}

/// How many flows there are, by table.
pub type FlowCounts = BTreeMap<TableId, u32>;

/// What can be seen from outside.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StateSummary {
    /// Whether there is a connection.
    pub connected: bool,
    /// How many connections there were, this one included: each may lead to a switch that was
    /// started anew.
    pub n_connections: u64,
    /// Whether the switch leaves a probe on the connection unanswered.
    pub silent: bool,
    /// Whether the switch was read since the last connection.
    pub dumped: bool,
    /// Whether all owners are synced, or are not waited for any more.
    pub owners_synced: bool,
    /// Whether those of them are synced that an empty switch waits for, or are not waited for any
    /// more.
    pub first_owners_synced: bool,
    /// Whether nothing is sent for now, because not all are synced that have to be before it.
    pub held: bool,
    /// Whether everything wanted was on the switch, and nothing else, at least once.
    pub first_sync_done: bool,
    /// Changes that are not on the switch yet.
    pub n_pending: usize,
    /// Wanted flows on the switch.
    pub flows: FlowCounts,
    /// Wanted groups.
    pub n_groups: usize,
    /// Wanted meters.
    pub n_meters: usize,
    /// Flows on the switch that nobody claims (yet).
    pub n_unclaimed: usize,
    /// Flows that were put right because somebody else had changed them.
    pub n_repaired: u64,
    /// What is wanted and refused.
    pub refused: Vec<Refusal>,
}

impl StateSummary {
    /// Whether there is a connection and the switch answers on it.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        self.connected && !self.silent
    }
}
