//! Ports of Pods stay closed until the policies that select them are known and hold.
//!
//! A port is closed by flows above all others, put on the switch together with the Pod's own, and
//! opened when the policy loop says so or when the time is over: a controller that is away must not
//! keep Pods from starting for ever. That time begins when policies are in force at all, be they
//! those of the controller or the last known ones.
//!
//! Not here: what the loop waits for before it opens one (`closings`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cni_api::Attachment;
use openflow::Intent;
use pipeline::policy::closed_flows;
use switch::bridge::{Bridge, Owner};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::cni::PodRecord;

/// Whose the closing flows are at the bridge.
const OWNER: Owner = Owner(pipeline::Category::PodConnectivity.number());

/// One closing of a port; the next one of the same port is another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ticket {
    /// Whose port.
    pub(crate) attachment: Attachment,
    /// Which closing.
    pub(crate) number: u64,
}

/// What the policy loop hears of Pods, before the list of interfaces tells.
#[derive(Debug)]
pub(crate) enum GateEvent {
    /// The Pod is new. Its port is being made, and is closed until its policies are known.
    Made(PodRecord, Ticket),
    /// The Pod was there before, and has this port now. It is closed until the flows of policies
    /// have followed.
    Moved(PodRecord, Ticket),
    /// The port was opened because it was closed for too long.
    Overdue(Ticket),
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
    /// When policies came into force.
    in_force_tx: watch::Sender<Option<Instant>>,
    closed: Mutex<Closed>,
}

/// Ports that are closed.
#[derive(Debug, Default)]
struct Closed {
    n_closings: u64,
    ports: HashMap<Attachment, Port>,
}

#[derive(Debug)]
struct Port {
    /// The number of its last closing.
    number: u64,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Gate {
    pub(crate) fn new(
        bridge: Bridge,
        longest: Duration,
    ) -> (Self, mpsc::UnboundedReceiver<GateEvent>) {
        let (events_tx, events_rx) = mpsc::unbounded_channel();
        let in_force_tx = watch::Sender::default();
        let inner = Inner { bridge, longest, events_tx, in_force_tx, closed: Mutex::default() };
        (Self { inner: Arc::new(inner) }, events_rx)
    }

    fn closed(&self) -> MutexGuard<'_, Closed> {
        self.inner.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, event: GateEvent) {
        // Fails only when the loop has ended, and the agent with it.
        let _ = self.inner.events_tx.send(event);
    }

    /// Closes the port of a new Pod, which is about to get its flows.
    pub(crate) fn close_new(&self, record: &PodRecord) {
        let ticket = self.close(record);
        self.tell(GateEvent::Made(record.clone(), ticket));
    }

    /// Closes the port that a known Pod has now, before it gets the Pod's flows. Whoever is told of
    /// interfaces has to know of it by then.
    pub(crate) fn close_moved(&self, record: &PodRecord) {
        let ticket = self.close(record);
        self.tell(GateEvent::Moved(record.clone(), ticket));
    }

    fn close(&self, record: &PodRecord) -> Ticket {
        let attachment = record.attachment.clone();
        let number = {
            let mut closed = self.closed();
            closed.n_closings += 1;
            let number = closed.n_closings;
            let fresh = || Port { number, waiting: Vec::new() };
            closed.ports.entry(attachment.clone()).or_insert_with(fresh).number = number;
            let flows = closed_flows(record.ofport).into_iter().map(Intent::from).collect();
            self.inner.bridge.set(OWNER, &key(&attachment), flows);
            number
        };
        let ticket = Ticket { attachment, number };
        tokio::spawn(self.clone().open_late(ticket.clone()));
        ticket
    }

    /// Opens a port that is closed for too long, unless that is another closing by then.
    async fn open_late(self, ticket: Ticket) {
        let closed_at = Instant::now();
        let mut in_force_rx = self.inner.in_force_tx.subscribe();
        // The sender lives as long as the gate does.
        let in_force_at = in_force_rx.wait_for(Option::is_some).await.ok().and_then(|at| *at);
        let since = in_force_at.map_or(closed_at, |at| at.max(closed_at));
        tokio::time::sleep_until(since + self.inner.longest).await;
        if self.open(&ticket) {
            tracing::warn!(attachment = %ticket.attachment, after = ?closed_at.elapsed(),
                "a Pod's port is opened before its policies are known");
            self.tell(GateEvent::Overdue(ticket));
        }
    }

    /// Policies are in force, as far as they are known.
    pub(crate) fn policies_in_force(&self) {
        self.inner.in_force_tx.send_replace(Some(Instant::now()));
    }

    /// Opens a port that is closed by this closing. Says whether it was.
    pub(crate) fn open(&self, ticket: &Ticket) -> bool {
        self.open_if(&ticket.attachment, |number| number == ticket.number)
    }

    fn open_if(&self, attachment: &Attachment, is_it: impl FnOnce(u64) -> bool) -> bool {
        let mut closed = self.closed();
        let Some(port) = closed.ports.get(attachment) else { return false };
        if !is_it(port.number) {
            return false;
        }
        let port = closed.ports.remove(attachment);
        self.inner.bridge.remove(OWNER, &key(attachment));
        for waiting in port.into_iter().flat_map(|port| port.waiting) {
            let _ = waiting.send(());
        }
        true
    }

    /// Waits until the port is open, but not for long.
    pub(crate) async fn opened(&self, attachment: &Attachment, patience: Duration) {
        let waiting = {
            let mut closed = self.closed();
            let Some(port) = closed.ports.get_mut(attachment) else { return };
            let (tx, rx) = oneshot::channel();
            port.waiting.push(tx);
            rx
        };
        let _ = tokio::time::timeout(patience, waiting).await;
    }

    /// The Pod's flows are removed.
    pub(crate) fn forget(&self, attachment: &Attachment) {
        self.open_if(attachment, |_| true);
        self.tell(GateEvent::Removed(attachment.clone()));
    }
}

fn key(attachment: &Attachment) -> String {
    format!("closed/{attachment}")
}

#[cfg(test)]
mod tests {
    use switch::bridge::BridgeConfig;

    use super::*;
    use crate::cni::mk_record;

    const LONGEST: Duration = Duration::from_secs(5);

    fn is_closed(gate: &Gate, record: &PodRecord) -> bool {
        gate.closed().ports.contains_key(&record.attachment)
    }

    /// A gate before a switch that is not there: what is closed is known all the same.
    fn mk_gate() -> (Gate, mpsc::UnboundedReceiver<GateEvent>, PodRecord) {
        let bridge = Bridge::start(BridgeConfig::new("/nonexistent/br.mgmt", 0xa17e));
        let (gate, events_rx) = Gate::new(bridge, LONGEST);
        (gate, events_rx, mk_record("c1", 70))
    }

    fn ticket(event: Option<GateEvent>) -> Ticket {
        match event {
            Some(
                GateEvent::Made(_, ticket)
                | GateEvent::Moved(_, ticket)
                | GateEvent::Overdue(ticket),
            ) => ticket,
            other => panic!("no closing: {other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_begins_when_policies_are_in_force() {
        let (gate, mut events_rx, pod) = mk_gate();
        gate.close_moved(&pod);
        let moved = ticket(events_rx.recv().await);
        tokio::time::sleep(LONGEST * 10).await;
        assert!(is_closed(&gate, &pod), "no policy is in force yet");
        gate.policies_in_force();
        tokio::time::sleep(LONGEST - Duration::from_millis(1)).await;
        assert!(is_closed(&gate, &pod));
        assert_eq!(ticket(events_rx.recv().await), moved, "opened late");
        assert!(!is_closed(&gate, &pod));
    }

    #[tokio::test(start_paused = true)]
    async fn who_opens_one_closing_opens_no_other() {
        let (gate, mut events_rx, pod) = mk_gate();
        gate.policies_in_force();
        gate.close_new(&pod);
        let first = ticket(events_rx.recv().await);
        tokio::time::sleep(LONGEST / 2).await;
        gate.close_moved(&PodRecord { ofport: openflow::OfPort(71), ..pod.clone() });
        let second = ticket(events_rx.recv().await);
        assert!(!gate.open(&first));
        // The time of the first is over.
        tokio::time::sleep(LONGEST - Duration::from_secs(1)).await;
        assert!(is_closed(&gate, &pod));
        assert!(gate.open(&second));
        assert!(!gate.open(&second), "it is open");
        // Closed again, and forgotten by whoever removes it.
        gate.close_new(&pod);
        gate.forget(&pod.attachment);
        assert!(!is_closed(&gate, &pod));
    }
}
