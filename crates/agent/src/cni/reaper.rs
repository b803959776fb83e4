//! Deletes links after the answer to DEL was given: it takes the kernel tens of milliseconds.
//!
//! Whoever is to use a name again waits here until its link is gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::warn;

use super::failure::chain;
use super::model::{HostIfName, PodRecord};
use super::traits::PodNet;

/// Links that are being deleted.
#[derive(Clone, Debug, Default)]
pub(super) struct Reaper {
    running: Arc<Mutex<BTreeMap<HostIfName, watch::Receiver<()>>>>,
    tasks: TaskTracker,
}

impl Reaper {
    /// Starts to delete the link of an interface whose port is gone.
    pub(super) fn reap(&self, net: Arc<dyn PodNet>, record: PodRecord) {
        // The sender is dropped when the task ends, however it ends.
        let (done_tx, done_rx) = watch::channel(());
        let name = record.host_name.clone();
        {
            let mut running = self.lock();
            // A second task could outlive the first and delete the link of the next Pod.
            if running.contains_key(&name) {
                return;
            }
            running.insert(name.clone(), done_rx);
        }
        let running = Arc::clone(&self.running);
        self.tasks.spawn(async move {
            if let Err(error) = net.delete(&name, &record.attachment).await {
                // The next start, or the next use of the name, tries again.
                warn!(link = %name, attachment = %record.attachment, error = chain(&error),
                    "link of a deleted Pod is still there");
            }
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            drop(done_tx);
        });
    }

    /// Waits until no link of this name is being deleted, or fails when that takes too long.
    pub(super) async fn wait_for(
        &self,
        name: &HostIfName,
        patience: Duration,
    ) -> Result<(), Elapsed> {
        let done_rx = self.lock().get(name).cloned();
        let Some(mut done_rx) = done_rx else { return Ok(()) };
        // An error means that the sender is gone: the link is.
        timeout(patience, async { while done_rx.changed().await.is_ok() {} }).await
    }

    /// Waits until nothing is being deleted.
    pub(super) async fn wait_all(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<HostIfName, watch::Receiver<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
