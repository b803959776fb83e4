//! Ports by OVSDB.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use cni_api::Attachment;
use openflow::OfPort;
use ovsdb::{PortView, Snapshot};
use switch::bridge::Bridge;
use switch::ovsdb_session::{
    OvsdbError, OvsdbSession, PortError, PortSelector, PortSpec, Unmarked,
};
use tonic::async_trait;
use tracing::warn;

use super::super::model::{HostIfName, PodRecord, is_port_of};
use super::super::traits::{Ports, PortsError};
use super::switch_gone;

/// How long ovs-vswitchd may take to give a port its number.
const NUMBER_DEADLINE: Duration = Duration::from_secs(5);

/// How long a connection to ovsdb-server may take.
const CONNECT_DEADLINE: Duration = Duration::from_secs(3);

/// Ports of one bridge.
#[derive(Clone, Debug)]
pub(super) struct RealPorts {
    ovsdb: OvsdbSession,
    bridge: String,
    switch: Bridge,
}

impl RealPorts {
    pub(super) fn new(ovsdb: OvsdbSession, bridge: String, switch: Bridge) -> Self {
        Self { ovsdb, bridge, switch }
    }

    /// The rows, current or not at all.
    async fn rows(&self) -> Result<Arc<Snapshot>, PortsError> {
        let connected = self.ovsdb.wait_connected(CONNECT_DEADLINE).await;
        connected.map_err(|error| PortsError::Unavailable(error.into()))?;
        Ok(self.ovsdb.rows())
    }

    /// The ports of an attachment, by their notes; what else the notes say may be damaged.
    fn names_of(&self, rows: &Snapshot, attachment: &Attachment) -> Vec<String> {
        rows.ports_of(&self.bridge)
            .filter(|view| is_port_of(&view.port.external_ids, attachment))
            .map(|view| view.port.name.clone())
            .collect()
    }
}

/// The Pod interface that a port's notes describe.
fn record_of(view: &PortView) -> Option<PodRecord> {
    let ofport = view.interface.valid_ofport().map_or(OfPort::NONE, OfPort);
    let (name, ids) = (&view.port.name, &view.port.external_ids);
    match PodRecord::from_external_ids(name, ofport, ids) {
        Ok(record) => record,
        Err(error) => {
            warn!(port = name, %error, "port of a Pod not understood");
            None
        }
    }
}

fn translate(error: PortError, action: &'static str, name: &str) -> PortsError {
    let name = HostIfName::existing(name);
    match error {
        PortError::Ovsdb(error @ (OvsdbError::NotConnected | OvsdbError::Disconnected)) => {
            PortsError::Unavailable(error.into())
        }
        PortError::Failed { reason, .. } => PortsError::Refused { name, reason },
        PortError::Timeout { .. } => PortsError::NoNumber(name),
        error => PortsError::Failed { action, name, source: error.into() },
    }
}

#[async_trait]
impl Ports for RealPorts {
    async fn add(&self, record: &PodRecord) -> Result<(), PortsError> {
        let name = record.host_name.as_str();
        let mut spec = PortSpec::new(&self.bridge, name).ofport_request(record.ofport);
        spec.external_ids = record.external_ids();
        // Its name is made from the attachment's: no other port has it.
        spec.unmarked = Unmarked::Ours;
        self.ovsdb.add_port(spec).await.map_err(|error| translate(error, "add", name))
    }

    async fn note_addresses(&self, record: &PodRecord) -> Result<(), PortsError> {
        let name = record.host_name.as_str();
        let noted = self.ovsdb.note_port(name, &record.address_ids()).await;
        noted.map_err(|error| translate(error, "note addresses on", name))
    }

    async fn wait_ofport(&self, record: &PodRecord) -> Result<OfPort, PortsError> {
        let name = record.host_name.as_str();
        tokio::select! {
            biased;
            // The switch is ahead of the database. A number is given anew as late as possible:
            // this one is not that of an earlier port of the same name.
            () = self.switch.port_added(name, record.ofport) => Ok(record.ofport),
            waited = self.ovsdb.wait_ofport(name, NUMBER_DEADLINE) => {
                waited.map_err(|error| translate(error, "read", name))
            }
            // Numbers are given by who does not answer now.
            () = switch_gone(self.switch.state()) => {
                Err(PortsError::Unavailable("ovs-vswitchd does not answer".into()))
            }
        }
    }

    async fn delete(&self, attachment: &Attachment) -> Result<(), PortsError> {
        let rows = self.rows().await?;
        for name in self.names_of(&rows, attachment) {
            let deleted = self.ovsdb.del_port(PortSelector::name(&name)).await;
            deleted.map_err(|error| translate(error, "delete", &name))?;
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<PodRecord>, PortsError> {
        let rows = self.rows().await?;
        Ok(rows.ports_of(&self.bridge).filter_map(|view| record_of(&view)).collect())
    }

    async fn used_ofports(&self) -> Result<BTreeSet<OfPort>, PortsError> {
        let rows = self.rows().await?;
        let mut used = BTreeSet::new();
        for view in rows.ports_of(&self.bridge) {
            used.extend(view.interface.valid_ofport().map(OfPort));
            let requested = view.interface.ofport_request;
            used.extend(requested.and_then(|number| u32::try_from(number).ok()).map(OfPort));
        }
        Ok(used)
    }

    async fn check(&self, record: &PodRecord) -> Result<(), PortsError> {
        let mut rows = self.rows().await?;
        let name = record.host_name.as_str();
        if rows.interface(name).is_some_and(|(_, interface)| interface.ofport.is_none()) {
            // The switch told us the number before it told the database.
            let waited = self.ovsdb.wait_ofport(name, NUMBER_DEADLINE).await;
            waited.map_err(|error| translate(error, "read", name))?;
            rows = self.ovsdb.rows();
        }
        let differs = |what: String| Err(PortsError::Differs(what));
        let Some(view) = rows.port_view(name).filter(|view| view.bridge == self.bridge) else {
            return differs(format!("port {name} is missing from {}", self.bridge));
        };
        match record_of(&view) {
            Some(found) if found == *record => Ok(()),
            Some(found) if found.ofport != record.ofport => differs(format!(
                "port {name} has number {}, made was {}",
                found.ofport.0, record.ofport.0
            )),
            _ => differs(format!("port {name} has other external_ids")),
        }
    }
}
