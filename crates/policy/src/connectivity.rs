//! Lists which workloads may connect to which, and to and from which addresses.
//!
//! Pure: takes a [`Cluster`] and the names of its workloads, returns one entry a pair. Pods that no
//! rule can tell apart are asked about once; so are targets with the same rules. The question itself
//! is answered by [`crate::verdict`].

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use apis::controlplane::Direction;
use ipnet::IpNet;

use crate::verdict::{Cluster, ConnectionSet, End, Family, PodId, PodInfo, Side, Subject, allowed};

/// Pods that are listed under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The name.
    pub name: String,
    /// Its Pods; more than one where they differ or are known by address.
    pub pods: Vec<PodId>,
}

/// Addresses from one to another, of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// The first.
    pub first: IpAddr,
    /// The last.
    pub last: IpAddr,
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

/// Who may connect to whom. Entries without any connection are there, too.
#[derive(Clone, Debug)]
pub struct Connectivity {
    /// Between workloads, by names of source and destination.
    pub workloads: BTreeMap<(String, String), ConnectionSet>,
    /// From outside, by name of the destination: a set for each of `ranges`.
    pub from_outside: BTreeMap<String, Vec<ConnectionSet>>,
    /// To outside, by name of the source: a set for each of `ranges`.
    pub to_outside: BTreeMap<String, Vec<ConnectionSet>>,
    /// The outside, cut wherever a rule makes a difference.
    pub ranges: Vec<Range>,
}

/// One line of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// Where connections come from.
    pub source: String,
    /// Where they go.
    pub destination: String,
    /// Which may be made.
    pub connections: ConnectionSet,
}

impl Connectivity {
    /// Asks about all workloads and all addresses, cut at `networks`.
    pub fn new(cluster: &Cluster, workloads: &[Workload], networks: &[IpNet]) -> Self {
        let ranges = cut(networks, &families(cluster, networks));
        let classes = Classes::new(cluster, workloads, &ranges);
        let mut table = Table::new(cluster, &classes, &ranges);
        let members: Vec<_> = workloads.iter().map(|one| classes.of(&one.pods)).collect();

        let mut between = BTreeMap::new();
        for (source, from) in workloads.iter().zip(&members) {
            for (destination, to) in workloads.iter().zip(&members) {
                if source.name != destination.name {
                    let set = table.between(from, to);
                    between.insert((source.name.clone(), destination.name.clone()), set);
                }
            }
        }
        let mut outside = |direction| {
            let named = workloads.iter().zip(&members);
            named.map(|(one, of)| (one.name.clone(), table.outside(direction, of))).collect()
        };
        let from_outside = outside(Direction::In);
        let to_outside = outside(Direction::Out);
        Self { workloads: between, from_outside, to_outside, ranges }
    }

    /// Every pair that may connect, in order; neighbouring ranges that may do the same are one.
    pub fn lines(&self) -> Vec<Line> {
        let between = self.workloads.iter().map(|((source, destination), set)| Line {
            source: source.clone(),
            destination: destination.clone(),
            connections: set.clone(),
        });
        let inward = self.from_outside.iter().flat_map(|(name, sets)| {
            let joined = join(&self.ranges, sets);
            joined.into_iter().map(|(range, connections)| Line {
                source: range.to_string(),
                destination: name.clone(),
                connections,
            })
        });
        let outward = self.to_outside.iter().flat_map(|(name, sets)| {
            let joined = join(&self.ranges, sets);
            joined.into_iter().map(|(range, connections)| Line {
                source: name.clone(),
                destination: range.to_string(),
                connections,
            })
        });
        let mut lines: Vec<_> = between.chain(inward).chain(outward).collect();
        lines.retain(|line| !line.connections.is_empty());
        lines.sort();
        lines
    }
}

/// Joins neighbouring ranges that have the same value.
pub(crate) fn join<T: Clone + PartialEq>(ranges: &[Range], values: &[T]) -> Vec<(Range, T)> {
    let mut joined: Vec<(Range, T)> = Vec::new();
    for (range, value) in ranges.iter().zip(values) {
        match joined.last_mut() {
            Some((before, same))
                if *same == *value && Family::of(before.last) == Family::of(range.first) =>
            {
                before.last = range.last;
            }
            _ => joined.push((*range, value.clone())),
        }
    }
    joined
}

/// Families worth speaking of: IPv6 only if something in the objects does.
fn families(cluster: &Cluster, networks: &[IpNet]) -> Vec<Family> {
    let mut pods = cluster.pods().flat_map(|pod| cluster.pod_addrs(pod));
    let speaks_of_v6 = networks.iter().any(|net| net.addr().is_ipv6()) || pods.any(IpAddr::is_ipv6);
    if speaks_of_v6 { vec![Family::V4, Family::V6] } else { vec![Family::V4] }
}

/// Cuts the addresses of each family where a network begins or ends.
fn cut(networks: &[IpNet], families: &[Family]) -> Vec<Range> {
    let mut ranges = Vec::new();
    for family in families {
        let of_family = networks.iter().filter(|net| Family::of(net.addr()) == *family);
        let mut starts: Vec<u128> = vec![0];
        let end = match family {
            Family::V4 => u128::from(u32::MAX),
            Family::V6 => u128::MAX,
        };
        for net in of_family {
            starts.push(number(net.network()));
            starts.extend(number(net.broadcast()).checked_add(1).filter(|next| *next <= end));
        }
        starts.sort_unstable();
        starts.dedup();
        for (i, first) in starts.iter().enumerate() {
            let last = starts.get(i + 1).map_or(end, |next| next - 1);
            ranges.push(Range { first: address(*family, *first), last: address(*family, last) });
        }
    }
    ranges
}

fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

fn address(family: Family, number: u128) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)).into(),
        Family::V6 => Ipv6Addr::from_bits(number).into(),
    }
}

/// Pods sorted into classes that no rule can tell apart.
struct Classes {
    /// One Pod of each.
    examples: Vec<PodId>,
    of_pod: BTreeMap<PodId, usize>,
}

impl Classes {
    fn new(cluster: &Cluster, workloads: &[Workload], ranges: &[Range]) -> Self {
        let mut classes = Self { examples: Vec::new(), of_pod: BTreeMap::new() };
        let mut known = BTreeMap::new();
        for pod in workloads.iter().flat_map(|workload| &workload.pods) {
            let of = cluster.pod_info(*pod);
            let place = |family| {
                let addr = cluster.side(End::Pod(*pod), family).addr;
                addr.map(|addr| {
                    ranges.partition_point(|range| {
                        (Family::of(range.first), range.first) <= (Family::of(addr), addr)
                    })
                })
            };
            let places = [place(Family::V4), place(Family::V6)];
            let PodInfo { namespace, labels, service_account, host_network, node, ports, .. } = of;
            let shape = (namespace, labels, service_account, host_network, node, ports, places);
            let class = *known.entry(shape).or_insert_with(|| {
                classes.examples.push(*pod);
                classes.examples.len() - 1
            });
            classes.of_pod.insert(*pod, class);
        }
        classes
    }

    fn of(&self, pods: &[PodId]) -> Vec<usize> {
        let mut classes: Vec<_> = pods.iter().map(|pod| self.of_pod[pod]).collect();
        classes.sort_unstable();
        classes.dedup();
        classes
    }
}

/// A set by number.
type SetId = usize;

/// What one side allows, in each family and from each source port.
type Profile = Vec<SetId>;

/// Answers that were given already.
struct Table<'a> {
    cluster: &'a Cluster,
    examples: &'a [PodId],
    ranges: &'a [Range],
    families: Vec<Family>,
    /// For each direction and class, the number of its kind of target.
    targets: BTreeMap<(Direction, usize), usize>,
    subjects: Vec<(Direction, Subject, PodId)>,
    /// By kind of target and class of peer.
    answers: BTreeMap<(usize, usize), Profile>,
    sets: Vec<ConnectionSet>,
    numbers: BTreeMap<ConnectionSet, SetId>,
    both: BTreeMap<(SetId, SetId), SetId>,
    either: BTreeMap<(SetId, SetId), SetId>,
}

impl<'a> Table<'a> {
    fn new(cluster: &'a Cluster, classes: &'a Classes, ranges: &'a [Range]) -> Self {
        let mut families: Vec<_> = ranges.iter().map(|range| Family::of(range.first)).collect();
        families.dedup();
        let mut table = Self {
            cluster,
            examples: &classes.examples,
            ranges,
            families,
            targets: BTreeMap::new(),
            subjects: Vec::new(),
            answers: BTreeMap::new(),
            sets: vec![ConnectionSet::default()],
            numbers: BTreeMap::from([(ConnectionSet::default(), 0)]),
            both: BTreeMap::new(),
            either: BTreeMap::new(),
        };
        let mut known = BTreeMap::new();
        for direction in [Direction::In, Direction::Out] {
            for (class, pod) in classes.examples.iter().enumerate() {
                let subject = cluster.subject(direction, *pod);
                let of = cluster.pod_info(*pod);
                // Rules may look at the target's Namespace; an ingress rule, at its ports.
                let ports = (direction == Direction::In).then_some(&of.ports);
                let host = of.host_network.then_some(&of.node);
                let shape = (direction, subject.clone(), &of.namespace, ports, &of.node, host);
                let n_known = known.len();
                let target = *known.entry(shape).or_insert(n_known);
                if target == n_known {
                    table.subjects.push((direction, subject, *pod));
                }
                table.targets.insert((direction, class), target);
            }
        }
        table
    }

    /// What may go from Pods of some classes to Pods of others.
    fn between(&mut self, from: &[usize], to: &[usize]) -> ConnectionSet {
        let mut all = 0;
        for source in from {
            for destination in to {
                let egress = self.answer(Direction::Out, *source, *destination);
                let ingress = self.answer(Direction::In, *destination, *source);
                for (a, b) in egress.into_iter().zip(ingress) {
                    let both = self.intersect(a, b);
                    all = self.unite(all, both);
                }
            }
        }
        self.shown(all)
    }

    /// What may go between Pods of some classes and each range.
    fn outside(&mut self, direction: Direction, classes: &[usize]) -> Vec<ConnectionSet> {
        let ranges = self.ranges;
        let mut sets = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut all = 0;
            for class in classes {
                let family = Family::of(range.first);
                if !self.has_family(*class, family) {
                    continue;
                }
                let target = self.cluster.side(End::Pod(self.examples[*class]), family);
                let peer = Side { pod: None, addr: Some(range.first) };
                for port in self.cluster.source_ports() {
                    let set = self.ask(direction, *class, target, peer, *port);
                    all = self.unite(all, set);
                }
            }
            sets.push(self.shown(all));
        }
        sets
    }

    fn has_family(&self, class: usize, family: Family) -> bool {
        let addrs = self.cluster.pod_addrs(self.examples[class]);
        addrs.is_empty() || addrs.iter().any(|addr| Family::of(*addr) == family)
    }

    /// What the rules about one class say of another.
    fn answer(&mut self, direction: Direction, target: usize, peer: usize) -> Profile {
        let kind = self.targets[&(direction, target)];
        if let Some(profile) = self.answers.get(&(kind, peer)) {
            return profile.clone();
        }
        let mut profile = Profile::new();
        for family in self.families.clone() {
            // A family that one end has not is a matter of the pair, not of the target's kind.
            let sides = [target, peer]
                .map(|class| self.cluster.side(End::Pod(self.examples[class]), family));
            for port in self.cluster.source_ports() {
                let own = direction == Direction::In
                    && self.cluster.comes_from_own_node(sides[0], sides[1]);
                let set = match (self.has_family(peer, family), own) {
                    (false, _) => 0,
                    (true, true) => self.intern(ConnectionSet::full()),
                    (true, false) => self.ask(direction, target, sides[0], sides[1], *port),
                };
                profile.push(set);
            }
        }
        self.answers.insert((kind, peer), profile.clone());
        profile
    }

    fn ask(
        &mut self,
        direction: Direction,
        class: usize,
        target: Side,
        peer: Side,
        port: u16,
    ) -> SetId {
        let subject = &self.subjects[self.targets[&(direction, class)]].1;
        let parts = self.cluster.share_out(subject, direction, target, peer, port);
        self.intern(allowed(&parts))
    }

    fn intern(&mut self, set: ConnectionSet) -> SetId {
        if let Some(number) = self.numbers.get(&set) {
            return *number;
        }
        self.sets.push(set.clone());
        self.numbers.insert(set, self.sets.len() - 1);
        self.sets.len() - 1
    }

    fn intersect(&mut self, a: SetId, b: SetId) -> SetId {
        let key = (a.min(b), a.max(b));
        if a == b || key.0 == 0 {
            return key.0;
        }
        if let Some(known) = self.both.get(&key) {
            return *known;
        }
        let set = self.intern(self.sets[a].intersect(&self.sets[b]));
        self.both.insert(key, set);
        set
    }

    fn unite(&mut self, a: SetId, b: SetId) -> SetId {
        let key = (a.min(b), a.max(b));
        if a == b || key.0 == 0 {
            return key.1;
        }
        if let Some(known) = self.either.get(&key) {
            return *known;
        }
        let set = self.intern(self.sets[a].union(&self.sets[b]));
        self.either.insert(key, set);
        set
    }

    fn shown(&self, set: SetId) -> ConnectionSet {
        let set = &self.sets[set];
        if self.cluster.speaks_of_icmp() { set.clone() } else { set.with_ports_only() }
    }
}

#[cfg(test)]
mod tests;
