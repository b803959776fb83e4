//! Keeps the AntreaControllerInfo object up to date.

use std::sync::Arc;
use std::time::{Duration, Instant};

use antrea_runtime::{CancellationToken, VERSION};
use kube_io::apis::agent_info::AgentConditionType;
use kube_io::apis::common::{
    ConditionStatus, NetworkPolicyControllerInfo, ObjectReference, Timestamp,
};
use kube_io::apis::controller_info::{ControllerCondition, ControllerConditionType, NAME};
use kube_io::apis::{AntreaAgentInfo, AntreaControllerInfo};
use kube_io::{ApiError, Client, agent_info, controller_info};

use crate::policy::State;
use crate::settings::Settings;

/// Longest time between two reports. At first they come faster, twice as far apart each time, as
/// agents come one after the other.
const HEARTBEAT: Duration = Duration::from_secs(60);
/// Time after which it is looked whether the last report is still true.
const LOOK: Duration = Duration::from_secs(5);
/// An agent that was silent for so long is not connected: three times its own heartbeat.
const AGENT_GONE_AFTER: Duration = Duration::from_secs(180);
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

    fn report(&self, at: Timestamp, work: Work) -> AntreaControllerInfo {
        let healthy = ControllerConditionType::ControllerHealthy;
        AntreaControllerInfo {
            version: Some(VERSION.into()),
            pod_ref: self.pod.as_deref().map(|name| ObjectReference::pod(&self.namespace, name)),
            node_ref: self.node.as_deref().map(ObjectReference::node),
            service_ref: Some(ObjectReference::service(&self.namespace, SERVICE)),
            network_policy_controller_info: Some(work.policies),
            connected_agent_num: work.n_agents,
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

/// How much there is to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Work {
    policies: NetworkPolicyControllerInfo,
    /// Agents that say they are connected to a controller, to whichever replica.
    n_agents: i32,
}

fn policies(state: &State) -> NetworkPolicyControllerInfo {
    let [policies, addresses, targets] =
        state.n_objects().map(|n| i32::try_from(n).unwrap_or(i32::MAX));
    NetworkPolicyControllerInfo {
        network_policy_num: policies,
        address_group_num: addresses,
        applied_to_group_num: targets,
    }
}

fn is_connected(agent: &AntreaAgentInfo, now: Timestamp) -> bool {
    agent.agent_conditions.iter().any(|condition| {
        let age = now.duration_since(condition.last_heartbeat_time.0);
        condition.type_ == AgentConditionType::ControllerConnectionUp
            && condition.status == ConditionStatus::True
            && age.unsigned_abs() < AGENT_GONE_AFTER
    })
}

/// The last report.
struct Said {
    policies: NetworkPolicyControllerInfo,
    at: Instant,
    /// For how long it is good if nothing changes.
    good_for: Duration,
}

/// Reports again and again until told to stop.
pub(super) async fn run(
    client: Client,
    identity: Identity,
    state: Arc<State>,
    stop: CancellationToken,
) {
    let mut said: Option<Said> = None;
    loop {
        let is_true = said.as_ref().is_some_and(|said| {
            said.at.elapsed() < said.good_for && said.policies == policies(&state)
        });
        if !is_true {
            let report = tell(&client, &identity, policies(&state));
            let told = tokio::select! {
                () = stop.cancelled() => return,
                told = report => told,
            };
            match told {
                Ok(policies) => {
                    let before = said.as_ref().map_or(LOOK / 2, |said| said.good_for);
                    let good_for = HEARTBEAT.min(before * 2);
                    said = Some(Said { policies, at: Instant::now(), good_for });
                }
                Err(error) => {
                    tracing::warn!(error = %error.chain(), "report AntreaControllerInfo");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Reports; returns what was said of policies.
async fn tell(
    client: &Client,
    identity: &Identity,
    policies: NetworkPolicyControllerInfo,
) -> Result<NetworkPolicyControllerInfo, ApiError> {
    let now = Timestamp::now();
    let agents = agent_info::list(client).await?;
    let n_agents = agents.iter().filter(|agent| is_connected(agent, now)).count();
    let n_agents = i32::try_from(n_agents).unwrap_or(i32::MAX);
    let work = Work { policies: policies.clone(), n_agents };
    controller_info::upsert(client, &identity.report(now, work)).await?;
    Ok(policies)
}

#[cfg(test)]
mod tests {
    use kube_io::apis::agent_info::AgentCondition;

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
        let work = Work { n_agents: 3, ..Work::default() };
        let report = serde_json::to_value(identity.report(at, work)).unwrap();
        assert_eq!(report["connectedAgentNum"], 3);
        assert_eq!(report["metadata"]["name"], "antrea-controller");
        assert_eq!(report["podRef"]["name"], "antrea-controller-0");
        assert_eq!(report["serviceRef"]["name"], "antrea");
        assert!(report.get("nodeRef").is_none());
        let condition = &report["controllerConditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["lastHeartbeatTime"], "2027-01-15T08:00:00Z");
        assert_eq!(identity.instance(), "antrea-controller-0");
    }

    #[test]
    fn an_agent_is_connected_while_it_says_so() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let up = AgentConditionType::ControllerConnectionUp;
        let said = |type_, status, ago: i64| {
            let at = Timestamp::from_second(1_800_000_000 - ago).unwrap();
            let mut agent = AntreaAgentInfo::named("node-1");
            agent.agent_conditions = vec![AgentCondition::new(type_, status, at)];
            is_connected(&agent, now)
        };
        assert!(said(up, ConditionStatus::True, 60));
        assert!(!said(up, ConditionStatus::True, 200));
        assert!(!said(up, ConditionStatus::False, 0));
        assert!(!said(AgentConditionType::AgentHealthy, ConditionStatus::True, 0));
        assert!(!is_connected(&AntreaAgentInfo::named("node-1"), now));
    }
}
