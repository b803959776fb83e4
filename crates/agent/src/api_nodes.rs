//! Feeds the list of nodes from the Kubernetes API, and keeps the last one on disk.
//!
//! The copy under the state directory lets an agent that starts while no API server answers go on
//! with the nodes it knew: what was forwarding keeps forwarding.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::StreamExt;
use kube_io::Client;
use kube_io::nodes::{self, NodeEvent, NodeView};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::nodes::{ClusterNode, NodeList};

/// Label of a Node: the zone that it is in.
const ZONE: &str = "topology.kubernetes.io/zone";

/// Turns watch events into whole lists. Pure.
#[derive(Debug, Default)]
struct Collector {
    known: BTreeMap<String, ClusterNode>,
    /// Filled between `Init` and `InitDone`, then takes the place of `known`.
    relisted: Option<BTreeMap<String, ClusterNode>>,
    complete: bool,
}

impl Collector {
    /// Returns the whole list when it is complete and may have changed.
    fn step(&mut self, event: NodeEvent) -> Option<Vec<ClusterNode>> {
        match event {
            NodeEvent::Init => self.relisted = Some(BTreeMap::new()),
            NodeEvent::Applied(node) => {
                let into = self.relisted.as_mut().unwrap_or(&mut self.known);
                into.insert(node.name.clone(), as_cluster_node(&node));
            }
            NodeEvent::Deleted(name) => {
                self.known.remove(&name);
                if let Some(relisted) = &mut self.relisted {
                    relisted.remove(&name);
                }
            }
            NodeEvent::InitDone => {
                if let Some(relisted) = self.relisted.take() {
                    self.known = relisted;
                }
                self.complete = true;
            }
            NodeEvent::Failed(_) => return None,
        }
        let settled = self.complete && self.relisted.is_none();
        settled.then(|| self.known.values().cloned().collect())
    }
}

fn as_cluster_node(node: &NodeView) -> ClusterNode {
    ClusterNode {
        name: node.name.clone(),
        pod_cidrs: node.pod_cidrs.clone(),
        addresses: node.addresses(),
        zone: node.labels.get(ZONE).cloned(),
    }
}

/// Follows the API's nodes until cancelled. `connected` tells whether the watch stands.
pub(crate) async fn follow(
    client: Client,
    state_dir: PathBuf,
    nodes_tx: watch::Sender<NodeList>,
    connected: Arc<AtomicBool>,
    stop: CancellationToken,
) {
    let cache = state_dir.join("nodes.json");
    match load(&cache) {
        Ok(nodes) => {
            let n_nodes = nodes.len();
            tracing::info!(n_nodes, "nodes as last known, until the API server answers");
            nodes_tx.send_replace(Some(Arc::new(nodes)));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(
            %error, path = %cache.display(),
            "the last known list of nodes is damaged: this node waits for the API server"
        ),
    }
    let mut events = nodes::watch(&client);
    let mut collector = Collector::default();
    let mut answered = false;
    let mut told = false;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            event = events.next() => event,
        };
        let Some(event) = event else { return };
        match &event {
            NodeEvent::Failed(reason) => {
                if connected.swap(false, Ordering::Relaxed) {
                    tracing::warn!("watch of nodes broke: {reason}");
                } else if !answered && !told {
                    told = true;
                    tracing::warn!(
                        server = client.server(),
                        "no API server answers: {reason}; where no kube-proxy leads there, \
                         kubeAPIServerOverride has to"
                    );
                } else {
                    tracing::debug!("watch of nodes: {reason}");
                }
            }
            // `Init` only says that the watch is about to ask.
            NodeEvent::Init => {}
            _ => {
                answered = true;
                connected.store(true, Ordering::Relaxed);
            }
        }
        let Some(nodes) = collector.step(event) else { continue };
        let changed = nodes_tx.send_if_modified(|current| {
            let differs = current.as_ref().is_none_or(|old| **old != nodes);
            if differs {
                *current = Some(Arc::new(nodes.clone()));
            }
            differs
        });
        if changed && let Err(error) = save(&cache, &nodes) {
            tracing::warn!(%error, path = %cache.display(), "the list of nodes is not kept");
        }
    }
}

fn load(path: &Path) -> io::Result<Vec<ClusterNode>> {
    let bytes = std::fs::read(path)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Written beside and renamed, so that a crash leaves the old or the new list.
fn save(path: &Path, nodes: &[ClusterNode]) -> io::Result<()> {
    let beside = path.with_extension("json.new");
    std::fs::write(&beside, serde_json::to_vec(nodes)?)?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_event(name: &str) -> NodeEvent {
        NodeEvent::Applied(NodeView { name: name.to_owned(), ..NodeView::default() })
    }

    fn names(list: Option<Vec<ClusterNode>>) -> Vec<String> {
        list.unwrap().into_iter().map(|node| node.name).collect()
    }

    #[test]
    fn a_list_comes_out_only_when_it_is_whole() {
        let mut collector = Collector::default();
        assert_eq!(collector.step(NodeEvent::Init), None);
        assert_eq!(collector.step(mk_event("a")), None);
        assert_eq!(names(collector.step(NodeEvent::InitDone)), ["a"]);
        assert_eq!(names(collector.step(mk_event("b"))), ["a", "b"]);
        assert_eq!(names(collector.step(NodeEvent::Deleted("a".into()))), ["b"]);
    }

    #[test]
    fn a_relist_forgets_what_was_deleted_meanwhile() {
        let mut collector = Collector::default();
        for event in [NodeEvent::Init, mk_event("a"), mk_event("b"), NodeEvent::InitDone] {
            collector.step(event);
        }
        assert_eq!(collector.step(NodeEvent::Failed("cut".into())), None);
        assert_eq!(collector.step(NodeEvent::Init), None);
        assert_eq!(collector.step(mk_event("b")), None);
        assert_eq!(names(collector.step(NodeEvent::InitDone)), ["b"]);
    }

    #[test]
    fn the_list_survives_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.json");
        let nodes = vec![ClusterNode {
            name: "a".into(),
            pod_cidrs: vec!["10.1.0.0/24".parse().unwrap()],
            addresses: vec!["fd00::1".parse().unwrap()],
            zone: Some("east".into()),
        }];
        save(&path, &nodes).unwrap();
        assert_eq!(load(&path).unwrap(), nodes);
        std::fs::write(&path, b"{").unwrap();
        assert_eq!(load(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(load(&dir.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
