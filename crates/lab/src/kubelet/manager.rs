//! One worker per Pod of this node; the watch tells each what is wanted of it.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use kube_io::WatchEvent;
use kube_io::pods::{self, PodKey, PodView};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Kubelet, worker};
use crate::error::{LabError, Result};
use crate::sandbox::PodIdentity;

/// What is wanted of a Pod.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    /// It exists like this.
    Exists(Box<PodView>),
    /// The API server knows it no more.
    Gone,
}

struct Entry {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

/// Follows the Pods of the node for ever.
pub(super) async fn run(kubelet: Kubelet) -> Result<()> {
    let mut workers: BTreeMap<PodKey, Entry> = BTreeMap::new();
    let mut listed: BTreeSet<PodKey> = BTreeSet::new();
    let mut events = pods::watch_node(&kubelet.client, &kubelet.node);
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Init => listed.clear(),
            WatchEvent::Applied(pod) => {
                listed.insert(pod.pod_key());
                apply(&kubelet, &mut workers, pod);
            }
            WatchEvent::Deleted(key) => gone(&workers, &key),
            WatchEvent::InitDone => {
                let lost: Vec<_> =
                    workers.keys().filter(|key| !listed.contains(key)).cloned().collect();
                for key in lost {
                    gone(&workers, &key);
                }
                adopt_orphans(&kubelet, &mut workers, &listed);
            }
            WatchEvent::Failed(why) => tracing::warn!(why, "watch of Pods broke"),
        }
        workers.retain(|_, entry| !entry.task.is_finished());
    }
    Err(LabError::new("the watch of Pods ended"))
}

fn apply(kubelet: &Kubelet, workers: &mut BTreeMap<PodKey, Entry>, pod: PodView) {
    let key = pod.pod_key();
    let wanted = Wanted::Exists(Box::new(pod));
    match workers.get(&key) {
        Some(entry) if !entry.task.is_finished() => {
            entry.wanted.send_replace(wanted);
        }
        _ => {
            workers.insert(key.clone(), start(kubelet, &key, wanted));
        }
    }
}

fn gone(workers: &BTreeMap<PodKey, Entry>, key: &PodKey) {
    if let Some(entry) = workers.get(key) {
        entry.wanted.send_replace(Wanted::Gone);
    }
}

/// Sandboxes on disk whose Pod was deleted while no kubelet ran are taken down.
fn adopt_orphans(
    kubelet: &Kubelet,
    workers: &mut BTreeMap<PodKey, Entry>,
    listed: &BTreeSet<PodKey>,
) {
    for sandbox in kubelet.runtime.list() {
        let key = key_of(&sandbox.pod);
        if !listed.contains(&key) && !workers.contains_key(&key) {
            tracing::info!(pod = sandbox.pod.key(), "taking down an orphan");
            workers.insert(key.clone(), start(kubelet, &key, Wanted::Gone));
        }
    }
}

fn start(kubelet: &Kubelet, key: &PodKey, wanted: Wanted) -> Entry {
    let (wanted, wanted_rx) = watch::channel(wanted);
    let pod = PodIdentity {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: key.uid.clone(),
    };
    let task = tokio::spawn(worker::run(kubelet.clone(), pod, wanted_rx));
    Entry { wanted, task }
}

fn key_of(pod: &PodIdentity) -> PodKey {
    PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() }
}
