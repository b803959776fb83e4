//! Flows by the bridge's reconciler.

use std::collections::BTreeSet;
use std::time::Duration;

use cni_api::Attachment;
use openflow::{Flow, FlowKey, Intent, OfPort};
use pipeline::{Category, NodeConfig, PodInterface, connectivity};
use switch::bridge::{BarrierError, Bridge, Owner};
use tokio::time::timeout;
use tonic::async_trait;
use tracing::warn;

use super::super::model::PodRecord;
use super::super::traits::{Flows, FlowsError};
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
            gate.close(record);
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

    fn restore(&self, record: &PodRecord) {
        let key = key(&record.attachment);
        if record.ofport == OfPort::NONE {
            warn!(port = %record.host_name, "port without a number gets no flows");
            self.bridge.remove(OWNER, &key);
        } else {
            self.bridge.set(OWNER, &key, self.intents(record));
        }
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
