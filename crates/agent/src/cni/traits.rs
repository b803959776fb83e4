//! What the CNI server needs of the world: addresses, links, ports, flows, conntrack.
//!
//! Each trait has only the calls that are made. Every call may be repeated: deleting what is not
//! there succeeds. The real ones are in `real`, those of tests in `fake`.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use cni_api::Attachment;
use openflow::{MacAddr, OfPort};
use tonic::async_trait;

use super::model::{HostIfName, PodAddress, PodRecord};

/// Whatever went wrong underneath.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an address was not given, found or taken back.
#[derive(Debug, thiserror::Error)]
pub enum IpamError {
    /// Every address is in use.
    #[error("no address left in {0}")]
    Exhausted(String),
    /// The attachment has no lease on that address.
    #[error("address {0} is not leased to this container")]
    NotLeased(IpAddr),
    /// The store of leases failed.
    #[error("{action} address")]
    Failed {
        /// What was tried.
        action: &'static str,
        /// Why not.
        source: BoxError,
    },
}

/// Why a link is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// The Pod's namespace cannot be entered.
    #[error("network namespace {path:?} cannot be used")]
    Netns {
        /// Its path.
        path: String,
        /// Why not.
        source: BoxError,
    },
    /// The interface name is taken inside the Pod.
    #[error("interface {0} exists")]
    Exists(String),
    /// CHECK: something is not as it was made.
    #[error("{0}")]
    Differs(String),
    /// The kernel refused.
    #[error("{action} {link}")]
    Failed {
        /// What was tried.
        action: &'static str,
        /// On which link.
        link: String,
        /// Why not.
        source: BoxError,
    },
}

/// Why a port is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum PortsError {
    /// Open vSwitch does not answer.
    #[error("Open vSwitch is not reachable")]
    Unavailable(#[source] BoxError),
    /// ovs-vswitchd could not use the link (`ofport=-1`).
    #[error("Open vSwitch cannot use {name}: {reason}")]
    Refused {
        /// The port.
        name: HostIfName,
        /// What ovs-vswitchd says.
        reason: String,
    },
    /// ovs-vswitchd gave no number in time.
    #[error("Open vSwitch gives port {0} no number")]
    NoNumber(HostIfName),
    /// CHECK: something is not as it was made.
    #[error("{0}")]
    Differs(String),
    /// The database refused.
    #[error("{action} port {name}")]
    Failed {
        /// What was tried.
        action: &'static str,
        /// On which port.
        name: HostIfName,
        /// Why not.
        source: BoxError,
    },
}

/// Why flows are not on the switch.
#[derive(Debug, thiserror::Error)]
pub enum FlowsError {
    /// The switch does not answer.
    #[error("the bridge is not reachable")]
    Unavailable(#[source] BoxError),
    /// The switch refused one.
    #[error("the bridge refused flows: {0}")]
    Refused(String),
    /// CHECK: flows are not there.
    #[error("{0}")]
    Missing(String),
}

/// Why conntrack entries may still be there.
#[derive(Debug, thiserror::Error)]
#[error("flush conntrack entries of {ips:?}")]
pub struct ConntrackError {
    /// Whose entries.
    pub ips: Vec<IpAddr>,
    /// Why not.
    pub source: BoxError,
}

/// Where leases are and whose they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IpamRequest {
    /// Whose lease.
    pub attachment: Attachment,
    /// Name of the network: a folder of leases.
    pub network: String,
    /// Folder above it, when the configuration names one.
    pub data_dir: Option<PathBuf>,
    /// The address the Pod wishes.
    pub wish: Option<IpAddr>,
    /// Path of the Pod's namespace; may be empty except to allocate.
    pub netns: String,
    /// Where the runtime has plugins, separated by colons.
    pub cni_path: String,
}

impl IpamRequest {
    /// About the lease that this interface has: in the folder of the network by whose name it was
    /// taken, whatever the configuration calls it by now.
    #[must_use]
    pub fn for_lease_of(mut self, record: &PodRecord) -> Self {
        if !record.network.is_empty() {
            self.network.clone_from(&record.network);
        }
        self
    }
}

/// One lease found by [`Ipam::leases`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The address.
    pub ip: IpAddr,
    /// The container that holds it, as written; empty when the writer was cut short.
    pub container_id: String,
    /// Its interface; empty in leases of old plugins.
    pub ifname: String,
}

impl Lease {
    /// Whether this attachment holds it.
    pub fn is_of(&self, attachment: &Attachment) -> bool {
        self.container_id == attachment.container_id.as_str()
            && (self.ifname.is_empty() || self.ifname == attachment.ifname.as_str())
    }

    /// Who holds it; none when that can be nobody.
    pub fn attachment(&self) -> Option<Attachment> {
        let ifname = if self.ifname.is_empty() { "eth0" } else { &self.ifname };
        Attachment::new(self.container_id.as_str(), ifname).ok()
    }
}

/// Leases of addresses.
#[async_trait]
pub trait Ipam: Send + Sync {
    /// Gives one address of each family, or none at all.
    async fn allocate(&self, request: &IpamRequest) -> Result<Vec<PodAddress>, IpamError>;

    /// Takes back all that the attachment holds.
    async fn release(&self, request: &IpamRequest) -> Result<(), IpamError>;

    /// Fails unless the attachment holds just these addresses.
    async fn check(&self, request: &IpamRequest, ips: &[IpAddr]) -> Result<(), IpamError>;

    /// Every lease of the network; the attachment of the request is not looked at.
    async fn leases(
        &self,
        network: &str,
        data_dir: Option<&PathBuf>,
    ) -> Result<Vec<Lease>, IpamError>;

    /// Takes back one lease, if it is still as it was seen.
    async fn release_lease(
        &self,
        network: &str,
        data_dir: Option<&PathBuf>,
        lease: &Lease,
    ) -> Result<(), IpamError>;
}

/// A Pod's link: what is needed to make, find and judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkSpec {
    /// Whose link; written on the host's end, so that it is known as ours.
    pub attachment: Attachment,
    /// Name of the host's end.
    pub host_name: HostIfName,
    /// Path of the Pod's namespace as the runtime gave it.
    pub netns: String,
    /// MAC of the Pod's end.
    pub mac: MacAddr,
    /// MTU of both.
    pub mtu: u32,
    /// Addresses of the Pod's end, with the gateways of its routes.
    pub addresses: Vec<PodAddress>,
}

impl LinkSpec {
    /// Name of the Pod's end.
    pub fn ifname(&self) -> &str {
        self.attachment.ifname.as_str()
    }
}

/// The host's end of a veth pair that is marked as ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedLink {
    /// Its name.
    pub host_name: HostIfName,
    /// Whose it is, as written on it.
    pub attachment: Attachment,
}

/// The Pod's side of the kernel.
#[async_trait]
pub trait PodNet: Send + Sync {
    /// Makes the veth pair, one end inside the Pod, without MAC and addresses; drops the kernel's own copy of its frames where
    /// the datapath needs that, and then brings the host's end up. Returns that end's MAC.
    async fn create(&self, spec: &LinkSpec) -> Result<MacAddr, NetError>;

    /// Gives the Pod's end its MAC, addresses, routes and offloads, and brings it up.
    async fn configure(&self, spec: &LinkSpec) -> Result<(), NetError>;

    /// Tells neighbours where the addresses are now.
    async fn announce(&self, spec: &LinkSpec) -> Result<(), NetError>;

    /// Fails with [`NetError::Differs`] unless both ends are as made. Returns the MAC of the host's
    /// end.
    async fn check(&self, spec: &LinkSpec) -> Result<MacAddr, NetError>;

    /// Deletes the pair. A link of that name which is another attachment's is left alone.
    async fn delete(&self, name: &HostIfName, owner: &Attachment) -> Result<(), NetError>;

    /// Every link of ours.
    async fn list(&self) -> Result<Vec<OwnedLink>, NetError>;

    /// Whether the Pod's namespace is still there, by its path and by the link, which cannot
    /// outlive it. Unknown counts as yes.
    async fn is_alive(&self, record: &PodRecord) -> bool;
}

/// Ports of Pods in Open vSwitch.
#[async_trait]
pub trait Ports: Send + Sync {
    /// Adds the port with the record in its notes, and asks for the record's number.
    async fn add(&self, record: &PodRecord) -> Result<(), PortsError>;

    /// Completes the notes of a port that was added before its addresses were known.
    async fn note_addresses(&self, record: &PodRecord) -> Result<(), PortsError>;

    /// Waits for the number that the port got, be it the record's or another one.
    async fn wait_ofport(&self, record: &PodRecord) -> Result<OfPort, PortsError>;

    /// Deletes the ports of an attachment, found by their notes.
    async fn delete(&self, attachment: &Attachment) -> Result<(), PortsError>;

    /// Every Pod's port.
    async fn list(&self) -> Result<Vec<PodRecord>, PortsError>;

    /// Numbers that are given out or asked for, whoever's they are.
    async fn used_ofports(&self) -> Result<BTreeSet<OfPort>, PortsError>;

    /// Fails with [`PortsError::Differs`] unless the port is there with its number and notes.
    async fn check(&self, record: &PodRecord) -> Result<(), PortsError>;
}

/// Whether a Pod of before may use its port at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// It may.
    Open,
    /// Not before the flows of policies are there for it.
    Closed,
}

/// Flows of Pods on the bridge.
#[async_trait]
pub trait Flows: Send + Sync {
    /// Fails unless the switch can be told something by now, or within this time.
    async fn wait_reachable(&self, patience: Duration) -> Result<(), FlowsError>;

    /// Puts the Pod's flows on the switch, replacing earlier ones; done when they are in force.
    async fn install(&self, record: &PodRecord) -> Result<(), FlowsError>;

    /// Which of these Pods, that were there before this process, have their flows on the switch
    /// already, or get them with those of policies: they need not be kept closed.
    async fn in_force(&self, records: &[PodRecord]) -> BTreeSet<Attachment>;

    /// States the flows without waiting: for Pods that were there before. A Pod whose port has no
    /// number has none. With another number than the one that is published as the interface's,
    /// policies do not follow.
    fn restore(&self, record: &PodRecord, port: PortState);

    /// Takes the Pod's flows off the switch; done when they are gone.
    async fn remove(&self, attachment: &Attachment) -> Result<(), FlowsError>;

    /// Fails with [`FlowsError::Missing`] unless the Pod's flows are in force.
    async fn check(&self, record: &PodRecord) -> Result<(), FlowsError>;
}

/// Connections that the node remembers.
#[async_trait]
pub trait Conntrack: Send + Sync {
    /// Forgets every connection with one of the addresses at either end, in Open vSwitch and in the
    /// kernel.
    async fn flush(&self, ips: &[IpAddr]) -> Result<(), ConntrackError>;
}
