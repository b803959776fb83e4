//! The time for which clients keep their endpoint is changed while they connect all the time: what the
//! switch learned for another time goes, and does not come back.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::IN_FORCE;
use super::faults::Requests;
use super::world::{World, eventually};
use crate::error::{LabError, Result};
use crate::ovs;

/// The Service's time is 300 seconds before.
const ANOTHER: u64 = 20_000;

/// Gives the number of connections meanwhile, of which none failed.
pub(super) fn changes(world: &World<'_>) -> Result<usize> {
    let targets = world.targets("sticky")?;
    let requests = Requests::start(world.clients(), &targets);
    let changed = change(world, &requests);
    let made = requests.finish();
    changed?;
    made
}

fn change(world: &World<'_>, requests: &Requests) -> Result<()> {
    requests.flow(100)?;
    is_learned(world, &["300"])?;
    let another = ANOTHER.to_string();
    let config = json!({ "clientIP": { "timeoutSeconds": ANOTHER } });
    for (affinity, config, learned) in
        [("ClientIP", config, &[another.as_str()][..]), ("None", Value::Null, &[])]
    {
        let spec = json!({ "sessionAffinity": affinity, "sessionAffinityConfig": config });
        world.set_spec("sticky", &spec)?;
        eventually(IN_FORCE, "the change is in force", || is_learned(world, learned))?;
        requests.flow(200)?;
        is_learned(world, learned)?;
    }
    Ok(())
}

/// Each client's switch has learned for these times and no other.
fn is_learned(world: &World<'_>, wanted: &[&str]) -> Result<()> {
    let table = format!("table={}", pipeline::fields::SESSION_AFFINITY.0);
    for client in world.clients() {
        let node = world.store.layout().node(&client.node);
        let dump = ovs::ofctl(&node, "dump-flows", &[&table])?;
        let time = |line: &'_ str| {
            let (_, rest) = line.split_once("hard_timeout=")?;
            rest.split(',').next().map(str::to_owned)
        };
        let seen: BTreeSet<String> = dump.lines().filter_map(time).collect();
        if !seen.iter().eq(wanted) {
            let node = &client.node;
            return Err(LabError::new(format!("{node} has learned for {seen:?}, not {wanted:?}")));
        }
    }
    Ok(())
}
