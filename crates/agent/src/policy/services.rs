//! The groups of Services, on their way from the proxy to policies.
//!
//! Rules that name a Service match the numbers of its groups, so they have to be on the bridge no
//! later than the flows that lead to those. The proxy tells what there will be, and goes on once it
//! is taken in. It waits for nobody before policies are followed: what was on the switch before the
//! start is there then, with the same numbers.

use apis::controlplane::ObjectName;
use openflow::GroupId;
use policy::realize::Event;
use tokio::sync::{mpsc, oneshot, watch};

/// What the proxy tells.
pub(crate) struct Told {
    /// Services with their groups.
    pub(crate) event: ServiceEvent,
    /// Told when what follows is on its way to the switch.
    pub(crate) done_tx: oneshot::Sender<()>,
}

/// What is told of groups.
#[derive(Debug)]
pub(crate) enum ServiceEvent {
    /// These are all.
    All(Vec<(ObjectName, Vec<GroupId>)>),
    /// These changed.
    Changed(Vec<(ObjectName, Vec<GroupId>)>),
}

impl ServiceEvent {
    pub(super) fn into_events(self) -> Vec<Event> {
        match self {
            Self::All(all) => vec![Event::ReplaceServices(all)],
            Self::Changed(changed) => {
                let event = |(service, groups)| Event::ServiceGroups(service, groups);
                changed.into_iter().map(event).collect()
            }
        }
    }
}

/// The proxy's end.
pub(crate) struct TellPolicies {
    told_tx: mpsc::UnboundedSender<Told>,
    follows: watch::Receiver<bool>,
}

/// The end of policies.
pub(crate) struct HearServices {
    pub(super) told_rx: mpsc::UnboundedReceiver<Told>,
    pub(super) follows_tx: watch::Sender<bool>,
}

/// Both ends.
pub(crate) fn channel() -> (TellPolicies, HearServices) {
    let (told_tx, told_rx) = mpsc::unbounded_channel();
    let (follows_tx, follows) = watch::channel(false);
    (TellPolicies { told_tx, follows }, HearServices { told_rx, follows_tx })
}

impl TellPolicies {
    /// Tells, and waits until it is taken in if policies are followed.
    pub(crate) async fn tell(&self, event: ServiceEvent) {
        let (done_tx, done_rx) = oneshot::channel();
        // Looked at afterwards: whoever begins to follow then finds it in the queue.
        let told = self.told_tx.send(Told { event, done_tx }).is_ok();
        if told && *self.follows.borrow() {
            // Fails when the loop has ended, and the agent with it.
            let _ = done_rx.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_proxy_waits_once_policies_are_followed() {
        let (tell, mut hear) = channel();
        let event = || ServiceEvent::Changed(Vec::new());
        let patience = Duration::from_secs(5);
        assert!(tokio::time::timeout(patience, tell.tell(event())).await.is_ok(), "before");
        hear.follows_tx.send_replace(true);
        assert!(hear.told_rx.try_recv().is_ok(), "what was told before is not lost");
        let mut telling = Box::pin(tell.tell(event()));
        assert!(tokio::time::timeout(patience, &mut telling).await.is_err(), "not taken in");
        let told = hear.told_rx.try_recv().ok().unwrap();
        let _ = told.done_tx.send(());
        assert!(tokio::time::timeout(patience, telling).await.is_ok(), "taken in");
    }
}
