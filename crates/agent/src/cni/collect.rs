//! Removes what nobody owns: at start, and when the runtime says what is in use (GC).
//!
//! What is owned follows from the ports; leases and links without one are left from a request that
//! a crash cut short, ports without a namespace from a reboot.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use cni_api::{Attachment, NetConf};
use tracing::{info, warn};

use super::failure::{CniFailure, chain};
use super::request::{self, RequestError};
use super::server::{Node, Shared};
use super::traits::{IpamError, IpamRequest};

/// A folder of leases: name of the network, and the folder above when it is not the usual one.
pub(super) type LeaseDir = (String, Option<PathBuf>);

impl Shared {
    /// Takes over the interfaces that are there and removes what is left of others. Runs before the
    /// first request.
    pub(super) async fn restore(self: &Arc<Self>, node: &Arc<Node>) -> Result<(), CniFailure> {
        let records = node.ports.list().await?;
        for record in records.iter().filter(|record| !record.ips.is_empty()) {
            node.flows.restore(record);
        }
        self.store().restore(records.clone());
        info!(n_pods = records.len(), "Pod interfaces taken over");

        for record in records {
            let attachment = record.attachment.clone();
            let why = match record.ips.is_empty() {
                true => "its ADD was cut short",
                false if node.net.is_alive(&record).await => continue,
                false => "its namespace is gone",
            };
            info!(pod = %record.pod, %attachment, netns = record.netns, why, "Pod removed");
            // Where its lease is, is not noted; leases without an owner are collected below.
            let ipam = self.default_ipam(&attachment);
            if let Err(failure) = self.remove(node, ipam, record).await {
                warn!(%attachment, error = chain(&failure), "Pod not removed");
            }
        }
        self.collect_links(node).await;
        let ipam = self.default_ipam_dir();
        self.collect_dir_once(node, ipam).await;
        self.publish();
        Ok(())
    }

    /// Removes links of ours that belong to no interface.
    async fn collect_links(&self, node: &Arc<Node>) {
        let links = match node.net.list().await {
            Ok(links) => links,
            Err(error) => return warn!(error = chain(&error), "links not collected"),
        };
        for link in links {
            let guard = self.locks.lock(&link.attachment).await;
            let owned = self.store().get(&link.attachment).is_some();
            if !owned {
                info!(link = %link.host_name, attachment = %link.attachment,
                    "link without a Pod removed");
                if let Err(error) = node.net.delete(&link.host_name, &link.attachment).await {
                    warn!(link = %link.host_name, error = chain(&error), "link not removed");
                }
            }
            drop(guard);
        }
    }

    /// Before the first lease is taken from a folder, those in it that nobody owns are taken back.
    pub(super) async fn collect_leases_once(&self, node: &Arc<Node>, ipam: &IpamRequest) {
        self.collect_dir_once(node, (ipam.network.clone(), ipam.data_dir.clone())).await;
    }

    async fn collect_dir_once(&self, node: &Arc<Node>, dir: LeaseDir) {
        // Held until done: no lease is given from the folder meanwhile.
        let mut collected = self.collected.lock().await;
        if collected.contains(&dir) {
            return;
        }
        match self.collect_leases(node, &dir).await {
            Ok(()) => {
                collected.insert(dir);
            }
            Err(error) => {
                warn!(network = dir.0, error = chain(&error), "leases not collected");
            }
        }
    }

    /// Takes back leases whose attachment has no interface. Connections of such an address are
    /// forgotten first.
    async fn collect_leases(&self, node: &Arc<Node>, dir: &LeaseDir) -> Result<(), CniFailure> {
        let (network, data_dir) = (dir.0.as_str(), dir.1.as_ref());
        let owned: BTreeSet<Attachment> = self.store().attachments().into_iter().collect();
        for lease in node.ipam.leases(network, data_dir).await? {
            if owned.iter().any(|attachment| lease.is_of(attachment)) {
                continue;
            }
            info!(ip = %lease.ip, container = lease.container_id, "lease without a Pod taken back");
            node.conntrack.flush(&[lease.ip]).await?;
            node.ipam.release_lease(network, data_dir, &lease).await?;
        }
        Ok(())
    }

    /// GC: removes every interface that is not in the runtime's list, and what nobody owns.
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
