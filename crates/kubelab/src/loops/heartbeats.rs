//! Which nodes are silent, and what their status says then.
//!
//! Pure: the caller brings its clock. A node is silent when neither its Lease nor its Ready
//! condition was renewed for the grace period, counted on the caller's clock from when a renewal
//! was first seen: neither a kubelet's wrong clock nor a server that was away makes nodes silent.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

/// Conditions that a kubelet reports, and nobody knows once it is silent.
const REPORTED: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// One node's latest sign of life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    /// When its Lease was renewed, as the Lease says it.
    pub(super) renewed: String,
    /// When its status was reported, as the Ready condition says it.
    pub(super) reported: String,
}

/// When each node last gave a new sign of life.
#[derive(Debug)]
pub(super) struct Heartbeats {
    grace: Duration,
    seen: BTreeMap<String, (Beat, Duration)>,
}

impl Heartbeats {
    /// Nothing is known yet.
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, seen: BTreeMap::new() }
    }

    /// Takes the present signs of life; gives the nodes that are silent at `now`.
    pub(super) fn step(
        &mut self,
        now: Duration,
        beats: impl IntoIterator<Item = (String, Beat)>,
    ) -> Vec<String> {
        let mut former = std::mem::take(&mut self.seen);
        for (name, beat) in beats {
            let at = match former.remove(&name) {
                Some((before, at)) if before == beat => at,
                _ => now,
            };
            self.seen.insert(name, (beat, at));
        }
        let silent = |at: Duration| now.saturating_sub(at) > self.grace;
        self.seen.iter().filter(|(_, (_, at))| silent(*at)).map(|(name, _)| name.clone()).collect()
    }
}

/// Sets the conditions of a silent node to Unknown; whether that changed anything.
pub(super) fn set_unknown(node: &mut Value, now: Timestamp) -> bool {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut changed = false;
    for kind in REPORTED {
        match conditions.iter_mut().find(|condition| condition["type"] == kind) {
            Some(condition) if condition["status"] == "Unknown" => {}
            Some(condition) => {
                condition["status"] = json!("Unknown");
                condition["reason"] = json!("NodeStatusUnknown");
                condition["message"] = json!("Kubelet stopped posting node status.");
                condition["lastTransitionTime"] = json!(now);
                changed = true;
            }
            None => {
                conditions.push(json!({
                    "type": kind,
                    "status": "Unknown",
                    "reason": "NodeStatusNeverUpdated",
                    "message": "Kubelet never posted node status.",
                    "lastHeartbeatTime": node["metadata"]["creationTimestamp"],
                    "lastTransitionTime": now,
                }));
                changed = true;
            }
        }
    }
    if changed {
        node["status"]["conditions"] = json!(conditions);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_silent_once_its_grace_is_over() {
        let mut heartbeats = Heartbeats::new(Duration::from_secs(40));
        let beat = |renewed: &str, reported: &str| {
            vec![("a".into(), Beat { renewed: renewed.into(), reported: reported.into() })]
        };
        for (seconds, beats, silent) in [
            (100, beat("long ago", "x"), false), // First seen now, whatever it says.
            (140, beat("long ago", "x"), false),
            (141, beat("long ago", "x"), true),
            (142, beat("renewed", "x"), false),
            (180, beat("renewed", "reported"), false), // A report counts as well.
            (219, beat("renewed", "reported"), false),
            (221, beat("renewed", "reported"), true),
            (230, Vec::new(), false),                  // Its Node is gone,
            (231, beat("renewed", "reported"), false), // and is a new one after that.
        ] {
            let seen = heartbeats.step(Duration::from_secs(seconds), beats);
            assert_eq!(seen, if silent { vec!["a"] } else { vec![] }, "at {seconds} s");
        }
    }

    #[test]
    fn a_silent_node_has_unknown_conditions_once() {
        let then: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let mut node = json!({
            "metadata": { "creationTimestamp": "2029-01-01T00:00:00Z" },
            "status": { "conditions": [
                { "type": "Ready", "status": "True", "reason": "KubeletReady",
                  "lastHeartbeatTime": "2029-12-31T00:00:00Z" },
                { "type": "NetworkUnavailable", "status": "False" },
            ] },
        });
        assert!(set_unknown(&mut node, then));
        let ready = &node["status"]["conditions"][0];
        assert_eq!(ready["status"], "Unknown");
        assert_eq!(ready["reason"], "NodeStatusUnknown");
        assert_eq!(ready["lastTransitionTime"], "2030-01-01T00:00:00Z");
        assert_eq!(ready["lastHeartbeatTime"], "2029-12-31T00:00:00Z");
        assert_eq!(node["status"]["conditions"][1]["status"], "False", "not the kubelet's");
        assert_eq!(node["status"]["conditions"][2]["reason"], "NodeStatusNeverUpdated");
        assert_eq!(node["status"]["conditions"].as_array().unwrap().len(), 5);
        assert!(!set_unknown(&mut node, then), "nothing is left to say");
    }
}
