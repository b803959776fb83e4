//! The OVSDB session and the control socket against a real Open vSwitch.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::time::{Duration, Instant};

use common::{BRIDGE, DEADLINE, eventually, mk_bridge, with_ovs};
use openflow::{MacAddr, OfPort, TableId};
use switch::ovsdb_session::{
    BridgeSpec, OvsdbConfig, OvsdbError, OvsdbSession, PortError, PortSelector, PortSpec,
};
use switch::unixctl::{ConntrackFilter, UnixCtl};
use testkit::netns::sh;
use testkit::ovs::Ovs;
use tokio::time::timeout;

#[test]
#[ignore = "needs root: make test"]
fn a_bridge_is_made_secure_and_named() {
    with_ovs(async |ovs| {
        let session = OvsdbSession::connect(OvsdbConfig::new(ovs.db_sock()));
        let mut spec = BridgeSpec::secure(BRIDGE, "netdev");
        let mac: MacAddr = "02:00:00:00:00:07".parse().unwrap();
        spec.hwaddr = Some(mac);
        spec.external_ids.insert("layout".into(), "1".into());
        session.ensure_bridge(spec.clone()).await.unwrap();
        assert_eq!(session.wait_ofport(BRIDGE, DEADLINE).await, Ok(OfPort::LOCAL));
        assert_eq!(ovs.vsctl(&["get", "bridge", BRIDGE, "fail_mode"]).trim(), "secure");
        assert_eq!(ovs.vsctl(&["get", "bridge", BRIDGE, "datapath_type"]).trim(), "netdev");
        assert!(ovs.vsctl(&["get", "bridge", BRIDGE, "protocols"]).contains("OpenFlow15"));
        assert_eq!(ovs.vsctl(&["get-controller", BRIDGE]).trim(), "");
        eventually("the bridge has its address", || {
            ovs.vsctl(&["get", "interface", BRIDGE, "mac_in_use"]).contains(&mac.to_string())
        })
        .await;
        assert!(ovs.flows(BRIDGE).is_empty(), "no NORMAL flow was ever there");

        spec.external_ids.insert("layout".into(), "2".into());
        session.ensure_bridge(spec).await.unwrap();
        assert_eq!(session.bridge_external_ids(BRIDGE)["layout"], "2");
        session.set_bridge_external_ids(BRIDGE, &[("layout", "3"), ("other", "x")]).await.unwrap();
        assert_eq!(ovs.vsctl(&["get", "bridge", BRIDGE, "external_ids:layout"]).trim(), "\"3\"");
        session.set_external_ids(&[("k", "v")]).await.unwrap();
        assert_eq!(session.external_ids()["k"], "v");
        session.set_other_config(&[("flow-restore-wait", "false")]).await.unwrap();
        session.remove_other_config(&["flow-restore-wait"]).await.unwrap();
        assert!(!ovs.vsctl(&["get", "Open_vSwitch", ".", "other_config"]).contains("restore"));

        let names = [(TableId(0), "Classifier"), (TableId(7), "Output")];
        session.set_table_names(BRIDGE, &names).await.unwrap();
        session.set_table_names(BRIDGE, &[(TableId(7), "Out")]).await.unwrap();
        session.set_table_names(BRIDGE, &[(TableId(7), "Out")]).await.unwrap();
        eventually("ovs-ofctl knows the names", || {
            let mgmt = ovs.mgmt(BRIDGE).display().to_string();
            ovs.ofctl(&["add-flow", &mgmt, "table=7,actions=drop"]);
            let shown = ovs.ofctl(&["--names", "dump-flows", &mgmt]);
            shown.contains("table=Out")
        })
        .await;
        assert_eq!(session.rows().flow_tables.len(), 2);
        session.del_bridge(BRIDGE).await.unwrap();
        session.del_bridge(BRIDGE).await.unwrap();
        assert_eq!(ovs.vsctl(&["list-br"]).trim(), "");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_hundred_ports_at_once_share_transactions() {
    with_ovs(async |ovs| {
        let session = mk_bridge(&ovs).await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..100u32 {
            let session = session.clone();
            tasks.spawn(async move {
                let name = format!("p{number}");
                let spec = PortSpec::new(BRIDGE, &name)
                    .interface_type("internal")
                    .ofport_request(OfPort(100 + number))
                    .external_id("pod", &name);
                session.add_port(spec).await.unwrap();
                (number, session.wait_ofport(&name, DEADLINE).await.unwrap())
            });
        }
        for (number, ofport) in tasks.join_all().await {
            assert_eq!(ofport, OfPort(100 + number));
        }
        assert_eq!(session.rows().ports_of(BRIDGE).count(), 101);
        let log = std::fs::read_to_string(ovs.dir().join("ovsdb-server.log")).unwrap();
        assert!(!log.contains("ERR"), "{log}");

        let gone = session.del_port(PortSelector::external_id("pod", "p7")).await.unwrap();
        assert_eq!(gone, 1);
        assert_eq!(session.del_port(PortSelector::name("p7")).await.unwrap(), 0);
        assert_eq!(session.del_port(PortSelector::name(BRIDGE)).await.unwrap(), 0);
        assert_eq!(ovs.vsctl(&["list-ports", BRIDGE]).lines().count(), 99);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn one_bad_port_fails_nobody_else() {
    with_ovs(async |ovs| {
        let session = mk_bridge(&ovs).await;
        ovs.vsctl(&[
            "add-port",
            BRIDGE,
            "theirs",
            "--",
            "set",
            "interface",
            "theirs",
            "type=internal",
        ]);
        let internal = |name| PortSpec::new(BRIDGE, name).interface_type("internal");
        let (good, no_bridge, taken, again) = tokio::join!(
            session.add_port(internal("good").external_id("a", "1")),
            session.add_port(PortSpec::new("br-none", "lost")),
            session.add_port(internal("theirs").external_id("a", "2")),
            session.add_port(internal("good").external_id("a", "1")),
        );
        assert_eq!(good, Ok(()));
        assert_eq!(again, Ok(()), "the same port again is no error");
        assert_eq!(no_bridge, Err(PortError::NoBridge("br-none".into())));
        assert!(matches!(taken, Err(PortError::Taken { .. })), "{taken:?}");

        let changed = internal("good").external_id("a", "1").ofport_request(OfPort(77));
        session.add_port(changed).await.unwrap();
        eventually("the port has the number asked for", || {
            ovs.vsctl(&["get", "interface", "good", "ofport"]).trim() == "77"
        })
        .await;
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_device_that_does_not_exist_is_reported() {
    with_ovs(async |ovs| {
        let session = mk_bridge(&ovs).await;
        session.add_port(PortSpec::new(BRIDGE, "nothing").external_id("a", "1")).await.unwrap();
        let error = session.wait_ofport("nothing", DEADLINE).await.unwrap_err();
        assert!(matches!(&error, PortError::Failed { name, .. } if name == "nothing"));
        assert!(error.to_string().contains("could not open network device"), "{error}");

        let started = Instant::now();
        let patience = Duration::from_millis(200);
        let error = session.wait_ofport("never-added", patience).await.unwrap_err();
        assert!(matches!(error, PortError::Timeout { .. }));
        assert!(started.elapsed() >= patience);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_session_outlives_its_server() {
    with_ovs(async |mut ovs| {
        let session = mk_bridge(&ovs).await;
        let mut connected_rx = session.connected();
        ovs.kill_ovsdb();
        connected_rx.wait_for(|connected| !connected).await.unwrap();
        assert!(session.rows().bridge(BRIDGE).is_some(), "the last rows stay readable");
        let mut hasty = OvsdbConfig::new(ovs.db_sock());
        hasty.patience = Duration::from_millis(100);
        let lonely = OvsdbSession::connect(hasty);
        assert_eq!(lonely.transact(vec![]).await, Err(OvsdbError::NotConnected));

        ovs.restart_ovsdb();
        session.wait_connected(DEADLINE).await.unwrap();
        lonely.wait_connected(DEADLINE).await.unwrap();
        ovs.vsctl(&["add-port", BRIDGE, "p", "--", "set", "interface", "p", "type=internal"]);
        let mut rows_rx = session.subscribe();
        rows_rx.wait_for(|rows| rows.port("p").is_some()).await.unwrap();
    });
}

#[test]
#[ignore = "needs root: make test"]
fn the_control_socket_answers() {
    with_ovs(async |ovs| {
        let session = mk_bridge(&ovs).await;
        let ctl = UnixCtl::find(ovs.dir()).unwrap();
        assert!(ctl.version().await.unwrap().contains("Open vSwitch"));
        let trace = ctl.ofproto_trace(BRIDGE, "in_port=LOCAL,arp", &[]).await.unwrap();
        assert!(trace.contains("Datapath actions: drop"), "{trace}");
        let error = ctl.ofproto_trace("br-none", "ip", &[]).await.unwrap_err();
        assert!(error.to_string().starts_with("ofproto/trace: "), "{error}");

        session.ensure_bridge(BridgeSpec::standalone("br-phy", "netdev")).await.unwrap();
        session.wait_ofport("br-phy", DEADLINE).await.unwrap();
        let peer = "172.30.0.2".parse().unwrap();
        ctl.tnl_arp_set("br-phy", peer, MacAddr([2, 0, 0, 0, 0, 2])).await.unwrap();
        let arp = ctl.call("tnl/arp/show", &[]).await.unwrap();
        assert!(arp.contains("172.30.0.2"), "{arp}");

        let datapath = "netdev@ovs-netdev";
        let tuple = "ct_nw_src=10.0.0.1,ct_nw_dst=10.0.0.2,ct_nw_proto=17,ct_tp_src=1,ct_tp_dst=2";
        let filter = ConntrackFilter { zone: 7, tuple: None };
        ctl.flush_conntrack(datapath, &filter).await.unwrap();
        for tuple in [tuple, "ct_nw_src=10.0.0.1"] {
            let filter = ConntrackFilter { zone: 7, tuple: Some(tuple.into()) };
            ctl.flush_conntrack(datapath, &filter).await.unwrap();
        }
        assert!(UnixCtl::find(std::path::Path::new("/nonexistent")).is_err());
    });
}

/// How many monitors the server has, as it says itself.
fn n_monitors(ovs: &Ovs) -> u32 {
    let target = ovs.dir().join("ovsdb-server.ctl");
    let text = sh(&format!("ovs-appctl -t {} memory/show", target.display()));
    let word = text.split_whitespace().find_map(|word| word.strip_prefix("monitors:"));
    word.unwrap_or_default().parse().unwrap_or_default()
}

#[test]
#[ignore = "needs root: make test"]
fn one_of_two_sessions_has_the_lock_and_the_other_waits() {
    with_ovs(async |ovs| {
        let mut config = OvsdbConfig::new(ovs.db_sock());
        config.lock = Some("antrea_test".into());
        let n_before = n_monitors(&ovs);
        let first = OvsdbSession::connect(config.clone());
        first.wait_connected(DEADLINE).await.unwrap();
        first.ensure_bridge(BridgeSpec::secure(BRIDGE, "netdev")).await.unwrap();
        assert_eq!(n_monitors(&ovs), n_before + 1, "a session has one monitor");
        let second = OvsdbSession::connect(config);
        let mut waits = second.waits_for_lock();
        timeout(DEADLINE, waits.wait_for(|waits| *waits)).await.unwrap().unwrap();
        assert!(!*second.connected().borrow());
        assert_eq!(
            second.wait_connected(Duration::from_millis(1)).await,
            Err(OvsdbError::NotConnected)
        );
        drop(first);
        second.wait_connected(DEADLINE).await.unwrap();
        assert!(!*waits.borrow());
        second.add_port(PortSpec::new(BRIDGE, "p0").interface_type("internal")).await.unwrap();
        // Whoever steals the lock has it: what was its holder asks for it again, and waits.
        let steal = format!("ovsdb-client steal unix:{} antrea_test", ovs.db_sock().display());
        let thief = sh(&format!("{steal} > /dev/null 2>&1 & echo $!"));
        timeout(DEADLINE, waits.wait_for(|waits| *waits)).await.unwrap().unwrap();
        sh(&format!("kill {thief}"));
        second.wait_connected(DEADLINE).await.unwrap();
    });
}
