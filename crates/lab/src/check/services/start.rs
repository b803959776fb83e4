//! A node without kube-proxy whose controller needs the `kubernetes` Service: the controller gives
//! nodes their Pod CIDRs, and reaches the API server by the Service's cluster address alone.
//!
//! The second node becomes one that the cluster has never seen, and the only controller runs on it.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kube_io::{Client as ApiClient, ClientOptions, nodes};
use serde_json::{Value, json};

use super::calls::Transport;
use super::node::{Scene, clean_up};
use super::ports::Connection;
use super::world::{self, World};
use super::{Context, IN_FORCE, Lab, Outcome, check, nothing_forbidden};
use crate::cli::{ClusterComponent, NodeComponent};
use crate::cluster::controllers;
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::layout::Layout;
use crate::state::{Proxy, Store};
use crate::ui::Progress;
use crate::up::{self, UpOptions};
use crate::{addressing, agent, cluster, component, netns, probe};

/// The node that becomes a new one.
const NEW: &str = "node-2";
/// One answer of the API server may take this long.
const ANSWERED: Duration = Duration::from_secs(2);
/// A controller that is started may first have to wait for the Lease of the former one.
const CIDR_PATIENCE: Duration = Duration::from_secs(60);

pub(in super::super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let layout = Layout::beside(context.dir, "servicest")?;
    let options = UpOptions { proxy: Proxy::All, ..context.cluster(2) };
    let lab = Lab(up::run(&layout, &options, &Progress::start())?);
    let (store, family) = (&lab.0, context.variant.family);
    let world = World::empty(store)?;
    let scene = Scene::new(&world, family)?;
    let step = |what: &str| context.progress.step(what);
    let new = scene.nodes().iter().find(|node| node.name == NEW);
    let new = new.ok_or_else(|| LabError::new(format!("the lab has no {NEW}")))?;

    step("a new node without a Pod CIDR, and nobody who gives it one");
    let server = cluster_url(context);
    // So that its silence later says something.
    eventually(IN_FORCE, "the kubernetes Service is reached", || api_by(store, &server))?;
    component::stop_cluster(store, ClusterComponent::Controller)?;
    clean_up(&world, new)?;
    renew_node(store)?;

    step("its programs reach the kubernetes Service, and others with endpoints on hosts");
    let outside = addressing::outside(family);
    let port = probe::serve(&layout.outside_netns(), "outside", &outside)?;
    world.add_service_by_hand("hosts", &outside, port, "  type: NodePort\n")?;
    refuses_connections(store, &server)?;
    start_agent(store, context, &server)?;
    let pid = store.get().process(agent::ROLE, Some(NEW));
    eventually(IN_FORCE, "the kubernetes Service is reached", || api_by(store, &server))?;
    let targets = world.targets("hosts")?;
    let node_port = world.node_port("hosts")?;
    let mut kept = Vec::new();
    for target in &targets {
        scene.await_answer(new, &[*target])?;
        kept.push(Connection::open(new, 0, *target, Transport::Tcp)?);
    }
    for ip in new.addresses() {
        scene.await_answer(scene.outside(), &[SocketAddr::new(*ip, node_port)])?;
    }
    if agent::is_ready(&store.layout().node(NEW)) || has_pod_cidr(store)? {
        return Err(LabError::new(format!("{NEW} has a Pod CIDR already")));
    }

    step("the controller on it starts by that way, and gives it a Pod CIDR");
    let direct = addressing::api_url(family);
    let kubeconfig = controllers::dir(store.layout(), 1).join("kubeconfig");
    controllers::lead(&kubeconfig, &direct, &server)?;
    controllers::start_on(store, NEW)?;
    wait_for(CIDR_PATIENCE, &format!("{NEW} gets a Pod CIDR"), || {
        has_pod_cidr(store).unwrap_or(false).then_some(())
    })?;
    agent::await_ready(store, NEW)?;
    api_by(store, &server).doing(|| "with the Pod CIDR".into())?;
    for (connection, target) in kept.iter().zip(&targets) {
        let answer = connection.ask().doing(|| format!("{target} by the same connection"))?;
        check(&answer, new, &["outside".to_owned()], &[answer.peer])?;
    }

    step("Pods of it start, without another start of the agent");
    component::stop_cluster(store, ClusterComponent::Controller)?;
    controllers::lead(&kubeconfig, &server, &direct)?;
    component::start_cluster(store, ClusterComponent::Controller)?;
    let world = World::make(store)?;
    world.await_service("web")?;
    let mut n = 0;
    for target in world.targets("web")? {
        for node in scene.nodes() {
            scene.await_answer(node, &[target])?;
            n += 1;
        }
    }
    if pid.is_none() || store.get().process(agent::ROLE, Some(NEW)) != pid {
        return Err(LabError::new("the agent was started again"));
    }
    if !component::runs(store, NEW, NodeComponent::Agent) {
        return Err(LabError::new("the agent has ended"));
    }
    nothing_forbidden(store)?;
    Ok(Outcome::Passed(json!({ "kubernetesAt": server, "nodesThatReachPods": n })))
}

fn eventually(within: Duration, what: &str, condition: impl FnMut() -> Result<()>) -> Result<()> {
    world::eventually(within, what, condition)
}

/// Where the API server is by the cluster address of `kubernetes`.
fn cluster_url(context: &Context<'_>) -> String {
    let first = addressing::service_cidrs(context.variant.family)[0].hosts().next();
    let ip = first.unwrap_or(IpAddr::from([10, 96, 0, 1]));
    format!("https://{}", SocketAddr::new(ip, 443))
}

/// Asks the API server from the new node by this way, as the agent of that node.
fn api_by(store: &Store, server: &str) -> Result<()> {
    let layout = store.layout().node(NEW);
    let kubeconfig = layout.kubeconfig("agent");
    netns::enter(layout.netns(), || {
        cluster::run_async(async {
            let options = ClientOptions {
                server_override: Some(server.to_owned()),
                ..ClientOptions::new("antrea-lab", "v1")
            };
            let client = ApiClient::from_kubeconfig(&kubeconfig, &options).await;
            let client = client.doing(|| format!("use {}", kubeconfig.display()))?;
            let asked = tokio::time::timeout(ANSWERED, nodes::list(&client)).await;
            match asked.doing(|| format!("ask {server}"))? {
                Ok(_) => Ok(()),
                Err(error) => Err(LabError::new(error.chain())),
            }
        })
    })?
}

/// That nobody answers there.
fn refuses_connections(store: &Store, server: &str) -> Result<()> {
    match api_by(store, server) {
        Ok(()) => Err(LabError::new(format!("{server} is reached without an agent"))),
        Err(_) => Ok(()),
    }
}

/// Deletes the Node; its kubelet registers it again.
fn renew_node(store: &Store) -> Result<()> {
    let former = cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let former = nodes::get(&client, NEW).await;
        let former = former.map_err(|error| LabError::new(error.chain()))?;
        nodes::delete(&client, NEW).await.map_err(|error| LabError::new(error.chain()))?;
        Ok(former.uid)
    })?;
    eventually(IN_FORCE, "the kubelet registers the Node again", || {
        cluster::run_async(async {
            let client = cluster::admin(store).await?;
            let now = nodes::get(&client, NEW).await;
            let now = now.map_err(|error| LabError::new(error.chain()))?;
            if now.uid == former || !now.pod_cidrs.is_empty() {
                return Err(LabError::new(format!("{NEW} is {} {:?}", now.uid, now.pod_cidrs)));
            }
            Ok(())
        })
    })
}

fn has_pod_cidr(store: &Store) -> Result<bool> {
    cluster::run_async(async {
        let client = cluster::admin(store).await?;
        let node = nodes::get(&client, NEW).await;
        Ok(!node.map_err(|error| LabError::new(error.chain()))?.pod_cidrs.is_empty())
    })
}

/// The agent's kubeconfig has the cluster address, as that of a Pod does; its configuration says where
/// the API server is until the agent serves that address itself.
fn start_agent(store: &Store, context: &Context<'_>, server: &str) -> Result<()> {
    let layout = store.layout().node(NEW);
    let direct = addressing::api_url(context.variant.family);
    agent::prepare(store, NEW)?;
    controllers::lead(&layout.kubeconfig("agent"), &direct, server)?;
    let path = layout.agent_conf();
    let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let mut conf: Value =
        serde_saphyr::from_str(&text).doing(|| format!("decode {}", path.display()))?;
    conf["kubeAPIServerOverride"] = json!(direct);
    let text = serde_saphyr::to_string(&conf).doing(|| "encode the configuration".into())?;
    fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
    agent::start(store, NEW)
}
