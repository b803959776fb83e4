//! Sessions and the bridge against the fakes: faults that a real switch does not show on demand.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

use std::time::Duration;

use openflow::message::{PacketIn, PacketInReason, PacketOut};
use openflow::{Action, Cookie, Flow, Group, GroupId, Intent, Match, OfPort, TableId};
use ovsdb::{Operation, Table};
use switch::bridge::{BarrierError, Bridge, BridgeConfig, Owner};
use switch::fake::{FakeOvsdb, FakeSwitch, OfportFault};
use switch::ovsdb_session::{
    BridgeSpec, OvsdbConfig, OvsdbError, OvsdbSession, PortError, PortSelector, PortSpec,
};
use tokio::time::timeout;

const BRIDGE: &str = "br-int";
const DEADLINE: Duration = Duration::from_secs(20);
const A: Owner = Owner(1);

/// A fake of each kind, in a directory that goes with them.
struct Fakes {
    dir: tempfile::TempDir,
    ovsdb: FakeOvsdb,
    switch: FakeSwitch,
}

fn mk_fakes() -> Fakes {
    let dir = tempfile::tempdir().unwrap();
    let ovsdb = FakeOvsdb::start(&dir.path().join("db.sock")).unwrap();
    let switch = FakeSwitch::start(&dir.path().join("br-int.mgmt")).unwrap();
    Fakes { dir, ovsdb, switch }
}

async fn mk_session(fakes: &Fakes) -> OvsdbSession {
    let mut config = OvsdbConfig::new(fakes.ovsdb.socket());
    config.backoff_min = Duration::from_millis(5);
    let session = OvsdbSession::connect(config);
    session.ensure_bridge(BridgeSpec::secure(BRIDGE, "netdev")).await.unwrap();
    session
}

fn mk_port(name: &str) -> PortSpec {
    PortSpec::new(BRIDGE, name).external_id("id", name)
}

fn mk_keeper(fakes: &Fakes) -> Bridge {
    let mut config = BridgeConfig::new(fakes.switch.socket(), 0xa17e);
    config.owners = vec![A];
    config.retry_interval = Duration::from_millis(20);
    config.repair_interval = Duration::from_millis(100);
    Bridge::start(config)
}

fn mk_flow(priority: u16) -> Flow {
    Flow::new(TableId(0), priority, Match::new().ip()).cookie(Cookie(0xa17e_0100_0000_0001))
}

async fn barrier(bridge: &Bridge) {
    timeout(DEADLINE, bridge.barrier()).await.expect("barrier in time").unwrap();
}

async fn eventually(what: &str, mut cond: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + DEADLINE;
    while !cond() {
        assert!(tokio::time::Instant::now() < end, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn many_ports_share_few_transactions() {
    let fakes = mk_fakes();
    let session = mk_session(&fakes).await;
    let before = fakes.ovsdb.n_transactions();
    let names: Vec<String> = (0..100).map(|i| format!("p{i}")).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for (session, name) in names.iter().map(|name| (session.clone(), name.clone())) {
        tasks.spawn(async move { session.add_port(mk_port(&name)).await });
    }
    assert!(tasks.join_all().await.iter().all(Result::is_ok));
    let n = fakes.ovsdb.n_transactions() - before;
    assert!(n <= 10, "{n} transactions for 100 ports");
    for name in &names {
        session.wait_ofport(name, DEADLINE).await.unwrap();
    }
    assert_eq!(fakes.ovsdb.database().table(Table::Port).count(), 101);
}

#[tokio::test]
async fn every_failure_of_a_port_has_its_own_error() {
    let fakes = mk_fakes();
    let session = mk_session(&fakes).await;
    fakes.ovsdb.set_ofport_fault("broken", OfportFault::Failed);
    fakes.ovsdb.set_ofport_fault("slow", OfportFault::Never);
    session.add_port(mk_port("broken")).await.unwrap();
    session.add_port(mk_port("slow")).await.unwrap();
    let error = session.wait_ofport("broken", DEADLINE).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Open vSwitch cannot use interface broken: could not open network device broken"
    );
    let error = session.wait_ofport("slow", Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(error, PortError::Timeout { .. }), "{error}");

    fakes.ovsdb.refuse_next(1);
    let error = session.add_port(mk_port("unlucky")).await.unwrap_err();
    assert!(matches!(error, PortError::Ovsdb(OvsdbError::Refused(_))), "{error}");
    session.add_port(mk_port("unlucky")).await.unwrap();

    let error = session.add_port(PortSpec::new("br-none", "p")).await.unwrap_err();
    assert_eq!(error, PortError::NoBridge("br-none".into()));
    let other = PortSpec::new(BRIDGE, "unlucky").external_id("id", "somebody else");
    assert!(matches!(session.add_port(other).await, Err(PortError::Taken { .. })));

    assert_eq!(session.del_port(PortSelector::external_id("id", "broken")).await, Ok(1));
    assert_eq!(session.del_port(PortSelector::name("broken")).await, Ok(0));
    fakes.ovsdb.refuse_next(1);
    assert!(session.del_port(PortSelector::name("slow")).await.is_err());
    assert_eq!(session.del_port(PortSelector::name("slow")).await, Ok(1));
}

#[tokio::test]
async fn a_refused_common_transaction_is_tried_port_by_port() {
    let fakes = mk_fakes();
    let session = mk_session(&fakes).await;
    let (first, bad, last) = tokio::join!(
        session.add_port(mk_port("first")),
        session.add_port(PortSpec::new("br-none", "bad")),
        session.add_port(mk_port("last")),
    );
    assert_eq!((first, last), (Ok(()), Ok(())));
    assert_eq!(bad, Err(PortError::NoBridge("br-none".into())));
}

#[tokio::test]
async fn a_lost_connection_fails_what_is_in_flight_and_is_made_again() {
    let fakes = mk_fakes();
    let session = mk_session(&fakes).await;
    fakes.ovsdb.cut().at_message(1);
    let comment = || vec![Operation::Comment("hello".into())];
    assert_eq!(session.transact(comment()).await, Err(OvsdbError::Disconnected));
    assert_eq!(session.transact(comment()).await.map(|results| results.len()), Ok(1));
    // A change that was made while nobody looked is in the next snapshot.
    fakes.ovsdb.disconnect();
    let other = mk_session(&fakes).await;
    other.add_port(mk_port("p")).await.unwrap();
    session.wait_ofport("p", DEADLINE).await.unwrap();
}

#[tokio::test]
async fn a_silent_server_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("db.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let mut config = OvsdbConfig::new(&socket);
    config.probe_interval = Duration::from_millis(20);
    config.backoff_min = Duration::from_millis(1);
    let _session = OvsdbSession::connect(config);
    let (_first, _) = listener.accept().await.unwrap();
    timeout(DEADLINE, listener.accept()).await.expect("connects again").unwrap();
}

#[tokio::test]
async fn the_bridge_converges_wherever_its_connection_is_cut() {
    for n in 1..60 {
        let fakes = mk_fakes();
        fakes.switch.change(|pipeline| pipeline.put(mk_flow(900)));
        let bridge = mk_keeper(&fakes);
        let group = Group::all(GroupId(3)).bucket(0, vec![Action::Output(OfPort(1))]);
        bridge.set(A, "kept", vec![mk_flow(1).into(), mk_flow(2).into()]);
        bridge.set(A, "gone", vec![mk_flow(3).into(), Intent::Group(group.clone())]);
        fakes.switch.cut().at_message(n);
        barrier(&bridge).await;
        bridge.remove(A, "gone");
        let with_group = mk_flow(4).action(Action::Group(GroupId(3)));
        bridge.set(A, "new", vec![with_group.into(), Intent::Group(group)]);
        bridge.synced(A);
        barrier(&bridge).await;
        let mut state_rx = bridge.state();
        timeout(DEADLINE, state_rx.wait_for(|state| state.first_sync_done)).await.unwrap().unwrap();
        let pipeline = fakes.switch.pipeline();
        let priorities: Vec<u16> = pipeline.flows.keys().map(|key| key.priority).collect();
        assert_eq!(priorities, [1, 2, 4], "cut at message {n}");
        assert_eq!(pipeline.groups.len(), 1, "cut at message {n}");
    }
}

#[tokio::test]
async fn a_restarted_switch_gets_everything_back() {
    let fakes = mk_fakes();
    let bridge = mk_keeper(&fakes);
    let flows: Vec<Intent> = (0..500).map(|p| mk_flow(p).into()).collect();
    bridge.set(A, "x", flows);
    bridge.synced(A);
    barrier(&bridge).await;
    let before = fakes.switch.pipeline();
    assert_eq!(before.flows.len(), 500);
    fakes.switch.restart();
    eventually("everything is back", || fakes.switch.pipeline() == before).await;
    let n_changes = fakes.switch.n_changes();
    fakes.switch.disconnect();
    let mut state_rx = bridge.state();
    state_rx.wait_for(|state| !state.connected).await.unwrap();
    state_rx.wait_for(|state| state.dumped).await.unwrap();
    barrier(&bridge).await;
    assert_eq!(fakes.switch.n_changes(), n_changes, "nothing to send after a mere reconnect");
}

#[tokio::test]
async fn foreign_changes_are_put_right() {
    let fakes = mk_fakes();
    let bridge = mk_keeper(&fakes);
    bridge.set(A, "x", (0..9).map(|p| mk_flow(p).into()).collect());
    bridge.synced(A);
    barrier(&bridge).await;
    let want = fakes.switch.pipeline();
    fakes.switch.change(|pipeline| {
        pipeline.flows.pop_first();
        pipeline.put(mk_flow(77).cookie(Cookie(5)));
        pipeline.put(mk_flow(8).action(Action::Output(OfPort::NORMAL)));
    });
    eventually("it is as before", || fakes.switch.pipeline() == want).await;
}

#[tokio::test]
async fn a_refused_flow_is_tried_again() {
    let fakes = mk_fakes();
    fakes.switch.refuse_priority(Some(3));
    let bridge = mk_keeper(&fakes);
    bridge.set(A, "x", (0..9).map(|p| mk_flow(p).into()).collect());
    let error = timeout(DEADLINE, bridge.barrier()).await.unwrap().unwrap_err();
    let BarrierError::Refused(refusals) = error else { panic!("{error}") };
    assert!(refusals[0].intent.contains("priority=3,"), "{}", refusals[0]);
    assert_eq!(fakes.switch.pipeline().flows.len(), 8);
    fakes.switch.refuse_priority(None);
    eventually("the refused flow is there", || fakes.switch.pipeline().flows.len() == 9).await;
    // What the switch refuses by itself: a table that is not, a match without what it needs.
    let bad = [
        Flow::new(TableId(254), 1, Match::new()),
        Flow::new(TableId(1), 1, Match::new().with(openflow::Field::TcpDst, 80)),
    ];
    bridge.set(A, "bad", bad.map(Intent::from).into());
    assert!(timeout(DEADLINE, bridge.barrier_for(A, "bad")).await.unwrap().is_err());
    assert_eq!(fakes.switch.pipeline().flows.len(), 9);
}

#[tokio::test]
async fn packets_nobody_takes_do_not_hold_up_flows() {
    let fakes = mk_fakes();
    let bridge = mk_keeper(&fakes);
    let mut read_rx = bridge.packet_ins();
    let unread_rx = bridge.packet_ins();
    let packet = PacketIn {
        data: vec![7; 60].into(),
        full_len: 60,
        table: TableId(3),
        cookie: Cookie(9),
        reason: PacketInReason::Action,
        metadata: Match::new().in_port(OfPort(4)),
        userdata: vec![1, 2].into(),
        continuation: None,
    };
    eventually("a connection wants packets", || fakes.switch.send_packet_in(&packet) == 1).await;
    let first = timeout(DEADLINE, read_rx.recv()).await.unwrap().unwrap();
    assert_eq!((first.in_port(), &first.userdata[..]), (Some(OfPort(4)), &[1, 2][..]));
    for _ in 0..5000 {
        fakes.switch.send_packet_in(&packet);
    }
    bridge.set(A, "x", vec![mk_flow(1).into()]);
    barrier(&bridge).await;
    assert_eq!(fakes.switch.pipeline().flows.len(), 1);
    drop(unread_rx);

    let out = PacketOut::new(OfPort(4), vec![1; 60], vec![Action::Output(OfPort(5))]);
    bridge.packet_out(out.clone()).await.unwrap();
    eventually("the packet is sent", || fakes.switch.packet_outs() == [out.clone()]).await;
}

#[tokio::test]
async fn everything_ends_with_its_last_user() {
    let fakes = mk_fakes();
    let session = mk_session(&fakes).await;
    let bridge = mk_keeper(&fakes);
    barrier(&bridge).await;
    let (mut state_rx, mut rows_rx) = (bridge.state(), session.subscribe());
    drop((bridge, session));
    // The senders go with the tasks.
    timeout(DEADLINE, async { while state_rx.changed().await.is_ok() {} }).await.unwrap();
    timeout(DEADLINE, async { while rows_rx.changed().await.is_ok() {} }).await.unwrap();
    assert!(fakes.dir.path().exists());
}
