//! Brings the agent up in order, then keeps it running until a signal.
//!
//! Order: open vSwitch database, own node, datapath, bridge, gateway, then the reconciler, the CNI
//! server and the loops. Each step may be repeated by a restarted agent and changes nothing that is
//! already right, so nothing that forwards is interrupted.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ::policy::realize;
use antrea_runtime::{Checks, HealthConfig, HealthServer, Metrics};
use anyhow::{Context, Result, bail};
use host::netlink::Rtnl;
use host::nft::node::Masquerade;
use host::uplink::{self, Transport, Uplink};
use kube_io::Client;
use kube_io::controlplane::{Controlplane, Route};
use openflow::OfPort;
use pipeline::policy::{HostMark, PolicyConfig};
use pipeline::{Families, NodeConfig, Tunnel, TunnelKind};
use switch::bridge::{Bridge, BridgeConfig, BridgeState, Owner, SyncMode};
use switch::ovsdb_session::OvsdbSession;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cni::{self, Readiness};
use crate::database::{self, Database};
use crate::datapath::{self, Datapath, Facts};
use crate::gateway::{self, Gateway, LayoutFound, TUNNEL};
use crate::guards::Guards;
use crate::health::NodeHealth;
use crate::info::{InfoLoop, NetworkFacts};
use crate::mtu::{self, Encryption};
use crate::node_loop::{self, NodeLoop, ToServices};
use crate::nodes::{self, NodeList};
use crate::options::{NodeListSource, Options};
use crate::own_node::{OwnAddresses, UplinkBy, nowhere, own_node};
use crate::peers::Peers;
use crate::policy::{self, AntreaPolicies, AuditConfig, Counts, DnsServer, Gate, PolicyLoop};
use crate::proxy::{self, setup};
use crate::upkeep::{KeptUplink, Upkeep};
use crate::{api_nodes, health, metrics, netdev};

/// Owner of the flows that belong to no feature.
const FRAMEWORK: Owner = Owner(pipeline::Category::Framework.number());
/// How long tasks may take to end; more than the CNI server gives its requests.
const FINISH_PATIENCE: Duration = Duration::from_secs(25);
/// A new Pod's port is opened after this time though its policies are not known.
const POLICY_PATIENCE: Duration = Duration::from_secs(5);
/// Controller id of the connection for packets.
const CONTROLLER_ID: u16 = 1;
const OVSDB_PATIENCE: Duration = Duration::from_secs(60);
/// Features have this long to say what they want before the rest is removed.
const SYNC_DEADLINE: Duration = Duration::from_secs(300);

/// What the node's network is, once known.
struct NodeNetwork {
    datapath: Datapath,
    /// The link in `br-phy`, on the userspace datapath.
    marked_uplink: Option<String>,
    uplink: Uplink,
    /// When that was read.
    uplink_seen: Instant,
    own_addresses: OwnAddresses,
    pod_mtu: u32,
    gateway: Gateway,
    node: NodeConfig,
    /// Where NodePorts are served, with `proxyAll`.
    node_port_addresses: Option<Vec<IpAddr>>,
    layout: LayoutFound,
}

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
    let health = serve_health(&options, &checks, &registry, &stop).await?;

    let bring_up = bring_up(&options, &ovsdb, &nodes_rx, &ready_tx);
    let network = tokio::select! {
        // First: what ends because it was asked to has not ended by itself.
        biased;
        () = stop.cancelled() => return finish(tasks).await,
        // Nothing ends by itself: without the CNI socket, for one, there is nothing to come up for.
        failure = first_failure(&mut tasks) => {
            stop.cancel();
            return finish(tasks).await.and(Err(failure));
        }
        network = bring_up => network?,
    };

    let bridge = start_bridge(&options, &network).await;
    check_switch(&checks, bridge.state());
    registry.follow(bridge.state());
    let packets = bridge.clone();
    registry.follow_packets(move || packets.packet_counts());
    bridge.set(FRAMEWORK, "misses", pipeline::miss_flows(&network.node));
    bridge.synced(FRAMEWORK);
    bridge.set(node_loop::OWNER, "node", pipeline::connectivity::node_flows(&network.node));
    let (host_tx, host_rx) = watch::channel(None);
    let mut node_loop = mk_node_loop(&options, &network, &bridge, &node_health, host_rx)?;
    let first_list = nodes_rx.borrow().clone();
    node_loop.take(&first_list).await?;
    node_loop.upkeep.adopt().await;
    // Before the flows that know them so.
    let host_mark = match node_loop.mark_host_frames().await {
        true => HostMark::Marked,
        false => HostMark::GatewayAddress,
    };
    let policy_config = policy_config(&options, &network.node, host_mark);
    let node_flows = pipeline::policy::node_flows(&network.node, &policy_config);
    bridge.set(policy::OWNER, "node", node_flows);
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
                audit: audit_config(&options),
                services,
                dns_server: DnsServer::choose(
                    options.config.dns_server_override.as_deref().unwrap_or_default(),
                    options.environment.kube_dns.as_ref(),
                ),
                counts_tx,
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
        token_file: Some(options.run_dir.join("apiserver/loopback-client-token")),
        shutdown: stop.clone(),
    })
    .await
    .with_context(|| {
        let port = options.config.api_port;
        format!("serve health endpoints on apiPort {port}; does another agent run on this node?")
    })
}

/// Everything that has to be there before the first flow.
async fn bring_up(
    options: &Options,
    ovsdb: &OvsdbSession,
    nodes_rx: &watch::Receiver<NodeList>,
    ready_tx: &watch::Sender<Readiness>,
) -> Result<NodeNetwork> {
    let config = &options.config;
    ovsdb.wait_connected(OVSDB_PATIENCE).await.with_context(|| {
        format!(
            "connect to ovsdb-server at {}; is Open vSwitch running on this node?",
            config.ovs_run_dir.join("db.sock").display()
        )
    })?;
    check_version(ovsdb)?;
    ready_tx.send_replace(Readiness::WaitingFor("the Pod CIDR of this node"));
    let facts = Facts {
        kernel_module: kernel_module(ovsdb),
        marked_uplink: ovsdb.external_ids().get(netdev::UPLINK_MARK).cloned(),
    };
    let datapath = datapath::choose(config.datapath_type, &facts)?;
    let marked_uplink = facts.marked_uplink.filter(|_| datapath == Datapath::Netdev);
    let by = UplinkBy::of(config, marked_uplink.as_ref());
    let own = own_node(nodes_rx.clone(), &options.node_name, &by).await?;
    ready_tx.send_replace(Readiness::WaitingFor("the bridge and the gateway"));

    let rtnl = Rtnl::open().context("open netlink")?;
    let uplink = match by {
        UplinkBy::Mark(name) => {
            netdev::ensure_null_bridge(&rtnl)?;
            netdev::prepare(ovsdb, &rtnl, &name).await?
        }
        UplinkBy::Config(transport) => find_transport(&rtnl, &transport)?,
        UplinkBy::NodeIps => find_transport(&rtnl, &Transport::NodeIps(own.addresses.clone()))?,
    };
    let uplink_seen = Instant::now();
    for address in nowhere(&rtnl, &own.addresses) {
        tracing::warn!(%address, "none of this node's interfaces has an address that the list of nodes gives it");
    }
    let Some(own_addresses) = OwnAddresses::of(&uplink, &own.addresses) else {
        bail!("transport interface {} has no address", uplink.name);
    };
    let transport = own_addresses.transport;
    let overhead = mtu::overhead(Some(config.tunnel_type), Encryption::None, transport);
    let pod_mtu = mtu::pod_mtu(config.default_mtu, uplink.mtu, overhead);
    tracing::info!(
        datapath = datapath.as_str(),
        interface = uplink.name,
        %transport,
        pod_mtu,
        "transport interface found"
    );

    let layout = gateway::ensure_bridge(ovsdb, config, datapath).await?;
    let tunnel = gateway::ensure_tunnel(ovsdb, config).await?;
    let gateway = gateway::ensure_gateway(ovsdb, &rtnl, config, &own.pod_cidrs, pod_mtu).await?;
    let families = Families::of(&own.pod_cidrs).context("the node has no Pod CIDR")?;
    let node_port_addresses = match setup::is_for_all(options) {
        true => Some(setup::node_port_addresses(options, &rtnl, families)?),
        false => None,
    };
    let node = NodeConfig {
        families,
        gateway: pipeline::Gateway {
            ofport: gateway.ofport,
            mac: openflow::MacAddr(gateway.link.mac.0),
            ips: gateway.link.addresses.iter().map(ipnet::IpNet::addr).collect(),
        },
        tunnel: Some(Tunnel {
            ofport: tunnel,
            kind: tunnel_kind(config.tunnel_type),
            port: config.effective_tunnel_port().unwrap_or(0),
        }),
        pod_cidrs: own.pod_cidrs.clone(),
        node_ips: own_addresses.node_ips.iter().copied().collect(),
        services: setup::is_served(options).then(|| {
            let addresses = node_port_addresses.as_deref();
            setup::service_config(
                options,
                datapath,
                addresses,
                CONTROLLER_ID,
                packet_in_rate(options),
            )
        }),
    };
    Ok(NodeNetwork {
        datapath,
        marked_uplink,
        uplink,
        uplink_seen,
        own_addresses,
        pod_mtu,
        gateway,
        node,
        node_port_addresses,
        layout,
    })
}

fn check_version(ovsdb: &OvsdbSession) -> Result<()> {
    let rows = ovsdb.rows();
    let version = rows.root().and_then(|(_, row)| row.ovs_version.clone());
    // A vswitchd that never ran has written none: the packages' dependencies have to do.
    let Some(version) = version else { return Ok(()) };
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < (3, 1) {
        bail!("Open vSwitch {version} is too old: 3.1 or later is needed");
    }
    Ok(())
}

/// ovs-vswitchd offers `system` also where the module is missing; the kernel knows.
fn kernel_module(ovsdb: &OvsdbSession) -> bool {
    let rows = ovsdb.rows();
    let offered = rows
        .root()
        .is_some_and(|(_, row)| row.datapath_types.iter().any(|offered| offered == "system"));
    offered && Path::new("/sys/module/openvswitch").exists()
}

fn find_transport(rtnl: &Rtnl, by: &Transport) -> Result<Uplink> {
    uplink::find(rtnl, by).context("find the transport interface (transportInterface names it)")
}

fn tunnel_kind(kind: antrea_config::TunnelType) -> TunnelKind {
    match kind {
        antrea_config::TunnelType::Geneve => TunnelKind::Geneve,
        antrea_config::TunnelType::Vxlan => TunnelKind::Vxlan,
        antrea_config::TunnelType::Gre => TunnelKind::Gre,
        antrea_config::TunnelType::Stt => TunnelKind::Stt,
    }
}

/// Where and how connections that policies log are written down.
fn audit_config(options: &Options) -> AuditConfig {
    AuditConfig {
        path: options.log_dir.join("networkpolicy/np.log"),
        max_size: number(options, "auditLogging.maxSize").saturating_mul(1 << 20),
        max_backups: usize::try_from(number(options, "auditLogging.maxBackups")).unwrap_or(0),
        max_age: Some(number(options, "auditLogging.maxAge"))
            .filter(|days| *days > 0)
            .map(|days| Duration::from_secs(days.saturating_mul(24 * 60 * 60))),
    }
}

/// How many packets a second each feature may send here.
fn packet_in_rate(options: &Options) -> u32 {
    u32::try_from(number(options, "packetInRate")).unwrap_or(u32::MAX)
}

/// A whole number of the configuration.
fn number(options: &Options, key: &str) -> u64 {
    match options.config.values.get(key) {
        Some(antrea_config::Value::Int(number)) => u64::try_from(*number).unwrap_or(0),
        _ => 0,
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

fn policy_config(options: &Options, node: &NodeConfig, host_mark: HostMark) -> PolicyConfig {
    PolicyConfig {
        families: node.families,
        controller_id: CONTROLLER_ID,
        packet_in_rate: Some(packet_in_rate(options)),
        host_mark,
    }
}

async fn start_bridge(options: &Options, network: &NodeNetwork) -> Bridge {
    let socket = options.config.ovs_run_dir.join(format!("{}.mgmt", options.config.ovs_bridge));
    let mut config = BridgeConfig::new(socket, pipeline::fields::COOKIE_MARKER);
    config.sync_deadline = SYNC_DEADLINE;
    config.controller_id = Some(CONTROLLER_ID);
    config.userspace_run_dir =
        (network.datapath == Datapath::Netdev).then(|| options.config.ovs_run_dir.clone());
    config.owners = vec![FRAMEWORK, node_loop::OWNER, policy::OWNER, proxy::OWNER];
    if network.layout == LayoutFound::Other {
        tracing::info!("the bridge has another table layout: it is replaced as a whole");
        config.sync_mode = SyncMode::ReplaceLayout;
    }
    Bridge::start(config)
}

fn mk_node_loop(
    options: &Options,
    network: &NodeNetwork,
    bridge: &Bridge,
    health: &NodeHealth,
    services_rx: watch::Receiver<Option<Arc<services::HostWants>>>,
) -> Result<NodeLoop> {
    let masquerade = if options.config.no_snat { Masquerade::Off } else { Masquerade::On };
    Ok(NodeLoop {
        peers: Peers::new(&options.node_name, network.own_addresses.transport),
        bridge: bridge.clone(),
        node: network.node.clone(),
        rtnl: Rtnl::open().context("open netlink")?,
        upkeep: Upkeep {
            rtnl: Rtnl::open().context("open netlink")?,
            gateway: network.gateway.link.clone(),
            gateway_index: network.gateway.index,
            uplink: network.marked_uplink.clone().map(|name| KeptUplink {
                name,
                bridge: network.uplink.clone(),
                seen: network.uplink_seen,
            }),
        },
        tunnel_port: options.config.effective_tunnel_port(),
        masquerade,
        uplink: network.uplink.clone(),
        own_addresses: network.own_addresses.clone(),
        health: health.clone(),
        marks_host_frames: false,
        firewall: None,
        tunnel_neighbours: (network.datapath == Datapath::Netdev)
            .then(|| options.config.ovs_run_dir.clone()),
        services: network
            .node_port_addresses
            .clone()
            .map(|node_port_addresses| ToServices { wants_rx: services_rx, node_port_addresses }),
    })
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
