//! The Pods and Services of the scenarios.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kube_io::objects::{self, ObjectPath};
use serde_json::Value;

use super::IN_FORCE;
use super::calls::{Transport, ask};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::sandbox::Sandbox;
use crate::state::Store;
use crate::up::POD_PATIENCE;
use crate::{addressing, cluster, pods};

/// The namespace of all of it.
const NAMESPACE: &str = "services";
/// The Pods of the Service `web`.
pub(super) const WEB: [&str; 3] = ["services/web-1", "services/web-2", "services/web-3"];
/// The port at which Services are asked.
const PORT: u16 = 80;

/// A Pod that asks.
pub(super) struct Client {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) netns: PathBuf,
    addresses: Vec<IpAddr>,
    gateways: Vec<IpAddr>,
}

impl Client {
    fn of(sandbox: &Sandbox) -> Self {
        Self {
            name: sandbox.pod.name.clone(),
            node: sandbox.node.clone(),
            netns: sandbox.netns.clone(),
            addresses: sandbox.addresses(),
            gateways: sandbox.gateways(),
        }
    }

    /// Its own address of another one's family.
    pub(super) fn address(&self, like: IpAddr) -> Result<IpAddr> {
        of_family(&self.addresses, like)
    }

    /// The same of its gateway.
    pub(super) fn gateway(&self, like: IpAddr) -> Result<IpAddr> {
        of_family(&self.gateways, like)
    }
}

fn of_family(addresses: &[IpAddr], like: IpAddr) -> Result<IpAddr> {
    let found = addresses.iter().find(|ip| ip.is_ipv4() == like.is_ipv4()).copied();
    found.ok_or_else(|| LabError::new(format!("no address of the family of {like}")))
}

/// The lab with its Pods and Services.
pub(super) struct World<'a> {
    pub(super) store: &'a Store,
    clients: Vec<Client>,
}

/// Until a condition holds; the last reason why it did not is told.
pub(super) fn eventually(
    within: Duration,
    what: &str,
    mut condition: impl FnMut() -> Result<()>,
) -> Result<()> {
    let mut last = None;
    wait_for(within, what, || condition().map_err(|error| last = Some(error.chain())).ok())
        .doing(|| last.unwrap_or_else(|| "nothing was tried".into()))
}

fn pod(name: &str, node: &str, app: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\n\
         metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{app: {app}}}}}\n\
         spec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: 1\n  \
         containers: [{{name: c, image: antrea-lab/echo}}]\n---\n"
    )
}

fn service(name: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
         spec:\n  ipFamilyPolicy: PreferDualStack\n  ports:\n  \
         - {{name: tcp, protocol: TCP, port: {PORT}, targetPort: {echo}}}\n  \
         - {{name: udp, protocol: UDP, port: {PORT}, targetPort: {echo}}}\n{rest}---\n",
        echo = crate::echo::PORT
    )
}

fn selector(app: &str) -> String {
    format!("  selector: {{app: {app}}}\n")
}

fn manifests() -> String {
    let mut text =
        format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n---\n");
    for (name, node, app) in [
        ("near", "node-1", "client"),
        ("far", "node-2", "client"),
        ("web-1", "node-1", "web"),
        ("web-2", "node-2", "web"),
        ("web-3", "node-2", "web"),
        ("alone", "node-1", "alone"),
    ] {
        text.push_str(&pod(name, node, app));
    }
    for app in ["web", "alone", "late", "udp"] {
        text.push_str(&service(app, &selector(app)));
    }
    let sticky = "  sessionAffinity: ClientIP\n  \
                  sessionAffinityConfig: {clientIP: {timeoutSeconds: 300}}\n";
    text.push_str(&service("sticky", &(selector("web") + sticky)));
    text
}

impl<'a> World<'a> {
    /// Makes all of it and waits for the Pods.
    pub(super) fn make(store: &'a Store) -> Result<Self> {
        cluster::apply(store, &manifests())?;
        let mut world = Self { store, clients: Vec::new() };
        for name in ["web-1", "web-2", "web-3", "alone"] {
            world.await_pod(name)?;
        }
        for name in ["near", "far"] {
            world.await_pod(name)?;
            world.clients.push(world.client(name)?);
        }
        Ok(world)
    }

    /// A client on each node.
    pub(super) fn clients(&self) -> impl Iterator<Item = &Client> {
        self.clients.iter()
    }

    /// A Pod as one that asks.
    pub(super) fn client(&self, name: &str) -> Result<Client> {
        Ok(Client::of(&pods::find(self.store, &format!("{NAMESPACE}/{name}"))?))
    }

    fn await_pod(&self, name: &str) -> Result<()> {
        let path = format!("{NAMESPACE}/{name}");
        let ready = wait_for(POD_PATIENCE, &format!("Pod {name} is made"), || {
            pods::find(self.store, &path).ok().filter(|sandbox| !sandbox.addresses().is_empty())
        })?;
        pods::await_server(&ready)
    }

    /// Makes a Pod and waits for it.
    pub(super) fn add_pod(&self, name: &str, node: &str, app: &str) -> Result<()> {
        cluster::apply(self.store, &pod(name, node, app))?;
        self.await_pod(name)
    }

    /// Asks for a Pod's end.
    pub(super) fn delete_pod(&self, name: &str) -> Result<()> {
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            objects::delete(&client, path("pods", name))
                .await
                .map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("delete Pod {name}"))
    }

    /// Makes a Service of the Pods with a label.
    pub(super) fn add_service(&self, name: &str, app: &str) -> Result<()> {
        cluster::apply(self.store, &service(name, &selector(app)))
    }

    /// Makes a Service of these addresses.
    pub(super) fn add_service_by_hand(
        &self,
        name: &str,
        addresses: &[IpAddr],
        port: u16,
    ) -> Result<()> {
        let mut text = service(name, "");
        for address in addresses {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            text.push_str(&format!(
                "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
                 metadata: {{name: {name}-{}, namespace: {NAMESPACE}, \
                 labels: {{kubernetes.io/service-name: {name}}}}}\naddressType: {family}\n\
                 endpoints: [{{addresses: [\"{address}\"], conditions: {{ready: true}}}}]\n\
                 ports:\n- {{name: tcp, protocol: TCP, port: {port}}}\n\
                 - {{name: udp, protocol: UDP, port: {port}}}\n---\n",
                family.to_lowercase()
            ));
        }
        cluster::apply(self.store, &text)
    }

    /// Where a Service is asked: once for each family.
    pub(super) fn targets(&self, name: &str) -> Result<Vec<SocketAddr>> {
        let object: Value = cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            objects::get(&client, path("services", name))
                .await
                .map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("read Service {name}"))?;
        let addresses = object["spec"]["clusterIPs"].as_array().into_iter().flatten();
        let found: Vec<SocketAddr> = addresses
            .filter_map(|ip| Some(SocketAddr::new(ip.as_str()?.parse().ok()?, PORT)))
            .collect();
        let wanted = addressing::service_cidrs(self.store.get().variant.family).len();
        if found.len() == wanted {
            return Ok(found);
        }
        Err(LabError::new(format!("Service {name} has {found:?}, not {wanted} addresses")))
    }

    /// The node's own address of another one's family.
    pub(super) fn node_address(&self, node: &str, like: IpAddr) -> Result<IpAddr> {
        let state = self.store.get();
        let found = state.nodes.iter().find(|own| own.name == node);
        let n = found.map(|own| own.n).ok_or_else(|| LabError::new(format!("no node {node}")))?;
        of_family(&addressing::node(state.variant.family, n), like)
    }

    /// Every client reaches a Service by every way.
    pub(super) fn is_reached(&self, name: &str) -> Result<()> {
        for target in self.targets(name)? {
            for client in &self.clients {
                for transport in Transport::ALL {
                    ask(client, target, transport, Duration::from_secs(1))?;
                }
            }
        }
        Ok(())
    }

    /// Waits until every client reaches a Service by every way.
    pub(super) fn await_service(&self, name: &str) -> Result<()> {
        let what = format!("Service {name} is served");
        eventually(IN_FORCE, &what, || self.is_reached(name))
    }
}

fn path<'a>(plural: &'a str, name: &'a str) -> ObjectPath<'a> {
    ObjectPath { group: "", version: "v1", plural, namespace: Some(NAMESPACE), name }
}
