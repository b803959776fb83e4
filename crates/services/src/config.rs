//! What a proxy is told once.

use std::net::IpAddr;
use std::sync::Arc;

use apis::service::{LoadBalancerMode, Service};
use pipeline::Families;

/// A Service that is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Skip {
    /// By one of its cluster addresses.
    ClusterIp(IpAddr),
    /// By namespace and name.
    Name(String, String),
}

impl Skip {
    /// Reads a cluster address or `namespace/name`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(ip) = text.parse() {
            return Some(Self::ClusterIp(ip));
        }
        let (namespace, name) = text.split_once('/')?;
        let fits = |part: &str| !part.is_empty() && !part.contains('/');
        (fits(namespace) && fits(name)).then(|| Self::Name(namespace.into(), name.into()))
    }

    pub(crate) fn matches(&self, service: &Service) -> bool {
        match self {
            Self::ClusterIp(ip) => service.cluster_ips.contains(ip),
            Self::Name(namespace, name) => {
                *service.name.namespace == **namespace && *service.name.name == **name
            }
        }
    }
}

/// What a proxy is told once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of this node.
    pub node: Arc<str>,
    /// The families of Pods; what is of another family is not served.
    pub families: Families,
    /// Whether NodePorts and external addresses are served, for nodes and outside clients too.
    pub proxy_all: bool,
    /// Whether addresses of load balancers are served.
    pub proxy_load_balancer_ips: bool,
    /// Services that are left alone.
    pub skip: Vec<Skip>,
    /// Whether endpoints that are meant for single nodes are preferred there (PreferSameNode).
    pub node_hints: bool,
    /// How answers go back to outside clients unless a Service says; none allows no other way than
    /// by the node that they came in at.
    pub load_balancer_mode: Option<LoadBalancerMode>,
}

impl Config {
    /// The usual settings for a node.
    #[must_use]
    pub fn new(node: &str, families: Families) -> Self {
        Self {
            node: node.into(),
            families,
            proxy_all: false,
            proxy_load_balancer_ips: true,
            skip: Vec::new(),
            node_hints: false,
            load_balancer_mode: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_to_skip() {
        let name = |namespace: &str, name: &str| Some(Skip::Name(namespace.into(), name.into()));
        for (text, want) in [
            ("10.96.0.1", Some(Skip::ClusterIp("10.96.0.1".parse().unwrap()))),
            ("fd00::1", Some(Skip::ClusterIp("fd00::1".parse().unwrap()))),
            ("kube-system/dns", name("kube-system", "dns")),
            ("dns", None),
            ("/dns", None),
            ("a/", None),
            ("a/b/c", None),
            ("", None),
        ] {
            assert_eq!(Skip::parse(text), want, "{text}");
        }
    }
}
