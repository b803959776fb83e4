//! The traits of the CNI server on the real node: netlink, OVSDB, OpenFlow, lease files.
//!
//! Each file adapts one driver and decides nothing.

mod conntrack;
mod flows;
mod ipam;
mod links;
mod ports;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pipeline::NodeConfig;
use switch::bridge::{Bridge, BridgeState};
use switch::ovsdb_session::OvsdbSession;
use tokio::sync::watch;
use tokio::time::timeout;

use super::network::NodeNetwork;
use super::server::Node;

pub use links::is_ours;

/// What the real node is like.
#[derive(Clone, Debug)]
pub struct RealConfig {
    /// The node's Pod network.
    pub network: NodeNetwork,
    /// What the flows are made from.
    pub node: NodeConfig,
    /// The bridge that Pods are on.
    pub bridge_name: String,
    /// Where Open vSwitch has its sockets.
    pub ovs_run_dir: PathBuf,
    /// Folder under which the host's `/proc` is seen, when the agent runs in a container.
    pub host_proc: String,
    /// The bridge's datapath is in userspace: Pods send whole checksums, and the kernel's copy of
    /// their frames is dropped.
    pub userspace: bool,
    /// Pods send whole checksums in any case (`disableTXChecksumOffload`).
    pub tx_checksum_off: bool,
    /// Keeps ports of new Pods closed until their policies are known.
    pub gate: Option<crate::policy::Gate>,
}

/// Why the real node cannot be worked on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Netlink.
    #[error("open netlink")]
    Netlink(#[from] host::NetlinkError),
}

/// A switch that starts anew is back within this time.
const RESTART: Duration = Duration::from_millis(1500);

/// Returns when the switch is away and not just starting anew, so that waiting for it is idle.
async fn switch_gone(mut state_rx: watch::Receiver<Arc<BridgeState>>) {
    loop {
        let away = state_rx.wait_for(|state| !state.is_reachable()).await;
        // One that stands still has had its time.
        if away.map_or(true, |state| state.silent) {
            return;
        }
        let back = state_rx.wait_for(|state| state.is_reachable());
        if timeout(RESTART, back).await.is_err() {
            return;
        }
    }
}

/// All traits on the real node. Call it in the node's network namespace.
pub async fn connect(
    config: RealConfig,
    ovsdb: OvsdbSession,
    bridge: Bridge,
) -> Result<Node, ConnectError> {
    let links = links::RealLinks::open(&config)?;
    let conntrack = conntrack::RealConntrack::open(&config)?;
    let ports = ports::RealPorts::new(ovsdb, config.bridge_name.clone(), bridge.clone());
    let flows = flows::RealFlows::new(bridge, config.node, config.gate);
    Ok(Node {
        ipam: Arc::new(ipam::RealIpam::new(config.network.clone())),
        net: Arc::new(links),
        ports: Arc::new(ports),
        flows: Arc::new(flows),
        conntrack: Arc::new(conntrack),
        network: config.network,
    })
}
