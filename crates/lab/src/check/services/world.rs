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
use crate::sandbox::{Sandbox, builtin_server};
use crate::state::Store;
use crate::up::POD_PATIENCE;
use crate::{addressing, cluster, pods};

/// The namespace of all of it.
pub(super) const NAMESPACE: &str = "services";
/// The Pods of the Service `web`.
pub(super) const WEB: [&str; 3] = ["services/web-1", "services/web-2", "services/web-3"];
/// The port at which Services are asked.
pub(super) const PORT: u16 = 80;

/// Who asks: a Pod, a node or the outside host.
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

    /// A host by its name; a node is on itself.
    pub(super) fn host(
        name: &str,
        netns: PathBuf,
        addresses: Vec<IpAddr>,
        gateways: Vec<IpAddr>,
    ) -> Self {
        Self { name: name.to_owned(), node: name.to_owned(), netns, addresses, gateways }
    }

    /// Its own addresses.
    pub(super) fn addresses(&self) -> &[IpAddr] {
        &self.addresses
    }

    /// The addresses of its node's gateway.
    pub(super) fn gateways(&self) -> Vec<IpAddr> {
        self.gateways.clone()
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

fn namespace() -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n---\n")
}

fn manifests() -> String {
    let mut text = namespace();
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
    /// The namespace alone.
    pub(super) fn empty(store: &'a Store) -> Result<Self> {
        cluster::apply(store, &namespace())?;
        Ok(Self { store, clients: Vec::new() })
    }

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

    /// Makes a Pod that is a program of its node: it has the node's addresses.
    pub(super) fn add_host_pod(&self, name: &str, node: &str, app: &str) -> Result<()> {
        let text = pod(name, node, app);
        let spec = "spec:\n  hostNetwork: true\n";
        cluster::apply(self.store, &text.replace("spec:\n", spec))
    }

    /// Makes a Pod that serves until its time is over when it is asked to end, and waits for it.
    pub(super) fn add_lasting_pod(
        &self,
        name: &str,
        node: &str,
        app: &str,
        seconds: u32,
    ) -> Result<()> {
        let server = builtin_server(&format!("{NAMESPACE}/{name}"))?.argv.join(" ");
        let text = format!(
            "apiVersion: v1\nkind: Pod\n\
             metadata: {{name: {name}, namespace: {NAMESPACE}, labels: {{app: {app}}}}}\n\
             spec:\n  nodeName: {node}\n  terminationGracePeriodSeconds: {seconds}\n  \
             containers:\n  - name: c\n    image: antrea-lab/echo\n    \
             command: [sh, -c, \"trap '' TERM; exec {server}\"]\n"
        );
        cluster::apply(self.store, &text)?;
        self.await_pod(name)?;
        let pod = self.client(name)?;
        for ip in pod.addresses() {
            let target = SocketAddr::new(*ip, crate::echo::PORT);
            let within = Duration::from_secs(1);
            let what = format!("{name} serves");
            eventually(POD_PATIENCE, &what, || {
                ask(&pod, target, Transport::Tcp, within).map(drop)
            })?;
        }
        Ok(())
    }

    /// Gives a Pod another label.
    pub(super) fn set_app(&self, name: &str, app: &str) -> Result<()> {
        let patch = serde_json::json!({ "metadata": { "labels": { "app": app } } });
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            let set = objects::merge(&client, path("pods", name), &patch).await;
            set.map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("label Pod {name}"))
    }

    /// Waits until the API has no such Pod any more.
    pub(super) fn await_gone(&self, name: &str) -> Result<()> {
        wait_for(POD_PATIENCE, &format!("Pod {name} is gone"), || {
            pods::find(self.store, &format!("{NAMESPACE}/{name}")).is_err().then_some(())
        })
    }

    /// Waits until a Service has so many ready endpoints of each family.
    pub(super) fn await_endpoints(&self, service: &str, n: usize) -> Result<()> {
        let families = addressing::service_cidrs(self.store.get().variant.family).len();
        let what = format!("Service {service} has {n} ready endpoints");
        eventually(IN_FORCE, &what, || {
            let seen = self.n_ready(service)?;
            if seen == n * families {
                return Ok(());
            }
            Err(LabError::new(format!("it has {seen} of {families} families")))
        })
    }

    fn n_ready(&self, service: &str) -> Result<usize> {
        let list = cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            let all = ObjectPath {
                group: "discovery.k8s.io",
                version: "v1",
                plural: "endpointslices",
                namespace: Some(NAMESPACE),
                name: "",
            };
            objects::list(&client, all).await.map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| "list EndpointSlices".into())?;
        let slices = list["items"].as_array().into_iter().flatten();
        let own = slices
            .filter(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
        let endpoints = own.filter_map(|slice| slice["endpoints"].as_array()).flatten();
        Ok(endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true).count())
    }

    /// Makes many Services of the Pods with a label.
    pub(super) fn add_services(&self, names: &[String], app: &str) -> Result<()> {
        let text: String = names.iter().map(|name| service(name, &selector(app))).collect();
        cluster::apply(self.store, &text)
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

    /// Deletes a Service.
    pub(super) fn delete_service(&self, name: &str) -> Result<()> {
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            objects::delete(&client, path("services", name))
                .await
                .map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("delete Service {name}"))
    }

    /// Makes a Service of the Pods with a label.
    pub(super) fn add_service(&self, name: &str, app: &str) -> Result<()> {
        self.add_service_of(name, app, "")
    }

    /// The same with more in its `spec`.
    pub(super) fn add_service_of(&self, name: &str, app: &str, spec: &str) -> Result<()> {
        cluster::apply(self.store, &service(name, &(selector(app) + spec)))
    }

    /// Makes a Service of SCTP alone, whose port is the Pods' own.
    pub(super) fn add_sctp_service(&self, name: &str, app: &str, spec: &str) -> Result<()> {
        let text = format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
             spec:\n  ipFamilyPolicy: PreferDualStack\n  ports:\n  \
             - {{name: sctp, protocol: SCTP, port: {PORT}, targetPort: {PORT}}}\n{}{spec}",
            selector(app)
        );
        cluster::apply(self.store, &text)
    }

    /// Whether somebody is one of our Pods.
    pub(super) fn is_client(&self, who: &Client) -> bool {
        self.clients.iter().any(|own| own.name == who.name)
    }

    /// The port of the nodes, one for both TCP and UDP.
    pub(super) fn node_port(&self, name: &str) -> Result<u16> {
        let object = self.read(name)?;
        let ports = object["spec"]["ports"].as_array().into_iter().flatten();
        let ports: Vec<u64> = ports.filter_map(|port| port["nodePort"].as_u64()).collect();
        let [tcp, udp] = ports.as_slice() else {
            return Err(LabError::new(format!("Service {name} has node ports {ports:?}")));
        };
        if tcp != udp {
            return Err(LabError::new(format!("Service {name} has node ports {tcp} and {udp}")));
        }
        u16::try_from(*tcp).doing(|| "read the node port".into())
    }

    /// The port at which nodes tell whether they have endpoints of a Service.
    pub(super) fn health_port(&self, name: &str) -> Result<u16> {
        let port = self.read(name)?["spec"]["healthCheckNodePort"].as_u64().unwrap_or(0);
        u16::try_from(port).ok().filter(|port| *port != 0).ok_or_else(|| {
            LabError::new(format!("Service {name} has {port} as its port for health checks"))
        })
    }

    /// Gives a Node more labels.
    pub(super) fn label_node(&self, name: &str, labels: &Value) -> Result<()> {
        let patch = serde_json::json!({ "metadata": { "labels": labels } });
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            let node =
                ObjectPath { group: "", version: "v1", plural: "nodes", namespace: None, name };
            let set = objects::merge(&client, node, &patch).await;
            set.map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("label Node {name}"))
    }

    /// Changes what a Service is to be.
    pub(super) fn set_spec(&self, name: &str, spec: &Value) -> Result<()> {
        let patch = serde_json::json!({ "spec": spec });
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            let set = objects::merge(&client, path("services", name), &patch).await;
            set.map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("change Service {name}"))
    }

    /// Gives a Service more annotations.
    pub(super) fn annotate_service(&self, name: &str, annotations: &Value) -> Result<()> {
        self.merge_service(name, &serde_json::json!({ "annotations": annotations }))
    }

    /// Gives a Service more labels; `null` takes one away.
    pub(super) fn label_service(&self, name: &str, labels: &Value) -> Result<()> {
        self.merge_service(name, &serde_json::json!({ "labels": labels }))
    }

    fn merge_service(&self, name: &str, metadata: &Value) -> Result<()> {
        let patch = serde_json::json!({ "metadata": metadata });
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            let set = objects::merge(&client, path("services", name), &patch).await;
            set.map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("change Service {name}"))
    }

    /// Changes the status of a Service.
    pub(super) fn set_status(&self, name: &str, patch: &Value) -> Result<()> {
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            objects::merge_status(&client, path("services", name), patch)
                .await
                .map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("set the status of Service {name}"))
    }

    fn read(&self, name: &str) -> Result<Value> {
        cluster::run_async(async {
            let client = cluster::admin(self.store).await?;
            objects::get(&client, path("services", name))
                .await
                .map_err(|error| LabError::new(error.chain()))
        })
        .doing(|| format!("read Service {name}"))
    }

    /// Makes a Service of these addresses.
    pub(super) fn add_service_by_hand(
        &self,
        name: &str,
        addresses: &[IpAddr],
        port: u16,
        spec: &str,
    ) -> Result<()> {
        let mut text = service(name, spec);
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
        let object = self.read(name)?;
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
