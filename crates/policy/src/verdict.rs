//! Answers whether one end may connect to another, straight from a user's objects.
//!
//! This is the reference that the rest is checked against, so it shares no code with it: it imports
//! only `apis`, follows the objects' documentation, and keeps no index. The rest of the way, from
//! objects to what agents enforce, is `policy::translate`, `policy::realize` and `pipeline`.
//!
//! A connection is decided twice: by the egress rules of its source, then by the ingress rules of
//! its destination. Each side goes through three stages, and the first rule that matches decides:
//!
//! 1. Antrea's policies of tiers below `baseline`, and `ClusterNetworkPolicy` of the Admin tier as
//!    if of a tier with priority 220. A rule with `Pass` hands on to stage 2, past all the others.
//! 2. Kubernetes' NetworkPolicies. They only allow, so their order means nothing; what a Pod that
//!    one of them selects is not allowed is dropped, and stage 3 does not follow.
//! 3. Antrea's policies of tier `baseline` (253), then `ClusterNetworkPolicy` of the Baseline tier
//!    (254). A rule with `Pass` of the latter ends in what follows all stages: the traffic passes.
//!
//! Rules of stages 1 and 3 are ordered by
//!
//! 1. priority of the tier,
//! 2. priority of the policy,
//! 3. place of the rule among those of its direction in its policy,
//! 4. action: `Drop`, `Reject`, `Pass`, `Allow`,
//! 5. kind (Antrea's cluster-wide, Antrea's namespaced, Kubernetes' cluster-wide), Namespace, name.
//!
//! So two policies with the same priorities are decided by their rules' places and then by the
//! stricter action, whatever the objects are called and whenever they were made; names settle only
//! who is credited. Priorities in the switch are needed for the first four, not for the fifth.
//!
//! What cannot be meant matches nothing, is never taken for "any", and is listed as a [`Problem`]:
//! an action, protocol or operator that nobody knows, a network that is none, a group or tier that
//! is not there, fields that exclude each other, and what is not supported yet.
//!
//! Ends: a Pod that has finished is no end. A Pod in its Node's network is neither a target nor
//! selected by labels; it counts by its address. `ipBlock` matches by address, whoever owns it; in an
//! egress rule it knows no ports by name. A Node always reaches its own Pods, and a Pod itself.

use std::net::IpAddr;

use apis::common::Protocol;
use apis::controlplane::{Direction, NetworkPolicyReference};

mod antrea;
mod cluster;
mod compile;
mod decide;
mod group;
mod kubernetes;
mod ports;
mod rule;
mod selector;
mod upstream;
mod words;

pub(crate) use cluster::PodInfo;
pub(crate) use decide::{Subject, allowed};

pub use cluster::{Cluster, Objects, PodId};
pub use decide::{Part, Side};
pub use ports::{ConnectionSet, PortSet};

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// It is made.
    Allow,
    /// It is discarded without a word.
    Drop,
    /// It is discarded and the source is told.
    Reject,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A Pod of the cluster.
    Pod(PodId),
    /// An address of no Pod.
    Addr(IpAddr),
}

/// A family of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(addr: IpAddr) -> Self {
        if addr.is_ipv4() { Self::V4 } else { Self::V6 }
    }
}

/// What a connection is made with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Traffic {
    /// The protocol.
    pub protocol: Protocol,
    /// Destination port; of ICMP, type (high byte) and code (low byte).
    pub port: u16,
    /// Source port; without it, one that no rule speaks of.
    pub source_port: Option<u16>,
    /// Family; without it, the first that both ends have.
    pub family: Option<Family>,
}

impl Traffic {
    /// Traffic of a protocol to a port.
    pub fn new(protocol: Protocol, port: u16) -> Self {
        Self { protocol, port, source_port: None, family: None }
    }

    /// Traffic to a TCP port.
    pub fn tcp(port: u16) -> Self {
        Self::new(Protocol::Tcp, port)
    }

    /// Traffic to a UDP port.
    pub fn udp(port: u16) -> Self {
        Self::new(Protocol::Udp, port)
    }

    /// Traffic to an SCTP port.
    pub fn sctp(port: u16) -> Self {
        Self::new(Protocol::Sctp, port)
    }

    /// A message of ICMP, or of ICMPv6 between IPv6 addresses.
    pub fn icmp(type_: u8, code: u8) -> Self {
        Self::new(Protocol::Icmp, u16::from_be_bytes([type_, code]))
    }

    /// The same from this port.
    #[must_use]
    pub fn from_port(self, port: u16) -> Self {
        Self { source_port: Some(port), ..self }
    }

    /// The same in this family.
    #[must_use]
    pub fn over(self, family: Family) -> Self {
        Self { family: Some(family), ..self }
    }

    /// Whether a set has this traffic in it.
    pub fn is_in(&self, set: &ConnectionSet) -> bool {
        match self.protocol {
            Protocol::Tcp => set.tcp.contains(self.port),
            Protocol::Udp => set.udp.contains(self.port),
            Protocol::Sctp => set.sctp.contains(self.port),
            Protocol::Icmp => set.icmp.contains(self.port),
            Protocol::Igmp | Protocol::Unknown(_) => set.other,
        }
    }
}

/// A rule that decided.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleRef {
    /// Its policy.
    pub policy: NetworkPolicyReference,
    /// Its direction.
    pub direction: Direction,
    /// Its place among the rules of that direction.
    pub index: usize,
    /// Its name.
    pub name: Option<String>,
}

/// Why a side decided as it did.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No policy has anything to say.
    Default,
    /// This rule matches.
    Rule(std::sync::Arc<RuleRef>),
    /// A NetworkPolicy selects the Pod, and none that does allows it.
    Isolation(std::sync::Arc<NetworkPolicyReference>),
    /// Both ends are the same Pod.
    SamePod,
    /// The source is the Node of the Pod.
    OwnNode,
}

/// What one side of a connection decides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Decision {
    /// What happens.
    pub action: Action,
    /// Why.
    pub reason: Reason,
}

impl Decision {
    /// Traffic passes, and this is why.
    pub(crate) fn allow(reason: Reason) -> Self {
        Self { action: Action::Allow, reason }
    }
}

/// What happens to a connection, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What the rules about the source say.
    pub egress: Decision,
    /// What those about the destination say; they are not asked after a refusal.
    pub ingress: Option<Decision>,
}

impl Verdict {
    /// What happens.
    pub fn action(&self) -> Action {
        self.deciding().1.action
    }

    /// The side that decided: the one that refuses, else the one that has a rule to name.
    pub fn deciding(&self) -> (Direction, &Decision) {
        match &self.ingress {
            None => (Direction::Out, &self.egress),
            Some(ingress)
                if ingress.action == Action::Allow
                    && ingress.reason == Reason::Default
                    && self.egress.reason != Reason::Default =>
            {
                (Direction::Out, &self.egress)
            }
            Some(ingress) => (Direction::In, ingress),
        }
    }
}

/// Something in an object that matches nothing, because it cannot be meant or is not supported.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Kind of the object.
    pub kind: &'static str,
    /// API group of the kind.
    pub group: &'static str,
    /// Namespace of the object; empty for a cluster-wide one.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Part of the object, as `ingress[0].from[1]`.
    pub field: String,
    /// What is wrong with it.
    pub reason: String,
    /// Whether it is a mistake.
    pub severity: Severity,
}

/// How bad a [`Problem`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The object cannot be meant as it is written, or asks for what is not supported.
    Fault,
    /// What it asks for depends on what is only known at run time.
    Unknowable,
}

#[cfg(test)]
mod tests;
