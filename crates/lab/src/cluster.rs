//! The control plane of a lab: API server, controller, scheduler, kubelets.
//!
//! Every component is a process of its own with the token of its own ServiceAccount and the rights
//! that `deploy/` gives it. With an API server that is not ours a forwarder takes its place, since
//! nodes live in namespaces that reach nothing but the underlay.

pub mod api;
pub mod controllers;
mod egress;
pub mod foreign;
pub mod scheduler;

use std::fs;
use std::time::Duration;

use kube_io::{Client, ClientOptions};
use serde_json::{Value, json};

use crate::addressing;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::pods;
use crate::process::{Start, last_words};
use crate::state::{Mode, SchedulerChoice, Store};
use crate::ui::Progress;
use crate::up::POD_PATIENCE;

/// Role of the API server, or of the way to one, in the state file.
pub const ROLE_API: &str = "apiserver";
/// Role of the scheduler in the state file.
pub const ROLE_SCHEDULER: &str = "scheduler";
/// Role of a kubelet in the state file.
pub const ROLE_KUBELET: &str = "kubelet";

const START_DEADLINE: Duration = Duration::from_secs(30);
const NODES_DEADLINE: Duration = Duration::from_secs(60);

/// Starts the control plane, and kubelets without waiting for their Nodes.
///
/// # Errors
/// When a part of it does not come up.
pub fn start(store: &Store, progress: &Progress) -> Result<()> {
    progress.step("API server");
    start_api(store)?;
    progress.step("controller, scheduler and kubelets");
    for n in controllers::all(store) {
        controllers::start(store, n)?;
    }
    if store.get().scheduler == SchedulerChoice::Ours {
        start_scheduler(store)?;
    }
    for node in store.get().nodes {
        start_kubelet(store, &node.name)?;
    }
    Ok(())
}

/// Starts the API server and waits until the kubeconfigs of all components are written.
///
/// # Errors
/// When it does not come up.
pub fn start_api(store: &Store) -> Result<()> {
    let layout = store.layout();
    let log = layout.log(ROLE_API);
    let ready = api::ready_file(layout);
    let _ = fs::remove_file(&ready);
    let id = own_program(store, &log)?.arg("apiserver").spawn()?;
    store.record_process(ROLE_API, None, id)?;
    let what = match store.get().kubeconfig {
        Some(file) => format!("the way to the API server of {}", file.display()),
        None => "the API server".into(),
    };
    let up = wait_for(START_DEADLINE, &format!("{what} is ready"), || {
        if let Ok(text) = fs::read(&ready) {
            return serde_json::from_slice::<api::Ready>(&text).ok().map(Some);
        }
        (!id.is_alive()).then_some(None)
    })?;
    let up = up.ok_or_else(|| ended(&what, &log))?;
    store.update(|state| state.api_port = up.port)
}

/// Starts the scheduler.
///
/// # Errors
/// When it cannot be started.
pub fn start_scheduler(store: &Store) -> Result<()> {
    let layout = store.layout();
    let log = layout.log(ROLE_SCHEDULER);
    let mut start = own_program(store, &log)?;
    if store.get().mode == Mode::Cluster {
        start = start.in_netns(&layout.underlay_netns());
    }
    let id = start.arg("scheduler").spawn()?;
    store.record_process(ROLE_SCHEDULER, None, id)
}

/// Starts a node's kubelet.
///
/// # Errors
/// When it cannot be started.
pub fn start_kubelet(store: &Store, node: &str) -> Result<()> {
    let state = store.get();
    let n = state.node(node)?.n;
    let paths = store.layout().node(node);
    let mut start = own_program(store, &paths.log(ROLE_KUBELET))?
        .in_netns(paths.netns())
        .arg("kubelet")
        .arg("--node")
        .arg(node);
    for address in addressing::node(state.variant.family, n) {
        start = start.arg("--address").arg(address.to_string());
    }
    if state.mode == Mode::External {
        // Ours asks kubelets by their sockets.
        start = start.arg("--serve");
    }
    let renew_every = state.node_grace / 4;
    let id = start.arg("--renew-every").arg(renew_every.as_millis().to_string()).spawn()?;
    store.record_process(ROLE_KUBELET, Some(node), id)
}

/// Waits until every Node is ready.
///
/// # Errors
/// When one is not in time; the message says what the Node lacks.
pub fn await_nodes(store: &Store, progress: &Progress) -> Result<()> {
    progress.step("waiting for Nodes to be ready");
    let nodes = store.get().nodes;
    run_async(async {
        let client = admin(store).await?;
        let deadline = tokio::time::Instant::now() + NODES_DEADLINE;
        loop {
            let missing = match kube_io::nodes::list(&client).await {
                Ok((seen, _)) => nodes
                    .iter()
                    .filter(|n| !seen.iter().any(|s| s.name == n.name && s.ready))
                    .map(|n| n.name.clone())
                    .collect::<Vec<_>>(),
                Err(error) => vec![error.chain()],
            };
            if missing.is_empty() {
                return Ok(());
            }
            crate::interrupt::check()?;
            if tokio::time::Instant::now() > deadline {
                return Err(LabError::new(format!("not ready: {}", missing.join(", "))));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// Makes echo Pods through the API and waits until all of them answer.
///
/// # Errors
/// When one does not come up.
pub fn make_pods(store: &Store, n: usize, progress: &Progress) -> Result<()> {
    let mut text = String::from("apiVersion: v1\nkind: Namespace\nmetadata: {name: demo}\n");
    for i in 1..=n {
        text.push_str(&format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: demo-{i}, namespace: demo}}\n\
             spec:\n  terminationGracePeriodSeconds: 1\n  containers:\n  - name: echo\n    \
             image: antrea-lab/echo\n    ports: [{{containerPort: 8080}}]\n"
        ));
    }
    apply(store, &text)?;
    progress.step("Pods applied; waiting until they run");
    await_pods(store, "demo", n)
}

/// Waits until so many Pods of a namespace are ready, in the API and on their nodes.
///
/// # Errors
/// When they are not in time; the message says what holds the first one.
pub fn await_pods(store: &Store, namespace: &str, n: usize) -> Result<()> {
    run_async(async {
        let client = admin(store).await?;
        let deadline = tokio::time::Instant::now() + POD_PATIENCE;
        loop {
            let (all, _) =
                kube_io::pods::list(&client).await.map_err(|error| LabError::new(error.chain()))?;
            let ready = all.iter().filter(|p| p.namespace == namespace && p.ready).count();
            if ready >= n {
                return Ok(());
            }
            crate::interrupt::check()?;
            if tokio::time::Instant::now() > deadline {
                let late: Vec<_> = all
                    .iter()
                    .filter(|p| p.namespace == namespace && !p.ready)
                    .map(|p| format!("{} ({} on {:?})", p.name, p.phase, p.spec.node_name))
                    .take(3)
                    .collect();
                return Err(LabError::new(format!(
                    "{ready} of {n} Pods are ready; not yet: {}",
                    late.join(", ")
                ))
                .hint("kubectl describe pod shows what a Pod waits for"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })?;
    let made: Vec<_> =
        pods::ready(store).into_iter().filter(|s| s.pod.namespace == namespace).collect();
    for sandbox in &made {
        pods::await_server(sandbox)?;
    }
    Ok(())
}

/// What an API server waits for is there after this time at the latest.
const APPLY_PATIENCE: Duration = Duration::from_secs(10);
/// What it says until then: a controller that has just started is not trusted yet, a Namespace gets
/// its ServiceAccount somewhat later than it is made, and a new kind its store.
const NOT_YET: [&str; 3] =
    ["failed calling webhook", "error looking up service account", "storage is (re)initializing"];

/// Puts manifests on the lab's API server as its administrator.
///
/// # Errors
/// When the server refuses one.
pub fn apply(store: &Store, manifests: &str) -> Result<()> {
    run_async(async {
        let client = admin(store).await?;
        let deadline = tokio::time::Instant::now() + APPLY_PATIENCE;
        loop {
            let applied = kube_io::apply::manifests(&client, manifests).await.map(drop);
            let applied = applied.doing(|| "apply manifests".into());
            let waits = |error: &LabError| {
                let said = error.chain();
                NOT_YET.iter().any(|words| said.contains(words))
            };
            if !applied.as_ref().is_err_and(waits) || tokio::time::Instant::now() > deadline {
                return applied;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

/// Asks for the deletion of all Pods of a namespace and waits until the API shows none.
///
/// # Errors
/// When they are not gone in time.
pub fn delete_pods(store: &Store, namespace: &str) -> Result<()> {
    run_async(async {
        let client = admin(store).await?;
        let deadline = tokio::time::Instant::now() + POD_PATIENCE;
        let refused = |error: kube_io::ApiError| LabError::new(error.chain());
        loop {
            let (all, _) = kube_io::pods::list(&client).await.map_err(refused)?;
            let left: Vec<_> = all.iter().filter(|p| p.namespace == namespace).collect();
            if left.is_empty() {
                return Ok(());
            }
            for pod in left.iter().filter(|p| !p.deleting) {
                kube_io::pods::delete(&client, &pod.pod_key()).await.map_err(refused)?;
            }
            crate::interrupt::check()?;
            if tokio::time::Instant::now() > deadline {
                return Err(LabError::new(format!("{} Pods are still there", left.len())));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// A connection with all rights.
///
/// # Errors
/// When the lab has no API server, or its kubeconfig cannot be used.
pub async fn admin(store: &Store) -> Result<Client> {
    let path = crate::status::kubeconfig(store)
        .ok_or_else(|| LabError::new("this lab has no API server"))?;
    let options =
        ClientOptions { qps: 500.0, burst: 500, ..ClientOptions::new("antrea-lab", "v1") };
    Client::from_kubeconfig(path.as_ref(), &options).await.doing(|| format!("use {path}"))
}

/// Runs a future to its end on a runtime of its own.
///
/// # Errors
/// When the future fails.
pub fn run_async<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .doing(|| "start the runtime".into())?;
    runtime.block_on(future)
}

/// Names of the components that talk to the API, with where their kubeconfig goes.
#[must_use]
pub fn accounts(store_dir: &crate::layout::Layout, nodes: &[String]) -> Vec<Account> {
    let mut all = vec![Account::new("lab-scheduler", store_dir.dir().join("scheduler.kubeconfig"))];
    for n in 1..=controllers::MAX {
        let kubeconfig = controllers::dir(store_dir, n).join("kubeconfig");
        all.push(Account::new("antrea-controller", kubeconfig));
    }
    for node in nodes {
        let paths = store_dir.node(node);
        let agent = Account::new("antrea-agent", paths.kubeconfig("agent"));
        all.push(Account { node: Some(node.clone()), ..agent });
        all.push(Account::new("lab-kubelet", paths.kubeconfig(ROLE_KUBELET)));
    }
    all
}

/// A component's identity and where its kubeconfig goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Name of its ServiceAccount in kube-system.
    pub service_account: &'static str,
    /// Its kubeconfig.
    pub kubeconfig: std::path::PathBuf,
    /// The node that its token tells.
    pub node: Option<String>,
}

impl Account {
    fn new(service_account: &'static str, kubeconfig: std::path::PathBuf) -> Self {
        Self { service_account, kubeconfig, node: None }
    }
}

/// What the cluster needs before its components can start: kinds, identities, rights.
#[must_use]
pub fn manifests() -> [&'static str; 9] {
    [
        include_str!("../../../deploy/crds/antreaagentinfos.yaml"),
        include_str!("../../../deploy/crds/antreacontrollerinfos.yaml"),
        include_str!("../../../deploy/crds/clustergroups.yaml"),
        include_str!("../../../deploy/crds/clusternetworkpolicies.yaml"),
        include_str!("../../../deploy/crds/groups.yaml"),
        include_str!("../../../deploy/crds/networkpolicies.yaml"),
        include_str!("../../../deploy/crds/tiers.yaml"),
        include_str!("../../../deploy/rbac.yaml"),
        include_str!("../../../deploy/lab/rbac.yaml"),
    ]
}

fn own_program(store: &Store, log: &std::path::Path) -> Result<Start> {
    let me = std::env::current_exe().doing(|| "find our own program".into())?;
    let dir = store.layout().dir();
    Ok(Start::new(me, log).owned_by(dir).path_arg("--dir", dir))
}

fn ended(what: &str, log: &std::path::Path) -> LabError {
    LabError::new(format!("{what} ended; {}", last_words(log, 6)))
        .hint(format!("its whole log is {}", log.display()))
}

/// A kubeconfig with a token.
///
/// # Errors
/// When it cannot be encoded.
pub fn token_kubeconfig(cluster: &Value, user: &str, token: &str) -> Result<String> {
    serde_saphyr::to_string(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "lab", "cluster": cluster }],
        "users": [{ "name": user, "user": { "token": token } }],
        "contexts": [{
            "name": "lab",
            "context": { "cluster": "lab", "user": user, "namespace": "kube-system" },
        }],
        "current-context": "lab",
    }))
    .doing(|| "encode a kubeconfig".into())
}
