//! The data path against plain bridging: a pair of Pods, and a pair of namespaces on another bridge
//! of the same switch, whose one flow is `NORMAL`.
//!
//! Both pairs have the same MTU, the same offloads, and servers in this process; their figures are
//! taken in turn, so that what the machine does beside hits both. Where there are two processors, the
//! switch has one and the ends of the pairs the other: where the scheduler puts them otherwise
//! changes a round trip by half from one moment to the next, for either pair.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::Figure;
use crate::error::{Doing, LabError, Result};
use crate::layout::{Layout, NodeLayout};
use crate::measure::{self, summarise};
use crate::process::ProcessId;
use crate::sandbox::Sandbox;
use crate::{ip, netns, ovs, probe, topology};

/// Times that each figure is taken of each pair.
const ROUNDS: usize = 15;
/// Exchanges over one connection of each pair, in a round; in turn.
const EXCHANGES: usize = 500;
/// Connections of each pair, in a round; so many of one pair, then so many of the other.
const CONNECTIONS: usize = 150;
const IN_A_ROW: usize = 10;
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

/// Figures of ours and of `NORMAL`, taken at the same time.
fn round(ours: &Way, normal: &Way, normal_first: bool) -> Result<[Round; 2]> {
    let ways = if normal_first { [normal, ours] } else { [ours, normal] };
    let open = |way: &Way| measure::Connection::open(&way.client, way.server);
    let mut lines = [open(ways[0])?, open(ways[1])?];
    let mut exchanges = [Vec::new(), Vec::new()];
    for _ in 0..EXCHANGES {
        for (line, samples) in lines.iter_mut().zip(&mut exchanges) {
            samples.push(line.exchange()?);
        }
    }
    drop(lines);
    let mut connections = [Vec::new(), Vec::new()];
    for _ in 0..CONNECTIONS / IN_A_ROW {
        for (way, samples) in ways.iter().zip(&mut connections) {
            samples.extend(measure::connections(&way.client, way.server, IN_A_ROW)?);
        }
    }
    let per_s = |samples: Vec<f64>| {
        let seen = summarise(samples).ok_or_else(|| LabError::new("no samples"))?;
        Ok::<f64, LabError>(1e6 / seen.median_us)
    };
    let [first_exchanges, second_exchanges] = exchanges;
    let [first_connections, second_connections] = connections;
    let mbit = |way: &Way| measure::throughput(&way.client, way.server, STREAM);
    let first = Round {
        exchanges_per_s: per_s(first_exchanges)?,
        connections_per_s: per_s(first_connections)?,
        mbit_per_s: mbit(ways[0])?.mbit_per_second,
    };
    let second = Round {
        exchanges_per_s: per_s(second_exchanges)?,
        connections_per_s: per_s(second_connections)?,
        mbit_per_s: mbit(ways[1])?.mbit_per_second,
    };
    Ok(if normal_first { [second, first] } else { [first, second] })
}

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
    let pinned = Pinned::new(vswitchd)?;
    let port = probe::serve(&to.netns, "pod", &[address])?;
    let ours = Way { client: from.netns.clone(), server: SocketAddr::new(address, port) };
    let bridged = Bridged { layout, node };
    let rounds = bridged.make(from).and_then(|normal| {
        // Each goes first half of the time.
        let rounds = (0..ROUNDS).map(|n| round(&ours, &normal, n % 2 == 0));
        rounds.collect::<Result<Vec<_>>>()
    });
    let gone = bridged.unmake();
    let how_pinned = pinned.how();
    drop(pinned);
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
             for {} s, {EXCHANGES} lines over one connection of each in turn, {CONNECTIONS} connections \
             of one line that the client closes first{how_pinned}",
            STREAM.as_secs()
        ),
    })
}

/// Ours over NORMAL: the median of the pairs' ratios, and their spread.
fn ratio(rounds: &[[Round; 2]], of: fn(&Round) -> f64) -> Value {
    let ratios = rounds.iter().map(|[ours, normal]| of(ours) / of(normal)).collect();
    let hundredths = |value: f64| (value * 100.0).round() / 100.0;
    let median = |which: usize| {
        let values = rounds.iter().filter_map(|round| round.get(which)).map(of).collect();
        summarise(values).map(|seen| seen.median_us.round())
    };
    summarise(ratios).map_or(Value::Null, |seen| {
        json!({
            "ratio": hundredths(seen.median_us),
            "lowest": hundredths(seen.min_us),
            "highest": hundredths(seen.max_us),
            "ours": median(0),
            "normal": median(1),
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

/// Keeps the switch and the threads that are started from this one on processors of their own; undone
/// when dropped.
struct Pinned {
    vswitchd: ProcessId,
    before: CpuSet,
    apart: bool,
}

impl Pinned {
    fn new(vswitchd: ProcessId) -> Result<Self> {
        let before = sched_getaffinity(ME).doing(|| "read the processors we may use".into())?;
        let usable: Vec<usize> =
            (0..CpuSet::count()).filter(|cpu| before.is_set(*cpu).unwrap_or(false)).collect();
        let apart = usable.len() > 1;
        if let [first, second, ..] = usable[..] {
            pin(vswitchd, &only(first)?)?;
            sched_setaffinity(ME, &only(second)?).doing(|| "take a processor".into())?;
        }
        Ok(Self { vswitchd, before, apart })
    }

    fn how(&self) -> &'static str {
        if self.apart { "; ovs-vswitchd on one processor, both ends on another" } else { "" }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Both only end sooner than that.
        let _ = sched_setaffinity(ME, &self.before);
        let _ = pin(self.vswitchd, &self.before);
    }
}

/// The calling thread, as the kernel's calls on affinity name it.
const ME: Pid = Pid::from_raw(0);

fn only(cpu: usize) -> Result<CpuSet> {
    let mut set = CpuSet::new();
    set.set(cpu).doing(|| format!("name processor {cpu}"))?;
    Ok(set)
}

/// Moves every thread of a process.
fn pin(process: ProcessId, to: &CpuSet) -> Result<()> {
    let tasks = format!("/proc/{}/task", process.pid);
    let entries = fs::read_dir(&tasks).doing(|| format!("read {tasks}"))?;
    let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for id in ids {
        sched_setaffinity(Pid::from_raw(id), to).doing(|| "move a thread".into())?;
    }
    Ok(())
}
