//! How many ports of Services and servers are on the switch, for metrics.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pipeline::service::{Endpoint, Frontend};
use services::{Changes, PortKey, PortPlan, Presence};

/// Counts of one address family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyCounts {
    /// Ports of Services that are served.
    pub services: usize,
    /// Servers in use.
    pub endpoints: usize,
    /// How often a port was changed.
    pub service_updates: u64,
    /// How often a server came or went.
    pub endpoint_updates: u64,
}

/// Counts of both families.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// IPv4.
    pub v4: FamilyCounts,
    /// IPv6.
    pub v6: FamilyCounts,
    /// From events to flows on the switch, each time, since metrics were read last.
    pub took: Vec<Duration>,
}

/// Counts as changes come.
#[derive(Debug, Default)]
pub(super) struct Counter {
    /// Which families each port has.
    ports: HashMap<Arc<PortKey>, [bool; 2]>,
    pub(super) families: [FamilyCounts; 2],
}

fn family(is_ipv6: bool) -> usize {
    usize::from(is_ipv6)
}

impl Counter {
    pub(super) fn take(&mut self, changes: &Changes) {
        for (key, plan) in &changes.ports {
            self.port(key, plan);
        }
        for (Endpoint { ip, .. }, presence) in &changes.endpoints {
            let counts = &mut self.families[family(ip.is_ipv6())];
            counts.endpoint_updates += 1;
            match presence {
                Presence::There => counts.endpoints += 1,
                Presence::Gone => counts.endpoints = counts.endpoints.saturating_sub(1),
            }
        }
    }

    fn port(&mut self, key: &Arc<PortKey>, plan: &PortPlan) {
        let mut now = [false; 2];
        for Frontend { address, .. } in &plan.frontends {
            now[family(address.is_ipv6())] = true;
        }
        let before = match now {
            [false, false] => self.ports.remove(key),
            now => self.ports.insert(key.clone(), now),
        };
        let before = before.unwrap_or_default();
        for (n, counts) in self.families.iter_mut().enumerate() {
            counts.services = counts.services.saturating_add(usize::from(now[n]));
            counts.services = counts.services.saturating_sub(usize::from(before[n]));
            counts.service_updates += u64::from(now[n] || before[n]);
        }
    }
}

#[cfg(test)]
mod tests {
    use pipeline::service::{FrontendAddress, Place, Protocol, Target};

    use super::*;

    fn mk_plan(addresses: &[&str]) -> PortPlan {
        let frontend = |text: &&str| Frontend {
            address: FrontendAddress::Ip(text.parse().unwrap()),
            protocol: Protocol::Tcp,
            port: 80,
            external: false,
            target: Target::Reject,
            local_clients: None,
            affinity: None,
            source_ranges: Vec::new(),
            dsr: None,
        };
        PortPlan { frontends: addresses.iter().map(frontend).collect(), groups: Vec::new() }
    }

    #[test]
    fn ports_and_servers_are_counted_by_family() {
        let mut counter = Counter::default();
        let key = Arc::new(PortKey::new("x", "web", "http"));
        let endpoint = |text: &str| Endpoint {
            ip: text.parse().unwrap(),
            port: 80,
            protocol: Protocol::Tcp,
            place: Place::LocalPod,
        };
        let mut take = |addresses: &[&str], endpoints: &[(&str, Presence)]| {
            let endpoints = endpoints.iter().map(|(text, how)| (endpoint(text), *how));
            counter.take(&Changes {
                ports: vec![(key.clone(), mk_plan(addresses))],
                endpoints: endpoints.collect(),
                ..Changes::default()
            });
            counter.families.map(|counts| {
                let FamilyCounts { services, endpoints, service_updates, endpoint_updates } =
                    counts;
                (services, endpoints, service_updates, endpoint_updates)
            })
        };
        let both = ["10.96.0.1", "fd00::1"];
        let seen = take(&both, &[("10.1.0.1", Presence::There), ("10.1.0.2", Presence::There)]);
        assert_eq!(seen, [(1, 2, 1, 2), (1, 0, 1, 0)]);
        let seen = take(&["fd00::1"], &[("10.1.0.1", Presence::Gone)]);
        assert_eq!(seen, [(0, 1, 2, 3), (1, 0, 2, 0)]);
        assert_eq!(take(&[], &[]), [(0, 1, 2, 3), (0, 0, 3, 0)]);
    }
}
