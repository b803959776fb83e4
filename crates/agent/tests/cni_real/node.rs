//! A node in a namespace with its own Open vSwitch and a running CNI server.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use antrea_agent::cni::{NodeNetwork, Readiness, Server, ServerConfig, real};
use cni_api::rpc::{CniClient, CniCmdArgs, CniCmdRequest};
use openflow::{MacAddr, OfPort};
use pipeline::{Families, Gateway, NodeConfig, connectivity};
use serde_json::{Value, json};
use switch::bridge::{Bridge, BridgeConfig, Owner};
use switch::ovsdb_session::{BridgeSpec, OvsdbConfig, OvsdbSession, PortSpec};
use testkit::netns::NamedNetns;
use testkit::ovs::Ovs;
use testkit::wait_until;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Long enough for a loaded machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

const GATEWAY_PORT: OfPort = OfPort(2);
const GATEWAY_MAC: MacAddr = MacAddr([0x02, 0, 0, 0x77, 0, 1]);

/// The error of a request.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) code: i32,
    pub(crate) message: String,
}

/// An agent's part that serves CNI, running.
struct Agent {
    cancel: CancellationToken,
    task: JoinHandle<()>,
    bridge: Bridge,
    ovsdb: OvsdbSession,
    _ready_tx: watch::Sender<Readiness>,
}

/// The node. Everything ends with it.
pub(crate) struct Node {
    runtime: Option<Runtime>,
    agent: Option<Agent>,
    pub(crate) ovs: Ovs,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) netns: NamedNetns,
}

impl Node {
    /// A node with a bridge, a gateway and a CNI server that has started.
    pub(crate) fn start() -> Self {
        // `RUST_LOG=antrea_agent=debug` shows each step.
        let said = std::env::var("RUST_LOG").unwrap_or_default();
        let filter: Targets = said.parse().expect("RUST_LOG as TARGET=LEVEL,...");
        let _ = tracing_subscriber::registry().with(fmt::layer()).with(filter).try_init();
        let netns = NamedNetns::new("cni-node").unwrap();
        let ovs = Ovs::start(Some(&netns));
        // All of its threads are made from one inside the namespace, and so are inside.
        let runtime = netns.run(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap()
        });
        let dir = tempfile::tempdir().unwrap();
        let mut node = Self { runtime: Some(runtime), agent: None, ovs, dir, netns };
        node.start_agent();
        node
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("cni.sock")
    }

    pub(crate) fn leases(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.dir.path().join("leases/antrea")) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.parse::<IpAddr>().is_ok()).collect()
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }

    /// Starts the agent's part on what is there.
    pub(crate) fn start_agent(&mut self) {
        let (ovs_dir, db_sock) = (self.ovs.dir().to_owned(), self.ovs.db_sock());
        let mgmt = self.ovs.mgmt("br-int");
        let (socket, leases) = (self.socket(), self.dir.path().join("leases"));
        let journal = self.dir.path().join("interfaces");
        let starting = self.runtime().spawn(async move {
            let ovsdb = OvsdbSession::connect(OvsdbConfig::new(db_sock));
            ovsdb.wait_connected(DEADLINE).await.unwrap();
            ovsdb.ensure_bridge(BridgeSpec::secure("br-int", "netdev")).await.unwrap();
            let mut gateway = PortSpec::new("br-int", "antrea-gw0")
                .interface_type("internal")
                .ofport_request(GATEWAY_PORT)
                .external_id("antrea-type", "gateway");
            gateway.mac = Some(GATEWAY_MAC);
            ovsdb.add_port(gateway).await.unwrap();
            assert_eq!(ovsdb.wait_ofport("antrea-gw0", DEADLINE).await, Ok(GATEWAY_PORT));

            let mut config = BridgeConfig::new(mgmt, pipeline::fields::COOKIE_MARKER);
            let owner = Owner(pipeline::Category::PodConnectivity.number());
            let framework = Owner(pipeline::Category::Framework.number());
            config.owners = vec![framework, owner];
            let bridge = Bridge::start(config);
            let node = node_config();
            bridge.set(framework, "misses", pipeline::miss_flows(&node));
            bridge.synced(framework);
            bridge.set(owner, "node", connectivity::node_flows(&node));
            let real = real::connect(
                real::RealConfig {
                    network: network(),
                    node,
                    bridge_name: "br-int".into(),
                    ovs_run_dir: ovs_dir,
                    host_proc: "/host".into(),
                    userspace: true,
                    tx_checksum_off: false,
                    gate: None,
                },
                ovsdb.clone(),
                bridge.clone(),
            );
            let real = real.await.unwrap();
            let (ready_tx, ready_rx) = watch::channel(Readiness::Ready(Arc::new(real)));
            let mut server_config = ServerConfig::new(socket);
            server_config.data_dir = Some(leases);
            server_config.journal_dir = Some(journal);
            let server = Server::new(server_config, ready_rx);
            let mut restored = server.restored();
            let cancel = CancellationToken::new();
            let stop = cancel.clone();
            let follow = server.clone().follow_numbers(ovsdb.subscribe(), "br-int".into());
            let numbers = tokio::spawn(follow);
            let task = tokio::spawn(async move {
                server.run(stop).await.unwrap();
                numbers.abort();
            });
            restored.wait_for(|restored| *restored).await.unwrap();
            bridge.synced(owner);
            bridge.barrier().await.unwrap();
            Agent { cancel, task, bridge, ovsdb, _ready_tx: ready_tx }
        });
        let agent = self.runtime().block_on(starting).unwrap();
        self.netns.sh("ip addr replace 10.77.1.1/24 dev antrea-gw0; ip link set antrea-gw0 up");
        self.agent = Some(agent);
    }

    /// Ends the agent's part; everything it made stays.
    pub(crate) fn stop_agent(&mut self) {
        let agent = self.agent.take().unwrap();
        agent.cancel.cancel();
        self.runtime().block_on(agent.task).unwrap();
        drop((agent.bridge, agent.ovsdb));
    }

    /// A client's requests, as antrea-cni sends them.
    pub(crate) async fn call(
        socket: PathBuf,
        verb: &str,
        args: CniCmdArgs,
    ) -> Result<Value, Refused> {
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        let mut client = CniClient::new(endpoint.connect().await.unwrap());
        let request = CniCmdRequest { cni_args: Some(args) };
        let answer = match verb {
            "ADD" => client.cmd_add(request).await,
            "DEL" => client.cmd_del(request).await,
            "CHECK" => client.cmd_check(request).await,
            "GC" => client.cmd_gc(request).await,
            "STATUS" => client.cmd_status(request).await,
            other => panic!("no verb {other}"),
        };
        let answer = answer.unwrap().into_inner();
        match answer.error {
            Some(error) => Err(Refused { code: error.code, message: error.message }),
            None if answer.cni_result.is_empty() => Ok(Value::Null),
            None => Ok(serde_json::from_slice(&answer.cni_result).unwrap()),
        }
    }

    pub(crate) fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime().block_on(work)
    }

    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime().spawn(work)
    }

    pub(crate) fn conf(&self) -> Value {
        json!({
            "cniVersion": "1.0.0", "name": "antrea", "type": "antrea",
            "ipam": {"type": "host-local", "dataDir": self.dir.path().join("leases")},
        })
    }

    pub(crate) fn args(&self, container_id: &str, netns: &str) -> CniCmdArgs {
        CniCmdArgs {
            container_id: container_id.into(),
            netns: netns.into(),
            ifname: "eth0".into(),
            args: format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={container_id}"),
            path: "/opt/cni/bin:/usr/lib/cni".into(),
            network_configuration: self.conf().to_string().into_bytes(),
        }
    }

    pub(crate) fn add(&self, container_id: &str, pod: &NamedNetns) -> Result<Value, Refused> {
        let args = self.args(container_id, &pod.path().display().to_string());
        self.block_on(Self::call(self.socket(), "ADD", args))
    }

    pub(crate) fn del(&self, container_id: &str, netns: &str) -> Result<Value, Refused> {
        let args = self.args(container_id, netns);
        self.block_on(Self::call(self.socket(), "DEL", args))
    }

    pub(crate) fn check(
        &self,
        container_id: &str,
        pod: &NamedNetns,
        previous: &Value,
    ) -> Result<Value, Refused> {
        let mut args = self.args(container_id, &pod.path().display().to_string());
        let mut conf = self.conf();
        conf["prevResult"] = previous.clone();
        args.network_configuration = conf.to_string().into_bytes();
        self.block_on(Self::call(self.socket(), "CHECK", args))
    }

    /// What is on the node of Pods, one line for each thing, by tools that are not ours.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.leases().into_iter().map(|ip| format!("lease {ip}")).collect();
        let links = self.netns.sh("ip -o link show type veth");
        all.extend(links.lines().map(|line| format!("link {line}")));
        let ports = self.ovs.vsctl(&["list-ports", "br-int"]);
        let ports = ports.lines().filter(|port| *port != "antrea-gw0");
        all.extend(ports.map(|port| format!("port {port}")));
        let flows = self.ovs.flows("br-int");
        let flows = flows.into_iter().filter(|flow| flow.contains("10.77.1.") && is_pods(flow));
        all.extend(flows.map(|flow| format!("flow {flow}")));
        let chains = self.netns.sh("nft list chains netdev 2>/dev/null || true");
        let chains = chains.lines().filter(|line| line.contains("chain drop-"));
        all.extend(chains.map(|line| format!("nft {}", line.trim())));
        let connections = self.ovs.appctl(&["dpctl/dump-conntrack"]);
        let connections = connections.lines().filter(|line| line.contains("10.77.1."));
        all.extend(connections.map(|line| format!("connection {line}")));
        all
    }

    #[track_caller]
    pub(crate) fn wait_empty(&self) {
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(DEADLINE, "nothing of Pods is left", || self.leftovers().is_empty());
        }));
        assert!(waited.is_ok(), "left of Pods: {:#?}", self.leftovers());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.cancel.cancel();
        }
        // The tasks end with their runtime, before the switch and the namespace they use.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Whether a flow is not about the gateway, whose address is in the Pods' prefix too.
fn is_pods(flow: &str) -> bool {
    (2..255).any(|host| {
        let ip = format!("10.77.1.{host}");
        flow.match_indices(&ip)
            .any(|(at, _)| !flow[at + ip.len()..].starts_with(|next: char| next.is_ascii_digit()))
    })
}

fn network() -> NodeNetwork {
    NodeNetwork {
        mtu: 1450,
        pod_cidrs: vec!["10.77.1.0/24".parse().unwrap()],
        gateways: vec!["10.77.1.1".parse().unwrap()],
    }
}

fn node_config() -> NodeConfig {
    NodeConfig {
        families: Families::V4,
        gateway: Gateway {
            ofport: GATEWAY_PORT,
            mac: GATEWAY_MAC,
            ips: vec!["10.77.1.1".parse().unwrap()],
        },
        tunnel: None,
        pod_cidrs: vec!["10.77.1.0/24".parse().unwrap()],
        node_ips: vec![],
        services: None,
    }
}

/// A Pod's namespace.
pub(crate) fn mk_pod() -> NamedNetns {
    NamedNetns::new("cni-pod").unwrap()
}

/// The address in a result.
pub(crate) fn ip_of(result: &Value) -> String {
    let address = result["ips"][0]["address"].as_str().unwrap();
    address.split('/').next().unwrap().to_owned()
}

/// The name of the host's end in a result.
pub(crate) fn host_name_of(result: &Value) -> String {
    result["interfaces"][0]["name"].as_str().unwrap().to_owned()
}
