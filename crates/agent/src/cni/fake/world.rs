//! What a fake node holds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use cni_api::Attachment;
use ipnet::{IpNet, Ipv4Net};
use openflow::{MacAddr, OfPort};
use tokio::sync::watch;

use super::super::model::{HostIfName, PodRecord};

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultPoint {
    /// No lease is given.
    Allocate,
    /// The veth pair is not made.
    CreateLink,
    /// The pair is made, but its end does not get into the Pod.
    MoveLink,
    /// The address is refused.
    Address,
    /// The route is refused.
    Route,
    /// The offload stays on.
    Offload,
    /// The link does not come up.
    LinkUp,
    /// OVSDB refuses the port.
    InsertPort,
    /// OVSDB refuses the notes.
    NotePort,
    /// `ofport` becomes -1.
    PortRefused,
    /// `ofport` is never set.
    PortNoNumber,
    /// The switch refuses flows.
    InstallFlows,
    /// The announcement is not sent.
    Announce,
    /// Flows stay.
    RemoveFlows,
    /// The port stays.
    DeletePort,
    /// Connections stay.
    FlushConntrack,
    /// The link stays.
    DeleteLink,
    /// The lease stays.
    Release,
    /// Leases cannot be listed.
    ListLeases,
    /// The link cannot be looked at.
    CheckLink,
}

impl FaultPoint {
    /// Every point at which an ADD can fail for good.
    pub const OF_ADD: [Self; 12] = [
        Self::Allocate,
        Self::CreateLink,
        Self::MoveLink,
        Self::Address,
        Self::Route,
        Self::Offload,
        Self::LinkUp,
        Self::InsertPort,
        Self::NotePort,
        Self::PortRefused,
        Self::PortNoNumber,
        Self::InstallFlows,
    ];
}

/// A veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FakeLink {
    /// Whose.
    pub attachment: Attachment,
    /// Where the Pod's end is.
    pub netns: String,
    /// Its name there.
    pub ifname: String,
    /// Its MAC.
    pub mac: MacAddr,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Gateways of its default routes.
    pub routes: Vec<IpAddr>,
    /// Whether it is up.
    pub is_up: bool,
}

/// Everything a fake node holds.
#[derive(Debug, Default)]
pub struct World {
    /// Paths of network namespaces.
    pub netnses: BTreeSet<String>,
    /// Leases and their owners.
    pub leases: BTreeMap<IpAddr, Attachment>,
    /// Links by the name of the host's end.
    pub links: BTreeMap<HostIfName, FakeLink>,
    /// Ports.
    pub ports: BTreeMap<HostIfName, PodRecord>,
    /// Flows: who has some, and for which number.
    pub flows: BTreeMap<Attachment, OfPort>,
    /// Networks in whose folders leases were looked for to release them.
    pub released_from: Vec<String>,
    /// Pods of before whose ports are closed until policies follow.
    pub closed: BTreeSet<Attachment>,
    /// Addresses that have connections.
    pub connections: BTreeSet<IpAddr>,
    /// Who was announced.
    pub announced: BTreeSet<Attachment>,
    /// Open vSwitch does not answer.
    pub ovs_is_down: bool,
    /// ovs-vswitchd does not answer.
    pub switch_is_away: bool,
    /// The number that the next port gets, whatever is asked for.
    pub force_ofport: Option<OfPort>,
    faults: BTreeMap<FaultPoint, usize>,
    hanging: watch::Sender<BTreeSet<FaultPoint>>,
    violations: Vec<String>,
    last_ip: u8,
}

/// Prefix of Pods.
pub(super) fn pod_cidr() -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(10, 77, 1, 0), 24))
}

/// Address of the gateway.
pub(super) fn gateway() -> IpAddr {
    Ipv4Addr::new(10, 77, 1, 1).into()
}

impl World {
    /// Makes the next `n_times` calls fail at a point.
    pub fn fail_at(&mut self, point: FaultPoint, n_times: usize) {
        self.faults.insert(point, n_times);
    }

    /// Makes calls hang at a point, until the world is healed: then they go on.
    pub fn hang_at(&mut self, point: FaultPoint) {
        self.hanging.send_modify(|hanging| {
            hanging.insert(point);
        });
    }

    /// Calls go through again.
    pub fn heal(&mut self) {
        self.faults.clear();
        self.hanging.send_modify(BTreeSet::clear);
    }

    /// What was done that must never be done.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// What is there of Pods, one line for each thing.
    pub fn leftovers(&self) -> Vec<String> {
        let leases = self.leases.keys().map(|ip| format!("lease {ip}"));
        let links = self.links.keys().map(|name| format!("link {name}"));
        let ports = self.ports.keys().map(|name| format!("port {name}"));
        let flows = self.flows.keys().map(|owner| format!("flows of {owner}"));
        let connections = self.connections.iter().map(|ip| format!("connection of {ip}"));
        leases.chain(links).chain(ports).chain(flows).chain(connections).collect()
    }

    pub(super) fn fails(&mut self, point: FaultPoint) -> bool {
        let Some(n_times) = self.faults.get_mut(&point).filter(|n_times| **n_times > 0) else {
            return false;
        };
        *n_times -= 1;
        true
    }

    /// Where calls hang now.
    pub(super) fn hanging(&self) -> watch::Receiver<BTreeSet<FaultPoint>> {
        self.hanging.subscribe()
    }

    pub(super) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(super) fn leases_of<'a>(
        &'a self,
        owner: &'a Attachment,
    ) -> impl Iterator<Item = IpAddr> + 'a {
        self.leases.iter().filter(move |(_, other)| *other == owner).map(|(ip, _)| *ip)
    }

    /// A Pod has connections as soon as it can: its link is up, with addresses, and it has flows.
    pub(super) fn talk(&mut self, attachment: &Attachment) {
        let has_flows = self.flows.contains_key(attachment);
        let up = |link: &&FakeLink| link.is_up && link.attachment == *attachment;
        if let Some(link) = self.links.values().find(up).filter(|_| has_flows) {
            self.connections.extend(link.addresses.iter().map(IpNet::addr));
        }
    }

    /// The next free address, round and round like host-local.
    pub fn free_ip(&mut self) -> Option<IpAddr> {
        for _ in 2..=254 {
            self.last_ip = if (2..254).contains(&self.last_ip) { self.last_ip + 1 } else { 2 };
            let ip = IpAddr::from(Ipv4Addr::new(10, 77, 1, self.last_ip));
            if !self.leases.contains_key(&ip) {
                return Some(ip);
            }
        }
        None
    }

    /// Frees an address, and notices what could still use it.
    pub(super) fn release(&mut self, ip: IpAddr) {
        let Some(owner) = self.leases.remove(&ip) else { return };
        if self.ports.values().any(|port| port.ips.contains(&ip)) {
            self.violation(format!("{ip} released while its port is there"));
        }
        if self.flows.contains_key(&owner) {
            self.violation(format!("{ip} released while its flows are there"));
        }
        if self.connections.contains(&ip) {
            self.violation(format!("{ip} released with connections"));
        }
    }
}
