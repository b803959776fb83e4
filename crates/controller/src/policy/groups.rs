//! The groups that users named, as their objects are: who they are, and what their status says.
//!
//! The leader writes the condition `GroupMembersComputed` where it is not as it should be. Which
//! members a group has is `policy::translate`'s.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use antrea_runtime::CancellationToken;
use apis::common::{Timestamp, whole_seconds};
use apis::policy::{Condition, GroupStatus};
use kube_io::Client;
use kube_io::policy_status::{self, StatusOf};
use policy::translate::Engine;

use super::state::State;

/// The condition.
const COMPUTED: &str = "GroupMembersComputed";
/// Changes are gathered for so long.
const PACE: Duration = Duration::from_millis(100);
/// Time before a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A group's object, apart from its members.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GroupFacts {
    pub(super) uid: String,
    pub(super) status: Option<GroupStatus>,
}

/// By namespace (empty for a ClusterGroup) and name.
pub(super) type GroupsSeen = BTreeMap<(String, String), GroupFacts>;

/// What the leader does: writes the conditions that are not as they should be.
pub(crate) async fn write(client: Client, state: Arc<State>, stop: CancellationToken) {
    let mut changed = state.groups_changed();
    loop {
        changed.borrow_and_update();
        let mut pause = PACE;
        for ((namespace, name), uid, status) in wanted(&state) {
            let namespace = Some(namespace.as_str()).filter(|text| !text.is_empty());
            let of = StatusOf { namespace, name: &name, uid: &uid };
            match policy_status::write_group(&client, &of, &status).await {
                Ok(()) => {}
                // It is gone, or another one has its name: the watch will tell.
                Err(error) if error.is_not_found() || error.is_conflict() => {}
                Err(error) => {
                    tracing::warn!(group = name, error = %error.chain(), "write status");
                    pause = RETRY;
                }
            }
        }
        let next = async {
            match pause == RETRY {
                true => tokio::time::sleep(pause).await,
                false => {
                    let _ = changed.changed().await;
                    tokio::time::sleep(pause).await;
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = next => {}
        }
    }
}

/// Groups whose condition is to be written, with it.
fn wanted(state: &State) -> Vec<((String, String), String, GroupStatus)> {
    if !state.is_complete() {
        return Vec::new();
    }
    let seen = state.groups_seen();
    let store = state.lock();
    let wanted = seen.into_iter().filter_map(|(key, facts)| {
        let condition = condition(store.engine(), &key.0, &key.1);
        let conditions = facts.status.map(|status| status.conditions).unwrap_or_default();
        let now = conditions.iter().find(|own| own.type_ == COMPUTED);
        if now.is_some_and(|now| says(now) == says(&condition)) {
            return None;
        }
        let others = conditions.into_iter().filter(|own| own.type_ != COMPUTED);
        let conditions = others.chain([condition]).collect();
        Some((key, facts.uid, GroupStatus { conditions }))
    });
    wanted.collect()
}

/// What a condition says, whenever it began.
fn says(condition: &Condition) -> (&str, Option<&str>, Option<&str>) {
    (&condition.status, condition.reason.as_deref(), condition.message.as_deref())
}

fn condition(engine: &Engine, namespace: &str, name: &str) -> Condition {
    let (status, reason, message) = if engine.nests_too_deep(namespace, name) {
        let problems = engine.named_problems(namespace, name);
        ("False", Some("ChildGroupsNestingExceeded".to_owned()), Some(problems.join("; ")))
    } else {
        ("True", None, None)
    };
    Condition {
        type_: COMPUTED.to_owned(),
        status: status.to_owned(),
        last_transition_time: Some(whole_seconds(Timestamp::now())),
        reason,
        message,
    }
}
