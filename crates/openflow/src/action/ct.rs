//! Connection tracking and address translation.

use std::net::IpAddr;

use super::Action;
use crate::ids::TableId;
use crate::subfield::Subfield;

/// Sends the packet through the connection tracker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ct {
    /// Whether the connection is kept.
    pub commit: bool,
    /// Whether a connection of the opposite direction is replaced; needs `commit`.
    pub force: bool,
    /// The zone.
    pub zone: CtZone,
    /// Where a copy of the packet goes on with its connection state known.
    pub table: Option<TableId>,
    /// Address translation.
    pub nat: Option<Nat>,
    /// Actions on the connection's mark and label; needs `commit`.
    pub exec: Vec<Action>,
    /// Port of the helper protocol: 21 FTP, 69 TFTP.
    pub alg: Option<u16>,
}

/// A connection tracking zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CtZone {
    /// This one.
    Imm(u16),
    /// The one whose number a field holds.
    Field(Subfield),
}

impl Default for CtZone {
    fn default() -> Self {
        Self::Imm(0)
    }
}

/// Address translation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Nat {
    /// Which address of a new connection is translated; established ones as they were without it.
    pub direction: Option<NatDirection>,
    /// To which addresses.
    pub addresses: Option<NatRange<IpAddr>>,
    /// To which ports.
    pub ports: Option<NatRange<u16>>,
    /// The same client gets the same address.
    pub persistent: bool,
    /// Ports are chosen by hash.
    pub hash: bool,
    /// Ports are chosen at random.
    pub random: bool,
}

/// Which end of a connection is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatDirection {
    /// The source.
    Src,
    /// The destination.
    Dst,
}

/// From `first` to `last`; one without `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NatRange<T> {
    /// The first, or only one.
    pub first: T,
    /// The last one.
    pub last: Option<T>,
}

impl Ct {
    /// Looks the connection up in `zone`.
    #[must_use]
    pub fn new(zone: CtZone) -> Self {
        Self {
            commit: false,
            force: false,
            zone,
            table: None,
            nat: None,
            exec: Vec::new(),
            alg: None,
        }
    }

    /// Looks the connection up in the zone of this number.
    #[must_use]
    pub fn zone(zone: u16) -> Self {
        Self::new(CtZone::Imm(zone))
    }

    /// Keeping the connection.
    #[must_use]
    pub fn commit(mut self) -> Self {
        self.commit = true;
        self
    }

    /// Replacing a connection of the opposite direction.
    #[must_use]
    pub fn force(mut self) -> Self {
        self.force = true;
        self
    }

    /// Going on in `table`.
    #[must_use]
    pub fn table(mut self, table: TableId) -> Self {
        self.table = Some(table);
        self
    }

    /// With this address translation.
    #[must_use]
    pub fn nat(mut self, nat: Nat) -> Self {
        self.nat = Some(nat);
        self
    }

    /// With one more action on mark or label.
    #[must_use]
    pub fn exec(mut self, action: Action) -> Self {
        self.exec.push(action);
        self
    }
}

impl Nat {
    /// Translates packets of known connections as their first packet was.
    #[must_use]
    pub fn restore() -> Self {
        Self::default()
    }

    /// Translates the source to `address`.
    #[must_use]
    pub fn src(address: IpAddr) -> Self {
        Self::to(NatDirection::Src, address)
    }

    /// Translates the source to itself, where that makes a connection like no other, else its port to
    /// a free one. That is what the kernel's datapath does.
    #[must_use]
    pub fn src_unlike_others() -> Self {
        Self { direction: Some(NatDirection::Src), ..Self::default() }
    }

    /// Translates the destination to `address`.
    #[must_use]
    pub fn dst(address: IpAddr) -> Self {
        Self::to(NatDirection::Dst, address)
    }

    /// Translating the port too.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.ports = Some(NatRange { first: port, last: None });
        self
    }

    fn to(direction: NatDirection, address: IpAddr) -> Self {
        Self {
            direction: Some(direction),
            addresses: Some(NatRange { first: address, last: None }),
            ..Self::default()
        }
    }
}
