//! The control loops inside of the server: namespaces, owned objects, the life of nodes,
//! Pods of Nodes that do not exist, EndpointSlices of Services, Pods of
//! ReplicaSets and these of Deployments.
//!
//! Each is level-triggered: it looks at everything whenever something changed, and does what is
//! missing. Changes that come close together are looked at once. Nodes are also looked at when
//! nothing changed, since silence is what tells of a dead one.

mod garbage;
mod heartbeats;
mod namespaces;
mod nodes;
mod orphans;
mod slices;
mod workloads;

use std::sync::Arc;
use std::time::Duration;

use apiserver::api::Api;

/// How long changes are gathered before a loop looks at them.
const GATHER: Duration = Duration::from_millis(20);

/// Starts all loops; they end when the API stops.
pub(crate) fn start(api: &Arc<Api>, ca_pem: &str, node_grace: Duration) {
    let ca_pem = ca_pem.to_owned();
    run(api, Duration::MAX, move |api| namespaces::step(api, &ca_pem));
    run(api, Duration::MAX, garbage::step);
    let mut slices = slices::Slices::default();
    run(api, Duration::MAX, move |api| slices.step(api));
    run(api, Duration::MAX, workloads::step);
    let patience = (node_grace / 8).min(Duration::from_secs(5));
    let mut nodes = nodes::Nodes::new(api, node_grace);
    run(api, patience, move |api| nodes.step(api));
    let mut orphans = orphans::Orphans::new(node_grace);
    run(api, patience, move |api| orphans.step(api));
}

/// Runs a loop's step at each change, and after `patience` without one.
fn run(api: &Arc<Api>, patience: Duration, mut step: impl FnMut(&Api) + Send + 'static) {
    let api = Arc::clone(api);
    tokio::spawn(async move {
        let mut changed = api.store.subscribe_all();
        loop {
            changed.borrow_and_update();
            step(&api);
            tokio::select! {
                () = api.stopping.cancelled() => return,
                () = tokio::time::sleep(patience) => {}
                result = changed.changed() => {
                    if result.is_err() {
                        return;
                    }
                }
            }
            tokio::time::sleep(GATHER).await;
        }
    });
}
