//! Bridges and notes as operations on the database.

use std::collections::BTreeMap;

use openflow::{MacAddr, TableId};
use ovsdb::{Atom, Condition, FailMode, Mutation, Operation, Row, Snapshot, Table, Value};

use super::{OvsdbError, OvsdbSession};

/// A bridge that should be there. It never gets a controller: setting one flushes its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeSpec {
    /// Its name.
    pub name: String,
    /// `system` or `netdev`.
    pub datapath_type: String,
    /// What it does without flows.
    pub fail_mode: FailMode,
    /// Its Ethernet address.
    pub hwaddr: Option<MacAddr>,
    /// Notes to set; others stay.
    pub external_ids: BTreeMap<String, String>,
    /// Switches to set; others stay.
    pub other_config: BTreeMap<String, String>,
}

/// OpenFlow versions that our bridges speak: 1.5 for us, the others for people's tools.
const PROTOCOLS: [&str; 6] =
    ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"];

impl BridgeSpec {
    /// A bridge that drops what no flow takes.
    #[must_use]
    pub fn secure(name: &str, datapath_type: &str) -> Self {
        Self {
            name: name.to_owned(),
            datapath_type: datapath_type.to_owned(),
            fail_mode: FailMode::Secure,
            hwaddr: None,
            external_ids: BTreeMap::new(),
            other_config: BTreeMap::new(),
        }
    }

    /// A learning bridge.
    #[must_use]
    pub fn standalone(name: &str, datapath_type: &str) -> Self {
        Self { fail_mode: FailMode::Standalone, ..Self::secure(name, datapath_type) }
    }

    fn all_other_config(&self) -> BTreeMap<String, String> {
        let mut all = self.other_config.clone();
        if let Some(mac) = self.hwaddr {
            all.insert("hwaddr".to_owned(), mac.to_string());
        }
        all
    }

    fn protocols() -> Value {
        Value::from(PROTOCOLS.to_vec())
    }

    /// Makes the bridge and its own port, all set before any other port can be added.
    fn insertion(&self) -> Vec<Operation> {
        let name = self.name.as_str();
        vec![
            Operation::insert(
                Table::Interface,
                "interface",
                Row::new().with("name", name).with("type", "internal"),
            ),
            Operation::insert(
                Table::Port,
                "port",
                Row::new()
                    .with("name", name)
                    .with("interfaces", Atom::NamedUuid("interface".to_owned())),
            ),
            Operation::insert(
                Table::Bridge,
                "bridge",
                Row::new()
                    .with("name", name)
                    .with("datapath_type", self.datapath_type.as_str())
                    .with("fail_mode", self.fail_mode.as_str())
                    .with("protocols", Self::protocols())
                    .with("ports", Atom::NamedUuid("port".to_owned()))
                    .with("external_ids", &self.external_ids)
                    .with("other_config", &self.all_other_config()),
            ),
            Operation::Mutate {
                table: Table::OpenVSwitch,
                conditions: Vec::new(),
                mutations: vec![Mutation::insert("bridges", Atom::NamedUuid("bridge".to_owned()))],
            },
        ]
    }

    /// Changes what differs on a bridge that is there.
    fn correction(&self, uuid: ovsdb::Uuid, row: &ovsdb::Bridge) -> Vec<Operation> {
        let same_row = |conditions| (Table::Bridge, conditions);
        let here = vec![Condition::uuid(uuid)];
        let mut operations = Vec::new();
        let mut columns = Row::new();
        if row.datapath_type != self.datapath_type {
            columns = columns.with("datapath_type", self.datapath_type.as_str());
        }
        if row.fail_mode.as_deref() != Some(self.fail_mode.as_str()) {
            columns = columns.with("fail_mode", self.fail_mode.as_str());
        }
        if !PROTOCOLS.iter().all(|protocol| row.protocols.contains(*protocol)) {
            columns = columns.with("protocols", Self::protocols());
        }
        if !columns.is_empty() {
            let (table, conditions) = same_row(here.clone());
            operations.push(Operation::Update { table, conditions, row: columns });
        }
        for (column, have, want) in [
            ("external_ids", &row.external_ids, &self.external_ids),
            ("other_config", &row.other_config, &self.all_other_config()),
        ] {
            let missing: Vec<_> = want
                .iter()
                .filter(|(key, value)| have.get(*key) != Some(value))
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            if !missing.is_empty() {
                let (table, conditions) = same_row(here.clone());
                operations.push(Operation::set_pairs(table, conditions, column, missing));
            }
        }
        operations
    }
}

impl OvsdbSession {
    /// Makes the bridge, or brings one that is there to the spec.
    pub async fn ensure_bridge(&self, spec: BridgeSpec) -> Result<(), OvsdbError> {
        self.wait_connected(self.core.patience).await?;
        let operations = match self.rows().bridge(&spec.name) {
            None => spec.insertion(),
            Some((uuid, row)) => spec.correction(uuid, row),
        };
        if !operations.is_empty() {
            self.transact(operations).await?;
        }
        Ok(())
    }

    /// Deletes a bridge with its ports; one that is not there is no error.
    pub async fn del_bridge(&self, name: &str) -> Result<(), OvsdbError> {
        self.wait_connected(self.core.patience).await?;
        let Some(uuid) = self.rows().bridge(name).map(|(uuid, _)| uuid) else { return Ok(()) };
        self.transact(vec![Operation::Mutate {
            table: Table::OpenVSwitch,
            conditions: Vec::new(),
            mutations: vec![Mutation::delete("bridges", uuid)],
        }])
        .await?;
        Ok(())
    }

    /// Names flow tables of a bridge; tables that are not mentioned stay as they are.
    pub async fn set_table_names(
        &self,
        bridge: &str,
        names: &[(TableId, &str)],
    ) -> Result<(), OvsdbError> {
        self.wait_connected(self.core.patience).await?;
        let operations = table_names(&self.rows(), bridge, names);
        if !operations.is_empty() {
            self.transact(operations).await?;
        }
        Ok(())
    }

    /// Sets notes on a bridge; others stay.
    pub async fn set_bridge_external_ids(
        &self,
        bridge: &str,
        ids: &[(&str, &str)],
    ) -> Result<(), OvsdbError> {
        let here = vec![Condition::equal("name", bridge)];
        let pairs = ids.iter().copied();
        self.transact(vec![
            Operation::require_named(Table::Bridge, bridge),
            Operation::set_pairs(Table::Bridge, here, "external_ids", pairs),
        ])
        .await?;
        Ok(())
    }

    /// Notes on a bridge, as last seen.
    #[must_use]
    pub fn bridge_external_ids(&self, bridge: &str) -> BTreeMap<String, String> {
        self.rows().bridge(bridge).map(|(_, row)| row.external_ids.clone()).unwrap_or_default()
    }

    /// Sets notes on the whole switch; others stay.
    pub async fn set_external_ids(&self, ids: &[(&str, &str)]) -> Result<(), OvsdbError> {
        self.set_root_pairs("external_ids", ids).await
    }

    /// Notes on the whole switch, as last seen.
    #[must_use]
    pub fn external_ids(&self) -> BTreeMap<String, String> {
        self.rows().root().map(|(_, row)| row.external_ids.clone()).unwrap_or_default()
    }

    /// Sets switches of ovs-vswitchd; others stay.
    pub async fn set_other_config(&self, pairs: &[(&str, &str)]) -> Result<(), OvsdbError> {
        self.set_root_pairs("other_config", pairs).await
    }

    /// Takes switches of ovs-vswitchd away; `flow-restore-wait` for instance.
    pub async fn remove_other_config(&self, keys: &[&str]) -> Result<(), OvsdbError> {
        self.transact(vec![Operation::Mutate {
            table: Table::OpenVSwitch,
            conditions: Vec::new(),
            mutations: vec![Mutation::delete("other_config", Value::from(keys.to_vec()))],
        }])
        .await?;
        Ok(())
    }

    async fn set_root_pairs(&self, column: &str, pairs: &[(&str, &str)]) -> Result<(), OvsdbError> {
        let pairs = pairs.iter().copied();
        self.transact(vec![Operation::set_pairs(Table::OpenVSwitch, Vec::new(), column, pairs)])
            .await?;
        Ok(())
    }
}

fn table_names(rows: &Snapshot, bridge: &str, names: &[(TableId, &str)]) -> Vec<Operation> {
    let have = rows.bridge(bridge).map(|(_, row)| row.flow_tables.clone()).unwrap_or_default();
    let mut operations = vec![Operation::require_named(Table::Bridge, bridge)];
    let mut missing = Vec::new();
    for (table, name) in names {
        let known = have
            .get(&i64::from(table.0))
            .and_then(|uuid| rows.flow_tables.get(uuid).map(|row| (uuid, row)));
        match known {
            Some((_, row)) if row.name.as_deref() == Some(*name) => {}
            Some((uuid, _)) => operations.push(Operation::Update {
                table: Table::FlowTable,
                conditions: vec![Condition::uuid(*uuid)],
                row: Row::new().with("name", *name),
            }),
            None => {
                let uuid_name = format!("table{table}");
                operations.push(Operation::insert(
                    Table::FlowTable,
                    &uuid_name,
                    Row::new().with("name", *name),
                ));
                missing.push((Atom::Integer(i64::from(table.0)), Atom::NamedUuid(uuid_name)));
            }
        }
    }
    if !missing.is_empty() {
        operations.push(Operation::Mutate {
            table: Table::Bridge,
            conditions: vec![Condition::equal("name", bridge)],
            mutations: vec![Mutation::insert("flow_tables", Value::Map(missing))],
        });
    }
    if operations.len() == 1 { Vec::new() } else { operations }
}
