//! ADD: connects a container.

use std::collections::BTreeSet;
use std::sync::Arc;

use cni_api::{CniResult, Interface, IpConfig, NetConf, Route};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use openflow::MacAddr;
use tracing::{info, warn};

use super::drive::{Job, Stopped};
use super::failure::{CniFailure, chain};
use super::model::{PodAddress, PodRecord};
use super::plan::Piece;
use super::request::CmdRequest;
use super::server::{Node, Shared};
use super::store::EntryState;
use super::traits::{IpamRequest, LinkSpec};

impl Shared {
    /// Connects a container, or says again how it is connected. The caller holds its lock.
    pub(super) async fn add(
        self: &Arc<Self>,
        node: &Arc<Node>,
        request: &CmdRequest,
    ) -> Result<CniResult, CniFailure> {
        let existing = self.store().get(&request.attachment).cloned();
        if let Some(entry) = existing {
            if entry.state == EntryState::Made && entry.record.netns == request.netns {
                match self.verify(node, request, &entry.record).await {
                    Ok((link, host_mac)) => return Ok(mk_result(&request.conf, &link, host_mac)),
                    Err(failure) if failure.is_damage() => info!(attachment = %request.attachment,
                        error = chain(&failure), "connected before, not intact: made again"),
                    // What could not be looked at may well be intact.
                    Err(failure) => return Err(failure),
                }
            }
            let record = entry.record;
            let ipam = request.ipam.clone().for_lease_of(&record);
            self.tear_down(node, ipam, record, &Piece::ALL.into()).await?;
        }
        self.build(node, request).await
    }

    async fn build(
        self: &Arc<Self>,
        node: &Arc<Node>,
        request: &CmdRequest,
    ) -> Result<CniResult, CniFailure> {
        let mtu = link_mtu(request, node)?;
        let used = node.ports.used_ofports().await?;
        let record = {
            let mut store = self.store();
            let record = PodRecord {
                attachment: request.attachment.clone(),
                pod: request.pod.clone(),
                netns: request.netns.clone(),
                network: request.ipam.network.clone(),
                host_name: store.free_name(&request.pod, &request.attachment),
                mac: MacAddr([0; 6]),
                ips: Vec::new(),
                ofport: store.free_ofport(&used).ok_or(CniFailure::NoPortNumber)?,
            };
            // From here on name and number are taken.
            store.put(record.clone(), EntryState::Partial);
            record
        };
        // Known from here on: no lease that it takes is without an owner.
        self.collect_leases_once(node, &request.ipam).await;
        if self.reaper.wait_for(&record, self.step_deadline()).await.is_err() {
            warn!(link = %record.host_name, "the link of an earlier Pod is still being deleted");
            self.store().remove(&request.attachment);
            return Err(CniFailure::Overdue);
        }
        let mut job = Job { mtu, ..self.mk_job(node, request.ipam.clone(), record) };
        match job.build(|record| self.claim(record)).await {
            Ok(()) => {
                self.journal.note(&job.record).await;
                self.store().put(job.record.clone(), EntryState::Made);
                self.publish();
                Ok(mk_result(&request.conf, &job.link(), job.host_mac))
            }
            Err(Stopped { cause, pieces }) => {
                // The runtime hears the cause; what could not be undone stays known, and is undone
                // as soon as it can be.
                if job.is_overdue() {
                    self.tear_down_later(node, job);
                } else if let Err(failure) =
                    self.tear_down(node, job.ipam, job.record, &pieces).await
                {
                    warn!(attachment = %request.attachment, error = chain(&failure),
                        "a failed ADD is not wholly undone yet");
                }
                Err(cause)
            }
        }
    }

    /// Makes the addresses of an interface its own, unless another one has them: leases may have
    /// been lost while Pods lived on.
    fn claim(&self, record: &PodRecord) -> Result<(), CniFailure> {
        let mut store = self.store();
        for ip in &record.ips {
            if let Some(other) = store.other_holder(*ip, &record.attachment) {
                let other = other.pod.to_string();
                return Err(CniFailure::AddressInUse { ip: *ip, other });
            }
        }
        store.put(record.clone(), EntryState::Partial);
        Ok(())
    }

    /// Unmakes pieces of an interface, and forgets it when nothing is left. The first failure is
    /// returned, after all that can be undone is.
    pub(super) async fn tear_down(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ipam: IpamRequest,
        record: PodRecord,
        pieces: &BTreeSet<Piece>,
    ) -> Result<(), CniFailure> {
        let attachment = record.attachment.clone();
        if self.store().get(&attachment).is_some_and(|entry| entry.state == EntryState::Overdue) {
            return Err(CniFailure::Overdue);
        }
        // Not to be made again from here on, whatever becomes of the port.
        self.journal.forget(&attachment).await;
        self.store().mark_partial(&attachment);
        let job = self.mk_job(node, ipam, record);
        let first_failure = job.tear_down(pieces).await.into_iter().next();
        match first_failure {
            None => {
                self.store().remove(&attachment);
                self.is_undone(&attachment).await;
            }
            Some(_) if job.is_overdue() => self.tear_down_later(node, job),
            Some(_) => self.undo_later(job.ipam, &job.record).await,
        }
        self.publish();
        first_failure.map_or(Ok(()), Err)
    }

    /// Unmakes an interface as soon as the steps at work on it have ended. Until then nothing else
    /// is done with it: what ends late must not meet what is made next.
    pub(super) fn tear_down_later(self: &Arc<Self>, node: &Arc<Node>, job: Job) {
        self.store().put(job.record.clone(), EntryState::Overdue);
        let (shared, node) = (Arc::clone(self), Arc::clone(node));
        let overdue = self.count_overdue();
        self.requests.spawn(async move {
            job.overdue().await;
            drop(overdue);
            let attachment = job.record.attachment.clone();
            let _guard = shared.locks.lock(&attachment).await;
            shared.store().mark_partial(&attachment);
            let undone = shared.tear_down(&node, job.ipam, job.record, &Piece::ALL.into()).await;
            match undone {
                Ok(()) => info!(%attachment, "a step that was too slow has ended and is undone"),
                Err(failure) => warn!(%attachment, error = chain(&failure),
                    "a step that was too slow is not wholly undone"),
            }
        });
    }
}

/// The MTU of a Pod's link: what the configuration wishes, else the node's.
pub(super) fn link_mtu(request: &CmdRequest, node: &Node) -> Result<u32, CniFailure> {
    let most = node.network.mtu;
    match request.conf.mtu {
        0 => Ok(most),
        wished if wished <= most => Ok(wished),
        wished => Err(CniFailure::Mtu { wished, most }),
    }
}

/// The result of ADD. The runtime keeps it, hands it to the plugins behind us and back to CHECK.
pub(super) fn mk_result(conf: &NetConf, link: &LinkSpec, host_mac: MacAddr) -> CniResult {
    let mtu = Some(link.mtu);
    let host = Interface {
        name: link.host_name.to_string(),
        mac: host_mac.to_string(),
        mtu,
        sandbox: String::new(),
    };
    let container = Interface {
        name: link.ifname().to_owned(),
        mac: link.mac.to_string(),
        mtu,
        sandbox: link.netns.clone(),
    };
    let ip = |address: &PodAddress| IpConfig {
        interface: Some(1),
        address: address.address,
        gateway: Some(address.gateway),
    };
    CniResult {
        interfaces: vec![host, container],
        ips: link.addresses.iter().map(ip).collect(),
        routes: link.addresses.iter().map(default_route).collect(),
        dns: conf.dns.clone(),
    }
}

/// The route a Pod has of the family of an address.
fn default_route(address: &PodAddress) -> Route {
    let dst = match address.gateway {
        std::net::IpAddr::V4(_) => IpNet::V4(Ipv4Net::default()),
        std::net::IpAddr::V6(_) => IpNet::V6(Ipv6Net::default()),
    };
    Route::new(dst, Some(address.gateway))
}
