//! What a node that serves Services to everybody (`proxyAll`) has in `table inet antrea`.
//!
//! A connection to a node port gets an address that only the switch knows, and goes to it by a route
//! of [`crate::service`]. Packets to and from addresses of load balancers are not tracked, so that
//! nobody else translates them. The chains are behind those of others that translate, such as
//! kube-proxy's: while there are any, theirs come first.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;

use super::{Chain, Feature, Hook, PortSet, Rule, Set, SetFamily, Transport, quote};
use crate::service::Virtual;

/// Right after `dstnat`; the kernel knows that name at the `prerouting` hook only.
const AFTER_DSTNAT: &str = "-99";

/// The facts of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRules {
    /// The gateway interface, `antrea-gw0`.
    pub gateway: String,
    /// Addresses that stand for Services, one for each family that the node has.
    pub virtuals: Vec<Virtual>,
    /// Addresses of the node at which node ports are served; one of loopback is among them if
    /// programs of the node may use that.
    pub node_port_addresses: Vec<IpAddr>,
    /// Node ports.
    pub node_ports: BTreeSet<(Transport, u16)>,
    /// Addresses of load balancers and other ones from outside of the cluster.
    pub external: Vec<IpAddr>,
}

impl ServiceRules {
    /// The feature that [`super::apply`] takes. It holds the same chains and sets whatever the
    /// facts are, so that applying it again always replaces all of them.
    pub fn feature(&self) -> Feature {
        let set = |name: &str, family, elements: &[IpAddr]| Set {
            name: name.into(),
            family,
            elements: elements.iter().map(|ip| IpNet::from(*ip)).collect(),
        };
        let chain = |name: &str, kind, hook, priority, rules| Chain {
            name: name.into(),
            hook: Some(Hook { kind, hook, priority }),
            rules,
        };
        Feature {
            sets: vec![
                set("node-port-addresses4", SetFamily::Ipv4, &self.node_port_addresses),
                set("node-port-addresses6", SetFamily::Ipv6, &self.node_port_addresses),
                set("service-external4", SetFamily::Ipv4, &self.external),
                set("service-external6", SetFamily::Ipv6, &self.external),
            ],
            port_sets: vec![PortSet {
                name: "node-ports".into(),
                elements: self.node_ports.clone(),
            }],
            chains: vec![
                chain("service-prerouting", "nat", "prerouting", AFTER_DSTNAT, self.node_ports()),
                chain("service-output", "nat", "output", AFTER_DSTNAT, self.node_ports()),
                chain("service-postrouting", "nat", "postrouting", "srcnat", self.sources()),
                chain("service-raw-prerouting", "filter", "prerouting", "raw", self.entering()),
                chain("service-raw-output", "filter", "output", "raw", Self::untracked()),
            ],
        }
    }

    /// The names alone, for taking all of it away.
    pub fn nothing(gateway: &str) -> Self {
        Self {
            gateway: gateway.to_owned(),
            virtuals: Vec::new(),
            node_port_addresses: Vec::new(),
            node_ports: BTreeSet::new(),
            external: Vec::new(),
        }
    }

    fn node_ports(&self) -> Vec<Rule> {
        let rule = |Virtual { node_port, .. }: &Virtual| {
            let (ip, n) = if node_port.is_ipv4() { ("ip", 4) } else { ("ip6", 6) };
            Rule::new(format!(
                "{ip} daddr @node-port-addresses{n} meta l4proto . th dport @node-ports \
                 dnat {ip} to {node_port}"
            ))
            .with_comment("node ports to the switch")
        };
        self.virtuals.iter().map(rule).collect()
    }

    fn sources(&self) -> Vec<Rule> {
        let gateway = quote(&self.gateway);
        let mut rules = Vec::new();
        for Virtual { service, .. } in &self.virtuals {
            if service.is_ipv4() {
                let what = format!("oifname {gateway} ip saddr 127.0.0.0/8 masquerade");
                rules.push(Rule::new(what).with_comment("node ports of loopback"));
            }
            let ip = if service.is_ipv4() { "ip" } else { "ip6" };
            let what = format!("{ip} saddr {service} masquerade");
            rules.push(Rule::new(what).with_comment("endpoints outside the switch"));
        }
        rules
    }

    /// Loopback may reach node ports by the gateway, which makes its address routable there: nothing
    /// comes back that way.
    fn entering(&self) -> Vec<Rule> {
        let what = format!("iifname {} ip daddr 127.0.0.0/8 drop", quote(&self.gateway));
        let mut rules = vec![Rule::new(what).with_comment("loopback is the node's own")];
        rules.extend(Self::untracked());
        rules
    }

    fn untracked() -> Vec<Rule> {
        let mut rules = Vec::new();
        for (ip, n) in [("ip", 4), ("ip6", 6)] {
            for side in ["daddr", "saddr"] {
                let what = format!("{ip} {side} @service-external{n} notrack");
                rules.push(Rule::new(what).with_comment("left to the switch"));
            }
        }
        rules
    }
}

#[cfg(test)]
mod tests {
    use super::super::{remove_text, replace_text};
    use super::*;

    #[track_caller]
    fn check(name: &str, got: &str) {
        let path = format!("{}/tests/golden/{name}.nft", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, got).unwrap();
        }
        let want = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(got, want, "{path}; UPDATE_GOLDEN=1 rewrites it");
    }

    #[test]
    fn the_text_is_as_written_down() {
        let mk = |service: &str, node_port: &str| Virtual {
            service: service.parse().unwrap(),
            node_port: node_port.parse().unwrap(),
        };
        let rules = ServiceRules {
            gateway: "antrea-gw0".into(),
            virtuals: vec![
                mk("169.254.0.253", "169.254.0.252"),
                mk("fc01::aabb:ccdd:eeff", "fc01::aabb:ccdd:eefe"),
            ],
            node_port_addresses: ["172.30.0.1", "127.0.0.1", "fd00:30::1"]
                .map(|ip| ip.parse().unwrap())
                .to_vec(),
            node_ports: BTreeSet::from([
                (Transport::Tcp, 30_080),
                (Transport::Udp, 30_080),
                (Transport::Sctp, 30_081),
            ]),
            external: vec!["198.51.100.7".parse().unwrap()],
        };
        check("service-replace", &replace_text(&[rules.feature()]));
        check("service-remove", &remove_text(&[ServiceRules::nothing("antrea-gw0").feature()]));
    }
}
