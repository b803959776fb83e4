//! A thousand ADDs and DELs, twenty at a time: nothing of them is left on the node, and the agent
//! holds as many descriptors as before.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::leftovers::{Holdings, agent_descriptors, conntrack_of};
use super::{Context, Outcome};
use crate::error::{Doing, LabError, Result};
use crate::interrupt::wait_for;
use crate::sandbox::{PodIdentity, Runtime};

const N: usize = 1000;
const PARALLEL: usize = 20;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let runtime = Runtime::new(store.layout(), "node-1");
    let node = runtime.node();
    let before = Holdings::of(node)?;
    let settled = || {
        let clean = wait_for(Duration::from_secs(10), "nothing is left", || {
            Holdings::of(node).ok().filter(|now| before.compare(now).is_ok())
        });
        match clean {
            Ok(_) => Ok(()),
            Err(_) => before.compare(&Holdings::of(node)?),
        }
    };
    // One round first: a descriptor that is opened once and kept is no leak.
    churn(&runtime, PARALLEL)?;
    settled()?;
    let descriptors = agent_descriptors(store, "node-1");
    let started = Instant::now();
    let addresses = churn(&runtime, N)?;
    let seconds = started.elapsed().as_secs_f64();
    settled()?;
    if let Some(first) = conntrack_of(node, &addresses)?.first() {
        return Err(LabError::new(format!("a connection is still tracked: {first}")));
    }
    let fewer = wait_for(Duration::from_secs(10), "descriptors are closed", || {
        (agent_descriptors(store, "node-1") <= descriptors).then_some(())
    });
    if fewer.is_err() {
        return Err(LabError::new(format!(
            "the agent holds {:?} descriptors, {descriptors:?} before",
            agent_descriptors(store, "node-1")
        )));
    }
    Ok(Outcome::Passed(json!({
        "adds": N, "parallel": PARALLEL, "seconds": (seconds * 10.0).round() / 10.0,
        "agentDescriptors": descriptors,
    })))
}

/// Adds and removes sandboxes, twenty at a time; gives back the addresses they had.
fn churn(runtime: &Runtime, n: usize) -> Result<BTreeSet<IpAddr>> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL)
            .map(|_| {
                scope.spawn(|| {
                    let mut addresses = BTreeSet::new();
                    loop {
                        let i = next.fetch_add(1, Ordering::SeqCst);
                        if i >= n {
                            return Ok(addresses);
                        }
                        crate::interrupt::check()?;
                        addresses.extend(one(runtime, i)?);
                    }
                })
            })
            .collect();
        let mut all = BTreeSet::new();
        for worker in workers {
            let found =
                worker.join().unwrap_or_else(|_| Err(LabError::new("a worker panicked")))?;
            all.extend(found);
        }
        Ok(all)
    })
}

fn one(runtime: &Runtime, i: usize) -> Result<Vec<IpAddr>> {
    let pod = PodIdentity {
        namespace: "churn".into(),
        name: format!("churn-{i}"),
        uid: format!("churn-{i}"),
    };
    let mut sandbox = runtime.reserve(&pod, false, BTreeMap::new())?;
    let added = runtime.attach(&mut sandbox, Duration::from_secs(60));
    let removed = runtime.remove(&sandbox);
    added.doing(|| format!("ADD number {i}"))?;
    removed.doing(|| format!("DEL number {i}"))?;
    Ok(sandbox.addresses())
}
