//! Removes what nobody owns: at start, and when the runtime says what is in use (GC).
//!
//! What is owned follows from the ports; leases and links without one are left from a request that
//! a crash cut short, ports without a namespace from a reboot. A Pod that runs and is in the journal
//! but has no port lost it with the bridge or the database: its port is made again.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cni_api::{Attachment, NetConf};
use futures::future::join_all;
use openflow::OfPort;
use tracing::{info, warn};

use super::failure::{CniFailure, chain};
use super::model::PodRecord;
use super::request::{self, RequestError};
use super::server::{Node, Shared};
use super::store::EntryState;
use super::traits::{IpamError, IpamRequest, PortState};

/// A folder of leases: name of the network, and the folder above when it is not the usual one.
pub(super) type LeaseDir = (String, Option<PathBuf>);

/// Pause before what could not be removed at the start is tried again.
const LEFTOVER_RETRY: Duration = Duration::from_secs(5);

/// What could not be removed at the start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers {
    /// Pods that are gone.
    pods: BTreeSet<Attachment>,
    /// Links may be left.
    links: bool,
    /// Leases may be left.
    leases: bool,
}

impl Shared {
    /// Takes over the interfaces that are there and removes what is left of others. Runs before the
    /// first request. Returns what could not be removed.
    pub(super) async fn restore(
        self: &Arc<Self>,
        node: &Arc<Node>,
    ) -> Result<Leftovers, CniFailure> {
        let records = node.ports.list().await?;
        let lost = self.compare_journal(node, &records).await;
        let debts = self.journal.owed().await;
        let is_owed =
            |record: &PodRecord| debts.iter().any(|(owed, _)| owed.attachment == record.attachment);
        let restored = |record: &&PodRecord| !record.ips.is_empty() && !is_owed(record);
        let living: Vec<PodRecord> = records.iter().filter(restored).cloned().collect();
        let in_force = node.flows.in_force(&living).await;
        for record in &living {
            let is_open = in_force.contains(&record.attachment);
            let port = if is_open { PortState::Open } else { PortState::Closed };
            node.flows.restore(record, port);
        }
        self.store().restore(records.clone());
        info!(n_pods = records.len(), "Pod interfaces taken over");
        self.restore_lost(node, lost).await;
        for debt in debts.clone() {
            self.take_over_debt(node, debt).await;
        }

        let mut leftovers = Leftovers::default();
        for record in records {
            let attachment = record.attachment.clone();
            if is_owed(&record) {
                continue;
            }
            let why = match record.ips.is_empty() {
                true => "its ADD was cut short",
                false if node.net.is_alive(&record).await => continue,
                false => "its namespace is gone",
            };
            info!(pod = %record.pod, %attachment, netns = record.netns, why, "Pod removed");
            if let Err(failure) = self.remove(node, self.noted_ipam(&record), record).await {
                warn!(%attachment, error = chain(&failure), "Pod not removed: to be tried again");
                leftovers.pods.insert(attachment);
            }
        }
        leftovers.links = !self.collect_links(node).await;
        leftovers.leases = !self.collect_dir_once(node, self.default_ipam_dir(), None).await;
        self.publish();
        Ok(leftovers)
    }

    /// Removes what could not be removed at the start as soon as it can be.
    pub(super) async fn finish_restore(self: &Arc<Self>, mut leftovers: Leftovers) {
        while leftovers != Leftovers::default() {
            tokio::time::sleep(LEFTOVER_RETRY).await;
            let Ok(node) = self.node() else { continue };
            for attachment in std::mem::take(&mut leftovers.pods) {
                let _guard = self.locks.lock(&attachment).await;
                // A request may have dealt with it meanwhile.
                let entry = self.store().get(&attachment).cloned();
                let Some(entry) = entry.filter(|entry| entry.state != EntryState::Made) else {
                    continue;
                };
                let ipam = self.noted_ipam(&entry.record);
                match self.remove(&node, ipam, entry.record).await {
                    Ok(()) => info!(%attachment, "Pod removed at last"),
                    Err(_) => _ = leftovers.pods.insert(attachment),
                }
            }
            if leftovers.links {
                leftovers.links = !self.collect_links(&node).await;
            }
            if leftovers.leases {
                leftovers.leases =
                    !self.collect_dir_once(&node, self.default_ipam_dir(), None).await;
            }
        }
    }

    /// The usual folder of leases, of the network that was noted. Another folder's leases are
    /// collected before the first one is taken from it.
    fn noted_ipam(&self, record: &PodRecord) -> IpamRequest {
        self.default_ipam(&record.attachment).for_lease_of(record)
    }

    /// Brings the journal to what the ports' notes say, and returns the Pods that run without a
    /// port.
    async fn compare_journal(&self, node: &Arc<Node>, records: &[PodRecord]) -> Vec<PodRecord> {
        let noted = self.journal.list().await;
        let owed = self.journal.owed().await;
        let is_owed =
            |record: &&PodRecord| owed.iter().any(|(owed, _)| owed.attachment == record.attachment);
        let stays = |record: &&PodRecord| !record.ips.is_empty() && !is_owed(record);
        for record in records.iter().filter(stays) {
            if !noted.contains(record) {
                self.journal.note(record).await;
            }
        }
        let mut lost = Vec::new();
        for record in noted {
            if records.iter().any(|other| other.attachment == record.attachment) {
                continue;
            }
            match node.net.is_alive(&record).await {
                true => lost.push(record),
                false => {
                    self.journal.forget(&record.attachment).await;
                    // What guarded its link may have outlived it.
                    self.reaper.reap(Arc::clone(&node.net), record);
                }
            }
        }
        lost
    }

    /// Makes the ports of these Pods again.
    async fn restore_lost(self: &Arc<Self>, node: &Arc<Node>, lost: Vec<PodRecord>) {
        if lost.is_empty() {
            return;
        }
        warn!(n_pods = lost.len(), "Pods run whose ports are gone: they are made again");
        self.store().restore(lost.clone());
        let made = lost.iter().map(|record| self.remake(node, record));
        for (record, made) in lost.iter().zip(join_all(made).await) {
            let record = made.unwrap_or_else(|failure| {
                // Known all the same: who follows the ports tries again.
                warn!(pod = %record.pod, error = chain(&failure), "port not made again");
                PodRecord { ofport: OfPort::NONE, ..record.clone() }
            });
            node.flows.restore(&record, PortState::Closed);
            self.store().put(record, EntryState::Made);
        }
    }

    /// Makes the port of an interface that lost it, and returns the interface with its number.
    pub(super) async fn remake(
        &self,
        node: &Arc<Node>,
        record: &PodRecord,
    ) -> Result<PodRecord, CniFailure> {
        let used = node.ports.used_ofports().await?;
        let mut record = record.clone();
        if record.ofport == OfPort::NONE || used.contains(&record.ofport) {
            let free = self.store().free_ofport(&used);
            record.ofport = free.ok_or(CniFailure::NoPortNumber)?;
        }
        node.ports.add(&record).await?;
        record.ofport = node.ports.wait_ofport(&record).await?;
        Ok(record)
    }

    /// Removes links of ours that belong to no interface. False when some may be left.
    async fn collect_links(&self, node: &Arc<Node>) -> bool {
        let links = match node.net.list().await {
            Ok(links) => links,
            Err(error) => {
                warn!(error = chain(&error), "links not collected");
                return false;
            }
        };
        let mut complete = true;
        for link in links {
            let guard = self.locks.lock(&link.attachment).await;
            let owned = self.store().get(&link.attachment).is_some();
            if !owned {
                info!(link = %link.host_name, attachment = %link.attachment,
                    "link without a Pod removed");
                if let Err(error) = node.net.delete(&link.host_name, &link.attachment).await {
                    warn!(link = %link.host_name, error = chain(&error), "link not removed");
                    complete = false;
                }
            }
            drop(guard);
        }
        complete
    }

    /// Before the first lease is taken from a folder, those in it that nobody owns are taken back.
    /// Whoever is about to take one has an entry by then.
    pub(super) async fn collect_leases_once(&self, node: &Arc<Node>, ipam: &IpamRequest) {
        let dir = (ipam.network.clone(), ipam.data_dir.clone());
        self.collect_dir_once(node, dir, Some(&ipam.attachment)).await;
    }

    /// True when nothing is left to collect. What `newcomer` has is from before.
    async fn collect_dir_once(
        &self,
        node: &Arc<Node>,
        dir: LeaseDir,
        newcomer: Option<&Attachment>,
    ) -> bool {
        // Held until done: who is not yet known gets no lease from the folder meanwhile.
        let mut collected = self.collected.lock().await;
        if collected.contains(&dir) {
            return true;
        }
        match self.collect_leases(node, &dir, newcomer).await {
            Ok(()) => collected.insert(dir),
            Err(error) => {
                warn!(network = dir.0, error = chain(&error), "leases not collected");
                false
            }
        }
    }

    /// Takes back leases whose attachment has no interface. Connections of such an address are
    /// forgotten first.
    async fn collect_leases(
        &self,
        node: &Arc<Node>,
        dir: &LeaseDir,
        newcomer: Option<&Attachment>,
    ) -> Result<(), CniFailure> {
        let (network, data_dir) = (dir.0.as_str(), dir.1.as_ref());
        for lease in node.ipam.leases(network, data_dir).await? {
            // Asked after the leases were listed: whoever has one of them was known before.
            let owns = |known: &Attachment| Some(known) != newcomer && lease.is_of(known);
            if self.store().has(owns) {
                continue;
            }
            info!(ip = %lease.ip, container = lease.container_id, "lease without a Pod taken back");
            node.conntrack.flush(&[lease.ip]).await?;
            node.ipam.release_lease(network, data_dir, &lease).await?;
        }
        Ok(())
    }

    /// GC: removes every interface of the network that is not in the runtime's list, and what nobody
    /// owns.
    pub(super) async fn gc(
        self: &Arc<Self>,
        node: &Arc<Node>,
        conf: &NetConf,
    ) -> Result<(), CniFailure> {
        let valid =
            conf.valid_attachments().ok_or(RequestError::ConfLacks("cni.dev/valid-attachments"))?;
        let valid: BTreeSet<&Attachment> = valid.iter().collect();
        let network = request::network_name(conf)?;
        let data_dir = request::data_dir(conf);
        let mut first_failure = None;
        let known = self.store().attachments();
        for attachment in known {
            if valid.contains(&attachment) {
                continue;
            }
            let _guard = self.locks.lock(&attachment).await;
            let Some(entry) = self.store().get(&attachment).cloned() else { continue };
            // The list is that of one network. An unknown one was noted by nobody else either.
            if !entry.record.network.is_empty() && entry.record.network != network {
                continue;
            }
            let ipam = IpamRequest {
                attachment,
                network: network.clone(),
                data_dir: data_dir.clone(),
                wish: None,
                netns: String::new(),
                cni_path: String::new(),
            };
            info!(attachment = %ipam.attachment, "not in use any more: Pod removed");
            if let Err(failure) = self.remove(node, ipam, entry.record).await {
                first_failure.get_or_insert(failure);
            }
        }
        self.collect_links(node).await;
        if let Err(failure) = self.collect_unused_leases(node, &(network, data_dir), &valid).await {
            first_failure.get_or_insert(failure);
        }
        first_failure.map_or(Ok(()), Err)
    }

    /// As `collect_leases`, while requests run: a lease is only taken back under the lock of its
    /// attachment.
    async fn collect_unused_leases(
        &self,
        node: &Arc<Node>,
        dir: &LeaseDir,
        valid: &BTreeSet<&Attachment>,
    ) -> Result<(), CniFailure> {
        let (network, data_dir) = (dir.0.as_str(), dir.1.as_ref());
        for lease in node.ipam.leases(network, data_dir).await? {
            // One that cannot be read may be about to be written.
            let Some(attachment) = lease.attachment() else { continue };
            if valid.iter().any(|valid| lease.is_of(valid)) {
                continue;
            }
            let _guard = self.locks.lock(&attachment).await;
            if self.store().get(&attachment).is_some() {
                continue;
            }
            node.conntrack.flush(&[lease.ip]).await?;
            match node.ipam.release_lease(network, data_dir, &lease).await {
                Ok(()) | Err(IpamError::NotLeased(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
