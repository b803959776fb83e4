//! Where an address is: with a Pod of this node, with a Pod of another, or somewhere else.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use pipeline::service::Place;

/// The Pod prefixes of the cluster, which do not overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// By first address.
    prefixes: BTreeMap<IpAddr, (IpNet, Owner)>,
}

/// Whose a prefix is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Us,
    Another,
}

impl Places {
    pub(crate) fn new(ours: &[IpNet], others: &[IpNet]) -> Self {
        let of = |owner| move |net: &IpNet| (net.network(), (*net, owner));
        let others = others.iter().map(of(Owner::Another));
        Self { prefixes: others.chain(ours.iter().map(of(Owner::Us))).collect() }
    }

    pub(crate) fn of(&self, ip: IpAddr) -> Place {
        let before = self.prefixes.range(..=ip).next_back();
        match before.filter(|(_, (net, _))| net.contains(&ip)) {
            Some((_, (_, Owner::Us))) => Place::LocalPod,
            Some((_, (_, Owner::Another))) => Place::RemotePod,
            None => Place::HostNetwork,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_the_prefix_that_holds_them() {
        let nets =
            |all: &[&str]| -> Vec<IpNet> { all.iter().map(|t| t.parse().unwrap()).collect() };
        let places = Places::new(
            &nets(&["10.1.0.0/24", "fd00:1::/64"]),
            &nets(&["10.1.1.0/24", "10.1.3.0/24", "fd00:2::/64"]),
        );
        for (ip, want) in [
            ("10.1.0.0", Place::LocalPod),
            ("10.1.0.255", Place::LocalPod),
            ("10.1.1.7", Place::RemotePod),
            ("10.1.2.1", Place::HostNetwork),
            ("10.1.3.1", Place::RemotePod),
            ("10.0.255.255", Place::HostNetwork),
            ("172.30.0.1", Place::HostNetwork),
            ("fd00:1::9", Place::LocalPod),
            ("fd00:2::9", Place::RemotePod),
            ("fd00:3::9", Place::HostNetwork),
        ] {
            assert_eq!(places.of(ip.parse().unwrap()), want, "{ip}");
        }
    }
}
