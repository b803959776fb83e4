//! Deletes links after the answer to DEL was given: it takes the kernel tens of milliseconds.
//!
//! Whoever is to use a name again, on the host or in a Pod's namespace, waits here until its link is
//! gone.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cni_api::IfName;
use tokio::sync::{Semaphore, watch};
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
    running: Arc<Mutex<BTreeMap<HostIfName, Running>>>,
    turns: Turns,
    tasks: TaskTracker,
}

/// How many links are deleted at a time: the kernel does it one by one, and those who wait for it
/// would hold threads that making links needs.
const AT_A_TIME: usize = 2;

#[derive(Clone, Debug)]
struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_A_TIME)))
    }
}

/// One link that is being deleted.
#[derive(Clone, Debug)]
struct Running {
    /// Where its other end is, and its name there.
    netns: String,
    ifname: IfName,
    done_rx: watch::Receiver<()>,
}

impl Running {
    /// Whether it is in the way of an interface.
    fn is_other_end_of(&self, record: &PodRecord) -> bool {
        self.ifname == record.attachment.ifname && is_same_path(&self.netns, &record.netns)
    }
}

/// Whether two paths of namespaces are one; `/var/run` is a link to `/run`.
fn is_same_path(one: &str, other: &str) -> bool {
    let short = |path: &str| path.strip_prefix("/var/run/").map(|below| format!("/run/{below}"));
    let (one, other) = (short(one).unwrap_or(one.into()), short(other).unwrap_or(other.into()));
    !one.is_empty() && one == other
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
            let (netns, ifname) = (record.netns.clone(), record.attachment.ifname.clone());
            running.insert(name.clone(), Running { netns, ifname, done_rx });
        }
        let running = Arc::clone(&self.running);
        let turns = self.turns.clone();
        self.tasks.spawn(async move {
            // Nobody closes it.
            let _turn = turns.0.acquire().await;
            if let Err(error) = net.delete(&name, &record.attachment).await {
                // The next start, or the next use of the name, tries again.
                warn!(link = %name, attachment = %record.attachment, error = chain(&error),
                    "link of a deleted Pod is still there");
            }
            running.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
            drop(done_tx);
        });
    }

    /// Waits until no link is being deleted that is in the way of this one: by its name, or by the
    /// name of its other end in the same namespace. Fails when that takes too long.
    pub(super) async fn wait_for(
        &self,
        record: &PodRecord,
        patience: Duration,
    ) -> Result<(), Elapsed> {
        let in_the_way = |(name, link): (&HostIfName, &Running)| {
            let blocks = *name == record.host_name || link.is_other_end_of(record);
            blocks.then(|| link.done_rx.clone())
        };
        let waited: Vec<_> = self.lock().iter().filter_map(in_the_way).collect();
        let all_gone = async {
            for mut done_rx in waited {
                // An error means that the sender is gone: the link is.
                while done_rx.changed().await.is_ok() {}
            }
        };
        timeout(patience, all_gone).await
    }

    /// Waits until nothing is being deleted.
    pub(super) async fn wait_all(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<HostIfName, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
