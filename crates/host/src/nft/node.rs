//! What every node needs in `table inet antrea`: Pods reach the outside, forwarding is allowed,
//! tunnel packets are not tracked.

use ipnet::IpNet;

use super::{Chain, Feature, Hook, Rule, Set, SetFamily, host_frames, quote};

/// How Pods' packets that leave the cluster get the node's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Masquerade {
    /// Not at all: the network routes Pod addresses.
    Off,
    /// By masquerade.
    On,
    /// By masquerade with randomly chosen source ports.
    RandomPorts,
}

/// The facts of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRules {
    /// The gateway interface, `antrea-gw0`.
    pub gateway: String,
    /// This node's Pod CIDRs.
    pub local_pod_cidrs: Vec<IpNet>,
    /// Every node's Pod CIDRs, as far as known: never translated on the way there.
    pub cluster_pod_cidrs: Vec<IpNet>,
    /// UDP port of the tunnel, if it has one.
    pub tunnel_port: Option<u16>,
    /// Translation of what leaves the cluster.
    pub masquerade: Masquerade,
}

impl NodeRules {
    /// The feature that [`super::apply`] takes. It holds the same chains and sets whatever the
    /// facts are, so that applying it again always replaces all of them.
    pub fn feature(&self) -> Feature {
        let gateway = quote(&self.gateway);
        let set = |name: &str, family, elements: &[IpNet]| Set {
            name: name.into(),
            family,
            elements: elements.to_vec(),
        };
        let chain = |name: &str, kind, hook, priority, rules| Chain {
            name: name.into(),
            hook: Some(Hook { kind, hook, priority }),
            rules,
        };
        let [host_mark, host_unmark] = host_frames::chains(&self.gateway);
        Feature {
            sets: vec![
                set("local-pod-cidrs4", SetFamily::Ipv4, &self.local_pod_cidrs),
                set("local-pod-cidrs6", SetFamily::Ipv6, &self.local_pod_cidrs),
                set("cluster-pod-cidrs4", SetFamily::Ipv4, &self.cluster_pod_cidrs),
                set("cluster-pod-cidrs6", SetFamily::Ipv6, &self.cluster_pod_cidrs),
            ],
            port_sets: Vec::new(),
            chains: vec![
                chain("tunnel-prerouting", "filter", "prerouting", "raw", self.notrack()),
                chain("tunnel-output", "filter", "output", "raw", self.notrack()),
                chain(
                    "pod-forward",
                    "filter",
                    "forward",
                    "filter",
                    vec![
                        Rule::new(format!("iifname {gateway} accept")).with_comment("from Pods"),
                        Rule::new(format!("oifname {gateway} accept")).with_comment("to Pods"),
                    ],
                ),
                chain("pod-masquerade", "nat", "postrouting", "srcnat", self.masquerade(&gateway)),
                host_mark,
                host_unmark,
            ],
        }
    }

    fn notrack(&self) -> Vec<Rule> {
        self.tunnel_port
            .map(|port| Rule::new(format!("udp dport {port} notrack")).with_comment("tunnel"))
            .into_iter()
            .collect()
    }

    fn masquerade(&self, gateway: &str) -> Vec<Rule> {
        let how = match self.masquerade {
            Masquerade::Off => return Vec::new(),
            Masquerade::On => "masquerade",
            Masquerade::RandomPorts => "masquerade fully-random",
        };
        [("ip", 4), ("ip6", 6)]
            .into_iter()
            .map(|(ip, n)| {
                Rule::new(format!(
                    "{ip} saddr @local-pod-cidrs{n} {ip} daddr != @cluster-pod-cidrs{n} \
                     oifname != {gateway} {how}"
                ))
                .with_comment("Pods to outside the cluster")
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{remove_text, replace_text};
    use super::*;

    fn mk_rules() -> NodeRules {
        NodeRules {
            gateway: "antrea-gw0".into(),
            local_pod_cidrs: vec![
                "10.77.1.0/24".parse().unwrap(),
                "fd00:77:1::/64".parse().unwrap(),
            ],
            cluster_pod_cidrs: vec![
                "10.77.1.0/24".parse().unwrap(),
                "10.77.2.0/24".parse().unwrap(),
                "10.77.3.0/24".parse().unwrap(),
                "fd00:77:1::/64".parse().unwrap(),
            ],
            tunnel_port: Some(6081),
            masquerade: Masquerade::On,
        }
    }

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
    fn replacing_dual_stack_rules() {
        check("node-replace", &replace_text(&[mk_rules().feature()]));
    }

    #[test]
    fn removing_names_every_chain_and_set() {
        check("node-remove", &remove_text(&[mk_rules().feature()]));
    }

    #[test]
    fn a_node_without_translation_or_tunnel_has_the_same_chains_without_those_rules() {
        let facts = NodeRules { masquerade: Masquerade::Off, tunnel_port: None, ..mk_rules() };
        let text = replace_text(&[facts.feature()]);
        assert!(text.contains("flush chain inet antrea pod-masquerade"), "{text}");
        assert!(!text.contains("masquerade comment") && !text.contains("notrack"), "{text}");
        let random = NodeRules { masquerade: Masquerade::RandomPorts, ..mk_rules() };
        assert!(replace_text(&[random.feature()]).contains("masquerade fully-random"));
    }
}
