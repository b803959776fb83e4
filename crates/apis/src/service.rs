//! What is used of Kubernetes' Services and EndpointSlices, with only these fields and parsed.
//!
//! Not here: reading them (`kube-io`), what a node makes of them (`services`).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Namespace and name of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl ServiceName {
    /// The Service of this namespace and name.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A protocol that Services can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl ServiceProtocol {
    /// As Kubernetes spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Sctp => "SCTP",
        }
    }

    /// Reads Kubernetes' spelling; nothing said is TCP.
    #[must_use]
    pub fn parse(text: Option<&str>) -> Option<Self> {
        match text {
            None | Some("" | "TCP") => Some(Self::Tcp),
            Some("UDP") => Some(Self::Udp),
            Some("SCTP") => Some(Self::Sctp),
            Some(_) => None,
        }
    }
}

/// `spec.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceType {
    /// Reached by its cluster addresses.
    #[default]
    ClusterIp,
    /// And by a port of every node.
    NodePort,
    /// And by addresses of a load balancer.
    LoadBalancer,
    /// A name for something else: nothing to forward.
    ExternalName,
}

/// Whom traffic goes to, by a policy of the Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrafficPolicy {
    /// Any endpoint.
    #[default]
    Cluster,
    /// Those of the node at which it arrives.
    Local,
}

/// What a load balancer does with the destination (`ipMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IngressMode {
    /// Leaves it as it is: nodes see the address.
    #[default]
    Vip,
    /// Replaces it: nodes have nothing to do with the address.
    Proxy,
}

/// How answers go back to clients of a load balancer (`service.antrea.io/load-balancer-mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadBalancerMode {
    /// By the node that they came in at.
    Nat,
    /// From the endpoint's node directly.
    Dsr,
}

/// One port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty where the Service has one port only.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: ServiceProtocol,
    /// The port of the Service.
    pub port: u16,
    /// The port of every node.
    pub node_port: Option<u16>,
}

/// What is used of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Which one.
    pub name: ServiceName,
    /// `spec.type`.
    pub kind: ServiceType,
    /// Its addresses in the cluster; none of a headless Service.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of its load balancer.
    pub ingress: Vec<(IpAddr, IngressMode)>,
    /// `spec.loadBalancerSourceRanges`; empty lets everybody in.
    pub source_ranges: Vec<IpNet>,
    /// Its ports.
    pub ports: Vec<ServicePort>,
    /// Seconds for which a client stays with its endpoint, if it does.
    pub affinity: Option<u32>,
    /// `spec.internalTrafficPolicy`.
    pub internal_policy: TrafficPolicy,
    /// `spec.externalTrafficPolicy`.
    pub external_policy: TrafficPolicy,
    /// `spec.healthCheckNodePort`.
    pub health_check_node_port: Option<u16>,
    /// What the annotation says.
    pub load_balancer_mode: Option<LoadBalancerMode>,
}

/// One server in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its address.
    pub ip: IpAddr,
    /// Wants traffic.
    pub ready: bool,
    /// Answers, though it may be about to end.
    pub serving: bool,
    /// Is about to end.
    pub terminating: bool,
    /// The node it is on.
    pub node: Option<Arc<str>>,
    /// The zones that it is meant for; empty says nothing.
    pub for_zones: Arc<[Arc<str>]>,
    /// The nodes that it is meant for; empty says nothing.
    pub for_nodes: Arc<[Arc<str>]>,
}

/// One port of all servers in a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: ServiceProtocol,
    /// Where the servers listen.
    pub port: u16,
}

/// What is used of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Namespace and name of the slice.
    pub name: SliceName,
    /// The Service whose servers these are; none belongs to nobody.
    pub service: Option<Arc<str>>,
    /// The ports.
    pub ports: Vec<SlicePort>,
    /// The servers.
    pub endpoints: Vec<SliceEndpoint>,
}

/// Namespace and name of an EndpointSlice.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceName {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}
