//! What the tests against a real Open vSwitch share.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod dump;
pub(crate) mod pods;

use std::time::Duration;

use switch::ovsdb_session::{BridgeSpec, OvsdbConfig, OvsdbSession};
use testkit::netns::in_netns;
use testkit::ovs::Ovs;

/// How long anything may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// The bridge of these tests.
pub(crate) const BRIDGE: &str = "br-int";

/// Runs `body` with a switch of its own, in a namespace of its own, on a runtime of its own.
pub(crate) fn with_ovs<F: Future<Output = ()>>(body: impl FnOnce(Ovs) -> F + Send) {
    in_netns(|| {
        let ovs = Ovs::start(None);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(body(ovs));
    });
}

/// A session with the switch, and a secure bridge on it.
pub(crate) async fn mk_bridge(ovs: &Ovs) -> OvsdbSession {
    let session = OvsdbSession::connect(OvsdbConfig::new(ovs.db_sock()));
    session.ensure_bridge(BridgeSpec::secure(BRIDGE, "netdev")).await.unwrap();
    session.wait_ofport(BRIDGE, DEADLINE).await.unwrap();
    session
}

/// Waits until `cond` holds.
pub(crate) async fn eventually(what: &str, mut cond: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !cond() {
        assert!(tokio::time::Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
