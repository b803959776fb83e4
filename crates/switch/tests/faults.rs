//! The bridge reconciler while single messages between it and a real switch are late, cut or lost.
#![allow(clippy::unwrap_used, reason = "a test stops where something is not as expected")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::dump::{Held, held};
use common::{mk_bridge, with_ovs};
use openflow::message::PacketOut;
use openflow::{Action, Cookie, Flow, Group, GroupId, Intent, Meter, MeterId, OfPort};
use switch::bridge::{BarrierError, Bridge, BridgeConfig, ChannelTiming, Owner};
use switch::ovsdb_session::{BridgeSpec, OvsdbSession};
use testkit::fault_proxy::{Direction, Fault, FaultKind, FaultProxy, Protocol, Seen, Which};
use testkit::ovs::Ovs;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

const MARKER: u16 = 0xa17e;
const POD: Owner = Owner(1);
const POLICY: Owner = Owner(2);
/// Bridges that are tried at the same time.
const N_BRIDGES: usize = 4;
/// How long anything may take after a fault, on a machine with other things to do.
const BOUND: Duration = Duration::from_secs(5);
/// More than the connection's patience with a single probe.
const DELAY: Duration = Duration::from_millis(120);

const KINDS: [FaultKind; 5] = FaultKind::each(DELAY);

fn mk_flow(owner: Owner, text: &str) -> Intent {
    let flow: Flow = text.parse().unwrap();
    Intent::Flow(flow.cookie(Cookie(u64::from(MARKER) << 48 | u64::from(owner.0) << 40 | 1)))
}

fn mk_config(mgmt: &Path) -> BridgeConfig {
    let mut config = BridgeConfig::new(mgmt, MARKER);
    config.owners = vec![POD, POLICY];
    config.controller_id = None;
    config.repair_interval = Duration::from_millis(200);
    config.retry_interval = Duration::from_millis(100);
    config.timing = ChannelTiming {
        setup_deadline: Duration::from_millis(500),
        probe_interval: Duration::from_millis(50),
        max_probes: 40,
    };
    config
}

fn mk_group(id: u32, n_buckets: u16) -> Intent {
    let buckets = 0..n_buckets;
    Intent::Group(buckets.fold(Group::select(GroupId(id)), |group, n| {
        group.bucket(10 + n, vec![Action::Output(OfPort::LOCAL)])
    }))
}

/// What an owner wants under a key at one stage of the session.
struct Wish {
    owner: Owner,
    key: &'static str,
    intents: Vec<Intent>,
}

fn wish(owner: Owner, key: &'static str, intents: Vec<Intent>) -> Wish {
    Wish { owner, key, intents }
}

/// The stages of a session. Each changes, adds and deletes flows, groups and meters of the one
/// before it; an empty wish removes its key. What the last one leaves is what the next session
/// finds.
fn stages() -> Vec<Vec<Wish>> {
    let pods = |range: std::ops::Range<u32>, actions: &str| -> Vec<Intent> {
        let flow = |i| mk_flow(POD, &format!("table=3,priority={i},ip,actions={actions}"));
        range.map(flow).collect()
    };
    let policies = |range: std::ops::Range<u32>| -> Vec<Intent> {
        let flow = |i: u32| {
            let rest = format!("ip,nw_src=10.0.{i}.0/24,actions=conjunction({i},1/2)");
            mk_flow(POLICY, &format!("table=5,priority=9,{rest}"))
        };
        range.map(flow).collect()
    };
    let metered = |id: u32, rate| {
        vec![
            Intent::Meter(Meter::packets_per_second(MeterId(id), rate, 10)),
            mk_flow(POD, &format!("table=7,priority={id},udp,actions=meter:{id},LOCAL")),
        ]
    };
    let grouped = |id: u32, n_buckets| {
        vec![
            mk_group(id, n_buckets),
            mk_flow(POD, &format!("table=8,priority={id},tcp,actions=group:{id}")),
        ]
    };
    let first = vec![
        wish(POD, "pods", pods(1..40, "drop")),
        wish(POD, "meter 3", metered(3, 100)),
        wish(POD, "meter 4", metered(4, 100)),
        wish(POD, "group 7", grouped(7, 1)),
        wish(POD, "group 8", grouped(8, 2)),
        wish(POLICY, "x", policies(0..30)),
    ];
    let second = vec![
        wish(POD, "pods", [pods(1..30, "drop"), pods(35..55, "NORMAL")].concat()),
        wish(POD, "meter 3", metered(3, 200)),
        wish(POD, "meter 4", vec![]),
        wish(POD, "group 7", grouped(7, 3)),
        wish(POD, "group 8", vec![]),
        wish(POD, "bad", vec![mk_flow(POD, "table=9,priority=1,arp,actions=group:99")]),
        wish(POLICY, "x", policies(20..40)),
    ];
    let third = vec![
        wish(POD, "bad", vec![]),
        wish(POLICY, "x", vec![]),
        wish(POLICY, "y", policies(30..45)),
    ];
    vec![first, second, third]
}

/// What is wanted after the last stage.
fn wanted() -> Held {
    let mut wishes = BTreeMap::new();
    for wish in stages().into_iter().flatten() {
        wishes.insert((wish.owner, wish.key), wish.intents);
    }
    let mut want = Held::default();
    for intent in wishes.into_values().flatten() {
        match intent {
            Intent::Flow(flow) => want.flows.push(flow.to_string()),
            Intent::Group(group) => want.groups.push(group.normalize().to_string()),
            Intent::Meter(meter) => want.meters.push(meter.to_string()),
        }
    }
    want.sorted()
}

/// What a session showed.
struct Outcome {
    seen: Vec<Seen>,
    /// The longest wait at a barrier.
    slowest: Duration,
    n_connections: u64,
}

/// A whole session with the bridge through a proxy: what an earlier one left is taken over, then
/// changed twice. Ends when the switch holds exactly what is wanted.
async fn session(mgmt: PathBuf, fault: Option<Fault>) -> Outcome {
    let what = fault.as_ref().map_or_else(|| "no fault".to_owned(), ToString::to_string);
    let proxy = FaultProxy::start(Protocol::OpenFlow, &mgmt);
    if let Some(fault) = fault {
        proxy.arm(fault);
    }
    let bridge = Bridge::start(mk_config(&proxy.socket()));
    let mut slowest = Duration::ZERO;
    for stage in stages() {
        for Wish { owner, key, intents } in stage {
            if intents.is_empty() {
                bridge.remove(owner, key);
            } else {
                bridge.set(owner, key, intents);
            }
        }
        bridge.synced(POD);
        bridge.synced(POLICY);
        let begun = Instant::now();
        let reached = timeout(BOUND, bridge.barrier()).await;
        let reached = reached.unwrap_or_else(|_| panic!("{what}: no answer at the barrier"));
        assert!(matches!(reached, Ok(()) | Err(BarrierError::Refused(_))), "{what}: {reached:?}");
        slowest = slowest.max(begun.elapsed());
    }
    let (want, end) = (wanted(), Instant::now() + BOUND);
    loop {
        let have = held(&mgmt).await;
        let state = bridge.state().borrow().clone();
        let is_settled = state.n_pending == 0 && state.n_unclaimed == 0 && state.refused.is_empty();
        if have == want && is_settled && is_no_bundle_open(&proxy.seen()) {
            assert_eq!((state.n_groups, state.n_meters), (want.groups.len(), want.meters.len()));
            break;
        }
        let difference = have.difference(&want);
        assert!(Instant::now() < end, "{what}: {state:?}\n{difference}\n{}", trail(&proxy.seen()));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Outcome { seen: proxy.seen(), slowest, n_connections: bridge.state().borrow().n_connections }
}

/// The last messages, for whoever looks for what went wrong.
fn trail(seen: &[Seen]) -> String {
    let line = |seen: &Seen| {
        let Seen { connection, direction, name, fault } = seen;
        format!("{connection} {direction:?} {name} {fault:?}\n")
    };
    seen.iter().rev().take(40).rev().map(line).collect()
}

/// Whether on the last connection as many bundles were committed as were opened. Those of former
/// connections ended with them.
fn is_no_bundle_open(seen: &[Seen]) -> bool {
    let Some(last) = seen.iter().map(|seen| seen.connection).max() else { return true };
    let arrived = |name: &str| {
        let to_switch = seen.iter().filter(|s| s.direction == Direction::ToServer);
        let here = to_switch.filter(|s| s.connection == last && s.name == name);
        here.filter(|s| s.fault != Some(FaultKind::Swallow)).count()
    };
    arrived("33.0") <= arrived("33.4")
}

/// Makes the bridges.
async fn mk_bridges(ovs: &Ovs) -> (OvsdbSession, Vec<PathBuf>) {
    let session = mk_bridge(ovs).await;
    let mut all = Vec::new();
    for n in 0..N_BRIDGES {
        let name = format!("br-{n}");
        session.ensure_bridge(BridgeSpec::secure(&name, "netdev")).await.unwrap();
        session.wait_ofport(&name, common::DEADLINE).await.unwrap();
        all.push(ovs.mgmt(&name));
    }
    (session, all)
}

fn n_messages(seen: &[Seen], direction: Direction) -> usize {
    seen.iter().filter(|seen| seen.direction == direction).count()
}

#[test]
#[ignore = "needs root: make test"]
fn whatever_message_is_spoilt_switch_and_wishes_meet_again() {
    with_ovs(async |ovs| {
        let (_session, bridges) = mk_bridges(&ovs).await;
        for mgmt in &bridges {
            session(mgmt.clone(), None).await;
        }
        // The second ones find what the first ones left, and run side by side, as all others do:
        // what comes together then goes in fewer messages.
        let mut plain = JoinSet::new();
        for mgmt in &bridges {
            plain.spawn(session(mgmt.clone(), None));
        }
        let plain = plain.join_all().await;
        assert!(plain.iter().all(|outcome| outcome.n_connections == 1));
        let mut faults = Vec::new();
        for direction in [Direction::ToServer, Direction::ToClient] {
            let counts = plain.iter().map(|outcome| n_messages(&outcome.seen, direction));
            let n = counts.min().unwrap_or_default();
            assert!(n > 10, "{n} {direction:?}");
            faults.extend((0..n).flat_map(|n| KINDS.map(|kind| Fault::nth(direction, n, kind))));
        }
        // The texts are those of ovs-ofctl.
        let outside: BTreeSet<String> = ovs.flows("br-0").into_iter().collect();
        let want: BTreeSet<String> = wanted().flows.into_iter().collect();
        assert_eq!(outside, want);

        let n_faults = faults.len();
        let (faults, next) = (Arc::new(faults), Arc::new(AtomicUsize::new(0)));
        let begun = Instant::now();
        let mut tasks = JoinSet::new();
        for mgmt in bridges {
            let (faults, next) = (Arc::clone(&faults), Arc::clone(&next));
            tasks.spawn(async move {
                let mut struck: BTreeMap<String, usize> = BTreeMap::new();
                let mut slowest = Duration::ZERO;
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = session(mgmt.clone(), Some(fault.clone())).await;
                    if outcome.seen.iter().any(|seen| seen.fault.is_some()) {
                        *struck.entry(format!("{:?}", fault.kind)).or_default() += 1;
                    }
                    slowest = slowest.max(outcome.slowest);
                }
                (struck, slowest)
            });
        }
        let mut struck: BTreeMap<String, usize> = BTreeMap::new();
        let mut slowest = Duration::ZERO;
        while let Some(done) = tasks.join_next().await {
            let (part, part_slowest) = done.unwrap();
            for (kind, n) in part {
                *struck.entry(kind).or_default() += n;
            }
            slowest = slowest.max(part_slowest);
        }
        let elapsed = begun.elapsed();
        eprintln!(
            "{n_faults} faults in {elapsed:?}, struck {struck:?}, slowest barrier {slowest:?}"
        );
        let n_struck: usize = struck.values().sum();
        // A message more or less is sent when the machine is busy.
        assert!(n_struck * 100 >= n_faults * 95, "{n_struck} of {n_faults}");
        assert_eq!(struck.len(), KINDS.len(), "{struck:?}");
    });
}

#[test]
#[ignore = "needs root: make test"]
fn what_is_deleted_while_its_reply_is_lost_leaves_nothing() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mgmt = ovs.mgmt(common::BRIDGE);
        let victim = || {
            let mut stage = stages().remove(0);
            stage.retain(|wish| wish.owner == POD);
            stage.into_iter().flat_map(|wish| wish.intents).collect::<Vec<_>>()
        };
        let mut n_faults = 0;
        // Requests and replies that commit a bundle, and the barriers behind them.
        for (direction, name) in [
            (Direction::ToServer, "33.4"),
            (Direction::ToServer, "20"),
            (Direction::ToClient, "33.5"),
            (Direction::ToClient, "21"),
        ] {
            for kind in KINDS {
                let proxy = FaultProxy::start(Protocol::OpenFlow, &mgmt);
                let bridge = Bridge::start(mk_config(&proxy.socket()));
                bridge.set(POLICY, "stays", vec![mk_flow(POLICY, "priority=1,ip,actions=drop")]);
                bridge.synced(POD);
                bridge.synced(POLICY);
                timeout(BOUND, bridge.barrier()).await.unwrap().unwrap();
                let before = held(&mgmt).await;
                assert_eq!(before.flows.len(), 1);

                let fault = Fault { direction, which: Which::NthNamed(name.to_owned(), 0), kind };
                let what = fault.to_string();
                proxy.arm(fault);
                bridge.set(POD, "victim", victim());
                common::eventually(&what, || proxy.has_struck()).await;
                bridge.remove(POD, "victim");
                let reached = timeout(BOUND, bridge.barrier()).await;
                assert_eq!(reached.unwrap_or_else(|_| panic!("{what}: no answer")), Ok(()));
                assert_eq!(held(&mgmt).await, before, "{what}");
                // Nor does anything come back.
                bridge.set(POD, "victim", victim());
                timeout(BOUND, bridge.barrier()).await.unwrap().unwrap();
                assert_eq!(held(&mgmt).await.meters.len(), 2, "{what}");
                bridge.remove(POD, "victim");
                timeout(BOUND, bridge.barrier()).await.unwrap().unwrap();
                assert_eq!(held(&mgmt).await, before, "{what}");
                n_faults += 1;
            }
        }
        assert_eq!(n_faults, 4 * KINDS.len());
    });
}

#[test]
#[ignore = "needs root: make test"]
fn a_spoilt_part_of_a_long_dump_leaves_nothing_behind() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mgmt = ovs.mgmt(common::BRIDGE);
        let leftovers = ovs.dir().join("leftovers");
        let foreign = |i: u32| format!("table=2,priority={i},ip,nw_src=10.0.0.1,actions=drop\n");
        std::fs::write(&leftovers, (1..2000).map(foreign).collect::<String>()).unwrap();
        let ours = |i: u32| mk_flow(POD, &format!("table=3,priority={i},ip,actions=drop"));
        let ours: Vec<Intent> = (1..1000).map(ours).collect();
        let parts = |seen: &[Seen]| {
            let is_part = |s: &&Seen| s.direction == Direction::ToClient && s.name == "19";
            seen.iter().filter(is_part).count()
        };
        let (mut n, mut n_parts) = (0, usize::MAX);
        while n < n_parts {
            for kind in [FaultKind::Swallow, FaultKind::CutAfter] {
                let (arg, file) = (mgmt.display().to_string(), leftovers.display().to_string());
                ovs.ofctl(&["--bundle", "add-flows", &arg, &file]);
                let proxy = FaultProxy::start(Protocol::OpenFlow, &mgmt);
                let which = Which::NthNamed("19".to_owned(), n);
                let fault = Fault { direction: Direction::ToClient, which, kind };
                let what = fault.to_string();
                proxy.arm(fault);
                let bridge = Bridge::start(mk_config(&proxy.socket()));
                bridge.set(POD, "ours", ours.clone());
                bridge.synced(POD);
                bridge.synced(POLICY);
                let reached = timeout(BOUND, bridge.barrier()).await;
                assert_eq!(reached.unwrap_or_else(|_| panic!("{what}: no answer")), Ok(()));
                let end = Instant::now() + BOUND;
                loop {
                    let n_held = held(&mgmt).await.flows.len();
                    let believed: u32 = bridge.state().borrow().flows.values().sum();
                    if (n_held, believed) == (999, 999) {
                        break;
                    }
                    assert!(Instant::now() < end, "{what}: {n_held}, {believed} believed");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if n == 0 && kind == FaultKind::Swallow {
                    // As many as one look at flows, groups and meters takes.
                    n_parts = parts(&proxy.seen()).min(5);
                    assert!(n_parts > 3, "{n_parts}");
                }
            }
            n += 1;
        }
        eprintln!("{n} parts");
    });
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(n).unwrap()).unwrap()
    }
}

/// Faults one after the other, whatever comes of the one before, while wishes change without
/// waiting for anything.
async fn unlucky_session(mgmt: PathBuf, seed: u64) -> usize {
    const N_CHANGES: usize = 30;
    let mut numbers = Numbers(seed);
    let proxy = FaultProxy::start(Protocol::OpenFlow, &mgmt);
    let bridge = Bridge::start(mk_config(&proxy.socket()));
    let mut n_struck = 0;
    for change in 0..N_CHANGES {
        let n = proxy.seen().iter().filter(|seen| seen.fault.is_some()).count();
        if n > n_struck || change == 0 {
            n_struck = n;
            let direction = [Direction::ToServer, Direction::ToClient][numbers.below(2)];
            proxy.arm(Fault::nth(direction, numbers.below(30), KINDS[numbers.below(KINDS.len())]));
        }
        // In any order, and back and forth.
        let stage = stages().swap_remove(numbers.below(3));
        for Wish { owner, key, intents } in stage {
            match numbers.below(3) {
                0 => bridge.remove(owner, key),
                _ => bridge.set(owner, key, intents),
            }
        }
        if change == N_CHANGES / 3 {
            bridge.synced(POD);
            bridge.synced(POLICY);
        }
        let pause = Duration::from_millis(u64::try_from(numbers.below(40)).unwrap());
        let _ = timeout(pause, bridge.barrier()).await;
    }
    for Wish { owner, key, intents } in stages().into_iter().flatten() {
        match intents.is_empty() {
            true => bridge.remove(owner, key),
            false => bridge.set(owner, key, intents),
        }
    }
    let reached = timeout(BOUND, bridge.barrier()).await;
    assert!(reached.is_ok(), "seed {seed}: no answer at the barrier");
    let (want, end) = (wanted(), Instant::now() + BOUND);
    loop {
        let have = held(&mgmt).await;
        if have == want && is_no_bundle_open(&proxy.seen()) {
            break;
        }
        let difference = have.difference(&want);
        assert!(Instant::now() < end, "seed {seed}: {difference}\n{}", trail(&proxy.seen()));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.seen().iter().filter(|seen| seen.fault.is_some()).count()
}

#[test]
#[ignore = "needs root: make test"]
fn however_many_messages_are_spoilt_switch_and_wishes_meet_again() {
    with_ovs(async |ovs| {
        const N_SEEDS: u64 = 60;
        let (_session, bridges) = mk_bridges(&ovs).await;
        let next = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for mgmt in bridges {
            let next = Arc::clone(&next);
            tasks.spawn(async move {
                let mut n_struck = 0;
                loop {
                    let seed = u64::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                    if seed >= N_SEEDS {
                        return n_struck;
                    }
                    n_struck += unlucky_session(mgmt.clone(), seed).await;
                }
            });
        }
        let n_struck: usize = tasks.join_all().await.into_iter().sum();
        eprintln!("{n_struck} faults in {N_SEEDS} sessions");
        assert!(n_struck > 100, "{n_struck}");
    });
}

/// A session of both connections: a flow sends packets to us, and we get one that we sent ourselves.
async fn packet_session(mgmt: PathBuf, fault: Option<Fault>) -> Vec<Seen> {
    let what = fault.as_ref().map_or_else(|| "no fault".to_owned(), ToString::to_string);
    let proxy = FaultProxy::start(Protocol::OpenFlow, &mgmt);
    if let Some(fault) = fault {
        proxy.arm(fault);
    }
    let mut config = mk_config(&proxy.socket());
    config.controller_id = Some(5);
    let bridge = Bridge::start(config);
    let mut packet_rx = bridge.packet_ins();
    let punt = "priority=1,dl_type=0x88b5,actions=controller(id=5,userdata=01)";
    bridge.set(POD, "punt", vec![mk_flow(POD, punt)]);
    bridge.synced(POD);
    bridge.synced(POLICY);
    timeout(BOUND, bridge.barrier()).await.unwrap_or_else(|_| panic!("{what}: barrier")).unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    frame.resize(64, 7);
    let end = Instant::now() + BOUND;
    loop {
        let packet =
            PacketOut::new(OfPort::LOCAL, frame.clone(), vec![Action::Output(OfPort::TABLE)]);
        // May fail while the connection is away, and be lost with it.
        let _ = bridge.packet_out(packet).await;
        if let Ok(packet) = timeout(Duration::from_millis(50), packet_rx.recv()).await {
            assert_eq!(&packet.unwrap().data[..], frame, "{what}");
            break;
        }
        assert!(Instant::now() < end, "{what}: no packet\n{}", trail(&proxy.seen()));
    }
    proxy.seen()
}

#[test]
#[ignore = "needs root: make test"]
fn packets_come_again_whatever_message_is_spoilt() {
    with_ovs(async |ovs| {
        let _session = mk_bridge(&ovs).await;
        let mgmt = ovs.mgmt(common::BRIDGE);
        packet_session(mgmt.clone(), None).await;
        let plain = packet_session(mgmt.clone(), None).await;
        let mut n_struck = 0;
        for direction in [Direction::ToServer, Direction::ToClient] {
            let n = n_messages(&plain, direction);
            assert!(n > 5, "{n} {direction:?}");
            for kind in KINDS {
                // The settings of this connection are not answered. One that is lost, which no
                // stream does, is not noticed: nothing in the session depends on it but packets.
                if kind == FaultKind::Swallow && direction == Direction::ToServer {
                    continue;
                }
                for n in 0..n {
                    let fault = Fault::nth(direction, n, kind);
                    let seen = packet_session(mgmt.clone(), Some(fault)).await;
                    n_struck += usize::from(seen.iter().any(|seen| seen.fault.is_some()));
                }
            }
        }
        eprintln!("{n_struck} faults");
        assert!(n_struck > 50, "{n_struck}");
    });
}
