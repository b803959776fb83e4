//! The whole way against the reference: random clusters, whose objects go through `translate`,
//! `realize` and `pipeline`, and whose flows are then asked about every pair of ends, must give the
//! answers that `verdict` reads straight from the objects.

mod cluster;
mod generate;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use apis::common::Protocol;
use openflow::OfPort;
use pipeline::Families;
use pipeline::policy::{Direction, HostMark, PolicyConfig};

use crate::dns::{Answer, Extent};
use crate::realize::tests::switch::{Fate, L4, Packet, Switch};
use crate::realize::{Asker, Config, Event, LocalPod, PodKey, Realizer};
use crate::translate::{Engine, ObjectId, ObjectKind};
use crate::verdict::{Action, Cluster, End, Traffic};
use cluster::{Pod, World};
use generate::{Coverage, Random};

/// The switches of all nodes.
struct Fleet {
    switches: BTreeMap<String, Switch>,
    ofports: BTreeMap<(String, String), OfPort>,
}

fn local_pods<'a>(world: &'a World, node: &str) -> Vec<(OfPort, &'a Pod)> {
    let here =
        world.pods.iter().filter(|pod| pod.node == node && !pod.host_network && !pod.finished);
    (10..).map(OfPort).zip(here).collect()
}

impl Fleet {
    fn new(world: &World, random: &mut Random) -> Self {
        let mut engine = Engine::default();
        let mut events = world.events();
        random.shuffle(&mut events);
        for event in events {
            engine.apply(event);
        }
        engine.take_changes();
        let mut fleet = Self { switches: BTreeMap::new(), ofports: BTreeMap::new() };
        for node in &world.nodes {
            let mut events = lists(&engine, &node.name);
            for (ofport, pod) in local_pods(world, &node.name) {
                let key = PodKey { namespace: pod.namespace.clone(), name: pod.name.clone() };
                fleet.ofports.insert((pod.namespace.clone(), pod.name.clone()), ofport);
                events.push(Event::PodUp(LocalPod { key, ofport, ips: pod.ips.clone() }));
            }
            random.shuffle(&mut events);
            let mut realizer = Realizer::new(Config::new(PolicyConfig {
                families: Families::Dual,
                controller_id: 1,
                packet_in_rate: None,
                host_mark: HostMark::GatewayAddress,
            }));
            let mut switch = Switch::default();
            switch.take(&realizer.step_all(Duration::ZERO, events));
            for (name, ip) in &world.names {
                let answer = Answer {
                    name: name.clone(),
                    asked: None,
                    addresses: vec![(*ip, 3600)],
                    extent: Extent::Whole,
                };
                let event = Event::NameLearned { answer, asker: Asker::Pod };
                switch.take(&realizer.step(Duration::ZERO, event));
            }
            fleet.switches.insert(node.name.clone(), switch);
        }
        fleet
    }

    /// What the flows say: out of the source's node, then into the destination's.
    fn action(&self, from: &Ends<'_>, to: &Ends<'_>, packet: Packet) -> Action {
        let mut fates = Vec::new();
        if let Ends::Pod(pod) = from
            && let Some(switch) = self.switches.get(&pod.node)
        {
            fates.push(switch.fate(Direction::Egress, None, packet));
        }
        if let Ends::Pod(pod) = to
            && let Some(switch) = self.switches.get(&pod.node)
        {
            let ofport = self.ofports.get(&(pod.namespace.clone(), pod.name.clone())).copied();
            fates.push(switch.fate(Direction::Ingress, ofport, packet));
        }
        let refused = fates.into_iter().find(|fate| !fate.passed());
        match refused {
            None => Action::Allow,
            Some(Fate::Rejected(_)) => Action::Reject,
            Some(_) => Action::Drop,
        }
    }
}

/// What the API gives an agent of this node.
fn lists(engine: &Engine, node: &str) -> Vec<Event> {
    let Some(id) = engine.index().find_node(node) else { return Vec::new() };
    let (mut policies, mut targets, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for object in engine.list(ObjectKind::NetworkPolicy, Some(id)) {
        if let ObjectId::Policy(number) = object {
            policies.extend(engine.policy(number));
        }
    }
    for object in engine.list(ObjectKind::AppliedToGroup, Some(id)) {
        if let ObjectId::Group(number) = object {
            targets.extend(engine.applied_to_group(number, Some(id)));
        }
    }
    for object in engine.list(ObjectKind::AddressGroup, Some(id)) {
        if let ObjectId::Group(number) = object {
            peers.extend(engine.address_group(number));
        }
    }
    vec![
        Event::ReplacePolicies(policies),
        Event::ReplaceAppliedToGroups(targets),
        Event::ReplaceAddressGroups(peers),
    ]
}

enum Ends<'a> {
    Pod(&'a Pod),
    Addr(IpAddr),
}

impl Ends<'_> {
    fn ips(&self) -> Vec<IpAddr> {
        match self {
            Self::Pod(pod) => pod.ips.clone(),
            Self::Addr(ip) => vec![*ip],
        }
    }
}

const PORTS: [u16; 9] = [79, 80, 81, 90, 91, 443, 1000, 5000, 8080];

fn traffic(random: &mut Random) -> (Traffic, L4) {
    let dst = PORTS[random.below(PORTS.len())];
    let src = [40_000, 999, 1000, 1500, 2000][random.below(5)];
    match random.below(8) {
        0 => (Traffic::udp(dst).from_port(src), L4::Udp { src, dst }),
        1 => (Traffic::sctp(dst).from_port(src), L4::Sctp { src, dst }),
        2 => {
            let kind = [8, 0, 13][random.below(3)];
            let code = u8::from(random.below(3) == 0);
            (Traffic::icmp(kind, code), L4::Icmp { kind, code })
        }
        _ => (Traffic::tcp(dst).from_port(src), L4::Tcp { src, dst }),
    }
}

/// Asks flows and verdicts about every pair of ends. Gives the number of questions by answer.
fn compare(world: &World, random: &mut Random, n_probes: usize) -> BTreeMap<Action, usize> {
    let fleet = Fleet::new(world, random);
    let cluster = Cluster::new(&world.objects());
    let mut answers = BTreeMap::new();
    let ends: Vec<Ends<'_>> = world
        .pods
        .iter()
        .filter(|pod| !pod.host_network && !pod.finished && !pod.ips.is_empty())
        .map(Ends::Pod)
        .chain(world.outside.iter().copied().map(Ends::Addr))
        .collect();
    let end_of = |end: &Ends<'_>| match end {
        Ends::Pod(pod) => End::Pod(cluster.pod(&pod.namespace, &pod.name).expect("it is there")),
        Ends::Addr(ip) => End::Addr(*ip),
    };
    for (n, from) in ends.iter().enumerate() {
        for (m, to) in ends.iter().enumerate() {
            if n == m || matches!((from, to), (Ends::Addr(_), Ends::Addr(_))) {
                continue;
            }
            for src in from.ips() {
                for dst in to.ips().into_iter().filter(|dst| dst.is_ipv4() == src.is_ipv4()) {
                    for _ in 0..n_probes {
                        let (traffic, l4) = traffic(random);
                        let traffic = traffic.over(crate::verdict::Family::of(src));
                        let verdict = cluster.verdict(end_of(from), end_of(to), &traffic);
                        let action = fleet.action(from, to, Packet { src, dst, l4 });
                        assert_eq!(
                            action,
                            verdict.action(),
                            "{src} to {dst}, {l4:?}: {verdict:?}\n{}",
                            world.describe()
                        );
                        *answers.entry(action).or_default() += 1;
                    }
                }
            }
        }
    }
    answers
}

#[test]
fn flows_agree_with_verdicts() {
    let n_worlds: u64 =
        std::env::var("AGREEMENT_WORLDS").ok().and_then(|n| n.parse().ok()).unwrap_or(140);
    let first: u64 = std::env::var("AGREEMENT_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut coverage = Coverage::default();
    let mut answers: BTreeMap<Action, usize> = BTreeMap::new();
    for seed in first..first + n_worlds {
        let mut random = Random::new(seed);
        let world = generate::world(&mut random, &mut coverage);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            compare(&world, &mut random, 1)
        }));
        match result {
            Ok(given) => {
                for (action, n) in given {
                    *answers.entry(action).or_default() += n;
                }
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
                panic!("AGREEMENT_SEED={seed}: {text}");
            }
        }
    }
    let known: BTreeSet<Action> = answers.keys().copied().collect();
    assert_eq!(known, BTreeSet::from([Action::Allow, Action::Drop, Action::Reject]), "{answers:?}");
    coverage.check(n_worlds);
}

/// A switch with nothing but policy tables, that says what becomes of a packet.
struct RealSwitch {
    ovs: testkit::ovs::Ovs,
}

/// Where a packet is that passed all rules of its direction.
const BEHIND: [(Direction, u8, u8); 2] =
    [(Direction::Egress, 80, 96), (Direction::Ingress, 132, 148)];

impl RealSwitch {
    fn start() -> Self {
        let ovs = testkit::ovs::Ovs::start(None);
        ovs.vsctl(&["add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev"]);
        Self { ovs }
    }

    /// Replaces all flows by those of a node.
    fn install(&self, switch: &Switch) {
        let mgmt = self.ovs.mgmt("br-int").display().to_string();
        let mut lines: Vec<String> =
            switch.flows().into_iter().map(|flow| flow.normalize().to_string()).collect();
        for (here, next) in
            [(80, 84), (84, 88), (88, 92), (92, 96), (132, 136), (136, 140), (140, 144), (144, 148)]
        {
            lines.push(format!("table={here},priority=0 actions=resubmit(,{next})"));
        }
        for table in [92, 144] {
            lines.push(format!("table={table},priority=190,reg0=0x400/0x400 actions=drop"));
        }
        for (_, _, table) in BEHIND {
            lines.push(format!("table={table},priority=0 actions=LOCAL"));
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), lines.join("\n")).expect("written");
        self.ovs.ofctl(&["del-flows", &mgmt]);
        self.ovs.ofctl(&["--bundle", "add-flows", &mgmt, &file.path().display().to_string()]);
    }

    fn fate(
        &self,
        direction: Direction,
        to: Option<OfPort>,
        packet: Packet,
    ) -> (bool, bool, String) {
        let (_, first, behind) = BEHIND
            .into_iter()
            .find(|(known, ..)| *known == direction)
            .expect("both directions are there");
        let Packet { src, dst, l4 } = packet;
        let v6 = if src.is_ipv6() { "6" } else { "" };
        let (src_word, dst_word) =
            if v6.is_empty() { ("nw_src", "nw_dst") } else { ("ipv6_src", "ipv6_dst") };
        let ports = |word: &str, src: u16, dst: u16| {
            format!("{word}{v6},{word}_src={src},{word}_dst={dst}")
        };
        let l4 = match l4 {
            L4::Tcp { src, dst } => ports("tcp", src, dst),
            L4::Udp { src, dst } => ports("udp", src, dst),
            L4::Sctp { src, dst } => ports("sctp", src, dst),
            L4::Icmp { kind, code } if v6.is_empty() => {
                format!("icmp,icmp_type={kind},icmp_code={code}")
            }
            L4::Icmp { kind, code } => format!("icmp6,icmpv6_type={kind},icmpv6_code={code}"),
        };
        let text = format!(
            "in_port=LOCAL,ct_state=trk|new,{l4},{src_word}={src},{dst_word}={dst},nw_ttl=64"
        );
        let port = to.map_or(0, |port| port.0);
        let actions = format!("load:{port}->NXM_NX_REG1[],resubmit(,{first})");
        let trace = self.ovs.appctl(&["ofproto/trace-packet-out", "br-int", &text, &actions]);
        let reached = format!("{behind:2}. ");
        let passed = trace.lines().any(|line| line.trim_start().starts_with(&reached));
        let told = trace.contains("controller(");
        (passed, told, trace)
    }
}

/// What the flow table in memory says is what Open vSwitch says.
#[test]
#[ignore = "needs root: make test"]
fn a_real_switch_agrees() {
    let mut n_asked = BTreeMap::new();
    testkit::netns::in_netns(|| {
        let real = RealSwitch::start();
        for seed in 500..512 {
            let mut random = Random::new(seed);
            let world = generate::world(&mut random, &mut Coverage::default());
            let fleet = Fleet::new(&world, &mut random);
            let Some((node, switch)) =
                fleet.switches.iter().max_by_key(|(_, switch)| switch.flows().len())
            else {
                continue;
            };
            real.install(switch);
            let here = local_pods(&world, node);
            let all: Vec<IpAddr> = world
                .pods
                .iter()
                .flat_map(|pod| pod.ips.clone())
                .chain(world.outside.iter().copied())
                .collect();
            if here.is_empty() {
                continue;
            }
            for _ in 0..60 {
                let (ofport, pod) = &here[random.below(here.len())];
                let own = pod.ips[random.below(pod.ips.len())];
                let other = all[random.below(all.len())];
                if own.is_ipv4() != other.is_ipv4() {
                    continue;
                }
                let (_, l4) = traffic(&mut random);
                let (direction, to, packet) = if random.below(2) == 0 {
                    (Direction::Egress, None, Packet { src: own, dst: other, l4 })
                } else {
                    (Direction::Ingress, Some(*ofport), Packet { src: other, dst: own, l4 })
                };
                let want = switch.fate(direction, to, packet);
                let (passed, told, trace) = real.fate(direction, to, packet);
                let rejected = matches!(want, Fate::Rejected(_));
                assert_eq!(
                    (passed, told),
                    (want.passed(), rejected),
                    "{seed}: {packet:?}\n{trace}"
                );
                *n_asked.entry((passed, told)).or_insert(0) += 1;
            }
        }
    });
    assert_eq!(n_asked.len(), 3, "passed, dropped, rejected: {n_asked:?}");
}

/// The protocols of this module's packets are those that rules can name.
#[test]
fn probes_cover_all_protocols() {
    let mut random = Random::new(3);
    let seen: BTreeSet<Protocol> = (0..200).map(|_| traffic(&mut random).0.protocol).collect();
    assert_eq!(seen.len(), 4);
}
