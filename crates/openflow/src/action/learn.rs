//! Flows that the switch makes from packets.

use bitflags::bitflags;

use crate::flow::FlowFlags;
use crate::ids::{Cookie, TableId};
use crate::subfield::Subfield;

bitflags! {
    /// What a learn action asks beyond flow flags.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
    pub struct LearnFlags: u16 {
        /// Report the learned flow's removal.
        const SEND_FLOW_REM = 1;
        /// Remove learned flows when the learning one goes.
        const DELETE_LEARNED = 1 << 1;
        /// Write to `result_dst` whether a flow was made.
        const WRITE_RESULT = 1 << 2;
    }
}

/// Makes a flow from the packet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Learn {
    /// Idle timeout of the learned flow.
    pub idle_timeout: u16,
    /// Hard timeout of the learned flow.
    pub hard_timeout: u16,
    /// Its idle timeout after a FIN or RST.
    pub fin_idle_timeout: u16,
    /// Its hard timeout after a FIN or RST.
    pub fin_hard_timeout: u16,
    /// Its priority.
    pub priority: u16,
    /// Its cookie.
    pub cookie: Cookie,
    /// Further wishes.
    pub flags: LearnFlags,
    /// Its table.
    pub table: TableId,
    /// How many flows there may be with this table and cookie; 0 for any number.
    pub limit: u32,
    /// The bit that tells whether a flow was made.
    pub result_dst: Option<Subfield>,
    /// Its match and actions.
    pub specs: Vec<LearnSpec>,
}

/// One part of a learned flow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LearnSpec {
    /// The learned flow matches `dst` equal to what the source has now.
    Match {
        /// The subfield matched.
        dst: Subfield,
        /// What it has to equal.
        src: LearnSource,
    },
    /// The learned flow loads what the source has now into `dst`.
    Load {
        /// The subfield loaded.
        dst: Subfield,
        /// What is loaded.
        src: LearnSource,
    },
    /// The learned flow sends out of the port that the subfield has now.
    Output(Subfield),
}

/// Where a part of a learned flow is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LearnSource {
    /// This value.
    Value(u128),
    /// The packet's value of a subfield.
    Field(Subfield),
}

impl Learn {
    /// Learns into `table` with the priority `ovs-ofctl` takes by default.
    #[must_use]
    pub fn new(table: TableId, priority: u16) -> Self {
        Self {
            idle_timeout: 0,
            hard_timeout: 0,
            fin_idle_timeout: 0,
            fin_hard_timeout: 0,
            priority,
            cookie: Cookie(0),
            flags: LearnFlags::empty(),
            table,
            limit: 0,
            result_dst: None,
            specs: Vec::new(),
        }
    }

    /// With one more part.
    #[must_use]
    pub fn spec(mut self, spec: LearnSpec) -> Self {
        self.specs.push(spec);
        self
    }

    /// The flow flags that the learned flow gets.
    #[must_use]
    pub fn flow_flags(&self) -> FlowFlags {
        if self.flags.contains(LearnFlags::SEND_FLOW_REM) {
            FlowFlags::SEND_FLOW_REM
        } else {
            FlowFlags::empty()
        }
    }
}
