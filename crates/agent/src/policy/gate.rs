//! Ports of new Pods stay closed until the policies that select them are known.
//!
//! A port is closed by flows above all others, put on the switch together with the Pod's own, and
//! opened when the policy loop says so or when the time is over: a controller that is away must not
//! keep Pods from starting for ever.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cni_api::Attachment;
use openflow::Intent;
use pipeline::policy::closed_flows;
use switch::bridge::{Bridge, Owner};
use tokio::sync::{mpsc, oneshot};

use crate::cni::PodRecord;

/// Whose the closing flows are at the bridge.
const OWNER: Owner = Owner(pipeline::Category::PodConnectivity.number());

/// What the policy loop hears of Pods, before the list of interfaces tells.
#[derive(Debug)]
pub(crate) enum GateEvent {
    /// The Pod's port is being made, and is closed.
    Made(PodRecord),
    /// Its flows are removed.
    Removed(Attachment),
}

/// The gate of all Pods; clones share it.
#[derive(Clone, Debug)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bridge: Bridge,
    longest: Duration,
    events_tx: mpsc::UnboundedSender<GateEvent>,
    closed: Mutex<HashMap<Attachment, Vec<oneshot::Sender<()>>>>,
}

impl Gate {
    pub(crate) fn new(
        bridge: Bridge,
        longest: Duration,
    ) -> (Self, mpsc::UnboundedReceiver<GateEvent>) {
        let (events_tx, events_rx) = mpsc::unbounded_channel();
        let inner = Inner { bridge, longest, events_tx, closed: Mutex::default() };
        (Self { inner: Arc::new(inner) }, events_rx)
    }

    fn closed(&self) -> MutexGuard<'_, HashMap<Attachment, Vec<oneshot::Sender<()>>>> {
        self.inner.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes a port that is about to get its flows.
    pub(crate) fn close(&self, record: &PodRecord) {
        if self.inner.longest.is_zero() {
            let _ = self.inner.events_tx.send(GateEvent::Made(record.clone()));
            return;
        }
        let flows = closed_flows(record.ofport).into_iter().map(Intent::from).collect();
        self.inner.bridge.set(OWNER, &key(&record.attachment), flows);
        self.closed().entry(record.attachment.clone()).or_default();
        // Fails only when the loop has ended, and the agent with it.
        let _ = self.inner.events_tx.send(GateEvent::Made(record.clone()));
        let (gate, attachment) = (self.clone(), record.attachment.clone());
        tokio::spawn(async move {
            tokio::time::sleep(gate.inner.longest).await;
            if gate.closed().contains_key(&attachment) {
                tracing::warn!(%attachment, after = ?gate.inner.longest,
                    "a Pod's port is opened before its policies are known");
                gate.open(&attachment);
            }
        });
    }

    /// Opens a port; one that is open stays so.
    pub(crate) fn open(&self, attachment: &Attachment) {
        let Some(waiting) = self.closed().remove(attachment) else { return };
        self.inner.bridge.remove(OWNER, &key(attachment));
        for waiting in waiting {
            let _ = waiting.send(());
        }
    }

    /// Waits until the port is open, but not for long.
    pub(crate) async fn opened(&self, attachment: &Attachment, patience: Duration) {
        let waiting = {
            let mut closed = self.closed();
            let Some(waiting) = closed.get_mut(attachment) else { return };
            let (tx, rx) = oneshot::channel();
            waiting.push(tx);
            rx
        };
        let _ = tokio::time::timeout(patience, waiting).await;
    }

    /// The Pod's flows are removed.
    pub(crate) fn forget(&self, attachment: &Attachment) {
        self.open(attachment);
        let _ = self.inner.events_tx.send(GateEvent::Removed(attachment.clone()));
    }
}

fn key(attachment: &Attachment) -> String {
    format!("closed/{attachment}")
}
