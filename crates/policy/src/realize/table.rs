//! The flows of clauses, shared by all rules that have the same alternative.
//!
//! A flow belongs to no rule: it carries one conjunction action for each rule that has it, and goes
//! with the last one. So that a change is cheap and still whole, flows are kept in many small
//! chunks, each of which the switch's reconciler knows under a key of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};

use openflow::{ConjId, Flow, TableId};
use pipeline::policy::{Clause, ClauseKey, clause_flow};

/// How many rules one flow can hold. Open vSwitch keeps 4,087 in a flow whose match is short, a few
/// less where it is longer.
pub const MAX_RULES_PER_FLOW: usize = 4_000;

/// How many chunks there are. A policy's peers are spread over all of them, and each change sends
/// its chunk's flows to the reconciler again: with 50,000 flows a chunk has six.
const N_CHUNKS: u64 = 8192;

/// Which priority of a table a flow has: a number that stays while the priority moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    pub(super) table: TableId,
    pub(super) level: u32,
}

/// What a flow is, but for its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlowId {
    pub(super) slot: Slot,
    pub(super) key: ClauseKey,
}

/// The rules that have an alternative. Most alternatives are one rule's alone.
#[derive(Debug)]
enum Clauses {
    One(Clause),
    /// Sorted. There are few of them: the box keeps the others small.
    #[expect(clippy::box_collection, reason = "half of the room that a vector takes")]
    Many(Box<Vec<Clause>>),
}

/// A chunk's flows, sorted: a few, in as little room as they get.
#[derive(Debug, Default)]
struct Chunk(Vec<(FlowId, Clauses)>);

/// Flows by chunk.
#[derive(Debug, Default)]
pub(super) struct FlowTable {
    chunks: BTreeMap<u16, Chunk>,
    dirty: BTreeSet<u16>,
    n_flows: usize,
}

/// Sums up bytes; the same in every process, so that a chunk is the same after a start.
#[derive(Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        // The low bits are used: fold the high ones in.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// A flow's chunk. Its priority does not count: a flow that moves stays in its chunk.
fn chunk_of(id: &FlowId) -> u16 {
    let hash = BuildHasherDefault::<Fnv>::default().hash_one((id.slot.table, id.key));
    u16::try_from(hash % N_CHUNKS).unwrap_or_default()
}

impl Clauses {
    fn as_slice(&self) -> &[Clause] {
        match self {
            Self::One(clause) => std::slice::from_ref(clause),
            Self::Many(clauses) => clauses,
        }
    }

    /// Whether it was not among them.
    fn insert(&mut self, clause: Clause) -> bool {
        let Err(at) = self.as_slice().binary_search(&clause) else { return false };
        match self {
            Self::One(first) => {
                let mut both = vec![*first];
                both.insert(at, clause);
                *self = Self::Many(Box::new(both));
            }
            Self::Many(clauses) => clauses.insert(at, clause),
        }
        true
    }

    /// Takes one of several away; the last one is its holder's to take.
    fn remove(&mut self, at: usize) {
        let Self::Many(clauses) = self else { return };
        clauses.remove(at);
        if let [only] = clauses[..] {
            *self = Self::One(only);
        }
    }
}

impl Chunk {
    fn get(&self, id: &FlowId) -> Option<&Clauses> {
        let at = self.find(id).ok()?;
        self.0.get(at).map(|(_, clauses)| clauses)
    }

    fn find(&self, id: &FlowId) -> Result<usize, usize> {
        self.0.binary_search_by_key(id, |(id, _)| *id)
    }
}

impl FlowTable {
    /// Adds a rule's clause to a flow, which comes to be with it.
    pub(super) fn add(&mut self, id: FlowId, clause: Clause) {
        let number = chunk_of(&id);
        let chunk = self.chunks.entry(number).or_default();
        let is_new = match chunk.find(&id) {
            Ok(at) => chunk.0[at].1.insert(clause),
            Err(at) => {
                if chunk.0.len() == chunk.0.capacity() {
                    chunk.0.reserve_exact(1 + chunk.0.len() / 8);
                }
                chunk.0.insert(at, (id, Clauses::One(clause)));
                self.n_flows += 1;
                true
            }
        };
        if is_new {
            self.dirty.insert(number);
        }
    }

    /// Takes a rule's clause from a flow, which goes with the last one.
    pub(super) fn remove(&mut self, id: FlowId, clause: Clause) {
        let number = chunk_of(&id);
        let Some(chunk) = self.chunks.get_mut(&number) else { return };
        let Ok(place) = chunk.find(&id) else { return };
        let clauses = &mut chunk.0[place].1;
        let Ok(at) = clauses.as_slice().binary_search(&clause) else { return };
        if clauses.as_slice().len() == 1 {
            chunk.0.remove(place);
            self.n_flows -= 1;
        } else {
            clauses.remove(at);
        }
        self.dirty.insert(number);
    }

    /// How many rules a flow holds.
    pub(super) fn n_rules(&self, id: &FlowId) -> usize {
        self.clauses(id).len()
    }

    /// The rules a flow holds.
    pub(super) fn rules(&self, id: &FlowId) -> impl Iterator<Item = ConjId> {
        self.clauses(id).iter().map(|clause| clause.id)
    }

    fn clauses(&self, id: &FlowId) -> &[Clause] {
        let chunk = self.chunks.get(&chunk_of(id));
        chunk.and_then(|chunk| chunk.get(id)).map_or(&[], Clauses::as_slice)
    }

    /// The flow has another priority.
    pub(super) fn touch(&mut self, id: &FlowId) {
        self.dirty.insert(chunk_of(id));
    }

    /// How many flows there are.
    pub(super) fn len(&self) -> usize {
        self.n_flows
    }

    /// Chunks that changed since the last call, with all their flows, one after the other; empty
    /// ones are to be removed.
    pub(super) fn take_changes(
        &mut self,
        priority_of: impl Fn(Slot) -> Option<u16>,
    ) -> impl Iterator<Item = (String, Vec<Flow>)> {
        let mut known: HashMap<Slot, Option<u16>> = HashMap::new();
        let chunks = &mut self.chunks;
        std::mem::take(&mut self.dirty).into_iter().map(move |chunk| {
            let mut flows = Vec::new();
            for (id, clauses) in chunks.get(&chunk).into_iter().flat_map(|chunk| &chunk.0) {
                let priority = *known.entry(id.slot).or_insert_with(|| priority_of(id.slot));
                let clauses = clauses.as_slice().iter().copied();
                let flow = |priority| clause_flow(id.slot.table, priority, id.key, clauses);
                flows.extend(priority.map(flow));
            }
            if flows.is_empty() {
                chunks.remove(&chunk);
            }
            (format!("clauses/{chunk}"), flows)
        })
    }
}

#[cfg(test)]
mod tests {
    use openflow::OfPort;
    use pipeline::Families;
    use pipeline::policy::{PortRange, ServiceSpec, Transport};

    use super::*;

    #[test]
    fn every_match_can_hold_so_many_rules() {
        let range = Some(PortRange { first: 1, last: 3 });
        let services = [
            ServiceSpec::Transport { protocol: Transport::Sctp, dst: range, src: range },
            ServiceSpec::Icmp { kind: Some(8), code: Some(0) },
        ];
        let mut keys = vec![
            ClauseKey::ToPort(OfPort(1)),
            ClauseKey::from_net("10.0.0.0/9".parse().unwrap()),
            ClauseKey::to_net("fd00::/65".parse().unwrap()),
        ];
        let matches = services.into_iter().flat_map(|service| service.matches(Families::Dual));
        keys.extend(matches.map(ClauseKey::Service));
        for key in keys {
            let most = Flow::max_conjunctions(&key.matching());
            assert!(most >= MAX_RULES_PER_FLOW, "{key:?}: {most}");
        }
    }

    #[test]
    fn a_flow_of_one_rule_is_small() {
        assert!(size_of::<(FlowId, Clauses)>() <= 48, "{}", size_of::<(FlowId, Clauses)>());
    }

    #[test]
    fn a_flow_goes_with_its_last_rule() {
        let mut table = FlowTable::default();
        let id = FlowId {
            slot: Slot { table: TableId(84), level: 0 },
            key: ClauseKey::ToPort(OfPort(3)),
        };
        let clause = |id| Clause { id: ConjId(id), clause: 2, n_clauses: 2 };
        for rule in [9, 7, 9] {
            table.add(id, clause(rule));
        }
        fn text(changes: impl Iterator<Item = (String, Vec<Flow>)>) -> Vec<String> {
            changes.flat_map(|(_, flows)| flows).map(|flow| flow.to_string()).collect()
        }
        assert_eq!(table.n_rules(&id), 2);
        assert_eq!(
            text(table.take_changes(|_| Some(200))),
            ["cookie=0xa17e020000000000, table=84, priority=200,reg1=0x3 \
              actions=conjunction(7,2/2),conjunction(9,2/2)"]
        );
        assert_eq!(table.take_changes(|_| Some(200)).count(), 0);
        table.remove(id, clause(7));
        table.remove(id, clause(7));
        assert_eq!(text(table.take_changes(|_| Some(201))).len(), 1);
        table.remove(id, clause(9));
        let changes: Vec<_> = table.take_changes(|_| Some(200)).collect();
        assert_eq!((changes.len(), table.len()), (1, 0));
        assert!(changes[0].1.is_empty());
    }
}
