use super::*;

fn rank(tier: i32, policy: f64, rule: i32) -> Rank {
    Rank { tier, policy: PolicyPriority(policy), rule, say: 0, unlogged: 1, spread: 0 }
}

/// Every rank has a priority in range, in the order of ranks, and nobody moved without being told.
#[track_caller]
fn check(assigner: &Assigner) {
    let mut last = u32::from(assigner.highest) + 1;
    for (rank, assigned) in &assigner.ranks {
        assert!(u32::from(assigned.priority) < last, "{rank:?} is below its predecessor");
        assert!(assigned.priority >= assigner.lowest);
        assert_eq!(assigner.taken.get(&assigned.priority), Some(rank));
        last = assigned.priority.into();
    }
    assert_eq!(assigner.ranks.len(), assigner.taken.len());
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }
}

#[test]
fn thousands_in_random_order_and_out_again() {
    let mut random = Random(1);
    let mut assigner = Assigner::new(100, 64989);
    let mut known: BTreeMap<Rank, u16> = BTreeMap::new();
    let mut all = Vec::new();
    for n in 0..6000u32 {
        let rank = match n % 3 {
            // Clustered at both ends, evenly spread, fractional.
            0 => rank(1, 1.0 + f64::from(n) / 1e6, 0),
            1 => rank(255, 10_000.0 - f64::from(n) / 1e6, 3),
            _ => {
                let policy = f64::from(u32::try_from(random.below(10_000)).unwrap()) / 7.0;
                rank(i32::try_from(random.below(256)).unwrap(), policy, 0)
            }
        };
        let mut moved = Vec::new();
        let priority = assigner.acquire(rank, &mut moved).unwrap();
        known.insert(rank, priority);
        for rank in moved {
            known.insert(rank, assigner.get(&rank).unwrap());
        }
        for (rank, priority) in &known {
            assert_eq!(assigner.get(rank), Some(*priority), "nothing moves unsaid");
            if n % 500 != 0 {
                break;
            }
        }
        all.push(rank);
    }
    check(&assigner);
    for rank in all {
        assigner.release(&rank);
    }
    assert!(assigner.ranks.is_empty() && assigner.taken.is_empty());
}

#[test]
fn always_into_the_same_gap_until_all_is_full() {
    let mut assigner = Assigner::new(10, 180);
    let mut n_moved = 0;
    for n in 0..171 {
        let mut moved = Vec::new();
        // Each one between the first and all others.
        let policy = if n == 0 { 1.0 } else { 9000.0 - f64::from(n) };
        assigner.acquire(rank(253, policy, 0), &mut moved).unwrap();
        n_moved += moved.len();
        check(&assigner);
    }
    let before: Vec<_> = assigner.taken.clone().into_iter().collect();
    let mut moved = Vec::new();
    assert_eq!(assigner.acquire(rank(253, 5.0, 0), &mut moved), Err(Full));
    assert!(moved.is_empty());
    assert_eq!(assigner.taken.clone().into_iter().collect::<Vec<_>>(), before, "no change");
    assert!(n_moved < 171 * 30, "{n_moved} moves");
    // The last ones are still found, and one that goes makes room for one.
    assigner.release(&rank(253, 1.0, 0));
    assigner.acquire(rank(253, 5.0, 0), &mut moved).unwrap();
    check(&assigner);
}

#[test]
fn a_whole_table_fills_up() {
    let mut assigner = Assigner::new(100, 1123);
    let mut n_moved = 0;
    for n in 0..1024u32 {
        let mut moved = Vec::new();
        assigner.acquire(rank(250, 5.0 + f64::from(n) / 1e9, 0), &mut moved).unwrap();
        n_moved += moved.len();
        if n == 700 {
            assert!(n_moved < 700 * 60, "{n_moved} moves");
        }
    }
    check(&assigner);
    assert_eq!(assigner.acquire(rank(1, 1.0, 0), &mut Vec::new()), Err(Full));
}

#[test]
fn equal_ranks_share() {
    let mut assigner = Assigner::new(100, 64989);
    let mut moved = Vec::new();
    let first = assigner.acquire(rank(250, 5.0, 0), &mut moved).unwrap();
    for _ in 0..100_000 {
        assert_eq!(assigner.acquire(rank(250, 5.0, 0), &mut moved), Ok(first));
    }
    assert!(moved.is_empty());
    for _ in 0..100_001 {
        assert_eq!(assigner.get(&rank(250, 5.0, 0)), Some(first));
        assigner.release(&rank(250, 5.0, 0));
    }
    assert_eq!(assigner.get(&rank(250, 5.0, 0)), None);
}

#[test]
fn ordinary_policies_stay_where_they_are() {
    let mut places = Vec::new();
    for order in [[0usize, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 1, 3]] {
        let mut assigner = Assigner::new(100, 64989);
        let mut moved = Vec::new();
        let ranks = [
            rank(50, 1.0, 0),
            rank(100, 5.0, 0),
            rank(250, 5.0, 0),
            rank(250, 5.0, 1),
            rank(250, 10.0, 0),
        ];
        for n in order {
            assigner.acquire(ranks[n], &mut moved).unwrap();
        }
        assert!(moved.is_empty());
        places.push(ranks.map(|rank| assigner.get(&rank).unwrap()));
    }
    assert_eq!(places[0], places[1]);
    assert_eq!(places[0], places[2]);
}

#[test]
fn odd_numbers_are_ordered_too() {
    let mut assigner = Assigner::new(100, 64989);
    let odd = [f64::NAN, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY, 1e300, f64::MIN_POSITIVE];
    for policy in odd {
        for tier in [i32::MIN, -1, 0, 255, i32::MAX] {
            assigner.acquire(rank(tier, policy, i32::MAX), &mut Vec::new()).unwrap();
            check(&assigner);
        }
    }
    assert_eq!(assigner.ranks.len(), 5 * 6, "the two zeros are one");
}
