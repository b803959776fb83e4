//! Makes a userspace datapath forget what it cached, after each change of flows.
//!
//! ovs-vswitchd caches decisions as wide as the tables allowed when they were made, so decisions
//! made before and after a change may overlap. When the tables change again, its revalidators give
//! a cached decision its new actions, or delete it. The userspace datapath (seen in 3.1.0) finds
//! what is to get new actions by the packet that it was made for, not by its identity: where two
//! overlap, the other one gets them, and the first goes on as before for as long as packets meet it,
//! while vswitchd takes it for changed. Deleting goes by identity. So all is deleted: packets make
//! anew what they need, and none is lost.
//!
//! Not here: the kernel's datapath, which goes by identity.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::unixctl::{UnixCtl, UnixCtlError};

/// Pauses after which all is deleted once more: a revalidator that was at work meanwhile may have
/// carried out what it had decided before. It is done in milliseconds, or much later where processors
/// are busy.
const AGAIN_AFTER: [Duration; 3] =
    [Duration::from_millis(30), Duration::from_millis(200), Duration::from_secs(1)];
/// Deletes all cached decisions.
const COMMAND: &str = "revalidator/purge";

/// Tells of changes.
#[derive(Debug)]
pub(super) struct Forgetter {
    changed_tx: Option<watch::Sender<()>>,
}

impl Forgetter {
    /// For the vswitchd that runs with this directory; does nothing without one.
    pub(super) fn start(run_dir: Option<PathBuf>) -> Self {
        let changed_tx = run_dir.map(|run_dir| {
            let (changed_tx, changed_rx) = watch::channel(());
            tokio::spawn(run(run_dir, changed_rx));
            changed_tx
        });
        Self { changed_tx }
    }

    /// The tables were changed.
    pub(super) fn changed(&self) {
        if let Some(changed_tx) = &self.changed_tx {
            changed_tx.send_replace(());
        }
    }
}

/// Changes that come while vswitchd is at it are dealt with together.
async fn run(run_dir: PathBuf, mut changed_rx: watch::Receiver<()>) {
    let mut failed = false;
    while changed_rx.changed().await.is_ok() {
        let mut pauses = AGAIN_AFTER.iter();
        loop {
            match forget(&run_dir).await {
                Ok(()) => failed = false,
                Err(error) => {
                    let error = crate::error_chain(&error);
                    if std::mem::replace(&mut failed, true) {
                        debug!(error, "cached decisions stay");
                    } else {
                        warn!(error, "cached decisions stay");
                    }
                    // A vswitchd that is away comes back with nothing cached.
                    break;
                }
            }
            let Some(pause) = pauses.next() else { break };
            match timeout(*pause, changed_rx.changed()).await {
                Ok(Ok(())) => pauses = AGAIN_AFTER.iter(),
                Ok(Err(_)) => return,
                Err(_) => {}
            }
        }
    }
}

async fn forget(run_dir: &Path) -> Result<(), UnixCtlError> {
    UnixCtl::find(run_dir)?.call(COMMAND, &[]).await.map(drop)
}
