//! Numbers of rules: found again after a start, and not given out again before nobody can mean the
//! old one.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use openflow::{Action, ConjId, Flow};

/// Whose rule it is, and which: a hash of the policy's UID and of what the rule says. It travels
/// with the rule's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleOwner(pub [u8; 12]);

impl RuleOwner {
    /// The hash (FNV-1a, 128 bits, cut) of some bytes.
    pub(super) fn of(parts: &[&[u8]]) -> Self {
        const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let mut hash = OFFSET;
        for part in parts {
            let len = part.len().to_be_bytes();
            for byte in part.iter().chain(&len) {
                hash = (hash ^ u128::from(*byte)).wrapping_mul(PRIME);
            }
        }
        let bytes = hash.to_be_bytes();
        let mut cut = [0; 12];
        cut.copy_from_slice(&bytes[4..]);
        Self(cut)
    }
}

/// The rules whose flows are on the switch, with their numbers.
pub fn recover<'a>(flows: impl IntoIterator<Item = &'a Flow>) -> Vec<(RuleOwner, ConjId)> {
    let rule = |flow: &Flow| {
        let id = flow.matching.exact(openflow::Field::ConjId)?;
        let Some(Action::Note(note)) = flow.actions.first() else { return None };
        let owner = note.first_chunk::<12>()?;
        Some((RuleOwner(*owner), ConjId(u32::try_from(id).ok()?)))
    };
    flows.into_iter().filter_map(rule).collect()
}

/// Numbers in use, and those that rest.
#[derive(Debug)]
pub(super) struct Ids {
    /// What was on the switch at the start and is not claimed yet.
    recovered: HashMap<RuleOwner, ConjId>,
    used: HashMap<ConjId, RuleOwner>,
    resting: VecDeque<(Duration, ConjId)>,
    next: u32,
    rest: Duration,
}

/// The first number for rules; 0 stands for none.
const FIRST: u32 = 2;

impl Ids {
    pub(super) fn new(rest: Duration) -> Self {
        Self {
            recovered: HashMap::new(),
            used: HashMap::new(),
            resting: VecDeque::new(),
            next: FIRST,
            rest,
        }
    }

    /// Takes in what is on the switch. Numbers go on after the highest, so that one that was free
    /// there, perhaps only just, is not given out soon.
    pub(super) fn recover(&mut self, found: Vec<(RuleOwner, ConjId)>) {
        for (owner, id) in found {
            self.next = self.next.max(id.0.saturating_add(1));
            if !self.used.contains_key(&id) {
                self.recovered.insert(owner, id);
            }
        }
    }

    /// The number of a rule that gets one.
    pub(super) fn take(&mut self, owner: RuleOwner, now: Duration) -> Option<ConjId> {
        let id = match self.recovered.remove(&owner) {
            Some(id) if !self.used.contains_key(&id) => id,
            _ => self.fresh(now)?,
        };
        self.used.insert(id, owner);
        Some(id)
    }

    fn fresh(&mut self, now: Duration) -> Option<ConjId> {
        while self.next < u32::MAX {
            let id = ConjId(self.next);
            self.next += 1;
            let taken = self.used.contains_key(&id) || self.recovered.values().any(|r| *r == id);
            if !taken {
                return Some(id);
            }
        }
        // All numbers were given out once: those that rested long enough come again, the first
        // given back first.
        match self.resting.front() {
            Some((since, _)) if now >= *since + self.rest => {
                self.resting.pop_front().map(|(_, id)| id)
            }
            _ => None,
        }
    }

    /// The rule is gone.
    pub(super) fn release(&mut self, id: ConjId, now: Duration) {
        if self.used.remove(&id).is_some() {
            self.resting.push_back((now, id));
        }
    }

    /// What nobody claimed by now is nobody's: those numbers rest as if given back now.
    pub(super) fn forget_unclaimed(&mut self, now: Duration) {
        let mut unclaimed: Vec<ConjId> = self.recovered.drain().map(|(_, id)| id).collect();
        unclaimed.sort_unstable();
        self.resting.extend(unclaimed.into_iter().map(|id| (now, id)));
    }

    #[cfg(test)]
    pub(super) fn jump_to(&mut self, next: u32) {
        self.next = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u8) -> RuleOwner {
        RuleOwner::of(&[&[n]])
    }

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn numbers_are_found_again_before_any_is_given_out() {
        let mut ids = Ids::new(S(5));
        ids.recover(vec![(owner(1), ConjId(7)), (owner(2), ConjId(4))]);
        assert_eq!(ids.take(owner(3), S(0)), Some(ConjId(8)));
        assert_eq!(ids.take(owner(1), S(0)), Some(ConjId(7)));
        assert_eq!(ids.take(owner(2), S(0)), Some(ConjId(4)));
        assert_eq!(ids.take(owner(4), S(0)), Some(ConjId(9)));
    }

    #[test]
    fn numbers_rest_before_they_come_again() {
        let mut ids = Ids::new(S(5));
        ids.jump_to(u32::MAX - 2);
        let (a, b) = (ids.take(owner(1), S(0)).unwrap(), ids.take(owner(2), S(0)).unwrap());
        assert_eq!(ids.take(owner(3), S(0)), None, "there is none left");
        ids.release(b, S(10));
        ids.release(a, S(11));
        ids.release(a, S(11));
        assert_eq!(ids.take(owner(3), S(14)), None, "they rest");
        assert_eq!(ids.take(owner(3), S(15)), Some(b), "the first given back");
        assert_eq!(ids.take(owner(4), S(15)), None);
        assert_eq!(ids.take(owner(4), S(16)), Some(a));
    }

    #[test]
    fn what_is_recovered_is_read_from_flows() {
        let flow: Flow = "table=80,priority=5,conj_id=9 actions=note:01.02.03.04.05.06.07.08.09.0a.0b.0c.00.00,goto_table:92"
            .parse()
            .unwrap();
        let other: Flow = "table=80,priority=5,ip actions=conjunction(9,1/2)".parse().unwrap();
        let found = recover([&flow, &other]);
        assert_eq!(found, [(RuleOwner([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), ConjId(9))]);
    }

    #[test]
    fn hashes_tell_parts_apart() {
        assert_ne!(RuleOwner::of(&[b"ab", b"c"]), RuleOwner::of(&[b"a", b"bc"]));
        assert_ne!(RuleOwner::of(&[b""]), RuleOwner::of(&[]));
    }
}
