//! Runs electors against a Lease in memory, in simulated time.

use std::sync::{Arc, Mutex};

use super::*;

/// A Lease in memory that refuses what the API server refuses; it can be cut off.
#[derive(Clone, Default)]
struct Memory {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    lease: Option<Lease>,
    version: u64,
    cut_off: Vec<String>,
    silent: bool,
}

/// One replica's way to the Lease.
#[derive(Clone)]
struct Access {
    memory: Memory,
    identity: String,
}

impl Memory {
    fn access(&self, identity: &str) -> Access {
        Access { memory: self.clone(), identity: identity.into() }
    }

    fn cut_off(&self, identity: &str) {
        self.inner.lock().unwrap().cut_off.push(identity.into());
    }

    fn holder(&self) -> Option<String> {
        self.inner.lock().unwrap().lease.as_ref()?.holder().map(str::to_owned)
    }

    fn elector(&self, identity: &str) -> Elector {
        let blank = Lease::new("kube-system", "antrea-controller");
        Elector::start(self.access(identity), blank, identity, Terms::default())
    }
}

impl Access {
    async fn reach(&self) -> Result<(), StoreError> {
        let silent = {
            let inner = self.memory.inner.lock().unwrap();
            if inner.cut_off.contains(&self.identity) {
                return Err(StoreError::Failed("cut off".into()));
            }
            inner.silent
        };
        if silent {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn store(inner: &mut Inner, lease: &Lease) -> Lease {
        inner.version += 1;
        let mut lease = lease.clone();
        lease.metadata.resource_version = Some(inner.version.to_string());
        inner.lease = Some(lease.clone());
        lease
    }
}

impl LeaseStore for Access {
    async fn read(&self) -> Result<Option<Lease>, StoreError> {
        self.reach().await?;
        Ok(self.memory.inner.lock().unwrap().lease.clone())
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, StoreError> {
        self.reach().await?;
        let mut inner = self.memory.inner.lock().unwrap();
        if inner.lease.is_some() {
            return Err(StoreError::Conflict);
        }
        Ok(Self::store(&mut inner, lease))
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, StoreError> {
        self.reach().await?;
        let mut inner = self.memory.inner.lock().unwrap();
        match &inner.lease {
            Some(there) if there.resource_version() == lease.resource_version() => {
                Ok(Self::store(&mut inner, lease))
            }
            _ => Err(StoreError::Conflict),
        }
    }
}

async fn until(elector: &Elector, wanted: bool) -> Duration {
    let start = Instant::now();
    let mut leadership = elector.leadership();
    let waited = leadership.wait_for(|now| now.is_leader() == wanted);
    tokio::time::timeout(Duration::from_secs(60), waited).await.expect("in time").unwrap();
    start.elapsed()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_follows_when_it_gives_up() {
    let memory = Memory::default();
    let first = memory.elector("a");
    until(&first, true).await;
    let second = memory.elector("b");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(first.leadership().borrow().is_leader());
    let follower = Leadership::Follower { holder: Some("a".into()) };
    assert_eq!(*second.leadership().borrow(), follower);
    first.release().await;
    let took = until(&second, true).await;
    assert!(took <= Duration::from_secs(3), "{took:?}");
    assert_eq!(*second.leadership().borrow(), Leadership::Leader { term: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_the_next_one_starts() {
    let memory = Memory::default();
    let first = memory.elector("a");
    until(&first, true).await;
    let second = memory.elector("b");
    tokio::time::sleep(Duration::from_secs(20)).await;
    memory.cut_off("a");
    let stopped = until(&first, false).await;
    assert!(stopped <= Duration::from_secs(10), "{stopped:?}");
    assert!(!second.leadership().borrow().is_leader());
    let took = until(&second, true).await;
    assert!(took > Duration::from_secs(2), "room between the two: {took:?}");
    assert!(stopped + took <= Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_does_not_answer_ends_the_leadership_in_time() {
    let memory = Memory::default();
    let first = memory.elector("a");
    until(&first, true).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(first.contact().silence() < Duration::from_secs(3));
    memory.inner.lock().unwrap().silent = true;
    let stopped = until(&first, false).await;
    assert!(stopped <= Duration::from_secs(10), "{stopped:?}");
    assert!(first.contact().silence() > Duration::from_secs(7));
    memory.inner.lock().unwrap().silent = false;
    until(&first, true).await;
}

#[tokio::test(start_paused = true)]
async fn never_do_two_lead() {
    let memory = Memory::default();
    let electors: Vec<Elector> = ["a", "b", "c"].map(|name| memory.elector(name)).into();
    let mut terms = Vec::new();
    for round in 0..600 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let leaders: Vec<usize> = (0..electors.len())
            .filter(|n| electors[*n].leadership().borrow().is_leader())
            .collect();
        assert!(leaders.len() <= 1, "{leaders:?} lead");
        if let Some(leader) = leaders.first() {
            if let Leadership::Leader { term } = *electors[*leader].leadership().borrow()
                && terms.last() != Some(&term)
            {
                terms.push(term);
            }
            // Cut off whoever leads, again and again, and let the others in.
            if round % 60 == 30 {
                let mut inner = memory.inner.lock().unwrap();
                inner.cut_off = vec![["a", "b", "c"][*leader].to_owned()];
            }
        }
    }
    assert!(terms.len() >= 5, "{terms:?}");
    assert!(terms.is_sorted(), "{terms:?}");
}

#[tokio::test(start_paused = true)]
async fn releasing_leaves_nobody_in_the_lease() {
    let memory = Memory::default();
    let only = memory.elector("a");
    until(&only, true).await;
    assert_eq!(memory.holder().as_deref(), Some("a"));
    only.release().await;
    assert_eq!(memory.holder(), None);
    let follower = memory.elector("b");
    until(&follower, true).await;
    memory.cut_off("b");
    tokio::time::timeout(Duration::from_secs(30), follower.release()).await.unwrap();
}
