//! The state machine: objects in, what changes on this node out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use apis::service::{EndpointSlice, Service, ServiceName, SliceName};
use ipnet::IpNet;
use openflow::GroupId;
use pipeline::service::{Endpoint, Frontend, FrontendAddress, Protocol};

use crate::claims::{Claim, Claims};
use crate::config::Config;
use crate::ids::{Ids, Kind, Number};
use crate::places::Places;
use crate::plan::{HealthCheck, PortPlan, Wish, World, health_check, is_served, plan, wishes};
use crate::select::Topology;

/// One port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortKey {
    /// The Service.
    pub service: ServiceName,
    /// Name of the port; may be empty.
    pub port: Arc<str>,
}

impl PortKey {
    /// The port of this name.
    #[must_use]
    pub fn new(namespace: &str, service: &str, port: &str) -> Self {
        Self { service: ServiceName::new(namespace, service), port: port.into() }
    }
}

impl fmt::Display for PortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.service, self.port)
    }
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Event {
    /// All Services there are.
    Services(Vec<Service>),
    /// A Service is there, or is another now.
    Service(Service),
    /// A Service is gone.
    ServiceGone(ServiceName),
    /// All EndpointSlices there are.
    Slices(Vec<EndpointSlice>),
    /// A slice is there, or is another now.
    Slice(EndpointSlice),
    /// A slice is gone.
    SliceGone(SliceName),
    /// The zone that this node is in.
    Zone(Option<Arc<str>>),
    /// The Pod prefixes of this node and of the others.
    PodCidrs {
        /// This node's.
        ours: Vec<IpNet>,
        /// All others.
        others: Vec<IpNet>,
    },
}

/// Whether something is there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Presence {
    /// It is.
    There,
    /// It is not any more.
    Gone,
}

/// UDP connections that lead to where they should not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stale {
    /// The address that the client dialled.
    pub address: FrontendAddress,
    /// And its port.
    pub port: u16,
    /// The server that it was given; without one, whatever it was.
    pub server: Option<(IpAddr, u16)>,
}

/// What changes on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Ports that want something else now; an empty plan is that of a port that is gone.
    pub ports: Vec<(Arc<PortKey>, PortPlan)>,
    /// Servers that came into use or went out of use.
    pub endpoints: Vec<(Endpoint, Presence)>,
    /// Connections to be forgotten once the switch follows.
    pub stale: BTreeSet<Stale>,
    /// Health checks that are answered otherwise now.
    pub health: Vec<(ServiceName, Option<HealthCheck>)>,
    /// Whether [`Proxy::host`] is to be asked again.
    pub host: bool,
    /// Ports that do not get an address, which another Service has.
    pub conflicts: Vec<(Arc<PortKey>, FrontendAddress)>,
    /// How many Services were computed.
    pub n_computed: usize,
}

/// What the host needs for `proxyAll`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostWants {
    /// Ports of every node, by protocol and family.
    pub node_ports: BTreeSet<(Protocol, u16, bool)>,
    /// Addresses of Services in the cluster.
    pub cluster_ips: BTreeSet<IpAddr>,
    /// Addresses of load balancers, and external ones.
    pub external_ips: BTreeSet<IpAddr>,
}

/// What a port got.
#[derive(Debug)]
struct Port {
    key: Arc<PortKey>,
    wishes: Vec<Wish>,
    plan: PortPlan,
}

/// A Service, its slices, and what follows from them.
#[derive(Debug, Default)]
struct Entry {
    service: Option<Service>,
    slices: BTreeMap<Arc<str>, EndpointSlice>,
    ports: BTreeMap<Arc<str>, Port>,
    health: Option<HealthCheck>,
}

impl Entry {
    fn is_unused(&self) -> bool {
        self.service.is_none() && self.slices.is_empty() && self.ports.is_empty()
    }
}

/// What has been listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Listed {
    services: bool,
    slices: bool,
    /// Everything was computed once.
    computed: bool,
}

/// The state.
#[derive(Debug)]
pub struct Proxy {
    world: World,
    entries: BTreeMap<ServiceName, Entry>,
    /// The Service that each slice belongs to.
    slices: HashMap<SliceName, Arc<str>>,
    /// How many groups use each server.
    endpoints: HashMap<Endpoint, u32>,
    claims: Claims,
    ids: Ids,
    listed: Listed,
    dirty: BTreeSet<ServiceName>,
}

impl Proxy {
    /// With nothing known yet.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let topology =
            Topology { node: config.node.clone(), zone: None, node_hints: config.node_hints };
        Self {
            world: World { config, topology, places: Places::default() },
            entries: BTreeMap::new(),
            slices: HashMap::new(),
            endpoints: HashMap::new(),
            claims: Claims::default(),
            ids: Ids::default(),
            listed: Listed::default(),
            dirty: BTreeSet::new(),
        }
    }

    /// Takes the numbers of groups that [`Proxy::numbers`] told before a start.
    pub fn keep_numbers(&mut self, numbers: impl IntoIterator<Item = Number>) {
        self.ids.hold(numbers);
    }

    /// The numbers of groups that would not be the same after a start unless they are kept.
    #[must_use]
    pub fn numbers(&self) -> Vec<Number> {
        self.ids.unusual()
    }

    /// The UDP connections that are where they should not be since `before`, the state that was known
    /// last before a start. What was not known then does not count.
    #[must_use]
    pub fn stale_since(&self, before: &Self) -> BTreeSet<Stale> {
        let (mut all, none) = (BTreeSet::new(), PortPlan::default());
        for (key, old) in before.ports() {
            stale(old, self.port(key).map_or(&none, |port| &port.plan), &mut all);
        }
        all
    }

    /// Whether Services and slices were listed, so that the state is whole.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.listed.computed
    }

    /// Takes what happened, and says what follows. Nothing does before both lists are there.
    pub fn step(&mut self, events: impl IntoIterator<Item = Event>) -> Changes {
        for event in events {
            self.take(event);
        }
        let mut changes = Changes::default();
        if !self.listed.services || !self.listed.slices {
            return changes;
        }
        let mut counts = BTreeMap::new();
        // Whoever loses or gets an address because of another is computed after that one.
        while let Some(name) = self.dirty.pop_first() {
            self.compute(&name, &mut changes, &mut counts);
        }
        if !self.listed.computed {
            self.ids.let_go();
        }
        self.listed.computed = true;
        self.settle(counts, &mut changes);
        changes.ports.retain(|(key, plan)| {
            // One that was computed twice is told once, as it is in the end.
            self.port(key).map_or(plan.is_empty(), |port| port.plan == *plan)
        });
        changes
    }

    /// All that is wanted.
    pub fn ports(&self) -> impl Iterator<Item = (&Arc<PortKey>, &PortPlan)> {
        let ports = self.entries.values().flat_map(|entry| entry.ports.values());
        ports.map(|port| (&port.key, &port.plan)).filter(|(_, plan)| !plan.is_empty())
    }

    /// The groups of a Service, in order: those that its connections go by, and those that they went
    /// by and may again.
    #[must_use]
    pub fn groups(&self, service: &ServiceName) -> Vec<GroupId> {
        let ports = self.entries.get(service).into_iter().flat_map(|entry| entry.ports.values());
        let mut groups: Vec<GroupId> =
            ports.flat_map(|port| self.ids.of_port(&port.key)).map(GroupId).collect();
        groups.sort_unstable();
        groups
    }

    /// All servers in use.
    pub fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.keys()
    }

    /// All Services that are known, served or not.
    pub fn services(&self) -> impl Iterator<Item = &Service> {
        self.entries.values().filter_map(|entry| entry.service.as_ref())
    }

    /// All slices that are known.
    pub fn slices(&self) -> impl Iterator<Item = &EndpointSlice> {
        self.entries.values().flat_map(|entry| entry.slices.values())
    }

    /// All health checks that are answered.
    pub fn health_checks(&self) -> impl Iterator<Item = (&ServiceName, HealthCheck)> {
        self.entries.iter().filter_map(|(name, entry)| Some((name, entry.health?)))
    }

    /// What the host needs for it.
    #[must_use]
    pub fn host(&self) -> HostWants {
        let mut wants = HostWants::default();
        for Frontend { address, protocol, port, external, .. } in
            self.ports().flat_map(|(_, plan)| &plan.frontends)
        {
            match (address, external) {
                (FrontendAddress::NodePort { ipv6 }, _) => {
                    wants.node_ports.insert((*protocol, *port, *ipv6));
                }
                (FrontendAddress::Ip(ip), false) => {
                    wants.cluster_ips.insert(*ip);
                }
                (FrontendAddress::Ip(ip), true) => {
                    wants.external_ips.insert(*ip);
                }
            }
        }
        wants
    }

    fn port(&self, key: &PortKey) -> Option<&Port> {
        self.entries.get(&key.service)?.ports.get(&key.port)
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Services(all) => {
                let names: BTreeSet<ServiceName> =
                    all.iter().map(|service| service.name.clone()).collect();
                let gone: Vec<ServiceName> = self
                    .entries
                    .iter()
                    .filter(|(name, entry)| entry.service.is_some() && !names.contains(name))
                    .map(|(name, _)| name.clone())
                    .collect();
                gone.into_iter().for_each(|name| self.service_gone(&name));
                all.into_iter().for_each(|service| self.service(service));
                self.listed.services = true;
            }
            Event::Service(service) => self.service(service),
            Event::ServiceGone(name) => self.service_gone(&name),
            Event::Slices(all) => {
                let names: BTreeSet<&SliceName> = all.iter().map(|slice| &slice.name).collect();
                let known = self.slices.keys();
                let gone: Vec<SliceName> =
                    known.filter(|name| !names.contains(name)).cloned().collect();
                gone.iter().for_each(|name| self.slice_gone(name));
                all.into_iter().for_each(|slice| self.slice(slice));
                self.listed.slices = true;
            }
            Event::Slice(slice) => self.slice(slice),
            Event::SliceGone(name) => self.slice_gone(&name),
            Event::Zone(zone) => {
                if self.world.topology.zone != zone {
                    self.world.topology.zone = zone;
                    self.mark(|entry| {
                        let endpoints = entry.slices.values().flat_map(|slice| &slice.endpoints);
                        let mut endpoints = endpoints;
                        endpoints.any(|endpoint| !endpoint.for_zones.is_empty())
                    });
                }
            }
            Event::PodCidrs { ours, others } => {
                let places = Places::new(&ours, &others);
                let before = std::mem::replace(&mut self.world.places, places.clone());
                let moved = |ip: IpAddr| before.of(ip) != places.of(ip);
                self.mark(|entry| {
                    let mut endpoints = entry.slices.values().flat_map(|slice| &slice.endpoints);
                    endpoints.any(|endpoint| moved(endpoint.ip))
                });
            }
        }
    }

    fn mark(&mut self, concerned: impl Fn(&Entry) -> bool) {
        let concerned = self.entries.iter().filter(|(_, entry)| concerned(entry));
        self.dirty.extend(concerned.map(|(name, _)| name.clone()));
    }

    fn service(&mut self, service: Service) {
        let entry = self.entries.entry(service.name.clone()).or_default();
        if entry.service.as_ref() != Some(&service) {
            self.dirty.insert(service.name.clone());
            entry.service = Some(service);
        }
    }

    fn service_gone(&mut self, name: &ServiceName) {
        if let Some(entry) = self.entries.get_mut(name)
            && entry.service.take().is_some()
        {
            self.dirty.insert(name.clone());
        }
    }

    fn slice(&mut self, slice: EndpointSlice) {
        let belongs = self.slices.get(&slice.name);
        if belongs.is_some() && belongs != slice.service.as_ref() {
            self.slice_gone(&slice.name.clone());
        }
        let Some(service) = slice.service.clone() else { return };
        let owner = ServiceName { namespace: slice.name.namespace.clone(), name: service.clone() };
        let entry = self.entries.entry(owner.clone()).or_default();
        if entry.slices.get(&slice.name.name) == Some(&slice) {
            return;
        }
        self.slices.insert(slice.name.clone(), service);
        entry.slices.insert(slice.name.name.clone(), slice);
        self.dirty.insert(owner);
    }

    fn slice_gone(&mut self, name: &SliceName) {
        let Some(service) = self.slices.remove(name) else { return };
        let owner = ServiceName { namespace: name.namespace.clone(), name: service };
        if let Some(entry) = self.entries.get_mut(&owner) {
            entry.slices.remove(&name.name);
            self.dirty.insert(owner);
        }
    }

    /// Computes a Service anew and notes what differs.
    fn compute(
        &mut self,
        name: &ServiceName,
        changes: &mut Changes,
        counts: &mut BTreeMap<Endpoint, i64>,
    ) {
        let Some(mut entry) = self.entries.remove(name) else { return };
        changes.n_computed += 1;
        let service = entry.service.take();
        let served = service.as_ref().filter(|service| is_served(&self.world, service));
        let ports = served.map_or(&[][..], |service| &service.ports);

        let gone: Vec<Arc<str>> = entry
            .ports
            .keys()
            .filter(|name| !ports.iter().any(|port| port.name == **name))
            .cloned()
            .collect();
        for name in gone {
            let Some(mut port) = entry.ports.remove(&name) else { continue };
            self.wish(&mut port, Vec::new());
            Kind::ALL.iter().for_each(|kind| self.ids.give_back(&port.key, *kind));
            self.replan(&mut port, PortPlan::default(), changes, counts);
        }
        if let Some(service) = served {
            for of in ports {
                let mut port = entry.ports.remove(&of.name).unwrap_or_else(|| Port {
                    key: Arc::new(PortKey { service: name.clone(), port: of.name.clone() }),
                    wishes: Vec::new(),
                    plan: PortPlan::default(),
                });
                self.wish(&mut port, wishes(&self.world, service, of));
                let (granted, denied): (Vec<Wish>, Vec<Wish>) = port
                    .wishes
                    .iter()
                    .partition(|wish| self.claims.wins(wish.front, wish.rank, &port.key));
                let denied = denied.iter().map(|wish| (port.key.clone(), wish.front.address));
                changes.conflicts.extend(denied);
                let (ids, slices) = (&mut self.ids, entry.slices.values());
                let id = |kind| ids.take(&port.key, kind);
                let new = plan(&self.world, service, of, slices, &granted, id);
                self.replan(&mut port, new, changes, counts);
                entry.ports.insert(of.name.clone(), port);
            }
        }
        let slices = entry.slices.values();
        let health = service.as_ref().and_then(|of| health_check(&self.world, of, slices));
        if health != entry.health {
            changes.health.push((name.clone(), health));
            entry.health = health;
        }
        entry.service = service;
        if !entry.is_unused() {
            self.entries.insert(name.clone(), entry);
        }
    }

    /// Claims what a port wants, and lets go of what it does not want any more.
    fn wish(&mut self, port: &mut Port, wishes: Vec<Wish>) {
        let before = std::mem::replace(&mut port.wishes, wishes);
        let mut others: Vec<Claim> = Vec::new();
        for old in before.iter().filter(|old| !port.wishes.contains(old)) {
            others.extend(self.claims.remove(old.front, old.rank, &port.key));
        }
        for new in port.wishes.iter().filter(|new| !before.contains(new)) {
            others.extend(self.claims.add(new.front, new.rank, &port.key));
        }
        self.dirty.extend(others.into_iter().map(|(_, other)| other.service.clone()));
    }

    fn replan(
        &self,
        port: &mut Port,
        new: PortPlan,
        changes: &mut Changes,
        counts: &mut BTreeMap<Endpoint, i64>,
    ) {
        if port.plan == new {
            return;
        }
        if self.listed.computed {
            stale(&port.plan, &new, &mut changes.stale);
        }
        let fronts = |plan: &PortPlan| -> Vec<_> {
            let fronts = plan.frontends.iter();
            fronts.map(|front| (front.address, front.protocol, front.port)).collect()
        };
        changes.host |= fronts(&port.plan) != fronts(&new);
        for (plan, change) in [(&port.plan, -1), (&new, 1)] {
            for endpoint in plan.groups.iter().flat_map(|group| &group.endpoints) {
                *counts.entry(*endpoint).or_default() += change;
            }
        }
        changes.ports.push((port.key.clone(), new.clone()));
        port.plan = new;
    }

    /// Brings the counts of servers up to date.
    fn settle(&mut self, counts: BTreeMap<Endpoint, i64>, changes: &mut Changes) {
        for (endpoint, change) in counts {
            let before = self.endpoints.get(&endpoint).copied().unwrap_or(0);
            let now = u32::try_from(i64::from(before) + change).unwrap_or(0);
            if now == 0 {
                self.endpoints.remove(&endpoint);
            } else {
                self.endpoints.insert(endpoint, now);
            }
            match (before, now) {
                (0, 1..) => changes.endpoints.push((endpoint, Presence::There)),
                (1.., 0) => changes.endpoints.push((endpoint, Presence::Gone)),
                _ => {}
            }
        }
    }
}

/// The UDP connections that a change of plan leaves where they should not be.
fn stale(old: &PortPlan, new: &PortPlan, stale: &mut BTreeSet<Stale>) {
    let is_udp = |frontend: &&Frontend| frontend.protocol == Protocol::Udp;
    let place = |of: &Frontend| (of.address, of.port);
    let of = |of: &Frontend, server| Stale { address: of.address, port: of.port, server };
    let servers = |plan: &PortPlan, frontend: &Frontend| -> BTreeSet<(IpAddr, u16)> {
        plan.endpoints_of(frontend).map(|endpoint| (endpoint.ip, endpoint.port)).collect()
    };
    for frontend in old.frontends.iter().filter(is_udp) {
        let Some(now) = new
            .frontends
            .iter()
            .find(|now| place(now) == place(frontend) && now.protocol == frontend.protocol)
        else {
            stale.insert(of(frontend, None));
            continue;
        };
        let (before, now) = (servers(old, frontend), servers(new, now));
        stale.extend(before.difference(&now).map(|server| of(frontend, Some(*server))));
    }
    for frontend in new.frontends.iter().filter(is_udp) {
        let before = old
            .frontends
            .iter()
            .find(|old| place(old) == place(frontend) && old.protocol == frontend.protocol);
        // What was sent there while nobody served went elsewhere, and would go on to do so.
        if before.is_none_or(|before| servers(old, before).is_empty()) {
            stale.insert(of(frontend, None));
        }
    }
}

#[cfg(test)]
mod tests;
