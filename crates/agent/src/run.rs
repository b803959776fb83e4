//! Brings the agent up in order, then keeps it running until a signal.
//!
//! Order: open vSwitch database, own node, datapath, bridge, gateway, then the reconciler, the CNI
//! server and the loops. Each step may be repeated by a restarted agent and changes nothing that is
//! already right, so nothing that forwards is interrupted.

use std::collections::BTreeMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::policy::realize;
use antrea_runtime::{Checks, HealthConfig, HealthServer, Metrics, Page};
use anyhow::{Context, Result};
use host::netlink::Rtnl;
use kube_io::Client;
use kube_io::controlplane::{Controlplane, Route};
use openflow::OfPort;
use services::HostWants;
use switch::bridge::{Bridge, BridgeState};
use switch::ovsdb_session::OvsdbSession;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::bring_up::{self, FIRST_OWNERS, FRAMEWORK, NodeNetwork};
use crate::cni::{self, Readiness};
use crate::database::{self, Database};
use crate::datapath::Datapath;
use crate::early::Early;
use crate::gateway::TUNNEL;
use crate::guards::Guards;
use crate::health::NodeHealth;
use crate::info::{InfoLoop, NetworkFacts};
use crate::nodes::{self, NodeList};
use crate::options::{NodeListSource, Options};
use crate::own_node::{Wanted, own_node};
use crate::policy::{
    self, AntreaPolicies, AuditConfig, CountTraffic, Counts, DnsServer, Gate, PolicyLoop,
};
use crate::proxy::{self, setup};
use crate::{api_nodes, health, metrics};

/// How long tasks may take to end; more than the CNI server gives its requests.
const FINISH_PATIENCE: Duration = Duration::from_secs(25);
/// A new Pod's port is opened after this time though its policies are not known.
const POLICY_PATIENCE: Duration = Duration::from_secs(5);
/// Features have this long to say what they want before the rest is removed.
const SYNC_DEADLINE: Duration = Duration::from_secs(300);

/// Runs the agent.
pub(crate) async fn run(options: Options, stop: CancellationToken) -> Result<()> {
    tracing::info!(
        version = antrea_runtime::VERSION,
        node = options.node_name,
        "antrea-agent starts"
    );
    for dir in [&options.state_dir, &options.run_dir] {
        std::fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    }
    let options = Arc::new(options);
    let mut tasks = JoinSet::new();
    let ovsdb = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        ovsdb = database::open(&options.config.ovs_run_dir) => ovsdb,
    };
    tasks.spawn(database::keep(ovsdb.clone(), stop.clone()));
    let api = connect_api(&options).await?;
    let api_up = Arc::new(AtomicBool::new(options.source != NodeListSource::Api));
    let (nodes_tx, nodes_rx) = watch::channel(None);
    follow_nodes(&options, api.clone(), nodes_tx, &api_up, &stop, &mut tasks);

    // The CNI server listens from the start: until the node is ready it says what it waits for.
    let (ready_tx, ready_rx) = watch::channel(Readiness::WaitingFor("Open vSwitch"));
    let server = cni::Server::new(cni_config(&options), ready_rx);
    let interfaces = server.interfaces();
    let restored = server.restored();
    let numbers = server.clone();
    let cni_stop = stop.clone();
    tasks.spawn(async move { server.run(cni_stop).await.context("CNI server") });

    let checks = Checks::new();
    let node_health = NodeHealth::new();
    add_checks(&checks, &ovsdb, restored.clone(), &node_health);
    let registry = metrics::Registry::new(interfaces.clone());
    registry.follow_overdue(numbers.overdue());
    let (ask_names_tx, ask_names_rx) = mpsc::channel(1);
    let pages = [("/fqdncache", policy::names_page(ask_names_tx))].into();
    let health = serve_health(&options, &checks, &registry, pages, &stop).await?;

    let coming_up = ComingUp {
        options: &options,
        ovsdb: &ovsdb,
        api: api.as_ref(),
        nodes_rx: &nodes_rx,
        ready_tx: &ready_tx,
        health: &node_health,
    };
    let (network, wants) = tokio::select! {
        // First: what ends because it was asked to has not ended by itself.
        biased;
        () = stop.cancelled() => return finish(tasks).await,
        // Nothing ends by itself: without the CNI socket, for one, there is nothing to come up for.
        failure = first_failure(&mut tasks) => {
            stop.cancel();
            return finish(tasks).await.and(Err(failure));
        }
        up = coming_up.run() => up?,
    };

    let bridge = bring_up::start_bridge(&options, &network, SYNC_DEADLINE, FIRST_OWNERS.into());
    check_switch(&checks, bridge.state());
    registry.follow(bridge.state());
    let packets = bridge.clone();
    registry.follow_packets(move || packets.packet_counts());
    let (host_tx, host_rx) = watch::channel(wants);
    let first_list = nodes_rx.borrow().clone();
    let (node_loop, policy_config) =
        bring_up::lay(&options, &network, &bridge, &node_health, &first_list, host_rx).await?;
    bridge.synced(FRAMEWORK);
    let (tell_policies, services) = policy::channel();
    match &api {
        Some(client) if setup::is_served(&options) => {
            let counts_tx = watch::Sender::default();
            registry.follow_services(counts_tx.clone());
            let shown = setup::Shown { counts_tx, host_tx, policies: tell_policies };
            let (node, seen) = (&network.node, (client, nodes_rx.clone()));
            let services = setup::prepare(&options, network.datapath, node, &bridge, seen, shown)?;
            tasks.spawn(services.run(stop.clone()));
        }
        // What an agent that served Services left is taken away.
        _ => bridge.synced(proxy::OWNER),
    }
    let (counts_tx, counts_rx) = watch::channel(Counts::default());
    registry.follow_policies(counts_rx.clone());
    let gate = match &api {
        Some(client) => {
            let (gate, gate_rx) = Gate::new(bridge.clone(), POLICY_PATIENCE);
            let antrea_policies =
                match options.config.gates.configured(antrea_config::Gate::AntreaPolicy) {
                    true => AntreaPolicies::On,
                    false => AntreaPolicies::Off,
                };
            let namespace = options.environment.pod_namespace.clone();
            let route = Route::Replicas { namespace };
            let way = Controlplane::new(client, &route, &options.node_name);
            let policies = PolicyLoop {
                client: client.clone(),
                controlplane: way.context("prepare the connection to the controller")?,
                node: options.node_name.clone(),
                state_dir: options.state_dir.clone(),
                bridge: bridge.clone(),
                network: network.node.clone(),
                config: realize::Config {
                    min_ttl: Duration::from_secs(options.config.fqdn_cache_min_ttl),
                    serves: serves(&options),
                    ..realize::Config::new(policy_config)
                },
                antrea_policies,
                gate: gate.clone(),
                gate_rx,
                interfaces: interfaces.clone(),
                restored: restored.clone(),
                count_traffic: match options
                    .config
                    .gates
                    .configured(antrea_config::Gate::NetworkPolicyStats)
                {
                    true => CountTraffic::On,
                    false => CountTraffic::Off,
                },
                audit: audit_config(&options),
                services,
                dns_server: DnsServer::choose(
                    options.config.dns_server_override.as_deref().unwrap_or_default(),
                    options.environment.kube_dns.as_ref(),
                ),
                counts_tx,
                ask_names_rx,
                dns_counts: registry.follow_names(),
            };
            tasks.spawn(policies.run(stop.clone()));
            Some(gate)
        }
        // Without an API server there are no policies.
        None => {
            bridge.synced(policy::OWNER);
            None
        }
    };

    ready_tx.send_replace(Readiness::Ready(Arc::new(
        cni_node(&options, &ovsdb, &bridge, &network, gate).await?,
    )));
    let database = Database {
        ovsdb: ovsdb.clone(),
        bridge: bridge.clone(),
        name: options.config.ovs_bridge.clone(),
        ports: numbered_ports(&options, &network),
    };
    tasks.spawn(database.settle(restored, stop.clone()));
    tasks.spawn(node_loop.run(nodes_rx, stop.clone()));
    let follow = numbers.follow_numbers(ovsdb.subscribe(), options.config.ovs_bridge.clone());
    tasks.spawn(quietly(until(stop.clone(), follow)));
    if let Some(uplink) = network.marked_uplink.clone() {
        let rtnl = Rtnl::open().context("open netlink")?;
        let guards = Guards { rtnl, uplink, interfaces: interfaces.clone() };
        tasks.spawn(guards.run(stop.clone()));
    }
    if let Some(client) = api {
        let facts = NetworkFacts {
            transport_interface: network.uplink.name.clone(),
            transport_mtu: network.uplink.mtu,
            transport_ips: network.uplink.addresses.iter().map(|a| a.net.addr()).collect(),
            pod_mtu: network.pod_mtu,
            pod_cidrs: network.node.pod_cidrs.clone(),
        };
        let reporter = InfoLoop {
            client,
            options: options.clone(),
            facts,
            interfaces,
            ovsdb: ovsdb.clone(),
            bridge: bridge.state(),
            api_up,
            problems: node_health.subscribe(),
            certificate: health.certificate_pem().to_owned(),
            policies: counts_rx,
        };
        tasks.spawn(quietly(reporter.run(stop.clone())));
    }
    tracing::info!("antrea-agent is up");

    let failure = tokio::select! {
        biased;
        () = stop.cancelled() => None,
        failure = first_failure(&mut tasks) => Some(failure),
    };
    stop.cancel();
    let finished = finish(tasks).await;
    failure.map_or(finished, Err)
}

/// What it takes to come up.
struct ComingUp<'a> {
    options: &'a Options,
    ovsdb: &'a OvsdbSession,
    api: Option<&'a Client>,
    nodes_rx: &'a watch::Receiver<NodeList>,
    ready_tx: &'a watch::Sender<Readiness>,
    health: &'a NodeHealth,
}

impl ComingUp<'_> {
    /// Makes the node's network once the node has its Pod CIDR. Gives what Services want of the host
    /// too, where they were served before.
    async fn run(&self) -> Result<(NodeNetwork, Option<Arc<HostWants>>)> {
        let Self { options, ovsdb, nodes_rx, ready_tx, health, .. } = *self;
        let ground = bring_up::ground(options, ovsdb).await?;
        ready_tx.send_replace(Readiness::WaitingFor("the Pod CIDR of this node"));
        let own =
            async |wanted| own_node(nodes_rx.clone(), &options.node_name, &ground.by, wanted).await;
        let mut wants = None;
        if let Some(client) = self.api.filter(|_| setup::is_for_all(options)) {
            let entry = own(Wanted::Addresses).await?;
            if entry.pod_cidrs.is_empty() {
                let early = Early { options, ovsdb, client, nodes_rx, health };
                wants = early.serve(&ground, &entry).await?;
            }
        }
        let own = own(Wanted::PodCidrs).await?;
        ready_tx.send_replace(Readiness::WaitingFor("the bridge and the gateway"));
        let network = bring_up::bring_up(options, ovsdb, &ground, &own).await?;
        Ok((network, wants))
    }
}

/// Waits until a task ends, which none does before the agent stops.
async fn first_failure(tasks: &mut JoinSet<Result<()>>) -> anyhow::Error {
    match tasks.join_next().await {
        None => std::future::pending().await,
        Some(Ok(Ok(()))) => anyhow::anyhow!("a task of the agent ended by itself"),
        Some(Ok(Err(error))) => error,
        Some(Err(panic)) => anyhow::Error::new(panic).context("a task of the agent panicked"),
    }
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

async fn quietly(work: impl Future<Output = ()>) -> Result<()> {
    work.await;
    Ok(())
}

/// Lets what runs come to its end, but not for ever; flows, ports and routes stay as they are.
async fn finish(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    tracing::info!("antrea-agent stops; the bridge goes on forwarding");
    let mut first_error = None;
    let deadline = tokio::time::Instant::now() + FINISH_PATIENCE;
    loop {
        let ended = match tokio::time::timeout_at(deadline, tasks.join_next()).await {
            Ok(Some(ended)) => ended,
            Ok(None) => break,
            Err(_) => {
                tracing::error!(n_tasks = tasks.len(), "tasks did not end in time: given up");
                tasks.abort_all();
                break;
            }
        };
        if let Err(error) = ended.context("a task of the agent panicked").flatten() {
            tracing::error!("{error:#}");
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

async fn connect_api(options: &Options) -> Result<Option<Client>> {
    if options.source != NodeListSource::Api {
        return Ok(None);
    }
    let mut client_options = kube_io::ClientOptions::new("antrea-agent", antrea_runtime::VERSION);
    client_options.server_override = options.config.kube_api_server_override.clone();
    let limit = options.config.client_limit;
    client_options.limit(limit.qps, limit.burst);
    let client = Client::new(options.config.kubeconfig.as_deref(), &client_options)
        .await
        .context("connect to the Kubernetes API (or list the nodes with --cluster-file)")?;
    Ok(Some(client))
}

fn follow_nodes(
    options: &Options,
    api: Option<Client>,
    nodes_tx: watch::Sender<NodeList>,
    api_up: &Arc<AtomicBool>,
    stop: &CancellationToken,
    tasks: &mut JoinSet<Result<()>>,
) {
    let stop = stop.clone();
    match (&options.source, api) {
        (NodeListSource::File(path), _) => {
            tasks.spawn(quietly(nodes::follow_file(path.clone(), nodes_tx, stop)));
        }
        (NodeListSource::Api, Some(client)) => {
            let (state_dir, api_up) = (options.state_dir.clone(), api_up.clone());
            tasks.spawn(quietly(api_nodes::follow(client, state_dir, nodes_tx, api_up, stop)));
        }
        (NodeListSource::Api, None) => {}
    }
}

fn cni_config(options: &Options) -> cni::ServerConfig {
    let mut config = cni::ServerConfig::new(options.config.cni_socket.clone());
    config.journal_dir = Some(options.state_dir.join("interfaces"));
    config
}

async fn serve_health(
    options: &Options,
    checks: &Checks,
    registry: &metrics::Registry,
    pages: BTreeMap<&'static str, Page>,
    stop: &CancellationToken,
) -> Result<HealthServer> {
    let metrics = options
        .config
        .enable_prometheus_metrics
        .then(|| Metrics { registry: registry.prometheus(), token: None });
    HealthServer::start(HealthConfig {
        addr: SocketAddr::from((Ipv6Addr::UNSPECIFIED, options.config.api_port)),
        names: vec![options.node_name.clone()],
        checks: checks.clone(),
        metrics,
        pages,
        token_file: Some(options.run_dir.join("apiserver/loopback-client-token")),
        shutdown: stop.clone(),
    })
    .await
    .with_context(|| {
        let port = options.config.api_port;
        format!("serve health endpoints on apiPort {port}; does another agent run on this node?")
    })
}

/// Where and how connections that policies log are written down.
fn audit_config(options: &Options) -> AuditConfig {
    AuditConfig {
        path: options.log_dir.join("networkpolicy/np.log"),
        max_size: options.number("auditLogging.maxSize").saturating_mul(1 << 20),
        max_backups: usize::try_from(options.number("auditLogging.maxBackups")).unwrap_or(0),
        max_age: Some(options.number("auditLogging.maxAge"))
            .filter(|days| *days > 0)
            .map(|days| Duration::from_secs(days.saturating_mul(24 * 60 * 60))),
    }
}

/// Which connections to Services rules can be about.
fn serves(options: &Options) -> realize::Serves {
    match (setup::is_served(options), setup::is_for_all(options)) {
        (false, _) => realize::Serves::Nothing,
        (true, false) => realize::Serves::Pods,
        (true, true) => realize::Serves::Everybody,
    }
}

/// The ports whose numbers are in the flows of the node.
fn numbered_ports(options: &Options, network: &NodeNetwork) -> Vec<(String, OfPort)> {
    let tunnel = network.node.tunnel.iter().map(|tunnel| (TUNNEL.to_owned(), tunnel.ofport));
    let gateway = (options.config.host_gateway.clone(), network.gateway.ofport);
    tunnel.chain([gateway]).collect()
}

/// What has to hold before work may come here; from the start, when nothing of it does.
fn add_checks(
    checks: &Checks,
    ovsdb: &OvsdbSession,
    restored: watch::Receiver<bool>,
    node_health: &NodeHealth,
) {
    let problems = node_health.subscribe();
    checks.add_ready("node", move || match health::summary(&problems.borrow()) {
        None => Ok(()),
        Some(problems) => Err(problems),
    });
    let connected = ovsdb.connected();
    checks.add_ready("ovsdb", move || {
        if *connected.borrow() { Ok(()) } else { Err("no connection to ovsdb-server".into()) }
    });
    checks.add_ready("openflow", || Err("the bridge is not set up yet".into()));
    checks.add_ready("pods", move || {
        if *restored.borrow() { Ok(()) } else { Err("Pods are being taken over".into()) }
    });
}

fn check_switch(checks: &Checks, state: watch::Receiver<Arc<BridgeState>>) {
    checks.add_ready("openflow", move || match &**state.borrow() {
        state if state.is_reachable() => Ok(()),
        state if state.connected => Err("ovs-vswitchd does not answer".into()),
        _ => Err("no OpenFlow connection".into()),
    });
}

async fn cni_node(
    options: &Options,
    ovsdb: &OvsdbSession,
    bridge: &Bridge,
    network: &NodeNetwork,
    gate: Option<Gate>,
) -> Result<cni::Node> {
    let pods = cni::NodeNetwork {
        mtu: network.pod_mtu,
        pod_cidrs: network.node.pod_cidrs.clone(),
        gateways: network.node.gateway.ips.clone(),
    };
    cni::real::connect(
        cni::real::RealConfig {
            network: pods,
            node: network.node.clone(),
            bridge_name: options.config.ovs_bridge.clone(),
            ovs_run_dir: options.config.ovs_run_dir.clone(),
            host_proc: options.config.host_proc_path_prefix.clone(),
            userspace: network.datapath == Datapath::Netdev,
            tx_checksum_off: options.config.disable_tx_checksum_offload,
            gate,
        },
        ovsdb.clone(),
        bridge.clone(),
    )
    .await
    .context("prepare the CNI server")
}
