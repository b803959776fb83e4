//! What a kubelet reports about a Pod.

use std::net::IpAddr;

use jiff::Timestamp;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use apis::common::ConditionStatus;

use crate::time::seconds;

/// State of a Pod; what is empty is not sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: Option<String>,
    /// The cause of the phase in one word.
    pub reason: Option<String>,
    /// The cause of the phase for people.
    pub message: Option<String>,
    /// Addresses of the Node.
    pub host_ips: Vec<IpAddr>,
    /// Addresses of the Pod.
    pub pod_ips: Vec<IpAddr>,
    /// When the Pod was taken on.
    pub start_time: Option<Timestamp>,
    /// All conditions: the list replaces the former one.
    pub conditions: Vec<PodCondition>,
    /// All containers: the list replaces the former one.
    pub container_statuses: Vec<ContainerStatus>,
    /// All containers that run before the others.
    pub init_container_statuses: Vec<ContainerStatus>,
}

impl Serialize for PodStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Ip {
            ip: IpAddr,
        }
        let listed = |all: &[IpAddr]| all.iter().map(|ip| Ip { ip: *ip }).collect::<Vec<_>>();
        let mut out = serializer.serialize_struct("PodStatus", 11)?;
        if let Some(phase) = &self.phase {
            out.serialize_field("phase", phase)?;
        }
        if let Some(reason) = &self.reason {
            out.serialize_field("reason", reason)?;
        }
        if let Some(message) = &self.message {
            out.serialize_field("message", message)?;
        }
        if let Some(first) = self.host_ips.first() {
            out.serialize_field("hostIP", first)?;
            out.serialize_field("hostIPs", &listed(&self.host_ips))?;
        }
        if let Some(first) = self.pod_ips.first() {
            out.serialize_field("podIP", first)?;
            out.serialize_field("podIPs", &listed(&self.pod_ips))?;
        }
        if let Some(start) = self.start_time {
            out.serialize_field("startTime", &seconds(start))?;
        }
        if !self.conditions.is_empty() {
            out.serialize_field("conditions", &self.conditions)?;
        }
        if !self.container_statuses.is_empty() {
            out.serialize_field("containerStatuses", &self.container_statuses)?;
        }
        if !self.init_container_statuses.is_empty() {
            out.serialize_field("initContainerStatuses", &self.init_container_statuses)?;
        }
        out.end()
    }
}

/// One statement about a Pod.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodCondition {
    /// PodScheduled, Initialized, ContainersReady, Ready or PodReadyToStartContainers.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// When `status` last changed.
    #[serde(serialize_with = "as_seconds")]
    pub last_transition_time: Timestamp,
    /// The cause in one word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cause for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// State of one container.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerStatus {
    /// Name.
    pub name: String,
    /// Image it runs.
    pub image: String,
    /// Digest of the image.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// Id with its runtime's name before `://`.
    #[serde(rename = "containerID", skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
    /// It has started and passed its start-up.
    pub started: bool,
    /// It can be sent work.
    pub ready: bool,
    /// Times it was started anew.
    pub restart_count: i32,
    /// What it does now.
    pub state: ContainerState,
    /// What it did before its last restart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_state: Option<ContainerState>,
}

/// What a container does.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ContainerState {
    /// It does not run yet, or not at the moment.
    Waiting {
        /// The cause in one word, such as ContainerCreating.
        reason: String,
        /// The cause for people.
        message: String,
    },
    /// It runs.
    Running {
        /// Since when.
        #[serde(serialize_with = "as_seconds")]
        started_at: Timestamp,
    },
    /// It has ended.
    Terminated {
        /// Exit status.
        exit_code: i32,
        /// The cause in one word, such as Completed or Error.
        reason: String,
        /// The cause for people.
        message: String,
        /// When it started.
        #[serde(serialize_with = "as_seconds")]
        started_at: Timestamp,
        /// When it ended.
        #[serde(serialize_with = "as_seconds")]
        finished_at: Timestamp,
    },
}

fn as_seconds<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&seconds(*at))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_empty_is_not_sent() {
        assert_eq!(serde_json::to_value(PodStatus::default()).unwrap(), json!({}));
    }

    #[test]
    fn a_running_pod() {
        let at: Timestamp = "2026-11-30T20:00:00.5Z".parse().unwrap();
        let status = PodStatus {
            phase: Some("Running".into()),
            pod_ips: vec!["10.0.1.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            start_time: Some(at),
            conditions: vec![PodCondition {
                type_: "Ready".into(),
                status: ConditionStatus::True,
                last_transition_time: at,
                reason: None,
                message: None,
            }],
            container_statuses: vec![ContainerStatus {
                name: "c".into(),
                image: "echo".into(),
                image_id: "sha256:0".into(),
                container_id: Some("lab://1".into()),
                started: true,
                ready: true,
                restart_count: 0,
                state: ContainerState::Running { started_at: at },
                last_state: None,
            }],
            ..PodStatus::default()
        };
        assert_eq!(
            serde_json::to_value(status).unwrap(),
            json!({
                "phase": "Running",
                "podIP": "10.0.1.2",
                "podIPs": [{"ip": "10.0.1.2"}, {"ip": "fd00::2"}],
                "startTime": "2026-11-30T20:00:00Z",
                "conditions": [{"type": "Ready", "status": "True",
                                "lastTransitionTime": "2026-11-30T20:00:00Z"}],
                "containerStatuses": [{
                    "name": "c", "image": "echo", "imageID": "sha256:0",
                    "containerID": "lab://1", "started": true, "ready": true, "restartCount": 0,
                    "state": {"running": {"startedAt": "2026-11-30T20:00:00Z"}},
                }],
            })
        );
    }
}
