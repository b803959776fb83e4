//! What a feature wants on the switch.

use crate::flow::{Flow, FlowKey};
use crate::group::Group;
use crate::ids::{GroupId, MeterId};
use crate::meter::Meter;

/// One thing that should be on the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent {
    /// A flow.
    Flow(Flow),
    /// A group.
    Group(Group),
    /// A meter.
    Meter(Meter),
}

/// What identifies an [`Intent`] on the switch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IntentKey {
    /// Meters come first: groups and flows use them.
    Meter(MeterId),
    /// Groups come before the flows that use them.
    Group(GroupId),
    /// A flow is its table, priority and match.
    Flow(FlowKey),
}

impl Intent {
    /// What identifies it on the switch.
    #[must_use]
    pub fn key(&self) -> IntentKey {
        match self {
            Self::Flow(flow) => IntentKey::Flow(flow.key()),
            Self::Group(group) => IntentKey::Group(group.id),
            Self::Meter(meter) => IntentKey::Meter(meter.id),
        }
    }
}

impl From<Flow> for Intent {
    fn from(flow: Flow) -> Self {
        Self::Flow(flow)
    }
}

impl From<Group> for Intent {
    fn from(group: Group) -> Self {
        Self::Group(group)
    }
}

impl From<Meter> for Intent {
    fn from(meter: Meter) -> Self {
        Self::Meter(meter)
    }
}
