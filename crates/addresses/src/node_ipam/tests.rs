use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

fn nets(text: &str) -> Vec<IpNet> {
    text.split_whitespace().map(net).collect()
}

fn node(name: &str, cidrs: &str) -> NodeCidrs {
    NodeCidrs { name: name.into(), pod_cidrs: nets(cidrs) }
}

fn seen(name: &str, cidrs: &str) -> Event {
    Event::NodeSeen(node(name, cidrs))
}

fn write(name: &str, cidrs: &str) -> Op {
    Op::Write { name: name.into(), pod_cidrs: nets(cidrs) }
}

fn report(name: &str, problem: Problem) -> Op {
    Op::Report { name: name.into(), problem }
}

fn mk_ipam(cluster: &str, part: u8) -> NodeIpam {
    let mut ipam = NodeIpam::new(&[(net(cluster), part)], &[]).unwrap();
    assert_eq!(ipam.step(Event::Resync(vec![])), []);
    ipam
}

#[test]
fn pools_that_cannot_be() {
    let v4 = (net("10.0.0.0/16"), 24);
    let v6 = (net("fd00::/48"), 64);
    assert!(NodeIpam::new(&[v4, v6], &[]).is_ok());
    assert_eq!(NodeIpam::new(&[], &[]).unwrap_err(), PoolError::Count(0));
    assert_eq!(NodeIpam::new(&[v4, v6, v4], &[]).unwrap_err(), PoolError::Count(3));
    assert!(matches!(NodeIpam::new(&[v4, v4], &[]), Err(PoolError::SameFamily(..))));
    assert!(matches!(NodeIpam::new(&[(v4.0, 15)], &[]), Err(PoolError::PartLength { .. })));
}

#[test]
fn nothing_is_given_out_before_every_node_was_read() {
    let mut ipam = NodeIpam::new(&[(net("10.0.0.0/16"), 24)], &[]).unwrap();
    assert_eq!(ipam.step(seen("a", "")), []);
    let all = vec![node("a", ""), node("b", "10.0.0.0/24")];
    assert_eq!(ipam.step(Event::Resync(all)), [write("a", "10.0.1.0/24")]);
}

#[test]
fn both_families_or_none() {
    let cluster = [(net("10.0.0.0/23"), 24), (net("fd00::/48"), 64)];
    let mut ipam = NodeIpam::new(&cluster, &[]).unwrap();
    ipam.step(Event::Resync(vec![]));
    assert_eq!(ipam.step(seen("a", "")), [write("a", "10.0.0.0/24 fd00::/64")]);
    assert_eq!(ipam.step(seen("b", "")), [write("b", "10.0.1.0/24 fd00:0:0:1::/64")]);
    let left: Vec<_> = ipam.free().collect();
    let exhausted = Problem::Exhausted(net("10.0.0.0/23"));
    assert_eq!(ipam.step(seen("c", "")), [report("c", exhausted)]);
    assert_eq!(ipam.free().collect::<Vec<_>>(), left, "no part was taken in vain");
    assert_eq!(ipam.step(seen("c", "")), [], "told once");
    assert_eq!(
        ipam.step(Event::NodeGone("a".into())),
        [write("c", "10.0.0.0/24 fd00:0:0:2::/64")],
        "who waits is served"
    );
    assert_eq!(ipam.problems().count(), 0);
    let missing = Problem::Missing(net("fd00::/48"));
    assert_eq!(ipam.step(seen("d", "10.0.1.0/24")).len(), 1, "an overlap comes first");
    ipam.step(Event::NodeGone("b".into()));
    assert_eq!(ipam.step(seen("d", "10.0.1.0/24")), [report("d", missing)]);
}

#[test]
fn services_are_kept_out() {
    let services = nets("10.0.0.0/26 10.0.2.0/23");
    let mut ipam = NodeIpam::new(&[(net("10.0.0.0/21"), 24)], &services).unwrap();
    ipam.step(Event::Resync(vec![]));
    assert_eq!(ipam.step(seen("a", "")), [write("a", "10.0.1.0/24")]);
    assert_eq!(ipam.step(seen("b", "")), [write("b", "10.0.4.0/24")]);
    let problem = Problem::OverlapsServices { cidr: net("10.0.3.0/24"), services: services[1] };
    assert_eq!(ipam.step(seen("c", "10.0.3.0/24")), [report("c", problem)]);
}

#[test]
fn a_node_keeps_what_it_has() {
    let mut ipam = mk_ipam("10.0.0.0/22", 24);
    assert_eq!(ipam.step(seen("a", "10.0.1.0/24")), []);
    assert_eq!(ipam.step(seen("b", "")), [write("b", "10.0.0.0/24")]);
    assert_eq!(ipam.step(seen("b", "")), [], "the write is under way");
    assert_eq!(ipam.step(seen("b", "10.0.0.0/24")), []);
    assert_eq!(
        ipam.step(seen("c", "10.9.0.0/24")),
        [report("c", Problem::Outside(net("10.9.0.0/24")))]
    );
    let overlap = Problem::Overlap {
        cidr: net("10.0.1.128/25"),
        other: net("10.0.1.0/24"),
        with: "a".into(),
    };
    assert_eq!(ipam.step(seen("d", "10.0.1.128/25")), [report("d", overlap)]);
    assert_eq!(ipam.step(Event::NodeGone("a".into())), []);
    assert_eq!(ipam.step(seen("e", "")), [write("e", "10.0.2.0/24")], "d still has 10.0.1.128/25");
    assert_eq!(ipam.step(seen("d", "10.0.1.128/25")), [], "the problem went with a");
    assert_eq!(ipam.problems().map(|(name, _)| name).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn a_failed_write_is_tried_again_with_the_same_prefixes() {
    let mut ipam = mk_ipam("10.0.0.0/22", 24);
    ipam.step(seen("a", ""));
    let failed = Event::WriteFailed("a".into());
    assert_eq!(ipam.step(failed.clone()), [Op::ReadLater("a".into())]);
    assert_eq!(ipam.step(failed.clone()), [], "nothing is under way");
    assert_eq!(ipam.step(seen("a", "")), [write("a", "10.0.0.0/24")]);
    assert_eq!(ipam.step(failed.clone()), [Op::ReadLater("a".into())]);
    assert_eq!(ipam.step(seen("b", "10.0.0.0/24")).len(), 1, "somebody else gave it away");
    assert_eq!(ipam.step(seen("a", "")), [write("a", "10.0.1.0/24")]);
    assert_eq!(ipam.step(failed), [Op::ReadLater("a".into())]);
    assert_eq!(ipam.step(seen("a", "10.0.3.0/24")), [], "somebody else was faster");
    assert_eq!(ipam.free().collect::<Vec<_>>(), [(net("10.0.0.0/22"), 2)]);
    assert_eq!(ipam.step(Event::WriteFailed("nobody".into())), []);
}

#[test]
fn a_node_made_anew_gets_its_prefix_back() {
    let mut ipam = mk_ipam("10.0.0.0/22", 24);
    ipam.step(seen("a", "10.0.2.0/24"));
    assert_eq!(ipam.step(seen("a", "")), [write("a", "10.0.2.0/24")]);
    ipam.step(seen("a", "10.0.2.0/24"));
    assert_eq!(ipam.step(seen("b", "10.0.2.0/24")).len(), 1);
    assert_eq!(ipam.step(seen("a", "")), [write("a", "10.0.0.0/24")], "but not one that b has");
}

#[test]
fn a_resync_forgets_and_writes_again() {
    let mut ipam = mk_ipam("10.0.0.0/23", 24);
    ipam.step(seen("a", ""));
    ipam.step(seen("b", ""));
    let all = vec![node("b", ""), node("c", "")];
    assert_eq!(
        ipam.step(Event::Resync(all)),
        [write("b", "10.0.1.0/24"), write("c", "10.0.0.0/24")]
    );
}

#[test]
fn five_thousand_nodes_at_once() {
    let mut ipam = NodeIpam::new(&[(net("10.0.0.0/8"), 24)], &[]).unwrap();
    let all = (0..5000).map(|n| node(&format!("node-{n}"), "")).collect();
    let ops = ipam.step(Event::Resync(all));
    assert_eq!(ops.len(), 5000);
}

/// What happens in a made-up cluster.
#[derive(Clone, Debug)]
enum Happens {
    Added(u8),
    Deleted(u8),
    GivenBySomebody(u8, u8),
    Delivered(u8),
    Written(u8),
    WriteFailed(u8),
    Listed,
}

fn happens() -> impl Strategy<Value = Happens> {
    let name = 0..6u8;
    prop_oneof![
        4 => name.clone().prop_map(Happens::Added),
        2 => name.clone().prop_map(Happens::Deleted),
        1 => (name.clone(), 0..8u8).prop_map(|(n, c)| Happens::GivenBySomebody(n, c)),
        6 => name.clone().prop_map(Happens::Delivered),
        4 => name.clone().prop_map(Happens::Written),
        2 => name.prop_map(Happens::WriteFailed),
        1 => Just(Happens::Listed),
    ]
}

/// A cluster of Nodes, with the writes and events that are on their way.
struct World {
    ipam: NodeIpam,
    nodes: BTreeMap<String, Vec<IpNet>>,
    writes: BTreeMap<String, Vec<IpNet>>,
    gone: Vec<String>,
}

impl World {
    fn step(&mut self, event: Event) {
        for op in self.ipam.step(event) {
            let Op::Write { name, pod_cidrs } = op else { continue };
            assert_eq!(self.ipam.cidrs_of(&name), pod_cidrs, "what is offered is reserved");
            for other in self.ipam.nodes.keys().filter(|other| **other != name) {
                for taken in self.ipam.cidrs_of(other) {
                    let twice = pod_cidrs.iter().any(|cidr| overlap(*cidr, *taken));
                    assert!(!twice, "{pod_cidrs:?} for {name} is {other}'s");
                }
            }
            self.writes.insert(name, pod_cidrs);
        }
    }

    fn deliver(&mut self, name: &str) {
        // A deletion is always seen before what comes after it.
        if let Some(at) = self.gone.iter().position(|gone| gone == name) {
            self.gone.remove(at);
            self.writes.remove(name);
            self.step(Event::NodeGone(name.into()));
        }
        if let Some(cidrs) = self.nodes.get(name) {
            let event = NodeCidrs { name: name.into(), pod_cidrs: cidrs.clone() };
            self.step(Event::NodeSeen(event));
        }
    }

    fn list(&mut self) {
        self.gone.clear();
        self.writes.clear();
        let all = self.nodes.iter();
        let all = all.map(|(n, c)| NodeCidrs { name: n.clone(), pod_cidrs: c.clone() });
        let all = all.collect();
        self.step(Event::Resync(all));
    }

    fn write(&mut self, name: &str) {
        let Some(cidrs) = self.writes.remove(name) else { return };
        match self.nodes.get_mut(name) {
            Some(has) if has.is_empty() => *has = cidrs,
            _ => self.step(Event::WriteFailed(name.into())),
        }
    }

    fn happen(&mut self, happens: &Happens) {
        let name = |n: &u8| format!("n{n}");
        match happens {
            Happens::Added(n) => {
                self.nodes.entry(name(n)).or_default();
            }
            Happens::Deleted(n) => {
                if self.nodes.remove(&name(n)).is_some() {
                    self.gone.push(name(n));
                }
            }
            Happens::GivenBySomebody(n, part) => {
                if let Some(has) = self.nodes.get_mut(&name(n)).filter(|has| has.is_empty()) {
                    has.push(net(&format!("10.0.{part}.0/24")));
                }
            }
            Happens::Delivered(n) => self.deliver(&name(n)),
            Happens::Written(n) => self.write(&name(n)),
            Happens::WriteFailed(n) => {
                if self.writes.remove(&name(n)).is_some() {
                    self.step(Event::WriteFailed(name(n)));
                }
            }
            Happens::Listed => self.list(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, nothing is offered twice; and when it stops happening every Node has a
    /// prefix, unless none is left.
    #[test]
    fn nothing_is_given_twice_and_nobody_is_forgotten(
        history in prop::collection::vec(happens(), 0..120)
    ) {
        let ipam = NodeIpam::new(&[(net("10.0.0.0/22"), 24)], &[]).unwrap();
        let mut world =
            World { ipam, nodes: BTreeMap::new(), writes: BTreeMap::new(), gone: Vec::new() };
        for event in &history {
            world.happen(event);
        }
        world.list();
        for n in 0..6 {
            world.write(&format!("n{n}"));
            world.deliver(&format!("n{n}"));
        }
        let taken: BTreeSet<_> = world.nodes.values().flatten().copied().collect();
        let inside = taken.iter().filter(|c| net("10.0.0.0/22").contains(*c)).count();
        let bare = world.nodes.values().filter(|cidrs| cidrs.is_empty()).count();
        prop_assert!(bare == 0 || inside == 4, "{:?}", world.nodes);
        let free: usize = world.ipam.free().map(|(_, n)| n).sum();
        prop_assert_eq!(free, 4 - inside, "{:?}", world.nodes);
    }
}
