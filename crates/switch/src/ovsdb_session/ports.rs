//! Ports as operations on the database: add, delete, wait for the OpenFlow number.

use std::collections::BTreeMap;
use std::time::Duration;

use openflow::{MacAddr, OfPort};
use ovsdb::{Atom, Condition, Mutation, Operation, Row, Snapshot, Table, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::coalesce::Add;
use super::{OvsdbError, OvsdbSession};

/// A port that should be on a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PortSpec {
    /// The bridge.
    pub bridge: String,
    /// Name of the port and its interface.
    pub name: String,
    /// Type of the interface: empty for a device of the system, `internal`, `geneve`, ...
    pub interface_type: String,
    /// OpenFlow number to ask for.
    pub ofport_request: Option<OfPort>,
    /// Notes on the port, by which it is found again.
    pub external_ids: BTreeMap<String, String>,
    /// Options of the interface.
    pub options: BTreeMap<String, String>,
    /// Ethernet address of an internal interface.
    pub mac: Option<MacAddr>,
    /// MTU to ask for.
    pub mtu_request: Option<u32>,
    /// VLAN of the port.
    pub tag: Option<u16>,
    /// What a port of this name without any of these notes is.
    pub unmarked: Unmarked,
}

/// What a port is that has the name of a wanted one and none of its notes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unmarked {
    /// Somebody else's.
    #[default]
    Foreign,
    /// The wanted one: the name is nobody else's, and its notes were taken away.
    Ours,
}

/// Which ports to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSelector {
    /// The one of this name.
    Name(String),
    /// Those with at least these notes.
    ExternalIds(BTreeMap<String, String>),
}

/// Why a port is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// The database could not be asked, or refused.
    #[error("change Open vSwitch database")]
    Ovsdb(#[from] OvsdbError),
    /// There is no such bridge.
    #[error("no bridge {0}")]
    NoBridge(String),
    /// A port of this name is somebody else's: other notes, or another bridge.
    #[error("port {name} exists on bridge {bridge} and is not ours")]
    Taken {
        /// The name.
        name: String,
        /// The bridge it is on.
        bridge: String,
    },
    /// The port was deleted.
    #[error("port {0} is gone")]
    Gone(String),
    /// ovs-vswitchd could not make the interface.
    #[error("Open vSwitch cannot use interface {name}: {reason}")]
    Failed {
        /// The interface.
        name: String,
        /// What ovs-vswitchd says.
        reason: String,
    },
    /// ovs-vswitchd gave no OpenFlow number in time.
    #[error("no OpenFlow port number for {name} within {waited:?}")]
    Timeout {
        /// The interface.
        name: String,
        /// How long it was waited for.
        waited: Duration,
    },
}

impl PortSpec {
    /// A device of the system on a bridge.
    #[must_use]
    pub fn new(bridge: &str, name: &str) -> Self {
        Self { bridge: bridge.to_owned(), name: name.to_owned(), ..Self::default() }
    }

    /// With this interface type.
    #[must_use]
    pub fn interface_type(mut self, interface_type: &str) -> Self {
        interface_type.clone_into(&mut self.interface_type);
        self
    }

    /// With this OpenFlow number asked for.
    #[must_use]
    pub fn ofport_request(mut self, ofport: OfPort) -> Self {
        self.ofport_request = Some(ofport);
        self
    }

    /// With one more note.
    #[must_use]
    pub fn external_id(mut self, key: &str, value: &str) -> Self {
        self.external_ids.insert(key.to_owned(), value.to_owned());
        self
    }

    /// With one more option.
    #[must_use]
    pub fn option(mut self, key: &str, value: &str) -> Self {
        self.options.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Operations that make the port as wanted; `number` tells ports of one transaction apart.
    pub(super) fn operations(
        &self,
        rows: &Snapshot,
        number: usize,
    ) -> Result<Vec<Operation>, PortError> {
        let Some(view) = rows.port_view(&self.name) else {
            return Ok(self.insertion(number));
        };
        let notes = &view.port.external_ids;
        let is_marked = self.external_ids.iter().all(|(k, v)| notes.get(k) == Some(v));
        let is_bare = !self.external_ids.keys().any(|key| notes.contains_key(key));
        let ours = is_marked || (is_bare && self.unmarked == Unmarked::Ours);
        if view.bridge != self.bridge || !ours {
            return Err(PortError::Taken { name: self.name.clone(), bridge: view.bridge });
        }
        let (row, interface) = (self.interface_row(), &view.interface);
        let same = interface.interface_type == self.interface_type
            && interface.ofport_request == self.ofport_request.map(|port| i64::from(port.0))
            && interface.options == self.options
            && interface.mac == self.mac.map(|mac| mac.to_string())
            && interface.mtu_request == self.mtu_request.map(i64::from);
        let mut operations = Vec::new();
        if !is_marked {
            let here = vec![Condition::uuid(view.port_uuid)];
            let pairs = self.external_ids.iter().map(|(k, v)| (k.as_str(), v.as_str()));
            operations.push(Operation::set_pairs(Table::Port, here, "external_ids", pairs));
        }
        if !same {
            operations.push(Operation::Update {
                table: Table::Interface,
                conditions: vec![Condition::uuid(view.interface_uuid)],
                row,
            });
        }
        if view.port.tag != self.tag.map(i64::from) {
            operations.push(Operation::Update {
                table: Table::Port,
                conditions: vec![Condition::uuid(view.port_uuid)],
                row: Row::new().with("tag", self.tag.map(i64::from)),
            });
        }
        Ok(operations)
    }

    fn insertion(&self, number: usize) -> Vec<Operation> {
        let (port, interface) = (format!("port{number}"), format!("interface{number}"));
        let port_row = Row::new()
            .with("name", self.name.as_str())
            .with("interfaces", Atom::NamedUuid(interface.clone()))
            .with("external_ids", &self.external_ids)
            .with_some("tag", self.tag.map(i64::from));
        vec![
            Operation::require_named(Table::Bridge, &self.bridge),
            Operation::insert(
                Table::Interface,
                &interface,
                self.interface_row().with("name", self.name.as_str()),
            ),
            Operation::insert(Table::Port, &port, port_row),
            Operation::Mutate {
                table: Table::Bridge,
                conditions: vec![Condition::equal("name", self.bridge.as_str())],
                mutations: vec![Mutation::insert("ports", Atom::NamedUuid(port))],
            },
        ]
    }

    /// Every column of the interface that the spec decides.
    fn interface_row(&self) -> Row {
        Row::new()
            .with("type", self.interface_type.as_str())
            .with("options", &self.options)
            .with("ofport_request", self.ofport_request.map(|port| i64::from(port.0)))
            .with("mac", self.mac.map(|mac| mac.to_string()))
            .with("mtu_request", self.mtu_request.map(i64::from))
    }

    /// The refusal of a transaction that added this port alone, in terms of the port.
    pub(super) fn explain(&self, error: OvsdbError) -> PortError {
        match &error {
            OvsdbError::Refused(failure) if failure.is_wait_failure() => {
                PortError::NoBridge(self.bridge.clone())
            }
            _ => PortError::Ovsdb(error),
        }
    }
}

impl PortSelector {
    /// The port of this name.
    #[must_use]
    pub fn name(name: &str) -> Self {
        Self::Name(name.to_owned())
    }

    /// The ports with at least this note.
    #[must_use]
    pub fn external_id(key: &str, value: &str) -> Self {
        Self::ExternalIds(BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }
}

impl OvsdbSession {
    /// Adds a port; one that is there with the same notes is brought to the spec. Concurrent calls
    /// share a transaction.
    pub async fn add_port(&self, spec: PortSpec) -> Result<(), PortError> {
        let (reply_tx, reply_rx) = oneshot::channel();
        let sent = self.add_tx.send(Add { spec, reply_tx }).await;
        sent.map_err(|_| OvsdbError::NotConnected)?;
        reply_rx.await.map_err(|_| OvsdbError::Disconnected)?
    }

    /// Deletes ports and says how many there were; none is no error.
    pub async fn del_port(&self, selector: PortSelector) -> Result<usize, PortError> {
        self.wait_connected(self.core.patience).await?;
        let rows = self.rows();
        let selected = |port: &ovsdb::Port| match &selector {
            PortSelector::Name(name) => port.name == *name,
            PortSelector::ExternalIds(ids) => {
                ids.iter().all(|(key, value)| port.external_ids.get(key) == Some(value))
            }
        };
        let mut operations = Vec::new();
        let mut n_ports = 0;
        for (bridge_uuid, bridge) in &rows.bridges {
            let doomed: Vec<_> = bridge
                .ports
                .iter()
                .copied()
                // A bridge's own port goes with the bridge only.
                .filter(|uuid| {
                    rows.ports.get(uuid).is_some_and(|p| p.name != bridge.name && selected(p))
                })
                .collect();
            if doomed.is_empty() {
                continue;
            }
            n_ports += doomed.len();
            operations.push(Operation::Mutate {
                table: Table::Bridge,
                conditions: vec![Condition::uuid(*bridge_uuid)],
                mutations: vec![Mutation::delete("ports", Value::from(doomed))],
            });
        }
        if n_ports > 0 {
            self.transact(operations).await?;
        }
        Ok(n_ports)
    }

    /// Waits until ovs-vswitchd has given the interface its OpenFlow number.
    pub async fn wait_ofport(&self, name: &str, deadline: Duration) -> Result<OfPort, PortError> {
        let mut rows_rx = self.subscribe();
        let wait = rows_rx.wait_for(|rows| {
            rows.interface(name).is_some_and(|(_, interface)| interface.ofport.is_some())
        });
        let rows = match timeout(deadline, wait).await {
            Ok(Ok(rows)) => std::sync::Arc::clone(&rows),
            Ok(Err(_)) => return Err(OvsdbError::NotConnected.into()),
            Err(_) => {
                return Err(PortError::Timeout { name: name.to_owned(), waited: deadline });
            }
        };
        let interface = rows.interface(name).map(|(_, interface)| interface);
        match interface.and_then(|interface| interface.valid_ofport()) {
            Some(ofport) => Ok(wide(ofport)),
            None => Err(PortError::Failed {
                name: name.to_owned(),
                reason: interface
                    .and_then(|interface| interface.error.clone())
                    .unwrap_or_else(|| "no reason given".to_owned()),
            }),
        }
    }

    /// Adds notes to a port of ours that may just have been added; notes of the same keys stay.
    pub async fn note_port(
        &self,
        name: &str,
        external_ids: &BTreeMap<String, String>,
    ) -> Result<(), PortError> {
        let operations = vec![
            Operation::require_named(Table::Port, name),
            Operation::Mutate {
                table: Table::Port,
                conditions: vec![Condition::equal("name", name)],
                mutations: vec![Mutation::insert("external_ids", external_ids)],
            },
        ];
        match self.transact(operations).await {
            Err(OvsdbError::Refused(failure)) if failure.is_wait_failure() => {
                Err(PortError::Gone(name.to_owned()))
            }
            noted => Ok(noted.map(drop)?),
        }
    }
}

/// The database shows reserved ports by their 16-bit numbers of OpenFlow 1.0.
fn wide(ofport: u32) -> OfPort {
    OfPort(if (0xff00..=0xffff).contains(&ofport) { ofport | 0xffff_0000 } else { ofport })
}
