//! Numbers of groups: the same after every start.
//!
//! A number is the hash of whose group it is, or the next free one. Which is free depends on what came
//! first, so the few that are not their owner's hash are told to whoever keeps them, and taken back at
//! the next start. One that was given back rests: only its last owner gets it before many others were
//! given back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use openflow::GroupId;
use pipeline::service::MAX_GROUP_ID;

use crate::proxy::PortKey;

/// The least number of a group of a Service.
pub(crate) const FIRST: u32 = 1;
/// How many there are.
const COUNT: u32 = MAX_GROUP_ID.0;
/// How many numbers rest.
const RESTING: usize = 1024;

/// Which of a port's groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Servers anywhere.
    Cluster {
        /// Whether of IPv6.
        ipv6: bool,
    },
    /// Servers on this node.
    Local {
        /// Whether of IPv6.
        ipv6: bool,
    },
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [
        Self::Cluster { ipv6: false },
        Self::Local { ipv6: false },
        Self::Cluster { ipv6: true },
        Self::Local { ipv6: true },
    ];

    /// A short name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cluster { ipv6: false } => "c4",
            Self::Local { ipv6: false } => "l4",
            Self::Cluster { ipv6: true } => "c6",
            Self::Local { ipv6: true } => "l6",
        }
    }

    /// The kind of this name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

/// A group's number that does not follow from whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// Whose group it is.
    pub port: PortKey,
    /// Which one.
    pub kind: Kind,
    /// The number.
    pub id: GroupId,
}

type Owner = (Arc<PortKey>, Kind);

/// Numbers in use, and those that rest.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    of: HashMap<Owner, u32>,
    used: HashMap<u32, Owner>,
    resting: VecDeque<(u32, Owner)>,
    /// Had before a start, and not asked for yet.
    held: HashMap<Owner, u32>,
}

impl Ids {
    /// The number of a group; the same as before where it has one.
    pub(crate) fn take(&mut self, port: &Arc<PortKey>, kind: Kind) -> u32 {
        let owner = (port.clone(), kind);
        if let Some(id) = self.of.get(&owner) {
            return *id;
        }
        let rested = self.resting.iter().position(|(_, last)| *last == owner);
        let rested = rested.and_then(|at| self.resting.remove(at)).map(|(id, _)| id);
        let held = self.held.remove(&owner).filter(|id| !self.used.contains_key(id));
        let id = rested.or(held).unwrap_or_else(|| self.free(hash(&owner)));
        self.used.insert(id, owner.clone());
        self.of.insert(owner, id);
        id
    }

    /// The numbers of a port's groups.
    pub(crate) fn of_port(&self, port: &Arc<PortKey>) -> impl Iterator<Item = u32> {
        Kind::ALL.into_iter().filter_map(|kind| self.of.get(&(port.clone(), kind)).copied())
    }

    /// The next number that nobody has or had lately.
    fn free(&self, hash: u32) -> u32 {
        let numbers = (0..COUNT).map(|step| usual((hash % COUNT + step) % COUNT));
        let is_free = |id: &u32| {
            !self.used.contains_key(id)
                && !self.resting.iter().any(|(resting, _)| resting == id)
                && !self.held.values().any(|held| held == id)
        };
        let mut numbers = numbers.filter(is_free);
        numbers.next().expect("sixteen million groups do not fit on a switch")
    }

    /// Takes the numbers that owners had before a start; nobody else gets them until it is over.
    pub(crate) fn hold(&mut self, numbers: impl IntoIterator<Item = Number>) {
        let fits = |number: &Number| (FIRST..FIRST + COUNT).contains(&number.id.0);
        let numbers = numbers.into_iter().filter(fits);
        self.held.extend(numbers.map(|Number { port, kind, id }| ((Arc::new(port), kind), id.0)));
    }

    /// The start is over: whoever did not ask is gone.
    pub(crate) fn let_go(&mut self) {
        self.held.clear();
    }

    /// The numbers that do not follow from whose they are, in order.
    pub(crate) fn unusual(&self) -> Vec<Number> {
        let unusual = self.of.iter().filter(|(owner, id)| **id != usual(hash(owner)));
        let number = |((port, kind), id): (&Owner, &u32)| Number {
            port: PortKey::clone(port),
            kind: *kind,
            id: GroupId(*id),
        };
        let mut numbers: Vec<Number> = unusual.map(number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Gives a number back.
    pub(crate) fn give_back(&mut self, port: &Arc<PortKey>, kind: Kind) {
        let owner = (port.clone(), kind);
        let Some(id) = self.of.remove(&owner) else { return };
        self.used.remove(&id);
        self.resting.push_back((id, owner));
        if self.resting.len() > RESTING {
            self.resting.pop_front();
        }
    }
}

/// The number that a hash stands for.
const fn usual(hash: u32) -> u32 {
    FIRST + hash % COUNT
}

/// FNV-1a, folded. Two owners with the same hash get numbers one after the other.
fn hash((port, kind): &Owner) -> u32 {
    let text = format!("{port}/{}", kind.word());
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
    u32::from_be_bytes([a, b, c, d]) ^ u32::from_be_bytes([e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: Kind = Kind::Cluster { ipv6: false };

    fn mk_port(n: usize) -> Arc<PortKey> {
        Arc::new(PortKey::new("x", &format!("service-{n}"), "http"))
    }

    #[test]
    fn numbers_are_the_same_after_a_start_and_never_two_the_same() {
        let all = |ids: &mut Ids| -> Vec<u32> {
            let ports = (0..10_000).map(mk_port);
            ports.flat_map(|port| Kind::ALL.map(|kind| ids.take(&port, kind))).collect()
        };
        let (mut before, mut after) = (Ids::default(), Ids::default());
        let numbers = all(&mut before);
        assert_eq!(numbers, all(&mut after), "after a start");
        assert_eq!(numbers, all(&mut before), "asked again");
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 40_000);
        assert!(distinct[0] >= FIRST && *distinct.last().unwrap() < FIRST + COUNT);
    }

    /// Of many owners, the first two with the same hash.
    fn mk_rivals() -> [Arc<PortKey>; 2] {
        let mut seen: HashMap<u32, Arc<PortKey>> = HashMap::new();
        for port in (0..).map(mk_port) {
            let number = usual(hash(&(port.clone(), CLUSTER)));
            if let Some(first) = seen.insert(number, port.clone()) {
                return [first, port];
            }
        }
        unreachable!("there are more owners than numbers")
    }

    #[test]
    fn numbers_that_met_are_the_same_after_a_start_in_any_order() {
        let [one, other] = mk_rivals();
        let mut before = Ids::default();
        // The one whose name comes last came first.
        let numbers = [before.take(&other, CLUSTER), before.take(&one, CLUSTER)];
        assert_eq!(numbers[1], numbers[0] + 1);
        let kept = before.unusual();
        assert_eq!(kept.len(), 1, "{kept:?}");
        let mut after = Ids::default();
        after.hold(kept.clone());
        let again = [after.take(&one, CLUSTER), after.take(&other, CLUSTER)];
        assert_eq!(again, [numbers[1], numbers[0]]);
        assert_eq!(after.unusual(), kept);
        // Nobody else gets a number that is held, until nobody asks for it any more.
        let mut without = Ids::default();
        without.hold(kept);
        assert_ne!(without.free(numbers[1] - FIRST), numbers[1]);
        without.let_go();
        assert_eq!(without.free(numbers[1] - FIRST), numbers[1]);
        assert_eq!(without.take(&one, CLUSTER), numbers[0], "the other one is gone");
        // What no group can have is passed over.
        let number = |id| Number { port: PortKey::clone(&one), kind: CLUSTER, id: GroupId(id) };
        let mut odd = Ids::default();
        odd.hold([number(0), number(u32::MAX)]);
        assert_eq!(odd.take(&one, CLUSTER), numbers[0]);
    }

    #[test]
    fn a_number_rests_before_another_gets_it() {
        let mut ids = Ids::default();
        let (one, other) = (mk_port(1), mk_port(2));
        let id = ids.take(&one, CLUSTER);
        ids.give_back(&one, CLUSTER);
        ids.give_back(&one, CLUSTER);
        // The other would have the same number.
        assert_ne!(ids.free(id - FIRST), id);
        assert_eq!(ids.take(&one, CLUSTER), id, "its last owner gets it back");
        ids.give_back(&one, CLUSTER);
        ids.take(&other, CLUSTER);
        for n in 3..3 + RESTING {
            let port = mk_port(n);
            ids.take(&port, CLUSTER);
            ids.give_back(&port, CLUSTER);
        }
        assert_eq!(ids.free(id - FIRST), id, "after many others");
    }
}
