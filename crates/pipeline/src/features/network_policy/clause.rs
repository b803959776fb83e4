//! Clauses of rules: the packets that an alternative takes, and the flow for it.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::{Action, ConjId, Flow, GroupId, Match, OfPort, TableId};
use serde::{Deserialize, Serialize};

use super::ports::{PortMask, PortRange};
use crate::fields::{Category, SERVICE_GROUP, TARGET_OFPORT, TO_NODE_PORT, cookie};
use crate::node::Families;

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The families in use.
    pub(crate) fn all(families: Families) -> impl Iterator<Item = Self> {
        let v4 = families.has_v4().then_some(Self::V4);
        v4.into_iter().chain(families.has_v6().then_some(Self::V6))
    }
}

/// A protocol with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];
}

/// Packets of one service, as a rule names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceSpec {
    /// A protocol with ports; without a range, any port.
    Transport {
        /// The protocol.
        protocol: Transport,
        /// Destination ports.
        dst: Option<PortRange>,
        /// Source ports.
        src: Option<PortRange>,
    },
    /// ICMP; the same type and code are meant for ICMPv6.
    Icmp {
        /// The type.
        kind: Option<u8>,
        /// The code, with a type only.
        code: Option<u8>,
    },
}

/// What a flow can match of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceMatch {
    /// The family.
    pub family: Family,
    /// The rest.
    pub l4: L4,
}

/// Protocol and ports, or type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum L4 {
    /// A protocol with ports.
    Transport {
        /// The protocol.
        protocol: Transport,
        /// Destination ports.
        dst: PortMask,
        /// Source ports.
        src: PortMask,
    },
    /// ICMP or ICMPv6.
    Icmp {
        /// The type.
        kind: Option<u8>,
        /// The code.
        code: Option<u8>,
    },
}

/// One alternative of a clause: what a flow of it matches. Small, because there are many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClauseKey {
    /// The packet's source.
    From(IpNet),
    /// The packet's destination.
    To(IpNet),
    /// The port that the packet leaves by.
    ToPort(OfPort),
    /// The service.
    Service(ServiceMatch),
    /// The Kubernetes Service that the connection was opened through, by its group. Only known on the
    /// way out, where the client is.
    ToService(GroupId),
    /// The same, if it was opened at a NodePort. Such a rule is looked at where the connection
    /// comes in, with the client's own address as its source ([`super::Place::NodePort`]).
    ToNodePort(GroupId),
}

/// The flow is an alternative of this clause of this rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clause {
    /// The rule.
    pub id: ConjId,
    /// Which clause, from 1.
    pub clause: u8,
    /// How many clauses the rule has.
    pub n_clauses: u8,
}

impl ServiceSpec {
    /// The fewest flows' matches that together take the service's packets in these families.
    #[must_use]
    pub fn matches(self, families: Families) -> Vec<ServiceMatch> {
        let mut all = Vec::new();
        for family in Family::all(families) {
            match self {
                Self::Transport { protocol, dst, src } => {
                    let masks = |range: Option<PortRange>| {
                        range.map_or_else(|| vec![PortMask::ANY], PortRange::masks)
                    };
                    let sources = masks(src);
                    for dst in masks(dst) {
                        all.extend(sources.iter().map(|src| ServiceMatch {
                            family,
                            l4: L4::Transport { protocol, dst, src: *src },
                        }));
                    }
                }
                Self::Icmp { kind, code } => {
                    let code = kind.and(code);
                    all.push(ServiceMatch { family, l4: L4::Icmp { kind, code } });
                }
            }
        }
        all
    }
}

impl ClauseKey {
    /// The source, normal: `/32` and a single address are the same.
    #[must_use]
    pub fn from_net(net: IpNet) -> Self {
        Self::From(net.trunc())
    }

    /// The destination, normal.
    #[must_use]
    pub fn to_net(net: IpNet) -> Self {
        Self::To(net.trunc())
    }

    /// The source address.
    #[must_use]
    pub fn from_ip(ip: IpAddr) -> Self {
        Self::From(IpNet::from(ip))
    }

    /// The destination address.
    #[must_use]
    pub fn to_ip(ip: IpAddr) -> Self {
        Self::To(IpNet::from(ip))
    }

    /// The match.
    #[must_use]
    pub fn matching(self) -> Match {
        match self {
            Self::From(net) => Match::new().src_net(net),
            Self::To(net) => Match::new().dst_net(net),
            Self::ToPort(port) => Match::new().reg(TARGET_OFPORT, port.0.into()),
            Self::Service(service) => service.matching(),
            Self::ToService(group) => Match::new().reg(SERVICE_GROUP, group.0.into()),
            Self::ToNodePort(group) => {
                TO_NODE_PORT.of(Match::new().reg(SERVICE_GROUP, group.0.into()))
            }
        }
    }
}

impl ServiceMatch {
    fn matching(self) -> Match {
        let v4 = self.family == Family::V4;
        match self.l4 {
            L4::Transport { protocol, dst, src } => {
                let matching = Match::new();
                let matching = match (protocol, v4) {
                    (Transport::Tcp, true) => matching.tcp(),
                    (Transport::Tcp, false) => matching.tcp6(),
                    (Transport::Udp, true) => matching.udp(),
                    (Transport::Udp, false) => matching.udp6(),
                    (Transport::Sctp, true) => matching.sctp(),
                    (Transport::Sctp, false) => matching.sctp6(),
                };
                let matching = match dst.mask {
                    0 => matching,
                    mask => matching.tp_dst_masked(dst.port, mask),
                };
                match src.mask {
                    0 => matching,
                    mask => matching.tp_src_masked(src.port, mask),
                }
            }
            L4::Icmp { kind, code } => {
                let matching = if v4 { Match::new().icmp() } else { Match::new().icmp6() };
                let matching = match kind {
                    Some(kind) => matching.icmp_type(kind),
                    None => matching,
                };
                match code {
                    Some(code) => matching.icmp_code(code),
                    None => matching,
                }
            }
        }
    }
}

/// The flow of an alternative, with the rules that have it.
#[must_use]
pub fn clause_flow(
    table: TableId,
    priority: u16,
    key: ClauseKey,
    clauses: impl IntoIterator<Item = Clause>,
) -> Flow {
    let actions = clauses.into_iter().map(|c| Action::conjunction(c.id, c.clause, c.n_clauses));
    Flow::new(table, priority, key.matching())
        .cookie(cookie(Category::NetworkPolicy, 0))
        .actions(actions)
}
