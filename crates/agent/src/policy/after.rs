//! What follows when flows are on the switch: statuses, open ports, DNS answers that go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use policy::realize::PolicyStatus;
use switch::bridge::{BarrierError, Bridge};
use tokio::sync::mpsc;

use super::OWNER;
use super::dns::{Flows, Held, Release};
use super::gate::{Gate, Ticket};

/// Changes that are waited for together.
const BATCH: usize = 512;

/// What waits for the flows of before to be on the switch.
#[derive(Debug, Default)]
pub(super) struct After {
    pub(super) statuses: Vec<PolicyStatus>,
    /// Ports to open.
    pub(super) to_open: Vec<Ticket>,
    pub(super) answers: Vec<Held>,
    /// Where the flows are that the answers asked for.
    pub(super) keys: Vec<String>,
}

/// Waits for flows, and then tells what waits for them.
pub(super) async fn carry_on(
    (bridge, release, gate): (Bridge, Release, Gate),
    mut after_rx: mpsc::UnboundedReceiver<After>,
    statuses_tx: mpsc::UnboundedSender<Vec<PolicyStatus>>,
) {
    let mut batch = Vec::new();
    while after_rx.recv_many(&mut batch, BATCH).await > 0 {
        // What is refused shows in the state, and comes with a status of its own.
        let refused: BTreeSet<Arc<str>> = match bridge.barrier().await {
            Err(BarrierError::Refused(all)) => {
                let ours = all.into_iter().filter(|refusal| refusal.owner == OWNER);
                ours.map(|refusal| refusal.key).collect()
            }
            Ok(()) | Err(BarrierError::Closed) => BTreeSet::new(),
        };
        for after in batch.drain(..) {
            let flows = match after.keys.iter().any(|key| refused.contains(key.as_str())) {
                true => Flows::Refused,
                false => Flows::There,
            };
            after.answers.into_iter().for_each(|held| release.after(held, flows));
            for ticket in after.to_open {
                gate.open(&ticket);
            }
            if !after.statuses.is_empty() {
                let _ = statuses_tx.send(after.statuses);
            }
        }
    }
}
