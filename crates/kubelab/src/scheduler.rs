//! Puts Pods on nodes, through the API like any other client.
//!
//! A node is fit when it is ready, its taints are tolerated, and node selector and required node
//! affinity match; of the fit ones the one with the fewest Pods is taken. Affinity between Pods is
//! not known here: such a Pod stays pending, and its condition says why.

mod fit;

use std::collections::BTreeMap;
use std::time::Duration;

use apiserver::meta;
use apiserver::query::percent_encode;
use hyper::Method;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::client::{Client, ClientError, Credential, Lines};

/// The name that Pods name this scheduler by.
const NAME: &str = "default-scheduler";
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_millis(300);

/// Where and as whom the scheduler works.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    /// URL of the API server, as `https://127.0.0.1:6443`.
    pub server: String,
    /// Certificate of the cluster's authority, PEM.
    pub ca_pem: String,
    /// Bearer token; of `kube-system/kube-scheduler`, whose role exists from the start.
    pub token: String,
}

/// Runs until `stop` is cancelled; failures are logged and tried again.
pub async fn run(options: SchedulerOptions, stop: CancellationToken) -> Result<(), ClientError> {
    let credential = Credential::Token(options.token);
    let client = Client::new(&options.server, &options.ca_pem, credential)?;
    loop {
        let session = async {
            let mut view = View::load(&client).await?;
            view.follow(&client).await
        };
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            ended = session => {
                if let Err(error) = ended {
                    tracing::warn!(error = &error as &dyn std::error::Error, "scheduler session");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// What the scheduler knows.
struct View {
    nodes: BTreeMap<String, Value>,
    pods: BTreeMap<String, Value>,
    node_events: Lines,
    pod_events: Lines,
}

fn id(object: &Value) -> String {
    format!("{}/{}", meta::namespace(object), meta::name(object))
}

async fn list(
    client: &Client,
    path: &str,
) -> Result<(BTreeMap<String, Value>, Lines), ClientError> {
    let list = client.json(Method::GET, path, "application/json", None).await?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let objects = items.into_iter().map(|object| (id(&object), object)).collect();
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or("");
    let watch = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    Ok((objects, client.watch(&watch, "application/json").await?))
}

impl View {
    async fn load(client: &Client) -> Result<Self, ClientError> {
        let (nodes, node_events) = list(client, "/api/v1/nodes").await?;
        let (pods, pod_events) = list(client, "/api/v1/pods").await?;
        Ok(Self { nodes, pods, node_events, pod_events })
    }

    /// Schedules until a watch ends.
    async fn follow(&mut self, client: &Client) -> Result<(), ClientError> {
        loop {
            self.schedule(client).await?;
            let (objects, event) = tokio::select! {
                event = self.node_events.next() => (&mut self.nodes, event?),
                event = self.pod_events.next() => (&mut self.pods, event?),
            };
            let Some(mut event) = event else { return Ok(()) };
            let mut object = event["object"].take();
            match event["type"].as_str() {
                Some("ADDED" | "MODIFIED") => {
                    if let Some(known) = objects.get(&id(&object)) {
                        keep_node(known, &mut object);
                    }
                    objects.insert(id(&object), object);
                }
                Some("DELETED") => {
                    objects.remove(&id(&object));
                }
                Some("BOOKMARK") => {}
                _ => return Ok(()), // Too old: everything is read again.
            }
        }
    }

    async fn schedule(&mut self, client: &Client) -> Result<(), ClientError> {
        let pending: Vec<String> = self
            .pods
            .iter()
            .filter(|(_, pod)| {
                let spec = &pod["spec"];
                spec["nodeName"].as_str().unwrap_or("").is_empty()
                    && spec["schedulerName"] == NAME
                    && !meta::is_deleting(pod)
                    && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in pending {
            let Some(pod) = self.pods.get(&key) else { continue };
            match fit::choose(pod, &self.nodes, &self.pods) {
                Ok(node) => {
                    if bind(client, pod, &node).await?
                        && let Some(pod) = self.pods.get_mut(&key)
                    {
                        pod["spec"]["nodeName"] = json!(node);
                    }
                }
                Err(why) => tell(client, pod, &why).await?,
            }
        }
        Ok(())
    }
}

/// Keeps the node that a Pod is known to be bound to: a binding of ours is known before its event, and
/// an older event that comes in between must not make the Pod look free again.
fn keep_node(known: &Value, object: &mut Value) {
    let node = &known["spec"]["nodeName"];
    if node.is_string() && meta::uid(known) == meta::uid(object) {
        object["spec"]["nodeName"] = node.clone();
    }
}

fn pod_path(pod: &Value, part: &str) -> String {
    let (namespace, name) = (percent_encode(meta::namespace(pod)), percent_encode(meta::name(pod)));
    format!("/api/v1/namespaces/{namespace}/pods/{name}/{part}")
}

/// Binds a Pod; false when it changed meanwhile, which its next event tells more about.
async fn bind(client: &Client, pod: &Value, node: &str) -> Result<bool, ClientError> {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding",
        "metadata": { "name": meta::name(pod), "uid": meta::uid(pod) },
        "target": { "apiVersion": "v1", "kind": "Node", "name": node },
    });
    let path = pod_path(pod, "binding");
    match client.json(Method::POST, &path, "application/json", Some(&body)).await {
        Ok(_) => {
            tracing::info!(pod = id(pod), node, "scheduled");
            Ok(true)
        }
        Err(ClientError::Refused { code: 404 | 409, message }) => {
            tracing::debug!(pod = id(pod), message, "not bound");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Says in a Pod's condition why it is not scheduled, once.
async fn tell(client: &Client, pod: &Value, why: &str) -> Result<(), ClientError> {
    let conditions = pod["status"]["conditions"].as_array();
    let known = conditions.is_some_and(|all| {
        all.iter().any(|condition| {
            condition["type"] == "PodScheduled"
                && condition["status"] == "False"
                && condition["message"] == why
        })
    });
    if known {
        return Ok(());
    }
    let body = json!({ "status": { "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastTransitionTime": meta::now(),
    }] } });
    let media_type = "application/strategic-merge-patch+json";
    let path = pod_path(pod, "status");
    match client.json(Method::PATCH, &path, media_type, Some(&body)).await {
        Ok(_) => post_event(client, pod, why).await,
        Err(ClientError::Refused { code: 404 | 409, .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Tells by an Event why a Pod is not scheduled: what `kubectl describe` shows.
async fn post_event(client: &Client, pod: &Value, why: &str) -> Result<(), ClientError> {
    let (namespace, name, now) = (meta::namespace(pod), meta::name(pod), meta::now());
    let body = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {
            "namespace": namespace,
            "name": format!("{name}.{}", uuid::Uuid::new_v4().simple()),
        },
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name,
            "uid": meta::uid(pod),
        },
        "type": "Warning", "reason": "FailedScheduling", "message": why,
        "source": { "component": NAME }, "reportingComponent": NAME, "action": "Scheduling",
        "count": 1, "firstTimestamp": now, "lastTimestamp": now,
    });
    let path = format!("/api/v1/namespaces/{}/events", percent_encode(namespace));
    match client.json(Method::POST, &path, "application/json", Some(&body)).await {
        // An Event is a help for people: without the right to post it Pods are placed all the same.
        Ok(_) | Err(ClientError::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::keep_node;

    #[test]
    fn a_binding_outlives_older_events_of_the_same_pod_only() {
        let known = json!({ "metadata": { "uid": "1" }, "spec": { "nodeName": "node-1" } });
        let mut same = json!({ "metadata": { "uid": "1" }, "spec": {} });
        keep_node(&known, &mut same);
        assert_eq!(same["spec"]["nodeName"], "node-1");
        let mut successor = json!({ "metadata": { "uid": "2" }, "spec": {} });
        keep_node(&known, &mut successor);
        assert!(successor["spec"]["nodeName"].is_null());
    }
}
