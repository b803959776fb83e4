//! What agents report: how far policies are realized on their Nodes.
//!
//! The leader puts reports together and writes statuses; another replica refuses them, and the agent
//! turns to the next one, so that reports reach the leader whichever replica gets them first.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antrea_runtime::CancellationToken;
use apis::common::{Timestamp, whole_seconds};
use apis::controlplane::{NetworkPolicyStatus, wire};
use apiserver::body::{self, Response};
use apiserver::resource::{Call, Connect};
use apiserver::rest::read_body;
use apiserver::server::Request;
use apiserver::status::ApiError;
use futures::future::BoxFuture;
use kube_io::Client;
use kube_io::policy_status::{self, StatusOf};
use policy::status::{PolicyRef, Statuses};
use policy::translate::{PolicyFacts, PolicyKind};
use tokio::sync::{Notify, mpsc};

use super::source::{Agents, forbidden};
use super::state::State;

/// Statuses are written no more often than this, so that many Nodes' reports make one write.
const PACE: Duration = Duration::from_millis(100);
/// Time before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Reports, put together. Every replica keeps the facts; only the leader takes reports.
#[derive(Default)]
pub(crate) struct Reports {
    statuses: Mutex<Statuses>,
    changed: Notify,
    leads: std::sync::atomic::AtomicBool,
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, Statuses> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leads(&self) -> bool {
        self.leads.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn set_leads(&self, leads: bool) {
        self.leads.store(leads, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Takes the facts of policies in.
pub(crate) async fn follow_facts(
    reports: Arc<Reports>,
    state: Arc<State>,
    mut facts_rx: mpsc::UnboundedReceiver<Vec<PolicyFacts>>,
) {
    while let Some(all) = facts_rx.recv().await {
        {
            let store = state.lock();
            let mut statuses = reports.lock();
            for facts in &all {
                let span = facts.span.iter().flat_map(|span| span.nodes());
                let nodes: BTreeSet<Arc<str>> =
                    span.map(|node| Arc::clone(store.engine().index().node_name(*node))).collect();
                statuses.facts(facts, nodes);
            }
        }
        reports.changed.notify_one();
    }
}

/// What the leader does: writes the statuses that changed.
pub(crate) async fn write(client: Client, reports: Arc<Reports>, stop: CancellationToken) {
    reports.lock().forget_written();
    reports.set_leads(true);
    loop {
        let now = whole_seconds(Timestamp::now());
        let changed = reports.lock().take(&now);
        let mut pause = PACE;
        for (policy, status) in changed {
            let of = status_of(&policy);
            match policy_status::write(&client, &of, &status).await {
                Ok(()) => {}
                // It is gone, or another one has its name: the watch will tell.
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(policy = %policy.name, error = %error.chain(), "write status");
                    reports.lock().not_written(&policy);
                    reports.changed.notify_one();
                    pause = RETRY;
                }
            }
        }
        let next = async {
            tokio::time::sleep(pause).await;
            reports.changed.notified().await;
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = next => {}
        }
    }
    reports.set_leads(false);
}

fn status_of(policy: &PolicyRef) -> StatusOf<'_> {
    StatusOf {
        namespace: (policy.kind == PolicyKind::Namespaced).then_some(&*policy.namespace),
        name: &policy.name,
        uid: &policy.uid,
    }
}

/// Answers `networkpolicies/status`.
pub(crate) struct StatusEndpoint {
    pub(crate) reports: Arc<Reports>,
    pub(crate) state: Arc<State>,
    pub(crate) agents: Agents,
}

impl Connect for StatusEndpoint {
    fn connect(
        &self,
        call: Call,
        request: Request,
    ) -> BoxFuture<'static, Result<Response, ApiError>> {
        let node = self.agents.node(&call.user, &self.state);
        let reports = Arc::clone(&self.reports);
        Box::pin(async move {
            let node = node?.ok_or_else(|| forbidden("only agents report".to_owned()))?;
            if !reports.leads() {
                let message = "this replica does not lead; report to another one";
                return Err(ApiError::unavailable(message));
            }
            let header = request.headers().get(hyper::header::CONTENT_TYPE);
            let protobuf = header
                .is_some_and(|value| value.as_bytes().starts_with(wire::CONTENT_TYPE.as_bytes()));
            let bytes = read_body(request).await?;
            let status: NetworkPolicyStatus = if protobuf {
                wire::decode(&bytes).map_err(|error| ApiError::bad_request(error.to_string()))?
            } else {
                serde_json::from_slice(&bytes)
                    .map_err(|error| ApiError::bad_request(error.to_string()))?
            };
            let name = &call.path.name;
            if status.metadata.name.as_deref().is_some_and(|own| own != name && !name.is_empty()) {
                return Err(ApiError::bad_request("the status is of another policy".to_owned()));
            }
            if status.nodes.iter().any(|own| own.node_name != node) {
                return Err(forbidden(format!("the agent of Node {node:?} reports for it alone")));
            }
            {
                let mut statuses = reports.lock();
                for own in &status.nodes {
                    statuses.report(name, own);
                }
            }
            reports.changed.notify_one();
            Ok(body::json(201, &status))
        })
    }
}
