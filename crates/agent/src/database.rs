//! Opens the database for this agent alone, and follows it once the agent is up: ends waits, and
//! notices what was taken away.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use openflow::OfPort;
use ovsdb::{OpenVSwitch, Snapshot};
use switch::bridge::{BarrierError, Bridge};
use switch::ovsdb_session::{OvsdbConfig, OvsdbSession};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{gateway, node_loop, nodes};

/// Key in the other_config of Open_vSwitch.
const RESTORE_WAIT: &str = "flow-restore-wait";
/// What an agent has of the database server as long as it runs, and no other one then.
const LOCK: &str = "antrea_agent";
/// Without an answer by then there may be no Open vSwitch, which is waited for elsewhere.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);

/// Opens the database. As long as another agent has it this one waits, and has touched nothing yet:
/// neither the CNI socket nor the node.
pub async fn open(ovs_run_dir: &Path) -> OvsdbSession {
    let mut config = OvsdbConfig::new(ovs_run_dir.join("db.sock"));
    config.lock = Some(LOCK.into());
    let ovsdb = OvsdbSession::connect(config);
    let (mut connected, mut waits) = (ovsdb.connected(), ovsdb.waits_for_lock());
    // Neither channel ends before the session does.
    let is_taken = tokio::select! {
        _ = connected.wait_for(|connected| *connected) => false,
        _ = waits.wait_for(|waits| *waits) => true,
        () = tokio::time::sleep(LOCK_PATIENCE) => false,
    };
    if is_taken {
        tracing::warn!("another agent runs on this node's Open vSwitch: waiting until it ends");
        let _ = connected.wait_for(|connected| *connected).await;
    }
    ovsdb
}

/// Ends with an error when another agent gets the database, for instance while its server is
/// started anew: two would undo each other's work.
pub async fn keep(ovsdb: OvsdbSession, stop: CancellationToken) -> Result<()> {
    let mut waits = ovsdb.waits_for_lock();
    tokio::select! {
        () = stop.cancelled() => Ok(()),
        _ = waits.wait_for(|waits| *waits) => {
            bail!("another agent took this node's Open vSwitch over: start again to wait for it")
        }
    }
}

/// The bridge, and the database that it is written in.
pub struct Database {
    /// The database.
    pub ovsdb: OvsdbSession,
    /// The bridge's flows.
    pub bridge: Bridge,
    /// The bridge's name.
    pub name: String,
    /// Ports whose numbers are in the flows of the node.
    pub ports: Vec<(String, OfPort)>,
}

impl Database {
    /// Once what was there before is taken over, the rest of the switch may be cleaned; and once
    /// the flows are in, the layout is noted. From then on the database is followed.
    ///
    /// # Errors
    /// When the agent has to start again.
    pub async fn settle(
        self,
        restored: watch::Receiver<bool>,
        stop: CancellationToken,
    ) -> Result<()> {
        let work = async {
            let first = tokio::select! {
                // Flows cannot come to a bridge that is gone: they would be waited for in vain.
                lost = self.taken_away() => return Err(lost),
                first = self.first_sync(restored) => first?,
            };
            if first {
                self.follow().await?;
            }
            // Nothing to do any more, which is no reason to end.
            std::future::pending().await
        };
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            outcome = work => outcome,
        }
    }

    /// False when there is nothing to follow.
    async fn first_sync(&self, mut restored: watch::Receiver<bool>) -> Result<bool> {
        if restored.wait_for(|restored| *restored).await.is_err() {
            return Ok(false);
        }
        self.bridge.synced(node_loop::OWNER);
        match self.bridge.barrier().await {
            Ok(()) => tracing::info!("flows are in"),
            // What was refused is retried by the reconciler; all else is of this layout.
            Err(error @ BarrierError::Refused(_)) => {
                tracing::error!("flows are in, but for some: {}", nodes::chain(&error));
            }
            Err(error) => {
                tracing::error!("first sync: {}", nodes::chain(&error));
                return Ok(false);
            }
        }
        gateway::record_layout(&self.ovsdb, &self.name).await?;
        Ok(true)
    }

    /// What the node's flows hang on and is not there any more, in words.
    fn lost(&self, rows: &Snapshot) -> Option<String> {
        // Without the root nothing was read yet.
        rows.root()?;
        if rows.bridge(&self.name).is_none() {
            return Some(format!("bridge {} was deleted", self.name));
        }
        let ports: Vec<_> = self.ports.iter().map(|(name, port)| (name.as_str(), *port)).collect();
        gateway::moved_port(rows, &self.name, &ports)
    }

    /// Waits until something is lost that the node's flows hang on.
    async fn taken_away(&self) -> anyhow::Error {
        let mut rows_rx = self.ovsdb.subscribe();
        loop {
            let rows = rows_rx.borrow_and_update().clone();
            if let Some(lost) = self.lost(&rows) {
                return anyhow::anyhow!("{lost}: the agent starts again to make it anew");
            }
            if rows_rx.changed().await.is_err() {
                // The session ended, and the agent with it.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Looks at what others do to the database.
    ///
    /// On the kernel's datapath whoever starts Open vSwitch has it keep the old datapath flows until
    /// the new ones are in (`flow-restore-wait`): that wait is ended each time they are. A bridge
    /// that somebody deleted, or a port of the node itself that is gone or has another number, is
    /// made anew by starting again, for everything on the node hangs on it.
    async fn follow(&self) -> Result<()> {
        let mut rows_rx = self.ovsdb.subscribe();
        // The switch may be away for long: what happens to the database meanwhile is seen all the
        // same.
        let mut is_ending = false;
        let mut ending: OptionFuture<BoxFuture<'_, ()>> = None.into();
        loop {
            let rows = rows_rx.borrow_and_update().clone();
            if let Some(lost) = self.lost(&rows) {
                bail!("{lost}: the agent starts again to make it anew");
            }
            let waits = |root: &OpenVSwitch| root.other_config.contains_key(RESTORE_WAIT);
            if rows.root().is_some_and(|(_, root)| waits(root)) && !is_ending {
                ending = Some(self.end_wait().boxed()).into();
                is_ending = true;
            }
            tokio::select! {
                changed = rows_rx.changed() => if changed.is_err() { return Ok(()) },
                Some(()) = &mut ending, if is_ending => is_ending = false,
            }
        }
    }

    /// Flows that the switch refused must not keep it from forwarding. Policies that are not known
    /// yet do.
    async fn end_wait(&self) {
        let mut state_rx = self.bridge.state();
        if state_rx.wait_for(|state| state.first_owners_synced).await.is_err() {
            return;
        }
        if matches!(self.bridge.barrier().await, Err(BarrierError::Closed)) {
            return;
        }
        match self.ovsdb.remove_other_config(&[RESTORE_WAIT]).await {
            Ok(()) => tracing::info!("the switch forwards by the new flows"),
            Err(error) => tracing::error!("end {RESTORE_WAIT}: {}", nodes::chain(&error)),
        }
    }
}
