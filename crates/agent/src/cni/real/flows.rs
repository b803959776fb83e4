//! Flows by the bridge's reconciler; looked at by a connection of its own.

use std::path::PathBuf;

use cni_api::Attachment;
use openflow::message::{FlowFilter, MultipartBody, MultipartRequest};
use openflow::{Cookie, Flow, FlowKey, Intent, OfPort};
use pipeline::fields::cookie;
use pipeline::{Category, NodeConfig, PodInterface, connectivity};
use switch::bridge::{BarrierError, Bridge, Owner};
use switch::channel::{Channel, ChannelError, Purpose};
use tonic::async_trait;
use tracing::warn;

use super::super::model::PodRecord;
use super::super::traits::{Flows, FlowsError};

/// Whose the flows are at the bridge.
const OWNER: Owner = Owner(Category::PodConnectivity.number());

/// Flows of this node's Pods.
#[derive(Clone, Debug)]
pub(super) struct RealFlows {
    bridge: Bridge,
    mgmt_socket: PathBuf,
    node: NodeConfig,
}

impl RealFlows {
    pub(super) fn new(bridge: Bridge, mgmt_socket: PathBuf, node: NodeConfig) -> Self {
        Self { bridge, mgmt_socket, node }
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

    /// Every flow of Pod connectivity that is on the switch now.
    async fn dump(&self) -> Result<Vec<Flow>, ChannelError> {
        let (channel, _async_rx) =
            Channel::connect(&self.mgmt_socket, Purpose::Programming).await?;
        let category = cookie(Category::PodConnectivity, 0);
        let filter = FlowFilter::by_cookie(category, Cookie(!0 << 40));
        let mut flows = Vec::new();
        let request = MultipartRequest::Flows(filter);
        let dumped = channel.multipart(request, "flow dump", |body| match body {
            MultipartBody::Flows(dump) => {
                flows.extend(dump.flows.into_iter().map(|stats| stats.flow));
                Ok(())
            }
            _ => Err(ChannelError::Unexpected("flow dump")),
        });
        dumped.await?;
        Ok(flows)
    }
}

/// The key under which the bridge knows a Pod's flows.
fn key(attachment: &Attachment) -> String {
    format!("pod/{attachment}")
}

fn translate(error: BarrierError) -> FlowsError {
    match error {
        refused @ BarrierError::Refused(_) => FlowsError::Refused(refused.to_string()),
        BarrierError::Closed => FlowsError::Unavailable(error.into()),
    }
}

#[async_trait]
impl Flows for RealFlows {
    async fn install(&self, record: &PodRecord) -> Result<(), FlowsError> {
        let key = key(&record.attachment);
        self.bridge.set(OWNER, &key, self.intents(record));
        self.bridge.barrier_for(OWNER, &key).await.map_err(translate)
    }

    fn restore(&self, record: &PodRecord) {
        if record.ofport == OfPort::NONE {
            warn!(port = %record.host_name, "port without a number gets no flows");
            return;
        }
        self.bridge.set(OWNER, &key(&record.attachment), self.intents(record));
    }

    async fn remove(&self, attachment: &Attachment) -> Result<(), FlowsError> {
        let key = key(attachment);
        self.bridge.remove(OWNER, &key);
        self.bridge.barrier_for(OWNER, &key).await.map_err(translate)
    }

    async fn check(&self, record: &PodRecord) -> Result<(), FlowsError> {
        let dumped = self.dump().await.map_err(|error| FlowsError::Unavailable(error.into()))?;
        let present: std::collections::BTreeSet<FlowKey> = dumped.iter().map(Flow::key).collect();
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
