//! The control loops inside of the server: namespaces, owned objects, node taints.
//!
//! Each is level-triggered: it looks at everything whenever something changed, and does what is
//! missing. Changes that come close together are looked at once.

mod garbage;
mod namespaces;
mod nodes;

use std::sync::Arc;
use std::time::Duration;

use apiserver::api::Api;

/// How long changes are gathered before a loop looks at them.
const GATHER: Duration = Duration::from_millis(20);

/// Starts all loops; they end when the API stops.
pub(crate) fn start(api: &Arc<Api>, ca_pem: &str) {
    let ca_pem = ca_pem.to_owned();
    run(api, move |api| namespaces::step(api, &ca_pem));
    run(api, garbage::step);
    run(api, nodes::step);
}

fn run(api: &Arc<Api>, step: impl Fn(&Api) + Send + 'static) {
    let api = Arc::clone(api);
    tokio::spawn(async move {
        let mut changed = api.store.subscribe_all();
        loop {
            changed.borrow_and_update();
            step(&api);
            tokio::select! {
                () = api.stopping.cancelled() => return,
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
