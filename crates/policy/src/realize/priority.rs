//! OpenFlow priorities for rules that have an order.
//!
//! Rules rank by tier, then policy priority, then place in the policy; a lower rank goes first and
//! gets a higher OpenFlow priority. Rules of different policies that are equal in all three are
//! ranked by what they say: Drop, Reject, Pass, Allow. So the answer is the same wherever and in
//! whatever order the rules came, and rules that share a rank agree, and share a priority.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use pipeline::policy::Verdict;

/// A policy's priority within its tier; ordered as numbers are, with what is no number last.
#[derive(Clone, Copy, Debug)]
pub struct PolicyPriority(pub f64);

impl PolicyPriority {
    fn ordered(self) -> f64 {
        if self.0 == 0.0 { 0.0 } else { self.0 }
    }
}

impl PartialEq for PolicyPriority {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PolicyPriority {}

impl PartialOrd for PolicyPriority {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PolicyPriority {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ordered().total_cmp(&other.ordered())
    }
}

/// Where a rule stands; lower goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Priority of the tier.
    pub tier: i32,
    /// Priority of the policy in its tier.
    pub policy: PolicyPriority,
    /// Place of the rule in its policy.
    pub rule: i32,
    /// Order among those that are equal so far.
    pub say: u8,
    /// Rules that are logged go before those that are not, as nothing else tells them apart.
    pub unlogged: u8,
    /// Rules of equal rank that do not fit into the flows of one priority go to the next.
    pub spread: u16,
}

/// The order among rules that are otherwise equal.
#[must_use]
pub const fn say(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Drop => 0,
        Verdict::Reject => 1,
        Verdict::Pass => 2,
        Verdict::Allow => 3,
    }
}

/// There are as many ranks as priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no OpenFlow priority is left")]
pub(super) struct Full;

/// The priorities of one table.
#[derive(Debug)]
pub(super) struct Assigner {
    lowest: u16,
    highest: u16,
    ranks: BTreeMap<Rank, Assigned>,
    /// The same, by priority.
    taken: BTreeMap<u16, Rank>,
}

#[derive(Clone, Copy, Debug)]
struct Assigned {
    priority: u16,
    n_users: u32,
}

/// Room kept to a neighbour when there is plenty.
const STRIDE: u32 = 32;

impl Assigner {
    pub(super) fn new(lowest: u16, highest: u16) -> Self {
        Self { lowest, highest, ranks: BTreeMap::new(), taken: BTreeMap::new() }
    }

    /// The priority of a rank that is in use.
    pub(super) fn get(&self, rank: &Rank) -> Option<u16> {
        self.ranks.get(rank).map(|assigned| assigned.priority)
    }

    /// One more rule has this rank. Ranks that had to move to make room are added to `moved`.
    /// On an error nothing has changed.
    pub(super) fn acquire(&mut self, rank: Rank, moved: &mut Vec<Rank>) -> Result<u16, Full> {
        if let Some(assigned) = self.ranks.get_mut(&rank) {
            assigned.n_users += 1;
            return Ok(assigned.priority);
        }
        let capacity = usize::from(self.highest - self.lowest) + 1;
        if self.ranks.len() >= capacity {
            return Err(Full);
        }
        let (mut above, mut below) = self.neighbours(&rank);
        if above - below < 2 {
            self.make_room(&rank, moved);
            (above, below) = self.neighbours(&rank);
        }
        let priority = place(hint(&rank, self.lowest, self.highest), above, below);
        self.ranks.insert(rank, Assigned { priority, n_users: 1 });
        self.taken.insert(priority, rank);
        Ok(priority)
    }

    /// One rule less has this rank.
    pub(super) fn release(&mut self, rank: &Rank) {
        let Some(assigned) = self.ranks.get_mut(rank) else { return };
        assigned.n_users -= 1;
        if assigned.n_users == 0 {
            let priority = assigned.priority;
            self.ranks.remove(rank);
            self.taken.remove(&priority);
        }
    }

    /// The priorities next to a rank's place, outside the range where there is no neighbour:
    /// what is between them is free.
    fn neighbours(&self, rank: &Rank) -> (u32, u32) {
        let before = self.ranks.range(..*rank).next_back();
        let after = self.ranks.range(*rank..).next();
        let above = before.map_or(u32::from(self.highest) + 1, |(_, a)| a.priority.into());
        // The lowest priority is above 0.
        let below = after.map_or(u32::from(self.lowest) - 1, |(_, a)| a.priority.into());
        (above, below)
    }

    /// Spreads the ranks around a place evenly over a stretch that is not too full: the smallest
    /// such stretch, so that few move. The emptier a stretch has to be the longer it is, so that
    /// the next ones find room; the whole range may be full but for one.
    fn make_room(&mut self, rank: &Rank, moved: &mut Vec<Rank>) {
        let (above, _) = self.neighbours(rank);
        let (lowest, highest) = (u32::from(self.lowest), u32::from(self.highest));
        let mut width = 4;
        loop {
            let first = above.saturating_sub(width / 2).max(lowest);
            let last = (first + width - 1).min(highest);
            let first = (last + 1).saturating_sub(width).max(lowest);
            let whole = first == lowest && last == highest;
            let range = narrow(first)..=narrow(last);
            let inside: Vec<Rank> = self.taken.range(range).map(|(_, rank)| *rank).collect();
            let size = usize::try_from(last - first + 1).unwrap_or(usize::MAX);
            let may_have = if whole { size - 1 } else { size * 3 / 4 };
            if inside.len() <= may_have {
                self.respread(rank, &inside, (first, last), moved);
                return;
            }
            width *= 2;
        }
    }

    /// Gives `inside`, and the place of `rank` among them, priorities that are evenly apart.
    fn respread(
        &mut self,
        rank: &Rank,
        inside: &[Rank],
        (first, last): (u32, u32),
        moved: &mut Vec<Rank>,
    ) {
        let n_slots = u64::try_from(inside.len()).unwrap_or(u64::MAX) + 1;
        let size = u64::from(last - first + 1);
        // From the lowest priority up, so from the last rank on.
        let mut places = (0..n_slots).map(|n| first + narrow32(n * size / n_slots));
        let mut place_for_rank = true;
        let mut placed = Vec::with_capacity(inside.len());
        for other in inside {
            if place_for_rank && rank > other {
                place_for_rank = false;
                places.next();
            }
            if let Some(priority) = places.next() {
                placed.push((*other, narrow(priority)));
            }
        }
        for (other, priority) in &placed {
            if let Some(assigned) = self.ranks.get_mut(other)
                && assigned.priority != *priority
            {
                self.taken.remove(&assigned.priority);
                assigned.priority = *priority;
                moved.push(*other);
            }
        }
        for (other, priority) in placed {
            self.taken.insert(priority, other);
        }
    }
}

/// A priority between two neighbours, both excluded: the hint if it is there, else near the
/// neighbour that it is beyond.
fn place(hint: u32, above: u32, below: u32) -> u16 {
    let (highest, lowest) = (above - 1, below + 1);
    let half = (highest - lowest) / 2;
    narrow(match hint {
        hint if hint > highest => highest - half.min(STRIDE),
        hint if hint < lowest => lowest + half.min(STRIDE),
        hint => hint,
    })
}

/// Where a rank would be if it were alone: the same after every start.
fn hint(rank: &Rank, lowest: u16, highest: u16) -> u32 {
    let tier = f64::from(rank.tier.clamp(0, 255));
    // Most policies have small numbers: the first hundred get most of the room.
    let priority = rank.policy.0.clamp(0.0, 10_000.0);
    let priority = if priority.is_nan() { 10_000.0 } else { priority };
    let within =
        if priority <= 100.0 { priority * 0.006 } else { 0.6 + (priority.log10() - 2.0) * 0.195 };
    let width = f64::from(highest - lowest);
    let down = (tier + within) / 256.0 * width;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and 65,535
    let down = down as u32 + u32::try_from(rank.rule.clamp(0, 1000)).unwrap_or_default() * 2;
    u32::from(highest).saturating_sub(down).max(lowest.into())
}

fn narrow(priority: u32) -> u16 {
    u16::try_from(priority).unwrap_or(u16::MAX)
}

fn narrow32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
