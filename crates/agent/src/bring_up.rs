//! Makes the node's network: datapath, uplink, bridge, gateway, and what is on them whatever Pods
//! there are.
//!
//! Each step may be repeated and changes nothing that is already right. It is gone through twice on a
//! node that serves Services before it has a Pod CIDR (`early`): without Pod addresses, then with
//! them.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use host::netfilter::NetfilterError;
use host::netlink::Rtnl;
use host::nft::node::Masquerade;
use host::uplink::{self, Transport, Uplink};
use ipnet::IpNet;
use pipeline::policy::{HostMark, PolicyConfig};
use pipeline::{Families, NodeConfig, Tunnel, TunnelKind};
use switch::bridge::{Bridge, BridgeConfig, Owner, SyncMode};
use switch::ovsdb_session::OvsdbSession;
use tokio::sync::watch;

use crate::datapath::{self, Datapath, Facts};
use crate::gateway::{self, Gateway, GatewayFacts, LayoutFound};
use crate::health::NodeHealth;
use crate::mtu::{self, Encryption};
use crate::node_loop::{self, NodeLoop, Retry, ToServices};
use crate::nodes::{ClusterNode, NodeList};
use crate::options::Options;
use crate::own_node::{OwnAddresses, UplinkBy, nowhere};
use crate::peers::Peers;
use crate::proxy::setup::NodePortChoice;
use crate::proxy::{self, setup};
use crate::upkeep::{KeptUplink, Upkeep};
use crate::{netdev, policy};

/// Owner of the flows that belong to no feature.
pub(crate) const FRAMEWORK: Owner = Owner(pipeline::Category::Framework.number());
/// Controller id of the connection for packets.
const CONTROLLER_ID: u16 = 1;
const OVSDB_PATIENCE: Duration = Duration::from_secs(60);
/// How often what netfilter refuses is tried before the agent gives up, which starts it again.
const N_TRIES: u32 = 30;
/// Pause between two of them.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What is known before the node's own entry in the list of nodes is.
pub(crate) struct Ground {
    datapath: Datapath,
    /// The link in `br-phy`, on the userspace datapath.
    marked_uplink: Option<String>,
    /// How the transport interface is found.
    pub(crate) by: UplinkBy,
}

/// What the node's network is, once known.
pub(crate) struct NodeNetwork {
    pub(crate) datapath: Datapath,
    /// The link in `br-phy`, on the userspace datapath.
    pub(crate) marked_uplink: Option<String>,
    pub(crate) uplink: Uplink,
    /// When that was read.
    uplink_seen: Instant,
    own_addresses: OwnAddresses,
    pub(crate) pod_mtu: u32,
    pub(crate) gateway: Gateway,
    pub(crate) node: NodeConfig,
    /// Which addresses serve NodePorts, and those that do at first; with `proxyAll`.
    node_ports: Option<(NodePortChoice, Vec<IpAddr>)>,
    pub(crate) layout: LayoutFound,
}

/// Waits for Open vSwitch and chooses the datapath.
///
/// # Errors
/// When it does not run, is too old, or has no datapath that can be used.
pub(crate) async fn ground(options: &Options, ovsdb: &OvsdbSession) -> Result<Ground> {
    let config = &options.config;
    ovsdb.wait_connected(OVSDB_PATIENCE).await.with_context(|| {
        format!(
            "connect to ovsdb-server at {}; is Open vSwitch running on this node?",
            config.ovs_run_dir.join("db.sock").display()
        )
    })?;
    check_version(ovsdb)?;
    let facts = Facts {
        kernel_module: kernel_module(ovsdb),
        marked_uplink: ovsdb.external_ids().get(netdev::UPLINK_MARK).cloned(),
    };
    let datapath = datapath::choose(config.datapath_type, &facts)?;
    let marked_uplink = facts.marked_uplink.filter(|_| datapath == Datapath::Netdev);
    let by = UplinkBy::of(config, marked_uplink.as_ref());
    Ok(Ground { datapath, marked_uplink, by })
}

/// Everything that has to be there before the first flow. Without Pod CIDRs the gateway gets no
/// address, and one that it has stays. What netfilter refuses is tried again for a while.
///
/// # Errors
/// When a part of it cannot be made.
pub(crate) async fn bring_up(
    options: &Options,
    ovsdb: &OvsdbSession,
    ground: &Ground,
    own: &ClusterNode,
) -> Result<NodeNetwork> {
    let mut n_tries = 0;
    loop {
        n_tries += 1;
        match make(options, ovsdb, ground, own).await {
            Err(error) if n_tries < N_TRIES && is_of_netfilter(&error) => {
                tracing::error!("{error:#}: tried again");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            made => return made,
        }
    }
}

/// Others hold chains and tables for a moment, and the kernel refuses what meets that. Pure.
fn is_of_netfilter(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<NetfilterError>())
}

async fn make(
    options: &Options,
    ovsdb: &OvsdbSession,
    ground: &Ground,
    own: &ClusterNode,
) -> Result<NodeNetwork> {
    let config = &options.config;
    let Ground { datapath, marked_uplink, by } = ground;
    let datapath = *datapath;
    let rtnl = Rtnl::open().context("open netlink")?;
    let uplink = match by {
        UplinkBy::Mark(name) => {
            netdev::ensure_null_bridge(&rtnl)?;
            netdev::prepare(ovsdb, &rtnl, name).await?
        }
        UplinkBy::Config(transport) => find_transport(&rtnl, transport)?,
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
    let (tunnel, checksum) = (Some(config.tunnel_type), config.tunnel_csum);
    let overhead = mtu::overhead(tunnel, checksum, Encryption::None, transport);
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
    let families = families(own, transport);
    let facts = GatewayFacts { pod_cidrs: &own.pod_cidrs, families, transport, mtu: pod_mtu };
    let gateway = gateway::ensure_gateway(ovsdb, &rtnl, config, &facts).await?;
    let node_ports = match setup::is_for_all(options) {
        true => {
            let among = config.proxy.node_port_addresses.clone();
            let choice = NodePortChoice { among, families };
            let addresses = choice.list(&rtnl)?;
            Some((choice, addresses))
        }
        false => None,
    };
    let node = NodeConfig {
        families,
        gateway: pipeline::Gateway {
            ofport: gateway.ofport,
            mac: openflow::MacAddr(gateway.link.mac.0),
            ips: gateway.link.addresses.iter().map(IpNet::addr).collect(),
        },
        tunnel: Some(Tunnel {
            ofport: tunnel,
            kind: tunnel_kind(config.tunnel_type),
            port: config.effective_tunnel_port().unwrap_or(0),
        }),
        pod_cidrs: own.pod_cidrs.clone(),
        node_ips: own_addresses.node_ips.iter().copied().collect(),
        services: setup::is_served(options).then(|| {
            let addresses = node_ports.as_ref().map(|(_, addresses)| addresses.as_slice());
            let rate = packet_in_rate(options);
            setup::service_config(options, datapath, addresses, CONTROLLER_ID, rate)
        }),
    };
    Ok(NodeNetwork {
        datapath,
        marked_uplink: marked_uplink.clone(),
        uplink,
        uplink_seen,
        own_addresses,
        pod_mtu,
        gateway,
        node,
        node_ports,
        layout,
    })
}

/// The families of Pods; before there are any, those of the node's addresses. Pure.
fn families(own: &ClusterNode, transport: IpAddr) -> Families {
    let of = |ips: &[IpAddr]| {
        let nets: Vec<IpNet> = ips.iter().map(|ip| IpNet::from(*ip)).collect();
        Families::of(&nets)
    };
    let of_transport = if transport.is_ipv4() { Families::V4 } else { Families::V6 };
    Families::of(&own.pod_cidrs).or_else(|| of(&own.addresses)).unwrap_or(of_transport)
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

/// How many packets a second each feature may send here.
fn packet_in_rate(options: &Options) -> u32 {
    u32::try_from(options.number("packetInRate")).unwrap_or(u32::MAX)
}

fn policy_config(options: &Options, node: &NodeConfig, host_mark: HostMark) -> PolicyConfig {
    PolicyConfig {
        families: node.families,
        controller_id: CONTROLLER_ID,
        packet_in_rate: Some(packet_in_rate(options)),
        host_mark,
    }
}

/// Whose flows come first on a switch that starts empty: what opens a connection there has to have
/// passed policies.
pub(crate) const FIRST_OWNERS: [Owner; 3] = [FRAMEWORK, node_loop::OWNER, policy::OWNER];

/// Begins to keep the bridge; what nobody claims there is deleted after so long.
pub(crate) fn start_bridge(
    options: &Options,
    network: &NodeNetwork,
    sync_deadline: Duration,
    first_owners: Vec<Owner>,
) -> Bridge {
    let socket = options.config.ovs_run_dir.join(format!("{}.mgmt", options.config.ovs_bridge));
    let mut config = BridgeConfig::new(socket, pipeline::fields::COOKIE_MARKER);
    config.sync_deadline = sync_deadline;
    config.controller_id = Some(CONTROLLER_ID);
    config.userspace_run_dir =
        (network.datapath == Datapath::Netdev).then(|| options.config.ovs_run_dir.clone());
    config.owners = vec![FRAMEWORK, node_loop::OWNER, policy::OWNER, proxy::OWNER];
    config.first_owners = first_owners;
    if network.layout == LayoutFound::Other {
        tracing::info!("the bridge has another table layout: it is replaced as a whole");
        config.sync_mode = SyncMode::ReplaceLayout;
    }
    Bridge::start(config)
}

/// Puts the flows of the node itself on the bridge, and what its peers need on the bridge and in the
/// kernel; prepares the loop that keeps it so.
///
/// # Errors
/// When the kernel cannot be asked, or the node is another one than a moment ago.
pub(crate) async fn lay(
    options: &Options,
    network: &NodeNetwork,
    bridge: &Bridge,
    health: &NodeHealth,
    nodes: &NodeList,
    services_rx: watch::Receiver<Option<Arc<services::HostWants>>>,
) -> Result<(NodeLoop, PolicyConfig)> {
    bridge.set(FRAMEWORK, "misses", pipeline::miss_flows(&network.node));
    bridge.set(node_loop::OWNER, "node", pipeline::connectivity::node_flows(&network.node));
    let mut node_loop = mk_node_loop(options, network, bridge, health, services_rx)?;
    node_loop.take(nodes).await?;
    node_loop.upkeep.adopt().await;
    // Before the flows that know them so.
    let host_mark = match node_loop.mark_host_frames().await {
        true => HostMark::Marked,
        false => HostMark::GatewayAddress,
    };
    let policy_config = policy_config(options, &network.node, host_mark);
    let node_flows = pipeline::policy::node_flows(&network.node, &policy_config);
    bridge.set(policy::OWNER, "node", node_flows);
    Ok((node_loop, policy_config))
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
        frames: None,
        tunnel_neighbours: (network.datapath == Datapath::Netdev)
            .then(|| options.config.ovs_run_dir.clone()),
        services: network.node_ports.clone().map(|(choice, node_port_addresses)| ToServices {
            wants_rx: services_rx,
            choice,
            node_port_addresses,
        }),
        retry: Retry::default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_netfilter_refuses_is_known_through_what_was_being_done() {
        let refused = NetfilterError::NoDevice("eth0".into());
        let error = anyhow::Error::new(refused).context("drop the kernel's copy").context("uplink");
        assert!(is_of_netfilter(&error));
        assert!(!is_of_netfilter(&anyhow::anyhow!("no such link")));
    }

    #[test]
    fn families_are_those_of_pods_and_before_there_are_any_those_of_the_node() {
        let mk = |cidrs: &[&str], addresses: &[&str]| ClusterNode {
            name: "us".into(),
            pod_cidrs: cidrs.iter().map(|cidr| cidr.parse().unwrap()).collect(),
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
            zone: None,
        };
        let both = ["172.30.0.1", "fd00::1"];
        for (name, own, transport, want) in [
            ("Pods' own", mk(&["10.1.0.0/24"], &both), "172.30.0.1", Families::V4),
            ("no Pods yet", mk(&[], &both), "172.30.0.1", Families::Dual),
            ("one family", mk(&[], &both[1..]), "fd00::1", Families::V6),
            ("no address is listed", mk(&[], &[]), "fd00::1", Families::V6),
            ("the same with IPv4", mk(&[], &[]), "172.30.0.1", Families::V4),
        ] {
            assert_eq!(families(&own, transport.parse().unwrap()), want, "{name}");
        }
    }
}
