//! What a flow or bucket does with a packet.
//!
//! One enum for actions and instructions alike, as `ovs-ofctl` writes them; the codec knows which
//! is which. `Load` is a convenience: OpenFlow 1.5 only has set-field with a mask, so that is what
//! travels and what comes back ([`Action::normalize`]).

mod ct;
mod learn;
mod list;

pub use ct::{Ct, CtZone, Nat, NatDirection, NatRange};
pub use learn::{Learn, LearnFlags, LearnSource, LearnSpec};
pub use list::{check as check_list, normalize as normalize_list};

use crate::field::Field;
use crate::ids::{ConjId, GroupId, MeterId, OfPort, TableId};
use crate::matching::Masked;
use crate::subfield::{Subfield, ones};

/// One action or instruction. A flow without any drops.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the packet out of a port.
    Output(OfPort),
    /// Send the packet out of the port whose number a field holds.
    OutputReg(Subfield),
    /// Send the first bytes of the packet to the controller, the plain way.
    OutputController {
        /// How many bytes; `u16::MAX` for all.
        max_len: u16,
    },
    /// Send the packet to a controller, with data that tells why.
    Controller(Box<Controller>),
    /// Set (some bits of) a field.
    SetField {
        /// The field.
        field: Field,
        /// The bits set, and to what.
        to: Masked,
    },
    /// Set a subfield; travels as [`Action::SetField`].
    Load {
        /// Where to.
        dst: Subfield,
        /// What, in the subfield's own bits.
        value: u128,
    },
    /// Copy one subfield to another.
    Move {
        /// Where from.
        src: Subfield,
        /// Where to.
        dst: Subfield,
    },
    /// Push a subfield to the stack.
    StackPush(Subfield),
    /// Pop a subfield from the stack.
    StackPop(Subfield),
    /// Send the packet through the connection tracker.
    Ct(Box<Ct>),
    /// Forget the connection state.
    CtClear,
    /// Search another table and come back.
    Resubmit(Resubmit),
    /// Decrement the TTL; at 0 the packet goes to the controller.
    DecTtl,
    /// Decrement the TTL; at 0 the packet goes to these controllers.
    DecTtlIds(Vec<u16>),
    /// Make a flow from this packet.
    Learn(Box<Learn>),
    /// The flow is one alternative of one clause of a conjunction.
    Conjunction {
        /// The conjunction.
        id: ConjId,
        /// Which clause, from 1.
        clause: u8,
        /// How many clauses the conjunction has.
        n_clauses: u8,
    },
    /// Go on with a group.
    Group(GroupId),
    /// Drop the packet if the meter is exceeded.
    Meter(MeterId),
    /// Do nothing, but carry these bytes. The switch pads them with zeros to 6, 14, 22, ... bytes.
    Note(Vec<u8>),
    /// Push a VLAN tag of this Ethernet type.
    PushVlan(u16),
    /// Pop the outermost VLAN tag.
    PopVlan,
    /// Use this queue of the output port.
    SetQueue(u32),
    /// Change the timeouts of the flow that a TCP FIN or RST meets.
    FinTimeout {
        /// New idle timeout in seconds; 0 keeps it.
        idle: u16,
        /// New hard timeout in seconds; 0 keeps it.
        hard: u16,
    },
    /// Set a bit if the packet is longer than this.
    CheckPktLarger {
        /// The bit.
        dst: Subfield,
        /// The length in bytes.
        pkt_len: u16,
    },
    /// Run actions on the packet and undo their changes.
    Clone(Vec<Action>),
    /// Stop here.
    Exit,
    /// Empty the action set (an instruction).
    ClearActions,
    /// Add to the action set (an instruction).
    WriteActions(Vec<Action>),
    /// Set bits of the metadata (an instruction).
    WriteMetadata {
        /// The bits' value.
        value: u64,
        /// Which bits.
        mask: u64,
    },
    /// Go on in a later table (an instruction, and the last).
    GotoTable(TableId),
}

/// Why a packet is sent to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PacketInReason {
    /// No flow matched.
    NoMatch,
    /// An action of a flow.
    Action,
    /// The TTL was 0.
    InvalidTtl,
    /// The action set.
    ActionSet,
    /// A group bucket.
    Group,
    /// Was a packet-out.
    PacketOut,
    /// A reason this crate has no name for.
    Other(u8),
}

/// Sends the packet to a controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Controller {
    /// How many bytes of it; `u16::MAX` for all.
    pub max_len: u16,
    /// What is given as the reason.
    pub reason: PacketInReason,
    /// Which controller; 0 the default one.
    pub controller_id: u16,
    /// Bytes that come back in the packet-in.
    pub userdata: Vec<u8>,
    /// A meter that limits it.
    pub meter: Option<MeterId>,
    /// Whether the packet waits until the controller resumes it.
    pub pause: bool,
}

impl Default for Controller {
    fn default() -> Self {
        Self {
            max_len: u16::MAX,
            reason: PacketInReason::Action,
            controller_id: 0,
            userdata: Vec::new(),
            meter: None,
            pause: false,
        }
    }
}

impl Controller {
    /// The length, if nothing else differs from a plain output to the controller; then that is
    /// how it travels.
    #[must_use]
    pub fn plain(&self) -> Option<u16> {
        (*self == Self { max_len: self.max_len, ..Self::default() }).then_some(self.max_len)
    }
}

/// Searches another table and comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resubmit {
    /// The ingress port to search with; the packet's own without it.
    pub in_port: Option<OfPort>,
    /// The table to search; the current one without it.
    pub table: Option<TableId>,
    /// Whether the original direction's addresses of the connection are searched with.
    pub ct: bool,
}

impl Action {
    /// Sets the whole of `field` to `value`.
    #[must_use]
    pub fn set_field(field: Field, value: u128) -> Self {
        let mask = ones(field.info().bits);
        Self::SetField { field, to: Masked { value: value & mask, mask } }
    }

    /// Sets the bits of `mask` in `field` to those of `value`.
    #[must_use]
    pub fn set_field_masked(field: Field, value: u128, mask: u128) -> Self {
        let mask = mask & ones(field.info().bits);
        Self::SetField { field, to: Masked { value: value & mask, mask } }
    }

    /// Sets a subfield to `value`, in the form that the switch gives back.
    #[must_use]
    pub fn load(dst: Subfield, value: u128) -> Self {
        Self::set_field_masked(dst.field, dst.place(value), dst.mask())
    }

    /// Copies one subfield to another.
    #[must_use]
    pub fn move_field(src: Subfield, dst: Subfield) -> Self {
        Self::Move { src, dst }
    }

    /// Searches `table` and comes back.
    #[must_use]
    pub fn resubmit(table: TableId) -> Self {
        Self::Resubmit(Resubmit { in_port: None, table: Some(table), ct: false })
    }

    /// Sends the packet to a controller.
    #[must_use]
    pub fn controller(controller: Controller) -> Self {
        Self::Controller(Box::new(controller))
    }

    /// Sends the packet through the connection tracker.
    #[must_use]
    pub fn ct(ct: Ct) -> Self {
        Self::Ct(Box::new(ct))
    }

    /// Makes a flow from the packet.
    #[must_use]
    pub fn learn(learn: Learn) -> Self {
        Self::Learn(Box::new(learn))
    }

    /// One alternative of one clause of a conjunction.
    #[must_use]
    pub fn conjunction(id: ConjId, clause: u8, n_clauses: u8) -> Self {
        Self::Conjunction { id, clause, n_clauses }
    }

    /// The form that the switch gives back in a dump: `Load` as `SetField`, a note padded,
    /// a plain output to the controller with its length.
    #[must_use]
    pub fn normalize(self) -> Self {
        list::normalize_one(self)
    }
}
