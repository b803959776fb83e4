//! Collects Pods whose Node does not exist: no kubelet is there that could end them.
//!
//! As Kubernetes' own collector: after a time in which the Node may still register, and without a
//! grace period, whether or not their deletion was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use apiserver::api::Api;
use apiserver::meta;
use apiserver::query::{DeleteOptions, Propagation};
use apiserver::store::key;
use serde_json::Value;

use crate::kinds::{NODES, POD};

/// Since when each Node that Pods name is missed.
pub(super) struct Orphans {
    patience: Duration,
    missed: BTreeMap<String, Instant>,
}

impl Orphans {
    /// A Node may be missing for `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, missed: BTreeMap::new() }
    }

    /// One look at all Pods.
    pub(super) fn step(&mut self, api: &Api) {
        let (_, nodes) = api.store.list(NODES, "");
        let there: BTreeSet<&str> = nodes.iter().map(|node| meta::name(node.value())).collect();
        let (_, pods) = api.store.list(POD, "");
        let missing = pods
            .iter()
            .filter_map(|pod| node_of(pod.value()))
            .filter(|node| !there.contains(node))
            .map(str::to_owned);
        let lost = self.lost(Instant::now(), missing.collect());
        if lost.is_empty() {
            return;
        }
        let Some(resource) = api.registry.by_kind("", "v1", "Pod") else { return };
        api.store.write(|tx| {
            for pod in tx.list(POD, "") {
                let pod = pod.value();
                let Some(node) = node_of(pod).filter(|node| lost.contains(*node)) else { continue };
                // The Node may have registered since.
                if tx.get(NODES, node).is_some() {
                    continue;
                }
                let options = DeleteOptions {
                    dry_run: false,
                    grace: Some(0),
                    uid: Some(meta::uid(pod).to_owned()),
                    resource_version: None,
                    propagation: Propagation::Background,
                };
                let (namespace, name) = (meta::namespace(pod), meta::name(pod));
                match apiserver::objects::delete(tx, &resource, namespace, name, &options) {
                    Ok(_) => tracing::info!(pod = key(namespace, name), node, "no such Node"),
                    Err(error) => tracing::debug!(%error, namespace, name, "collect a Pod"),
                }
            }
        });
    }

    /// The Nodes that are missing for too long at `now`.
    fn lost(&mut self, now: Instant, missing: BTreeSet<String>) -> BTreeSet<String> {
        self.missed.retain(|node, _| missing.contains(node));
        for node in missing {
            self.missed.entry(node).or_insert(now);
        }
        let late = |since: &Instant| now.duration_since(*since) >= self.patience;
        self.missed.iter().filter(|(_, since)| late(since)).map(|(node, _)| node.clone()).collect()
    }
}

fn node_of(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_lost_once_it_was_missing_all_the_time() {
        let mut orphans = Orphans::new(Duration::from_secs(40));
        let start = Instant::now();
        let mut at = |seconds: u64, missing: &[&str]| {
            let missing = missing.iter().map(|name| (*name).to_owned()).collect();
            orphans
                .lost(start + Duration::from_secs(seconds), missing)
                .into_iter()
                .collect::<Vec<_>>()
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(at(0, &["a", "b"]), none);
        assert_eq!(at(20, &["a"]), none);
        assert_eq!(at(40, &["a", "b"]), ["a"]);
        assert_eq!(at(80, &["a", "b"]), ["a", "b"]);
    }
}
