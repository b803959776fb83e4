//! Decides what a bridge has to be told so that it holds what features want.
//!
//! Pure: [`State::step`] takes an event and returns what is to be done. No await, lock or clock;
//! the same history gives the same operations. `crate::bridge` carries them out.
//!
//! # Rules
//! * What is wanted is known by owner and key. Setting a key again sends the difference only.
//! * After every (re)connection flows, groups and meters are read first, then the difference goes
//!   out as one bundle: groups, flows, deletions of flows, deletions of groups. Nothing is wiped.
//! * A switch without flows of ours gets none before those are synced that registered so; then it
//!   gets all of them in one bundle.
//! * One bundle is under way at a time; what changes meanwhile goes together in the next one.
//! * Intent is recorded before it is sent: after a lost connection whatever became of it is found
//!   by the dump.
//! * A flow that the switch refuses is set aside and reported, the rest is sent again at once, and
//!   the refused one alone later, less and less often.
//! * Two keys that want the same flow (table, priority, match): the first one has it. The second
//!   one's stays in waiting and takes over when the first lets go; it is reported as refused
//!   unless it is the very same flow.
//! * What nobody claims is deleted once all registered owners said they are synced, or the
//!   deadline for that passed. Until then it stays. Flows without our marker are nobody's. Flows
//!   that a wanted flow's learn action made (they have its cookie) are the switch's own business.
//! * A flow with a timeout is sent once: when it is gone it has expired.
//! * The whole switch is read again periodically, and what somebody changed is put right.

mod barrier;
mod batch;
mod counts;
mod dump;
mod encoded;
mod flows;
mod hold;
mod objects;
mod outcome;
mod owners;
mod state;
mod types;

#[cfg(test)]
mod tests;

pub use batch::{Batch, BatchMode, Item, Outcome};
pub use dump::{Dump, DumpScope};
pub use encoded::{EncodedFlow, EncodedIntents};
pub use state::State;
pub use types::{
    BarrierId, Event, FlowCounts, Op, Owner, Refusal, RefusalReason, StateSummary, SyncMode,
};
