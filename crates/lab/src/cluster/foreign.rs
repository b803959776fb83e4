//! An API server that is not ours: what the lab puts there, the ways to it and back.
//!
//! Nodes live in namespaces that reach nothing but the underlay, so the lab forwards from there to
//! the API server, and gives the API server a way to kubelets and to the controller
//! (`cluster::egress`). Each component gets a token of its own ServiceAccount; an agent's is bound
//! to its Node, by which the controller knows it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kube_io::nodes::{NodeRegistration, NodeView};
use kube_io::objects::{self, ObjectPath};
use kube_io::service_accounts::{BoundObject, TokenRequest, request_token};
use kube_io::{ApiError, Client};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::api::{
    Ready, current_cluster, listen_on_underlay, ready_file, until_ended, write_secret,
};
use super::{Account, accounts, admin, controllers, egress, manifests, run_async};
use crate::addressing;
use crate::error::{Doing, LabError, Result};
use crate::kubelet::node::MAKER;
use crate::layout::Layout;
use crate::state::{self, Store};
use crate::ui::{self, Progress};

/// How long tokens are valid; a lab that is to live longer is made anew.
const TOKEN_SECONDS: i64 = 7 * 24 * 3600;
/// The API server has found the controller after this time, or does not reach it.
const REACHED: Duration = Duration::from_secs(30);
/// What is taken out of a cluster at the end takes no longer, each.
const REMOVED: Duration = Duration::from_secs(3);

/// What a scenario made is gone after this time.
const SWEPT: Duration = Duration::from_secs(60);

const SERVICE: ObjectPath<'_> = ObjectPath {
    group: "",
    version: "v1",
    plural: "services",
    namespace: Some("kube-system"),
    name: "antrea",
};
const API_SERVICE: ObjectPath<'_> = ObjectPath {
    group: "apiregistration.k8s.io",
    version: "v1",
    plural: "apiservices",
    namespace: None,
    name: "v1beta2.controlplane.antrea.io",
};
const STATS_SERVICE: ObjectPath<'_> =
    ObjectPath { name: "v1alpha1.stats.antrea.io", ..API_SERVICE };
const VALIDATING: ObjectPath<'_> = ObjectPath {
    group: "admissionregistration.k8s.io",
    version: "v1",
    plural: "validatingwebhookconfigurations",
    namespace: None,
    name: "crdvalidator.antrea.io",
};
const MUTATING: ObjectPath<'_> = ObjectPath {
    plural: "mutatingwebhookconfigurations",
    name: "crdmutator.antrea.io",
    ..VALIDATING
};

/// What the controller answers for the API server.
const QUESTION: ObjectPath<'_> = ObjectPath {
    group: "controlplane.antrea.io",
    version: "v1beta2",
    plural: "appliedtogroups",
    namespace: None,
    name: "",
};

/// Runs the ways between the underlay and the API server until the process is ended.
///
/// # Errors
/// When the API server refuses what the lab needs there, or nothing can be listened on.
pub(super) async fn run(store: &Store) -> Result<()> {
    let layout = store.layout();
    let state = store.get();
    let path = state.kubeconfig.clone().ok_or_else(|| LabError::new("no kubeconfig recorded"))?;
    let cluster = current_cluster(&path)?;
    let url = cluster["server"].as_str().unwrap_or_default().to_owned();
    let (host, address) = resolve(&url).await?;
    let client = admin(store).await?;
    // A restart finds everything in use: tokens stay as they are.
    if !layout.dir().join("scheduler.kubeconfig").exists() {
        for text in manifests() {
            kube_io::apply::manifests(&client, text).await.doing(|| "apply manifests".into())?;
        }
        register(layout, &client).await?;
        let mut seen_from_nodes = cluster.clone();
        seen_from_nodes["server"] = json!(addressing::api_url(state.variant.family));
        if cluster.get("tls-server-name").is_none() {
            seen_from_nodes["tls-server-name"] = json!(host);
        }
        let nodes: Vec<String> = state.nodes.iter().map(|n| n.name.clone()).collect();
        let mut all = accounts(layout, &nodes);
        // Last the one by which a restart knows that all are there. The scheduler runs where the
        // machine's own network is.
        all.sort_by_key(|account| account.service_account == "lab-scheduler");
        for account in all {
            let is_here = account.service_account == "lab-scheduler";
            let cluster = if is_here { &cluster } else { &seen_from_nodes };
            give_token(layout, &client, &account, cluster).await?;
        }
    }
    // Nodes are told the first address only.
    let listener = listen_on_underlay(layout, state.variant.family)?.swap_remove(0);
    listener.set_nonblocking(true).doing(|| "set up the listener".into())?;
    let listener =
        tokio::net::TcpListener::from_std(listener).doing(|| "use the listener".into())?;
    let way_back = egress::serve(egress::listen(&egress::socket(store))?, layout.underlay_netns());
    state::write(&ready_file(layout), &Ready { port: None })?;
    tracing::info!(%address, "forwarding");
    tokio::select! {
        ended = until_ended() => ended,
        () = forward(listener, address) => Ok(()),
        () = way_back => Ok(()),
        () = controllers::follow_health(store, |slices| apply(&client, slices)) => Ok(()),
    }
}

async fn apply(client: &Client, text: String) -> Result<()> {
    kube_io::apply::manifests(client, &text).await.map(drop).doing(|| "apply".into())
}

/// Carries connections from the underlay to the API server for ever.
async fn forward(listener: tokio::net::TcpListener, address: SocketAddr) {
    loop {
        let mut inner = match listener.accept().await {
            Ok((inner, _)) => inner,
            Err(error) => {
                tracing::warn!(%error, "accept");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        tokio::spawn(async move {
            match TcpStream::connect(address).await {
                Ok(mut outer) => {
                    let _ = tokio::io::copy_bidirectional(&mut inner, &mut outer).await;
                }
                Err(error) => tracing::warn!(%error, "reach the API server"),
            }
        });
    }
}

/// Writes the kubeconfig of a component, with a token that is its own.
async fn give_token(
    layout: &Layout,
    client: &Client,
    account: &Account,
    cluster: &Value,
) -> Result<()> {
    let name = account.service_account;
    let asked = || format!("ask for a token of {name}");
    let bound_to = match &account.node {
        Some(node) => Some(make_node(layout, client, node).await.doing(asked)?),
        None => None,
    };
    let request = TokenRequest {
        expiration_seconds: Some(TOKEN_SECONDS),
        bound_to,
        ..TokenRequest::default()
    };
    let token = request_token(client, "kube-system", name, &request).await.map_err(refused);
    let token = token.doing(asked)?.token;
    write_secret(&account.kubeconfig, &super::token_kubeconfig(cluster, name, &token)?)
}

/// A token can be bound to a Node that is there; its kubelet takes it over.
async fn make_node(layout: &Layout, client: &Client, name: &str) -> Result<BoundObject> {
    let registration = NodeRegistration {
        name: name.to_owned(),
        labels: BTreeMap::from([(MAKER.to_owned(), layout.identity())]),
        ..NodeRegistration::default()
    };
    let node = kube_io::nodes::register(client, &registration).await.map_err(refused)?;
    Ok(BoundObject { kind: "Node".into(), name: name.to_owned(), uid: node.uid })
}

async fn resolve(url: &str) -> Result<(String, SocketAddr)> {
    let uri: hyper::Uri = url.parse().doing(|| format!("read the server's URL {url}"))?;
    let host = uri.host().ok_or_else(|| LabError::new(format!("{url} names no host")))?;
    let host = host.trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(443);
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host.as_str(), port))
        .await
        .doing(|| format!("resolve {host}"))?
        .collect();
    let address = *found.first().ok_or_else(|| LabError::new(format!("{host} has no address")))?;
    Ok((host, address))
}

/// Fails when the cluster has Nodes of the lab's names, or Antrea: the lab would take them over, and
/// its end would delete them.
///
/// # Errors
/// With their names; when the API server does not answer or refuses.
pub fn refuse_what_is_not_ours(store: &Store) -> Result<()> {
    run_async(async {
        let client = admin(store).await?;
        let (present, _) = kube_io::nodes::list(&client)
            .await
            .map_err(refused)
            .doing(|| "list the cluster's Nodes".into())?;
        let foreign = nodes_of(store, &present, |is_ours| !is_ours);
        if !foreign.is_empty() {
            let names = foreign.join(", ");
            return Err(LabError::new(format!(
                "the cluster has Nodes of these names already: {names}"
            ))
            .hint("use another cluster, or end the lab that made them"));
        }
        match objects::get(&client, SERVICE).await {
            Ok(service) if !is_ours(store, &service) => {
                Err(LabError::new("the cluster has Antrea: a Service kube-system/antrea")
                    .hint("use another cluster, or end the lab that made it"))
            }
            Err(error) if !error.is_not_found() => {
                Err(refused(error)).doing(|| "look for Antrea in the cluster".into())
            }
            _ => {
                let found =
                    inventory(&client).await?.into_iter().map(|(path, name)| key(path, &name));
                let found = found.collect();
                store.update(|state| state.found = found)
            }
        }
    })
}

/// Kinds in no namespace that scenarios make objects of, those that others refer to last.
const MADE: [ObjectPath<'_>; 4] = [
    ObjectPath { group: "", version: "v1", plural: "namespaces", namespace: None, name: "" },
    ObjectPath { plural: "clusternetworkpolicies", ..ANTREA },
    ObjectPath { plural: "clustergroups", ..ANTREA },
    ObjectPath { plural: "tiers", ..ANTREA },
];
const ANTREA: ObjectPath<'_> = ObjectPath {
    group: "crd.antrea.io",
    version: "v1beta1",
    plural: "",
    namespace: None,
    name: "",
};

fn key(path: ObjectPath<'_>, name: &str) -> String {
    format!("{}/{name}", path.plural)
}

/// All objects of the kinds that scenarios make. A kind that the cluster does not know has none.
async fn inventory(client: &Client) -> Result<Vec<(ObjectPath<'static>, String)>> {
    let mut all = Vec::new();
    for path in MADE {
        let deadline = tokio::time::Instant::now() + REACHED;
        let list = loop {
            match objects::list(client, path).await {
                // The store of a kind that has just been made.
                Err(error) if error.is_transient() && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) if error.is_not_found() => break Value::Null,
                list => break list.map_err(refused)?,
            }
        };
        let items = list["items"].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item["metadata"]["name"].as_str());
        all.extend(names.map(|name| (path, name.to_owned())));
    }
    Ok(all)
}

/// Deletes what a scenario made, while there are still kubelets that end Pods.
///
/// # Errors
/// When the API server refuses, or something is not gone in time.
pub fn sweep(store: &Store) -> Result<()> {
    run_async(async {
        let client = admin(store).await?;
        let found = store.get().found;
        let deadline = tokio::time::Instant::now() + SWEPT;
        loop {
            let mut left = inventory(&client).await?;
            left.retain(|(path, name)| !found.contains(&key(*path, name)));
            let mut waits = None;
            for (path, name) in &left {
                match objects::delete(&client, ObjectPath { name, ..*path }).await {
                    // The controller's own.
                    Err(error) if error.chain().contains("belongs to the system") => {}
                    Err(error) => waits = Some(error.chain()),
                    Ok(()) => waits = Some(format!("{} is not gone", key(*path, name))),
                }
            }
            let Some(waits) = waits else { return Ok(()) };
            if tokio::time::Instant::now() > deadline {
                return Err(LabError::new(waits));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
}

fn is_ours(store: &Store, object: &Value) -> bool {
    object["metadata"]["labels"][MAKER] == store.layout().identity().as_str()
}

/// Names of those Nodes that are called as the lab's are and were made by it, or were not.
fn nodes_of(store: &Store, present: &[NodeView], want: fn(bool) -> bool) -> Vec<String> {
    let maker = store.layout().identity();
    let names: Vec<String> = store.get().nodes.into_iter().map(|node| node.name).collect();
    let named = present.iter().filter(|node| names.contains(&node.name));
    let is_ours = |node: &&NodeView| node.labels.get(MAKER) == Some(&maker);
    named.filter(|node| want(is_ours(node))).map(|node| node.name.clone()).collect()
}

/// Registers the controller's API and webhooks.
async fn register(layout: &Layout, client: &Client) -> Result<()> {
    for text in controllers::registration() {
        kube_io::apply::manifests(client, text).await.doing(|| "register the controller".into())?;
    }
    let label = json!({"metadata": {"labels": {MAKER: layout.identity()}}});
    objects::merge(client, SERVICE, &label).await.map_err(refused)
}

/// Waits until the API server reaches the controller. Where it does not, what the lab registered is
/// taken back: it would refuse whatever it cannot ask about.
///
/// # Errors
/// When the API server refuses.
pub fn await_controller(store: &Store, progress: &Progress) -> Result<()> {
    progress.step("waiting until the API server reaches the controller");
    run_async(async {
        let client = admin(store).await?;
        let deadline = tokio::time::Instant::now() + REACHED;
        loop {
            let Err(why) = is_reached(&client).await else { return Ok(()) };
            crate::interrupt::check()?;
            if tokio::time::Instant::now() > deadline {
                ui::warn(format!(
                    "the API server does not reach the controller ({}): Antrea's API and webhooks \
                     are not registered, and kubectl exec and logs do not work; start \
                     kube-apiserver with --enable-aggregator-routing and an egress selector for \
                     the cluster, by HTTPConnect on {}",
                    why.chain(),
                    egress::socket(store).display()
                ));
                return unregister(&client).await;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
}

/// Asks the controller something through the API server, and whether it is trusted for webhooks.
async fn is_reached(client: &Client) -> Result<()> {
    objects::list(client, QUESTION).await.map_err(refused)?;
    for path in [VALIDATING, MUTATING] {
        if !trusts(&objects::get(client, path).await.map_err(refused)?) {
            return Err(LabError::new(format!("{} has no authority yet", path.name)));
        }
    }
    Ok(())
}

/// Whether a registration of webhooks says by which authority they are known.
fn trusts(registration: &Value) -> bool {
    let all = registration["webhooks"].as_array().map_or(&[][..], Vec::as_slice);
    all.iter().all(|webhook| webhook["clientConfig"]["caBundle"].is_string())
}

async fn unregister(client: &Client) -> Result<()> {
    for path in [VALIDATING, MUTATING, API_SERVICE, STATS_SERVICE, SERVICE] {
        tokio::time::timeout(REMOVED, objects::delete(client, path))
            .await
            .doing(|| format!("remove {}", path.name))?
            .map_err(refused)?;
    }
    Ok(())
}

/// Takes out of the cluster what only works while the lab is there; only what this lab made. The
/// kinds and the rights stay.
///
/// # Errors
/// When the API server does not answer in a few seconds, or refuses.
pub fn remove(store: &Store) -> Result<()> {
    // It may be outside of the lab's directory.
    let _ = std::fs::remove_file(egress::socket(store));
    run_async(async {
        let client = admin(store).await?;
        let found = tokio::time::timeout(REMOVED, objects::get(&client, SERVICE)).await;
        let found = found.doing(|| "look for the controller's Service".into())?;
        if found.is_ok_and(|service| is_ours(store, &service)) {
            unregister(&client).await?;
            for n in controllers::all(store) {
                for name in controllers::slice_names(store.get().variant.family, n) {
                    let slice = ObjectPath {
                        group: "discovery.k8s.io",
                        plural: "endpointslices",
                        name: &name,
                        ..SERVICE
                    };
                    objects::delete(&client, slice).await.map_err(refused)?;
                }
            }
        }
        let listed = tokio::time::timeout(REMOVED, kube_io::nodes::list(&client)).await;
        let (present, _) = listed.doing(|| "list the cluster's Nodes".into())?.map_err(refused)?;
        for name in nodes_of(store, &present, |is_ours| is_ours) {
            tokio::time::timeout(REMOVED, kube_io::nodes::delete(&client, &name))
                .await
                .doing(|| format!("remove Node {name}"))?
                .map_err(refused)?;
        }
        Ok(())
    })
}

fn refused(error: ApiError) -> LabError {
    LabError::new(error.chain())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhooks_are_trusted_once_all_have_an_authority() {
        let of = |bundles: [Option<&str>; 2]| {
            let all = bundles.map(|bundle| json!({"clientConfig": {"caBundle": bundle}}));
            trusts(&json!({"webhooks": all}))
        };
        assert!(of([Some("YQ=="), Some("YQ==")]));
        assert!(!of([Some("YQ=="), None]));
    }

    #[tokio::test]
    async fn a_server_is_found_by_its_url() {
        let (host, address) = resolve("https://127.0.0.1:6443").await.unwrap();
        assert_eq!((host.as_str(), address), ("127.0.0.1", "127.0.0.1:6443".parse().unwrap()));
        let (host, address) = resolve("https://[::1]").await.unwrap();
        assert_eq!((host.as_str(), address), ("::1", "[::1]:443".parse().unwrap()));
        assert!(resolve("/nothing").await.is_err());
    }
}
