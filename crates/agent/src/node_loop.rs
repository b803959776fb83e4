//! Follows the list of nodes: flows, routes, neighbours and firewall sets for each peer.
//!
//! Takes the whole list each time and is run again every minute, when the switch was away, and when
//! the kernel says that a link of ours changed: whatever somebody changed is put back.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use host::link::MacAddr;
use host::monitor::{Change, Monitor, Topics};
use host::neighbour;
use host::netfilter::{TableFamily, Watch};
use host::netlink::Rtnl;
use host::nft::node::{Masquerade, NodeRules};
use host::nft::service::ServiceRules;
use host::nft::{Feature, NftError};
use host::sysctl::{Family, Sysctl};
use host::uplink::Uplink;
use ipnet::IpNet;
use pipeline::fields::{HOST_MAC, VIRTUAL_MAC};
use pipeline::{Category, NodeConfig, PeerNode};
use services::HostWants;
use switch::bridge::{Bridge, BridgeState, Owner};
use switch::unixctl::UnixCtl;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::forwarding;
use crate::gateway::openflow_to_host;
use crate::health::NodeHealth;
use crate::netdev;
use crate::nodes::{ClusterNode, NodeList, chain};
use crate::own_node::OwnAddresses;
use crate::peers::{Op, Peer, Peers};
use crate::proxy;
use crate::proxy::setup::{NodePortChoice, on_switch};
use crate::upkeep::Upkeep;

const RESYNC: Duration = Duration::from_secs(60);
/// What nftables refused is tried again after this time, and each time after twice that.
const FIRST_RETRY: Duration = Duration::from_millis(500);
/// How often the mark of frames is tried at the start before the node goes on without.
const N_MARK_TRIES: u32 = 5;
/// Notifications of the kernel within this time are dealt with together.
const GATHER: Duration = Duration::from_millis(100);
/// What the health of the node says of addresses that cannot be listed.
const NODE_PORTS: &str = "addresses of NodePorts";
/// Owner of what this loop sets on the bridge.
pub const OWNER: Owner = Owner(Category::PodConnectivity.number());

/// What the loop works with.
pub struct NodeLoop {
    /// Who is a peer.
    pub peers: Peers,
    /// Where flows go.
    pub bridge: Bridge,
    /// This node, as the pipeline sees it.
    pub node: NodeConfig,
    /// The kernel of this node.
    pub rtnl: Rtnl,
    /// The node's links.
    pub upkeep: Upkeep,
    /// UDP port of the tunnel.
    pub tunnel_port: Option<u16>,
    /// How Pods reach the outside.
    pub masquerade: Masquerade,
    /// The transport interface, as it was at the start.
    pub uplink: Uplink,
    /// This node's own addresses, as they were at the start.
    pub own_addresses: OwnAddresses,
    /// Where outcomes are noted.
    pub health: NodeHealth,
    /// Whether frames that the node makes are told from those that it forwards.
    pub marks_host_frames: bool,
    /// Our nftables table as it was printed after it was last replaced.
    pub firewall: Option<String>,
    /// The same of the table that marks frames.
    pub frames: Option<String>,
    /// When nftables is tried again after a refusal.
    pub retry: Retry,
    /// Run directory of OVS, on the userspace datapath: tunnel neighbours are told to it.
    pub tunnel_neighbours: Option<PathBuf>,
    /// The way of the host's own and of outside traffic to Services (`proxyAll`); without it, what
    /// there is of it goes.
    pub services: Option<ToServices>,
}

/// The way of the host's own and of outside traffic to Services.
#[derive(Clone, Debug)]
pub struct ToServices {
    /// What there is to send to the switch; nothing is changed while it is not known.
    pub wants_rx: watch::Receiver<Option<Arc<HostWants>>>,
    /// Which addresses of this host serve NodePorts.
    pub choice: NodePortChoice,
    /// Those that do now.
    pub node_port_addresses: Vec<IpAddr>,
}

/// When what was refused is tried again: soon at first, then less often.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retry {
    n_refused: u32,
    at: Option<Instant>,
}

impl Retry {
    /// Notes how the last attempt ended.
    fn note(&mut self, succeeded: bool, now: Instant) {
        self.n_refused = if succeeded { 0 } else { self.n_refused.saturating_add(1) };
        let pause = FIRST_RETRY.saturating_mul(1 << self.n_refused.saturating_sub(1).min(16));
        self.at = (!succeeded).then(|| now + pause.min(RESYNC));
    }

    /// Waits until it is time; for ever where nothing was refused.
    async fn due(self) {
        match self.at {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }
}

impl ToServices {
    fn wants(&self) -> Option<Arc<HostWants>> {
        self.wants_rx.borrow().clone()
    }
}

impl NodeLoop {
    /// Takes one list: flows first, so that no route leads where nothing forwards.
    ///
    /// # Errors
    /// When this node's own Pod CIDRs or addresses are others now: everything on the node hangs on
    /// them, so the agent has to start again.
    pub async fn take(&mut self, nodes: &NodeList) -> Result<()> {
        let Some(nodes) = nodes else { return Ok(()) };
        let own = nodes.iter().find(|node| node.name == self.peers.own_name());
        if let Some(changed) = own.and_then(|own| self.own_change(own)) {
            bail!("{changed}: the agent starts again");
        }
        for op in self.peers.step(nodes) {
            match op {
                Op::Set(peer) => {
                    tracing::info!(peer = peer.name, transport = %peer.transport, "peer node");
                    let flows = pipeline::connectivity::peer_flows(&self.node, &as_node(&peer));
                    self.bridge.set(OWNER, &key(&peer), flows);
                }
                Op::Remove(peer) => {
                    tracing::info!(peer = peer.name, "peer node gone");
                    self.bridge.remove(OWNER, &key(&peer));
                }
                Op::Skip { name, reason } => tracing::warn!(node = name, "not used: {reason}"),
            }
        }
        self.resync().await;
        Ok(())
    }

    /// Says what of this node's own entry makes it another node than the agent came up as.
    fn own_change(&self, own: &ClusterNode) -> Option<String> {
        pod_cidrs_change(&self.node.pod_cidrs, &own.pod_cidrs).or_else(|| {
            if own.addresses.is_empty() {
                return None; // For a while: nothing is said.
            }
            let now = OwnAddresses::of(&self.uplink, &own.addresses)?;
            self.own_addresses.change_to(&now)
        })
    }

    /// Brings the kernel to what the node and the peers in force need.
    pub async fn resync(&mut self) {
        self.mend().await;
        self.follow_node_ports().await;
        self.upkeep.forward().await;
        let peers: Vec<Peer> = self.peers.installed().cloned().collect();
        self.sync_firewall(&peers).await;
        if let Some(run_dir) = &self.tunnel_neighbours
            && let Err(error) = self.teach_tunnel_neighbours(run_dir, &peers).await
        {
            tracing::warn!("tunnel neighbours: {error:#}");
        }
    }

    /// Makes frames that the node itself sends to its Pods known to the switch. Says whether they
    /// are.
    pub async fn mark_host_frames(&mut self) -> bool {
        let mut marked = self.apply_host_frames().await;
        for n in 1..N_MARK_TRIES {
            match &marked {
                Err(error) if error.may_pass() => {
                    tracing::warn!("mark of the node's frames: {}: tried again", chain(error));
                    tokio::time::sleep(FIRST_RETRY * n).await;
                    marked = self.apply_host_frames().await;
                }
                _ => break,
            }
        }
        if let Err(error) = &marked {
            tracing::warn!(
                "the node's own packets are known by their address only, as are those that it \
                 forwards and masquerades (the mark needs Linux 5.16): {}",
                chain(error)
            );
        }
        self.marks_host_frames = marked.is_ok();
        self.marks_host_frames
    }

    async fn apply_host_frames(&mut self) -> Result<(), NftError> {
        let gateway = &self.upkeep.gateway.name;
        let applied = host::nft::host_frames::apply(gateway, openflow_to_host(HOST_MAC)).await;
        // What cannot be read is replaced at the next change.
        self.frames = host::nft::host_frames::list().await.unwrap_or_default();
        applied
    }

    /// Puts back what makes them known, where something does.
    async fn keep_host_frames(&mut self) {
        if self.marks_host_frames {
            let marked = self.apply_host_frames().await;
            self.health.note("mark of the node's frames", marked.map_err(Into::into));
        }
    }

    /// The same when it is not what was last put there.
    async fn mend_host_frames(&mut self) {
        if !self.marks_host_frames {
            return;
        }
        let found = host::nft::host_frames::list().await;
        if found.is_ok_and(|found| found.is_some() && found == self.frames) {
            return; // Another's change, or our own.
        }
        tracing::warn!("table netdev antrea-host was changed by somebody: put back");
        self.keep_host_frames().await;
    }

    /// Puts the node's links right, and the routes that hang on them.
    async fn mend(&mut self) {
        self.health.note("links of the node", self.upkeep.mend().await);
        // The rule goes with the gateway.
        self.keep_host_frames().await;
        let peers: Vec<Peer> = self.peers.installed().cloned().collect();
        self.health.note("routes to other nodes", self.sync_kernel(&peers).await);
        self.health.note("routes to Services", self.sync_service_routes().await);
    }

    /// Runs until cancelled.
    ///
    /// # Errors
    /// See [`NodeLoop::take`].
    pub async fn run(
        mut self,
        mut nodes_rx: watch::Receiver<NodeList>,
        stop: CancellationToken,
    ) -> Result<()> {
        let mut tick = tokio::time::interval(RESYNC);
        tick.tick().await;
        let mut services_rx = self.services.as_ref().map(|services| services.wants_rx.clone());
        services_rx.iter_mut().for_each(watch::Receiver::mark_changed);
        let mut state = self.bridge.state();
        let mut n_connections = state.borrow().n_connections;
        let topics = Topics::LINKS | Topics::ADDRESSES | Topics::ROUTES;
        let monitor = Monitor::open_in(self.rtnl.netns(), topics).context("follow links")?;
        let mut monitor = monitor.into_async().context("follow links")?;
        let watch = |family| Watch::open_in(self.rtnl.netns(), family);
        let mut firewall = watch(TableFamily::Inet).context("follow nftables")?;
        let mut frames = watch(TableFamily::Netdev).context("follow nftables")?;
        // What came since the start was told to nobody.
        self.follow_node_ports().await;
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                // A switch that was away has forgotten its tunnel neighbours.
                () = reconnected(&mut state, &mut n_connections) => self.resync().await,
                changes = monitor.next() => {
                    let changes = changes.context("follow links")?;
                    let ours = changes.iter().any(|change| self.upkeep.concerns(change));
                    let addresses = changes.iter().any(tells_addresses);
                    if ours || addresses {
                        // What belongs together comes in several notifications, and our own
                        // changes cause more.
                        tokio::time::sleep(GATHER).await;
                    }
                    if ours {
                        self.mend().await;
                    }
                    if addresses {
                        self.follow_node_ports().await;
                    }
                }
                changed = firewall.changed() => {
                    changed.context("follow nftables")?;
                    tokio::time::sleep(GATHER).await;
                    self.mend_firewall().await;
                }
                changed = frames.changed() => {
                    changed.context("follow nftables")?;
                    tokio::time::sleep(GATHER).await;
                    self.mend_host_frames().await;
                }
                () = self.retry.due() => {
                    let peers: Vec<Peer> = self.peers.installed().cloned().collect();
                    self.sync_firewall(&peers).await;
                }
                changed = nodes_rx.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    let nodes = nodes_rx.borrow_and_update().clone();
                    self.take(&nodes).await?;
                }
                () = services_changed(&mut services_rx) => {
                    self.health.note("routes to Services", self.sync_service_routes().await);
                    let peers: Vec<Peer> = self.peers.installed().cloned().collect();
                    self.sync_firewall(&peers).await;
                }
                _ = tick.tick() => self.resync().await,
            }
        }
    }

    async fn sync_kernel(&self, peers: &[Peer]) -> Result<()> {
        let (peers, index) = (peers.to_vec(), self.upkeep.gateway_index);
        let virtual_mac = openflow_to_host(VIRTUAL_MAC);
        let changes = self
            .rtnl
            .call(move |rtnl| forwarding::sync(rtnl, &peers, index, virtual_mac))
            .await??;
        if !changes.is_empty() {
            tracing::debug!(?changes, "kernel routes brought up to date");
        }
        Ok(())
    }

    /// Routes to Services, and what the kernel needs to use them.
    async fn sync_service_routes(&self) -> Result<()> {
        let wants = match &self.services {
            None => None,
            Some(services) => match self.wants(services) {
                None => return Ok(()),
                wants => wants,
            },
        };
        if self.node.families.has_v4() {
            // Connections of loopback to node ports leave by the gateway; others have no business there.
            let value = if wants.is_some() { "1" } else { "0" };
            Sysctl::conf(Family::Ipv4, &self.upkeep.gateway.name, "route_localnet")
                .set(value)
                .context("let loopback reach node ports")?;
        }
        let (families, index) = (self.node.families, self.upkeep.gateway_index);
        let mac = openflow_to_host(VIRTUAL_MAC);
        let wanted = proxy::host::routes(wants.as_ref(), families, index, mac);
        let changes = self.rtnl.call(move |rtnl| host::service::sync(rtnl, &wanted)).await??;
        if !changes.is_empty() {
            tracing::debug!(?changes, "routes to Services brought up to date");
        }
        Ok(())
    }

    /// What Services want of the host, as far as it leaves nodes' addresses alone.
    fn wants(&self, services: &ToServices) -> Option<HostWants> {
        let mut nodes: BTreeSet<IpAddr> = self.own_addresses.node_ips.clone();
        nodes.insert(self.own_addresses.transport);
        nodes.extend(&self.node.gateway.ips);
        for peer in self.peers.installed() {
            nodes.insert(peer.transport);
            nodes.extend(peer.gateways());
        }
        Some(proxy::host::without_nodes(&*services.wants()?, &nodes))
    }

    /// What the firewall needs for Services; nothing while they are not known.
    fn service_rules(&self) -> Option<Feature> {
        let services = self.services.as_ref()?;
        let gateway = &self.upkeep.gateway.name;
        let addresses = &services.node_port_addresses;
        let wants = self.wants(services)?;
        Some(proxy::host::rules(&wants, self.node.families, gateway, addresses).feature())
    }

    /// Serves NodePorts at the addresses that the host has now.
    async fn follow_node_ports(&mut self) {
        let Some(services) = &mut self.services else { return };
        let choice = services.choice.clone();
        let found = self.rtnl.call(move |rtnl| choice.list(rtnl)).await;
        let found = match found.map_err(Into::into).flatten() {
            Ok(found) => found,
            Err(error) => return self.health.note::<()>(NODE_PORTS, Err(error)),
        };
        self.health.note(NODE_PORTS, Ok(()));
        if services.node_port_addresses == found {
            return;
        }
        tracing::info!(addresses = ?found, "NodePorts are served at other addresses");
        if let Some(config) = &mut self.node.services {
            config.node_port_addresses = on_switch(&found);
        }
        services.node_port_addresses = found;
        let flows = pipeline::connectivity::node_flows(&self.node);
        self.bridge.set(OWNER, "node", flows);
        self.bridge.set(proxy::OWNER, "node", pipeline::service::node_flows(&self.node));
        let peers: Vec<Peer> = self.peers.installed().cloned().collect();
        self.sync_firewall(&peers).await;
    }

    /// Replaces our table when it is not what was last put there.
    async fn mend_firewall(&mut self) {
        if host::nft::list().await.is_ok_and(|found| found.is_some() && found == self.firewall) {
            return; // Another's change, or our own.
        }
        tracing::warn!("table inet antrea was changed by somebody: put back");
        let peers: Vec<Peer> = self.peers.installed().cloned().collect();
        self.sync_firewall(&peers).await;
    }

    async fn sync_firewall(&mut self, peers: &[Peer]) {
        let local: Vec<IpNet> = self.node.pod_cidrs.clone();
        let all = local.iter().chain(peers.iter().flat_map(|peer| &peer.pod_cidrs));
        let rules = NodeRules {
            gateway: self.upkeep.gateway.name.clone(),
            cluster_pod_cidrs: all.copied().collect(),
            local_pod_cidrs: local,
            tunnel_port: self.tunnel_port,
            masquerade: self.masquerade,
        };
        let features: Vec<Feature> =
            std::iter::once(rules.feature()).chain(self.service_rules()).collect();
        let mut applied = host::nft::apply(&features).await;
        if self.services.is_none() && self.firewall.is_none() {
            // What an agent with `proxyAll` left.
            let nothing = ServiceRules::nothing(&self.upkeep.gateway.name).feature();
            applied = applied.and(host::nft::remove(&[nothing]).await);
        }
        // What cannot be read is replaced at the next change.
        self.firewall = host::nft::list().await.unwrap_or_default();
        self.retry.note(applied.is_ok(), Instant::now());
        let what = match &applied {
            Err(error) if !error.may_pass() => {
                "replace table inet antrea, which needs Linux 5.2 and nft 1.0 or later"
            }
            _ => "replace table inet antrea",
        };
        self.health.note("firewall", applied.context(what));
        self.keep_host_frames().await;
    }

    /// The first packet to a tunnel peer whose MAC OVS does not know is lost: find the MACs by the
    /// kernel, which asks for them, and tell OVS.
    async fn teach_tunnel_neighbours(
        &self,
        run_dir: &std::path::Path,
        peers: &[Peer],
    ) -> Result<()> {
        let wanted: Arc<[IpAddr]> = peers.iter().map(|peer| peer.transport).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let ctl = UnixCtl::find(run_dir)?;
        let asked = wanted.clone();
        let found: Vec<(IpAddr, MacAddr)> = self
            .rtnl
            .call(move |rtnl| -> Result<_> {
                let bridge = host::link::get_by_name(rtnl, netdev::BRIDGE)?;
                Ok(neighbour::resolve(rtnl, bridge.index, &asked, Duration::from_secs(2))?)
            })
            .await??;
        for (ip, mac) in found {
            let mac = openflow::MacAddr(mac.0);
            if let Err(error) = ctl.tnl_arp_set(netdev::BRIDGE, ip, mac).await {
                tracing::warn!(%ip, "tunnel neighbour not told: {}", crate::nodes::chain(&error));
            }
        }
        Ok(())
    }
}

/// Says whether the Pod CIDRs are others `now`; a list that is empty for a while says nothing. For the
/// first ones `early` waits. Pure.
fn pod_cidrs_change(before: &[IpNet], now: &[IpNet]) -> Option<String> {
    (!before.is_empty() && !now.is_empty() && now != before)
        .then(|| format!("the Pod CIDRs of this node changed from {before:?} to {now:?}"))
}

/// Whether a notification may mean that the host has other addresses. Pure.
fn tells_addresses(change: &Change) -> bool {
    matches!(
        change,
        Change::AddressSet(_) | Change::AddressGone(_) | Change::LinkGone(_) | Change::Lost
    )
}

/// Waits until other Services are there, if they are followed.
async fn services_changed(wants_rx: &mut Option<watch::Receiver<Option<Arc<HostWants>>>>) {
    let changed = match wants_rx {
        Some(wants_rx) => wants_rx.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Waits until there is a connection to the switch that is not the one known, and notes it.
async fn reconnected(state: &mut watch::Receiver<Arc<BridgeState>>, known: &mut u64) {
    let new = |state: &Arc<BridgeState>| state.connected && state.n_connections != *known;
    match state.wait_for(new).await.map(|state| state.n_connections) {
        Ok(n_connections) => *known = n_connections,
        Err(_) => std::future::pending().await,
    }
}

fn key(peer: &Peer) -> String {
    format!("peer/{}", peer.name)
}

fn as_node(peer: &Peer) -> PeerNode {
    PeerNode {
        name: peer.name.clone(),
        pod_cidrs: peer.pod_cidrs.clone(),
        gateway_ips: peer.gateways().collect(),
        node_ip: peer.transport,
        other_ips: peer.other_ips.clone(),
    }
}

#[cfg(test)]
mod live;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_pod_cidr_is_a_change_and_none_for_a_while_is_not() {
        let cidrs = |text: &str| -> Vec<IpNet> { text.parse().into_iter().collect() };
        let before = cidrs("10.1.0.0/24");
        assert_eq!(pod_cidrs_change(&before, &before), None);
        assert_eq!(pod_cidrs_change(&before, &[]), None);
        assert_eq!(pod_cidrs_change(&[], &before), None);
        let change = pod_cidrs_change(&before, &cidrs("10.2.0.0/24")).unwrap();
        assert!(change.starts_with("the Pod CIDRs of this node changed from"), "{change}");
    }

    #[test]
    fn what_is_refused_is_tried_again_ever_less_often() {
        let now = Instant::now();
        let mut retry = Retry::default();
        let mut pauses = Vec::new();
        for _ in 0..9 {
            retry.note(false, now);
            pauses.push((retry.at.unwrap() - now).as_millis());
        }
        assert_eq!(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        retry.note(true, now);
        assert_eq!(retry.at, None);
        retry.note(false, now);
        assert_eq!(retry.at, Some(now + FIRST_RETRY));
    }

    #[tokio::test]
    async fn a_switch_that_came_back_while_nobody_looked_is_noticed() {
        let mk = |connected, n_connections| {
            Arc::new(BridgeState { connected, n_connections, ..BridgeState::default() })
        };
        let (state_tx, mut state) = watch::channel(mk(true, 1));
        let mut known = 1;
        let within = Duration::from_millis(50);
        let none = tokio::time::timeout(within, reconnected(&mut state, &mut known)).await;
        assert!(none.is_err(), "the same connection");
        state_tx.send_replace(mk(false, 1));
        state_tx.send_replace(mk(true, 2));
        reconnected(&mut state, &mut known).await;
        assert_eq!(known, 2);
        state_tx.send_replace(mk(false, 2));
        let none = tokio::time::timeout(within, reconnected(&mut state, &mut known)).await;
        assert!(none.is_err(), "not there again yet");
    }
}
