//! The monitored rows, typed, as they are now.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::table::{Bridge, FlowTable, Interface, OpenVSwitch, Port, Table, TypedRow};
use crate::update::{RowUpdate, TableUpdates, UpdateError};

/// Rows of one table by uuid. Cloning a snapshot shares the rows.
pub type Rows<T> = BTreeMap<Uuid, Arc<T>>;

/// The database as last seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The row of table `Open_vSwitch`.
    pub open_vswitch: Rows<OpenVSwitch>,
    /// The bridges.
    pub bridges: Rows<Bridge>,
    /// The ports.
    pub ports: Rows<Port>,
    /// The interfaces.
    pub interfaces: Rows<Interface>,
    /// The settings of flow tables.
    pub flow_tables: Rows<FlowTable>,
}

/// A port with its bridge and its (first) interface.
#[derive(Clone, Debug, PartialEq)]
pub struct PortView {
    /// Name of the bridge it is on.
    pub bridge: String,
    /// Its row's uuid.
    pub port_uuid: Uuid,
    /// Its row.
    pub port: Arc<Port>,
    /// Its interface's uuid.
    pub interface_uuid: Uuid,
    /// Its interface's row.
    pub interface: Arc<Interface>,
}

impl Snapshot {
    /// Applies changes. After an error the snapshot may hold a part of them: start again from a
    /// new monitor.
    pub fn apply(&mut self, updates: TableUpdates) -> Result<(), UpdateError> {
        for (table, uuid, update) in updates.0 {
            match table {
                Table::OpenVSwitch => change(&mut self.open_vswitch, table, uuid, update),
                Table::Bridge => change(&mut self.bridges, table, uuid, update),
                Table::Port => change(&mut self.ports, table, uuid, update),
                Table::Interface => change(&mut self.interfaces, table, uuid, update),
                Table::FlowTable => change(&mut self.flow_tables, table, uuid, update),
            }?;
        }
        Ok(())
    }

    /// The row everything hangs on, once the database is initialized.
    #[must_use]
    pub fn root(&self) -> Option<(Uuid, &OpenVSwitch)> {
        self.open_vswitch.iter().next().map(|(uuid, row)| (*uuid, row.as_ref()))
    }

    /// The bridge of this name.
    #[must_use]
    pub fn bridge(&self, name: &str) -> Option<(Uuid, &Arc<Bridge>)> {
        self.bridges.iter().find(|(_, row)| row.name == name).map(|(uuid, row)| (*uuid, row))
    }

    /// The port of this name, on whichever bridge.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<(Uuid, &Arc<Port>)> {
        self.ports.iter().find(|(_, row)| row.name == name).map(|(uuid, row)| (*uuid, row))
    }

    /// The interface of this name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<(Uuid, &Arc<Interface>)> {
        self.interfaces.iter().find(|(_, row)| row.name == name).map(|(uuid, row)| (*uuid, row))
    }

    /// The port of this name with its bridge and interface.
    #[must_use]
    pub fn port_view(&self, name: &str) -> Option<PortView> {
        let (uuid, _) = self.port(name)?;
        let bridge = self.bridges.values().find(|bridge| bridge.ports.contains(&uuid))?;
        self.view(bridge, uuid)
    }

    /// All ports of a bridge, each with its interface, by port uuid.
    pub fn ports_of(&self, bridge: &str) -> impl Iterator<Item = PortView> + '_ {
        self.bridge(bridge).into_iter().flat_map(move |(_, row)| {
            row.ports.iter().filter_map(move |uuid| self.view(row, *uuid))
        })
    }

    fn view(&self, bridge: &Bridge, port_uuid: Uuid) -> Option<PortView> {
        let port = self.ports.get(&port_uuid)?;
        let (interface_uuid, interface) = port
            .interfaces
            .iter()
            .find_map(|uuid| self.interfaces.get(uuid).map(|row| (*uuid, row)))?;
        Some(PortView {
            bridge: bridge.name.clone(),
            port_uuid,
            port: Arc::clone(port),
            interface_uuid,
            interface: Arc::clone(interface),
        })
    }
}

fn change<T: TypedRow>(
    rows: &mut Rows<T>,
    table: Table,
    uuid: Uuid,
    update: RowUpdate,
) -> Result<(), UpdateError> {
    let misfit = |(column, source)| UpdateError::Column { table, uuid, column, source };
    let modify = |row: &mut T, columns: &Map<String, Json>| row.modify(columns).map_err(misfit);
    match update {
        RowUpdate::Is(columns) => {
            rows.insert(uuid, Arc::new(T::read(&columns).map_err(misfit)?));
        }
        RowUpdate::Modify(columns) => {
            let row = rows.get_mut(&uuid).ok_or(UpdateError::UnknownRow { table, uuid })?;
            modify(Arc::make_mut(row), &columns)?;
        }
        RowUpdate::Delete => {
            rows.remove(&uuid);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
