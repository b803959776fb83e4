//! Flows by the bridge's reconciler.

use std::collections::BTreeSet;
use std::time::Duration;

use cni_api::Attachment;
use openflow::{Field, Flow, FlowKey, Intent, OfPort};
use pipeline::{Category, NodeConfig, PodInterface, connectivity};
use switch::bridge::{BarrierError, Bridge, Owner};
use tokio::time::timeout;
use tonic::async_trait;
use tracing::warn;

use super::super::model::PodRecord;
use super::super::traits::{Flows, FlowsError, PortState};
use super::switch_gone;
use crate::policy::Gate;

/// Whose the flows are at the bridge.
const OWNER: Owner = Owner(Category::PodConnectivity.number());

/// Flows of this node's Pods.
#[derive(Clone, Debug)]
pub(super) struct RealFlows {
    bridge: Bridge,
    node: NodeConfig,
    /// Keeps ports of new Pods closed; none where there are no policies.
    gate: Option<Gate>,
}

/// How long a request waits for its Pod's policies: longer than they usually take.
const GATE_PATIENCE: Duration = Duration::from_millis(500);

/// How long the first look at the switch is waited for.
const LOOK_PATIENCE: Duration = Duration::from_secs(5);

impl RealFlows {
    pub(super) fn new(bridge: Bridge, node: NodeConfig, gate: Option<Gate>) -> Self {
        Self { bridge, node, gate }
    }

    fn intents(&self, record: &PodRecord) -> Vec<Intent> {
        let pod = PodInterface {
            name: record.host_name.to_string(),
            ofport: record.ofport,
            mac: record.mac,
            ips: record.ips.clone(),
        };
        connectivity::pod_flows(&self.node, &pod)
    }

    /// Waits for what the switch does, but not for a switch that is away.
    async fn while_reachable<T>(
        &self,
        work: impl Future<Output = Result<T, FlowsError>>,
    ) -> Result<T, FlowsError> {
        tokio::select! {
            biased;
            done = work => done,
            () = switch_gone(self.bridge.state()) => Err(switch_is_away()),
        }
    }
}

/// Whose packets these flows take, by port and MAC together.
fn sources_in(flows: &[Flow], records: &[PodRecord]) -> BTreeSet<Attachment> {
    let sources: BTreeSet<(u128, u128)> = flows
        .iter()
        .filter_map(|flow| {
            let matching = &flow.matching;
            Some((matching.exact(Field::InPort)?, matching.exact(Field::EthSrc)?))
        })
        .collect();
    let source = |record: &PodRecord| (record.ofport.0.into(), record.mac.to_bits().into());
    let there = records.iter().filter(|record| sources.contains(&source(record)));
    there.map(|record| record.attachment.clone()).collect()
}

/// The key under which the bridge knows a Pod's flows.
fn key(attachment: &Attachment) -> String {
    format!("pod/{attachment}")
}

fn switch_is_away() -> FlowsError {
    FlowsError::Unavailable("ovs-vswitchd does not answer".into())
}

fn translate(error: BarrierError) -> FlowsError {
    match error {
        refused @ BarrierError::Refused(_) => FlowsError::Refused(refused.to_string()),
        BarrierError::Closed => FlowsError::Unavailable(error.into()),
    }
}

#[async_trait]
impl Flows for RealFlows {
    async fn wait_reachable(&self, patience: Duration) -> Result<(), FlowsError> {
        let mut state_rx = self.bridge.state();
        match timeout(patience, state_rx.wait_for(|state| state.is_reachable())).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(switch_is_away()),
        }
    }

    async fn install(&self, record: &PodRecord) -> Result<(), FlowsError> {
        let key = key(&record.attachment);
        if let Some(gate) = &self.gate {
            gate.close_new(record);
        }
        self.bridge.set(OWNER, &key, self.intents(record));
        let installed = async {
            self.bridge.barrier_for(OWNER, &key).await.map_err(translate)?;
            if let Some(gate) = &self.gate {
                gate.opened(&record.attachment, GATE_PATIENCE).await;
            }
            Ok(())
        };
        self.while_reachable(installed).await
    }

    async fn in_force(&self, records: &[PodRecord]) -> BTreeSet<Attachment> {
        let all = || records.iter().map(|record| record.attachment.clone()).collect();
        if self.gate.is_none() {
            return all();
        }
        let mut state_rx = self.bridge.state();
        let read = state_rx.wait_for(|state| state.connected && state.dumped);
        match timeout(LOOK_PATIENCE, read).await.ok().and_then(Result::ok).map(|state| state.held) {
            // A switch that comes to be there later starts anew, without flows.
            None | Some(true) => return all(),
            Some(false) => {}
        }
        match self.bridge.flows_on_switch(OWNER).await {
            Ok(flows) => sources_in(&flows, records),
            Err(error) => {
                warn!(error = %error, "flows of Pods cannot be read: they are kept closed for a moment");
                BTreeSet::new()
            }
        }
    }

    fn restore(&self, record: &PodRecord, port: PortState) {
        let key = key(&record.attachment);
        if record.ofport == OfPort::NONE {
            warn!(port = %record.host_name, "port without a number gets no flows");
            self.bridge.remove(OWNER, &key);
            return;
        }
        if let (PortState::Closed, Some(gate)) = (port, &self.gate) {
            gate.close_moved(record);
        }
        self.bridge.set(OWNER, &key, self.intents(record));
    }

    async fn remove(&self, attachment: &Attachment) -> Result<(), FlowsError> {
        let key = key(attachment);
        self.bridge.remove(OWNER, &key);
        if let Some(gate) = &self.gate {
            gate.forget(attachment);
        }
        let removed = async { self.bridge.barrier_for(OWNER, &key).await.map_err(translate) };
        self.while_reachable(removed).await
    }

    async fn check(&self, record: &PodRecord) -> Result<(), FlowsError> {
        let key = key(&record.attachment);
        let read = async {
            let read = self.bridge.flows_of(OWNER, &key).await;
            read.map_err(|error| FlowsError::Unavailable(error.into()))
        };
        let present = self.while_reachable(read).await?;
        let present: BTreeSet<FlowKey> = present.iter().map(Flow::key).collect();
        for intent in self.intents(record) {
            if let Intent::Flow(wanted) = intent
                && !present.contains(&wanted.key())
            {
                return Err(FlowsError::Missing(format!("flow is missing: {wanted}")));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::mk_record;

    #[test]
    fn a_pod_is_on_the_switch_by_its_port_and_its_mac() {
        let (a, b) = (mk_record("c1", 70), mk_record("c2", 71));
        let flow = |record: &PodRecord, port: u32| {
            let matching = openflow::Match::new().in_port(OfPort(port)).eth_src(record.mac);
            Flow::new(openflow::TableId(0), 1, matching)
        };
        let of_port = Flow::new(openflow::TableId(0), 1, openflow::Match::new().in_port(b.ofport));
        let flows = [flow(&a, 70), flow(&b, 72), of_port];
        let there = sources_in(&flows, &[a.clone(), b]);
        assert_eq!(there, BTreeSet::from([a.attachment]));
    }
}
