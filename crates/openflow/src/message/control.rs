//! Messages about the connection and the switch.

/// Version negotiation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The header's version: the highest one spoken.
    pub version: u8,
    /// The wire versions spoken, lowest first; empty when the peer gave none beside its header's.
    pub versions: Vec<u8>,
}

impl Hello {
    /// A hello that offers OpenFlow 1.5 only.
    #[must_use]
    pub fn openflow15() -> Self {
        Self { version: super::Header::VERSION, versions: vec![super::Header::VERSION] }
    }

    /// Whether the peer that sent it speaks OpenFlow 1.5.
    #[must_use]
    pub fn speaks_openflow15(&self) -> bool {
        if self.versions.is_empty() {
            self.version >= super::Header::VERSION
        } else {
            self.versions.contains(&super::Header::VERSION)
        }
    }
}

/// What a switch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Identifies the bridge.
    pub datapath_id: u64,
    /// Packets it can buffer.
    pub n_buffers: u32,
    /// Flow tables it has.
    pub n_tables: u8,
    /// Number of this connection beside the main one.
    pub auxiliary_id: u8,
    /// What it can do, as bits.
    pub capabilities: u32,
}

/// How a switch treats packets it sends to controllers by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Fragment handling.
    pub flags: u16,
    /// Bytes of a packet sent when no action says otherwise; 0 also keeps packet-ins away from
    /// service connections, so a packet-in connection sets it to 0xffff.
    pub miss_send_len: u16,
}

/// The form of packet-ins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketInFormat {
    /// As OpenFlow has it.
    Standard,
    /// With a Nicira match; not decoded by this crate.
    Nxt,
    /// With userdata and continuation.
    Nxt2,
}

/// What a controller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leave it, just tell me.
    NoChange,
    /// Everything, like others.
    Equal,
    /// Everything, alone.
    Master,
    /// Read.
    Slave,
}

/// A role asked for or given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerRole {
    /// The role.
    pub role: Role,
    /// Number of the election that gave it.
    pub generation_id: u64,
}

/// Why a role changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleReason {
    /// Another controller asked to be the master.
    MasterRequest,
    /// The switch's configuration.
    Config,
    /// An experimenter's reason.
    Experimenter,
}

/// The switch changed a connection's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleStatus {
    /// The role now.
    pub role: Role,
    /// Why.
    pub reason: RoleReason,
    /// Number of the election that gave it.
    pub generation_id: u64,
}
