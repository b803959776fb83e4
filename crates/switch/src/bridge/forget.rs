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

/// When all is deleted once more: a revalidator that was at work during the first time has long
/// ended by then, and could not put back what it had decided before.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
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
                }
            }
            match timeout(AGAIN_AFTER, changed_rx.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => break,
            }
        }
        // A failure needs no further try: a vswitchd that is away comes back with nothing cached.
        let _ = forget(&run_dir).await;
    }
}

async fn forget(run_dir: &Path) -> Result<(), UnixCtlError> {
    UnixCtl::find(run_dir)?.call(COMMAND, &[]).await.map(drop)
}
