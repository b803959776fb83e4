//! What every Pod of the node has in common.

use std::net::IpAddr;

use ipnet::IpNet;

use super::model::PodAddress;

/// The node's Pod network, as far as a Pod's interface depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeNetwork {
    /// MTU of Pods.
    pub mtu: u32,
    /// Prefixes of this node's Pods, at most one of each family.
    pub pod_cidrs: Vec<IpNet>,
    /// Addresses of antrea-gw0, at most one of each family.
    pub gateways: Vec<IpAddr>,
}

impl NodeNetwork {
    /// The address of a Pod with its prefix length and gateway; none when the node's prefixes do
    /// not hold it, as after a change of the node's Pod CIDR.
    pub fn address(&self, ip: IpAddr) -> Option<PodAddress> {
        let cidr = self.pod_cidrs.iter().find(|cidr| cidr.contains(&ip))?;
        let gateway =
            self.gateways.iter().copied().find(|gateway| gateway.is_ipv4() == ip.is_ipv4())?;
        let address = IpNet::new(ip, cidr.prefix_len()).ok()?;
        Some(PodAddress { address, gateway })
    }

    /// All addresses of a Pod, or none when one of them is not of this node.
    pub fn addresses(&self, ips: &[IpAddr]) -> Option<Vec<PodAddress>> {
        ips.iter().map(|ip| self.address(*ip)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_completed_by_the_nodes_prefix_and_gateway() {
        let network = NodeNetwork {
            mtu: 1450,
            pod_cidrs: vec!["10.77.1.0/24".parse().unwrap(), "fd77:1::/64".parse().unwrap()],
            gateways: vec!["10.77.1.1".parse().unwrap(), "fd77:1::1".parse().unwrap()],
        };
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let address = network.address(ip("10.77.1.5")).unwrap();
        assert_eq!(address.address.to_string(), "10.77.1.5/24");
        assert_eq!(address.gateway, ip("10.77.1.1"));
        assert_eq!(network.address(ip("fd77:1::5")).unwrap().gateway, ip("fd77:1::1"));
        assert_eq!(network.address(ip("10.77.2.5")), None);
        assert_eq!(network.addresses(&[ip("10.77.1.5"), ip("10.0.0.1")]), None);
    }
}
