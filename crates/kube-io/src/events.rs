//! Events: what happened to an object, for people who ask about it.

use jiff::Timestamp;
use serde_json::json;

use apis::common::ObjectReference;

use crate::call::Call;
use crate::client::Client;
use crate::error::{ApiError, Verb};
use crate::time::seconds;

/// Namespace of Events about objects that have none.
const CLUSTER_NAMESPACE: &str = "default";

/// Whether an Event tells of something wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// All is well.
    Normal,
    /// Somebody should look at it.
    Warning,
}

/// Something that happened to an object.
#[derive(Clone, Debug)]
pub struct Event {
    /// The object; its UID makes `kubectl describe` show the Event.
    pub regarding: ObjectReference,
    /// Whether it tells of something wrong.
    pub kind: EventKind,
    /// What happened, in one word.
    pub reason: String,
    /// What happened, for people.
    pub message: String,
    /// Program that saw it, such as `antrea-agent`.
    pub component: String,
    /// Node or Pod of that program.
    pub instance: String,
}

/// Posts an Event that happens `now`.
///
/// # Errors
/// When the server refuses.
pub async fn post(client: &Client, event: &Event, now: Timestamp) -> Result<(), ApiError> {
    let namespace = event.regarding.namespace.as_deref().unwrap_or(CLUSTER_NAMESPACE);
    let object = event.regarding.name.as_deref().unwrap_or("unknown");
    // As clients do: unique by time, and by chance where two happen at once.
    let unique = now.as_nanosecond().unsigned_abs() ^ u128::from(rand::random::<u32>());
    let kind = match event.kind {
        EventKind::Normal => "Normal",
        EventKind::Warning => "Warning",
    };
    let body = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": format!("{object}.{unique:x}")},
        "involvedObject": event.regarding,
        "type": kind,
        "reason": event.reason,
        "message": event.message,
        "source": {"component": event.component, "host": event.instance},
        "reportingComponent": event.component,
        "reportingInstance": event.instance,
        "action": event.reason,
        "count": 1,
        "firstTimestamp": seconds(now),
        "lastTimestamp": seconds(now),
    });
    Call::to(Verb::Create, "", "v1", "events").namespace(namespace).object(&body).run(client).await
}
