//! The Lease object.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::micros;

/// A Lease, with what we do not know of it kept for writing it back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = k8s_openapi::api::coordination::v1::Lease)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    api_version: String,
    kind: String,
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: LeaseSpec,
}

/// Who holds a Lease, and until when.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct LeaseSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_duration_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_transitions: Option<u32>,
    #[serde(flatten)]
    pub(crate) other: BTreeMap<String, Value>,
}

impl Lease {
    /// A Lease that nobody holds and that is not on the server.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            api_version: "coordination.k8s.io/v1".into(),
            kind: "Lease".into(),
            metadata: ObjectMeta {
                namespace: Some(namespace.into()),
                name: Some(name.into()),
                ..ObjectMeta::default()
            },
            spec: LeaseSpec::default(),
        }
    }

    /// Who holds it.
    pub fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }

    /// How often the holder changed.
    pub fn transitions(&self) -> u32 {
        self.spec.lease_transitions.unwrap_or_default()
    }

    /// Version on the server; empty if it is not there.
    pub fn resource_version(&self) -> &str {
        self.metadata.resource_version.as_deref().unwrap_or_default()
    }

    /// This Lease, held by `identity` since `now`, or renewed if it holds it already.
    #[must_use]
    pub(crate) fn held_by(&self, identity: &str, seconds: u32, now: Timestamp) -> Self {
        let mut lease = self.clone();
        let spec = &mut lease.spec;
        if self.holder() != Some(identity) {
            spec.acquire_time = Some(micros(now));
            let fresh = self.resource_version().is_empty();
            spec.lease_transitions =
                Some(if fresh { 0 } else { self.transitions().wrapping_add(1) });
        }
        spec.holder_identity = Some(identity.into());
        spec.lease_duration_seconds = Some(seconds);
        spec.renew_time = Some(micros(now));
        lease
    }

    /// This Lease, given up so that another can take it at once.
    #[must_use]
    pub(crate) fn released(&self, now: Timestamp) -> Self {
        let mut lease = self.clone();
        lease.spec.holder_identity = Some(String::new());
        lease.spec.lease_duration_seconds = Some(1);
        lease.spec.acquire_time = Some(micros(now));
        lease.spec.renew_time = Some(micros(now));
        lease
    }
}
