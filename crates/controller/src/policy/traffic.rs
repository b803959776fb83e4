//! Traffic that policies met: what agents tell of it, and the sums as resources of an API.
//!
//! Agents tell totals (`policy::stats`), to the replica that they follow; that one tells the others
//! (`peers`), so that each can answer. Nothing of it is stored: a replica that starts alone has all of
//! it again when every agent has told once.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use antrea_runtime::CancellationToken;
use apis::common::Timestamp;
use apis::controlplane::NodeStatsSummary;
use apiserver::meta;
use apiserver::query::At;
use apiserver::resource::{Resource, Scope, Strategy};
use apiserver::source::{Batch, Listed, Object, Shared, Source, View};
use apiserver::status::ApiError;
use apiserver::store::VersionError;
use apiserver::table::{Column, Shown};
use apiserver::user::User;
use bytes::Bytes;
use policy::stats::{Key, Sums, Totals};
use policy::translate::{PolicyKind, UserPolicy};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::report::Reports;
use super::state::State;

const GROUP: &str = "stats.antrea.io";
const VERSION: &str = "v1alpha1";
/// Annotation of a summary that a replica tells another: when it was made.
const MADE: &str = "made";
/// How often what is about policies and Nodes that are gone is forgotten.
const FORGET: Duration = Duration::from_secs(60);

/// Whether statistics are kept: the gate NetworkPolicyStats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Statistics {
    /// They are.
    On,
    /// They are not; whoever asks for them is told so.
    Off,
}

/// What Nodes told of traffic.
#[derive(Default)]
pub(super) struct Traffic {
    sums: Mutex<Sums>,
    taken: Mutex<Taken>,
}

/// What agents told this replica, for the others.
#[derive(Default)]
struct Taken {
    newest: u64,
    keys: BTreeMap<u64, Key>,
    numbers: HashMap<Key, u64>,
}

impl Traffic {
    fn sums(&self) -> MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what an agent told us itself.
    pub(super) fn hear_agent(&self, summary: &NodeStatsSummary) {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        let (keys, _) = self.sums().report_now(summary, now);
        let mut taken = self.taken();
        for key in keys {
            taken.newest += 1;
            let newest = taken.newest;
            if let Some(before) = taken.numbers.insert(key.clone(), newest) {
                taken.keys.remove(&before);
            }
            taken.keys.insert(newest, key);
        }
    }

    /// Takes what an agent told another replica.
    pub(super) fn hear_replica(&self, summary: &NodeStatsSummary) {
        let annotations = summary.metadata.annotations.as_ref();
        let made = annotations.and_then(|all| all.get(MADE)?.parse().ok()).unwrap_or(0);
        self.sums().report(summary, made);
    }

    /// What agents told us after this number, and the newest number.
    pub(super) fn after(&self, number: u64) -> (Vec<NodeStatsSummary>, u64) {
        let (keys, newest): (Vec<Key>, u64) = {
            let taken = self.taken();
            let news = taken.keys.range(number.saturating_add(1)..).map(|(_, key)| key.clone());
            (news.collect(), taken.newest)
        };
        let told = self.sums().told(&keys).into_iter().map(|(made, mut summary)| {
            let annotations = summary.metadata.annotations.get_or_insert_default();
            annotations.insert(MADE.to_owned(), made.to_string());
            summary
        });
        (told.collect(), newest)
    }

    /// Forgets what is about policies and Nodes that are gone.
    fn forget(&self, state: &State) {
        let gone = {
            let store = state.lock();
            let engine = store.engine();
            let index = engine.index();
            let node =
                |name: &str| index.find_node(name).is_some_and(|id| index.node(id).is_some());
            self.sums().retain(|uid| engine.has_policy(uid), node)
        };
        let mut taken = self.taken();
        for key in gone {
            if let Some(number) = taken.numbers.remove(&key) {
                taken.keys.remove(&number);
            }
        }
    }

    fn of_policy(&self, uid: &str) -> Totals {
        self.sums().of_policy(uid)
    }
}

/// Forgets from time to time what is about policies and Nodes that are gone, until `stop`.
pub(crate) async fn forget(reports: Arc<Reports>, state: Arc<State>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(FORGET) => {}
        }
        if state.is_complete() {
            reports.traffic.forget(&state);
        }
    }
}

/// The resources.
pub(crate) fn resources(
    state: &Arc<State>,
    reports: &Arc<Reports>,
    statistics: Statistics,
) -> Vec<Resource> {
    use PolicyKind::{Cluster, K8s, Namespaced};
    let all = [
        (K8s, "NetworkPolicyStats", "networkpolicystats", Scope::Namespaced),
        (
            Cluster,
            "AntreaClusterNetworkPolicyStats",
            "antreaclusternetworkpolicystats",
            Scope::Cluster,
        ),
        (Namespaced, "AntreaNetworkPolicyStats", "antreanetworkpolicystats", Scope::Namespaced),
    ];
    let resources = all.into_iter().map(|(of, kind, plural, scope)| {
        let (state, reports) = (Arc::clone(state), Arc::clone(reports));
        let source = Arc::new(StatsSource { state, reports, statistics, of, kind });
        let mut resource = Resource::read_only((GROUP, VERSION), kind, plural, scope, source);
        resource.verbs = vec!["get", "list"];
        resource.columns = columns();
        resource.strategy = Arc::new(Cells);
        resource
    });
    resources.collect()
}

fn columns() -> Vec<Column> {
    let integer = |name| Column { kind: "integer".to_owned(), ..Column::new(name, Shown::Always) };
    vec![
        Column::new("Name", Shown::Always),
        integer("Sessions"),
        integer("Packets"),
        integer("Bytes"),
        Column::new("Created At", Shown::Always),
    ]
}

struct Cells;

impl Strategy for Cells {
    fn cells(&self, object: &Value) -> Vec<Value> {
        let traffic = &object["trafficStats"];
        vec![
            json!(meta::name(object)),
            traffic["sessions"].clone(),
            traffic["packets"].clone(),
            traffic["bytes"].clone(),
            json!(meta::text(object, "creationTimestamp")),
        ]
    }
}

/// Statistics of one kind of policies.
struct StatsSource {
    state: Arc<State>,
    reports: Arc<Reports>,
    statistics: Statistics,
    of: PolicyKind,
    kind: &'static str,
}

/// A policy, with no lock held.
struct Found {
    namespace: String,
    name: String,
    uid: String,
    created: Option<i64>,
}

impl From<UserPolicy<'_>> for Found {
    fn from(policy: UserPolicy<'_>) -> Self {
        let UserPolicy { namespace, name, uid, created } = policy;
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
        Self { namespace, name, uid, created }
    }
}

impl StatsSource {
    fn shared(&self, policy: Found, version: u64) -> Shared {
        let totals = self.reports.traffic.of_policy(&policy.uid);
        let created = policy.created.and_then(|second| Timestamp::from_second(second).ok());
        let mut object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": self.kind,
            "metadata": {
                "name": policy.name,
                "uid": policy.uid,
                "creationTimestamp": created.map(|time| time.to_string()),
            },
            "trafficStats": totals.all(),
        });
        let rules = totals.rules();
        if !rules.is_empty() {
            object["ruleTrafficStats"] = json!(rules);
        }
        let mut key = policy.name;
        if !policy.namespace.is_empty() {
            key = format!("{}/{key}", policy.namespace);
            object["metadata"]["namespace"] = json!(policy.namespace);
        }
        Arc::new(Stats { key, version, object })
    }
}

impl Source for StatsSource {
    fn admit(&self, _: &User, _: &mut View) -> Result<(), ApiError> {
        if self.statistics == Statistics::Off {
            return Err(ApiError::bad_request("feature NetworkPolicyStats disabled"));
        }
        if !self.state.is_complete() {
            return Err(ApiError::unavailable("policies are not computed yet"));
        }
        Ok(())
    }

    fn get(&self, view: &View, name: &str) -> Option<Shared> {
        let store = self.state.lock();
        let found = store.engine().user_policy(self.of, &view.namespace, name)?.into();
        let version = self.state.epoch().version(store.count());
        drop(store);
        Some(self.shared(found, version))
    }

    fn list(&self, view: &View, at: At) -> Result<Listed, VersionError> {
        let store = self.state.lock();
        let version = self.state.epoch().version(store.count());
        match at {
            // Counters of before are not kept; neither are policies.
            At::Exact(asked) if asked != version => {
                return Err(VersionError::TooOld { oldest: version });
            }
            _ => {}
        }
        let all = store.engine().user_policies(self.of);
        let own = |policy: &UserPolicy<'_>| {
            view.namespace.is_empty() || view.namespace == policy.namespace
        };
        let mut found: Vec<Found> = all.filter(own).map(Found::from).collect();
        drop(store);
        found.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        let selects = |object: &Shared| {
            let value = object.value();
            view.fields.matches(&value) && view.labels.matches(&value)
        };
        let objects = found.into_iter().map(|policy| self.shared(policy, version));
        let objects = objects.filter(selects).collect();
        Ok(Listed { version, objects, as_of: Arc::default() })
    }

    fn changes_after(&self, _: &View, version: u64, _: usize) -> Result<Batch, VersionError> {
        // Watches are not offered.
        Ok(Batch { up_to: version, events: Vec::new(), more: false, as_of: Arc::default() })
    }

    fn version(&self) -> u64 {
        self.state.epoch().version(self.state.lock().count())
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.state.subscribe()
    }
}

struct Stats {
    key: String,
    version: u64,
    object: Value,
}

impl Object for Stats {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.key)
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn json(&self) -> Bytes {
        self.object.to_string().into()
    }

    fn value(&self) -> Cow<'_, Value> {
        Cow::Borrowed(&self.object)
    }
}
