//! The controller's replicas: each a process of its own with its own directory and port, one Lease.
//!
//! What a kubelet and an endpoint controller do in a cluster is done here for them: each replica is
//! asked whether it is ready, and EndpointSlices of the Service say so. Agents, the API server's
//! aggregation and its webhooks find the replicas by them.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;

use crate::addressing;
use crate::error::{Doing, LabError, Result};
use crate::health;
use crate::layout::Layout;
use crate::process::Start;
use crate::state::{NodeIpam, Store};
use crate::variant::IpFamily;

/// Most replicas.
pub const MAX: u8 = 3;
/// Port of the first one; the others follow, ten apart.
const FIRST_PORT: u16 = 10349;
/// How often one that is ready is asked.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// How often one that is not ready is asked.
const ASK_SOON: Duration = Duration::from_millis(100);

/// The role of a replica in the state file, which names its log and directory too.
#[must_use]
pub fn role(n: u8) -> &'static str {
    match n {
        2 => "controller-2",
        3 => "controller-3",
        _ => "controller",
    }
}

/// Numbers of a lab's replicas.
#[must_use]
pub fn all(store: &Store) -> std::ops::RangeInclusive<u8> {
    1..=store.get().n_controllers
}

/// The directory of a replica.
#[must_use]
pub fn dir(layout: &Layout, n: u8) -> PathBuf {
    layout.dir().join(role(n))
}

/// Name of a replica's Pod, by which the Lease tells who holds it.
#[must_use]
pub fn pod_name(n: u8) -> String {
    format!("antrea-{}-lab", role(n))
}

fn port(n: u8) -> u16 {
    FIRST_PORT + 10 * (u16::from(n) - 1)
}

/// Starts a replica.
///
/// # Errors
/// When the lab has no such replica, or it cannot be started.
pub fn start(store: &Store, n: u8) -> Result<()> {
    if !all(store).contains(&n) {
        return Err(LabError::new(format!("this lab has no {}", role(n)))
            .hint("antrea-lab up --controllers 3 starts a lab with three"));
    }
    start_in(store, n, &store.layout().underlay_netns())
}

/// Starts the first replica on a node instead of the underlay.
///
/// # Errors
/// When it cannot be started.
pub fn start_on(store: &Store, node: &str) -> Result<()> {
    start_in(store, 1, store.layout().node(node).netns())
}

/// Puts another server into a kubeconfig.
///
/// # Errors
/// When the file does not name the former one.
pub fn lead(kubeconfig: &Path, from: &str, to: &str) -> Result<()> {
    let text = fs::read_to_string(kubeconfig).doing(|| format!("read {}", kubeconfig.display()))?;
    if !text.contains(from) {
        return Err(LabError::new(format!("{} has not {from}", kubeconfig.display())));
    }
    let text = text.replace(from, to);
    fs::write(kubeconfig, text).doing(|| format!("write {}", kubeconfig.display()))
}

fn start_in(store: &Store, n: u8, netns: &Path) -> Result<()> {
    let layout = store.layout();
    let dir = dir(layout, n);
    fs::create_dir_all(&dir).doing(|| format!("create {}", dir.display()))?;
    let conf = dir.join("antrea-controller.conf");
    let mut text = json!({
        "apiPort": port(n),
        "clientConnection": { "kubeconfig": dir.join("kubeconfig") },
    });
    if store.get().node_ipam == NodeIpam::Ours {
        let family = store.get().variant.family;
        text["nodeIPAM"] = json!({
            "enableNodeIPAM": true,
            "clusterCIDRs": addressing::cluster_cidrs(family),
        });
        for range in addressing::service_cidrs(family) {
            let key = if range.addr().is_ipv4() { "serviceCIDR" } else { "serviceCIDRv6" };
            text["nodeIPAM"][key] = json!(range);
        }
    }
    let text =
        serde_saphyr::to_string(&text).doing(|| "encode the controller's configuration".into())?;
    fs::write(&conf, text).doing(|| format!("write {}", conf.display()))?;
    let program = store.get().bin_dir.join("antrea-controller");
    let id = Start::new(program, layout.log(role(n)))
        .owned_by(layout.dir())
        .in_netns(netns)
        .env("POD_NAME", pod_name(n))
        .env("POD_NAMESPACE", "kube-system")
        .path_arg("--config", &conf)
        .path_arg("--run-dir", &dir)
        .arg("--logtostderr")
        .spawn()?;
    store.record_process(role(n), None, id)
}

/// What keeps a replica from being ready, one line for each failed check.
///
/// # Errors
/// When it does not answer.
pub fn lacks(layout: &Layout, n: u8) -> Result<Vec<String>> {
    health::lacks(&layout.underlay_netns(), port(n))
}

/// What the API server needs to hand requests on to the controller.
#[must_use]
pub fn registration() -> [&'static str; 2] {
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: antrea, namespace: kube-system}\n\
         spec:\n  ports: [{port: 443, protocol: TCP, targetPort: 10349}]\n";
    [service, include_str!("../../../../deploy/aggregation.yaml")]
}

/// The EndpointSlices of a replica.
pub(crate) fn slices(family: IpFamily, n: u8, ready: bool) -> String {
    let slice = |address: IpAddr| {
        let (kind, name, port) = (address_type(address), slice_name(address, n), port(n));
        format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  \
             name: {name}\n  namespace: kube-system\n  \
             labels: {{kubernetes.io/service-name: antrea}}\naddressType: {kind}\n\
             endpoints: [{{addresses: [\"{address}\"], conditions: {{ready: {ready}}}}}]\n\
             ports: [{{name: \"\", port: {port}, protocol: TCP}}]\n"
        )
    };
    let all = addressing::api_server(family).into_iter().map(slice);
    all.collect::<Vec<_>>().join("---\n")
}

/// Names of the EndpointSlices of a replica.
pub(super) fn slice_names(family: IpFamily, n: u8) -> Vec<String> {
    addressing::api_server(family).into_iter().map(|address| slice_name(address, n)).collect()
}

fn slice_name(address: IpAddr, n: u8) -> String {
    format!("antrea-{n}-{}", address_type(address).to_lowercase())
}

fn address_type(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Keeps the slices as the replicas are, by what puts a manifest on the API server; never ends by
/// itself.
pub(super) async fn follow_health<F>(store: &Store, apply: impl Fn(String) -> F)
where
    F: Future<Output = Result<()>>,
{
    let family = store.get().variant.family;
    let apply = &apply;
    let follow = |n| {
        let layout = store.layout();
        async move {
            let mut told = None;
            loop {
                let asked = layout.clone();
                let ready = tokio::task::spawn_blocking(move || lacks(&asked, n));
                let ready = ready.await.is_ok_and(|lacks| lacks.is_ok_and(|all| all.is_empty()));
                if told != Some(ready) {
                    match apply(slices(family, n, ready)).await {
                        Ok(()) => told = Some(ready),
                        Err(error) => {
                            let error = error.chain();
                            tracing::warn!(error, n, "tell whether a replica is ready");
                        }
                    }
                }
                tokio::time::sleep(if ready { ASK_AGAIN } else { ASK_SOON }).await;
            }
        }
    };
    futures::future::join_all(all(store).map(follow)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replica_has_its_own_role_port_and_slices() {
        let mut seen = std::collections::BTreeSet::new();
        for n in 1..=MAX {
            assert!(seen.insert(role(n).to_owned()) && seen.insert(port(n).to_string()));
            for text in slices(IpFamily::Dual, n, n == 1).split("---\n") {
                let slice: serde_json::Value = serde_saphyr::from_str(text).unwrap();
                assert!(seen.insert(slice["metadata"]["name"].as_str().unwrap().to_owned()));
                assert_eq!(slice["endpoints"][0]["conditions"]["ready"], n == 1);
                assert_eq!(slice["ports"][0]["port"], port(n));
            }
        }
        assert_eq!(role(1), "controller");
    }
}
