//! The nodes of the cluster as the agent needs them, and where the list comes from.
//!
//! A source fills a watch channel with the whole list each time it changes: from a file (an agent
//! without a control plane) or from the Kubernetes API.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClusterNode {
    /// Node name, as in the Kubernetes API.
    pub name: String,
    /// Pod CIDRs of the node, at most one per family.
    #[serde(default, rename = "podCIDRs")]
    pub pod_cidrs: Vec<IpNet>,
    /// Transport addresses: tunnels of other nodes end here.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The zone that the node is in (`topology.kubernetes.io/zone`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// All nodes known, or nothing yet.
pub type NodeList = Option<Arc<Vec<ClusterNode>>>;

/// Content of a `--cluster-file`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFile {
    nodes: Vec<ClusterNode>,
}

/// Why a cluster file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterFileError {
    /// The file cannot be read.
    #[error("read cluster file {path}")]
    Read {
        /// Path as given.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not the YAML we expect.
    #[error("cluster file {path}: {reason}")]
    Parse {
        /// Path as given.
        path: PathBuf,
        /// What and where, in the parser's words.
        reason: String,
    },
    /// Two entries contradict each other.
    #[error("cluster file {path}: {reason}")]
    Conflict {
        /// Path as given.
        path: PathBuf,
        /// Which entries and why.
        reason: String,
    },
}

/// Reads and checks a cluster file.
pub fn read_cluster_file(path: &Path) -> Result<Vec<ClusterNode>, ClusterFileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ClusterFileError::Read { path: path.to_owned(), source })?;
    parse_cluster_file(path, &text)
}

fn parse_cluster_file(path: &Path, text: &str) -> Result<Vec<ClusterNode>, ClusterFileError> {
    let file: ClusterFile = serde_saphyr::from_str(text).map_err(|error| {
        ClusterFileError::Parse { path: path.to_owned(), reason: error.to_string() }
    })?;
    let conflict = |reason| ClusterFileError::Conflict { path: path.to_owned(), reason };
    for (index, node) in file.nodes.iter().enumerate() {
        if let Some(why) = node.pod_cidrs.iter().find_map(unusable) {
            return Err(conflict(format!("podCIDR {why} (node {})", node.name)));
        }
        for earlier in &file.nodes[..index] {
            if earlier.name == node.name {
                return Err(conflict(format!("node {} is listed twice", node.name)));
            }
            if let Some((ours, theirs)) = overlap(&node.pod_cidrs, &earlier.pod_cidrs) {
                return Err(conflict(format!(
                    "podCIDR {ours} of {} overlaps {theirs} of {}",
                    node.name, earlier.name
                )));
            }
        }
    }
    Ok(file.nodes)
}

/// Why a prefix cannot be a node's Pod CIDR; none when it can.
fn unusable(cidr: &IpNet) -> Option<String> {
    if cidr.trunc() != *cidr {
        return Some(format!("{cidr} has host bits, the prefix is {}", cidr.trunc()));
    }
    // The network's own address, the gateway, a Pod, and the broadcast address of IPv4.
    let longest = cidr.max_prefix_len() - 2;
    (cidr.prefix_len() > longest)
        .then(|| format!("{cidr} has no room for a gateway and a Pod, /{longest} is the longest"))
}

/// The first pair of prefixes, one of each list, that share addresses.
pub fn overlap(left: &[IpNet], right: &[IpNet]) -> Option<(IpNet, IpNet)> {
    left.iter()
        .flat_map(|one| right.iter().map(move |other| (*one, *other)))
        .find(|(one, other)| one.contains(&other.addr()) || other.contains(&one.addr()))
}

/// Feeds the list from a file until cancelled; a changed file is read again within a second, one
/// that cannot be read leaves the last good list in force.
pub async fn follow_file(
    path: PathBuf,
    nodes_tx: watch::Sender<NodeList>,
    stop: CancellationToken,
) {
    let mut last: Option<SystemTime> = None;
    // What was told of a file that cannot be used, until it can or something else is wrong.
    let mut told: Option<String> = None;
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {}
        }
        let modified = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
        if modified.is_some() && modified == last {
            continue;
        }
        match read_cluster_file(&path) {
            Ok(nodes) => {
                last = modified;
                told = None;
                let nodes = Some(Arc::new(nodes));
                nodes_tx.send_if_modified(|current| {
                    let changed = *current != nodes;
                    *current = nodes;
                    changed
                });
            }
            Err(error) => {
                let why = chain(&error);
                if told.as_ref() != Some(&why) {
                    tracing::warn!(error = why, "cluster file ignored until it changes");
                    told = Some(why);
                }
                last = modified;
            }
        }
    }
}

/// An error and its sources on one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<ClusterNode>, String> {
        parse_cluster_file(Path::new("nodes.yaml"), text).map_err(|error| chain(&error))
    }

    #[test]
    fn both_families_are_read() {
        let nodes = parse(
            "nodes:\n- name: a\n  podCIDRs: [10.10.1.0/24, 'fd00:10:1::/64']\n  addresses: [172.30.0.1]\n",
        )
        .unwrap();
        assert_eq!(nodes[0].pod_cidrs.len(), 2);
        assert_eq!(nodes[0].addresses, ["172.30.0.1".parse::<IpAddr>().unwrap()]);
    }

    #[test]
    fn mistakes_name_what_and_where() {
        for (text, want) in [
            ("nodes:\n- name: a\n- name: a\n", "node a is listed twice"),
            (
                "nodes:\n- {name: a, podCIDRs: [10.0.0.0/16]}\n- {name: b, podCIDRs: [10.0.1.0/24]}\n",
                "podCIDR 10.0.1.0/24 of b overlaps 10.0.0.0/16 of a",
            ),
            ("nodes:\n- {name: a, podCIDR: [10.0.0.0/24]}\n", "podCIDR"),
            ("nodes: 3\n", "nodes.yaml"),
            (
                "nodes:\n- {name: a, podCIDRs: [10.10.1.5/24]}\n",
                "podCIDR 10.10.1.5/24 has host bits, the prefix is 10.10.1.0/24 (node a)",
            ),
            ("nodes:\n- {name: a, podCIDRs: [10.10.1.0/31]}\n", "/30 is the longest (node a)"),
            ("nodes:\n- {name: a, podCIDRs: ['fd00::/127']}\n", "/126 is the longest (node a)"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(want), "{text:?} gave {error:?}");
        }
    }
}
