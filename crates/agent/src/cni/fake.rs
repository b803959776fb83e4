//! A node in memory: leases, links, ports, flows and connections that refuse what the real ones
//! refuse, and fail where a test says so.
//!
//! One [`World`] stands behind all traits, so that a link that is missing makes Open vSwitch refuse
//! its port, and an address that is released while something can use it is noticed
//! ([`World::violations`]).

mod world;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cni_api::Attachment;
use openflow::{MacAddr, OfPort};
use tonic::async_trait;

use super::model::{HostIfName, PodAddress, PodRecord, mac_for};
use super::network::NodeNetwork;
use super::server::Node;
use super::traits::{
    Conntrack, ConntrackError, Flows, FlowsError, Ipam, IpamError, IpamRequest, Lease, LinkSpec,
    NetError, OwnedLink, PodNet, PortState, Ports, PortsError,
};

pub use world::{FakeLink, FaultPoint, World};

/// A handle on a [`World`]; clones share it.
#[derive(Clone, Debug, Default)]
pub struct FakeNode {
    world: Arc<Mutex<World>>,
}

impl FakeNode {
    /// The world, to look at or to change.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All traits on this world, for 10.77.1.0/24.
    pub fn node(&self) -> Arc<Node> {
        Arc::new(Node {
            network: network(),
            ipam: Arc::new(self.clone()),
            net: Arc::new(self.clone()),
            ports: Arc::new(self.clone()),
            flows: Arc::new(self.clone()),
            conntrack: Arc::new(self.clone()),
        })
    }

    /// Fails, hangs or goes on, as a test says.
    async fn pass(&self, point: FaultPoint) -> Result<(), Injected> {
        let mut hanging = self.world().hanging();
        // An error means that the world is gone, and the test with it.
        drop(hanging.wait_for(|hanging| !hanging.contains(&point)).await);
        // Other requests run here, as they would at real I/O.
        tokio::task::yield_now().await;
        if self.world().fails(point) { Err(Injected(point)) } else { Ok(()) }
    }
}

/// The network of a fake node.
fn network() -> NodeNetwork {
    NodeNetwork { mtu: 1450, pod_cidrs: vec![world::pod_cidr()], gateways: vec![world::gateway()] }
}

/// The failure that a test asked for.
#[derive(Debug, thiserror::Error)]
#[error("injected failure at {0:?}")]
struct Injected(FaultPoint);

#[async_trait]
impl Ipam for FakeNode {
    async fn allocate(&self, request: &IpamRequest) -> Result<Vec<PodAddress>, IpamError> {
        self.pass(FaultPoint::Allocate)
            .await
            .map_err(|e| IpamError::Failed { action: "allocate", source: e.into() })?;
        // A plugin's process takes longer than adding a port does.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let mut world = self.world();
        if world.leases.values().any(|owner| *owner == request.attachment) {
            return Err(IpamError::Failed { action: "allocate", source: "leased already".into() });
        }
        let ip = world.free_ip().ok_or_else(|| IpamError::Exhausted("10.77.1.0/24".into()))?;
        world.leases.insert(ip, request.attachment.clone());
        Ok(network().addresses(&[ip]).unwrap_or_default())
    }

    async fn release(&self, request: &IpamRequest) -> Result<(), IpamError> {
        self.pass(FaultPoint::Release)
            .await
            .map_err(|e| IpamError::Failed { action: "release", source: e.into() })?;
        let mut world = self.world();
        world.released_from.push(request.network.clone());
        let ips: Vec<_> = world.leases_of(&request.attachment).collect();
        for ip in ips {
            world.release(ip);
        }
        Ok(())
    }

    async fn check(&self, request: &IpamRequest, ips: &[IpAddr]) -> Result<(), IpamError> {
        let world = self.world();
        let leased: BTreeSet<_> = world.leases_of(&request.attachment).collect();
        match ips.iter().find(|ip| !leased.contains(ip)) {
            Some(ip) => Err(IpamError::NotLeased(*ip)),
            None => Ok(()),
        }
    }

    async fn leases(&self, _: &str, _: Option<&PathBuf>) -> Result<Vec<Lease>, IpamError> {
        self.pass(FaultPoint::ListLeases)
            .await
            .map_err(|e| IpamError::Failed { action: "list", source: e.into() })?;
        let world = self.world();
        let lease = |(ip, owner): (&IpAddr, &Attachment)| Lease {
            ip: *ip,
            container_id: owner.container_id.to_string(),
            ifname: owner.ifname.to_string(),
        };
        Ok(world.leases.iter().map(lease).collect())
    }

    async fn release_lease(
        &self,
        _: &str,
        _: Option<&PathBuf>,
        lease: &Lease,
    ) -> Result<(), IpamError> {
        self.world().release(lease.ip);
        Ok(())
    }
}

#[async_trait]
impl PodNet for FakeNode {
    async fn create(&self, spec: &LinkSpec) -> Result<MacAddr, NetError> {
        let failed = |e: Injected| NetError::Failed {
            action: "create",
            link: spec.host_name.to_string(),
            source: e.into(),
        };
        self.pass(FaultPoint::CreateLink).await.map_err(failed)?;
        {
            let mut world = self.world();
            if !world.netnses.contains(&spec.netns) {
                let source = "no such file".into();
                return Err(NetError::Netns { path: spec.netns.clone(), source });
            }
            if world.links.contains_key(&spec.host_name) {
                return Err(NetError::Exists(spec.host_name.to_string()));
            }
            if world.links.values().any(|l| l.netns == spec.netns && l.ifname == spec.ifname()) {
                return Err(NetError::Exists(spec.ifname().to_owned()));
            }
            world.links.insert(
                spec.host_name.clone(),
                FakeLink {
                    attachment: spec.attachment.clone(),
                    netns: spec.netns.clone(),
                    ifname: spec.ifname().to_owned(),
                    mac: MacAddr([2; 6]),
                    addresses: Vec::new(),
                    routes: Vec::new(),
                    is_up: false,
                },
            );
        }
        // The host's end is there; the other one fails to get into the Pod.
        self.pass(FaultPoint::MoveLink).await.map_err(failed)?;
        Ok(mac_for(&[]))
    }

    async fn configure(&self, spec: &LinkSpec) -> Result<(), NetError> {
        if let Some(link) = self.world().links.get_mut(&spec.host_name) {
            link.mac = spec.mac;
        }
        for (point, action) in [
            (FaultPoint::Address, "add address to"),
            (FaultPoint::Route, "add route to"),
            (FaultPoint::Offload, "switch off checksum offload of"),
            (FaultPoint::LinkUp, "bring up"),
        ] {
            let failed = |source| NetError::Failed { action, link: spec.ifname().into(), source };
            self.pass(point).await.map_err(|e| failed(e.into()))?;
            let mut world = self.world();
            let link = world.links.get_mut(&spec.host_name);
            let link = link.ok_or_else(|| failed("no such device".into()))?;
            match point {
                FaultPoint::Address => {
                    link.addresses = spec.addresses.iter().map(|a| a.address).collect();
                }
                FaultPoint::Route => {
                    link.routes = spec.addresses.iter().map(|a| a.gateway).collect();
                }
                FaultPoint::LinkUp => link.is_up = true,
                _ => {}
            }
        }
        self.world().talk(&spec.attachment);
        Ok(())
    }

    async fn announce(&self, spec: &LinkSpec) -> Result<(), NetError> {
        self.pass(FaultPoint::Announce).await.map_err(|e| NetError::Failed {
            action: "announce on",
            link: spec.ifname().to_owned(),
            source: e.into(),
        })?;
        let mut world = self.world();
        if !world.flows.contains_key(&spec.attachment) {
            world.violation(format!("{} announced before its flows", spec.attachment));
        }
        world.announced.insert(spec.attachment.clone());
        Ok(())
    }

    async fn check(&self, spec: &LinkSpec) -> Result<MacAddr, NetError> {
        self.pass(FaultPoint::CheckLink).await.map_err(|e| NetError::Failed {
            action: "look at",
            link: spec.ifname().to_owned(),
            source: e.into(),
        })?;
        let world = self.world();
        let differs = |what: &str| Err(NetError::Differs(what.to_owned()));
        let Some(link) = world.links.get(&spec.host_name) else { return differs("no link") };
        if link.mac != spec.mac {
            return differs("another MAC");
        }
        if spec.addresses.iter().any(|a| !link.addresses.contains(&a.address)) {
            return differs("address is missing");
        }
        if spec.addresses.iter().any(|a| !link.routes.contains(&a.gateway)) {
            return differs("route is missing");
        }
        if link.is_up { Ok(mac_for(&[])) } else { differs("link is down") }
    }

    async fn delete(&self, name: &HostIfName, owner: &Attachment) -> Result<(), NetError> {
        self.pass(FaultPoint::DeleteLink).await.map_err(|e| NetError::Failed {
            action: "delete",
            link: name.to_string(),
            source: e.into(),
        })?;
        let mut world = self.world();
        if world.links.get(name).is_some_and(|link| link.attachment == *owner) {
            world.links.remove(name);
        }
        Ok(())
    }

    async fn list(&self) -> Result<Vec<OwnedLink>, NetError> {
        let world = self.world();
        let owned = |(name, link): (&HostIfName, &FakeLink)| OwnedLink {
            host_name: name.clone(),
            attachment: link.attachment.clone(),
        };
        Ok(world.links.iter().map(owned).collect())
    }

    async fn is_alive(&self, record: &PodRecord) -> bool {
        self.world().netnses.contains(&record.netns)
    }
}

#[async_trait]
impl Ports for FakeNode {
    async fn add(&self, record: &PodRecord) -> Result<(), PortsError> {
        let name = || record.host_name.clone();
        self.reach_ovs()?;
        self.pass(FaultPoint::InsertPort).await.map_err(|e| PortsError::Failed {
            action: "insert",
            name: name(),
            source: e.into(),
        })?;
        let mut world = self.world();
        if let Some(port) = world.ports.get(&record.host_name)
            && port.attachment != record.attachment
        {
            let source = "it is another's".into();
            return Err(PortsError::Failed { action: "insert", name: name(), source });
        }
        for ip in &record.ips {
            if world.ports.values().any(|p| p.host_name != record.host_name && p.ips.contains(ip)) {
                world.violation(format!("two ports have {ip}"));
            }
        }
        // A number that is taken is not given: OVS picks one.
        let mut port = record.clone();
        if let Some(number) = world.force_ofport.take() {
            port.ofport = number;
        }
        world.ports.insert(name(), port);
        Ok(())
    }

    async fn note_addresses(&self, record: &PodRecord) -> Result<(), PortsError> {
        self.reach_ovs()?;
        let failed = |source| PortsError::Failed {
            action: "note addresses on",
            name: record.host_name.clone(),
            source,
        };
        self.pass(FaultPoint::NotePort).await.map_err(|e| failed(e.into()))?;
        let mut world = self.world();
        let taken = |p: &PodRecord| p.host_name != record.host_name;
        for ip in &record.ips {
            if world.ports.values().any(|p| taken(p) && p.ips.contains(ip)) {
                world.violation(format!("two ports have {ip}"));
            }
        }
        let port = world.ports.get_mut(&record.host_name);
        let port = port.ok_or_else(|| failed("no such port".into()))?;
        port.mac = record.mac;
        port.ips.clone_from(&record.ips);
        Ok(())
    }

    async fn wait_ofport(&self, record: &PodRecord) -> Result<OfPort, PortsError> {
        let name = &record.host_name;
        self.reach_ovs()?;
        self.pass(FaultPoint::PortNoNumber)
            .await
            .map_err(|_| PortsError::NoNumber(name.clone()))?;
        let refused = |reason: String| PortsError::Refused { name: name.clone(), reason };
        self.pass(FaultPoint::PortRefused).await.map_err(|e| refused(e.to_string()))?;
        let world = self.world();
        if !world.links.contains_key(name) {
            return Err(refused("No such device".into()));
        }
        world.ports.get(name).map(|port| port.ofport).ok_or_else(|| refused("no row".into()))
    }

    async fn delete(&self, attachment: &Attachment) -> Result<(), PortsError> {
        self.reach_ovs()?;
        self.pass(FaultPoint::DeletePort).await.map_err(|e| PortsError::Failed {
            action: "delete",
            name: HostIfName::existing(""),
            source: e.into(),
        })?;
        self.world().ports.retain(|_, port| port.attachment != *attachment);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<PodRecord>, PortsError> {
        self.reach_ovs()?;
        Ok(self.world().ports.values().cloned().collect())
    }

    async fn used_ofports(&self) -> Result<BTreeSet<OfPort>, PortsError> {
        self.reach_ovs()?;
        Ok(self.world().ports.values().map(|port| port.ofport).collect())
    }

    async fn check(&self, record: &PodRecord) -> Result<(), PortsError> {
        self.reach_ovs()?;
        match self.world().ports.get(&record.host_name) {
            Some(port) if port == record => Ok(()),
            Some(_) => Err(PortsError::Differs("port has other notes".into())),
            None => Err(PortsError::Differs("port is missing".into())),
        }
    }
}

impl FakeNode {
    fn reach_ovs(&self) -> Result<(), PortsError> {
        if self.world().ovs_is_down {
            return Err(PortsError::Unavailable("connection refused".into()));
        }
        Ok(())
    }
}

#[async_trait]
impl Flows for FakeNode {
    async fn wait_reachable(&self, _: Duration) -> Result<(), FlowsError> {
        match self.world().switch_is_away {
            true => Err(FlowsError::Unavailable("ovs-vswitchd does not answer".into())),
            false => Ok(()),
        }
    }

    async fn install(&self, record: &PodRecord) -> Result<(), FlowsError> {
        self.wait_reachable(Duration::ZERO).await?;
        self.pass(FaultPoint::InstallFlows)
            .await
            .map_err(|e| FlowsError::Refused(e.to_string()))?;
        let mut world = self.world();
        world.flows.insert(record.attachment.clone(), record.ofport);
        world.talk(&record.attachment);
        Ok(())
    }

    async fn in_force(&self, records: &[PodRecord]) -> BTreeSet<Attachment> {
        let world = self.world();
        let has_flows =
            |record: &&PodRecord| world.flows.get(&record.attachment) == Some(&record.ofport);
        records.iter().filter(has_flows).map(|record| record.attachment.clone()).collect()
    }

    fn restore(&self, record: &PodRecord, port: PortState) {
        let mut world = self.world();
        match port {
            PortState::Open => world.closed.remove(&record.attachment),
            PortState::Closed => world.closed.insert(record.attachment.clone()),
        };
        match record.ofport {
            OfPort::NONE => world.flows.remove(&record.attachment),
            ofport => world.flows.insert(record.attachment.clone(), ofport),
        };
    }

    async fn remove(&self, attachment: &Attachment) -> Result<(), FlowsError> {
        self.wait_reachable(Duration::ZERO).await?;
        self.pass(FaultPoint::RemoveFlows).await.map_err(|e| FlowsError::Unavailable(e.into()))?;
        self.world().flows.remove(attachment);
        Ok(())
    }

    async fn check(&self, record: &PodRecord) -> Result<(), FlowsError> {
        match self.world().flows.get(&record.attachment) {
            Some(ofport) if *ofport == record.ofport => Ok(()),
            _ => Err(FlowsError::Missing("flows are missing".into())),
        }
    }
}

#[async_trait]
impl Conntrack for FakeNode {
    async fn flush(&self, ips: &[IpAddr]) -> Result<(), ConntrackError> {
        self.pass(FaultPoint::FlushConntrack)
            .await
            .map_err(|e| ConntrackError { ips: ips.to_vec(), source: e.into() })?;
        self.world().connections.retain(|ip| !ips.contains(ip));
        Ok(())
    }
}
