//! Does a leader's work for exactly as long as this replica leads.
//!
//! Not here: who leads (`kube_io::lease`), what the work is (`leader`).

use std::future::Future;
use std::time::Duration;

use antrea_runtime::CancellationToken;
use kube_io::lease::Leadership;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Time before work that failed by a fault of ours is begun anew.
const RESTART_DELAY: Duration = Duration::from_secs(1);

/// The work of one leadership.
pub(crate) trait Work {
    /// Waits until a part of it ends by itself, which only a fault of ours makes it do.
    fn failed(&mut self) -> impl Future<Output = ()>;

    /// Ends it; when this returns nothing is written any more.
    fn stop(self) -> impl Future<Output = ()>;
}

/// Starts work with each leadership and stops it with its end, until `shutdown` or until nobody
/// tells of leaderships any more. No work runs when it returns.
///
/// Work that fails is stopped at once, so that what is left of it writes nothing, and begun anew
/// after a pause: its state is gone with it, and the new one starts from the cluster.
pub(crate) async fn lead<W: Work>(
    mut leadership: watch::Receiver<Leadership>,
    shutdown: &CancellationToken,
    mut start: impl FnMut() -> W,
) {
    let mut leading: Option<(u32, W)> = None;
    let mut resume_at = Instant::now();
    loop {
        let term = match &*leadership.borrow_and_update() {
            Leadership::Leader { term } => Some(*term),
            Leadership::Follower { .. } => None,
        };
        // A new term after one that ended unnoticed starts from a list of its own.
        if let Some((_, work)) = leading.take_if(|(working, _)| Some(*working) != term) {
            work.stop().await;
            continue;
        }
        let waits = leading.is_none() && term.is_some();
        if let Some(term) = term
            && waits
            && Instant::now() >= resume_at
        {
            leading = Some((term, start()));
            continue;
        }
        let failed = async {
            match &mut leading {
                Some((_, work)) => work.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = failed => {
                if let Some((_, work)) = leading.take() {
                    work.stop().await;
                }
                resume_at = Instant::now() + RESTART_DELAY;
            }
            () = sleep_until(resume_at), if waits => {}
            changed = leadership.changed() => {
                if changed.is_err() {
                    break;
                }
            }
        }
    }
    if let Some((_, work)) = leading.take() {
        work.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::Notify;

    use super::*;

    /// What happened to work, in order, each with the time in milliseconds.
    #[derive(Clone)]
    struct Log(Arc<Mutex<Vec<(&'static str, u128)>>>, Instant);

    impl Log {
        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push((what, self.1.elapsed().as_millis()));
        }

        fn take(&self) -> Vec<(&'static str, u128)> {
            std::mem::take(&mut *self.0.lock().unwrap())
        }
    }

    struct FakeWork {
        log: Log,
        fail: Arc<Notify>,
    }

    impl Work for FakeWork {
        async fn failed(&mut self) {
            self.fail.notified().await;
            self.log.note("failed");
        }

        async fn stop(self) {
            self.log.note("stopped");
        }
    }

    struct Rig {
        leadership_tx: watch::Sender<Leadership>,
        shutdown: CancellationToken,
        log: Log,
        fail: Arc<Notify>,
        task: tokio::task::JoinHandle<()>,
    }

    fn mk_rig() -> Rig {
        let (leadership_tx, leadership) = watch::channel(Leadership::Follower { holder: None });
        let shutdown = CancellationToken::new();
        let log = Log(Arc::default(), Instant::now());
        let fail = Arc::new(Notify::new());
        let (stop, notes, failing) = (shutdown.clone(), log.clone(), fail.clone());
        let task = tokio::spawn(async move {
            let start = || {
                notes.note("started");
                FakeWork { log: notes.clone(), fail: failing.clone() }
            };
            lead(leadership, &stop, start).await;
        });
        Rig { leadership_tx, shutdown, log, fail, task }
    }

    /// Lets paused time pass, and everything that is due meanwhile happen.
    async fn pass(millis: u64) {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_runs_for_as_long_as_a_term() {
        let rig = mk_rig();
        pass(10).await;
        assert_eq!(rig.log.take(), []);
        rig.leadership_tx.send_replace(Leadership::Leader { term: 1 });
        pass(10).await;
        assert_eq!(rig.log.take(), [("started", 10)]);
        rig.leadership_tx.send_replace(Leadership::Leader { term: 2 });
        pass(10).await;
        assert_eq!(rig.log.take(), [("stopped", 20), ("started", 20)]);
        rig.leadership_tx.send_replace(Leadership::Follower { holder: None });
        pass(10).await;
        assert_eq!(rig.log.take(), [("stopped", 30)]);
        rig.leadership_tx.send_replace(Leadership::Leader { term: 3 });
        pass(10).await;
        rig.shutdown.cancel();
        rig.task.await.unwrap();
        assert_eq!(rig.log.take(), [("started", 40), ("stopped", 50)]);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_failed_is_stopped_before_the_pause() {
        let rig = mk_rig();
        rig.leadership_tx.send_replace(Leadership::Leader { term: 1 });
        pass(10).await;
        rig.fail.notify_one();
        pass(100).await;
        assert_eq!(rig.log.take(), [("started", 0), ("failed", 10), ("stopped", 10)]);
        pass(1_000).await;
        assert_eq!(rig.log.take(), [("started", 1_010)]);
        // A term that ends within the pause is not worked for, and the next one waits for its end.
        rig.fail.notify_one();
        pass(100).await;
        rig.leadership_tx.send_replace(Leadership::Follower { holder: None });
        pass(2_000).await;
        assert_eq!(rig.log.take(), [("failed", 1_110), ("stopped", 1_110)]);
        rig.leadership_tx.send_replace(Leadership::Leader { term: 2 });
        pass(1).await;
        assert_eq!(rig.log.take(), [("started", 3_210)]);
        rig.fail.notify_one();
        pass(100).await;
        rig.shutdown.cancel();
        rig.task.await.unwrap();
        assert_eq!(rig.log.take(), [("failed", 3_211), ("stopped", 3_211)]);
    }
}
