//! The loop around the state machine: takes in what changed, carries out what follows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use apis::controlplane::ObjectName;
use apis::service::ServiceName;
use ipnet::IpNet;
use kube_io::Client;
use openflow::{GroupId, Intent};
use pipeline::NodeConfig;
use pipeline::service::{Endpoint, endpoint_flows, frontend_flows, group};
use services::{Changes, Config, Event, HostWants, PortPlan, Presence, Proxy, Stale};
use switch::bridge::{self, Bridge};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::counts::{Counter, Counts};
use super::health::{self, HealthChecks};
use super::known::{Known, Remembered};
use super::stale::Forget;
use super::{OWNER, feed, packets};
use crate::nodes::NodeList;
use crate::policy::{ServiceEvent, TellPolicies};

/// Events that are taken in together.
const BATCH: usize = 512;
/// How long the API server is waited for before what was known last is taken.
const API_PATIENCE: Duration = Duration::from_secs(5);
/// Changes within this time are kept on disk together.
const SAVE_AFTER: Duration = Duration::from_secs(10);
/// Durations that are kept for whoever reads metrics.
const N_TIMES: usize = 1024;

/// Tells what the host is to do; nothing while Services are not known.
pub(crate) type HostWantsTx = watch::Sender<Option<Arc<HostWants>>>;

/// What the loop works with.
pub(crate) struct ProxyLoop {
    /// The API server.
    pub(crate) client: Client,
    /// Which proxy this is; may be empty.
    pub(crate) proxy_name: String,
    /// Where what is known is kept.
    pub(crate) state_dir: PathBuf,
    /// Where flows go.
    pub(crate) bridge: Bridge,
    /// This node, as the pipeline sees it.
    pub(crate) network: NodeConfig,
    /// What does not change.
    pub(crate) config: Config,
    /// The nodes of the cluster.
    pub(crate) nodes_rx: watch::Receiver<NodeList>,
    /// Where connections to what is gone are; none leaves them.
    pub(crate) forget: Option<Forget>,
    /// Where is said whether the proxy works.
    pub(crate) health_address: Option<SocketAddr>,
    /// Whether load balancers are answered.
    pub(crate) answers_health_checks: bool,
    /// Where counts are shown.
    pub(crate) counts_tx: watch::Sender<Counts>,
    /// Where is shown what the host is to do.
    pub(crate) host_tx: HostWantsTx,
    /// Who has to know groups before there are flows to them.
    pub(crate) policies: TellPolicies,
}

/// What waits for flows to be on the switch.
struct After {
    since: Instant,
    stale: BTreeSet<Stale>,
}

/// The loop's state.
struct Running {
    proxy: Proxy,
    config: Config,
    /// What was known before the start, until all is known anew.
    before: Option<[Event; 2]>,
    /// What the list of nodes says.
    node_events: Vec<Event>,
    bridge: Bridge,
    network: NodeConfig,
    counter: Counter,
    /// None answers nobody.
    health_checks: Option<HealthChecks>,
    counts_tx: watch::Sender<Counts>,
    host_tx: HostWantsTx,
    policies: TellPolicies,
    /// The groups of Services, as policies were told.
    told: BTreeMap<ServiceName, Vec<GroupId>>,
    after_tx: mpsc::UnboundedSender<After>,
    synced_tx: watch::Sender<bool>,
}

impl ProxyLoop {
    /// Runs until cancelled.
    ///
    /// # Errors
    /// None for now; a failure would end the agent.
    pub(crate) async fn run(self, stop: CancellationToken) -> Result<()> {
        self.follow(stop).await;
        Ok(())
    }

    async fn follow(mut self, stop: CancellationToken) {
        // They end with the loop.
        let mut tasks = JoinSet::new();
        let mut events_rx = feed::start(&self.client, &self.proxy_name, &mut tasks);
        tasks.spawn(packets::answer(self.bridge.clone(), self.network.clone()));
        let (after_tx, after_rx) = mpsc::unbounded_channel();
        let carry_on = carry_on(self.bridge.clone(), self.forget, after_rx, self.counts_tx.clone());
        tasks.spawn(carry_on);
        let node = self.config.node.clone();
        let synced_tx = watch::Sender::new(false);
        if let Some(address) = self.health_address {
            tasks.spawn(health::serve_proxy(address, synced_tx.subscribe()));
        }
        let known = Known::new(&self.state_dir);
        let mut proxy = Proxy::new(self.config.clone());
        let before = known.load().map(|Remembered { events, numbers }| {
            proxy.keep_numbers(numbers);
            events
        });
        let mut running = Running {
            proxy,
            config: self.config,
            before,
            node_events: Vec::new(),
            bridge: self.bridge,
            network: self.network,
            counter: Counter::default(),
            health_checks: self.answers_health_checks.then(HealthChecks::default),
            counts_tx: self.counts_tx,
            host_tx: self.host_tx,
            policies: self.policies,
            told: BTreeMap::new(),
            after_tx,
            synced_tx,
        };
        self.nodes_rx.mark_changed();
        let mut save_at = None;
        let mut load_at = Some(Instant::now() + API_PATIENCE);
        let mut events = Vec::new();
        // Services and slices that the API server told.
        let mut listed = (false, false);
        loop {
            tokio::select! {
                // First: servers are placed by it.
                biased;
                Ok(()) = self.nodes_rx.changed() => {
                    let nodes = self.nodes_rx.borrow_and_update().clone();
                    running.node_events = node_events(&nodes, &node);
                    running.step(running.node_events.clone()).await;
                }
                n = events_rx.recv_many(&mut events, BATCH) => {
                    if n == 0 {
                        return;
                    }
                    listed.0 |= events.iter().any(|event| matches!(event, Event::Services(_)));
                    listed.1 |= events.iter().any(|event| matches!(event, Event::Slices(_)));
                    running.step(std::mem::take(&mut events)).await;
                    if *running.synced_tx.borrow() {
                        load_at = None;
                        save_at.get_or_insert(Instant::now() + SAVE_AFTER);
                    }
                }
                () = at(load_at) => {
                    load_at = None;
                    if let Some(events) = running.before.clone() {
                        tracing::warn!("no API server answers: the last known Services are served");
                        // What was listed meanwhile is newer.
                        let is_wanted = |event: &Event| match event {
                            Event::Services(_) => !listed.0,
                            _ => !listed.1,
                        };
                        running.step(events.into_iter().filter(is_wanted).collect()).await;
                    }
                }
                () = at(save_at) => {
                    save_at = None;
                    known.save(&running.proxy).await;
                }
                () = stop.cancelled() => {
                    if save_at.is_some() {
                        known.save(&running.proxy).await;
                    }
                    return;
                }
            }
        }
    }
}

/// Sleeps until then; for ever without a time.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// What the list of nodes says of this node and of where Pods are. Pure.
fn node_events(nodes: &NodeList, own_name: &str) -> Vec<Event> {
    let Some(nodes) = nodes else { return Vec::new() };
    let (own, others): (Vec<_>, Vec<_>) = nodes.iter().partition(|node| node.name == own_name);
    let cidrs = |of: &[&crate::nodes::ClusterNode]| -> Vec<IpNet> {
        of.iter().flat_map(|node| node.pod_cidrs.iter().copied()).collect()
    };
    let zone = own.first().and_then(|node| node.zone.as_deref()).map(Arc::from);
    vec![Event::Zone(zone), Event::PodCidrs { ours: cidrs(&own), others: cidrs(&others) }]
}

impl Running {
    /// UDP connections that are where they should not be since the agent was here last.
    fn stale_since_then(&mut self) -> BTreeSet<Stale> {
        let Some(events) = self.before.take() else { return BTreeSet::new() };
        let mut before = Proxy::new(self.config.clone());
        before.step(self.node_events.iter().cloned().chain(events));
        self.proxy.stale_since(&before)
    }

    async fn step(&mut self, events: Vec<Event>) {
        let since = Instant::now();
        let changes = self.proxy.step(events);
        self.tell_policies(&changes).await;
        for (port, address) in &changes.conflicts {
            tracing::warn!(%port, ?address, "another Service has this address and port: not served");
        }
        self.counter.take(&changes);
        let families = self.counter.families;
        self.counts_tx.send_modify(|counts| [counts.v4, counts.v6] = families);
        let Changes { ports, endpoints, mut stale, health, host, .. } = changes;
        let is_new = self.proxy.is_synced() && !*self.synced_tx.borrow();
        if is_new {
            stale.extend(self.stale_since_then());
        }
        if !ports.is_empty() || !endpoints.is_empty() || !stale.is_empty() {
            let network = &self.network;
            let mut flows = bridge::Changes::of(OWNER);
            for (endpoint, presence) in &endpoints {
                let wanted = match presence {
                    Presence::There => endpoint_flows(network, endpoint),
                    Presence::Gone => Vec::new(),
                };
                flows.set(&endpoint_key(endpoint), wanted);
            }
            for (key, plan) in &ports {
                flows.set(&key.to_string(), intents(network, plan));
            }
            self.bridge.change(flows);
            // Fails only when the task has ended, and the loop with it.
            let _ = self.after_tx.send(After { since, stale });
        }
        if let Some(checks) = &mut self.health_checks {
            health.into_iter().for_each(|(name, check)| checks.set(name, check));
        }
        if host || is_new {
            self.host_tx.send_replace(Some(Arc::new(self.proxy.host())));
        }
        if is_new {
            self.synced_tx.send_replace(true);
            self.bridge.synced(OWNER);
            let n_ports = self.proxy.ports().count();
            tracing::info!(n_ports, n_endpoints = self.proxy.endpoints().count(), "Services");
        }
    }

    /// Tells policies which groups Services have from now on, before any flow leads to them.
    async fn tell_policies(&mut self, changes: &Changes) {
        let touched: BTreeSet<&ServiceName> =
            changes.ports.iter().map(|(key, _)| &key.service).collect();
        let mut differ = Vec::new();
        for service in touched {
            let groups = self.proxy.groups(service);
            let known = self.told.get(service).map(Vec::as_slice).unwrap_or_default();
            if known == groups {
                continue;
            }
            let name = ObjectName {
                namespace: (*service.namespace).to_owned(),
                name: (*service.name).to_owned(),
            };
            differ.push((name, groups.clone()));
            match groups.is_empty() {
                true => drop(self.told.remove(service)),
                false => drop(self.told.insert(service.clone(), groups)),
            }
        }
        let is_first = self.proxy.is_synced() && !*self.synced_tx.borrow();
        if is_first {
            self.policies.tell(ServiceEvent::All(differ)).await;
        } else if !differ.is_empty() {
            self.policies.tell(ServiceEvent::Changed(differ)).await;
        }
    }
}

/// No namespace begins so.
fn endpoint_key(endpoint: &Endpoint) -> String {
    let Endpoint { ip, port, protocol, place } = endpoint;
    format!("/{ip}:{port}/{protocol:?}/{place:?}")
}

/// Everything that a port wants on the switch.
fn intents(network: &NodeConfig, plan: &PortPlan) -> Vec<Intent> {
    let groups = plan.groups.iter().flat_map(group);
    let frontends = plan.frontends.iter();
    groups.chain(frontends.flat_map(|frontend| frontend_flows(network, frontend))).collect()
}

/// Waits for flows, and then forgets what leads elsewhere.
async fn carry_on(
    bridge: Bridge,
    forget: Option<Forget>,
    mut after_rx: mpsc::UnboundedReceiver<After>,
    counts_tx: watch::Sender<Counts>,
) {
    let mut batch = Vec::new();
    while after_rx.recv_many(&mut batch, BATCH).await > 0 {
        // What is refused shows in the bridge's state.
        let _ = bridge.barrier().await;
        let mut stale = BTreeSet::new();
        let mut took = Vec::new();
        for after in batch.drain(..) {
            stale.extend(after.stale);
            took.push(after.since.elapsed());
        }
        counts_tx.send_modify(|counts| {
            counts.took.truncate(N_TIMES);
            counts.took.extend(took);
        });
        if let Some(forget) = &forget
            && !stale.is_empty()
            && let Err(error) = forget.forget(&stale).await
        {
            tracing::warn!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::ClusterNode;

    #[test]
    fn the_list_of_nodes_says_where_pods_are() {
        let mk = |name: &str, cidr: &str, zone: Option<&str>| ClusterNode {
            name: name.into(),
            pod_cidrs: vec![cidr.parse().unwrap()],
            addresses: Vec::new(),
            zone: zone.map(str::to_owned),
        };
        let list = vec![mk("near", "10.1.1.0/24", None), mk("us", "10.1.0.0/24", Some("east"))];
        let events = node_events(&Some(Arc::new(list)), "us");
        let [Event::Zone(Some(zone)), Event::PodCidrs { ours, others }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(&**zone, "east");
        assert_eq!(
            (ours[0].to_string(), others[0].to_string()),
            ("10.1.0.0/24".into(), "10.1.1.0/24".into())
        );
        assert!(node_events(&None, "us").is_empty(), "nothing is known yet");
    }
}
