//! A node is rebooted: its Pods come back in new sandboxes, and nothing of the former ones is left.

use std::time::{Duration, Instant};

use serde_json::json;

use super::load::Load;
use super::switch_faults::nothing_stale;
use super::{Context, Outcome};
use crate::component;
use crate::error::{LabError, Result};
use crate::probe;

pub(super) fn run(context: &Context<'_>) -> Result<Outcome> {
    let store = context.store()?;
    let mut a = context.pod("node-1", "reboot-1")?;
    let mut b = context.pod("node-1", "reboot-2")?;
    let c = context.pod("node-2", "reboot-3")?;
    let d = context.pod("node-2", "reboot-4")?;
    let pair = ("on the other node", c.sandbox.netns.as_path(), d.target()?);
    let mut load = Load::start(&[pair], pair)?;
    load.note("rebooted");
    let began = Instant::now();
    component::reboot(store, "node-1")?;
    let booted = began.elapsed();
    let former = [a.sandbox.id.clone(), b.sandbox.id.clone()];
    a.follow()?;
    b.follow()?;
    if former.contains(&a.sandbox.id) || former.contains(&b.sandbox.id) {
        return Err(LabError::new("a Pod has its former sandbox after a reboot"));
    }
    for (from, to) in [(&a, &b), (&b, &c), (&c, &a)] {
        for target in to.targets() {
            probe::tcp_who(&from.sandbox.netns, target, Duration::from_secs(10))?;
            probe::udp_who(&from.sandbox.netns, target, Duration::from_secs(10))?;
        }
    }
    let back = began.elapsed();
    let report = load.finish()?;
    report.nothing_lost()?;
    nothing_stale(store, "node-1")?;
    Ok(Outcome::Passed(json!({
        "nodeUpMs": booted.as_millis(),
        "podsReachableMs": back.as_millis(),
        "lostOnOtherNode": 0,
    })))
}
