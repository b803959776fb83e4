//! The OVSDB session while single messages between it and a real server are late, cut or lost.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{BRIDGE, mk_bridge, with_ovs};
use openflow::TableId;
use switch::ovsdb_session::{
    BridgeSpec, OvsdbConfig, OvsdbError, OvsdbSession, PortError, PortSelector, PortSpec,
};
use testkit::fault_proxy::{Direction, Fault, FaultKind, FaultProxy, Protocol, Seen};
use testkit::ovs::Ovs;
use tokio::time::{Instant, timeout};

/// How long anything may take after a fault, on a machine with other things to do.
const BOUND: Duration = Duration::from_secs(5);
/// More than the session's patience with silence before it probes.
const DELAY: Duration = Duration::from_millis(150);
/// Note on all ports of the session.
const OWNER: (&str, &str) = ("owner", "faults");

const KINDS: [FaultKind; 5] = FaultKind::each(DELAY);

fn mk_config(socket: &Path) -> OvsdbConfig {
    let mut config = OvsdbConfig::new(socket);
    config.probe_interval = Duration::from_millis(100);
    config.backoff_min = Duration::from_millis(5);
    config.backoff_max = Duration::from_millis(20);
    config.patience = Duration::from_secs(1);
    config.reply_deadline = Duration::from_millis(250);
    config.refresh_interval = Duration::from_millis(300);
    config
}

/// A port that costs the node no device.
fn mk_port(name: &str, pod: &str) -> PortSpec {
    PortSpec::new(BRIDGE, name)
        .interface_type("patch")
        .option("peer", &format!("{name}-peer"))
        .external_id(OWNER.0, OWNER.1)
        .external_id("pod", pod)
}

/// Whoever asks for something asks again when the answer was lost: all that is asked for can be
/// asked for twice.
async fn ask<T>(what: &str, mut attempt: impl AsyncFnMut() -> Result<T, PortError>) -> T {
    let end = Instant::now() + BOUND;
    loop {
        let answer = timeout(BOUND, attempt()).await;
        match answer.unwrap_or_else(|_| panic!("{what}: no answer")) {
            Ok(answer) => return answer,
            Err(PortError::Ovsdb(OvsdbError::Disconnected | OvsdbError::NotConnected)) => {}
            Err(error) => panic!("{what}: {error}"),
        }
        assert!(Instant::now() < end, "{what}: not in time");
    }
}

/// Ports, bridges and notes come, change and go, through a proxy.
async fn session(ovs: &Ovs, db: PathBuf, fault: Option<Fault>) -> Vec<Seen> {
    let what = fault.as_ref().map_or_else(|| "no fault".to_owned(), ToString::to_string);
    let what = what.as_str();
    let proxy = FaultProxy::start(Protocol::Ovsdb, &db);
    if let Some(fault) = fault {
        proxy.arm(fault);
    }
    let session = OvsdbSession::connect(mk_config(&proxy.socket()));
    // What an earlier session left.
    let ours = || PortSelector::external_id(OWNER.0, OWNER.1);
    ask(what, async || session.del_port(ours()).await).await;
    ask(what, async || Ok(session.del_bridge("br-other").await?)).await;

    let other = BridgeSpec::standalone("br-other", "netdev");
    ask(what, async || Ok(session.ensure_bridge(other.clone()).await?)).await;
    tokio::join!(
        ask(what, async || session.add_port(mk_port("p1", "one")).await),
        ask(what, async || session.add_port(mk_port("p2", "two")).await),
        ask(what, async || session.add_port(mk_port("p3", "three")).await),
        ask(what, async || session.add_port(mk_port("p4", "four")).await),
    );
    for name in ["p1", "p4"] {
        ask(what, async || session.wait_ofport(name, BOUND).await).await;
    }
    let note = BTreeMap::from([("note".to_owned(), "x".to_owned())]);
    ask(what, async || session.note_port("p1", &note).await).await;
    ask(what, async || Ok(session.set_bridge_external_ids("br-other", &[("layout", "2")]).await?))
        .await;
    ask(what, async || Ok(session.set_external_ids(&[("faults", what)]).await?)).await;
    ask(what, async || session.del_port(PortSelector::name("p2")).await).await;
    ask(what, async || session.del_port(PortSelector::external_id("pod", "three")).await).await;
    // The same name again for somebody else, and the same port again.
    ask(what, async || session.add_port(mk_port("p3", "another")).await).await;
    ask(what, async || session.add_port(mk_port("p2", "two")).await).await;
    ask(what, async || session.add_port(mk_port("p5", "five")).await).await;
    let names = [(TableId(0), "Classifier"), (TableId(7), "Output")];
    ask(what, async || Ok(session.set_table_names("br-other", &names).await?)).await;

    let shown = ovs.vsctl(&["--format=csv", "--no-headings", "--columns=name", "list", "port"]);
    let mut ports: Vec<&str> = shown.lines().collect();
    ports.sort_unstable();
    assert_eq!(ports, ["br-int", "br-other", "p1", "p2", "p3", "p4", "p5"], "{what}");
    let shown =
        ovs.vsctl(&["--format=csv", "--no-headings", "--columns=name,type", "list", "interface"]);
    assert_eq!(shown.lines().count(), 7, "{what}: {shown}");
    // What the session believes is what another one reads.
    let direct = OvsdbSession::connect(OvsdbConfig::new(db));
    direct.wait_connected(BOUND).await.unwrap();
    let pods: Vec<(String, String)> = direct
        .rows()
        .ports_of(BRIDGE)
        .filter_map(|view| {
            Some((view.port.name.clone(), view.port.external_ids.get("pod")?.clone()))
        })
        .collect::<BTreeMap<_, _>>()
        .into_iter()
        .collect();
    let pods: Vec<(&str, &str)> = pods.iter().map(|(n, p)| (n.as_str(), p.as_str())).collect();
    let want = [("p1", "one"), ("p2", "two"), ("p3", "another"), ("p4", "four"), ("p5", "five")];
    assert_eq!(pods, want, "{what}");
    assert_eq!(direct.rows().port("p1").unwrap().1.external_ids["note"], "x", "{what}");
    assert_eq!(direct.bridge_external_ids("br-other")["layout"], "2", "{what}");
    assert_eq!(direct.external_ids()["faults"], what);
    assert_eq!(direct.rows().flow_tables.len(), 2, "{what}");
    let end = Instant::now() + BOUND;
    while *session.rows() != *direct.rows() {
        assert!(Instant::now() < end, "{what}: {:#?}\n{:#?}", session.rows(), direct.rows());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.seen()
}

#[test]
#[ignore = "needs root: make test"]
fn whatever_message_is_spoilt_the_rows_are_as_asked() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        session(&ovs, ovs.db_sock(), None).await;
        let plain = session(&ovs, ovs.db_sock(), None).await;
        let begun = Instant::now();
        let (mut n_faults, mut struck) = (0, BTreeMap::new());
        for direction in [Direction::ToServer, Direction::ToClient] {
            let n = plain.iter().filter(|seen| seen.direction == direction).count();
            assert!(n > 10, "{n} {direction:?}");
            for (n, kind) in (0..n).flat_map(|n| KINDS.map(|kind| (n, kind))) {
                let seen = session(&ovs, ovs.db_sock(), Some(Fault::nth(direction, n, kind))).await;
                n_faults += 1;
                if seen.iter().any(|seen| seen.fault.is_some()) {
                    *struck.entry(format!("{kind:?}")).or_insert(0) += 1;
                }
            }
        }
        eprintln!("{n_faults} faults in {:?}, struck {struck:?}", begun.elapsed());
        // How many updates the server makes of what happens at the same time varies.
        assert!(struck.values().sum::<usize>() * 100 >= n_faults * 80, "{struck:?}");
        assert_eq!(struck.len(), KINDS.len(), "{struck:?}");
    });
}
