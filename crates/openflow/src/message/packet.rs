//! Packets from and to the switch.

use bytes::Bytes;

use crate::action::{Action, PacketInReason};
use crate::field::Field;
use crate::ids::{Cookie, OfPort, TableId};
use crate::matching::Match;

/// A packet that the switch sent to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketIn {
    /// The packet, or its beginning.
    pub data: Bytes,
    /// How long the whole packet is.
    pub full_len: u32,
    /// The table it came from.
    pub table: TableId,
    /// The cookie of the flow that sent it.
    pub cookie: Cookie,
    /// Why.
    pub reason: PacketInReason,
    /// What the pipeline had attached: ingress port, registers, tunnel, connection.
    pub metadata: Match,
    /// What the controller action carried.
    pub userdata: Bytes,
    /// With this the switch can let the packet go on; opaque.
    pub continuation: Option<Bytes>,
}

impl PacketIn {
    /// The port it came in by.
    #[must_use]
    pub fn in_port(&self) -> Option<OfPort> {
        let number = self.metadata.exact(Field::InPort)?;
        u32::try_from(number).ok().map(OfPort)
    }
}

/// A packet that the controller sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketOut {
    /// What is attached to the packet; needs an ingress port, [`OfPort::CONTROLLER`] for none.
    pub metadata: Match,
    /// What is done with it; [`OfPort::TABLE`] as output sends it through the tables.
    pub actions: Vec<Action>,
    /// The packet.
    pub data: Bytes,
}

impl PacketOut {
    /// Sends `data` as if it came in by `in_port`.
    #[must_use]
    pub fn new(in_port: OfPort, data: impl Into<Bytes>, actions: Vec<Action>) -> Self {
        Self { metadata: Match::new().in_port(in_port), actions, data: data.into() }
    }
}
