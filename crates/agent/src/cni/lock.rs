//! One request at a time for each attachment, in the order they came.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use cni_api::Attachment;
use tokio::sync::OwnedMutexGuard;

/// A lock for each attachment that somebody holds or waits for.
#[derive(Debug, Default)]
pub(super) struct AttachmentLocks {
    locks: Mutex<BTreeMap<Attachment, Weak<tokio::sync::Mutex<()>>>>,
}

impl AttachmentLocks {
    /// Waits for earlier requests about this attachment. Dropping the guard lets the next one in.
    pub(super) async fn lock(&self, attachment: &Attachment) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            // Locks that nobody holds any more are forgotten here: there are as many as requests
            // that run at the same time.
            locks.retain(|_, lock| lock.strong_count() > 0);
            match locks.get(attachment).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::default();
                    locks.insert(attachment.clone(), Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.locks.lock().unwrap().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_for_one_attachment_are_served_in_order() {
        let locks = Arc::new(AttachmentLocks::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let c1 = Attachment::new("c1", "eth0").unwrap();
        let held = locks.lock(&c1).await;
        let mut tasks = Vec::new();
        for number in 0..5 {
            let (locks, order, c1) = (Arc::clone(&locks), Arc::clone(&order), c1.clone());
            tasks.push(tokio::spawn(async move {
                let _guard = locks.lock(&c1).await;
                order.lock().unwrap().push(number);
            }));
            tokio::task::yield_now().await;
        }
        // Another attachment does not wait.
        drop(locks.lock(&Attachment::new("c2", "eth0").unwrap()).await);
        assert!(order.lock().unwrap().is_empty());
        drop(held);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4]);
        drop(locks.lock(&c1).await);
        assert!(locks.len() <= 2);
    }
}
