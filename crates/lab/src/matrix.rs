//! The reachability matrix: every cell is an exchange made at that moment in the source's
//! namespace, over TCP and over UDP, and shows the address the far side saw.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::addressing;
use crate::error::Result;
use crate::pods;
use crate::probe;
use crate::sandbox::Runtime;
use crate::state::Store;
use crate::ui;

/// How long one exchange may take.
const WITHIN: Duration = Duration::from_secs(4);
/// Exchanges at the same time.
const PARALLEL: usize = 8;

/// What kind of way a cell tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Way {
    /// Pod to Pod on its node.
    PodToPodOnNode,
    /// Pod to Pod on another node.
    PodToPodAcross,
    /// Node to a Pod on it.
    NodeToOwnPod,
    /// Node to a Pod elsewhere.
    NodeToOtherPod,
    /// Pod to its own node.
    PodToOwnNode,
    /// Pod to another node.
    PodToOtherNode,
    /// Pod to a host outside: the node's address is seen.
    PodToOutside,
    /// Node to node.
    NodeToNode,
    /// Node to a host outside.
    NodeToOutside,
    /// Host outside to node.
    OutsideToNode,
}

impl Way {
    /// As people say it.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::PodToPodOnNode => "Pod to Pod on its node",
            Self::PodToPodAcross => "Pod to Pod on another node",
            Self::NodeToOwnPod => "node to its own Pod",
            Self::NodeToOtherPod => "node to another node's Pod",
            Self::PodToOwnNode => "Pod to its own node",
            Self::PodToOtherNode => "Pod to another node",
            Self::PodToOutside => "Pod to outside",
            Self::NodeToNode => "node to node",
            Self::NodeToOutside => "node to outside",
            Self::OutsideToNode => "outside to node",
        }
    }
}

/// One cell.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Who asked.
    pub from: String,
    /// Who was asked.
    pub to: String,
    /// At which address.
    pub target: SocketAddr,
    /// What kind of way it is.
    pub way: Way,
    /// The address the far side saw over TCP.
    pub tcp_seen: Option<IpAddr>,
    /// The address the far side saw over UDP.
    pub udp_seen: Option<IpAddr>,
    /// Addresses it may see; empty when any will do.
    pub expected: Vec<IpAddr>,
    /// Milliseconds that the TCP exchange took, connection included.
    pub tcp_ms: Option<f64>,
    /// Why it failed.
    pub error: Option<String>,
    /// Whether both exchanges were answered by the right one, with the right address seen.
    pub pass: bool,
}

/// A whole matrix.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Matrix {
    /// Everyone in it, with the address.
    pub places: Vec<Place>,
    /// All cells.
    pub cells: Vec<Cell>,
    /// Number of cells that passed.
    pub n_passed: usize,
    /// Number of cells that failed.
    pub n_failed: usize,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Someone who asks or is asked.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Place {
    /// Short name used in the table.
    pub label: String,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The node it is on or that it is.
    pub node: Option<String>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Where it is asked; nowhere when it does not answer.
    pub targets: Vec<SocketAddr>,
    #[serde(skip)]
    netns: PathBuf,
}

/// What a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A Pod.
    Pod,
    /// A node.
    Node,
    /// The host outside.
    Outside,
}

/// Each node's gateway addresses as its Pods know them.
type Gateways = BTreeMap<String, Vec<IpAddr>>;

struct Job<'a> {
    from: &'a Place,
    to: &'a Place,
    target: SocketAddr,
    way: Way,
    expected: Vec<IpAddr>,
}

/// Tests every way that a lab of this issue promises.
///
/// # Errors
/// When a node's own responder cannot be started.
pub fn run(store: &Store) -> Result<Matrix> {
    let started = Instant::now();
    let (places, gateways) = places(store)?;
    let jobs = jobs(&places, &gateways);
    let next = AtomicUsize::new(0);
    let cells = Mutex::new(Vec::with_capacity(jobs.len()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if crate::interrupt::requested() {
                        return;
                    }
                    let cell = exchange(job);
                    cells.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(cell);
                }
            });
        }
    });
    crate::interrupt::check()?;
    let mut cells = cells.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    cells.sort_by(|a, b| (a.way, &a.from, &a.to, a.target).cmp(&(b.way, &b.from, &b.to, b.target)));
    let n_passed = cells.iter().filter(|c| c.pass).count();
    Ok(Matrix {
        n_failed: cells.len() - n_passed,
        n_passed,
        places,
        cells,
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Everyone in the lab, and the nodes' gateways.
fn places(store: &Store) -> Result<(Vec<Place>, Gateways)> {
    let state = store.get();
    let family = state.variant.family;
    let layout = store.layout();
    let mut places = Vec::new();
    let mut gateways = Gateways::new();
    for (i, sandbox) in pods::ready(store).into_iter().enumerate() {
        gateways.insert(sandbox.node.clone(), sandbox.gateways());
        // A Pod with a program of its own asks, but answers nothing that we understand.
        let ports = Runtime::new(layout, &sandbox.node).echo_ports(&sandbox);
        let addresses = sandbox.addresses();
        let targets = ports
            .first()
            .map(|port| addresses.iter().map(|a| SocketAddr::new(*a, *port)).collect())
            .unwrap_or_default();
        places.push(Place {
            label: format!("p{}", i + 1),
            name: sandbox.pod.key(),
            kind: Kind::Pod,
            node: Some(sandbox.node.clone()),
            addresses,
            targets,
            netns: sandbox.netns,
        });
    }
    for node in &state.nodes {
        let netns = layout.node(&node.name).netns().to_owned();
        let addresses = addressing::node(family, node.n);
        let port = probe::serve(&netns, &node.name, &addresses)?;
        places.push(Place {
            label: format!("n{}", node.n),
            name: node.name.clone(),
            kind: Kind::Node,
            node: Some(node.name.clone()),
            targets: addresses.iter().map(|a| SocketAddr::new(*a, port)).collect(),
            addresses,
            netns,
        });
    }
    let mut addresses = addressing::outside(family);
    addresses.extend(addressing::behind_outside(family));
    let port = probe::serve(&layout.outside_netns(), "outside", &addresses)?;
    places.push(Place {
        label: "out".into(),
        name: "outside".into(),
        kind: Kind::Outside,
        node: None,
        targets: addresses.iter().map(|a| SocketAddr::new(*a, port)).collect(),
        addresses,
        netns: layout.outside_netns(),
    });
    Ok((places, gateways))
}

fn jobs<'a>(places: &'a [Place], gateways: &Gateways) -> Vec<Job<'a>> {
    let of_family = |addresses: &[IpAddr], target: &SocketAddr| {
        addresses.iter().find(|a| a.is_ipv4() == target.is_ipv4()).copied()
    };
    let node_ip = |name: &Option<String>, target: &SocketAddr| {
        let node = places.iter().find(|p| p.kind == Kind::Node && p.node == *name);
        of_family(&node?.addresses, target)
    };
    let mut jobs = Vec::new();
    for from in places {
        for to in places.iter().filter(|to| to.name != from.name) {
            let same = from.node == to.node;
            for target in &to.targets {
                let own = of_family(&from.addresses, target);
                let gateway = from.node.as_ref().and_then(|n| gateways.get(n));
                let gateway = gateway.and_then(|all| of_family(all, target));
                let node = node_ip(&from.node, target);
                let (way, expected) = match (from.kind, to.kind) {
                    (Kind::Pod, Kind::Pod) if same => (Way::PodToPodOnNode, vec![own]),
                    (Kind::Pod, Kind::Pod) => (Way::PodToPodAcross, vec![own]),
                    (Kind::Node, Kind::Pod) if same => (Way::NodeToOwnPod, vec![gateway]),
                    (Kind::Node, Kind::Pod) => (Way::NodeToOtherPod, vec![gateway]),
                    (Kind::Pod, Kind::Node) if same => (Way::PodToOwnNode, vec![own]),
                    (Kind::Pod, Kind::Node) => (Way::PodToOtherNode, vec![own, node]),
                    (Kind::Pod, Kind::Outside) => (Way::PodToOutside, vec![node]),
                    (Kind::Node, Kind::Node) => (Way::NodeToNode, vec![own]),
                    (Kind::Node, Kind::Outside) => (Way::NodeToOutside, vec![own]),
                    (Kind::Outside, Kind::Node) => (Way::OutsideToNode, vec![own]),
                    // Pods are not reachable from outside, and nobody promises that they are not.
                    (Kind::Outside, _) => continue,
                };
                let expected = expected.into_iter().flatten().collect();
                jobs.push(Job { from, to, target: *target, way, expected });
            }
        }
    }
    jobs
}

fn exchange(job: &Job<'_>) -> Cell {
    let started = Instant::now();
    let tcp = probe::tcp_who(&job.from.netns, job.target, WITHIN);
    let tcp_ms = started.elapsed().as_secs_f64() * 1000.0;
    let udp = probe::udp_who(&job.from.netns, job.target, WITHIN);
    let mut errors = Vec::new();
    for answer in [&tcp, &udp] {
        match answer {
            Err(error) => errors.push(error.chain()),
            Ok(answer) => {
                if answer.pod != job.to.name {
                    errors.push(format!("{} answered", answer.pod));
                }
                if !job.expected.is_empty() && !job.expected.contains(&answer.peer) {
                    errors.push(format!("the far side saw {}", answer.peer));
                }
            }
        }
    }
    errors.dedup();
    Cell {
        from: job.from.name.clone(),
        to: job.to.name.clone(),
        target: job.target,
        way: job.way,
        tcp_ms: tcp.is_ok().then_some(tcp_ms),
        tcp_seen: tcp.ok().map(|a| a.peer),
        udp_seen: udp.ok().map(|a| a.peer),
        expected: job.expected.clone(),
        pass: errors.is_empty(),
        error: (!errors.is_empty()).then(|| errors.join("; ")),
    }
}

/// Prints a matrix for people.
pub fn print(matrix: &Matrix) {
    ui::line("Rows ask, columns answer; a cell names whose address the far side saw.");
    ui::line("");
    let mut rows = vec![
        std::iter::once(String::new())
            .chain(matrix.places.iter().map(|p| p.label.clone()))
            .collect::<Vec<_>>(),
    ];
    for from in &matrix.places {
        let mut row = vec![format!("{:<4}{}", from.label, from.name)];
        row.extend(matrix.places.iter().map(|to| cell_text(matrix, from, to)));
        rows.push(row);
    }
    ui::table(&rows);
    ui::line("");
    let mut rows = Vec::new();
    for place in &matrix.places {
        let ips: Vec<_> = place.addresses.iter().map(ToString::to_string).collect();
        let node = place.node.clone().filter(|n| *n != place.name).unwrap_or_default();
        rows.push(vec![place.label.clone(), ips.join(", "), place.name.clone(), node]);
    }
    ui::table(&rows);
    ui::line("");
    let mut rows = Vec::new();
    let mut ways: BTreeMap<Way, (usize, usize)> = BTreeMap::new();
    for cell in &matrix.cells {
        let counts = ways.entry(cell.way).or_default();
        counts.0 += usize::from(cell.pass);
        counts.1 += 1;
    }
    for (way, (passed, all)) in ways {
        let verdict = if passed == all { "ok" } else { "FAILED" };
        rows.push(vec![way.words().into(), format!("{passed}/{all}"), verdict.into()]);
    }
    ui::table(&rows);
    for cell in matrix.cells.iter().filter(|c| !c.pass).take(20) {
        let why = cell.error.as_deref().unwrap_or_default();
        ui::line(format!("FAILED {} -> {} ({}): {why}", cell.from, cell.to, cell.target));
    }
    ui::line(format!(
        "{} of {} exchanges passed in {:.1} s",
        matrix.n_passed,
        matrix.cells.len(),
        matrix.seconds
    ));
}

/// Whose address was seen; `!!` for a failure.
fn cell_text(matrix: &Matrix, from: &Place, to: &Place) -> String {
    if from.name == to.name {
        return "-".into();
    }
    let mut cells = matrix.cells.iter().filter(|c| c.from == from.name && c.to == to.name);
    let Some(first) = cells.next() else { return ".".into() };
    if !first.pass || cells.any(|c| !c.pass) {
        return "!!".into();
    }
    let Some(seen) = first.tcp_seen else { return "!!".into() };
    let owner = matrix.places.iter().find(|p| p.addresses.contains(&seen));
    match (owner, from.kind) {
        (Some(owner), _) => owner.label.clone(),
        // The gateway's address belongs to the node that asked.
        (None, Kind::Node) => format!("g{}", from.label.trim_start_matches('n')),
        (None, _) => seen.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_place(label: &str, kind: Kind, node: Option<&str>, ip: &str) -> Place {
        Place {
            label: label.into(),
            name: label.into(),
            kind,
            node: node.map(Into::into),
            addresses: vec![ip.parse().unwrap()],
            targets: vec![SocketAddr::new(ip.parse().unwrap(), 1)],
            netns: PathBuf::new(),
        }
    }

    #[test]
    fn every_way_knows_the_address_that_must_be_seen() {
        let places = [
            mk_place("p1", Kind::Pod, Some("node-1"), "10.77.1.2"),
            mk_place("p2", Kind::Pod, Some("node-2"), "10.77.2.2"),
            mk_place("node-1", Kind::Node, Some("node-1"), "172.30.0.1"),
            mk_place("node-2", Kind::Node, Some("node-2"), "172.30.0.2"),
            mk_place("out", Kind::Outside, None, "172.30.0.100"),
        ];
        let gateways = BTreeMap::from([("node-1".to_owned(), vec!["10.77.1.1".parse().unwrap()])]);
        let jobs = jobs(&places, &gateways);
        let expected = |from: &str, to: &str| {
            let job = jobs.iter().find(|j| j.from.name == from && j.to.name == to);
            job.map(|j| j.expected.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        };
        for (from, to, want) in [
            ("p1", "p2", Some("10.77.1.2")),
            ("p1", "out", Some("172.30.0.1")),
            ("p1", "node-1", Some("10.77.1.2")),
            ("p1", "node-2", Some("10.77.1.2,172.30.0.1")),
            ("node-1", "p2", Some("10.77.1.1")),
            ("node-2", "p1", Some("")),
            ("out", "node-1", Some("172.30.0.100")),
            ("out", "p1", None),
        ] {
            assert_eq!(expected(from, to).as_deref(), want, "{from} -> {to}");
        }
    }
}
