//! Random Services and slices that come, change and go, the same for the same seeds.
//!
//! For tests that hold what comes of a history against a fresh start from what is left. Values come from
//! small sets, so that Services share addresses and servers; [`Coverage`] says what was hit, for a test
//! to make sure that nothing has quietly stopped being tried.
#![allow(clippy::unwrap_used, reason = "all values are written down here")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use apis::service::{
    EndpointSlice, IngressMode, LoadBalancerMode, Service, ServiceName, ServiceProtocol,
    ServiceType, SliceName, TrafficPolicy,
};
use ipnet::IpNet;
use pipeline::service::{Endpoint, Target};

use crate::testing::*;
use crate::{Changes, Config, Event, HealthCheck, PortKey, PortPlan, Presence};

/// A node that serves everybody, in both families.
#[must_use]
pub fn config() -> Config {
    let load_balancer_mode = Some(LoadBalancerMode::Nat);
    Config { node_hints: true, load_balancer_mode, ..mk_config() }
}

/// Small numbers from a seed.
struct Dice(u64);

impl Dice {
    /// From 0 to below `n`.
    fn roll(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(n).unwrap()).unwrap()
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())].clone()
    }

    fn sometimes(&mut self) -> bool {
        self.roll(3) == 0
    }
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn random_service(dice: &mut Dice) -> Service {
    let n = dice.roll(NAMES.len());
    let mut service = mk_service(NAMES[n], &[]);
    let (v4, v6) = (ip(&format!("10.96.0.{n}")), ip(&format!("fd00::{n}")));
    service.cluster_ips = dice.one(&[vec![v4], vec![v6], vec![v4, v6], vec![v6, v4], vec![]]);
    service.kind = dice.one(&[
        ServiceType::ClusterIp,
        ServiceType::NodePort,
        ServiceType::LoadBalancer,
        ServiceType::LoadBalancer,
        ServiceType::ExternalName,
    ]);
    let protocols = [ServiceProtocol::Tcp, ServiceProtocol::Udp, ServiceProtocol::Sctp];
    let node_port = u16::try_from(30000 + n).unwrap();
    service.ports = vec![mk_port("http", dice.one(&protocols), 80, Some(node_port))];
    if dice.sometimes() {
        service.ports.push(mk_port("more", dice.one(&protocols), 81, None));
    }
    let local = [TrafficPolicy::Cluster, TrafficPolicy::Local];
    (service.internal_policy, service.external_policy) = (dice.one(&local), dice.one(&local));
    service.affinity = dice.one(&[None, Some(10), Some(86_400)]);
    if dice.sometimes() {
        // Some are wanted by several.
        service.external_ips = vec![ip(dice.one(&["192.0.2.1", "2001:db8::1", "10.96.0.0"]))];
    }
    if dice.sometimes() {
        let mode = dice.one(&[IngressMode::Vip, IngressMode::Proxy]);
        service.ingress = vec![(ip(dice.one(&["198.51.100.1", "2001:db8::2"])), mode)];
        service.source_ranges = dice.one(&[vec![], vec!["192.0.2.0/24".parse().unwrap()]]);
    }
    service.health_check_node_port = Some(31000);
    let modes = [None, Some(LoadBalancerMode::Nat), Some(LoadBalancerMode::Dsr)];
    service.load_balancer_mode = dice.one(&modes);
    service
}

fn random_slice(dice: &mut Dice) -> EndpointSlice {
    let service = dice.one(&NAMES);
    let mut servers = Vec::new();
    for _ in 0..dice.roll(4) {
        let net = dice.one(&["10.1.0.", "10.1.1.", "10.1.5.", "fd00:1::", "fd00:2::", "172.30.0."]);
        let state = dice.one(&["ready", "ready", "ready", "lasts", "ends", "no"]);
        servers.push(format!("{net}{}/{state}", 1 + dice.roll(3)));
    }
    let servers: Vec<&str> = servers.iter().map(String::as_str).collect();
    let ports = [
        ("http", ServiceProtocol::Tcp, 8080),
        ("http", ServiceProtocol::Udp, 8080),
        ("more", ServiceProtocol::Sctp, 8081),
    ];
    let mut slice = mk_slice_of(service, dice.one(&["1", "2", "3", "4", "5"]), &ports, &servers);
    // All or some have hints.
    let hints = dice.roll(4);
    for endpoint in &mut slice.endpoints {
        let list = |name: &str| -> Arc<[Arc<str>]> { Arc::from([Arc::from(name)]) };
        if hints == 1 || hints == 2 && dice.sometimes() {
            endpoint.for_zones = list(dice.one(&["a", "b"]));
        }
        if hints == 1 && dice.sometimes() {
            endpoint.for_nodes = list(dice.one(&["us", "near"]));
        }
    }
    if dice.roll(10) == 0 {
        slice.service = None;
    }
    slice
}

/// The objects that are left of what happened at random.
#[derive(Clone, Debug)]
pub struct Left {
    services: BTreeMap<ServiceName, Service>,
    slices: BTreeMap<SliceName, EndpointSlice>,
    node: Vec<Event>,
}

impl Default for Left {
    fn default() -> Self {
        Self { services: BTreeMap::new(), slices: BTreeMap::new(), node: mk_node() }
    }
}

impl Left {
    /// All of it, as an agent is told that starts now.
    #[must_use]
    pub fn all(&self) -> Vec<Event> {
        self.node.iter().cloned().chain(self.lists()).collect()
    }

    /// The lists of both kinds.
    #[must_use]
    pub fn lists(&self) -> [Event; 2] {
        let slices = self.slices.values().cloned().collect();
        [Event::Services(self.services.values().cloned().collect()), Event::Slices(slices)]
    }

    /// Something happens, the same for the same seed.
    pub fn happen(&mut self, seed: u64) -> Vec<Event> {
        let dice = &mut Dice(seed);
        match dice.roll(16) {
            0..5 => {
                let service = random_service(dice);
                self.services.insert(service.name.clone(), service.clone());
                vec![Event::Service(service)]
            }
            5..11 => {
                let slice = random_slice(dice);
                self.slices.insert(slice.name.clone(), slice.clone());
                vec![Event::Slice(slice)]
            }
            11 => {
                let name = ServiceName::new("x", dice.one(&NAMES));
                self.services.remove(&name);
                vec![Event::ServiceGone(name)]
            }
            12 => {
                let name = random_slice(dice).name;
                self.slices.remove(&name);
                vec![Event::SliceGone(name)]
            }
            13 => {
                let zone = Event::Zone(dice.one(&[Some("a"), Some("b"), None]).map(Arc::from));
                self.node[0] = zone.clone();
                vec![zone]
            }
            14 => {
                let nets = |text: &str| -> Vec<IpNet> {
                    text.split(' ').map(|text| text.parse().unwrap()).collect()
                };
                let cidrs = Event::PodCidrs {
                    ours: nets("10.1.0.0/24 fd00:1::/64"),
                    others: nets(dice.one(&["10.1.1.0/24", "10.1.1.0/24 10.1.5.0/24 fd00:2::/64"])),
                };
                self.node[1] = cidrs.clone();
                vec![cidrs]
            }
            _ => {
                // A watch that broke lists again; some was deleted meanwhile.
                let gone = ServiceName::new("x", dice.one(&NAMES));
                self.services.remove(&gone);
                self.lists().into()
            }
        }
    }
}

/// What was told, added up.
#[derive(Debug, Default)]
pub struct Told {
    /// Ports.
    pub ports: BTreeMap<Arc<PortKey>, PortPlan>,
    /// Servers.
    pub endpoints: BTreeSet<Endpoint>,
    /// Health checks.
    pub health: BTreeMap<ServiceName, HealthCheck>,
}

impl Told {
    /// Adds these.
    ///
    /// # Panics
    /// When a server is told twice.
    pub fn take(&mut self, changes: &Changes) {
        for (key, plan) in changes.ports.iter().cloned() {
            match plan.is_empty() {
                true => self.ports.remove(&key),
                false => self.ports.insert(key, plan),
            };
        }
        for (endpoint, presence) in changes.endpoints.iter().copied() {
            let new = match presence {
                Presence::There => self.endpoints.insert(endpoint),
                Presence::Gone => self.endpoints.remove(&endpoint),
            };
            assert!(new, "{endpoint:?} is told twice");
        }
        for (name, check) in changes.health.iter().cloned() {
            match check {
                Some(check) => self.health.insert(name, check),
                None => self.health.remove(&name),
            };
        }
    }
}

/// What the generator hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(pub BTreeSet<&'static str>);

impl Coverage {
    /// All that it can hit.
    pub const ALL: [&str; 16] = [
        "IPv4",
        "IPv6",
        "NodePort",
        "affinity",
        "an address refused",
        "at the node only",
        "direct",
        "drop",
        "for some sources",
        "health check",
        "hints",
        "lasting",
        "no longer the host's",
        "shared server",
        "reject",
        "stale",
    ];

    /// Notes what a step changed besides what is told.
    pub fn note(&mut self, changes: &Changes) {
        for (what, is) in [
            ("an address refused", !changes.conflicts.is_empty()),
            ("stale", !changes.stale.is_empty()),
            ("no longer the host's", changes.host),
        ] {
            if is {
                self.0.insert(what);
            }
        }
    }

    /// Notes what there is.
    pub fn look(&mut self, left: &Left, told: &Told) {
        let mut hit = |what, is| {
            if is {
                self.0.insert(what);
            }
        };
        let fronts: Vec<_> = told.ports.values().flat_map(|plan| &plan.frontends).collect();
        hit("IPv4", fronts.iter().any(|front| !front.address.is_ipv6()));
        hit("IPv6", fronts.iter().any(|front| front.address.is_ipv6()));
        hit("NodePort", fronts.iter().any(|front| front.port >= 30000));
        hit("affinity", fronts.iter().any(|front| front.affinity == Some(u16::MAX)));
        hit("at the node only", fronts.iter().any(|front| front.local_clients.is_some()));
        hit("direct", fronts.iter().any(|front| front.dsr.is_some()));
        hit("drop", fronts.iter().any(|front| front.target == Target::Drop));
        hit("reject", fronts.iter().any(|front| front.target == Target::Reject));
        hit("for some sources", fronts.iter().any(|front| !front.source_ranges.is_empty()));
        hit("health check", told.health.values().any(|check| check.n_local > 0));
        let groups = || told.ports.values().flat_map(|plan| &plan.groups);
        let n_used: usize = groups().map(|group| group.endpoints.len()).sum();
        hit("shared server", n_used > told.endpoints.len());
        let endpoints = || left.slices.values().flat_map(|slice| &slice.endpoints);
        hit("hints", endpoints().any(|one| !one.for_zones.is_empty() && one.ready));
        let lasts = |at: &Endpoint| {
            let same: Vec<_> = endpoints().filter(|one| one.ip == at.ip).collect();
            !same.is_empty() && same.iter().all(|one| !one.ready)
        };
        hit("lasting", told.endpoints.iter().any(lasts));
    }
}
