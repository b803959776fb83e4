//! The bridge reconciler while real packets go through the bridge.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::dump::held;
use common::pods::{Pod, Traffic, mk_pod};
use common::{BRIDGE, eventually, mk_bridge, with_ovs};
use openflow::{Cookie, Flow, Intent};
use switch::bridge::{Bridge, BridgeConfig, Owner};
use testkit::ovs::Ovs;
use tokio::time::timeout;

const MARKER: u16 = 0xa17e;
const POD: Owner = Owner(1);
const POLICY: Owner = Owner(2);

fn mk_flow(owner: Owner, text: &str) -> Intent {
    let flow: Flow = text.parse().unwrap();
    Intent::Flow(flow.cookie(Cookie(u64::from(MARKER) << 48 | u64::from(owner.0) << 40 | 1)))
}

fn ofctl(ovs: &Ovs, command: &str, arg: &str) {
    ovs.ofctl(&[command, &ovs.mgmt(BRIDGE).display().to_string(), arg]);
}

/// A bridge with the usual timing that carries packets between two Pods, and has other flows too.
async fn mk_carrying_bridge(ovs: &Ovs, one: &Pod, two: &Pod) -> Bridge {
    let mut config = BridgeConfig::new(ovs.mgmt(BRIDGE), MARKER);
    config.owners = vec![POD, POLICY];
    let bridge = Bridge::start(config);
    let (one, two) = (one.ofport.0, two.ofport.0);
    bridge.set(
        POD,
        "pods",
        vec![
            mk_flow(POD, &format!("priority=200,in_port={one},ip,actions=resubmit(,10)")),
            mk_flow(POD, &format!("table=10,priority=100,ip,nw_dst=10.9.0.2,actions={two}")),
        ],
    );
    let other = |i: u32| {
        mk_flow(POLICY, &format!("table=20,priority={},ip,nw_src=10.8.0.0/16,actions=drop", i + 1))
    };
    bridge.set(POLICY, "other", (0..500).map(other).collect());
    bridge.synced(POD);
    bridge.synced(POLICY);
    timeout(common::DEADLINE, bridge.barrier()).await.unwrap().unwrap();
    bridge
}

#[test]
#[ignore = "needs root: make test"]
fn hand_made_changes_are_repaired_under_traffic() {
    with_ovs(async |ovs| {
        let session = mk_bridge(&ovs).await;
        let (one, two) = (mk_pod(&session, 1, 2).await, mk_pod(&session, 2, 1).await);
        let _bridge = mk_carrying_bridge(&ovs, &one, &two).await;
        let mgmt = ovs.mgmt(BRIDGE);
        let want = held(&mgmt).await;
        assert_eq!(want.flows.len(), 502);
        let repaired = async |what: &str| {
            let begun = Instant::now();
            while held(&mgmt).await != want {
                assert!(begun.elapsed() < Duration::from_secs(10), "{what}: not repaired in 10 s");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            begun.elapsed()
        };
        let traffic = Traffic::start(&one, &two, Duration::from_millis(4));
        traffic.wait_flowing(common::DEADLINE);

        // What the packets do not meet: foreign flows, deleted and changed ones of ours, in the
        // tables they go through too.
        let begin = traffic.now();
        ofctl(&ovs, "add-flow", "table=10,priority=300,udp,tp_dst=9999,actions=drop");
        ofctl(&ovs, "add-flow", "table=0,priority=300,arp,actions=NORMAL");
        ofctl(&ovs, "add-flow", "table=20,priority=1000,udp,actions=drop");
        ofctl(&ovs, "mod-flows", "table=20,ip,nw_src=10.8.0.0/16,actions=NORMAL");
        for priority in [7, 8, 9] {
            let flow = format!("table=20,priority={priority},ip,nw_src=10.8.0.0/16");
            ovs.ofctl(&["--strict", "del-flows", &mgmt.display().to_string(), &flow]);
        }
        let took = repaired("flows beside the packets' way").await;
        let n_packets = traffic.now() - begin;
        let n_lost = traffic.n_lost(begin);
        eprintln!("unrelated: repaired after {took:?}, {n_lost} of {n_packets} packets lost");
        assert_eq!(n_lost, 0, "of {n_packets}");

        // What the packets do meet.
        let begin = traffic.now();
        ofctl(&ovs, "add-flow", "table=0,priority=300,ip,actions=drop");
        ofctl(&ovs, "del-flows", "table=10");
        let took = repaired("the packets' way").await;
        traffic.wait_flowing(Duration::from_secs(1));
        let n_lost = traffic.n_lost(begin);
        eprintln!("related: repaired after {took:?}, {n_lost} packets lost");
        assert!(n_lost > 0, "the damage was real");
        let after = traffic.now();
        traffic.wait_flowing(Duration::from_secs(1));
        assert_eq!(traffic.n_lost(after), 0);
    });
}

#[test]
#[ignore = "needs root: make test"]
fn after_a_change_nothing_cached_is_left() {
    with_ovs(async |ovs| {
        // Nothing goes by itself.
        ovs.vsctl(&["set", "Open_vSwitch", ".", "other_config:max-idle=3600000"]);
        let session = mk_bridge(&ovs).await;
        let (one, two) = (mk_pod(&session, 1, 2).await, mk_pod(&session, 2, 1).await);
        let mut config = BridgeConfig::new(ovs.mgmt(BRIDGE), MARKER);
        config.userspace_run_dir = Some(ovs.dir().to_owned());
        let bridge = Bridge::start(config);
        let barrier = async || timeout(common::DEADLINE, bridge.barrier()).await.unwrap().unwrap();
        let way = |priority: u16| {
            let (one, two) = (one.ofport.0, two.ofport.0);
            mk_flow(POD, &format!("priority={priority},in_port={one},ip,actions={two}"))
        };
        let n_cached = || {
            let flows = ovs.appctl(&["dpctl/dump-flows"]);
            flows.lines().filter(|line| line.contains("ipv4")).count()
        };
        for priority in [100, 200, 300] {
            bridge.set(POD, "way", vec![way(priority)]);
            barrier().await;
            let traffic = Traffic::start(&one, &two, Duration::from_millis(4));
            traffic.wait_flowing(common::DEADLINE);
            eventually("the way is cached", || n_cached() > 0).await;
            drop(traffic);
            // What has nothing to do with it.
            bridge.set(
                POLICY,
                "other",
                vec![mk_flow(
                    POLICY,
                    &format!("table=20,priority={priority},ip,nw_src=10.8.0.0/16,actions=drop"),
                )],
            );
            barrier().await;
            eventually("nothing is cached", || n_cached() == 0).await;
        }
    });
}

/// Frames from a Pod that all go to the controller, this many a second, until this is dropped.
struct Storm {
    stop: Arc<AtomicBool>,
    n_sent: Arc<AtomicU64>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Storm {
    fn start(from: &Pod, per_second: u64) -> Self {
        const BURST: u64 = 25;
        let socket = from.netns.run(|| UdpSocket::bind("10.9.0.3:5000").unwrap());
        let (stop, n_sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (stop, n_sent) = (Arc::clone(&stop), Arc::clone(&n_sent));
            move || {
                let begun = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..BURST {
                        socket.send_to(&[7; 100], "10.9.0.1:6000").unwrap();
                    }
                    let sent = n_sent.fetch_add(BURST, Ordering::Relaxed) + BURST;
                    let due =
                        begun + Duration::from_secs(sent) / u32::try_from(per_second).unwrap();
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            }
        });
        Self { stop, n_sent, thread: Some(thread) }
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that failed said so.
            let _ = thread.join();
        }
    }
}

/// Sorted times from setting a flow until it is on the switch.
async fn set_times(bridge: &Bridge, n: u32) -> Vec<Duration> {
    let mut times = Vec::new();
    for i in 0..n {
        let begun = Instant::now();
        let flow = mk_flow(POD, &format!("table=30,priority={},ip,actions=drop", i % 100 + 1));
        bridge.set(POD, "one flow", vec![flow]);
        timeout(common::DEADLINE, bridge.barrier()).await.unwrap().unwrap();
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times
}

#[test]
#[ignore = "needs root: make test"]
fn a_storm_of_packets_delays_no_flow() {
    with_ovs(async |ovs| {
        const PER_SECOND: u64 = 5000;
        const N: u32 = 1000;
        let session = mk_bridge(&ovs).await;
        let (one, two) = (mk_pod(&session, 1, 2).await, mk_pod(&session, 2, 1).await);
        let hostile = mk_pod(&session, 3, 1).await;
        let bridge = mk_carrying_bridge(&ovs, &one, &two).await;
        let punt = format!("priority=100,in_port={},ip,actions=controller(id=1)", hostile.ofport.0);
        bridge.set(POD, "punt", vec![mk_flow(POD, &punt)]);
        // Nobody takes packets out of this one.
        let _packet_rx = bridge.packet_ins();
        let quiet = set_times(&bridge, N).await;

        let storm = Storm::start(&hostile, PER_SECOND);
        eventually("the storm is here", || bridge.packet_counts().n_dropped > 0).await;
        let (begun, sent_before) = (Instant::now(), storm.n_sent.load(Ordering::Relaxed));
        let received_before = bridge.packet_counts().n_received;
        let mut stormy = set_times(&bridge, N).await;
        // The storm is as strong as it should be over a time long enough to tell.
        while begun.elapsed() < Duration::from_secs(2) {
            stormy.extend(set_times(&bridge, 50).await);
        }
        stormy.sort_unstable();
        let seconds = begun.elapsed().as_secs_f64();
        let rate = |n: u64| n as f64 / seconds;
        let offered = rate(storm.n_sent.load(Ordering::Relaxed) - sent_before);
        let counts = bridge.packet_counts();
        let received = rate(counts.n_received - received_before);
        drop(storm);

        let at = |times: &[Duration], percent: usize| times[times.len() * percent / 100];
        let (quiet50, quiet99) = (at(&quiet, 50), at(&quiet, 99));
        let (stormy50, stormy99) = (at(&stormy, 50), at(&stormy, 99));
        eprintln!(
            "set + barrier: quiet {quiet50:?}, p99 {quiet99:?}; under a storm of {offered:.0}/s \
             ({received:.0}/s arrive) {stormy50:?}, p99 {stormy99:?}; {counts:?}"
        );
        assert!(offered > 4000.0, "{offered} frames a second");
        assert!(received > 500.0, "{received} packets a second");
        assert!(counts.n_dropped > 0 && counts.n_dropped < counts.n_received);
        assert!(stormy50 < quiet50 * 5 + Duration::from_millis(50));
        assert!(stormy99 < quiet99 * 5 + Duration::from_millis(100));
        assert!(bridge.state().borrow().is_reachable());
        assert_eq!(bridge.state().borrow().n_connections, 1);
    });
}
