//! What Services are made of, as the flows see them.

use std::net::IpAddr;

use ipnet::IpNet;
use openflow::GroupId;
use serde::{Deserialize, Serialize};

pub use crate::features::network_policy::Transport as Protocol;

/// What forwards the packets that the switch's flows decide about. They differ in what they do when
/// two connections have become the same by translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Datapath {
    /// The kernel.
    System,
    /// ovs-vswitchd itself.
    Netdev,
}

/// What Services' flows have in common on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceConfig {
    /// The switch's datapath.
    pub datapath: Datapath,
    /// Whether Services are served to the host and to what it forwards too: all that kube-proxy
    /// does.
    pub proxy_all: bool,
    /// Addresses of this host at which NodePorts are served, loopback left out; used with
    /// `proxy_all`.
    pub node_port_addresses: Vec<IpAddr>,
    /// Whether any frontend has [`Frontend::dsr`].
    pub dsr: bool,
    /// The controller id of the connection on which packets come to the agent.
    pub controller_id: u16,
    /// How many packets a second that dial a Service without endpoints may come to the agent;
    /// without a rate there is no meter.
    pub packet_in_rate: Option<u32>,
}

/// Where an endpoint is, seen from this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Place {
    /// A Pod of this node.
    LocalPod,
    /// A Pod of another node.
    RemotePod,
    /// Wherever the host knows the way to: an address of this or another node, or outside the
    /// cluster.
    HostNetwork,
}

/// One real server. Equal ones of several Services share their flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Its port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// Where it is.
    pub place: Place,
}

/// The highest number of a Service's group. What is above belongs to the parts of groups that are
/// too large to be one.
pub const MAX_GROUP_ID: GroupId = GroupId(0x00ff_ffff);

/// Endpoints to choose from. All of one family and protocol; at least one, as an empty choice is
/// [`Target::Reject`] or [`Target::Drop`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its number: 1 to [`MAX_GROUP_ID`]. Policies know Services by it, and connections keep it.
    pub id: GroupId,
    /// The endpoints; the order means nothing.
    pub endpoints: Vec<Endpoint>,
    /// Whether clients are given the same endpoint again ([`Frontend::affinity`]).
    pub affinity: bool,
}

/// What becomes of a connection to a frontend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// It goes to an endpoint of this group.
    Group(GroupId),
    /// Its client is told that nobody serves there.
    Reject,
    /// It vanishes.
    Drop,
}

/// Where clients dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum FrontendAddress {
    /// This address.
    Ip(IpAddr),
    /// All of this node's NodePort addresses of a family.
    NodePort {
        /// Whether the IPv6 ones.
        ipv6: bool,
    },
}

/// One address and port at which a Service is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frontend {
    /// The address.
    pub address: FrontendAddress,
    /// The protocol.
    pub protocol: Protocol,
    /// The port.
    pub port: u16,
    /// Whether it is meant for clients outside the cluster: a NodePort, a load balancer's address
    /// or an external address.
    pub external: bool,
    /// Where connections go.
    pub target: Target,
    /// Where those of this node's Pods and of the host itself go, if elsewhere. With the external
    /// traffic policy `Local` they have all endpoints to choose from; not where an address is the
    /// load balancer's own business (`ipMode: Proxy`).
    pub local_clients: Option<Target>,
    /// For how many seconds a client is given the same endpoint again.
    pub affinity: Option<u16>,
    /// The only sources that are served; any when there are none.
    pub source_ranges: Vec<IpNet>,
    /// Endpoints answer clients by themselves (direct server return): where connections go that another
    /// node sends here to be served. That is one of this node's endpoints, or nowhere if it has none.
    pub dsr: Option<Target>,
}

impl FrontendAddress {
    /// Whether it is of IPv6.
    #[must_use]
    pub const fn is_ipv6(self) -> bool {
        match self {
            Self::Ip(ip) => ip.is_ipv6(),
            Self::NodePort { ipv6 } => ipv6,
        }
    }
}
