//! What agents report: how far policies are realized on their Nodes.
//!
//! An agent tells the replica that it follows; that one keeps it and tells the others (`peers`). So
//! every replica can put statuses together, and whichever holds the Lease writes them, from the first
//! moment on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antrea_runtime::CancellationToken;
use apis::common::{Timestamp, whole_seconds};
use apis::controlplane::{NetworkPolicyNodeStatus, NetworkPolicyStatus, NodeStatsSummary, Typed};
use apiserver::body::{self, Response};
use apiserver::resource::{Call, Connect};
use apiserver::server::Request;
use apiserver::status::ApiError;
use futures::future::BoxFuture;
use kube_io::Client;
use kube_io::policy_status::{self, StatusOf};
use policy::status::{PolicyRef, Statuses};
use policy::translate::{PolicyFacts, PolicyKind};
use tokio::sync::{Notify, mpsc, watch};

use super::questions::read;
use super::source::{Agents, Reporter, forbidden};
use super::state::State;
use super::traffic::Traffic;

/// Statuses are written no more often than this, so that many Nodes' reports make one write.
const PACE: Duration = Duration::from_millis(100);
/// Time before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Reports, put together.
pub(crate) struct Reports {
    /// Name of this process, for other replicas.
    instance: String,
    statuses: Mutex<Statuses>,
    changed: Notify,
    taken: Mutex<Taken>,
    /// Number of the newest report that an agent gave us.
    newest: watch::Sender<u64>,
    /// What policies met.
    pub(super) traffic: Traffic,
}

/// What agents told this replica, for the others.
#[derive(Default)]
struct Taken {
    newest: u64,
    /// By number: of which policy, what, and when.
    reports: BTreeMap<u64, (String, NetworkPolicyNodeStatus, u64)>,
    /// Numbers of the reports, by policy and Node.
    numbers: BTreeMap<String, BTreeMap<String, u64>>,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            instance: format!("{:016x}", rand::random::<u64>()),
            statuses: Mutex::default(),
            changed: Notify::new(),
            taken: Mutex::default(),
            newest: watch::Sender::new(0),
            traffic: Traffic::default(),
        }
    }
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, Statuses> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Name of this process.
    pub(crate) fn instance(&self) -> &str {
        &self.instance
    }

    /// Takes what an agent told us of traffic.
    pub(super) fn hear_traffic(&self, summary: &NodeStatsSummary) {
        self.traffic.hear_agent(summary);
        self.newest.send_modify(|_| {});
    }

    /// Tells when agents have reported anything new.
    pub(super) fn news(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// What agents told us after the report of this number, and the newest number.
    pub(super) fn after(&self, number: u64) -> (Vec<NetworkPolicyStatus>, u64) {
        let taken = self.taken();
        let mut news: BTreeMap<&str, NetworkPolicyStatus> = BTreeMap::new();
        for (_, (uid, status, made)) in taken.reports.range(number.saturating_add(1)..) {
            let news = news.entry(uid.as_str()).or_default();
            news.metadata.name.get_or_insert_with(|| uid.clone());
            note_made(news, &status.node_name, *made);
            news.nodes.push(status.clone());
        }
        (news.into_values().collect(), taken.newest)
    }

    /// Takes what an agent told us itself.
    fn take(&self, uid: &str, nodes: &[NetworkPolicyNodeStatus], made: u64) {
        let mut taken = self.taken();
        let taken = &mut *taken;
        let numbers = taken.numbers.entry(uid.to_owned()).or_default();
        for node in nodes {
            taken.newest += 1;
            if let Some(before) = numbers.insert(node.node_name.clone(), taken.newest) {
                taken.reports.remove(&before);
            }
            taken.reports.insert(taken.newest, (uid.to_owned(), node.clone(), made));
        }
        self.newest.send_replace(taken.newest);
    }

    /// Forgets a policy that is gone.
    fn forget(&self, uid: &str) {
        let mut taken = self.taken();
        for number in taken.numbers.remove(uid).into_iter().flat_map(BTreeMap::into_values) {
            taken.reports.remove(&number);
        }
    }

    /// Takes and puts together what an agent told us itself.
    fn hear_agent(&self, uid: &str, nodes: &[NetworkPolicyNodeStatus]) {
        let now = now();
        for node in nodes {
            let made = self.lock().report_now(uid, node, now);
            self.take(uid, std::slice::from_ref(node), made);
        }
        self.changed.notify_one();
    }

    /// Puts together what an agent told another replica, and when.
    fn hear(
        &self,
        uid: &str,
        nodes: &[NetworkPolicyNodeStatus],
        made: impl Fn(&NetworkPolicyNodeStatus) -> u64,
    ) {
        let mut statuses = self.lock();
        for node in nodes {
            statuses.report(uid, node, made(node));
        }
        drop(statuses);
        self.changed.notify_one();
    }
}

/// Writes into a status when a Node's part of it was made: an annotation with the Node's name.
fn note_made(status: &mut NetworkPolicyStatus, node: &str, made: u64) {
    let annotations = status.metadata.annotations.get_or_insert_default();
    annotations.insert(node.to_owned(), made.to_string());
}

/// When a Node's part of a status was made; at the beginning of time where that is not said.
fn made(status: &NetworkPolicyStatus, node: &str) -> u64 {
    let annotations = status.metadata.annotations.as_ref();
    annotations.and_then(|all| all.get(node)?.parse().ok()).unwrap_or(0)
}

/// Milliseconds since 1970.
fn now() -> u64 {
    u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
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
                if facts.span.is_none() {
                    reports.forget(&facts.uid);
                }
            }
        }
        reports.changed.notify_one();
    }
}

/// What the leader does: writes the statuses that changed.
pub(crate) async fn write(client: Client, reports: Arc<Reports>, stop: CancellationToken) {
    reports.lock().forget_written();
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
            () = stop.cancelled() => return,
            () = next => {}
        }
    }
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
        let reporter = self.agents.reporter(&call.user, &self.state);
        let reports = Arc::clone(&self.reports);
        Box::pin(async move {
            let reporter = reporter?;
            let status: NetworkPolicyStatus = read(request).await?;
            let name = &call.path.name;
            if status.metadata.name.as_deref().is_some_and(|own| own != name && !name.is_empty()) {
                return Err(ApiError::bad_request("the status is of another policy".to_owned()));
            }
            if let Reporter::Agent(node) = &reporter {
                if status.nodes.iter().any(|own| own.node_name != *node) {
                    let why = format!("the agent of Node {node:?} reports for it alone");
                    return Err(forbidden(why));
                }
                reports.hear_agent(name, &status.nodes);
            } else {
                reports.hear(name, &status.nodes, |node| made(&status, &node.node_name));
            }
            Ok(body::json(201, &Typed::new(&status)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_report(node: &str, generation: i64) -> NetworkPolicyNodeStatus {
        let node_name = node.to_owned();
        NetworkPolicyNodeStatus { node_name, generation, ..NetworkPolicyNodeStatus::default() }
    }

    /// Policy, Node and generation of each report.
    fn listed(all: &[NetworkPolicyStatus]) -> Vec<(String, String, i64)> {
        let each = |status: &NetworkPolicyStatus| {
            let uid = status.metadata.name.clone().unwrap_or_default();
            let nodes = status.nodes.iter();
            nodes.map(|n| (uid.clone(), n.node_name.clone(), n.generation)).collect::<Vec<_>>()
        };
        all.iter().flat_map(each).collect()
    }

    #[test]
    fn other_replicas_are_told_what_is_new_to_them_and_only_what_agents_said_here() {
        let row = |uid: &str, node: &str, generation| (uid.to_owned(), node.to_owned(), generation);
        let reports = Reports::default();
        reports.take("p", &[mk_report("n1", 1)], 11);
        reports.take("q", &[mk_report("n1", 1)], 12);
        reports.hear("p", &[mk_report("n2", 1)], |_| 13);
        let (all, number) = reports.after(0);
        assert_eq!(listed(&all), [row("p", "n1", 1), row("q", "n1", 1)]);
        assert!(reports.after(number).0.is_empty());
        reports.take("p", &[mk_report("n1", 2)], 14);
        assert_eq!(reports.after(number).0.iter().map(|all| made(all, "n1")).sum::<u64>(), 14);
        assert_eq!(listed(&reports.after(number).0), [row("p", "n1", 2)]);
        assert_eq!(*reports.news().borrow(), 3);
        assert_eq!(listed(&reports.after(0).0), [row("p", "n1", 2), row("q", "n1", 1)]);
        reports.forget("p");
        assert_eq!(listed(&reports.after(0).0), [row("q", "n1", 1)]);
    }
}
