//! Pods as policy sees them.

use std::net::IpAddr;
use std::sync::Arc;

use super::slab::ids;
use super::{CohortId, NamespaceId, NodeId};

ids! {
    /// Number of a Pod.
    pub PodId;
}

/// A Pod as the watch delivers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodInput {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Name of its ServiceAccount; empty for none.
    pub service_account: String,
    /// Name of its Node; empty while it is not scheduled.
    pub node: String,
    /// Whether it uses its Node's network.
    pub host_network: bool,
    /// Whether it is Succeeded or Failed: such a Pod keeps its addresses on paper only.
    pub finished: bool,
    /// Its addresses.
    pub ips: Vec<IpAddr>,
    /// Ports of its containers that have a name.
    pub ports: Vec<NamedPort>,
}

/// Protocol of a named port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedPort {
    /// Its name.
    pub name: Arc<str>,
    /// Its number.
    pub port: u16,
    /// Its protocol.
    pub protocol: PortProtocol,
}

/// Addresses of a Pod, in one word where it has one IPv4 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ips {
    None,
    V4(std::net::Ipv4Addr),
    Many(Box<[IpAddr]>),
}

impl Ips {
    pub(super) fn new(mut ips: Vec<IpAddr>) -> Self {
        ips.sort();
        ips.dedup();
        match ips.as_slice() {
            [] => Self::None,
            [IpAddr::V4(ip)] => Self::V4(*ip),
            _ => Self::Many(ips.into()),
        }
    }
}

/// What a group member tells of a Pod. Kept as it was for as long as somebody must be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRecord {
    pub(super) name: Box<str>,
    pub(super) namespace: Arc<str>,
    pub(super) node: Option<NodeId>,
    pub(super) ips: Ips,
    pub(super) ports: Option<Arc<[NamedPort]>>,
    pub(super) networked: bool,
}

impl PodRecord {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its Node.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// Its addresses, in order.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let (one, many) = match &self.ips {
            Ips::None => (None, [].as_slice()),
            Ips::V4(ip) => (Some(IpAddr::V4(*ip)), [].as_slice()),
            Ips::Many(ips) => (None, &ips[..]),
        };
        one.into_iter().chain(many.iter().copied())
    }

    /// Its named ports, in order.
    pub fn ports(&self) -> &[NamedPort] {
        self.ports.as_deref().unwrap_or_default()
    }

    /// Whether policy can be applied to it: it has, or will have, an interface of ours.
    pub fn is_target(&self) -> bool {
        self.networked && self.node.is_some()
    }

    /// Whether it can be a peer: it has addresses of its own.
    pub fn is_peer(&self) -> bool {
        self.networked && self.ips != Ips::None
    }
}

/// A Pod's place in the index.
#[derive(Debug)]
pub(super) struct PodSlot {
    pub(super) record: Arc<PodRecord>,
    pub(super) namespace: NamespaceId,
    pub(super) cohort: CohortId,
    /// Position in the cohort's list.
    pub(super) position: u32,
}
