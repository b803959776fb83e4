//! DEL: disconnects a container, known or not.

use std::sync::Arc;

use cni_api::Attachment;
use openflow::{MacAddr, OfPort};
use tracing::info;

use super::failure::{CniFailure, chain};
use super::model::PodRecord;
use super::plan::Piece;
use super::request::CmdRequest;
use super::server::{Node, Shared};
use super::store::Entry;
use super::traits::IpamRequest;

impl Shared {
    /// Disconnects a container. Its namespace is not needed. The caller holds its lock.
    ///
    /// A runtime calls DEL again until it succeeds. So it does while Open vSwitch does not answer:
    /// the link goes, and the rest is written down and follows as soon as it can.
    pub(super) async fn del(
        self: &Arc<Self>,
        node: &Arc<Node>,
        request: &CmdRequest,
    ) -> Result<(), CniFailure> {
        let attachment = &request.attachment;
        let entry = self.store().get(attachment).cloned();
        let Some(Entry { record, .. }) = entry else {
            let deleted = self.del_unknown(node, request).await;
            return self.or_later(attachment, deleted);
        };
        let ipam = request.ipam.clone().for_lease_of(&record);
        let removed = self.remove(node, ipam, record.clone()).await;
        if removed.as_ref().is_err_and(CniFailure::is_switch_away) {
            self.reaper.reap(Arc::clone(&node.net), record);
        }
        self.or_later(attachment, removed)
    }

    /// Success, too, when the switch is away and all that is left is certain to follow.
    fn or_later(
        &self,
        attachment: &Attachment,
        deleted: Result<(), CniFailure>,
    ) -> Result<(), CniFailure> {
        match deleted {
            Err(failure) if failure.is_switch_away() && self.debts.are_noted(attachment) => {
                info!(%attachment, error = chain(&failure),
                    "port, flows and lease of a deleted Pod follow once Open vSwitch answers");
                Ok(())
            }
            deleted => deleted,
        }
    }

    /// Disconnects a container that is known.
    pub(super) async fn remove(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ipam: IpamRequest,
        record: PodRecord,
    ) -> Result<(), CniFailure> {
        // The link goes after the answer: the kernel takes long over it, and without its port it
        // carries nothing.
        let closing = [Piece::Address, Piece::Port, Piece::Flows].into();
        self.tear_down(node, ipam, record.clone(), &closing).await?;
        self.reaper.reap(Arc::clone(&node.net), record);
        Ok(())
    }

    /// Nothing is known of the container: an ADD may have failed early, or a DEL come twice. What
    /// it could have left without a port is a lease and a link.
    async fn del_unknown(
        self: &Arc<Self>,
        node: &Arc<Node>,
        request: &CmdRequest,
    ) -> Result<(), CniFailure> {
        let (network, data_dir) = (&request.ipam.network, request.ipam.data_dir.as_ref());
        let mut leased = node.ipam.leases(network, data_dir).await?;
        leased.retain(|lease| lease.is_of(&request.attachment));
        let record = PodRecord {
            attachment: request.attachment.clone(),
            pod: request.pod.clone(),
            netns: request.netns.clone(),
            network: request.ipam.network.clone(),
            host_name: self.store().free_name(&request.pod, &request.attachment),
            mac: MacAddr([0; 6]),
            ips: leased.iter().map(|lease| lease.ip).collect(),
            ofport: OfPort(0),
        };
        // Whoever gets a leased address next inherits no connection.
        let pieces = match leased.is_empty() {
            true => [Piece::Address].into(),
            false => [Piece::Address, Piece::Flows].into(),
        };
        self.journal.forget(&request.attachment).await;
        let job = self.mk_job(node, request.ipam.clone(), record.clone());
        let failure = job.tear_down(&pieces).await.into_iter().next();
        if job.is_overdue() {
            self.tear_down_later(node, job);
        } else if failure.as_ref().is_some_and(CniFailure::is_switch_away) {
            self.undo_later(job.ipam, &job.record).await;
        }
        self.reaper.reap(Arc::clone(&node.net), record);
        failure.map_or(Ok(()), Err)
    }
}
