//! CHECK: whether a container is still connected as it was.

use std::sync::Arc;

use cni_api::CniResult;
use openflow::MacAddr;

use super::attach::{link_mtu, mk_result};
use super::drive::Job;
use super::failure::CniFailure;
use super::model::PodRecord;
use super::request::{CmdRequest, RequestError};
use super::server::{Node, Shared};
use super::store::EntryState;
use super::traits::{LinkSpec, NetError};

impl Shared {
    /// Compares what the runtime kept of ADD, what we know, and what is there. The caller holds the
    /// lock.
    pub(super) async fn check(
        &self,
        node: &Arc<Node>,
        request: &CmdRequest,
    ) -> Result<(), CniFailure> {
        let previous = request
            .conf
            .previous()
            .map_err(RequestError::from)?
            .ok_or(RequestError::ConfLacks("prevResult"))?;
        let entry = self.store().get(&request.attachment).cloned();
        let record = entry
            .filter(|entry| entry.state == EntryState::Made)
            .ok_or(CniFailure::NotConnected)?
            .record;
        let (link, host_mac) = self.verify(node, request, &record).await?;
        let made = mk_result(&request.conf, &link, host_mac);
        compare(&made, &previous).map_err(CniFailure::PreviousResult)
    }

    /// Compares what we know of an interface with what is there. Returns its link and the MAC of
    /// the link's host end.
    pub(super) async fn verify(
        &self,
        node: &Arc<Node>,
        request: &CmdRequest,
        record: &PodRecord,
    ) -> Result<(LinkSpec, MacAddr), CniFailure> {
        let job = self.mk_job(node, request.ipam.clone(), record.clone());
        let mut job = Job { mtu: link_mtu(request, node)?, ..job };
        job.addresses = node.network.addresses(&record.ips).ok_or_else(|| {
            NetError::Differs(format!("{:?} are not addresses of this node", record.ips))
        })?;
        let link = job.link();
        let host_mac = node.net.check(&link).await?;
        node.ports.check(record).await?;
        node.flows.check(record).await?;
        node.ipam.check(&request.ipam, &record.ips).await?;
        Ok((link, host_mac))
    }
}

/// Finds what of ours is not in the result that the runtime kept. Plugins behind us may have added
/// to it: more interfaces, addresses and routes are none of our business.
fn compare(made: &CniResult, previous: &CniResult) -> Result<(), String> {
    // Versions before 0.3.0 know no interfaces, and have no CHECK.
    for ours in &made.interfaces {
        let theirs = previous
            .interfaces
            .iter()
            .find(|theirs| theirs.name == ours.name && theirs.sandbox == ours.sandbox)
            .ok_or_else(|| format!("no interface {:?} in {:?}", ours.name, ours.sandbox))?;
        if !theirs.mac.eq_ignore_ascii_case(&ours.mac) {
            let (name, theirs, ours) = (&ours.name, &theirs.mac, &ours.mac);
            return Err(format!("interface {name} has MAC {theirs}, made was {ours}"));
        }
    }
    for ours in &made.ips {
        let theirs = previous
            .ips
            .iter()
            .find(|theirs| theirs.address == ours.address)
            .ok_or_else(|| format!("no address {}", ours.address))?;
        if theirs.gateway.is_some() && theirs.gateway != ours.gateway {
            return Err(format!("another gateway for {}", ours.address));
        }
    }
    // And none on our interface that we did not give.
    for theirs in &previous.ips {
        let on_ours = theirs.interface.and_then(|index| previous.interfaces.get(index));
        let container = made.interfaces.last();
        let is_ours = on_ours.zip(container).is_some_and(|(theirs, ours)| theirs.name == ours.name);
        if is_ours && !made.ips.iter().any(|ours| ours.address == theirs.address) {
            return Err(format!("address {} was not made", theirs.address));
        }
    }
    for ours in &made.routes {
        if !previous.routes.iter().any(|theirs| theirs.dst == ours.dst && theirs.gw == ours.gw) {
            return Err(format!("no route to {}", ours.dst));
        }
    }
    Ok(())
}
