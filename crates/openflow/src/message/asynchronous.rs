//! Which asynchronous messages a connection wants.

/// Bit masks of reasons, by message and role: bit n wants reason n. Reasons are numbered as on the
/// wire: packet-in as in [`PacketInReason`](crate::message::PacketInReason), flow-removed and
/// port-status as in their enums. A mask that is `None` stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AsyncConfig {
    /// Packet-ins, when this controller is a slave.
    pub packet_in_slave: Option<u32>,
    /// Packet-ins, when it is master or equal.
    pub packet_in_master: Option<u32>,
    /// Port changes, slave.
    pub port_status_slave: Option<u32>,
    /// Port changes, master or equal.
    pub port_status_master: Option<u32>,
    /// Removed flows, slave.
    pub flow_removed_slave: Option<u32>,
    /// Removed flows, master or equal.
    pub flow_removed_master: Option<u32>,
    /// Changes of the role, slave.
    pub role_status_slave: Option<u32>,
    /// Changes of the role, master or equal.
    pub role_status_master: Option<u32>,
    /// Changes of tables, slave.
    pub table_status_slave: Option<u32>,
    /// Changes of tables, master or equal.
    pub table_status_master: Option<u32>,
    /// Changes of groups and meters by others, slave.
    pub request_forward_slave: Option<u32>,
    /// Changes of groups and meters by others, master or equal.
    pub request_forward_master: Option<u32>,
}

impl AsyncConfig {
    /// Nothing at all.
    #[must_use]
    pub fn silent() -> Self {
        let none = Some(0);
        Self {
            packet_in_slave: none,
            packet_in_master: none,
            port_status_slave: none,
            port_status_master: none,
            flow_removed_slave: none,
            flow_removed_master: none,
            role_status_slave: none,
            role_status_master: none,
            table_status_slave: none,
            table_status_master: none,
            request_forward_slave: none,
            request_forward_master: none,
        }
    }

    /// Every packet-in and nothing else.
    #[must_use]
    pub fn packet_ins_only() -> Self {
        Self { packet_in_master: Some(0x3f), ..Self::silent() }
    }

    /// Every removed flow and nothing else.
    #[must_use]
    pub fn flow_removed_only() -> Self {
        Self { flow_removed_master: Some(0x3f), ..Self::silent() }
    }
}
