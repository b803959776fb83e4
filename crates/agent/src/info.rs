//! Reports the agent to the cluster: its AntreaAgentInfo with conditions, every minute and when
//! something changes.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apis::AntreaAgentInfo;
use apis::agent_info::{AgentCondition, AgentConditionType, NetworkInfo, OvsInfo};
use apis::common::{
    ByteString, ConditionStatus, NetworkPolicyControllerInfo, ObjectReference, Timestamp,
};
use ipnet::IpNet;
use kube_io::{Client, agent_info};
use switch::bridge::BridgeState;
use switch::ovsdb_session::OvsdbSession;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cni::PodRecord;
use crate::metrics::tables;
use crate::options::Options;
use crate::policy::{Counts, CountsRx};

/// How often the report is renewed.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// A call that takes longer is given up.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// Changes within this time go in one report.
const GATHER: Duration = Duration::from_secs(1);

/// What of the network does not change while the agent runs.
#[derive(Clone, Debug)]
pub struct NetworkFacts {
    /// Interface of the traffic between nodes.
    pub transport_interface: String,
    /// Its MTU.
    pub transport_mtu: u32,
    /// Its addresses.
    pub transport_ips: Vec<IpAddr>,
    /// MTU of Pods.
    pub pod_mtu: u32,
    /// Pod CIDRs of the node.
    pub pod_cidrs: Vec<IpNet>,
}

/// What changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Health {
    n_pods: usize,
    ovs_version: Option<String>,
    ovsdb_up: bool,
    openflow_up: bool,
    controller_up: bool,
    problems: Option<String>,
    flow_table: BTreeMap<String, i32>,
    policies: Counts,
}

/// The loop and its sources.
pub struct InfoLoop {
    /// Where reports go.
    pub client: Client,
    /// Names and ports.
    pub options: Arc<Options>,
    /// The network.
    pub facts: NetworkFacts,
    /// Pod interfaces.
    pub interfaces: watch::Receiver<Arc<Vec<PodRecord>>>,
    /// The database.
    pub ovsdb: OvsdbSession,
    /// The bridge.
    pub bridge: watch::Receiver<Arc<BridgeState>>,
    /// Whether the API server is heard.
    pub api_up: Arc<AtomicBool>,
    /// What the node lacks.
    pub problems: watch::Receiver<BTreeMap<&'static str, String>>,
    /// PEM of the agent API's certificate.
    pub certificate: String,
    /// How much of policy there is.
    pub policies: CountsRx,
}

impl InfoLoop {
    /// Runs until cancelled.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ovsdb_connected = self.ovsdb.connected();
        loop {
            // What changes from here on is in the next report at the latest.
            self.interfaces.mark_unchanged();
            ovsdb_connected.mark_unchanged();
            let reachable = self.bridge.borrow().is_reachable();
            self.problems.mark_unchanged();
            self.policies.mark_unchanged();
            let info = self.report(Timestamp::now());
            tokio::select! {
                // A server that does not answer holds nobody up.
                () = stop.cancelled() => return,
                reported = timeout(CALL_DEADLINE, agent_info::upsert(&self.client, &info)) => {
                    match reported {
                        Ok(Ok(())) => self.api_up.store(true, Ordering::Relaxed),
                        Ok(Err(error)) => {
                            tracing::warn!("report AntreaAgentInfo: {}", error.chain());
                        }
                        Err(_) => tracing::warn!("report AntreaAgentInfo: no answer in time"),
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(HEARTBEAT) => continue,
                _ = self.interfaces.changed() => {}
                _ = ovsdb_connected.changed() => {}
                Ok(()) = self.problems.changed() => {}
                Ok(()) = self.policies.changed() => {}
                _ = self.bridge.wait_for(|state| state.is_reachable() != reachable) => {}
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(GATHER) => {}
            }
        }
    }

    fn report(&self, now: Timestamp) -> AntreaAgentInfo {
        let bridge = self.bridge.borrow().clone();
        let health = Health {
            n_pods: self.interfaces.borrow().len(),
            ovs_version: self.ovsdb.rows().root().and_then(|(_, row)| row.ovs_version.clone()),
            ovsdb_up: *self.ovsdb.connected().borrow(),
            openflow_up: bridge.is_reachable(),
            controller_up: self.api_up.load(Ordering::Relaxed),
            problems: crate::health::summary(&self.problems.borrow()),
            policies: *self.policies.borrow(),
            flow_table: tables(&bridge)
                .map(|(table, count)| {
                    (pipeline::fields::table_name(table), i32::try_from(count).unwrap_or(i32::MAX))
                })
                .collect(),
        };
        build(&self.options, &self.facts, &health, &self.certificate, now)
    }
}

/// The report of that moment. Pure.
fn build(
    options: &Options,
    facts: &NetworkFacts,
    health: &Health,
    certificate: &str,
    now: Timestamp,
) -> AntreaAgentInfo {
    use AgentConditionType::{
        AgentHealthy, ControllerConnectionUp, OpenflowConnectionUp, OvsdbConnectionUp,
    };
    let condition = |type_, up: bool, reason: &str, message: &str| {
        let condition = AgentCondition::new(type_, ConditionStatus::from(up), now);
        if up { condition } else { condition.because(reason, message) }
    };
    let environment = &options.environment;
    let pod_ref = environment
        .pod_name
        .as_deref()
        .map(|name| ObjectReference::pod(&environment.pod_namespace, name));
    let mut info = AntreaAgentInfo::named(&options.node_name);
    info.version = Some(antrea_runtime::VERSION.to_owned());
    info.pod_ref = pod_ref;
    info.node_ref = Some(ObjectReference::node(&options.node_name));
    info.node_subnets = facts.pod_cidrs.iter().map(ToString::to_string).collect();
    info.ovs_info = Some(OvsInfo {
        version: health.ovs_version.clone(),
        bridge_name: Some(options.config.ovs_bridge.clone()),
        flow_table: health.flow_table.clone(),
    });
    info.network_policy_controller_info = Some(NetworkPolicyControllerInfo {
        network_policy_num: count(health.policies.policies),
        address_group_num: count(health.policies.address_groups),
        applied_to_group_num: count(health.policies.applied_to_groups),
    });
    info.local_pod_num = i32::try_from(health.n_pods).unwrap_or(i32::MAX);
    info.agent_conditions = vec![
        condition(
            AgentHealthy,
            health.problems.is_none(),
            "NodeNotReady",
            health.problems.as_deref().unwrap_or_default(),
        ),
        condition(
            ControllerConnectionUp,
            health.controller_up,
            "NoConnection",
            "the API server does not answer",
        ),
        condition(
            OvsdbConnectionUp,
            health.ovsdb_up,
            "NoConnection",
            "ovsdb-server does not answer",
        ),
        condition(
            OpenflowConnectionUp,
            health.openflow_up,
            "NoConnection",
            "ovs-vswitchd does not answer",
        ),
    ];
    info.api_port = Some(options.config.api_port);
    info.api_ca_bundle = Some(ByteString(certificate.as_bytes().to_vec()));
    let mtu = |mtu: u32| i32::try_from(mtu).ok();
    info.network_info = Some(NetworkInfo {
        transport_interface: Some(facts.transport_interface.clone()),
        transport_interface_mtu: mtu(facts.transport_mtu),
        pod_mtu: mtu(facts.pod_mtu),
        transport_interface_ips: one_per_family(&facts.transport_ips),
    });
    info
}

fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

/// The CRD takes at most one address of each family.
fn one_per_family(ips: &[IpAddr]) -> Vec<String> {
    let first = |is_ipv4: bool| ips.iter().find(move |ip| ip.is_ipv4() == is_ipv4);
    first(true).into_iter().chain(first(false)).map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use antrea_config::{AgentConfig, Environment};

    use super::*;
    use crate::options::NodeListSource;

    fn mk_options() -> Options {
        Options {
            config: AgentConfig::default(),
            environment: Environment::from_map(&BTreeMap::from([(
                "POD_NAME".to_owned(),
                "antrea-agent-x".to_owned(),
            )])),
            node_name: "node-1".to_owned(),
            source: NodeListSource::Api,
            state_dir: PathBuf::new(),
            run_dir: PathBuf::new(),
            log_dir: PathBuf::new(),
        }
    }

    #[tokio::test]
    async fn an_agent_ends_while_the_server_keeps_it_waiting() {
        antrea_runtime::install_crypto();
        let dir = tempfile::tempdir().unwrap();
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: c}}}}]\n\
             users: [{{name: c, user: {{token: t}}}}]\n",
            server.local_addr().unwrap()
        );
        let path = dir.path().join("kubeconfig");
        std::fs::write(&path, kubeconfig).unwrap();
        let options = kube_io::ClientOptions::new("test", "v0");
        let client = Client::new(Some(&path), &options).await.unwrap();
        let (_interfaces_tx, interfaces) = watch::channel(Arc::default());
        let (_state_tx, bridge) = watch::channel(Arc::default());
        let (_problems_tx, problems) = watch::channel(BTreeMap::new());
        let socket = dir.path().join("db.sock");
        let reporter = InfoLoop {
            client,
            options: Arc::new(mk_options()),
            facts: NetworkFacts {
                transport_interface: "br-phy".into(),
                transport_mtu: 1500,
                transport_ips: vec![],
                pod_mtu: 1450,
                pod_cidrs: vec![],
            },
            interfaces,
            ovsdb: OvsdbSession::connect(switch::ovsdb_session::OvsdbConfig::new(socket)),
            bridge,
            api_up: Arc::default(),
            problems,
            certificate: String::new(),
            policies: watch::channel(Counts::default()).1,
        };
        let stop = CancellationToken::new();
        let running = tokio::spawn(reporter.run(stop.clone()));
        let soon = Duration::from_secs(20);
        // It takes the call, and is silent.
        let call = timeout(soon, server.accept()).await.unwrap();
        stop.cancel();
        timeout(soon, running).await.expect("it ends").unwrap();
        drop(call);
    }

    #[test]
    fn a_report_names_what_is_down_and_why() {
        let facts = NetworkFacts {
            transport_interface: "br-phy".into(),
            transport_mtu: 1500,
            transport_ips: vec![
                "172.30.0.1".parse().unwrap(),
                "172.30.0.9".parse().unwrap(),
                "fd00::1".parse().unwrap(),
            ],
            pod_mtu: 1450,
            pod_cidrs: vec!["10.10.1.0/24".parse().unwrap()],
        };
        let health = Health {
            n_pods: 3,
            ovs_version: Some("3.1.0".into()),
            ovsdb_up: true,
            openflow_up: false,
            controller_up: true,
            problems: Some("firewall: no nft".into()),
            flow_table: BTreeMap::from([("Output".to_owned(), 2)]),
            policies: Counts { policies: 4, ..Counts::default() },
        };
        let info = build(&mk_options(), &facts, &health, "PEM", Timestamp::UNIX_EPOCH);
        let shown: Vec<_> = info
            .agent_conditions
            .iter()
            .map(|condition| format!("{:?}={:?}", condition.type_, condition.status))
            .collect();
        assert_eq!(
            shown,
            [
                "AgentHealthy=False",
                "ControllerConnectionUp=True",
                "OvsdbConnectionUp=True",
                "OpenflowConnectionUp=False",
            ]
        );
        assert_eq!(info.agent_conditions[0].message.as_deref(), Some("firewall: no nft"));
        assert_eq!(info.agent_conditions[3].reason.as_deref(), Some("NoConnection"));
        let network = info.network_info.unwrap();
        assert_eq!(network.transport_interface_ips, ["172.30.0.1", "fd00::1"]);
        assert_eq!(info.pod_ref.unwrap().namespace.as_deref(), Some("kube-system"));
        assert_eq!(info.local_pod_num, 3);
        assert_eq!(info.network_policy_controller_info.unwrap().network_policy_num, 4);
    }
}
