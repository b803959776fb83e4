//! DEL: disconnects a container, known or not.

use std::sync::Arc;

use openflow::{MacAddr, OfPort};

use super::failure::CniFailure;
use super::model::PodRecord;
use super::plan::Piece;
use super::request::CmdRequest;
use super::server::{Node, Shared};
use super::traits::IpamRequest;

impl Shared {
    /// Disconnects a container. Its namespace is not needed. The caller holds its lock.
    pub(super) async fn del(
        self: &Arc<Self>,
        node: &Arc<Node>,
        request: &CmdRequest,
    ) -> Result<(), CniFailure> {
        let entry = self.store().get(&request.attachment).cloned();
        let Some(entry) = entry else {
            return self.del_unknown(node, request).await;
        };
        self.remove(node, request.ipam.clone(), entry.record).await
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
        }
        self.reaper.reap(Arc::clone(&node.net), record);
        failure.map_or(Ok(()), Err)
    }
}
