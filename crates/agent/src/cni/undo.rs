//! Finishes the undoing of what could not be undone at once: as soon as Open vSwitch answers again.
//!
//! An address stays leased until port and flows are gone, so a failed ADD or a DEL while the switch
//! is away leaves a lease. It is written down (`journal`), so that an agent that is started anew
//! goes on with it, and tried again until nothing is left. Whoever else unmakes the interface first
//! (a DEL, an ADD of the same container) ends it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use cni_api::Attachment;
use tracing::{debug, info, warn};

use super::failure::chain;
use super::journal::Debt;
use super::model::PodRecord;
use super::plan::Piece;
use super::server::{Node, Shared};
use super::store::EntryState;
use super::traits::IpamRequest;

/// Pause before each try.
const PAUSE: Duration = Duration::from_secs(1);

/// Interfaces that are to be unmade, and whether that is written down.
#[derive(Debug, Default)]
pub(super) struct Debts(Mutex<BTreeMap<Attachment, bool>>);

impl Debts {
    /// Whether this one is to be unmade, and an agent that is started anew would know it.
    pub(super) fn are_noted(&self, attachment: &Attachment) -> bool {
        self.lock().get(attachment).copied().unwrap_or(false)
    }

    fn has(&self, attachment: &Attachment) -> bool {
        self.lock().contains_key(attachment)
    }

    /// False when it was one already.
    fn insert(&self, attachment: Attachment, is_noted: bool) -> bool {
        self.lock().insert(attachment, is_noted).is_none()
    }

    fn remove(&self, attachment: &Attachment) -> bool {
        self.lock().remove(attachment).is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Attachment, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Sees to it that what is left of an interface is unmade as soon as it can be. The caller holds
    /// its lock, or nobody else is there yet.
    pub(super) async fn undo_later(self: &Arc<Self>, ipam: IpamRequest, record: &PodRecord) {
        let is_noted = self.journal.owe(record, ipam.data_dir.as_ref()).await;
        self.undo_in_background(ipam, record, is_noted);
    }

    /// Goes on with what a predecessor wrote down, at once and until it is done.
    pub(super) async fn take_over_debt(self: &Arc<Self>, node: &Arc<Node>, debt: Debt) {
        let (record, data_dir) = debt;
        info!(pod = %record.pod, attachment = %record.attachment,
            "its removal was not finished: it is gone on with");
        let ipam = IpamRequest { data_dir, ..self.default_ipam(&record.attachment) };
        let ipam = ipam.for_lease_of(&record);
        self.undo_in_background(ipam.clone(), &record, true);
        if let Err(failure) = self.tear_down(node, ipam, record, &Piece::ALL.into()).await {
            warn!(error = chain(&failure), "Pod not removed: to be tried again");
        }
    }

    fn undo_in_background(self: &Arc<Self>, ipam: IpamRequest, record: &PodRecord, is_noted: bool) {
        let attachment = record.attachment.clone();
        {
            // Known, so that its name, its number and its lease are not taken for anybody's.
            let mut store = self.store();
            if store.get(&attachment).is_none() {
                store.put(record.clone(), EntryState::Partial);
            }
            store.mark_partial(&attachment);
        }
        if self.debts.insert(attachment, is_noted) {
            // Held only while something is done: it ends with the server.
            let shared = Arc::downgrade(self);
            tokio::spawn(undo(shared, ipam));
        }
    }

    /// Nothing is left of an interface that may have been to be unmade.
    pub(super) async fn is_undone(&self, attachment: &Attachment) {
        if self.debts.remove(attachment) {
            self.journal.settle(attachment).await;
        }
    }

    /// Tries once. True when nothing is left to do.
    async fn undo_now(self: &Arc<Self>, ipam: &IpamRequest) -> bool {
        let attachment = &ipam.attachment;
        let Ok(node) = self.reachable_node(Duration::ZERO).await else {
            return !self.debts.has(attachment);
        };
        let _guard = self.locks.lock(attachment).await;
        if !self.debts.has(attachment) {
            return true;
        }
        let Some(entry) = self.store().get(attachment).cloned() else { return true };
        let undone = self.tear_down(&node, ipam.clone(), entry.record, &Piece::ALL.into()).await;
        match undone {
            Ok(()) => info!(%attachment, "what was left of a Pod is undone"),
            Err(failure) => {
                debug!(%attachment, error = chain(&failure), "what is left of a Pod stays");
                return false;
            }
        }
        true
    }
}

async fn undo(shared: Weak<Shared>, ipam: IpamRequest) {
    loop {
        tokio::time::sleep(PAUSE).await;
        let Some(shared) = shared.upgrade() else { return };
        // A try that has begun is waited for when the agent ends.
        if shared.requests.track_future(shared.undo_now(&ipam)).await {
            return;
        }
    }
}
