//! Tables of the `Open_vSwitch` database as typed rows: the columns that we read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::column::{Column, ColumnError};
use crate::value::{Atom, Value};

/// A table that we use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// The one row everything hangs on.
    OpenVSwitch,
    /// Bridges.
    Bridge,
    /// Ports of bridges.
    Port,
    /// Interfaces of ports.
    Interface,
    /// Names of flow tables.
    FlowTable,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::OpenVSwitch, Self::Bridge, Self::Port, Self::Interface, Self::FlowTable];

    /// Its name in the schema.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenVSwitch => "Open_vSwitch",
            Self::Bridge => "Bridge",
            Self::Port => "Port",
            Self::Interface => "Interface",
            Self::FlowTable => "Flow_Table",
        }
    }

    /// The table of this name, if we use it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|table| table.name() == name)
    }

    /// The columns that we read.
    #[must_use]
    pub const fn columns(self) -> &'static [&'static str] {
        match self {
            Self::OpenVSwitch => OpenVSwitch::COLUMNS,
            Self::Bridge => Bridge::COLUMNS,
            Self::Port => Port::COLUMNS,
            Self::Interface => Interface::COLUMNS,
            Self::FlowTable => FlowTable::COLUMNS,
        }
    }
}

/// What a bridge does without a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailMode {
    /// Drops what no flow takes.
    Secure,
    /// Behaves as a learning bridge.
    Standalone,
}

impl FailMode {
    /// Its word in the schema.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Secure => "secure",
            Self::Standalone => "standalone",
        }
    }
}

/// A column's value that did not fit, with the column's name.
pub(crate) type Misfit = (String, ColumnError);

/// A row that can be read from JSON and changed by monitor updates.
pub(crate) trait TypedRow: Clone + Default {
    /// Reads a whole row; columns that are not there have their default.
    fn read(row: &Map<String, Json>) -> Result<Self, Misfit>;
    /// Applies the columns of a modified row.
    fn modify(&mut self, row: &Map<String, Json>) -> Result<(), Misfit>;
}

macro_rules! typed_rows {
    ($($(#[$doc:meta])* $row:ident {
        $($(#[$field_doc:meta])* $field:ident : $type:ty = $column:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Default)]
        pub struct $row {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $row {
            /// The columns that we read.
            pub const COLUMNS: &'static [&'static str] = &[$($column,)*];
        }

        impl TypedRow for $row {
            fn read(row: &Map<String, Json>) -> Result<Self, Misfit> {
                let mut typed = Self::default();
                $(if let Some(json) = row.get($column) {
                    typed.$field = <$type as Column>::from_json(json)
                        .map_err(|error| ($column.to_owned(), error))?;
                })*
                Ok(typed)
            }

            fn modify(&mut self, row: &Map<String, Json>) -> Result<(), Misfit> {
                $(if let Some(json) = row.get($column) {
                    Value::from_json(json)
                        .map_err(ColumnError::from)
                        .and_then(|value| self.$field.modify(&value))
                        .map_err(|error| ($column.to_owned(), error))?;
                })*
                Ok(())
            }
        }
    )*};
}

typed_rows! {
    /// The one row of table `Open_vSwitch`.
    OpenVSwitch {
        /// The bridges.
        bridges: BTreeSet<Uuid> = "bridges",
        /// Ours and others' notes.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Switches of the daemon.
        other_config: BTreeMap<String, String> = "other_config",
        /// Version of ovs-vswitchd.
        ovs_version: Option<String> = "ovs_version",
        /// Version of the schema.
        db_version: Option<String> = "db_version",
        /// Datapath types that ovs-vswitchd offers.
        datapath_types: BTreeSet<String> = "datapath_types",
        /// Interface types that ovs-vswitchd offers.
        iface_types: BTreeSet<String> = "iface_types",
        /// Number of the configuration last written.
        next_cfg: i64 = "next_cfg",
        /// Number of the configuration that ovs-vswitchd has taken in.
        cur_cfg: i64 = "cur_cfg",
    }

    /// A bridge.
    Bridge {
        /// Its name.
        name: String = "name",
        /// `system` or `netdev`; empty means `system`.
        datapath_type: String = "datapath_type",
        /// Its OpenFlow identity, once ovs-vswitchd runs it.
        datapath_id: Option<String> = "datapath_id",
        /// `secure` or `standalone`.
        fail_mode: Option<String> = "fail_mode",
        /// OpenFlow versions it speaks.
        protocols: BTreeSet<String> = "protocols",
        /// Its ports.
        ports: BTreeSet<Uuid> = "ports",
        /// Ours and others' notes.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Switches of the bridge.
        other_config: BTreeMap<String, String> = "other_config",
        /// Settings of its flow tables.
        flow_tables: BTreeMap<i64, Uuid> = "flow_tables",
        /// OpenFlow controllers set from outside.
        controller: BTreeSet<Uuid> = "controller",
        /// Whether it snoops on multicast.
        mcast_snooping_enable: bool = "mcast_snooping_enable",
    }

    /// A port of a bridge.
    Port {
        /// Its name.
        name: String = "name",
        /// Its interfaces: one, or more in a bond.
        interfaces: BTreeSet<Uuid> = "interfaces",
        /// Ours and others' notes.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Switches of the port.
        other_config: BTreeMap<String, String> = "other_config",
        /// Its VLAN.
        tag: Option<i64> = "tag",
        /// Its VLANs.
        trunks: BTreeSet<i64> = "trunks",
        /// How it treats VLANs.
        vlan_mode: Option<String> = "vlan_mode",
        /// Its Ethernet address, when set.
        mac: Option<String> = "mac",
    }

    /// An interface of a port.
    Interface {
        /// Its name.
        name: String = "name",
        /// Its type; empty means a device of the system.
        interface_type: String = "type",
        /// OpenFlow number asked for.
        ofport_request: Option<i64> = "ofport_request",
        /// OpenFlow number given; -1 when it could not be made.
        ofport: Option<i64> = "ofport",
        /// Why it could not be made.
        error: Option<String> = "error",
        /// Options of its type.
        options: BTreeMap<String, String> = "options",
        /// Ours and others' notes.
        external_ids: BTreeMap<String, String> = "external_ids",
        /// Switches of the interface.
        other_config: BTreeMap<String, String> = "other_config",
        /// Ethernet address asked for.
        mac: Option<String> = "mac",
        /// Ethernet address it has.
        mac_in_use: Option<String> = "mac_in_use",
        /// MTU asked for.
        mtu_request: Option<i64> = "mtu_request",
        /// MTU it has.
        mtu: Option<i64> = "mtu",
        /// Index of its device.
        ifindex: Option<i64> = "ifindex",
        /// `up` or `down`, as set.
        admin_state: Option<String> = "admin_state",
        /// `up` or `down`, as it is.
        link_state: Option<String> = "link_state",
    }

    /// Settings of a flow table.
    FlowTable {
        /// Its name.
        name: Option<String> = "name",
    }
}

impl Interface {
    /// The OpenFlow number, once it has a valid one.
    #[must_use]
    pub fn valid_ofport(&self) -> Option<u32> {
        self.ofport.and_then(|ofport| u32::try_from(ofport).ok()).filter(|ofport| *ofport > 0)
    }
}

/// References to rows, to write into a column.
impl From<&BTreeSet<Uuid>> for Value {
    fn from(uuids: &BTreeSet<Uuid>) -> Self {
        Self::Set(uuids.iter().copied().map(Atom::Uuid).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_tables() {
        for table in Table::ALL {
            assert_eq!(Table::from_name(table.name()), Some(table));
        }
        assert_eq!(Table::from_name("Mirror"), None);
    }

    #[test]
    fn every_column_is_in_the_installed_schema() {
        let Ok(text) = std::fs::read_to_string("/usr/share/openvswitch/vswitch.ovsschema") else {
            return; // Open vSwitch is not installed; the tests against a real one say so.
        };
        let schema: Json = serde_json::from_str(&text).unwrap();
        for table in Table::ALL {
            for column in table.columns() {
                let known = schema["tables"][table.name()]["columns"].get(column);
                assert!(known.is_some(), "{}.{column}", table.name());
            }
        }
    }
}
