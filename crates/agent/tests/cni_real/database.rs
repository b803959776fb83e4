//! The bridge is taken away while ovs-vswitchd is away, too.

use antrea_agent::database::Database;
use switch::bridge::{Bridge, BridgeConfig};
use switch::ovsdb_session::{BridgeSpec, OvsdbConfig, OvsdbSession};
use testkit::netns::NamedNetns;
use testkit::ovs::Ovs;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::node::DEADLINE;

#[test]
#[ignore = "needs root: make test"]
fn a_wait_for_the_switch_hides_nothing_of_the_database() {
    let netns = NamedNetns::new("cni-node").unwrap();
    let mut ovs = Ovs::start(Some(&netns));
    let runtime = netns.run(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    });
    let (db_sock, mgmt) = (ovs.db_sock(), ovs.mgmt("br-int"));
    let stop = CancellationToken::new();
    let (ovsdb, settled) = runtime.block_on(async {
        let ovsdb = OvsdbSession::connect(OvsdbConfig::new(db_sock));
        ovsdb.wait_connected(DEADLINE).await.unwrap();
        ovsdb.ensure_bridge(BridgeSpec::secure("br-int", "netdev")).await.unwrap();
        let bridge = Bridge::start(BridgeConfig::new(mgmt, pipeline::fields::COOKIE_MARKER));
        let database = Database {
            ovsdb: ovsdb.clone(),
            bridge: bridge.clone(),
            name: "br-int".into(),
            ports: vec![],
        };
        let (_restored_tx, restored) = watch::channel(true);
        let settled = tokio::spawn(database.settle(restored, stop.clone()));
        let noted = || ovsdb.bridge_external_ids("br-int").contains_key("antrea-layout");
        let mut rows_rx = ovsdb.subscribe();
        tokio::time::timeout(DEADLINE, async {
            while !noted() {
                rows_rx.changed().await.unwrap();
            }
        })
        .await
        .expect("the first sync is done");
        (ovsdb, settled)
    });
    ovs.kill_vswitchd();
    ovs.vsctl(&["--no-wait", "set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true"]);
    runtime.block_on(async {
        let mut rows_rx = ovsdb.subscribe();
        let waits = |rows: &std::sync::Arc<ovsdb::Snapshot>| {
            rows.root().is_some_and(|(_, row)| row.other_config.contains_key("flow-restore-wait"))
        };
        tokio::time::timeout(DEADLINE, rows_rx.wait_for(waits)).await.unwrap().unwrap();
    });
    ovs.vsctl(&["--no-wait", "del-br", "br-int"]);
    let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, settled).await });
    let error = ended.expect("it is noticed").unwrap().unwrap_err();
    assert!(error.to_string().contains("was deleted"), "{error:#}");
    runtime.shutdown_timeout(DEADLINE);
}

/// Before its flows are in, they would be waited for in vain.
#[test]
#[ignore = "needs root: make test"]
fn a_bridge_that_goes_before_its_first_flows_is_noticed() {
    let netns = NamedNetns::new("cni-node").unwrap();
    let mut ovs = Ovs::start(Some(&netns));
    let runtime = netns.run(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    });
    let (db_sock, mgmt) = (ovs.db_sock(), ovs.mgmt("br-int"));
    let ovsdb = runtime.block_on(async {
        let ovsdb = OvsdbSession::connect(OvsdbConfig::new(db_sock));
        ovsdb.wait_connected(DEADLINE).await.unwrap();
        ovsdb.ensure_bridge(BridgeSpec::secure("br-int", "netdev")).await.unwrap();
        ovsdb
    });
    ovs.kill_vswitchd();
    let (settled, _restored_tx) = runtime.block_on(async {
        let bridge = Bridge::start(BridgeConfig::new(mgmt, pipeline::fields::COOKIE_MARKER));
        let database = Database { ovsdb, bridge, name: "br-int".into(), ports: vec![] };
        let (restored_tx, restored) = watch::channel(true);
        (tokio::spawn(database.settle(restored, CancellationToken::new())), restored_tx)
    });
    ovs.vsctl(&["--no-wait", "del-br", "br-int"]);
    let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, settled).await });
    let error = ended.expect("it is noticed").unwrap().unwrap_err();
    assert!(error.to_string().contains("bridge br-int was deleted"), "{error:#}");
    runtime.shutdown_timeout(DEADLINE);
}
