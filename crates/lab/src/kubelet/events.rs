//! Events of Pods: what `kubectl describe` shows below a Pod.
//!
//! Posted on the side: a Pod never waits for them, and a lost one is not sent again.

use jiff::Timestamp;
use kube_io::apis::common::ObjectReference;
use kube_io::events::{Event, EventKind, post};

use super::Kubelet;
use crate::sandbox::PodIdentity;

/// Tells that something went as it should.
pub(super) fn normal(kubelet: &Kubelet, pod: &PodIdentity, reason: &str, message: String) {
    tell(kubelet, pod, EventKind::Normal, reason, message);
}

/// Tells that something went wrong.
pub(super) fn warning(kubelet: &Kubelet, pod: &PodIdentity, reason: &str, message: String) {
    tell(kubelet, pod, EventKind::Warning, reason, message);
}

fn tell(kubelet: &Kubelet, pod: &PodIdentity, kind: EventKind, reason: &str, message: String) {
    let event = Event {
        regarding: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        },
        kind,
        reason: reason.into(),
        message,
        component: "kubelet".into(),
        instance: kubelet.node.clone(),
    };
    let client = kubelet.client.clone();
    tokio::spawn(async move {
        if let Err(error) = post(&client, &event, Timestamp::now()).await {
            tracing::warn!(error = %error.chain(), "post an event");
        }
    });
}
