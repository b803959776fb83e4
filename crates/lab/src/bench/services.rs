//! A Service against its endpoint: the same client and the same server, dialled by the Service's
//! address and by the Pod's.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube_io::objects::{self, ObjectPath};

use super::pairs::{self, Way};
use super::{Figure, on_lab};
use crate::error::{Doing, LabError, Result};
use crate::sandbox::Sandbox;
use crate::state::{Mode, Store};
use crate::ui::Progress;
use crate::up::UpOptions;
use crate::variant::Variant;
use crate::{cluster, demo, interrupt, ovs, pods, probe};

/// A Service is in force after this time at the latest.
const IN_FORCE: Duration = Duration::from_secs(20);
/// How long one try may take.
const ANSWER: Duration = Duration::from_secs(1);

/// Measures on a lab of two nodes, which is ended afterwards.
///
/// # Errors
/// When the lab does not come up, or an exchange fails.
pub fn run(dir: &Path, bin_dir: PathBuf, progress: &Progress) -> Result<Vec<Figure>> {
    let options = UpOptions::new(2, Variant::default(), Mode::Cluster, bin_dir);
    on_lab(dir, "benchv", &options, progress, measure)
}

fn measure(store: &Store, progress: &Progress) -> Result<Vec<Figure>> {
    cluster::make_pods(store, 6, progress)?;
    let made = pods::ready(store);
    let mut figures = Vec::new();
    for (what, pair) in
        [("on one node", demo::on_one_node(&made)), ("across nodes", demo::across(&made))]
    {
        progress.step(&format!("a Service against its endpoint, {what}"));
        let (from, to) = pair.ok_or_else(|| LabError::new("the Pods are not where they should"))?;
        figures.push(figure(store, what, from, to)?);
    }
    Ok(figures)
}

fn figure(store: &Store, what: &str, from: &Sandbox, to: &Sandbox) -> Result<Figure> {
    let address = to.addresses().first().copied();
    let address = address.ok_or_else(|| LabError::new("the receiving Pod has no address"))?;
    let port = probe::serve(&to.netns, "pod", &[address])?;
    let name = format!("only-{}", to.pod.name);
    let front = SocketAddr::new(serve(store, &name, &to.pod.name, address, port)?, port);
    interrupt::wait_for(IN_FORCE, "the Service is in force", || {
        probe::tcp_who(&from.netns, front, ANSWER).ok()
    })?;
    let state = store.get();
    let nodes = state.nodes.iter().map(|node| node.name.as_str());
    let switches: Vec<_> =
        nodes.filter_map(|node| state.process(ovs::ROLE_VSWITCHD, Some(node))).collect();
    let way = |server| Way { client: from.netns.clone(), server };
    let direct = way(SocketAddr::new(address, port));
    let (values, how) = pairs::compare(&way(front), &direct, &switches)?;
    Ok(Figure {
        name: format!("ClusterIP against its endpoint, {what}, {} pairs", pairs::ROUNDS),
        values,
        how,
    })
}

/// Makes a Service with one endpoint, as an operator would write both, and gives its address.
fn serve(store: &Store, name: &str, pod: &str, address: IpAddr, port: u16) -> Result<IpAddr> {
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    cluster::apply(
        store,
        &format!(
            "apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: demo}}
spec:
  ports: [{{name: echo, port: {port}, protocol: TCP}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, namespace: demo, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: {family}
endpoints:
- addresses: ['{address}']
  conditions: {{ready: true}}
  targetRef: {{kind: Pod, name: {pod}, namespace: demo}}
ports: [{{name: echo, port: {port}, protocol: TCP}}]
"
        ),
    )?;
    let service = cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let (plural, namespace) = ("services", Some("demo"));
        let path = ObjectPath { group: "", version: "v1", plural, namespace, name };
        let read = objects::get(&client, path).await;
        read.map_err(|error| LabError::new(error.chain()))
    })?;
    let text = service["spec"]["clusterIP"].as_str().unwrap_or_default();
    text.parse().doing(|| format!("read the address {text:?} of a Service"))
}
