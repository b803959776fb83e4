//! What we use of a Node.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::watch::Keyed;

/// What we use of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Name.
    pub name: String,
    /// UID, which a Node made anew does not share with its predecessor.
    pub uid: String,
    /// Version, for conditional writes.
    pub resource_version: String,
    /// Pod CIDRs, the first one being that of the cluster's first family.
    pub pod_cidrs: Vec<IpNet>,
    /// Addresses of type InternalIP.
    pub internal_addresses: Vec<IpAddr>,
    /// Addresses of type ExternalIP.
    pub external_addresses: Vec<IpAddr>,
    /// Addresses to use between Nodes where the Node says so itself; empty otherwise.
    pub transport_addresses: Vec<IpAddr>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations whose key is one of ours.
    pub annotations: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<Taint>,
    /// No new Pods are wanted here.
    pub unschedulable: bool,
    /// Condition Ready holds.
    pub ready: bool,
    /// Condition NetworkUnavailable holds.
    pub network_unavailable: bool,
    /// The Node is being deleted.
    pub deleting: bool,
}

impl NodeView {
    /// Addresses for traffic between Nodes: the annotated ones, else the internal ones, else the
    /// external ones.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let by_preference =
            [&self.transport_addresses, &self.internal_addresses, &self.external_addresses];
        by_preference.into_iter().find(|all| !all.is_empty()).cloned().unwrap_or_default()
    }
}

impl Keyed for NodeView {
    type Key = String;

    fn key(&self) -> String {
        self.name.clone()
    }
}

/// A taint of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value; may be empty.
    pub value: String,
    /// What it does to Pods that do not tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does to Pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaintEffect {
    /// Keeps new ones away.
    NoSchedule,
    /// Keeps new ones away where others have room.
    PreferNoSchedule,
    /// Removes running ones as well.
    NoExecute,
}
