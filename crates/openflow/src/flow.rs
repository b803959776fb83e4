//! Flows.

use bitflags::bitflags;

use crate::action::Action;
use crate::error::CheckError;
use crate::ids::{Cookie, TableId};
use crate::matching::Match;

bitflags! {
    /// What a flow asks of the switch.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct FlowFlags: u16 {
        /// Report its removal.
        const SEND_FLOW_REM = 1;
        /// Refuse it when it overlaps another (not kept by the switch).
        const CHECK_OVERLAP = 1 << 1;
        /// Reset its counters when it replaces another (not kept by the switch).
        const RESET_COUNTS = 1 << 2;
        /// Count no packets.
        const NO_PACKET_COUNTS = 1 << 3;
        /// Count no bytes.
        const NO_BYTE_COUNTS = 1 << 4;
    }
}

/// One flow. Displays as `ovs-ofctl -O OpenFlow15 dump-flows --no-stats --no-names` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The table it is in.
    pub table: TableId,
    /// Higher wins.
    pub priority: u16,
    /// Whose it is.
    pub cookie: Cookie,
    /// Which packets it takes.
    pub matching: Match,
    /// What it does with them; none drops.
    pub actions: Vec<Action>,
    /// Seconds without packets until it goes; 0 never.
    pub idle_timeout: u16,
    /// Seconds until it goes; 0 never.
    pub hard_timeout: u16,
    /// What it asks of the switch.
    pub flags: FlowFlags,
    /// Less important ones are evicted first.
    pub importance: u16,
}

/// What identifies a flow on the switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// Its table.
    pub table: TableId,
    /// Its priority.
    pub priority: u16,
    /// Its match.
    pub matching: Match,
}

impl Flow {
    /// The priority that `ovs-ofctl` means when none is given.
    pub const DEFAULT_PRIORITY: u16 = 0x8000;

    /// How many conjunction actions a flow with this match can have (4,087 when it is short):
    /// with more, its place in a dump would be longer than 16 bits tell, and Open vSwitch would
    /// leave it out. Such a flow is refused when it is encoded.
    #[must_use]
    pub fn max_conjunctions(matching: &Match) -> usize {
        crate::wire::flow::max_actions_len(matching) / 16
    }

    /// A flow without actions.
    #[must_use]
    pub fn new(table: TableId, priority: u16, matching: Match) -> Self {
        Self {
            table,
            priority,
            cookie: Cookie(0),
            matching,
            actions: Vec::new(),
            idle_timeout: 0,
            hard_timeout: 0,
            flags: FlowFlags::empty(),
            importance: 0,
        }
    }

    /// With this cookie.
    #[must_use]
    pub fn cookie(mut self, cookie: Cookie) -> Self {
        self.cookie = cookie;
        self
    }

    /// With one more action.
    #[must_use]
    pub fn action(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }

    /// With these actions at the end.
    #[must_use]
    pub fn actions(mut self, actions: impl IntoIterator<Item = Action>) -> Self {
        self.actions.extend(actions);
        self
    }

    /// Going on in `table`; the last action of a flow.
    #[must_use]
    pub fn goto_table(self, table: TableId) -> Self {
        self.action(Action::GotoTable(table))
    }

    /// With this idle timeout in seconds.
    #[must_use]
    pub fn idle_timeout(mut self, seconds: u16) -> Self {
        self.idle_timeout = seconds;
        self
    }

    /// With this hard timeout in seconds.
    #[must_use]
    pub fn hard_timeout(mut self, seconds: u16) -> Self {
        self.hard_timeout = seconds;
        self
    }

    /// With these flags.
    #[must_use]
    pub fn flags(mut self, flags: FlowFlags) -> Self {
        self.flags = flags;
        self
    }

    /// What identifies it on the switch.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        FlowKey { table: self.table, priority: self.priority, matching: self.matching.clone() }
    }

    /// The form that the switch gives back in a dump, for comparison: actions as
    /// [`Action::normalize`], without the flags that the switch does not keep.
    #[must_use]
    pub fn normalize(mut self) -> Self {
        self.actions = self.actions.into_iter().map(Action::normalize).collect();
        self.flags.remove(FlowFlags::CHECK_OVERLAP | FlowFlags::RESET_COUNTS);
        self
    }

    /// Whether the match's prerequisites are met and the actions are in a possible order.
    pub fn check(&self) -> Result<(), CheckError> {
        self.matching.check()?;
        crate::action::check_list(&self.actions)
    }
}
