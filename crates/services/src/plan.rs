//! What one Service's ports want on this node: addresses, and groups of servers behind them.
//!
//! Pure functions of a Service, its slices and what is known of the node; numbers and the outcome of
//! claims are asked of the caller.

use std::collections::BTreeMap;
use std::net::IpAddr;

use apis::service::{
    EndpointSlice, IngressMode, LoadBalancerMode, Service, ServicePort, ServiceProtocol,
    ServiceType, SliceEndpoint, TrafficPolicy,
};
use ipnet::IpNet;
use openflow::GroupId;
use pipeline::service::{Endpoint, Frontend, FrontendAddress, Group, Protocol, Target};

use crate::claims::{Front, Rank};
use crate::config::Config;
use crate::ids::Kind;
use crate::places::Places;
use crate::select::{Candidate, Topology, Uses, select};

/// What one port of a Service wants on this node. Nothing at all where it is not served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortPlan {
    /// Where it is reached.
    pub frontends: Vec<Frontend>,
    /// Its servers.
    pub groups: Vec<Group>,
}

impl PortPlan {
    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frontends.is_empty() && self.groups.is_empty()
    }

    /// The servers that a frontend's clients may be given, some perhaps twice.
    pub fn endpoints_of(&self, frontend: &Frontend) -> impl Iterator<Item = &Endpoint> {
        let targets = [Some(frontend.target), frontend.local_clients];
        let ids = targets.into_iter().flatten().filter_map(|target| match target {
            Target::Group(id) => Some(id),
            Target::Reject | Target::Drop => None,
        });
        let group = |id| self.groups.iter().find(move |group| group.id == id);
        ids.filter_map(group).flat_map(|group| &group.endpoints)
    }
}

/// What is answered to a load balancer that asks whether this node has servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The port at which it asks.
    pub port: u16,
    /// How many ready servers this node has.
    pub n_local: usize,
}

/// What is known of the node.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) topology: Topology,
    pub(crate) places: Places,
}

impl World {
    fn serves(&self, ip: IpAddr) -> bool {
        self.config.families.has(ip)
    }
}

/// An address at which a port would be reached, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) front: Front,
    pub(crate) rank: Rank,
}

impl Wish {
    fn ipv6(&self) -> bool {
        self.front.address.is_ipv6()
    }

    fn is_external(&self) -> bool {
        self.rank != Rank::Cluster
    }
}

pub(crate) fn protocol(protocol: ServiceProtocol) -> Protocol {
    match protocol {
        ServiceProtocol::Tcp => Protocol::Tcp,
        ServiceProtocol::Udp => Protocol::Udp,
        ServiceProtocol::Sctp => Protocol::Sctp,
    }
}

/// Whether the Service is one that this node serves.
pub(crate) fn is_served(world: &World, service: &Service) -> bool {
    service.kind != ServiceType::ExternalName
        && !service.cluster_ips.is_empty()
        && !world.config.skip.iter().any(|skip| skip.matches(service))
}

/// The addresses at which a port would be reached, each once.
pub(crate) fn wishes(world: &World, service: &Service, port: &ServicePort) -> Vec<Wish> {
    let mut wishes: Vec<Wish> = Vec::new();
    let mut add = |address, number, rank| {
        let front = Front { address, protocol: port.protocol, port: number };
        if !wishes.iter().any(|known| known.front == front) {
            wishes.push(Wish { front, rank });
        }
    };
    let config = &world.config;
    let served = |ips: &[IpAddr]| -> Vec<IpAddr> {
        ips.iter().copied().filter(|ip| world.serves(*ip)).collect()
    };
    let cluster_ips = served(&service.cluster_ips);
    for ip in &cluster_ips {
        add(FrontendAddress::Ip(*ip), port.port, Rank::Cluster);
    }
    if config.proxy_all
        && let Some(number) = port.node_port
        && matches!(service.kind, ServiceType::NodePort | ServiceType::LoadBalancer)
    {
        // The families of a Service are those of its cluster addresses.
        for ip in &cluster_ips {
            add(FrontendAddress::NodePort { ipv6: ip.is_ipv6() }, number, Rank::NodePort);
        }
    }
    if config.proxy_load_balancer_ips && service.kind == ServiceType::LoadBalancer {
        let vips = service.ingress.iter().filter(|(_, mode)| *mode == IngressMode::Vip);
        for ip in served(&vips.map(|(ip, _)| *ip).collect::<Vec<_>>()) {
            add(FrontendAddress::Ip(ip), port.port, Rank::LoadBalancer);
        }
    }
    if config.proxy_all {
        for ip in served(&service.external_ips) {
            add(FrontendAddress::Ip(ip), port.port, Rank::External);
        }
    }
    wishes
}

/// Servers of one port and family, each address once, in order.
fn candidates<'a>(
    slices: impl Iterator<Item = &'a EndpointSlice>,
    port: &ServicePort,
    node: &str,
    ipv6: bool,
) -> Vec<Candidate<'a>> {
    let mut found: BTreeMap<(IpAddr, u16), Candidate<'a>> = BTreeMap::new();
    for slice in slices {
        let is_ours =
            |of: &&apis::service::SlicePort| of.name == port.name && of.protocol == port.protocol;
        for number in slice.ports.iter().filter(is_ours).map(|of| of.port) {
            for endpoint in slice.endpoints.iter().filter(|one| one.ip.is_ipv6() == ipv6) {
                let local = endpoint.node.as_deref() == Some(node);
                let candidate = Candidate { port: number, local, endpoint };
                let known = found.entry(candidate.address()).or_insert(candidate);
                // One server may stand in two slices for a while: the better news counts.
                let worth = |one: &Candidate<'_>| {
                    let SliceEndpoint { ready, serving, terminating, .. } = one.endpoint;
                    (*ready, *serving, !*terminating, one.local)
                };
                if worth(&candidate) > worth(known) {
                    *known = candidate;
                }
            }
        }
    }
    found.into_values().collect()
}

/// How many ready servers of the Service this node has, if a load balancer may ask.
pub(crate) fn health_check<'a>(
    world: &World,
    service: &Service,
    slices: impl Iterator<Item = &'a EndpointSlice>,
) -> Option<HealthCheck> {
    let asked = world.config.proxy_all
        && service.kind == ServiceType::LoadBalancer
        && service.external_policy == TrafficPolicy::Local
        && is_served(world, service);
    let port = service.health_check_node_port.filter(|_| asked)?;
    let endpoints = slices.flat_map(|slice| &slice.endpoints);
    // What is about to end still serves, but is to get nothing new.
    let local = endpoints.filter(|one| {
        one.ready && one.node.as_deref() == Some(&*world.config.node) && world.serves(one.ip)
    });
    let ips: std::collections::BTreeSet<IpAddr> = local.map(|one| one.ip).collect();
    Some(HealthCheck { port, n_local: ips.len() })
}

/// The plan of one port, for the addresses that it gets.
pub(crate) fn plan<'a>(
    world: &World,
    service: &Service,
    port: &ServicePort,
    slices: impl Iterator<Item = &'a EndpointSlice> + Clone,
    granted: &[Wish],
    mut id: impl FnMut(Kind) -> u32,
) -> PortPlan {
    let mut plan = PortPlan::default();
    for ipv6 in [false, true] {
        let granted: Vec<&Wish> = granted.iter().filter(|wish| wish.ipv6() == ipv6).collect();
        if granted.is_empty() {
            continue;
        }
        let uses = uses(world, service, &granted);
        let candidates = candidates(slices.clone(), port, &world.config.node, ipv6);
        let selected = select(&candidates, uses, &world.topology);
        let mut target = |servers: &[(IpAddr, u16)], kind| {
            if !servers.is_empty() {
                Target::Group(GroupId(id(kind)))
            } else if selected.any {
                Target::Drop
            } else {
                Target::Reject
            }
        };
        let targets = Targets {
            cluster: target(&selected.cluster, Kind::Cluster { ipv6 }),
            local: target(&selected.local, Kind::Local { ipv6 }),
        };
        for wish in granted {
            plan.frontends.push(frontend(world, service, wish, targets));
        }
        for (target, servers) in
            [(targets.cluster, &selected.cluster), (targets.local, &selected.local)]
        {
            let Target::Group(id) = target else { continue };
            let endpoints = servers.iter().map(|(ip, number)| Endpoint {
                ip: *ip,
                port: *number,
                protocol: protocol(port.protocol),
                place: world.places.of(*ip),
            });
            let affinity = service.affinity.is_some();
            plan.groups.push(Group { id, endpoints: endpoints.collect(), affinity });
        }
    }
    plan
}

/// Where connections of a family go.
#[derive(Clone, Copy)]
struct Targets {
    /// Those that may go anywhere.
    cluster: Target,
    /// Those that stay on the node.
    local: Target,
}

/// Whether answers to clients of this address go back from the server's node directly.
fn is_direct(world: &World, service: &Service, wish: &Wish) -> bool {
    let balanced = matches!(wish.rank, Rank::LoadBalancer | Rank::External);
    let mode =
        world.config.load_balancer_mode.map(|usual| service.load_balancer_mode.unwrap_or(usual));
    balanced
        && !wish.ipv6()
        && mode == Some(LoadBalancerMode::Dsr)
        && service.external_policy == TrafficPolicy::Cluster
}

fn frontend(world: &World, service: &Service, wish: &Wish, targets: Targets) -> Frontend {
    let external = wish.is_external();
    let policy = if external { service.external_policy } else { service.internal_policy };
    let target = match policy {
        TrafficPolicy::Cluster => targets.cluster,
        TrafficPolicy::Local => targets.local,
    };
    let source_ranges: Vec<IpNet> = match wish.rank {
        Rank::LoadBalancer => {
            let of_family = |range: &&IpNet| range.addr().is_ipv6() == wish.ipv6();
            service.source_ranges.iter().filter(of_family).copied().collect()
        }
        _ => Vec::new(),
    };
    let dsr = is_direct(world, service, wish).then_some(match targets.local {
        Target::Group(group) => Target::Group(group),
        // Nobody here was meant.
        Target::Reject | Target::Drop => Target::Drop,
    });
    Frontend {
        address: wish.front.address,
        protocol: protocol(wish.front.protocol),
        port: wish.front.port,
        external,
        target,
        local_clients: (external && target != targets.cluster).then_some(targets.cluster),
        affinity: service.affinity.map(|seconds| u16::try_from(seconds).unwrap_or(u16::MAX)),
        source_ranges,
        dsr,
    }
}

fn uses(world: &World, service: &Service, granted: &[&Wish]) -> Uses {
    let internal = granted.iter().any(|wish| !wish.is_external());
    let external = granted.iter().any(|wish| wish.is_external());
    let internal_local = service.internal_policy == TrafficPolicy::Local;
    let external_local = service.external_policy == TrafficPolicy::Local;
    let direct = granted.iter().any(|wish| is_direct(world, service, wish));
    Uses {
        // Clients of this node get any server, by external addresses too.
        cluster: internal && !internal_local || external,
        local: internal && internal_local || external && external_local || direct,
    }
}
