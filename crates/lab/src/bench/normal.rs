//! The data path against plain bridging: a pair of Pods, and a pair of namespaces on another bridge
//! of the same switch, whose one flow is `NORMAL`.
//!
//! Both pairs have the same MTU, the same offloads, and servers in this process; their figures are
//! taken in turn, so that what the machine does beside hits both.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::Figure;
use crate::error::{LabError, Result};
use crate::layout::{Layout, NodeLayout};
use crate::measure::{self, summarise};
use crate::sandbox::Sandbox;
use crate::{ip, netns, ovs, probe, topology};

/// Times that each figure is taken of each pair.
const ROUNDS: usize = 15;
/// Exchanges over one connection, in a round.
const EXCHANGES: usize = 1000;
/// Connections made one after the other, in a round.
const CONNECTIONS: usize = 300;
/// One stream's time, in a round.
const STREAM: Duration = Duration::from_secs(1);
/// The bridge beside the agent's.
const BRIDGE: &str = "br-normal";

/// One way from a namespace to a server.
struct Way {
    client: PathBuf,
    server: SocketAddr,
}

/// What one round gave: more is better for all three.
struct Round {
    exchanges_per_s: f64,
    mbit_per_s: f64,
    connections_per_s: f64,
}

impl Way {
    fn measure(&self) -> Result<Round> {
        let latency = measure::latency(&self.client, self.server, EXCHANGES)?;
        let stream = measure::throughput(&self.client, self.server, STREAM)?;
        let connections = measure::connections(&self.client, self.server, CONNECTIONS)?;
        Ok(Round {
            exchanges_per_s: 1e6 / latency.median_us,
            mbit_per_s: stream.mbit_per_second,
            connections_per_s: 1e6 / connections.median_us,
        })
    }
}

/// Compares two Pods of a node with two namespaces bridged by `NORMAL` on the same switch.
///
/// # Errors
/// When the other bridge cannot be made, or an exchange fails.
pub(super) fn figure(layout: &Layout, node: &NodeLayout, pods: [&Sandbox; 2]) -> Result<Figure> {
    let [from, to] = pods;
    let no_address = || LabError::new("the receiving Pod has no address");
    let address = *to.addresses().first().ok_or_else(no_address)?;
    let port = probe::serve(&to.netns, "pod", &[address])?;
    let ours = Way { client: from.netns.clone(), server: SocketAddr::new(address, port) };
    let bridged = Bridged { layout, node };
    let rounds = bridged.make(from).and_then(|normal| {
        (0..ROUNDS)
            .map(|round| {
                // Each goes first half of the time.
                let normal_first = round % 2 == 0;
                let early = if normal_first { normal.measure()? } else { ours.measure()? };
                let late = if normal_first { ours.measure()? } else { normal.measure()? };
                Ok(if normal_first { (late, early) } else { (early, late) })
            })
            .collect::<Result<Vec<(Round, Round)>>>()
    });
    let gone = bridged.unmake();
    let rounds = rounds?;
    gone?;
    let compare = |of: fn(&Round) -> f64| ratio(&rounds, of);
    Ok(Figure {
        name: format!("two Pods of a node against NORMAL on the same switch, {ROUNDS} pairs"),
        values: json!({
            "throughput": compare(|round| round.mbit_per_s),
            "requestResponse": compare(|round| round.exchanges_per_s),
            "connectRequestResponse": compare(|round| round.connections_per_s),
        }),
        how: format!(
            "ovs-vsctl add-br {BRIDGE}, ovs-ofctl add-flow {BRIDGE} actions=NORMAL; one TCP stream \
             for {} s, {EXCHANGES} lines over one connection, {CONNECTIONS} connections of one line \
             that the client closes first; in turn",
            STREAM.as_secs()
        ),
    })
}

/// Ours over NORMAL: the median of the pairs' ratios, and their spread.
fn ratio(rounds: &[(Round, Round)], of: fn(&Round) -> f64) -> Value {
    let ratios = rounds.iter().map(|(ours, normal)| of(ours) / of(normal)).collect();
    let hundredths = |value: f64| (value * 100.0).round() / 100.0;
    let median = |pick: fn(&(Round, Round)) -> &Round| {
        summarise(rounds.iter().map(|round| of(pick(round))).collect())
            .map(|seen| seen.median_us.round())
    };
    summarise(ratios).map_or(Value::Null, |seen| {
        json!({
            "ratio": hundredths(seen.median_us),
            "lowest": hundredths(seen.min_us),
            "highest": hundredths(seen.max_us),
            "ours": median(|round| &round.0),
            "normal": median(|round| &round.1),
        })
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
