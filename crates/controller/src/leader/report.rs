//! Keeps the AntreaControllerInfo object up to date.

use std::time::Duration;

use antrea_runtime::{CancellationToken, VERSION};
use kube_io::apis::AntreaControllerInfo;
use kube_io::apis::common::{
    ConditionStatus, NetworkPolicyControllerInfo, ObjectReference, Timestamp,
};
use kube_io::apis::controller_info::{ControllerCondition, ControllerConditionType, NAME};
use kube_io::{Client, controller_info};

use crate::settings::Settings;

/// Time between two reports.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Time before a report that failed is sent again.
const RETRY: Duration = Duration::from_secs(5);
/// The Service through which the controller is reached.
const SERVICE: &str = "antrea";

/// Who and where this replica is.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    namespace: String,
    pod: Option<String>,
    node: Option<String>,
    api_port: u16,
}

impl Identity {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            namespace: settings.environment.pod_namespace.clone(),
            pod: settings.environment.pod_name.clone(),
            node: settings.environment.node_name.clone(),
            api_port: settings.api_addr.port(),
        }
    }

    /// Pod or Node of this replica, for Events.
    pub(super) fn instance(&self) -> &str {
        self.pod.as_deref().or(self.node.as_deref()).unwrap_or_default()
    }

    fn report(&self, at: Timestamp) -> AntreaControllerInfo {
        let healthy = ControllerConditionType::ControllerHealthy;
        AntreaControllerInfo {
            version: Some(VERSION.into()),
            pod_ref: self.pod.as_deref().map(|name| ObjectReference::pod(&self.namespace, name)),
            node_ref: self.node.as_deref().map(ObjectReference::node),
            service_ref: Some(ObjectReference::service(&self.namespace, SERVICE)),
            network_policy_controller_info: Some(NetworkPolicyControllerInfo::default()),
            controller_conditions: vec![ControllerCondition::new(
                healthy,
                ConditionStatus::True,
                at,
            )],
            api_port: Some(self.api_port),
            ..AntreaControllerInfo::named(NAME)
        }
    }
}

/// Reports again and again until told to stop.
pub(super) async fn run(client: Client, identity: Identity, stop: CancellationToken) {
    loop {
        let report = identity.report(Timestamp::now());
        let written = tokio::select! {
            () = stop.cancelled() => return,
            written = controller_info::upsert(&client, &report) => written,
        };
        let wait = match written {
            Ok(()) => HEARTBEAT,
            Err(error) => {
                tracing::warn!(error = %error.chain(), "report AntreaControllerInfo");
                RETRY
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_who_and_where() {
        let identity = Identity {
            namespace: "kube-system".into(),
            pod: Some("antrea-controller-0".into()),
            node: None,
            api_port: 10349,
        };
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let report = serde_json::to_value(identity.report(at)).unwrap();
        assert_eq!(report["metadata"]["name"], "antrea-controller");
        assert_eq!(report["podRef"]["name"], "antrea-controller-0");
        assert_eq!(report["serviceRef"]["name"], "antrea");
        assert!(report.get("nodeRef").is_none());
        let condition = &report["controllerConditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["lastHeartbeatTime"], "2027-01-15T08:00:00Z");
        assert_eq!(identity.instance(), "antrea-controller-0");
    }
}
