//! The flow table does not depend on the order in which things came.

use std::collections::BTreeMap;

use apis::controlplane::RuleAction;
use openflow::{Action, ConjId, Flow, Match};

use super::world::*;
use crate::realize::Event;

/// Flows with rules' numbers and priorities replaced by what does not depend on the order: whose
/// they are, and the order of priorities in a table.
fn canonical(world: &World) -> Vec<String> {
    let mut owners: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let flows = world.switch.flows();
    for flow in &flows {
        if let (Some(id), Some(Action::Note(note))) =
            (flow.matching.exact(openflow::Field::ConjId), flow.actions.first())
        {
            owners.insert(u32::try_from(id).unwrap(), note.clone());
        }
    }
    let mut sorted: Vec<&Vec<u8>> = owners.values().collect();
    sorted.sort();
    let renamed: BTreeMap<u32, u32> = owners
        .iter()
        .map(|(id, owner)| (*id, u32::try_from(sorted.binary_search(&owner).unwrap()).unwrap()))
        .collect();
    let mut levels: BTreeMap<u8, Vec<u16>> = BTreeMap::new();
    for flow in &flows {
        levels.entry(flow.table.0).or_default().push(flow.priority);
    }
    for priorities in levels.values_mut() {
        priorities.sort_unstable();
        priorities.dedup();
    }
    let mut texts: Vec<String> =
        flows.into_iter().map(|flow| rename(flow, &renamed, &levels)).collect();
    texts.sort();
    texts
}

fn rename(flow: Flow, ids: &BTreeMap<u32, u32>, levels: &BTreeMap<u8, Vec<u16>>) -> String {
    let mut flow = flow;
    let level = levels[&flow.table.0].binary_search(&flow.priority).unwrap();
    flow.priority = u16::try_from(level).unwrap();
    let old = flow.cookie.0 & 0xffff_ffff;
    if let Some(id) = ids.get(&u32::try_from(old).unwrap()) {
        flow.cookie.0 = flow.cookie.0 - old + u64::from(*id);
    }
    let mut conjunctions = Vec::new();
    for action in &mut flow.actions {
        if let Action::Conjunction { id, clause, n_clauses } = action {
            conjunctions.push((ids[&id.0], *clause, *n_clauses));
        }
    }
    if !conjunctions.is_empty() {
        conjunctions.sort_unstable();
        flow.actions = conjunctions
            .into_iter()
            .map(|(id, clause, n)| Action::conjunction(ConjId(id), clause, n))
            .collect();
    }
    let text = flow.to_string();
    // Numbers of rules elsewhere: matches on registers and labels, and what is put there.
    let is_rule = flow.matching.exact(openflow::Field::ConjId).is_some()
        || (flow.table.0 == 92 || flow.table.0 == 144);
    if is_rule && flow.matching != Match::new() {
        return text
            .split("actions=")
            .next()
            .unwrap_or_default()
            .split(' ')
            .next()
            .map_or_else(String::new, |_| {
                format!("rule flow of table {} with {} actions", flow.table.0, flow.actions.len())
            });
    }
    text
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(self.0 >> 33).unwrap() % n
    }

    fn shuffle<T>(&mut self, things: &mut [T]) {
        for n in (1..things.len()).rev() {
            things.swap(n, self.below(n + 1));
        }
    }
}

/// Things that can be there: each is an event that brings it and one that takes it away.
fn things(random: &mut Random) -> Vec<(Event, Event)> {
    let mut all = Vec::new();
    for (n, name) in ["t1", "t2"].into_iter().enumerate() {
        let pods = [vec![1, 2], vec![2, 3]][n].clone();
        all.push((
            Event::AppliedToGroupSet(targets(name, &pods)),
            Event::AppliedToGroupDeleted(name.into()),
        ));
    }
    for (name, pods) in [("p1", vec![1, 4]), ("p2", vec![4, 7, 8]), ("p3", vec![])] {
        all.push((
            Event::AddressGroupSet(peers(name, &pods)),
            Event::AddressGroupDeleted(name.into()),
        ));
    }
    for n in 0..8 {
        let uid = format!("u{n}");
        let target = ["t1", "t2"][random.below(2)];
        let mut rules = Vec::new();
        for index in 0..=random.below(3) {
            let rule = if random.below(2) == 0 { ingress() } else { egress() };
            let rule = match random.below(4) {
                0 => rule.any(),
                1 => rule.peers(&["p1"]),
                2 => rule.peers(&["p1", "p2"]),
                _ => rule.block("10.0.0.0/28", &["10.0.0.4/32"]).peers(&["p3"]),
            };
            let rule = match random.below(3) {
                0 => rule,
                1 => rule.port("TCP", "80"),
                _ => rule.port("TCP", "80-83").port("UDP", ""),
            };
            let action =
                [RuleAction::Allow, RuleAction::Drop, RuleAction::Pass][random.below(3)].clone();
            rules.push(rule.says(action, i32::try_from(index).unwrap()));
        }
        let policy = match random.below(3) {
            0 => k8s(&uid, target, rules),
            1 => antrea(&uid, (250, 5.0), &[target], rules),
            _ => antrea(&uid, (253, 1.5), &["t1", "t2"], rules),
        };
        all.push((Event::PolicySet(policy), Event::PolicyDeleted(uid)));
    }
    all
}

#[test]
fn orders_of_coming_and_going_do_not_matter() {
    let mut random = Random(7);
    for _ in 0..40 {
        let all = things(&mut random);
        let mut straight = World::new();
        straight.feed(all.iter().map(|(come, _)| come.clone()));
        let want = canonical(&straight);
        for _ in 0..3 {
            // Everything in another order, some of it twice, taken away and brought again between.
            let mut world = World::new();
            let mut order: Vec<usize> = (0..all.len()).collect();
            random.shuffle(&mut order);
            for n in order {
                world.feed([all[n].0.clone()]);
                let again = random.below(all.len());
                if matches!(all[again].0, Event::PolicySet(_)) && random.below(2) == 0 {
                    world.feed([all[again].0.clone()]);
                    world.feed([all[again].1.clone()]);
                }
            }
            world.feed(all.iter().map(|(come, _)| come.clone()));
            world.now += S(100);
            world.feed([Event::Tick]);
            assert_eq!(canonical(&world), want);
            let mut gone: Vec<Event> = all.iter().map(|(_, go)| go.clone()).collect();
            random.shuffle(&mut gone);
            for event in gone {
                world.feed([event]);
            }
            world.now += S(100);
            world.feed([Event::Tick]);
            assert_eq!(world.switch.flows(), []);
        }
    }
}
