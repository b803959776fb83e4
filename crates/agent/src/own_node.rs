//! What the agent needs of its own entry in the list of nodes before the network can come up, and
//! the addresses that are this node.
//!
//! Pure but for the waiting. Addresses come from the transport interface and from the list; both
//! are late at times (a kubelet that has just registered its node lists no address yet), so what
//! counts is what follows from them, not the lists themselves.

use std::collections::BTreeSet;
use std::net::IpAddr;

use antrea_config::AgentConfig;
use anyhow::{Context, Result};
use host::netlink::Rtnl;
use host::uplink::{Transport, Uplink};
use tokio::sync::watch;

use crate::nodes::{ClusterNode, NodeList};

/// What the node's flows and tunnels take from its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddresses {
    /// Where tunnels of other nodes end.
    pub transport: IpAddr,
    /// Every address that is the node itself.
    pub node_ips: BTreeSet<IpAddr>,
}

impl OwnAddresses {
    /// Joins the transport interface's addresses with the `listed` ones. The transport address is
    /// the first listed one that the interface has, else the interface's first IPv4, else its first
    /// IPv6 address; `None` when the interface has no address at all.
    #[must_use]
    pub fn of(uplink: &Uplink, listed: &[IpAddr]) -> Option<Self> {
        let on_uplink: BTreeSet<IpAddr> = uplink.addresses.iter().map(|a| a.net.addr()).collect();
        let (ipv4, ipv6) = uplink.primary();
        let first_listed = listed.iter().copied().find(|ip| on_uplink.contains(ip));
        let transport = first_listed.or_else(|| ipv4.or(ipv6).map(|net| net.addr()))?;
        let node_ips = on_uplink.into_iter().chain(listed.iter().copied()).collect();
        Some(Self { transport, node_ips })
    }

    /// Says in words what is different in `now`, or `None`.
    #[must_use]
    pub fn change_to(&self, now: &Self) -> Option<String> {
        if self.transport != now.transport {
            return Some(format!(
                "the transport address of this node changed from {} to {}",
                self.transport, now.transport
            ));
        }
        (self.node_ips != now.node_ips).then(|| {
            format!(
                "the addresses of this node changed from {:?} to {:?}",
                self.node_ips, now.node_ips
            )
        })
    }
}

/// Those of the `listed` addresses of this node that none of its interfaces has.
pub(crate) fn nowhere(rtnl: &Rtnl, listed: &[IpAddr]) -> Vec<IpAddr> {
    match host::address::list(rtnl, None) {
        Ok(there) => {
            let is_there = |ip: &IpAddr| there.iter().any(|address| address.net.addr() == *ip);
            listed.iter().copied().filter(|ip| !is_there(ip)).collect()
        }
        Err(error) => {
            tracing::debug!(%error, "list the node's addresses");
            Vec::new()
        }
    }
}

/// What says which interface carries the traffic to other nodes.
pub(crate) enum UplinkBy {
    /// The mark that whoever prepared a node for the userspace datapath has left.
    Mark(String),
    /// The configuration.
    Config(Transport),
    /// The node's addresses in the list of nodes.
    NodeIps,
}

impl UplinkBy {
    pub(crate) fn of(config: &AgentConfig, mark: Option<&String>) -> Self {
        if let Some(name) = mark {
            Self::Mark(name.clone())
        } else if let Some(name) = &config.transport_interface {
            Self::Config(Transport::Name(name.clone()))
        } else if !config.transport_interface_cidrs.is_empty() {
            Self::Config(Transport::Cidrs(config.transport_interface_cidrs.clone()))
        } else {
            Self::NodeIps
        }
    }

    /// What the node's entry in the list must still get before it has what is wanted.
    fn lacks(&self, own: Option<&ClusterNode>, wanted: Wanted) -> Option<&'static str> {
        match own {
            None => Some("is not known yet; does kubelet run there?"),
            Some(own) if own.pod_cidrs.is_empty() && wanted == Wanted::PodCidrs => {
                Some("has no Pod CIDR yet; is Node IPAM enabled somewhere?")
            }
            Some(own) if own.addresses.is_empty() && matches!(self, Self::NodeIps) => Some(
                "has no address yet; transportInterface names the interface where kubelet cannot",
            ),
            Some(_) => None,
        }
    }
}

/// What is needed of the node's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The addresses that the uplink is found by.
    Addresses,
    /// These, and Pod CIDRs.
    PodCidrs,
}

/// Waits until the list of nodes has this one with what is wanted of it.
pub(crate) async fn own_node(
    mut nodes_rx: watch::Receiver<NodeList>,
    name: &str,
    by: &UplinkBy,
    wanted: Wanted,
) -> Result<ClusterNode> {
    let mut said = None;
    loop {
        let nodes = nodes_rx.borrow_and_update().clone();
        let own = nodes.as_ref().and_then(|nodes| nodes.iter().find(|node| node.name == name));
        let lacks = by.lacks(own, wanted);
        match own {
            Some(own) if lacks.is_none() => return Ok(own.clone()),
            _ => {
                if nodes.is_some() && said != lacks {
                    said = lacks;
                    tracing::warn!("node {name} {}", lacks.unwrap_or_default());
                }
                nodes_rx.changed().await.context("the list of nodes ended")?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use host::address::Address;
    use host::mac::IfIndex;

    use super::*;

    fn mk_uplink(addresses: &[&str]) -> Uplink {
        let address = |text: &&str| Address::new(IfIndex(2), text.parse().unwrap());
        Uplink {
            index: IfIndex(2),
            name: "eth0".into(),
            mtu: 1500,
            mac: None,
            addresses: addresses.iter().map(address).collect(),
            routes: Vec::new(),
        }
    }

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn what_the_entry_still_lacks() {
        let mk = |cidr: &str, addresses: &[&str]| ClusterNode {
            name: "own".into(),
            pod_cidrs: cidr.parse().into_iter().collect(),
            addresses: ips(addresses),
            zone: None,
        };
        let mark = UplinkBy::Mark("eth0".into());
        let lacks = |by: &UplinkBy, own: ClusterNode| {
            by.lacks(Some(&own), Wanted::PodCidrs).unwrap_or("nothing")
        };
        let early = |by: &UplinkBy, own: ClusterNode| {
            by.lacks(Some(&own), Wanted::Addresses).unwrap_or("nothing")
        };
        assert_eq!(early(&mark, mk("", &[])), "nothing");
        assert_eq!(early(&UplinkBy::NodeIps, mk("", &["172.30.0.1"])), "nothing");
        assert!(early(&UplinkBy::NodeIps, mk("", &[])).starts_with("has no address"));
        assert!(mark.lacks(None, Wanted::Addresses).unwrap().starts_with("is not known"));
        assert!(lacks(&mark, mk("", &["172.30.0.1"])).starts_with("has no Pod CIDR"));
        assert_eq!(lacks(&mark, mk("10.1.0.0/24", &[])), "nothing");
        assert!(lacks(&UplinkBy::NodeIps, mk("10.1.0.0/24", &[])).starts_with("has no address"));
        assert_eq!(lacks(&UplinkBy::NodeIps, mk("10.1.0.0/24", &["172.30.0.1"])), "nothing");
    }

    #[test]
    fn what_a_list_changes() {
        let uplink = mk_uplink(&["172.30.0.1/24", "172.30.0.7/24", "fd00::1/64"]);
        for (name, before, now, want) in [
            ("the same", &["172.30.0.1", "fd00::1"][..], &["172.30.0.1", "fd00::1"][..], None),
            ("nothing was listed at first", &[], &["172.30.0.1"], None),
            ("one less, still on the interface", &["172.30.0.1", "fd00::1"], &["172.30.0.1"], None),
            (
                "another of the interface",
                &["172.30.0.1"],
                &["172.30.0.7"],
                Some("transport address"),
            ),
            ("the other family first", &["172.30.0.1"], &["fd00::1"], Some("transport address")),
            (
                "one of another interface",
                &["172.30.0.1"],
                &["172.30.0.1", "10.9.0.1"],
                Some("addresses"),
            ),
            ("one of another interface gone", &["10.9.0.1"], &["172.30.0.1"], Some("addresses")),
        ] {
            let before = OwnAddresses::of(&uplink, &ips(before)).unwrap();
            let change = before.change_to(&OwnAddresses::of(&uplink, &ips(now)).unwrap());
            assert_eq!(change.is_some(), want.is_some(), "{name}: {change:?}");
            if let (Some(change), Some(want)) = (change, want) {
                assert!(change.starts_with(&format!("the {want} of this node")), "{change}");
            }
        }
        assert_eq!(OwnAddresses::of(&mk_uplink(&[]), &ips(&["172.30.0.1"])), None);
    }
}
