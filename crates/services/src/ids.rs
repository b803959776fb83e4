//! Numbers of groups: the same after every start, without anything kept.
//!
//! A number is the hash of whose group it is, or the next free one. Those of one list are given out in
//! order, so that two agents, and one that starts again, find the same. One that was given back rests:
//! only its last owner gets it before many others were given back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

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
pub(crate) enum Kind {
    /// Servers anywhere.
    Cluster { ipv6: bool },
    /// Servers on this node.
    Local { ipv6: bool },
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [
        Self::Cluster { ipv6: false },
        Self::Local { ipv6: false },
        Self::Cluster { ipv6: true },
        Self::Local { ipv6: true },
    ];
}

type Owner = (Arc<PortKey>, Kind);

/// Numbers in use, and those that rest.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    of: HashMap<Owner, u32>,
    used: HashMap<u32, Owner>,
    resting: VecDeque<(u32, Owner)>,
}

impl Ids {
    /// The number of a group; the same as before where it has one.
    pub(crate) fn take(&mut self, port: &Arc<PortKey>, kind: Kind) -> u32 {
        let owner = (port.clone(), kind);
        if let Some(id) = self.of.get(&owner) {
            return *id;
        }
        let rested = self.resting.iter().position(|(_, last)| *last == owner);
        let id = match rested.and_then(|at| self.resting.remove(at)) {
            Some((id, _)) => id,
            None => self.free(hash(&owner)),
        };
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
        let numbers = (0..COUNT).map(|step| FIRST + (hash % COUNT + step) % COUNT);
        let is_free = |id: &u32| {
            !self.used.contains_key(id) && !self.resting.iter().any(|(resting, _)| resting == id)
        };
        let mut numbers = numbers.filter(is_free);
        numbers.next().expect("sixteen million groups do not fit on a switch")
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

/// FNV-1a, folded. Two owners with the same hash get numbers one after the other.
fn hash((port, kind): &Owner) -> u32 {
    let word = match kind {
        Kind::Cluster { ipv6: false } => "c4",
        Kind::Local { ipv6: false } => "l4",
        Kind::Cluster { ipv6: true } => "c6",
        Kind::Local { ipv6: true } => "l6",
    };
    let text = format!("{port}/{word}");
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
