//! The bridge reconciler against a real Open vSwitch.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::time::{Duration, Instant};

use common::{BRIDGE, DEADLINE, eventually, mk_bridge, with_ovs};
use openflow::message::{PacketInReason, PacketOut};
use openflow::{
    Action, Controller, Cookie, Field, Flow, Group, GroupId, Intent, Match, Meter, MeterId, OfPort,
    TableId,
};
use switch::bridge::{
    BarrierError, Bridge, BridgeConfig, BridgeState, Owner, ReadError, RefusalReason, SyncMode,
};
use testkit::netns::sh;
use testkit::ovs::Ovs;
use tokio::time::timeout;

const MARKER: u16 = 0xa17e;
const POD: Owner = Owner(1);
const POLICY: Owner = Owner(2);

fn cookie(owner: Owner, object: u32) -> Cookie {
    Cookie(u64::from(MARKER) << 48 | u64::from(owner.0) << 40 | u64::from(object))
}

fn mk_flow(owner: Owner, text: &str) -> Intent {
    let flow: Flow = text.parse().unwrap();
    Intent::Flow(flow.cookie(cookie(owner, 1)))
}

fn mk_config(ovs: &Ovs) -> BridgeConfig {
    let mut config = BridgeConfig::new(ovs.mgmt(BRIDGE), MARKER);
    config.owners = vec![POD];
    config
}

async fn barrier(bridge: &Bridge) {
    timeout(DEADLINE, bridge.barrier()).await.expect("barrier in time").unwrap();
}

async fn wait_until_state(bridge: &Bridge, is_so: impl Fn(&BridgeState) -> bool) {
    let mut state_rx = bridge.state();
    let wait = state_rx.wait_for(|state| is_so(state));
    timeout(DEADLINE, wait).await.expect("state in time").unwrap();
}

async fn wait_first_sync(bridge: &Bridge) {
    wait_until_state(bridge, |state| state.first_sync_done).await;
}

/// The flows of the switch without their cookies.
fn flows(ovs: &Ovs) -> Vec<String> {
    let plain = |line: String| match line.split_once(", ") {
        Some((cookie, rest)) if cookie.starts_with("cookie=") => rest.to_owned(),
        _ => line,
    };
    let mut flows: Vec<String> = ovs.flows(BRIDGE).into_iter().map(plain).collect();
    flows.sort();
    flows
}

fn ofctl(ovs: &Ovs, command: &str, arg: &str) -> String {
    let mgmt = ovs.mgmt(BRIDGE).display().to_string();
    ovs.ofctl(&[command, &mgmt, arg])
}

#[test]
#[ignore = "needs root: make test"]
fn flows_groups_and_meters_come_and_go() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let bridge = Bridge::start(mk_config(&ovs));
        let group = Group::select(GroupId(7))
            .bucket(10, vec![Action::Output(OfPort::LOCAL)])
            .bucket(10, vec![]);
        bridge.set(
            POD,
            "p1",
            vec![
                mk_flow(POD, "table=0,priority=200,arp,actions=NORMAL"),
                mk_flow(POD, "table=0,priority=100,ip,actions=group:7"),
                mk_flow(POD, "table=3,priority=5,ip,nw_dst=10.0.0.0/8,actions=meter:3,LOCAL"),
                Intent::Group(group.clone()),
                Intent::Meter(Meter::packets_per_second(MeterId(3), 100, 10)),
            ],
        );
        bridge.set(POD, "p2", vec![mk_flow(POD, "table=9,priority=1,actions=drop")]);
        barrier(&bridge).await;
        assert_eq!(
            flows(&ovs),
            [
                "priority=100,ip actions=group:7",
                "priority=200,arp actions=NORMAL",
                "table=3, priority=5,ip,nw_dst=10.0.0.0/8 actions=meter:3,LOCAL",
                "table=9, priority=1 actions=drop",
            ]
        );
        assert!(ovs.flows(BRIDGE)[0].starts_with("cookie=0xa17e010000000001, "));
        let state = bridge.state().borrow().clone();
        assert_eq!((state.n_groups, state.n_meters, state.n_pending), (1, 1, 0));
        assert_eq!(state.flows.values().sum::<u32>(), 4);

        // The group changes, one flow goes, the meter goes.
        bridge.set(
            POD,
            "p1",
            vec![
                mk_flow(POD, "table=0,priority=100,ip,actions=group:7"),
                Intent::Group(group.bucket(10, vec![])),
            ],
        );
        bridge.remove(POD, "p2");
        barrier(&bridge).await;
        assert_eq!(flows(&ovs), ["priority=100,ip actions=group:7"]);
        let mgmt = ovs.mgmt(BRIDGE).display().to_string();
        assert_eq!(ovs.ofctl(&["dump-groups", &mgmt]).matches("bucket=").count(), 3);
        eventually("the meter is gone", || !ovs.ofctl(&["dump-meters", &mgmt]).contains("meter=3"))
            .await;
        bridge.remove(POD, "p1");
        barrier(&bridge).await;
        assert!(flows(&ovs).is_empty());
        assert!(!ovs.ofctl(&["dump-groups", &mgmt]).contains("group_id"));
        assert_eq!(bridge.state().borrow().n_repaired, 0);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_restarted_switch_gets_its_flows_back() {
    with_ovs(async |mut ovs| {
        let _session = mk_bridge(&ovs).await;
        let bridge = Bridge::start(mk_config(&ovs));
        let flow = |i: u32| mk_flow(POD, &format!("priority={},ip,actions=NORMAL", 1 + i));
        bridge.set(POD, "p", (0..500).map(flow).collect());
        bridge.synced(POD);
        barrier(&bridge).await;
        wait_first_sync(&bridge).await;
        let before = flows(&ovs);
        assert_eq!(before.len(), 500);
        ovs.restart_vswitchd();
        eventually("flows are back", || {
            let mgmt = ovs.mgmt(BRIDGE).display().to_string();
            ovs.ofctl_result(&["dump-flows", &mgmt]).is_ok_and(|text| text.lines().count() > 400)
        })
        .await;
        barrier(&bridge).await;
        assert_eq!(flows(&ovs), before);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn hand_made_changes_are_put_right() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mut config = mk_config(&ovs);
        config.repair_interval = Duration::from_millis(300);
        let bridge = Bridge::start(config);
        let group = Group::select(GroupId(7)).bucket(10, vec![Action::Output(OfPort::LOCAL)]);
        bridge.set(
            POD,
            "p",
            vec![
                mk_flow(POD, "priority=1,ip,actions=group:7"),
                mk_flow(POD, "priority=2,arp,actions=NORMAL"),
                mk_flow(POD, "table=4,priority=3,icmp,actions=drop"),
                Intent::Group(group),
            ],
        );
        bridge.synced(POD);
        barrier(&bridge).await;
        wait_first_sync(&bridge).await;
        let want = flows(&ovs);
        assert_eq!(want.len(), 3);
        let mgmt = ovs.mgmt(BRIDGE).display().to_string();

        ofctl(&ovs, "del-flows", "table=4");
        eventually("the deleted flow is back", || flows(&ovs) == want).await;
        ofctl(&ovs, "mod-flows", "arp,actions=drop");
        assert_ne!(flows(&ovs), want);
        eventually("the changed flow is as before", || flows(&ovs) == want).await;
        ofctl(&ovs, "add-flow", "table=200,priority=77,udp,actions=NORMAL");
        eventually("the foreign flow is gone", || flows(&ovs) == want).await;
        ofctl(&ovs, "mod-group", "group_id=7,type=select,bucket=weight:1,actions=drop");
        eventually("the group is as before", || {
            ovs.ofctl(&["dump-groups", &mgmt]).contains("LOCAL")
        })
        .await;
        ofctl(&ovs, "del-groups", "group_id=7");
        eventually("the deleted group and its flow are back", || flows(&ovs) == want).await;
        ofctl(&ovs, "add-group", "group_id=8,type=all");
        eventually("the foreign group is gone", || {
            !ovs.ofctl(&["dump-groups", &mgmt]).contains("group_id=8")
        })
        .await;
        let repaired = bridge.state().borrow().n_repaired;
        assert!(repaired >= 6, "{repaired}");
        let mut state_rx = bridge.state();
        let more = state_rx.wait_for(|state| state.n_repaired > repaired);
        assert!(timeout(Duration::from_secs(1), more).await.is_err(), "nothing more to repair");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_large_switch_is_looked_over_table_by_table() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mut config = mk_config(&ovs);
        config.repair_interval = Duration::from_millis(200);
        let bridge = Bridge::start(config);
        let flow = |i: u32| mk_flow(POD, &format!("table={},priority={i},ip,actions=drop", i % 7));
        bridge.set(POD, "p", (1..=6000).map(flow).collect());
        bridge.synced(POD);
        barrier(&bridge).await;
        wait_first_sync(&bridge).await;
        let want = flows(&ovs);
        assert_eq!(want.len(), 6000);
        ofctl(&ovs, "del-flows", "table=3");
        ofctl(&ovs, "add-flow", "table=99,priority=1,udp,actions=drop");
        eventually("it is as before", || flows(&ovs) == want).await;
        let mut state_rx = bridge.state();
        let wait = state_rx.wait_for(|state| state.n_repaired >= 858);
        timeout(DEADLINE, wait).await.unwrap().unwrap();
        assert_eq!(bridge.state().borrow().n_repaired, 858);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn what_an_earlier_run_left_is_claimed_or_goes_after_the_sync() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let kept = mk_flow(POD, "priority=2,arp,actions=NORMAL");
        let first = Bridge::start(mk_config(&ovs));
        first.set(POD, "p", vec![kept.clone(), mk_flow(POD, "priority=1,ip,actions=drop")]);
        barrier(&first).await;
        drop(first);
        ofctl(&ovs, "add-flow", "priority=9,udp,actions=drop");
        // The switch says a flow's age in milliseconds of a clock that it reads now and then.
        eventually("the flow has an age", || age_of_arp_flow(&ovs) > Duration::from_millis(500))
            .await;
        let second_start = Instant::now();
        let mut config = mk_config(&ovs);
        config.owners = vec![POD, POLICY];
        let second = Bridge::start(config);
        second.set(POD, "p", vec![kept]);
        second.synced(POD);
        barrier(&second).await;
        assert_eq!(flows(&ovs).len(), 3, "policy is not synced yet");
        second.synced(POLICY);
        wait_first_sync(&second).await;
        assert_eq!(flows(&ovs), ["priority=2,arp actions=NORMAL"]);
        let since = second_start.elapsed();
        let age = age_of_arp_flow(&ovs);
        assert!(age > since, "the claimed flow was sent again: {age:?} old after {since:?}");
    });
}

/// How long ago the switch was given its one ARP flow.
#[test]
#[ignore = "needs root: make test"]
fn a_group_with_an_unknown_action_does_not_keep_a_bridge_from_being_kept() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let multipath = "multipath(eth_src,50,modulo_n,1,0,NXM_NX_REG0[0..3])";
        for id in [5, 7] {
            let group = format!("group_id={id},type=all,bucket=actions={multipath}");
            ofctl(&ovs, "add-group", &group);
        }
        let bridge = Bridge::start(mk_config(&ovs));
        let wanted: Group = "group_id=7,type=all,bucket=actions=output:2".parse().unwrap();
        bridge.set(POD, "g", vec![Intent::Group(wanted), mk_flow(POD, "arp,actions=group:7")]);
        timeout(DEADLINE, bridge.barrier_for(POD, "g")).await.unwrap().unwrap();
        assert!(ofctl(&ovs, "dump-groups", "7").contains("output:2"));
        assert!(ofctl(&ovs, "dump-groups", "5").contains("multipath"), "not synced yet");
        bridge.synced(POD);
        wait_first_sync(&bridge).await;
        assert!(!ofctl(&ovs, "dump-groups", "5").contains("multipath"));
        assert_eq!(flows(&ovs), ["arp actions=group:7"]);
    });
}

/// Open vSwitch takes such a group, and when it describes it, what comes is no message.
#[test]
#[ignore = "needs root: make test"]
fn a_group_that_is_too_long_for_a_message_goes_unread() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let bucket = |n| format!(",bucket=bucket_id:{n},actions=set_field:{n}->reg1,output:{n}");
        let buckets = |ids: std::ops::Range<u32>| ids.map(bucket).collect::<String>();
        ofctl(&ovs, "add-group", &format!("group_id=6,type=all{}", buckets(1..1000)));
        let more = format!("group_id=6,command_bucket_id=last{}", buckets(1000..1700));
        ofctl(&ovs, "insert-buckets", &more);
        let bridge = Bridge::start(mk_config(&ovs));
        bridge.set(POD, "p", vec![mk_flow(POD, "arp,actions=drop")]);
        bridge.synced(POD);
        wait_first_sync(&bridge).await;
        let mgmt = ovs.mgmt(BRIDGE).display().to_string();
        assert!(!ovs.ofctl(&["dump-groups", &mgmt]).contains("group_id"));
        assert_eq!(flows(&ovs), ["arp actions=drop"]);
    });
}

fn age_of_arp_flow(ovs: &Ovs) -> Duration {
    let shown = ovs.ofctl(&["dump-flows", &ovs.mgmt(BRIDGE).display().to_string(), "arp"]);
    let (_, rest) = shown.split_once("duration=").expect("an ARP flow");
    let (seconds, _) = rest.split_once('s').expect("a duration");
    Duration::from_secs_f64(seconds.parse().expect("seconds"))
}

#[test]
#[ignore = "needs root: make test"]
fn a_refused_flow_does_not_hold_up_the_rest() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let bridge = Bridge::start(mk_config(&ovs));
        bridge.set(POD, "good", vec![mk_flow(POD, "priority=1,ip,actions=NORMAL")]);
        bridge.set(POD, "bad", vec![mk_flow(POD, "priority=2,ip,actions=group:99")]);
        let also = |i: u32| mk_flow(POD, &format!("priority={},arp,actions=NORMAL", 10 + i));
        bridge.set(POD, "also good", (0..50).map(also).collect());
        let error = timeout(DEADLINE, bridge.barrier()).await.unwrap().unwrap_err();
        let BarrierError::Refused(refusals) = error else { panic!("{error}") };
        assert_eq!(refusals.len(), 1);
        assert_eq!(&*refusals[0].key, "bad");
        assert!(refusals[0].to_string().contains("OFPBAC_BAD_OUT_GROUP"), "{}", refusals[0]);
        assert_eq!(flows(&ovs).len(), 51);
        assert_eq!(bridge.barrier_for(POD, "good").await, Ok(()));
        assert!(bridge.barrier_for(POD, "bad").await.is_err());

        // When the group comes, so does the flow.
        let group = Group::all(GroupId(99)).bucket(0, vec![]);
        bridge.set(POD, "group", vec![Intent::Group(group)]);
        eventually("the flow comes after its group", || flows(&ovs).len() == 52).await;
        eventually("nothing is refused any more", || bridge.state().borrow().refused.is_empty())
            .await;

        // Ten bad ones at once.
        let bad = |i: u32| mk_flow(POD, &format!("priority={},ip,actions=group:1{i}", 100 + i));
        bridge.set(POD, "very bad", (0..10).map(bad).collect());
        assert!(timeout(DEADLINE, bridge.barrier()).await.unwrap().is_err());
        // While they are tried again they are not refused.
        eventually("all ten are refused", || bridge.state().borrow().refused.len() == 10).await;
        bridge.remove(POD, "very bad");
        barrier(&bridge).await;
        eventually("none is refused", || bridge.state().borrow().refused.is_empty()).await;
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_new_layout_comes_in_one_bundle() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        ofctl(&ovs, "add-flow", "table=1,priority=1,ip,actions=drop");
        let mut config = mk_config(&ovs);
        config.sync_mode = SyncMode::ReplaceLayout;
        let bridge = Bridge::start(config);
        bridge.set(POD, "p", vec![mk_flow(POD, "table=2,priority=1,ip,actions=drop")]);
        let mut state_rx = bridge.state();
        timeout(DEADLINE, state_rx.wait_for(|state| state.dumped)).await.unwrap().unwrap();
        assert_eq!(flows(&ovs), ["table=1, priority=1,ip actions=drop"]);
        bridge.synced(POD);
        barrier(&bridge).await;
        assert_eq!(flows(&ovs), ["table=2, priority=1,ip actions=drop"]);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn learned_flows_stay_and_timed_flows_expire() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mut config = mk_config(&ovs);
        config.repair_interval = Duration::from_millis(200);
        let bridge = Bridge::start(config);
        let learn = "priority=5,arp,actions=learn(table=8,priority=3,cookie=0xa17e030000000001,\
                     eth_type=0x0806,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),NORMAL";
        bridge.set(POD, "learn", vec![mk_flow(POD, learn)]);
        bridge.set(
            POD,
            "timed",
            vec![mk_flow(POD, "table=6,priority=1,hard_timeout=1,send_flow_rem,ip,actions=drop")],
        );
        bridge.synced(POD);
        barrier(&bridge).await;
        wait_first_sync(&bridge).await;
        ofctl(
            &ovs,
            "add-flow",
            "table=8,priority=3,cookie=0xa17e030000000001,arp,dl_dst=02:00:00:00:00:01,actions=LOCAL",
        );
        ofctl(&ovs, "add-flow", "table=8,priority=4,cookie=0x77,arp,actions=LOCAL");
        eventually("the foreign flow is gone", || {
            !flows(&ovs).iter().any(|flow| flow.contains("priority=4"))
        })
        .await;
        eventually("the timed flow expired", || {
            !flows(&ovs).iter().any(|flow| flow.contains("table=6"))
        })
        .await;
        let learned = flows(&ovs).iter().filter(|flow| flow.starts_with("table=8")).count();
        assert_eq!(learned, 1, "{:?}", flows(&ovs));
        bridge.remove(POD, "learn");
        eventually("an orphan of learning goes", || flows(&ovs).is_empty()).await;
    });
}

#[test]
#[ignore = "needs root: make test"]
fn two_keys_that_want_the_same_flow() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let bridge = Bridge::start(mk_config(&ovs));
        bridge.set(POD, "first", vec![mk_flow(POD, "priority=1,ip,actions=drop")]);
        bridge.set(POLICY, "second", vec![mk_flow(POLICY, "priority=1,ip,actions=NORMAL")]);
        assert!(bridge.barrier_for(POD, "first").await.is_ok());
        let error = bridge.barrier_for(POLICY, "second").await.unwrap_err();
        let BarrierError::Refused(refusals) = error else { panic!("{error}") };
        assert!(
            matches!(&refusals[0].reason, RefusalReason::Conflict { key, .. } if &**key == "first")
        );
        assert_eq!(flows(&ovs), ["priority=1,ip actions=drop"]);
        bridge.remove(POD, "first");
        barrier(&bridge).await;
        assert_eq!(flows(&ovs), ["priority=1,ip actions=NORMAL"]);
        assert!(bridge.state().borrow().refused.is_empty());
    });
}

#[test]
#[ignore = "needs root: make test"]
fn what_the_switch_holds_of_a_key_is_read_from_it() {
    with_ovs(async |mut ovs| {
        let _session = mk_bridge(&ovs).await;
        let mut config = mk_config(&ovs);
        // Nobody puts back what is taken away.
        config.repair_interval = Duration::from_secs(3600);
        let bridge = Bridge::start(config);
        let one = ["priority=1,ip,actions=NORMAL", "table=3,priority=2,arp,actions=drop"];
        bridge.set(POD, "one", one.iter().map(|text| mk_flow(POD, text)).collect());
        bridge.set(POD, "two", vec![mk_flow(POD, "priority=9,ip,actions=drop")]);
        barrier(&bridge).await;
        let held = async || -> Vec<String> {
            let mut held = bridge.flows_of(POD, "one").await.unwrap();
            held.sort_by_key(|flow| flow.table);
            held.into_iter().map(|flow| format!("{} {}", flow.table, flow.priority)).collect()
        };
        assert_eq!(held().await, ["0 1", "3 2"]);
        // With whatever cookie we give it, a flow of the same match counts; taken away it does not.
        ofctl(&ovs, "add-flow", "table=3,priority=2,cookie=0xa17e010000000007,arp,actions=LOCAL");
        assert_eq!(held().await, ["0 1", "3 2"]);
        ofctl(&ovs, "del-flows", "ip");
        let gone = async || held().await == ["3 2"];
        assert!(gone().await, "{:?}", held().await);
        assert!(bridge.flows_of(POD, "never set").await.unwrap().is_empty());
        // All of an owner, wanted or not; and several keys at once.
        ofctl(&ovs, "add-flow", "table=5,priority=7,cookie=0xa17e010000000009,arp,actions=LOCAL");
        ofctl(&ovs, "add-flow", "table=5,priority=8,cookie=0xa17e020000000009,arp,actions=LOCAL");
        assert_eq!(bridge.flows_on_switch(POD).await.unwrap().len(), 2);
        let third = vec![mk_flow(POD, "table=4,priority=3,arp,actions=drop")];
        bridge.set_all(POD, [("one".to_owned(), Vec::new()), ("three".to_owned(), third)]);
        barrier(&bridge).await;
        assert_eq!(bridge.flows_on_switch(POD).await.unwrap().len(), 2);
        ovs.kill_vswitchd();
        let mut state_rx = bridge.state();
        timeout(DEADLINE, state_rx.wait_for(|state| !state.connected)).await.unwrap().unwrap();
        assert!(matches!(bridge.flows_of(POD, "one").await, Err(ReadError::NotConnected)));
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_switch_that_stands_still_is_told_from_one_that_answers() {
    with_ovs(async |mut ovs| {
        let _session = mk_bridge(&ovs).await;
        let bridge = Bridge::start(mk_config(&ovs));
        wait_until_state(&bridge, |state| state.is_reachable()).await;
        assert_eq!(bridge.state().borrow().n_connections, 1);
        let pid = ovs.vswitchd_pid().unwrap();
        sh(&format!("kill -STOP {pid}"));
        let stopped = tokio::time::Instant::now();
        wait_until_state(&bridge, |state| !state.is_reachable()).await;
        assert!(stopped.elapsed() < Duration::from_secs(5), "{:?}", stopped.elapsed());
        sh(&format!("kill -CONT {pid}"));
        wait_until_state(&bridge, |state| state.is_reachable()).await;
        assert_eq!(bridge.state().borrow().n_connections, 1, "the connection stayed");
        ovs.kill_vswitchd();
        ovs.restart_vswitchd();
        wait_until_state(&bridge, |state| state.n_connections == 2 && state.is_reachable()).await;
    });
}

#[test]
#[ignore = "needs root: make test"]
fn packets_come_to_their_controller_id_with_userdata() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mut config = mk_config(&ovs);
        config.controller_id = Some(5);
        let bridge = Bridge::start(config);
        let mut packet_rx = bridge.packet_ins();
        let controller =
            Controller { controller_id: 5, userdata: vec![1, 2, 3], ..Controller::default() };
        let flow = Flow::new(TableId(0), 1, Match::new().with(Field::EthType, 0x88b5))
            .cookie(cookie(POD, 9))
            .action(Action::Controller(Box::new(controller)));
        bridge.set(POD, "punt", vec![Intent::Flow(flow)]);
        barrier(&bridge).await;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
        frame.resize(64, 7);
        // The packet connection comes up by itself, perhaps after the first packet went by.
        let packet = loop {
            let out = vec![Action::Output(OfPort::TABLE)];
            bridge.packet_out(PacketOut::new(OfPort::LOCAL, frame.clone(), out)).await.unwrap();
            if let Ok(packet) = timeout(Duration::from_millis(500), packet_rx.recv()).await {
                break packet.unwrap();
            }
        };
        assert_eq!(&packet.userdata[..], [1, 2, 3]);
        assert_eq!(&packet.data[..], frame);
        assert_eq!(packet.in_port(), Some(OfPort::LOCAL));
        assert_eq!(packet.cookie, cookie(POD, 9));
        assert!(
            matches!(packet.reason, PacketInReason::Action | PacketInReason::NoMatch),
            "{:?}",
            packet.reason
        );

        // A paused packet goes on where it was; kinds of packets come apart.
        let mut after_rx = bridge.packet_ins_of(9);
        let to_us = |kind: u8, pause| {
            let userdata = vec![kind];
            Action::controller(Controller {
                controller_id: 5,
                userdata,
                pause,
                ..Controller::default()
            })
        };
        let flows = [
            Flow::new(TableId(0), 2, Match::new().with(Field::EthType, 0x88b5))
                .cookie(cookie(POD, 9))
                .actions([to_us(8, true), Action::GotoTable(TableId(1))]),
            Flow::new(TableId(1), 1, Match::new()).cookie(cookie(POD, 9)).action(to_us(9, false)),
        ];
        bridge.set(POD, "pause", flows.map(Intent::Flow).to_vec());
        barrier(&bridge).await;
        let out = vec![Action::Output(OfPort::TABLE)];
        bridge.packet_out(PacketOut::new(OfPort::LOCAL, frame.clone(), out)).await.unwrap();
        let paused = loop {
            let packet = timeout(Duration::from_secs(30), packet_rx.recv()).await.unwrap().unwrap();
            if packet.userdata[..] == [8] {
                break packet;
            }
        };
        assert!(paused.continuation.is_some() && after_rx.try_recv().is_err());
        bridge.resume(paused).await.unwrap();
        let after = timeout(Duration::from_secs(30), after_rx.recv()).await.unwrap().unwrap();
        assert_eq!((&after.data[..], after.table), (&frame[..], TableId(1)));
    });
}
