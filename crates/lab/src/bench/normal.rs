//! The data path against plain bridging: a pair of Pods, and a pair of namespaces on another bridge
//! of the same switch, whose one flow is `NORMAL`.
//!
//! Both pairs have the same MTU, the same offloads, and servers in this process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::Figure;
use super::pairs::{self, Way};
use crate::error::{LabError, Result};
use crate::layout::{Layout, NodeLayout};
use crate::process::ProcessId;
use crate::sandbox::Sandbox;
use crate::{ip, netns, ovs, probe, topology};

/// The bridge beside the agent's.
const BRIDGE: &str = "br-normal";

/// Compares two Pods of a node with two namespaces bridged by `NORMAL` on the same switch.
///
/// # Errors
/// When the other bridge cannot be made, or an exchange fails.
pub(super) fn figure(
    layout: &Layout,
    node: &NodeLayout,
    vswitchd: ProcessId,
    pods: [&Sandbox; 2],
) -> Result<Figure> {
    let [from, to] = pods;
    let no_address = || LabError::new("the receiving Pod has no address");
    let address = *to.addresses().first().ok_or_else(no_address)?;
    let port = probe::serve(&to.netns, "pod", &[address])?;
    let ours = Way { client: from.netns.clone(), server: SocketAddr::new(address, port) };
    let bridged = Bridged { layout, node };
    let compared =
        bridged.make(from).and_then(|normal| pairs::compare(&ours, &normal, &[vswitchd]));
    let gone = bridged.unmake();
    let (values, how) = compared?;
    gone?;
    Ok(Figure {
        name: format!(
            "two Pods of a node against NORMAL on the same switch, {} pairs",
            pairs::ROUNDS
        ),
        values,
        how: format!(
            "ovs-vsctl add-br {BRIDGE}, ovs-ofctl add-flow {BRIDGE} actions=NORMAL; {how}"
        ),
    })
}

/// The bridge beside the agent's, with two namespaces.
struct Bridged<'a> {
    layout: &'a Layout,
    node: &'a NodeLayout,
}

impl Bridged<'_> {
    fn ends(&self) -> [(PathBuf, &'static str, Ipv4Addr); 2] {
        [
            (self.layout.netns("normal-a"), "normal-a", Ipv4Addr::new(10, 255, 0, 1)),
            (self.layout.netns("normal-b"), "normal-b", Ipv4Addr::new(10, 255, 0, 2)),
        ]
    }

    /// Makes it as a Pod's link is made: same MTU, same offloads, same datapath.
    fn make(&self, like: &Sandbox) -> Result<Way> {
        let mtu = crate::check::frames::mtu_of(&like.netns, "eth0")?;
        let datapath = ovs::vsctl(self.node, &["get", "bridge", "br-int", "datapath_type"])?;
        let of_type = format!("datapath_type={}", datapath.trim());
        ovs::vsctl(
            self.node,
            &["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, &of_type, "fail_mode=secure"],
        )?;
        for (path, name, address) in self.ends() {
            netns::create(&path)?;
            let inside = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            ip::batch(
                self.node.netns(),
                &[
                    format!(
                        "link add {name} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {inside}"
                    ),
                    format!("link set {name} up"),
                ],
            )?;
            topology::checksum_in_software(&path, "eth0")?;
            ip::batch(
                &path,
                &[format!("addr add {address}/24 dev eth0"), "link set eth0 up".to_owned()],
            )?;
            ovs::vsctl(self.node, &["add-port", BRIDGE, name])?;
        }
        ovs::ofctl_on(self.node, BRIDGE, "add-flow", &["actions=NORMAL"])?;
        let [(client, ..), (server, _, address)] = self.ends();
        let address = IpAddr::V4(address);
        let port = probe::serve(&server, "normal", &[address])?;
        Ok(Way { client, server: SocketAddr::new(address, port) })
    }

    fn unmake(&self) -> Result<()> {
        ovs::vsctl(self.node, &["--if-exists", "del-br", BRIDGE])?;
        for (path, ..) in self.ends() {
            netns::remove(&path)?;
        }
        Ok(())
    }
}
